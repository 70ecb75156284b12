/* A frame's way through a device, from top to bottom:
 *
 *     rt_receive      the cable to the port may lose, corrupt or delay it
 *     rt_enter        it becomes a packet
 *       ingress       the program parses it and runs its ingress
 *       decide        what the ingress asked for: copies, another round, or one port
 *       depart        a busy port: it waits in a queue of the traffic manager
 *       serve         it leaves its queue
 *       egress        the program runs its egress and deparses
 *       transmit      the cable from the port may lose, corrupt or delay it; rt_out has it
 *       make_copies   what the egress asked to copy takes its own way
 *     rt_advance      what waited in a queue or on a cable goes on when it is due
 *
 * The order of copies is simple_switch's. After ingress: clone (of the frame as it came in, parsed anew), resubmit,
 * multicast, drop, unicast; so a packet that is dropped or resubmitted is cloned all the same, and one with a multicast
 * group does not go to its egress_spec. After egress: clone (with the headers as they are), drop, deparse, recirculate.
 *
 * What the egress asks for waits in dev->traffic.copies until the packet at hand is out: the queue it comes from is
 * being served. Copies and rounds of one packet end after RT_ROUNDS, so that a program which sends packets round for
 * ever does not hold the machine; those that end so are counted as dropped.
 */
#include <stdlib.h>

#include "pipeline.h"
#include "replication.h"
#include "traffic.h"

#define RT_ROUNDS 32

enum { CLONE_I2E = 1, CLONE_E2E = 2, RECIRCULATED = 4, REPLICATED = 5, RESUBMITTED = 6 };

/* The stages, in the order above. */
static inline void ingress(struct rt_device *dev, struct p4rt_packet *pkt, uint32_t port, uint8_t *data, uint32_t len,
                           uint32_t headroom, uint64_t now_ns);
static inline int decide(struct rt_device *dev, struct rt_out *out, struct p4rt_packet *pkt, uint64_t now_ns);
static int again(struct rt_device *dev, struct p4rt_packet *pkt, uint32_t list, uint32_t type, uint64_t now_ns);
static void depart(struct rt_device *dev, struct rt_out *out, struct p4rt_packet *pkt, uint64_t now_ns);
static void serve(struct rt_device *dev, struct rt_out *out, struct rt_traffic *traffic, struct rt_queue *queue,
                  struct p4rt_packet *pkt, struct rt_buffer *buffer, uint64_t now_ns);
static inline int egress(struct rt_device *dev, struct p4rt_packet *pkt, uint64_t micros);
static void transmit(struct rt_device *dev, struct rt_out *out, struct rt_traffic *traffic, struct p4rt_packet *pkt,
                     struct rt_buffer *buffer, uint64_t end_ns, uint64_t now_ns);
static void clone_ingress(struct rt_device *dev, struct rt_out *out, const struct p4rt_packet *pkt, uint64_t now_ns);
static void clone_egress(struct rt_device *dev, struct p4rt_packet *pkt);
static void recirculate(struct rt_device *dev, struct p4rt_packet *pkt);
static void replicate(struct rt_device *dev, struct rt_out *out, const struct p4rt_packet *pkt,
                      const struct rt_replication *to, uint32_t type, uint32_t truncate, uint64_t now_ns);
static void make_copies(struct rt_device *dev, struct rt_out *out, uint64_t now_ns);

/* ---- the ways in -------------------------------------------------------------------------------------------- */

/* A frame from the cable of a port. */
void rt_receive(struct rt_device *dev, struct rt_out *out, uint32_t port, uint8_t *data, uint32_t len,
                uint32_t headroom, uint64_t now_ns)
{
    struct rt_traffic *traffic = port < RT_PORTS ? dev->traffic.ports[port] : NULL;

    if (traffic && traffic->busy_in) {
        struct p4rt_packet pkt = {.data = data, .len = len};
        if (!rt_line_pass(&traffic->in, data, len))
            return;
        if (traffic->in.delay_ns || traffic->in.fifo.first) {
            rt_line_hold(dev, &traffic->in, &pkt, NULL, now_ns + traffic->in.delay_ns);
            rt_traffic_look(&dev->traffic, traffic);
            return;
        }
    }
    rt_enter(dev, out, port, data, len, headroom, now_ns);
}

