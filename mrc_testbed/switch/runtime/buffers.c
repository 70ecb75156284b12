/* Buffers of a device: frames that wait in queues and on cables, at most pool->limit bytes of them. */
#include <stdlib.h>

#include "runtime.h"

#define CLASS_BYTES 1024u       /* buffers are multiples of this; free ones are kept by size */

static uint32_t class_of(const struct rt_buffer *buffer)
{
    return buffer->bytes / CLASS_BYTES;
}

static struct rt_buffer *take(struct rt_pool *pool, size_t bytes)
{
    uint32_t class = (uint32_t)((bytes + CLASS_BYTES - 1) / CLASS_BYTES);
    struct rt_buffer *buffer = class < RT_POOL_CLASSES ? pool->kept[class] : NULL;

    if (bytes > pool->limit || pool->used > pool->limit - bytes)
        return NULL;
    if (buffer) {
        pool->kept[class] = buffer->next;
        pool->kept_bytes -= buffer->bytes;
    } else {
        buffer = malloc((size_t)class * CLASS_BYTES);
        if (!buffer)
            return NULL;
        buffer->bytes = class * CLASS_BYTES;
    }
    pool->used += buffer->bytes;
    buffer->next = NULL;
    return buffer;
}

/* A copy of a packet with room for its headers to grow; `with_state`: with the program's state of it, for egress.
 * NULL: the pool is exhausted, which is counted. */
struct rt_buffer *rt_buffer_copy(struct rt_device *dev, const struct p4rt_packet *pkt, int with_state)
{
    size_t state = with_state ? ((size_t)dev->pub.program->phv_bytes + 15) / 16 * 16 : 0;
    struct rt_buffer *buffer = take(&dev->traffic.pool, sizeof *buffer + state + P4RT_HEADROOM + pkt->len);

    if (!buffer) {
        dev->observers.stats.dropped_no_buffer++;
        return NULL;
    }
    buffer->pkt = *pkt;
    buffer->pkt.phv = buffer->space;
    buffer->pkt.data = buffer->space + state + P4RT_HEADROOM;
    buffer->pkt.headroom = P4RT_HEADROOM;
    if (with_state)
        memcpy(buffer->space, pkt->phv, dev->pub.program->phv_bytes);
    memcpy(buffer->pkt.data, pkt->data, pkt->len);
    return buffer;
}

void rt_buffer_free(struct rt_pool *pool, struct rt_buffer *buffer)
{
    pool->used -= buffer->bytes;
    if (class_of(buffer) >= RT_POOL_CLASSES || pool->kept_bytes + buffer->bytes > RT_POOL_KEPT) {
        free(buffer);
        return;
    }
    pool->kept_bytes += buffer->bytes;
    buffer->next = pool->kept[class_of(buffer)];
    pool->kept[class_of(buffer)] = buffer;
}

/* Free what rt_out has sent. */
void rt_buffers_reap(struct rt_pool *pool)
{
    for (struct rt_buffer *buffer; (buffer = pool->spent);) {
        pool->spent = buffer->next;
        rt_buffer_free(pool, buffer);
    }
}

/* Give the memory of free buffers back. */
void rt_buffers_trim(struct rt_pool *pool)
{
    for (uint32_t class = 0; class < RT_POOL_CLASSES; class++)
        for (struct rt_buffer *buffer; (buffer = pool->kept[class]);) {
            pool->kept[class] = buffer->next;
            free(buffer);
        }
    pool->kept_bytes = 0;
}

void rt_fifo_put(struct rt_fifo *fifo, struct rt_buffer *buffer)
{
    buffer->next = NULL;
    if (fifo->first)
        fifo->last->next = buffer;
    else
        fifo->first = buffer;
    fifo->last = buffer;
}

struct rt_buffer *rt_fifo_take(struct rt_fifo *fifo)
{
    struct rt_buffer *buffer = fifo->first;
    fifo->first = buffer->next;
    return buffer;
}
