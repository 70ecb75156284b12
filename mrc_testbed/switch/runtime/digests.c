/* Digests: what programs tell the control plane by digest(), kept until Python takes it.
 *
 * Records lie one after the other in one buffer, made at the first digest: struct rt_digest_head, then the data. A full
 * buffer loses the newest, and counts them. The device's wake descriptor (the event loop's eventfd) is written to when
 * the first record after a drain arrives, so that a flood of digests costs one system call per drain.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime.h"

#define RT_DIGEST_BYTES (256 * 1024)

struct rt_digest_head {         /* as mrc_testbed/switch/device/device.py reads it */
    uint32_t digest, len;
    uint64_t at_us;             /* since the device started */
};

/* Called by programs: the device is locked. */
void rt_digest(struct p4rt_device *pub, uint32_t digest, const uint8_t *data, uint32_t len)
{
    struct rt_device *dev = (struct rt_device *)pub;
    struct rt_digests *all = &dev->observers.digests;
    struct rt_digest_head head = {digest, len, (rt_device_now(dev) - dev->started_ns) / 1000};
    uint64_t one = 1;

    if (!all->bytes)
        all->bytes = malloc(RT_DIGEST_BYTES);
    if (!all->bytes || len > RT_DIGEST_BYTES - sizeof head || all->used > RT_DIGEST_BYTES - sizeof head - len) {
        all->lost++;
        return;
    }
    memcpy(all->bytes + all->used, &head, sizeof head);
    memcpy(all->bytes + all->used + sizeof head, data, len);
    all->used += (uint32_t)sizeof head + len;
    if (!all->count++ && all->wake >= 0 && write(all->wake, &one, sizeof one) < 0)
        return; /* EAGAIN: it is readable already */
}

void rt_digests_forget(struct rt_digests *all)
{
    free(all->bytes);
    all->bytes = NULL;
    all->used = all->count = 0;
    all->lost = 0;
}

/* Which descriptor to write to when digests wait; -1: none. */
RT_API void rt_device_wake(struct rt_device *dev, int fd)
{
    rt_lock(&dev->lock);
    dev->observers.digests.wake = fd;
    rt_unlock(&dev->lock);
}

/* Number of digests that wait: without the lock, for a look that may be a moment old. */
RT_API uint32_t rt_digests_waiting(struct rt_device *dev)
{
    return __atomic_load_n(&dev->observers.digests.count, __ATOMIC_RELAXED);
}

/* Digests that found the buffer full since load. */
RT_API uint64_t rt_digests_lost(struct rt_device *dev)
{
    return __atomic_load_n(&dev->observers.digests.lost, __ATOMIC_RELAXED);
}

/* All waiting digests, oldest first, in one block to be freed with rt_free; returns their number. Without memory for
 * them they go on waiting, and the wake descriptor is written to again: no other digest will do that.
 */
RT_API int rt_digests_take(struct rt_device *dev, uint8_t **out, size_t *out_bytes)
{
    struct rt_digests *all = &dev->observers.digests;
    uint64_t one = 1;
    int n;

    rt_lock(&dev->lock);
    *out_bytes = all->used;
    *out = malloc(*out_bytes + 1);
    if (!*out) {
        n = all->wake >= 0 && write(all->wake, &one, sizeof one) < 0 && errno != EAGAIN;
        rt_unlock(&dev->lock);
        return n ? RT_SYSTEM : RT_NO_MEMORY;
    }
    if (*out_bytes)
        memcpy(*out, all->bytes, *out_bytes);
    n = (int)all->count;
    all->used = all->count = 0;
    rt_unlock(&dev->lock);
    return n;
}
