/* Shared wires: frames between a port on an interface and processes at the interface's other end, past the kernel.
 *
 * The interface stays, and so do its state and its users: what no shared wire of the port takes leaves by it. A process
 * says which frames are its own (rt_match); whoever captures at either end of the interface closes the wire for as long,
 * and everything goes through the kernel. Layout and waking: switch/system/shared_wire.h.
 *
 * To the loop the process's side is an end of a wire (wires.c) whose frames lie in a ring: they are copied from there once.
 *
 * All functions but the RT_API ones are called with the loop locked.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "event_loop.h"

#define SECOND 1000000000u
#define SLOTS_TO_SWITCH 256
#define SLOTS_TO_PROCESS 512        /* as a NIC's receive ring has (hosts/nic/port.py) */

/* ---- frames of the process ---------------------------------------------------------------------------------------- */

/* Put frames of the ring at the end until a batch waits there. */
void rt_shared_fill(struct rt_loop *loop, struct rt_shared *shared, uint64_t now_ns)
{
    struct shared_side *side = &shared->from_process;

    for (uint32_t n = shared_waiting(side); n && shared->end.waiting < RT_BATCH; n--) {
        uint32_t len;
        const struct shared_slot *slot = shared_next(side, &len);
        uint64_t at_ns = slot ? slot->at_ns : 0;
        /* A process may write what it likes: a time that cannot be counts as now. */
        if (at_ns > now_ns || now_ns - at_ns > SECOND)
            at_ns = now_ns;
        if (slot && len <= P4RT_MAX_FRAME - 4 && shared->end.port->up &&
            rt_end_put(loop, &shared->end, slot->frame, len, at_ns)) {
            shared->interface->counts.rx_packets++;
            shared->interface->counts.rx_bytes += len;
        }
        shared_took(side);
    }
}

/* The end has had its turn: it gets another when frames wait, or the process is asked to wake us. */
void rt_shared_rest(struct rt_loop *loop, struct rt_shared *shared)
{
    if (shared->end.first || shared_waiting(&shared->from_process) || shared_sleep(&shared->from_process))
        rt_end_ready(loop, &shared->end);
}

/* ---- frames to the process ---------------------------------------------------------------------------------------- */

static int matches(const struct rt_match *match, const uint8_t *data, uint32_t len)
{
    for (uint32_t i = 0; i < match->n; i++) {
        const struct rt_range *range = &match->ranges[i];
        uint32_t value = 0;
        if (len < range->at + range->bytes)
            return 0;
        for (uint32_t k = 0; k < range->bytes; k++)
            value = value << 8 | data[range->at + k];
        if ((value < range->first || value > range->last) != range->outside)
            return 0;
    }
    return 1;
}

/* A frame leaves by a port: give it to the process that wants it. 0: it goes over the interface. */
int rt_shared_send(struct rt_loop *loop, struct rt_port *port, const uint8_t *data, uint32_t len, uint64_t at_ns)
{
    for (struct rt_shared *shared = port->shared; shared; shared = shared->next) {
        if (!matches(&shared->match, data, len) || !shared_is_open(shared->wire))
            continue;
        struct shared_slot *slot = shared_room(&shared->to_process, len);
        if (!slot && len > shared->to_process.slot_bytes - sizeof *slot)
            return 0;
        port->tx_packets++;
        port->tx_bytes += len;
        shared->interface->counts.tx_packets++;
        shared->interface->counts.tx_bytes += len;
        if (!slot) { /* as on a full receive ring: the process counts it */
            shared->to_process.ring->lost++;
        } else {
            slot->at_ns = at_ns;
            slot->len = len;
            memcpy(slot->frame, data, len);
            shared_put(&shared->to_process);
        }
        if (!shared->to_wake) {
            shared->to_wake = 1;
            shared->next_to_wake = loop->to_wake;
            loop->to_wake = shared;
        }
        return 1;
    }
    return 0;
}

/* Wake the processes that were given frames since the last call. */
void rt_shared_wake_all(struct rt_loop *loop)
{
    for (struct rt_shared *shared; (shared = loop->to_wake);) {
        loop->to_wake = shared->next_to_wake;
        shared->to_wake = 0;
        shared_wake(&shared->to_process, shared->fd);
    }
}

/* ---- state -------------------------------------------------------------------------------------------------------- */