/* A frame that has come over the cable of a port. Without a program it is gone. */
void rt_enter(struct rt_device *dev, struct rt_out *out, uint32_t port, uint8_t *data, uint32_t len, uint32_t headroom,
              uint64_t now_ns)
{
    struct p4rt_packet pkt;

    if (!dev->pub.program)
        return;
    ingress(dev, &pkt, port, data, len, headroom, now_ns);
    if (decide(dev, out, &pkt, now_ns))
        depart(dev, out, &pkt, now_ns);
    if (dev->traffic.copies.first)
        make_copies(dev, out, now_ns);
}

/* The in-memory door: a frame passes cables and queues, whatever is set. The device has a program. What has gone to
 * `out` is not needed any more when that returns. */
void rt_pass(struct rt_device *dev, struct rt_out *out, uint32_t port, uint8_t *data, uint32_t len, uint32_t headroom,
             uint64_t now_ns)
{
    struct p4rt_packet pkt;

    dev->traffic.past_queues = 1;
    ingress(dev, &pkt, port, data, len, headroom, now_ns);
    if (decide(dev, out, &pkt, now_ns) && egress(dev, &pkt, pkt.std.ingress_global_timestamp))
        out->frame(out, dev, pkt.std.egress_port, pkt.data, pkt.len, now_ns);
    if (dev->traffic.copies.first)
        make_copies(dev, out, now_ns);
    if (dev->traffic.pool.spent)
        rt_buffers_reap(&dev->traffic.pool);
    dev->traffic.past_queues = 0;
}

/* ---- ingress ------------------------------------------------------------------------------------------------ */

/* Make a packet of a frame and run ingress. */
static inline void ingress(struct rt_device *dev, struct p4rt_packet *pkt, uint32_t port, uint8_t *data, uint32_t len,
                           uint32_t headroom, uint64_t now_ns)
{
    dev->observers.stats.received++;
    pkt->data = data;
    pkt->len = pkt->received = len;
    pkt->grown = 0;
    pkt->headroom = headroom;
    pkt->truncate = UINT32_MAX;
    pkt->asked = pkt->rounds = 0;
    pkt->kept = NULL;
    pkt->phv = dev->pipeline.phv;
    memset(&pkt->std, 0, sizeof pkt->std);
    pkt->std.ingress_port = (uint16_t)port;
    pkt->std.packet_length = len;
    pkt->std.ingress_global_timestamp = rt_micros(dev, now_ns);
    dev->pub.program->ingress(&dev->pub, pkt);
}

/* Carry out what the ingress asked for. Returns 1 when the packet goes on to egress (of pkt->std.egress_port), 0 when it was
 * dropped, or only copies of it go on. */
static inline int decide(struct rt_device *dev, struct rt_out *out, struct p4rt_packet *pkt, uint64_t now_ns)
{
    while (pkt->asked | pkt->std.mcast_grp) {
        /* A false assert ends the packet before any of its copies is made. */
        if (pkt->asked & P4RT_ASK_STOP) {
            dev->observers.stats.dropped_assert++;
            return 0;
        }
        if (pkt->asked & P4RT_ASK_CLONE)
            clone_ingress(dev, out, pkt, now_ns);
        /* A resubmitted packet has run ingress once more: its new requests are served by the next turn of the loop. */
        if (pkt->asked & P4RT_ASK_AGAIN) {
            if (!again(dev, pkt, pkt->again_list, RESUBMITTED, now_ns))
                return 0;
            continue;
        }
        /* v1model: multicast takes precedence over egress_spec; only the replicas go on. */
        if (pkt->std.mcast_grp) {
            const struct rt_replication *group = rt_map_find(&dev->replication.groups, pkt->std.mcast_grp);
            replicate(dev, out, pkt, group, REPLICATED, UINT32_MAX, now_ns);
            return 0;
        }
        pkt->asked = 0;
    }
    if (pkt->std.egress_spec == P4RT_DROP_PORT) {
        dev->observers.stats.dropped_ingress++;
        return 0;
    }
    pkt->std.egress_port = pkt->std.egress_spec;
    pkt->std.egress_spec = 0;
    pkt->std.instance_type = 0;
    pkt->std.enq_timestamp = (uint32_t)pkt->std.ingress_global_timestamp;
    return 1;
}

/* The standard metadata that a copy, or another round, begins with. */
static void fresh_std(struct p4rt_packet *pkt, uint32_t type)
{
    struct p4rt_std std = {.ingress_port = pkt->std.ingress_port, .packet_length = pkt->received,
                           .ingress_global_timestamp = pkt->std.ingress_global_timestamp, .instance_type = type};
    pkt->std = std;
}

/* The frame goes through ingress again (resubmitted or recirculated), with the fields of a list. Returns 0 when it was
 * dropped instead. */
