/* Copies of packets: multicast, clones, and packets that go round again (resubmit, recirculate).
 *
 * The order is simple_switch's. After ingress: clone (of the frame as it came in, parsed anew), resubmit, multicast, drop,
 * unicast; so a packet that is dropped or resubmitted is cloned all the same, and one with a multicast group does not
 * go to its egress_spec. After egress: clone (with the headers as they are), drop, deparse, recirculate.
 *
 * What the egress asks for waits in dev->copies until the packet at hand is out: the queue it comes from is being
 * served. Copies and rounds of one packet end after RT_ROUNDS, so that a program which sends packets round for ever
 * does not hold the machine; those that end so are counted as dropped.
 */
#include <stdlib.h>

#include "traffic.h"

#define RT_ROUNDS 32

enum { CLONE_I2E = 1, CLONE_E2E = 2, RECIRCULATED = 4, REPLICATED = 5, RESUBMITTED = 6 };

/* ---- groups and sessions ------------------------------------------------------------------------------------------- */

static void empty(struct rt_map *map)
{
    for (uint32_t i = 0; i < map->n; i++)
        free(map->at[i].thing);
    free(map->at);
    memset(map, 0, sizeof *map);
}

void rt_replication_forget(struct rt_device *dev)
{
    empty(&dev->groups);
    empty(&dev->sessions);
}

/* Set a multicast group (session 0) or a clone session (1), replacing the one of that id; `keep` 0: remove it. */
RT_API int rt_replication_write(struct rt_device *dev, int session, uint32_t id, uint32_t group, uint32_t priority,
                                uint32_t truncate, int keep, uint32_t n, const struct rt_replica *replicas)
{
    struct rt_replication *made = NULL, *old;
    struct rt_map *map = session ? &dev->sessions : &dev->groups;
    int error = RT_OK;

    if (n > RT_PORTS * 128)
        return RT_FULL;
    if (keep) {
        made = malloc(sizeof *made + n * sizeof *replicas);
        if (!made)
            return RT_NO_MEMORY;
        *made = (struct rt_replication){group, priority, truncate, n};
        if (n)
            memcpy(made->replicas, replicas, n * sizeof *replicas);
    }
    rt_lock(&dev->lock);
    old = rt_map_find(map, id);
    if (old) {
        rt_map_take(map, id);
        free(old);
    }
    if (made && rt_map_put(map, id, made)) {
        free(made);
        error = RT_NO_MEMORY;
    }
    rt_unlock(&dev->lock);
    return error;
}

/* ---- copies -------------------------------------------------------------------------------------------------------- */

/* A copy, ready for egress: queue it, or send it at once. In either case its frame may have been given to `out`, also
 * by rt_depart: the buffer must stay until that has sent it. */
static void depart(struct rt_device *dev, struct rt_out *out, struct rt_buffer *copy, uint64_t now_ns)
{
    if (rt_depart(dev, out, &copy->pkt, now_ns))
        out->frame(out, dev, copy->pkt.std.egress_port, copy->pkt.data, copy->pkt.len, now_ns);
    rt_buffer_spend(dev, copy);
}

static struct rt_buffer *copy_of(struct rt_device *dev, const struct p4rt_packet *pkt)
{
    struct rt_buffer *copy = pkt->rounds < RT_ROUNDS ? rt_buffer_copy(dev, pkt, 1) : NULL;

    if (pkt->rounds >= RT_ROUNDS)
        dev->stats.dropped_ingress++;
    if (copy) {
        copy->pkt.asked = 0;
        copy->pkt.kept = NULL;
        copy->pkt.truncate = UINT32_MAX;
        copy->pkt.rounds++;
    }
    return copy;
}

/* One copy of `pkt`, of `truncate` bytes at most, for each replica. */
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
        depart(dev, out, copy, now_ns);
    }
}

/* Send `copy`, a clone that has been parsed, where its session says. It is used up. */
static void send_clone(struct rt_device *dev, struct rt_out *out, struct rt_buffer *copy,
                       const struct rt_replication *session, uint64_t now_ns)
{
    struct p4rt_packet *pkt = &copy->pkt;
    uint32_t longest = session->truncate ? session->truncate : UINT32_MAX;

    pkt->std.priority = (uint8_t)(session->priority % RT_PRIORITIES);
    if (session->group)
        replicate(dev, out, pkt, rt_map_find(&dev->groups, session->group), pkt->std.instance_type, longest, now_ns);
    replicate(dev, out, pkt, session, pkt->std.instance_type, longest, now_ns);
    rt_buffer_free(dev, copy);
}

/* The standard metadata that a copy begins with. */
static void fresh_std(struct p4rt_packet *pkt, uint32_t type)
{
    struct p4rt_std std = {.ingress_port = pkt->std.ingress_port, .packet_length = pkt->received,
                           .ingress_global_timestamp = pkt->std.ingress_global_timestamp, .instance_type = type};
    pkt->std = std;
}

