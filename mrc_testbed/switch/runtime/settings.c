/* The traffic manager's settings and counts, for Python (mrc_testbed/switch/device/native.py mirrors the structures). */
#include "traffic.h"

struct rt_queue_settings {
    uint64_t rate_bps, rate_pps, max_packets, max_bytes;
};

struct rt_line_settings {
    uint64_t delay_ns, seed;
    uint32_t loss_ppm, corrupt_ppm;
    const char *loss_pattern, *corrupt_pattern; /* of '0' and '1'; empty: none */
    uint32_t restart, padding;                  /* begin patterns and random choices anew */
};

struct rt_traffic_settings {
    uint64_t rate_bps, rate_pps;
    struct rt_queue_settings queues[RT_PRIORITIES];
    struct rt_line_settings lines[2];           /* in, out */
};

struct rt_queue_state {
    uint64_t packets, bytes, sent_packets, sent_bytes, dropped_packets, dropped_bytes, peak;
};

struct rt_line_state {
    uint64_t held, lost_packets, lost_bytes, corrupted, dropped_packets, dropped_bytes;
};

struct rt_traffic_state {
    struct rt_queue_state queues[RT_PRIORITIES];
    struct rt_line_state lines[2];
};

/* A shaper's rate changes: what is left of the frame that it lets pass now takes the time that the new rate gives it.
 * Returns how much sooner that ends (negative: later), nanoseconds. */
static int64_t set_rate(struct rt_shaper *shaper, uint64_t rate, uint64_t now_ns)
{
    uint64_t left = shaper->rate && shaper->free_ns > now_ns ? shaper->free_ns - now_ns : 0;
    uint64_t then = rate ? (uint64_t)((unsigned __int128)left * shaper->rate / rate) : 0;

    if (shaper->rate == rate)
        return 0;
    *shaper = (struct rt_shaper){.rate = rate, .free_ns = left ? now_ns + then : 0};
    return (int64_t)left - (int64_t)then;
}

/* Both patterns of a line; -1: out of memory, nothing is kept then. */
static int copy_patterns(const struct rt_line_settings *from, struct rt_pattern *loss, struct rt_pattern *corrupt)
{
    const char *texts[] = {from->loss_pattern, from->corrupt_pattern};
    struct rt_pattern *to[] = {loss, corrupt};

    for (int i = 0; i < 2; i++) {
        size_t n = strlen(texts[i]);
        *to[i] = (struct rt_pattern){n ? strdup(texts[i]) : NULL, (uint32_t)n, 0};
        if (n && !to[i]->text) {
            if (i)
                free(loss->text);
            return -1;
        }
    }
    return 0;
}

static void set_pattern(struct rt_pattern *pattern, struct rt_pattern fresh, int restart)
{
    if (!restart && pattern->n == fresh.n && (!fresh.n || !memcmp(pattern->text, fresh.text, fresh.n)))
        fresh.at = pattern->at;
    free(pattern->text);
    *pattern = fresh;
}

static void set_line(struct rt_line *line, const struct rt_line_settings *from, struct rt_pattern loss,
                     struct rt_pattern corrupt)
{
    int restart = from->restart || line->seed != from->seed;

    set_pattern(&line->loss, loss, restart);
    set_pattern(&line->corrupt, corrupt, restart);
    line->seed = from->seed;
    line->loss_ppm = from->loss_ppm;
    line->corrupt_ppm = from->corrupt_ppm;
    rt_line_shift(line, from->delay_ns);
    if (restart)
        rt_line_restart(line);
}

static void apply(struct rt_traffic *traffic, const struct rt_traffic_settings *from, uint64_t now_ns)
{
    struct rt_buffer *last = traffic->out.fifo.first ? traffic->out.fifo.last : NULL;
    uint64_t end_ns = traffic->bits.free_ns + traffic->out.delay_ns;
    int on_link = traffic->bits.rate && traffic->bits.free_ns > now_ns;
    int64_t sooner = set_rate(&traffic->bits, from->rate_bps, now_ns);

    if (last && on_link && last->due_ns == end_ns)
        last->due_ns -= (uint64_t)sooner;
    set_rate(&traffic->frames, from->rate_pps, now_ns);
    for (int i = 0; i < RT_PRIORITIES; i++) {
        struct rt_queue *queue = &traffic->queues[i];
        set_rate(&queue->bits, from->queues[i].rate_bps, now_ns);
        set_rate(&queue->frames, from->queues[i].rate_pps, now_ns);
        queue->max_packets = from->queues[i].max_packets;
        queue->max_bytes = from->queues[i].max_bytes;
    }
}

/* All settings of a port at once; what waits there goes on under the new ones. */
RT_API int rt_traffic_set(struct rt_device *dev, uint32_t port, const struct rt_traffic_settings *from)
{
    struct rt_pattern loss[2], corrupt[2];
    struct rt_traffic *traffic;

    if (port >= P4RT_DROP_PORT)
        return RT_INVALID;
    if (copy_patterns(&from->lines[0], &loss[0], &corrupt[0]))
        return RT_NO_MEMORY;
    if (copy_patterns(&from->lines[1], &loss[1], &corrupt[1])) {
        free(loss[0].text);
        free(corrupt[0].text);
        return RT_NO_MEMORY;
    }
    rt_lock(&dev->lock);
    traffic = rt_traffic_of(dev, port);
    if (traffic) {
        apply(traffic, from, rt_device_now(dev));
        set_line(&traffic->in, &from->lines[0], loss[0], corrupt[0]);
        set_line(&traffic->out, &from->lines[1], loss[1], corrupt[1]);
        rt_traffic_look(&dev->traffic, traffic);
    }
    rt_unlock(&dev->lock);
    for (int i = 0; !traffic && i < 2; i++) {
        free(loss[i].text);
        free(corrupt[i].text);
    }
    return traffic ? RT_OK : RT_NO_MEMORY;
}

static struct rt_line_state line_state(const struct rt_line *line)
{
    return (struct rt_line_state){line->held, line->lost_packets, line->lost_bytes, line->corrupted,
                                  line->dropped_packets, line->dropped_bytes};
}

/* Counts of a port; all zero when it was never set. */
RT_API int rt_traffic_read(struct rt_device *dev, uint32_t port, struct rt_traffic_state *out)
{
    if (port >= P4RT_DROP_PORT)
        return RT_INVALID;
    memset(out, 0, sizeof *out);
    rt_lock(&dev->lock);
    const struct rt_traffic *traffic = dev->traffic.ports[port];
    for (int i = 0; traffic && i < RT_PRIORITIES; i++) {
        const struct rt_queue *q = &traffic->queues[i];
        out->queues[i] = (struct rt_queue_state){q->packets, q->bytes, q->sent_packets, q->sent_bytes,
                                                 q->dropped_packets, q->dropped_bytes, q->peak};
    }
    if (traffic) {
        out->lines[0] = line_state(&traffic->in);
        out->lines[1] = line_state(&traffic->out);
    }
    rt_unlock(&dev->lock);
    return RT_OK;
}

/* Bytes of buffers in use and their bound; `limit` not 0 sets that (what waits stays). */
RT_API void rt_traffic_pool(struct rt_device *dev, uint64_t limit, uint64_t *used, uint64_t *bound)
{
    rt_lock(&dev->lock);
    if (limit)
        dev->traffic.pool.limit = limit;
    *used = dev->traffic.pool.used;
    *bound = dev->traffic.pool.limit;
    rt_unlock(&dev->lock);
}
