/* traffic.h: a frame's way through a device, and the traffic manager between ingress and egress.
 *
 *     cable in (impairment.c) -> rt_ingress -> queue (traffic.c) -> rt_egress -> serialised -> cable out (impairment.c) -> rt_out
 *
 * A port without rates and impairments is not busy: then rt_depart runs egress at once and the frame leaves from where
 * it lies. Else traffic.c has it: what waits is copied into a buffer (buffers.c) with the program's state of it.
 *
 * Time is a parameter everywhere. A thing that is due at t happens at t, however late the caller comes: all sums are
 * made with due times, so rates are exact and a virtual clock (virtual_clock.c) and the event loop (event_loop.c) run the same code.
 * Every function here is called with the device locked.
 */
#ifndef RT_TRAFFIC_H
#define RT_TRAFFIC_H

#include "runtime.h"

#define RT_PRIORITIES 8
#define RT_POOL_BYTES (32u << 20)   /* buffers of a device: frames in queues and on cables */
#define RT_POOL_KEPT (1u << 20)     /* of those, kept for the next frame when they are free */

/* Where frames go that leave a device. `data` stays where it is until the caller of the traffic manager has sent it
 * and calls rt_buffers_reap. */
struct rt_out {
    void (*frame)(struct rt_out *out, struct rt_device *dev, uint32_t port, uint8_t *data, uint32_t len,
                  uint64_t at_ns);
};

struct rt_buffer {
    struct rt_buffer *next;
    uint64_t due_ns;            /* on a cable: when it arrives */
    uint32_t bytes;             /* of memory, of the pool */
    uint32_t counted;           /* in a queue: bytes of frame it stands for there */
    struct p4rt_packet pkt;
    uint8_t space[] __attribute__((aligned(16)));
};

struct rt_fifo {
    struct rt_buffer *first, *last;
};

/* At most `rate` (bits or frames) a second, one after another: free_ns + carry/rate/1e9 is when it may go on. */
struct rt_shaper {
    uint64_t rate, free_ns, carry;
};

struct rt_queue {
    struct rt_shaper bits, frames;
    uint64_t max_packets, max_bytes;
    struct rt_fifo fifo;
    uint64_t packets, bytes, sent_packets, sent_bytes, dropped_packets, dropped_bytes, peak; /* peak: of packets */
};

struct rt_pattern {
    char *text;                 /* of 0 and 1; NULL: none */
    uint32_t n, at;
};

/* A cable in one direction. */
struct rt_line {
    uint64_t delay_ns, seed, salt; /* salt: makes cables with one seed differ */
    uint32_t loss_ppm, corrupt_ppm;
    struct rt_pattern loss, corrupt;
    uint64_t loss_random, corrupt_random;
    struct rt_fifo fifo;        /* by due time */
    uint64_t held, lost_packets, lost_bytes, corrupted, dropped_packets, dropped_bytes;
};

struct rt_traffic {             /* of a port */
    struct rt_timer timer;      /* the next thing that is due here */
    uint32_t number;
    uint8_t busy_in, busy_out;  /* 0: a frame passes as if all this were not there */
    uint8_t waiting;            /* bit: that priority's queue is not empty */
    struct rt_shaper bits, frames;
    uint64_t last_ns;           /* when the last frame left its queue */
    struct rt_queue queues[RT_PRIORITIES];
    struct rt_line in, out;
};

/* buffers.c */
struct rt_buffer *rt_buffer_copy(struct rt_device *dev, const struct p4rt_packet *pkt, int with_state);
void rt_buffer_free(struct rt_device *dev, struct rt_buffer *buffer);
void rt_buffers_reap(struct rt_device *dev);
void rt_buffers_trim(struct rt_device *dev);
void rt_fifo_put(struct rt_fifo *fifo, struct rt_buffer *buffer);
struct rt_buffer *rt_fifo_take(struct rt_fifo *fifo);

