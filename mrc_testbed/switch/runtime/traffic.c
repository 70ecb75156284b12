/* The traffic manager: queues with strict priority, rates, and when its next frame is due. */
#include "traffic.h"

#define SECOND 1000000000u

/* ---- rates -------------------------------------------------------------------------------------------------- */

/* `amount` (bits or frames) goes out at `from_ns`. Returns when it is out, rounded down; the rest is carried on, so
 * that n frames back to back take exactly their bits / rate. */
static uint64_t charge(struct rt_shaper *shaper, uint64_t amount, uint64_t from_ns)
{
    uint64_t total;

    if (!shaper->rate)
        return from_ns;
    if (from_ns > shaper->free_ns) {
        shaper->free_ns = from_ns;
        shaper->carry = 0;
    }
    total = amount * SECOND + shaper->carry;
    shaper->free_ns += total / shaper->rate;
    shaper->carry = total % shaper->rate;
    return shaper->free_ns;
}

/* When both have let the last frame go. */
static uint64_t free_at(const struct rt_shaper *bits, const struct rt_shaper *frames)
{
    uint64_t b = bits->rate ? bits->free_ns : 0, f = frames->rate ? frames->free_ns : 0;
    return b > f ? b : f;
}

static int shaped(const struct rt_traffic *traffic)
{
    if (traffic->bits.rate | traffic->frames.rate)
        return 1;
    for (int i = 0; i < RT_PRIORITIES; i++)
        if (traffic->queues[i].bits.rate | traffic->queues[i].frames.rate)
            return 1;
    return 0;
}

/* Whether its settings make frames wait: may be read without the device's lock, for a look. */
int rt_traffic_timed(const struct rt_traffic *traffic)
{
    return traffic && (shaped(traffic) || traffic->in.delay_ns || traffic->out.delay_ns);
}

/* ---- when what is due ---------------------------------------------------------------------------------------- */

/* When the next frame may leave its queue; RT_NEVER: none waits. */
static uint64_t next_departure(const struct rt_traffic *traffic)
{
    uint64_t port = free_at(&traffic->bits, &traffic->frames), first = RT_NEVER;

    for (int i = 0; i < RT_PRIORITIES; i++)
        if (traffic->waiting >> i & 1) {
            uint64_t at = free_at(&traffic->queues[i].bits, &traffic->queues[i].frames);
            first = at < first ? at : first;
        }
    return first == RT_NEVER ? RT_NEVER : port > first ? port : first;
}

static void set_timer(struct rt_traffic_manager *manager, struct rt_traffic *traffic)
{
    uint64_t due = traffic->waiting ? next_departure(traffic) : RT_NEVER;

    if (traffic->in.fifo.first && traffic->in.fifo.first->due_ns < due)
        due = traffic->in.fifo.first->due_ns;
    if (traffic->out.fifo.first && traffic->out.fifo.first->due_ns < due)
        due = traffic->out.fifo.first->due_ns;
    rt_timer_set(&manager->timers, &traffic->timer, due);
}

/* The settings or what waits may have changed: is the port busy, and when is what due there? */
void rt_traffic_look(struct rt_traffic_manager *manager, struct rt_traffic *traffic)
{
    traffic->busy_in = !rt_line_plain(&traffic->in);
    traffic->busy_out = traffic->waiting || shaped(traffic) || !rt_line_plain(&traffic->out);
    set_timer(manager, traffic);
}

/* ---- queues ------------------------------------------------------------------------------------------------- */

/* Whether a frame may leave at now_ns without waiting: nothing is before it, and the link and its rates are free. */
int rt_queue_open(const struct rt_traffic *traffic, const struct rt_queue *queue, uint64_t now_ns)
{
    return !queue->packets && free_at(&traffic->bits, &traffic->frames) <= now_ns &&
           free_at(&queue->bits, &queue->frames) <= now_ns;
}

static void drop(struct rt_stats *stats, struct rt_queue *queue, uint32_t bytes)
{
    queue->dropped_packets++;
    queue->dropped_bytes += bytes;
    stats->dropped_queue++;
}

/* A copy of the packet waits in the queue, or is dropped when that is full. */
void rt_queue_put(struct rt_device *dev, struct rt_traffic *traffic, struct rt_queue *queue,
                  const struct p4rt_packet *pkt)
{
    uint32_t bytes = pkt->len < pkt->truncate ? pkt->len : pkt->truncate;
    struct rt_buffer *buffer;

    if ((queue->max_packets && queue->packets >= queue->max_packets) ||
        (queue->max_bytes && queue->bytes + bytes > queue->max_bytes) || !(buffer = rt_buffer_copy(dev, pkt, 1))) {
        drop(&dev->observers.stats, queue, bytes);
        return;
    }
    buffer->counted = bytes;
    rt_fifo_put(&queue->fifo, buffer);
    queue->packets++;
    queue->bytes += bytes;
    if (queue->packets > queue->peak)
        queue->peak = queue->packets;
    traffic->waiting |= (uint8_t)(1 << (queue - traffic->queues));
}

static struct rt_buffer *dequeue(struct rt_traffic *traffic, struct rt_queue *queue)
{
    struct rt_buffer *buffer = rt_fifo_take(&queue->fifo);

