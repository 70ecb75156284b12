/* A frame's way through a device: ingress, the traffic manager's place, egress.
 *
 * Today every packet goes straight from ingress to egress: no queue, so the queue metadata are zero. The traffic
 * manager (queues, rates, depths) will stand where rt_ingress returns and before rt_egress is called: it will keep the
 * packet (and, through the caller, the buffer it lies in) until its port may send, set the enq_ and deq_ fields, and
 * replicate for multicast and clones.
 */
#ifndef RT_TRAFFIC_H
#define RT_TRAFFIC_H

#include "runtime.h"

/* Prepare `pkt` for a frame of `len` bytes at `data` and run ingress. Returns 1 when the packet goes on to egress (of
 * pkt->std.egress_port), 0 when it was dropped. The device is locked and has a program. */
static inline int rt_ingress(struct rt_device *dev, struct p4rt_packet *pkt, uint32_t port, uint8_t *data,
                             uint32_t len, uint32_t headroom, uint64_t now_ns)
{
    dev->stats.received++;
    pkt->data = data;
    pkt->len = len;
    pkt->headroom = headroom;
    pkt->truncate = UINT32_MAX;
    pkt->phv = dev->phv;
    memset(&pkt->std, 0, sizeof pkt->std);
    pkt->std.ingress_port = (uint16_t)port;
    pkt->std.packet_length = len;
    pkt->std.ingress_global_timestamp = (now_ns - dev->started_ns) / 1000;
    dev->pub.program->ingress(&dev->pub, pkt);
    if (pkt->std.egress_spec == P4RT_DROP_PORT) {
        dev->stats.dropped_ingress++;
        return 0;
    }
    pkt->std.egress_port = pkt->std.egress_spec;
    pkt->std.egress_spec = 0;
    return 1;
}

/* Run egress. Returns 1 when pkt->data, pkt->len is a frame to send to pkt->std.egress_port, else 0. */
static inline int rt_egress(struct rt_device *dev, struct p4rt_packet *pkt)
{
    pkt->std.egress_global_timestamp = pkt->std.ingress_global_timestamp;
    dev->pub.program->egress(&dev->pub, pkt);
    if (pkt->std.egress_spec == P4RT_DROP_PORT) {
        dev->stats.dropped_egress++;
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

#endif