static int again(struct rt_device *dev, struct p4rt_packet *pkt, uint32_t list, uint32_t type, uint64_t now_ns)
{
    void *kept;

    if (++pkt->rounds >= RT_ROUNDS) {
        dev->observers.stats.dropped_ingress++;
        return 0;
    }
    kept = malloc(dev->pub.program->phv_bytes);
    if (!kept) {
        dev->observers.stats.dropped_no_buffer++;
        return 0;
    }
    memcpy(kept, pkt->phv, dev->pub.program->phv_bytes);
    pkt->received = pkt->len;
    pkt->grown = 0;
    pkt->std.ingress_global_timestamp = rt_micros(dev, now_ns);
    fresh_std(pkt, type);
    pkt->asked = 0;
    pkt->truncate = UINT32_MAX;
    pkt->kept = kept;
    pkt->kept_list = list;
    dev->pub.program->ingress(&dev->pub, pkt);
    pkt->kept = NULL;
    free(kept);
    return 1;
}

/* ---- the traffic manager ------------------------------------------------------------------------------------ */

/* A packet after ingress: at once through egress and out, or, at a busy port, when its queue and the link let it. */
static void depart(struct rt_device *dev, struct rt_out *out, struct p4rt_packet *pkt, uint64_t now_ns)
{
    struct rt_traffic *traffic = pkt->std.egress_port < RT_PORTS ? dev->traffic.ports[pkt->std.egress_port] : NULL;
    struct rt_queue *queue = traffic ? &traffic->queues[pkt->std.priority % RT_PRIORITIES] : NULL;

    if (traffic && traffic->busy_out && !dev->traffic.past_queues) {
        pkt->std.enq_timestamp = (uint32_t)rt_micros(dev, now_ns);
        pkt->std.enq_qdepth = (uint32_t)queue->packets;
        if (rt_queue_open(traffic, queue, now_ns))
            serve(dev, out, traffic, queue, pkt, NULL, now_ns);
        else
            rt_queue_put(dev, traffic, queue, pkt);
        rt_traffic_look(&dev->traffic, traffic);
        return;
    }
    if (!egress(dev, pkt, pkt->std.ingress_global_timestamp))
        return;
    if (queue) {
        queue->sent_packets++;
        queue->sent_bytes += pkt->len;
    }
    out->frame(out, dev, pkt->std.egress_port, pkt->data, pkt->len, now_ns);
}

/* A packet leaves its queue (or passes by it: `buffer` NULL) at `now_ns`: egress, link, cable. */
static void serve(struct rt_device *dev, struct rt_out *out, struct rt_traffic *traffic, struct rt_queue *queue,
                  struct p4rt_packet *pkt, struct rt_buffer *buffer, uint64_t now_ns)
{
    uint64_t micros = rt_micros(dev, now_ns);

    pkt->std.deq_timedelta = (uint32_t)micros - pkt->std.enq_timestamp;
    pkt->std.deq_qdepth = (uint32_t)queue->packets;
    if (egress(dev, pkt, micros)) {
        uint64_t end_ns = rt_queue_sent(traffic, queue, pkt->len, buffer != NULL, now_ns);
        transmit(dev, out, traffic, pkt, buffer, end_ns, now_ns);
    } else if (buffer) {
        rt_buffer_free(&dev->traffic.pool, buffer);
    }
}

/* ---- egress ------------------------------------------------------------------------------------------------- */

/* Run egress. Returns 1 when pkt->data, pkt->len is a frame to send to pkt->std.egress_port, else 0. */
static inline int egress(struct rt_device *dev, struct p4rt_packet *pkt, uint64_t micros)
{
    uint16_t port = pkt->std.egress_port;

    pkt->std.egress_global_timestamp = micros;
    pkt->std.packet_length = pkt->received + (uint32_t)pkt->grown;
    dev->pub.program->egress(&dev->pub, pkt);
    pkt->std.egress_port = port; /* the program may have written it: that changes nothing */
    if (pkt->asked) {
        /* A false assert ends the packet before any of its copies is made. */
        if (pkt->asked & P4RT_ASK_STOP) {
            dev->observers.stats.dropped_assert++;
            return 0;
        }
        if (pkt->asked & P4RT_ASK_CLONE)
            clone_egress(dev, pkt);
    }
    if (pkt->std.egress_spec == P4RT_DROP_PORT) {
        dev->observers.stats.dropped_egress++;
        return 0;
    }
    dev->pub.program->deparse(&dev->pub, pkt);
    if (pkt->std.egress_spec == P4RT_DROP_PORT) {
        dev->observers.stats.dropped_size++;
        return 0;
    }
    if (pkt->asked & P4RT_ASK_AGAIN && pkt->len <= P4RT_MAX_FRAME) { /* whole: truncate() cuts what leaves */
        recirculate(dev, pkt);
        return 0;
    }
    if (pkt->len > pkt->truncate)
        pkt->len = pkt->truncate;
    if (pkt->len > P4RT_MAX_FRAME) {
        dev->observers.stats.dropped_size++;
        return 0;
    }
    return 1;
}