    queue->packets--;
    queue->bytes -= buffer->counted;
    if (!queue->packets)
        traffic->waiting &= (uint8_t)~(1 << (queue - traffic->queues));
    return buffer;
}

/* The frame that leaves at now_ns: of the highest priority that its rates let, if the link does. NULL: none does. */
struct rt_buffer *rt_queue_take(struct rt_traffic *traffic, uint64_t now_ns, struct rt_queue **from)
{
    if (!traffic->waiting || free_at(&traffic->bits, &traffic->frames) > now_ns)
        return NULL;
    for (int i = RT_PRIORITIES - 1; i >= 0; i--) {
        struct rt_queue *queue = &traffic->queues[i];
        if (traffic->waiting >> i & 1 && free_at(&queue->bits, &queue->frames) <= now_ns) {
            *from = queue;
            return dequeue(traffic, queue);
        }
    }
    return NULL;
}

/* A frame of so many bytes leaves its queue at now_ns; `waited`: it was in there. Returns when the link has sent it. */
uint64_t rt_queue_sent(struct rt_traffic *traffic, struct rt_queue *queue, uint32_t bytes, int waited, uint64_t now_ns)
{
    uint64_t from_ns = now_ns;

    queue->sent_packets++;
    queue->sent_bytes += bytes;
    /* A priority that waited for the frame before it on the link is charged from when it was ready: its rate holds. */
    if (waited && (queue->bits.rate | queue->frames.rate)) {
        uint64_t ready = free_at(&queue->bits, &queue->frames);
        from_ns = ready > traffic->last_ns ? ready : traffic->last_ns;
    }
    charge(&queue->bits, (uint64_t)bytes * 8, from_ns);
    charge(&queue->frames, 1, from_ns);
    charge(&traffic->frames, 1, now_ns);
    traffic->last_ns = now_ns;
    return charge(&traffic->bits, (uint64_t)bytes * 8, now_ns);
}

/* ---- ports ------------------------------------------------------------------------------------------------------ */

/* The traffic manager's part of a port, made when it is asked for first. */
struct rt_traffic *rt_traffic_of(struct rt_device *dev, uint32_t port)
{
    struct rt_traffic_manager *manager = &dev->traffic;
    struct rt_traffic *traffic = manager->ports[port];

    if (traffic || rt_timers_reserve(&manager->timers, manager->n_ports + 1) || !(traffic = calloc(1, sizeof *traffic)))
        return traffic;
    traffic->number = traffic->timer.order = port;
    traffic->in.salt = ((uint64_t)dev->id << 16 | port) << 1;
    traffic->out.salt = traffic->in.salt + 1;
    rt_line_restart(&traffic->in);
    rt_line_restart(&traffic->out);
    manager->n_ports++;
    return manager->ports[port] = traffic;
}

static void empty(struct rt_pool *pool, struct rt_fifo *fifo)
{
    while (fifo->first)
        rt_buffer_free(pool, rt_fifo_take(fifo));
}

/* Another program, or none: what waits for egress is lost, counts of queues begin anew; cables go on. */
void rt_traffic_restart(struct rt_traffic_manager *manager)
{
    for (uint32_t port = 0; port < RT_PORTS && manager->n_ports; port++) {
        struct rt_traffic *traffic = manager->ports[port];
        if (!traffic)
            continue;
        for (int i = 0; i < RT_PRIORITIES; i++) {
            struct rt_queue *queue = &traffic->queues[i];
            empty(&manager->pool, &queue->fifo);
            queue->packets = queue->bytes = queue->sent_packets = queue->sent_bytes = 0;
            queue->dropped_packets = queue->dropped_bytes = queue->peak = 0;
        }
        traffic->waiting = 0;
        rt_traffic_look(manager, traffic);
    }
}

/* Another clock: nothing waits anywhere and every link is free. */
void rt_traffic_forget(struct rt_traffic_manager *manager)
{
    rt_traffic_restart(manager);
    for (uint32_t port = 0; port < RT_PORTS && manager->n_ports; port++) {
        struct rt_traffic *traffic = manager->ports[port];
        if (!traffic)
            continue;
        empty(&manager->pool, &traffic->in.fifo);
        empty(&manager->pool, &traffic->out.fifo);
        traffic->in.held = traffic->out.held = traffic->last_ns = 0;
        traffic->bits.free_ns = traffic->frames.free_ns = 0;
        for (int i = 0; i < RT_PRIORITIES; i++)
            traffic->queues[i].bits.free_ns = traffic->queues[i].frames.free_ns = 0;
        rt_traffic_look(manager, traffic);
    }
}

void rt_traffic_destroy(struct rt_traffic_manager *manager)
{
    rt_traffic_forget(manager);
    for (uint32_t port = 0; port < RT_PORTS; port++) {
        struct rt_traffic *traffic = manager->ports[port];
        if (traffic) {
            free(traffic->in.loss.text);
            free(traffic->in.corrupt.text);
            free(traffic->out.loss.text);
            free(traffic->out.corrupt.text);
        }
        free(traffic);
        manager->ports[port] = NULL;
    }
    rt_buffers_reap(&manager->pool);
    rt_buffers_trim(&manager->pool);
    free(manager->timers.at);
}
