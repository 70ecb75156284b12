/* shared_wire.h: a wire between a switch's port and a process, in memory that both have mapped. One layout for both sides:
 * the switch (switch/runtime/shared_wires.c) and a NIC (hosts/nic/mrc_native.c).
 *
 * One block: this head, the slots towards the switch, the slots towards the process. Each direction is a ring with one
 * producer and one consumer. A producer fills a slot and moves `head` on; the consumer reads it and moves `tail` on. Both
 * count frames modulo 2^32, and rings have a power of two of slots.
 *
 * Waking: a consumer that finds its ring empty sets `asleep`, looks once more, and waits for its socket. A producer that
 * finds `asleep` set clears it and writes a byte to its own end of that socket. So a busy wire needs no system call, and
 * the end of either side is the end of the socket's other end.
 *
 * Neither side trusts the other: a length or a number of frames that cannot be counts as an empty ring.
 */
#ifndef SHARED_WIRE_H
#define SHARED_WIRE_H

#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#define SHARED_LINE 64          /* bytes of a cache line: what two sides write lies in different ones */

struct shared_ring {
    uint32_t head __attribute__((aligned(SHARED_LINE))); /* frames put, by the producer */
    uint32_t wakes;             /* bytes sent to wake the consumer, by the producer */
    uint32_t tail __attribute__((aligned(SHARED_LINE))); /* frames taken, by the consumer */
    uint32_t asleep;            /* the consumer wants to be woken */
    uint64_t lost __attribute__((aligned(SHARED_LINE))); /* frames that found no slot, by the producer */
};

struct shared_wire {
    uint32_t slot_bytes;        /* of a slot, its head included */
    uint32_t slots[2];          /* towards the switch, towards the process */
    uint32_t switch_closed __attribute__((aligned(SHARED_LINE)));  /* the port is down, or somebody captures there */
    uint32_t process_closed __attribute__((aligned(SHARED_LINE))); /* the same at the process's interface */
    struct shared_ring rings[2];
};

enum { SHARED_TO_SWITCH, SHARED_TO_PROCESS };

struct shared_slot {
    uint64_t at_ns;             /* CLOCK_MONOTONIC, when the frame was put */
    uint32_t len, padding;
    uint8_t frame[];
};

static inline size_t shared_bytes(uint32_t slot_bytes, uint32_t to_switch, uint32_t to_process)
{
    return sizeof(struct shared_wire) + (size_t)slot_bytes * ((size_t)to_switch + to_process);
}

static inline uint32_t shared_load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void shared_store(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Frames go over the wire: neither side has closed it. Else they go over the interface. */
static inline int shared_is_open(const struct shared_wire *wire)
{
    return !shared_load(&wire->switch_closed) && !shared_load(&wire->process_closed);
}

/* One direction as one side uses it: sizes are its own copies, which the other side cannot change. */
struct shared_side {
    struct shared_ring *ring;
    uint8_t *first;
    uint32_t slots, slot_bytes;
    uint32_t position;          /* own head or tail */
};

static inline struct shared_side shared_side(struct shared_wire *wire, int direction, const uint32_t slots[2],
                                             uint32_t slot_bytes)
{
    uint8_t *first = (uint8_t *)(wire + 1) + (direction ? (size_t)slots[0] * slot_bytes : 0);
    return (struct shared_side){&wire->rings[direction], first, slots[direction], slot_bytes, 0};
}

static inline struct shared_slot *shared_slot(const struct shared_side *side, uint32_t position)
{
    return (struct shared_slot *)(void *)(side->first + (size_t)(position & (side->slots - 1)) * side->slot_bytes);
}

/* The slot for the next frame of `len` bytes, or NULL: longer than a slot, or all are taken. */
static inline struct shared_slot *shared_room(const struct shared_side *side, size_t len)
{
    if (len > side->slot_bytes - sizeof(struct shared_slot))
        return NULL;
    return side->position - shared_load(&side->ring->tail) < side->slots ? shared_slot(side, side->position) : NULL;
}

/* The slot that shared_room gave is filled. */
static inline void shared_put(struct shared_side *side)
{
    shared_store(&side->ring->head, ++side->position);
}

/* Wake the other side when it waits; called after one or several frames were put. */
static inline void shared_wake(const struct shared_side *side, int fd)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(&side->ring->asleep, __ATOMIC_RELAXED) &&
        __atomic_exchange_n(&side->ring->asleep, 0, __ATOMIC_ACQ_REL)) {
        shared_store(&side->ring->wakes, side->ring->wakes + 1);
        (void)!send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); /* full: bytes wait already */
    }
}

/* Frames that wait. */
static inline uint32_t shared_waiting(const struct shared_side *side)
{
    uint32_t n = shared_load(&side->ring->head) - side->position;
    return n <= side->slots ? n : 0;
}

/* The next frame that waits, its length in `*len`; NULL for a frame whose length cannot be. Copy it before shared_took. */
static inline const struct shared_slot *shared_next(const struct shared_side *side, uint32_t *len)
{
    const struct shared_slot *slot = shared_slot(side, side->position);
    *len = __atomic_load_n(&slot->len, __ATOMIC_RELAXED);
    return *len <= side->slot_bytes - sizeof *slot ? slot : NULL;
}

static inline void shared_took(struct shared_side *side)
{
    shared_store(&side->ring->tail, ++side->position);
}

/* Ask to be woken; returns whether frames have come meanwhile, and then nobody wakes. */
static inline int shared_sleep(const struct shared_side *side)
{
    __atomic_store_n(&side->ring->asleep, 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (!shared_waiting(side))
        return 0;
    __atomic_store_n(&side->ring->asleep, 0, __ATOMIC_RELAXED);
    return 1;
}

#endif