/* A clone of the frame as it came in: parsed anew for its headers, with the metadata of its list and no other. */
static void clone_ingress(struct rt_device *dev, struct rt_out *out, const struct p4rt_packet *pkt, uint64_t now_ns)
{
    const struct rt_replication *session = rt_map_find(&dev->sessions, pkt->clone_session);
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

/* The frame goes through ingress again, with the fields of a list. */
static int again(struct rt_device *dev, struct rt_out *out, struct p4rt_packet *pkt, const void *kept, uint32_t list,
                 uint32_t type, uint64_t now_ns)
{
    if (++pkt->rounds >= RT_ROUNDS) {
        dev->stats.dropped_ingress++;
        return 0;
    }
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
    return rt_after_ingress(dev, out, pkt, now_ns);
}

/* The program asked for something in the ingress. Returns 1 when the packet itself goes on to egress. */
int rt_asked_ingress(struct rt_device *dev, struct rt_out *out, struct p4rt_packet *pkt, uint64_t now_ns)
{
    if (pkt->asked & P4RT_ASK_STOP) {
        dev->stats.dropped_assert++;
        return 0;
    }
    if (pkt->asked & P4RT_ASK_CLONE)
        clone_ingress(dev, out, pkt, now_ns);
    if (pkt->asked & P4RT_ASK_AGAIN) {
        void *kept = malloc(dev->pub.program->phv_bytes);
        int goes_on = 0;
        if (kept) {
            memcpy(kept, pkt->phv, dev->pub.program->phv_bytes);
            goes_on = again(dev, out, pkt, kept, pkt->again_list, RESUBMITTED, now_ns);
        } else {
            dev->stats.dropped_no_buffer++;
        }
        free(kept);
        return goes_on;
    }
    if (pkt->std.mcast_grp) {
        replicate(dev, out, pkt, rt_map_find(&dev->groups, pkt->std.mcast_grp), REPLICATED, UINT32_MAX, now_ns);
        return 0;
    }
    pkt->asked = 0;
    return rt_after_ingress(dev, out, pkt, now_ns);
}

/* ---- what the egress asks for ------------------------------------------------------------------------------------------ */

static void wait(struct rt_device *dev, struct rt_buffer *copy)
{
    copy->next = NULL;
    if (dev->copies.first)
        dev->copies.last->next = copy;
    else
        dev->copies.first = copy;
    dev->copies.last = copy;
}

/* Before the deparser: a clone with the headers as they are, and the metadata of its list. */
void rt_clone_egress(struct rt_device *dev, struct p4rt_packet *pkt)
{
    struct rt_buffer *copy = rt_map_find(&dev->sessions, pkt->clone_session) ? copy_of(dev, pkt) : NULL;

    pkt->asked &= ~(uint32_t)P4RT_ASK_CLONE;
    if (!copy)
        return;
    fresh_std(&copy->pkt, CLONE_E2E);
    copy->pkt.kept_list = pkt->clone_list;
    dev->pub.program->forget(&copy->pkt);
    copy->pkt.asked = P4RT_ASK_CLONE;
    wait(dev, copy);
}

/* After the deparser: the frame that would leave comes in again. */
void rt_recirculate(struct rt_device *dev, struct p4rt_packet *pkt)
{
    struct rt_buffer *copy = copy_of(dev, pkt);

    if (!copy)
        return;
    copy->pkt.asked = P4RT_ASK_AGAIN;
    wait(dev, copy);
}

void rt_copies_run(struct rt_device *dev, struct rt_out *out, uint64_t now_ns)
{
    for (struct rt_buffer *copy; (copy = dev->copies.first);) {
        struct p4rt_packet *pkt = &copy->pkt;
        uint32_t asked = pkt->asked;
        dev->copies.first = copy->next;
        pkt->asked = 0;
        if (asked & P4RT_ASK_CLONE) {
            const struct rt_replication *session = rt_map_find(&dev->sessions, pkt->clone_session);
            if (session)
                send_clone(dev, out, copy, session, now_ns);
            else
                rt_buffer_free(dev, copy);
            continue;
        }
        void *kept = malloc(dev->pub.program->phv_bytes);
        if (kept) {
            memcpy(kept, pkt->phv, dev->pub.program->phv_bytes);
            if (again(dev, out, pkt, kept, pkt->again_list, RECIRCULATED, now_ns)) {
                depart(dev, out, copy, now_ns);
                copy = NULL;
            }
        } else {
            dev->stats.dropped_no_buffer++;
        }
        free(kept);
        if (copy)
            rt_buffer_free(dev, copy);
    }
}