/* State or captures of the port have changed. */
void rt_shared_look(struct rt_port *port)
{
    for (struct rt_shared *shared = port->shared; shared; shared = shared->next)
        shared_store(&shared->wire->switch_closed, !port->up || port->is_captured);
}

static void unlink_wake(struct rt_loop *loop, struct rt_shared *shared)
{
    for (struct rt_shared **place = &loop->to_wake; *place; place = &(*place)->next_to_wake)
        if (*place == shared) {
            *place = shared->next_to_wake;
            return;
        }
}

/* End a shared wire: the process sees its socket end, and sends over the interface. What waits is lost. */
static void end_wire(struct rt_loop *loop, struct rt_shared *shared)
{
    for (struct rt_shared **place = &shared->end.port->shared; *place; place = &(*place)->next)
        if (*place == shared) {
            *place = shared->next;
            break;
        }
    unlink_wake(loop, shared);
    rt_end_forget(loop, &shared->end);
    loop->shared[shared->index] = NULL;
    epoll_ctl(loop->epoll, EPOLL_CTL_DEL, shared->fd, NULL);
    close(shared->fd);
    munmap(shared->wire, shared->bytes);
    free(shared);
}

/* The port leaves the loop. */
void rt_shared_end_all(struct rt_loop *loop, struct rt_port *port)
{
    while (port->shared)
        end_wire(loop, port->shared);
}

/* The socket of a shared wire is readable: the process has frames, or has ended. */
void rt_shared_serve(struct rt_loop *loop, uint64_t tag)
{
    struct rt_shared *shared = (uint32_t)tag < loop->room_shared ? loop->shared[(uint32_t)tag] : NULL;
    char bytes[256];
    ssize_t n;

    if (!shared || shared->tag != tag)
        return;
    while ((n = recv(shared->fd, bytes, sizeof bytes, MSG_DONTWAIT)) == (ssize_t)sizeof bytes)
        ;
    if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
        end_wire(loop, shared);
    else
        rt_end_ready(loop, &shared->end);
}

/* ---- made by any thread ------------------------------------------------------------------------------------------- */

static int place_in(struct rt_loop *loop, struct rt_shared *shared)
{
    uint32_t index = 0;

    while (index < loop->room_shared && loop->shared[index])
        index++;
    if (index == loop->room_shared) {
        uint32_t room = loop->room_shared ? loop->room_shared * 2 : 16;
        struct rt_shared **grown = realloc(loop->shared, room * sizeof *grown);
        if (!grown)
            return RT_NO_MEMORY;
        memset(grown + loop->room_shared, 0, (room - loop->room_shared) * sizeof *grown);
        loop->shared = grown;
        loop->room_shared = room;
    }
    shared->index = index;
    shared->tag = RT_TAG_SHARED | (uint64_t)(++loop->shared_generation & 0x3fffffff) << 32 | index;
    if (rt_loop_watch(loop, shared->fd, shared->tag))
        return RT_SYSTEM;
    loop->shared[index] = shared;
    return RT_OK;
}

static struct rt_port *find_port(const struct rt_loop *loop, const char *interface)
{
    for (uint32_t i = 0; i < loop->n_ports; i++)
        if (loop->ports[i] && !loop->ports[i]->end && !strcmp(loop->ports[i]->name, interface))
            return loop->ports[i];
    return NULL;
}

/* The counts of an interface, made at its first shared wire; NULL without memory. */
static struct rt_interface *interface_of(struct rt_loop *loop, const char *name)
{
    struct rt_interface *interface = loop->interfaces;

    while (interface && strcmp(interface->counts.interface, name))
        interface = interface->next;
    if (!interface && (interface = calloc(1, sizeof *interface))) {
        snprintf(interface->counts.interface, sizeof interface->counts.interface, "%s", name);
        interface->next = loop->interfaces;
        loop->interfaces = interface;
    }
    return interface;
}