/* It has been given to rt_out, and is free when that has sent it. */
static inline void rt_buffer_spend(struct rt_device *dev, struct rt_buffer *buffer)
{
    buffer->next = dev->pool.spent;
    dev->pool.spent = buffer;
}

/* impairment.c */
int rt_line_pass(struct rt_line *line, uint8_t *data, uint32_t len);
int rt_line_hold(struct rt_device *dev, struct rt_line *line, const struct p4rt_packet *pkt, struct rt_buffer *buffer,
                 uint64_t due_ns);
void rt_line_restart(struct rt_line *line);
void rt_line_shift(struct rt_line *line, uint64_t delay_ns);

static inline int rt_line_plain(const struct rt_line *line)
{
    return !(line->delay_ns | line->loss_ppm | line->corrupt_ppm) && !line->loss.text && !line->corrupt.text &&
           !line->fifo.first;
}

/* traffic.c */
void rt_traffic_arrive(struct rt_device *dev, struct rt_out *out, uint32_t port, uint8_t *data, uint32_t len,
                       uint32_t headroom, uint64_t now_ns);
void rt_traffic_depart(struct rt_device *dev, struct rt_out *out, struct p4rt_packet *pkt, uint64_t now_ns);
void rt_traffic_advance(struct rt_device *dev, struct rt_out *out, uint64_t now_ns);
struct rt_traffic *rt_traffic_of(struct rt_device *dev, uint32_t port); /* NULL: out of memory */
int rt_traffic_timed(const struct rt_traffic *traffic);
void rt_traffic_look(struct rt_device *dev, struct rt_traffic *traffic);
void rt_traffic_restart(struct rt_device *dev);
void rt_traffic_forget(struct rt_device *dev);
void rt_traffic_destroy(struct rt_device *dev);

/* virtual_clock.c */
void rt_virtual_destroy(struct rt_device *dev);

/* Microseconds since the program was loaded; 0 for a frame that came before. */
static inline uint64_t rt_micros(const struct rt_device *dev, uint64_t now_ns)
{
    return now_ns > dev->started_ns ? (now_ns - dev->started_ns) / 1000 : 0;
}

/* replicate.c */
int rt_asked_ingress(struct rt_device *dev, struct rt_out *out, struct p4rt_packet *pkt, uint64_t now_ns);
void rt_clone_egress(struct rt_device *dev, struct p4rt_packet *pkt);
void rt_recirculate(struct rt_device *dev, struct p4rt_packet *pkt);
void rt_copies_run(struct rt_device *dev, struct rt_out *out, uint64_t now_ns);

/* To be called when the packet at hand has been dealt with: send what the egress asked to copy. */
static inline void rt_copies(struct rt_device *dev, struct rt_out *out, uint64_t now_ns)
{
    if (dev->copies.first)
        rt_copies_run(dev, out, now_ns);
}

/* What the ingress decided. Returns 1 when the packet goes on to egress (of pkt->std.egress_port). */
static inline int rt_after_ingress(struct rt_device *dev, struct rt_out *out, struct p4rt_packet *pkt, uint64_t now_ns)
{
    if (pkt->asked | pkt->std.mcast_grp)
        return rt_asked_ingress(dev, out, pkt, now_ns);
    if (pkt->std.egress_spec == P4RT_DROP_PORT) {
        dev->stats.dropped_ingress++;
        return 0;
    }
    pkt->std.egress_port = pkt->std.egress_spec;
    pkt->std.egress_spec = 0;
    pkt->std.instance_type = 0;
    pkt->std.enq_timestamp = (uint32_t)pkt->std.ingress_global_timestamp;
    return 1;
}

/* Prepare `pkt` for a frame of `len` bytes at `data` and run ingress. Returns 1 when the packet goes on to egress (of
 * pkt->std.egress_port), 0 when it was dropped, or only copies of it go on. The device is locked and has a program. */
