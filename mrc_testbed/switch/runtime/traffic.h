/* The traffic manager: the queues and rates of each port, between ingress and egress.
 *
 * A port without rates and impairments is not busy: frames pass it (pipeline.c) as if all this were not there. Else
 * what waits is copied into a buffer (buffers.h) with the program's state of it.
 *
 * Time is a parameter everywhere. A thing that is due at t happens at t, however late the caller comes: all sums are
 * made with due times, so rates are exact and a virtual clock (virtual_clock.c) and the event loop (event_loop.c)
 * run the same code. Every function here is called with the device locked.
 */
#ifndef RT_TRAFFIC_H
#define RT_TRAFFIC_H

#include "impairment.h"
#include "runtime.h"

#define RT_PRIORITIES 8

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

/* a port's queues */
int rt_queue_open(const struct rt_traffic *traffic, const struct rt_queue *queue, uint64_t now_ns);
void rt_queue_put(struct rt_device *dev, struct rt_traffic *traffic, struct rt_queue *queue,
                  const struct p4rt_packet *pkt);
struct rt_buffer *rt_queue_take(struct rt_traffic *traffic, uint64_t now_ns, struct rt_queue **from);
uint64_t rt_queue_sent(struct rt_traffic *traffic, struct rt_queue *queue, uint32_t bytes, int waited, uint64_t now_ns);

/* a port */
struct rt_traffic *rt_traffic_of(struct rt_device *dev, uint32_t port); /* NULL: out of memory */
int rt_traffic_timed(const struct rt_traffic *traffic);
void rt_traffic_look(struct rt_traffic_manager *manager, struct rt_traffic *traffic);

/* all ports of a device */
void rt_traffic_restart(struct rt_traffic_manager *manager);
void rt_traffic_forget(struct rt_traffic_manager *manager);
void rt_traffic_destroy(struct rt_traffic_manager *manager);

static inline int rt_traffic_due(const struct rt_traffic_manager *manager, uint64_t now_ns)
{
    return manager->timers.n && manager->timers.at[0]->due_ns <= now_ns;
}

#endif