/* ---- out ---------------------------------------------------------------------------------------------------- */

/* A frame is out of its port at `end_ns`, and enters the cable from there. */
static void transmit(struct rt_device *dev, struct rt_out *out, struct rt_traffic *traffic, struct p4rt_packet *pkt,
                     struct rt_buffer *buffer, uint64_t end_ns, uint64_t now_ns)
{
    uint64_t due_ns = end_ns + traffic->out.delay_ns;

    if (!rt_line_pass(&traffic->out, pkt->data, pkt->len)) {
        if (buffer)
            rt_buffer_free(&dev->traffic.pool, buffer);
    } else if (due_ns <= now_ns && !traffic->out.fifo.first) {
        out->frame(out, dev, traffic->number, pkt->data, pkt->len, now_ns);
        if (buffer)
            rt_buffer_spend(&dev->traffic.pool, buffer);
    } else {
        rt_line_hold(dev, &traffic->out, pkt, buffer, due_ns);
    }
}

/* ---- time --------------------------------------------------------------------------------------------------- */

/* All that is due at a port at `now_ns`: frames at the end of their cables, frames in queues. */
static void happen(struct rt_device *dev, struct rt_out *out, struct rt_traffic *traffic, uint64_t now_ns)
{
    struct rt_buffer *buffer;
    struct rt_queue *queue;

    while ((buffer = rt_line_take(&traffic->out, now_ns))) {
        out->frame(out, dev, traffic->number, buffer->pkt.data, buffer->pkt.len, now_ns);
        rt_buffer_spend(&dev->traffic.pool, buffer);
    }
    while ((buffer = rt_queue_take(traffic, now_ns, &queue)))
        serve(dev, out, traffic, queue, &buffer->pkt, buffer, now_ns);
    while ((buffer = rt_line_take(&traffic->in, now_ns))) {
        struct p4rt_packet *pkt = &buffer->pkt;
        rt_enter(dev, out, traffic->number, pkt->data, pkt->len, pkt->headroom, now_ns);
        rt_buffer_spend(&dev->traffic.pool, buffer);
    }
    rt_traffic_look(&dev->traffic, traffic);
}

/* Everything that is due until now_ns, in the order of its time. */
void rt_advance(struct rt_device *dev, struct rt_out *out, uint64_t now_ns)
{
    while (rt_traffic_due(&dev->traffic, now_ns)) {
        struct rt_timer *timer = dev->traffic.timers.at[0];
        uint64_t at_ns = timer->due_ns > dev->traffic.clock_ns ? timer->due_ns : dev->traffic.clock_ns;
        dev->traffic.clock_ns = at_ns;
        happen(dev, out, (struct rt_traffic *)((char *)timer - offsetof(struct rt_traffic, timer)), at_ns);
        make_copies(dev, out, at_ns);
    }
    if (now_ns > dev->traffic.clock_ns)
        dev->traffic.clock_ns = now_ns;
}

/* ---- copies ------------------------------------------------------------------------------------------------- */

static struct rt_buffer *copy_of(struct rt_device *dev, const struct p4rt_packet *pkt)
{
    struct rt_buffer *copy = pkt->rounds < RT_ROUNDS ? rt_buffer_copy(dev, pkt, 1) : NULL;

    if (pkt->rounds >= RT_ROUNDS)
        dev->observers.stats.dropped_ingress++;
    if (copy) {
        copy->pkt.asked = 0;
        copy->pkt.kept = NULL;
        copy->pkt.truncate = UINT32_MAX;
        copy->pkt.rounds++;
    }
    return copy;
}

/* One copy of `pkt`, of `truncate` bytes at most, for each replica. A copy's frame may have been given to `out`: its
 * buffer stays until that has sent it. */