static inline int rt_ingress(struct rt_device *dev, struct rt_out *out, struct p4rt_packet *pkt, uint32_t port,
                             uint8_t *data, uint32_t len, uint32_t headroom, uint64_t now_ns)
{
    dev->stats.received++;
    pkt->data = data;
    pkt->len = pkt->received = len;
    pkt->grown = 0;
    pkt->headroom = headroom;
    pkt->truncate = UINT32_MAX;
    pkt->asked = pkt->rounds = 0;
    pkt->kept = NULL;
    pkt->phv = dev->phv;
    memset(&pkt->std, 0, sizeof pkt->std);
    pkt->std.ingress_port = (uint16_t)port;
    pkt->std.packet_length = len;
    pkt->std.ingress_global_timestamp = rt_micros(dev, now_ns);
    dev->pub.program->ingress(&dev->pub, pkt);
    return rt_after_ingress(dev, out, pkt, now_ns);
}

/* Run egress. Returns 1 when pkt->data, pkt->len is a frame to send to pkt->std.egress_port, else 0. */
static inline int rt_egress(struct rt_device *dev, struct p4rt_packet *pkt, uint64_t micros)
{
    uint16_t port = pkt->std.egress_port;

    pkt->std.egress_global_timestamp = micros;
    pkt->std.packet_length = pkt->received + (uint32_t)pkt->grown;
    dev->pub.program->egress(&dev->pub, pkt);
    pkt->std.egress_port = port; /* the program may have written it: that changes nothing */
    if (pkt->asked) {
        if (pkt->asked & P4RT_ASK_STOP) {
            dev->stats.dropped_assert++;
            return 0;
        }
        if (pkt->asked & P4RT_ASK_CLONE)
            rt_clone_egress(dev, pkt);
    }
    if (pkt->std.egress_spec == P4RT_DROP_PORT) {
        dev->stats.dropped_egress++;
        return 0;
    }
    dev->pub.program->deparse(&dev->pub, pkt);
    if (pkt->std.egress_spec == P4RT_DROP_PORT) {
        dev->stats.dropped_size++;
        return 0;
    }
    if (pkt->asked & P4RT_ASK_AGAIN && pkt->len <= P4RT_MAX_FRAME) { /* whole: truncate() cuts what leaves */
        rt_recirculate(dev, pkt);
        return 0;
    }
    if (pkt->len > pkt->truncate)
        pkt->len = pkt->truncate;
    if (pkt->len > P4RT_MAX_FRAME) {
        dev->stats.dropped_size++;
        return 0;
    }
    return 1;
}

/* A packet after ingress. Returns 1 when pkt->data, pkt->len is a frame to send now; 0: it was dropped or waits, or has
 * been given to `out` already. */
static inline int rt_depart(struct rt_device *dev, struct rt_out *out, struct p4rt_packet *pkt, uint64_t now_ns)
{
    struct rt_traffic *traffic = pkt->std.egress_port < RT_PORTS ? dev->traffic[pkt->std.egress_port] : NULL;
    struct rt_queue *queue = traffic ? &traffic->queues[pkt->std.priority % RT_PRIORITIES] : NULL;

    if (traffic && traffic->busy_out && !dev->past_queues) {
        rt_traffic_depart(dev, out, pkt, now_ns);
        return 0;
    }
    if (!rt_egress(dev, pkt, pkt->std.ingress_global_timestamp))
        return 0;
    if (queue) {
        queue->sent_packets++;
        queue->sent_bytes += pkt->len;
    }
    return 1;
}

static inline int rt_arrives_late(const struct rt_device *dev, uint32_t port)
{
    return port < RT_PORTS && dev->traffic[port] && dev->traffic[port]->busy_in;
}

static inline int rt_traffic_due(const struct rt_device *dev, uint64_t now_ns)
{
    return dev->timers.n && dev->timers.at[0]->due_ns <= now_ns;
}

#endif
