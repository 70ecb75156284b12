/* A device under a virtual clock: frames go in at a time, and come out with the time at which they do. */
#include <stdlib.h>

#include "pipeline.h"
#include "traffic.h"

struct rt_collected {           /* what came out since it was taken last */
    struct rt_out out;          /* first */
    uint8_t *bytes;
    size_t used, room;
    int n, failed;
};

struct rt_collected_head {      /* before each frame, as mrc_testbed/switch/device/device.py reads it */
    uint64_t at_ns;
    uint32_t port, len;
};

static void collect(struct rt_out *out, struct rt_device *dev, uint32_t port, uint8_t *data, uint32_t len,
                    uint64_t at_ns)
{
    struct rt_collected *all = (struct rt_collected *)out;
    struct rt_collected_head head = {at_ns, port, len};

    if (all->room - all->used < sizeof head + len) {
        size_t room = all->room * 2 + sizeof head + len;
        uint8_t *bytes = realloc(all->bytes, room);
        if (!bytes) {
            all->failed = 1;
            return;
        }
        all->bytes = bytes;
        all->room = room;
    }
    memcpy(all->bytes + all->used, &head, sizeof head);
    memcpy(all->bytes + all->used + sizeof head, data, len);
    all->used += sizeof head + len;
    all->n++;
    dev->observers.stats.sent++;
}

void rt_virtual_destroy(struct rt_device *dev)
{
    if (dev->collected)
        free(dev->collected->bytes);
    free(dev->collected);
    dev->collected = NULL;
}

/* From the first call on the device lives in virtual time, which began at 0. */
static int enter(struct rt_device *dev, uint64_t now_ns)
{
    if (!dev->collected) {
        dev->collected = calloc(1, sizeof *dev->collected);
        if (!dev->collected)
            return RT_NO_MEMORY;
        dev->collected->out.frame = collect;
        dev->started_ns = dev->traffic.clock_ns = 0;
        rt_traffic_forget(&dev->traffic);
    }
    if (now_ns < dev->traffic.clock_ns)
        return RT_INVALID;
    rt_advance(dev, &dev->collected->out, now_ns);
    rt_buffers_reap(&dev->traffic.pool);
    return RT_OK;
}

/* A frame reaches `port` at now_ns; what was due before has happened then. RT_INVALID: the clock is past that. */
RT_API int rt_device_inject(struct rt_device *dev, uint32_t port, const uint8_t *frame, uint32_t len, uint64_t now_ns)
{
    static __thread uint8_t buffer[P4RT_HEADROOM + P4RT_MAX_FRAME] __attribute__((aligned(64)));
    int error;

    rt_lock(&dev->lock);
    error = enter(dev, now_ns);
    if (!error && !dev->pub.program) {
        error = RT_NO_PROGRAM;
    } else if (!error && len > P4RT_MAX_FRAME) {
        dev->observers.stats.received++;
        dev->observers.stats.dropped_size++;
    } else if (!error) {
        memcpy(buffer + P4RT_HEADROOM, frame, len);
        rt_receive(dev, &dev->collected->out, port, buffer + P4RT_HEADROOM, len, P4RT_HEADROOM, now_ns);
        rt_buffers_reap(&dev->traffic.pool);
    }
    rt_unlock(&dev->lock);
    return error;
}

/* Let time pass until now_ns and take all that came out, in a block to be freed with rt_free; returns the number of
 * frames. */
RT_API int rt_device_advance(struct rt_device *dev, uint64_t now_ns, uint8_t **out, size_t *out_bytes)
{
    int n;

    rt_lock(&dev->lock);
    n = enter(dev, now_ns);
    if (!n) {
        struct rt_collected *all = dev->collected;
        n = all->failed ? RT_NO_MEMORY : all->n;
        *out = all->bytes ? all->bytes : malloc(1);
        *out_bytes = all->used;
        all->bytes = NULL;
        all->used = all->room = 0;
        all->n = all->failed = 0;
    }
    rt_unlock(&dev->lock);
    return n;
}

/* When something is due next; RT_NEVER: nothing waits. */
RT_API uint64_t rt_device_due(struct rt_device *dev)
{
    rt_lock(&dev->lock);
    uint64_t due_ns = dev->traffic.timers.n ? dev->traffic.timers.at[0]->due_ns : RT_NEVER;
    rt_unlock(&dev->lock);
    return due_ns;
}
