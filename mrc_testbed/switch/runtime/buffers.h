/* Buffers of a device: frames that wait in queues and on cables, and the order in which they wait. */
#ifndef RT_BUFFERS_H
#define RT_BUFFERS_H

#include "p4rt.h"

#define RT_POOL_BYTES (32u << 20)   /* buffers of a device, at most */
#define RT_POOL_KEPT (1u << 20)     /* of those, kept for the next frame when they are free */
#define RT_POOL_CLASSES 24          /* of buffer sizes whose free ones are kept */

struct rt_device;

struct rt_buffer {
    struct rt_buffer *next;
    uint64_t due_ns;            /* on a cable: when it arrives */
    uint32_t bytes;             /* of memory, of the pool */
    uint32_t counted;           /* in a queue: bytes of frame it stands for there */
    struct p4rt_packet pkt;
    uint8_t space[] __attribute__((aligned(16)));
};

struct rt_fifo {
    struct rt_buffer *first, *last; /* `last` counts only while `first` is set */
};

struct rt_pool {
    uint64_t used, limit;       /* bytes */
    uint32_t kept_bytes;
    struct rt_buffer *kept[RT_POOL_CLASSES];
    struct rt_buffer *spent;    /* handed to rt_out; free when that has sent them */
};

/* All are called with the device locked. */
struct rt_buffer *rt_buffer_copy(struct rt_device *dev, const struct p4rt_packet *pkt, int with_state);
void rt_buffer_free(struct rt_pool *pool, struct rt_buffer *buffer);
void rt_buffers_reap(struct rt_pool *pool);
void rt_buffers_trim(struct rt_pool *pool);
void rt_fifo_put(struct rt_fifo *fifo, struct rt_buffer *buffer);
struct rt_buffer *rt_fifo_take(struct rt_fifo *fifo);

/* It has been given to rt_out, and is free when that has sent it. */
static inline void rt_buffer_spend(struct rt_pool *pool, struct rt_buffer *buffer)
{
    buffer->next = pool->spent;
    pool->spent = buffer;
}

#endif