/* Memory of a wire with slots for frames of `frame_bytes`, in a memfd that cannot shrink: its number in `*memfd`. */
static int make_memory(struct rt_shared *shared, uint32_t frame_bytes, int *memfd)
{
    uint32_t slots[] = {SLOTS_TO_SWITCH, SLOTS_TO_PROCESS};
    uint32_t slot_bytes = (uint32_t)(sizeof(struct shared_slot) + frame_bytes + SHARED_LINE - 1) & ~(SHARED_LINE - 1u);

    shared->bytes = shared_bytes(slot_bytes, slots[0], slots[1]);
    *memfd = memfd_create("shared-wire", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*memfd < 0)
        return RT_SYSTEM;
    if (ftruncate(*memfd, (off_t)shared->bytes) || fcntl(*memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return RT_SYSTEM;
    shared->wire = mmap(NULL, shared->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *memfd, 0);
    if (shared->wire == MAP_FAILED)
        return RT_SYSTEM;
    shared->wire->slot_bytes = slot_bytes;
    memcpy(shared->wire->slots, slots, sizeof slots);
    shared->from_process = shared_side(shared->wire, SHARED_TO_SWITCH, slots, slot_bytes);
    shared->to_process = shared_side(shared->wire, SHARED_TO_PROCESS, slots, slot_bytes);
    shared->from_process.ring->asleep = 1;
    return RT_OK;
}

/* A wire in shared memory between the port on `interface` and whoever holds the other end of the socket `fd`. Returns the
 * number of its memory's memfd, for that process; RT_NOT_FOUND, RT_INVALID, RT_NO_MEMORY, RT_SYSTEM with errno. The
 * socket is the loop's from then on, and of no use to the loop after an error. */
RT_API int rt_shared_add(struct rt_loop *loop, const char *interface, int fd, uint32_t frame_bytes,
                         const struct rt_match *match)
{
    struct rt_shared *shared;
    int error = RT_NO_MEMORY, memfd = -1;

    if (frame_bytes < 64 || frame_bytes > P4RT_MAX_FRAME || match->n > RT_RANGES)
        return RT_INVALID;
    for (uint32_t i = 0; i < match->n; i++)
        if (match->ranges[i].bytes < 1 || match->ranges[i].bytes > 4 || match->ranges[i].at > P4RT_MAX_FRAME)
            return RT_INVALID;
    shared = calloc(1, sizeof *shared);
    if (!shared)
        return RT_NO_MEMORY;
    shared->wire = MAP_FAILED;
    shared->match = *match;
    shared->fd = fd;
    shared->end.shared = shared;
    rt_lock(&loop->lock);
    shared->end.port = find_port(loop, interface);
    error = shared->end.port ? make_memory(shared, frame_bytes, &memfd) : RT_NOT_FOUND;
    if (!error && !(shared->interface = interface_of(loop, interface)))
        error = RT_NO_MEMORY;
    if (!error)
        error = place_in(loop, shared);
    if (!error) {
        memcpy(shared->end.name, shared->end.port->name, sizeof shared->end.name);
        shared->next = shared->end.port->shared;
        shared->end.port->shared = shared;
        rt_shared_look(shared->end.port);
    }
    rt_unlock(&loop->lock);
    if (!error)
        return memfd;
    if (shared->wire != MAP_FAILED)
        munmap(shared->wire, shared->bytes);
    if (memfd >= 0)
        close(memfd);
    free(shared);
    return error;
}

/* Counts of all interfaces that ever had a shared wire, in a block to be freed with rt_free; returns their number. */
RT_API int rt_shared_read(struct rt_loop *loop, uint8_t **out, size_t *out_bytes)
{
    struct rt_shared_counts *counts;
    int n = 0;

    rt_lock(&loop->lock);
    for (struct rt_interface *interface = loop->interfaces; interface; interface = interface->next)
        n++;
    counts = calloc((size_t)n + 1, sizeof *counts);
    *out = (uint8_t *)counts;
    *out_bytes = (size_t)n * sizeof *counts;
    for (struct rt_interface *interface = loop->interfaces; counts && interface; interface = interface->next) {
        *counts = interface->counts;
        for (uint32_t i = 0; i < loop->room_shared; i++)
            if (loop->shared[i] && loop->shared[i]->interface == interface) {
                counts->wires++;
                counts->open += (uint32_t)shared_is_open(loop->shared[i]->wire);
            }
        counts++;
    }
    rt_unlock(&loop->lock);
    return *out ? n : RT_NO_MEMORY;
}

/* Free what is left; all ports are closed. */
void rt_shared_destroy(struct rt_loop *loop)
{
    for (struct rt_interface *interface; (interface = loop->interfaces);) {
        loop->interfaces = interface->next;
        free(interface);
    }
    free(loop->shared);
}