static void replicate(struct rt_device *dev, struct rt_out *out, const struct p4rt_packet *pkt,
                      const struct rt_replication *to, uint32_t type, uint32_t truncate, uint64_t now_ns)
{
    for (uint32_t i = 0; to && i < to->n; i++) {
        struct rt_buffer *copy = copy_of(dev, pkt);
        if (!copy)
            return;
        copy->pkt.truncate = truncate;
        copy->pkt.std.egress_spec = 0;
        copy->pkt.std.egress_port = (uint16_t)to->replicas[i].port;
        copy->pkt.std.egress_rid = (uint16_t)to->replicas[i].rid;
        copy->pkt.std.instance_type = type;
        copy->pkt.std.enq_timestamp = (uint32_t)copy->pkt.std.ingress_global_timestamp;
        depart(dev, out, &copy->pkt, now_ns);
        rt_buffer_spend(&dev->traffic.pool, copy);
    }
}

/* Send `copy`, a clone that has been parsed, where its session says. It is used up. */
static void send_clone(struct rt_device *dev, struct rt_out *out, struct rt_buffer *copy,
                       const struct rt_replication *session, uint64_t now_ns)
{
    struct p4rt_packet *pkt = &copy->pkt;
    uint32_t longest = session->truncate ? session->truncate : UINT32_MAX;

    pkt->std.priority = (uint8_t)(session->priority % RT_PRIORITIES);
    if (session->group) {
        const struct rt_replication *group = rt_map_find(&dev->replication.groups, session->group);
        replicate(dev, out, pkt, group, pkt->std.instance_type, longest, now_ns);
    }
    replicate(dev, out, pkt, session, pkt->std.instance_type, longest, now_ns);
    rt_buffer_free(&dev->traffic.pool, copy);
}

/* A clone of the frame as it came in: parsed anew for its headers, with the metadata of its list and no other. */
static void clone_ingress(struct rt_device *dev, struct rt_out *out, const struct p4rt_packet *pkt, uint64_t now_ns)
{
    const struct rt_replication *session = rt_map_find(&dev->replication.sessions, pkt->clone_session);
    struct rt_buffer *copy = session ? copy_of(dev, pkt) : NULL;

    if (!copy)
        return;
    fresh_std(&copy->pkt, CLONE_I2E);
    copy->pkt.grown = 0;
    copy->pkt.kept = pkt->phv;
    copy->pkt.kept_list = pkt->clone_list;
    dev->pub.program->parse(&dev->pub, &copy->pkt);
    copy->pkt.kept = NULL;
    fresh_std(&copy->pkt, CLONE_I2E); /* what the parser wrote there is not the clone's */
    send_clone(dev, out, copy, session, now_ns);
}

/* Before the deparser: a clone with the headers as they are, and the metadata of its list. */
static void clone_egress(struct rt_device *dev, struct p4rt_packet *pkt)
{
    struct rt_buffer *copy = rt_map_find(&dev->replication.sessions, pkt->clone_session) ? copy_of(dev, pkt) : NULL;

    pkt->asked &= ~(uint32_t)P4RT_ASK_CLONE;
    if (!copy)
        return;
    fresh_std(&copy->pkt, CLONE_E2E);
    copy->pkt.kept_list = pkt->clone_list;
    dev->pub.program->forget(&copy->pkt);
    copy->pkt.asked = P4RT_ASK_CLONE;
    rt_fifo_put(&dev->traffic.copies, copy);
}

/* After the deparser: the frame that would leave comes in again. */
static void recirculate(struct rt_device *dev, struct p4rt_packet *pkt)
{
    struct rt_buffer *copy = copy_of(dev, pkt);

    if (!copy)
        return;
    copy->pkt.asked = P4RT_ASK_AGAIN;
    rt_fifo_put(&dev->traffic.copies, copy);
}

/* The packet at hand has been dealt with: what the egress asked to copy goes its way, and what that asks for. */
static void make_copies(struct rt_device *dev, struct rt_out *out, uint64_t now_ns)
{
    while (dev->traffic.copies.first) {
        struct rt_buffer *copy = rt_fifo_take(&dev->traffic.copies);
        struct p4rt_packet *pkt = &copy->pkt;
        uint32_t asked = pkt->asked;
        pkt->asked = 0;
        if (asked & P4RT_ASK_CLONE) {
            const struct rt_replication *session = rt_map_find(&dev->replication.sessions, pkt->clone_session);
            if (session)
                send_clone(dev, out, copy, session, now_ns);
            else
                rt_buffer_free(&dev->traffic.pool, copy);
        } else if (again(dev, pkt, pkt->again_list, RECIRCULATED, now_ns) && decide(dev, out, pkt, now_ns)) {
            depart(dev, out, pkt, now_ns);
            rt_buffer_spend(&dev->traffic.pool, copy); /* its frame may have been given to `out` */
        } else {
            rt_buffer_free(&dev->traffic.pool, copy);
        }
    }
}
