/* runtime.h: what the files of the runtime share. Programs see p4rt.h only; Python sees the RT_API functions.
 *
 *     device.c    devices, loading programs, counters and registers, the in-memory door
 *     tables.c    table entries            profiles.c  members and groups of action profiles
 *     entries.c   entries for Python, idle timeouts
 *     digests.c   what programs tell the control plane
 *     trace.c     the way of one packet
 *     hashes.c    CRCs, random numbers     timers.h    a heap of due times
 *     pipeline.c  a frame's way, from its cable to the next one
 *     traffic.c   queues and rates         settings.c  of queues, rates and cables, and their counts
 *     impairment.c      cables: delay, loss      buffers.c   what waits lies in them
 *     replication.c     multicast groups, clone sessions
 *     virtual_clock.c   a device under a virtual clock
 *     event_loop.c        event loop: frames, time             ports.c  interfaces as its ports
 *     events.c    what it tells Python                 port.c   sockets and rings
 *     link.c      netlink: state of those interfaces
 *     wires.c     cables between two ports of a loop, without the kernel
 *
 * Functions return RT_OK or one of the errors below and change nothing when they fail. Callers are our own Python:
 * lengths and widths are checked there (mrc_testbed/switch/device/device.py); indexes and ids are checked here as well.
 */
#ifndef RT_RUNTIME_H
#define RT_RUNTIME_H

#include "buffers.h"
#include "lock.h"
#include "p4rt.h"
#include "timers.h"

#define RT_API __attribute__((visibility("default")))
#define RT_PORTS 512            /* port numbers are 0..510; 511 drops */

enum rt_error {
    RT_OK = 0,
    RT_NOT_FOUND = -1,
    RT_EXISTS = -2,
    RT_FULL = -3,
    RT_IN_USE = -4,
    RT_NO_MEMORY = -5,
    RT_INVALID = -6,            /* an index or id that does not exist */
    RT_NO_PROGRAM = -7,
    RT_SYSTEM = -8,             /* errno tells */
    RT_MIXED = -9,              /* one-shot sets and members or groups in one action selector */
    RT_CONST = -10,             /* the program says that it does not change */
};

enum rt_op { RT_INSERT = 0, RT_MODIFY = 1, RT_DELETE = 2 };

/* What an entry's action is. */
enum rt_kind { RT_KIND_NONE = 0, RT_KIND_ACTION = 1, RT_KIND_MEMBER = 2, RT_KIND_GROUP = 3, RT_KIND_SET = 4 };

struct rt_member {
    struct p4rt_action act;
    uint32_t refs;              /* entries and group places that point here */
};

struct rt_group_member {
    struct rt_member *member;
    uint32_t weight;
    int32_t watch_port;         /* -1: none */
};

struct rt_group {
    struct p4rt_group live;     /* what programs see */
    uint32_t refs;              /* entries */
    uint32_t max_size;
    uint32_t n_members;
    struct rt_group_member *members;
    struct rt_group *prev, *next; /* of a one-shot set, which has its members to itself: its place in rt_profile.sets */
};

/* Things by id, sorted. */
struct rt_map {
    struct { uint32_t id; void *thing; } *at;
    uint32_t n, room;
};

struct rt_profile {
    struct rt_map members, groups;
    struct rt_group *sets;      /* one-shot action sets: each the group of one table entry */
    uint32_t set_members;       /* in all of them */
};

struct rt_entry {
    struct p4rt_entry pub;      /* first: programs see this part */
    struct rt_entry *prev, *next; /* all entries of the table, oldest first */
    enum rt_kind kind;
    struct rt_member *member;
    struct rt_group *group;
    uint64_t timeout_ns;        /* idle timeout; 0: none */
    uint64_t told_us;           /* when Python was told last that it is idle, in the program's time */
    uint32_t constant;          /* of the program, and not to be changed */
};

struct rt_table {
    struct rt_entry *first, *last;
    uint32_t used;
    struct rt_entry miss;       /* owns what p4rt_table.miss shows */
};

struct rt_stats {               /* as mrc_testbed/switch/device/native.py reads it */
    uint64_t received, sent, dropped_ingress, dropped_egress, dropped_no_port, dropped_size;
    uint64_t dropped_queue;     /* by the traffic manager: the queue was full, or there was no buffer */
    uint64_t dropped_no_buffer; /* there was no buffer, in a queue or on a cable */
    uint64_t dropped_assert;    /* an assert or assume of the program was false */
    const char *false_assert;   /* place of the last such one, a string of the program; NULL: none was */
};

/* Digests that wait for Python (digests.c). */
struct rt_digests {
    uint8_t *bytes;
    uint32_t used, count;
    uint64_t lost;              /* found the buffer full */
    int wake;                   /* descriptor to write to when the first arrives; -1: none */
};

/* A trace being taken (trace.c). */
struct rt_trace {
    const struct p4_program *ordinary; /* the build that runs when no trace is taken; NULL: none is */
    void *library;
    uint8_t *bytes;
    size_t used, room;
};

struct rt_port;
struct rt_loop;
struct rt_traffic;
struct rt_collected;

/* ---- the parts of a device, by owner -------------------------------------------------------------------------- */

/* The loaded program's state, replaced as a whole by another program (device.c). Tables: tables.c; profiles:
 * profiles.c. What programs see of it is in p4rt_device. */
struct rt_pipeline {
    void *library;              /* dlopen handle of the program */
    struct rt_table *tables;    /* parallel to p4rt_device.tables */
    struct rt_profile *profiles;
    struct p4rt_range *ranges;  /* all range fields of all tables */
    void *phv;                  /* of the packet at hand */
};

struct rt_random {              /* hashes.c */
    uint64_t state[2], seed;
};

/* Multicast groups and clone sessions by id (replication.c): each an rt_replication. */
struct rt_replication_maps {
    struct rt_map groups, sessions;
};

/* What waits in queues and on cables, and its time (traffic.c; pipeline.c makes it go on). */
struct rt_traffic_manager {
    struct rt_traffic *ports[RT_PORTS]; /* NULL: a port without settings */
    uint32_t n_ports;           /* with settings */
    struct rt_timers timers;    /* of ports that have something due */
    uint64_t clock_ns;          /* how far its time has come */
    struct rt_pool pool;
    struct rt_fifo copies;      /* packets that the egress asked for, waiting for their turn */
    int past_queues;            /* the in-memory door: no queue and no cable, whatever is set */
};

/* What Python reads of passing packets. */
struct rt_observers {
    struct rt_stats stats;
    struct rt_digests digests;
    struct rt_trace trace;
};

/* The event loop's part, for it to use (event_loop.c, ports.c). */
struct rt_attachment {
    struct rt_port *ports[RT_PORTS]; /* changed with loop and device locked */
    struct rt_timer timer;      /* in the event loop's heap; guarded by its lock */
};

struct rt_device {
    struct p4rt_device pub;     /* first: programs see this part */
    struct rt_lock lock;        /* held around programs and every change of state */
    uint32_t id;
    uint64_t started_ns;        /* CLOCK_MONOTONIC at load */
    uint64_t down[RT_PORTS / 64]; /* bit set: the port is down for watchers */
    struct rt_random random;
    struct rt_pipeline pipeline;
    struct rt_replication_maps replication;
    struct rt_traffic_manager traffic;
    struct rt_observers observers;
    struct rt_attachment attached;
    struct rt_collected *collected; /* under a virtual clock (virtual_clock.c): what came out; else NULL */
};

/* tables.c: called with the device locked; `place` is where a list keeps the entry */
int rt_tables_create(struct rt_device *dev);
void rt_tables_destroy(struct rt_device *dev);
struct rt_entry *rt_entry_at(struct rt_device *dev, uint32_t index, const uint8_t *key, const uint8_t *aux,
                             int32_t priority, uint32_t *place);
struct rt_entry *rt_entry_insert(struct rt_device *dev, uint32_t index, const uint8_t *key, const uint8_t *aux,
                                 int32_t priority, enum rt_kind kind, uint32_t ref, const uint8_t *params, int *error);
int rt_entry_act(struct rt_device *dev, uint32_t index, struct rt_entry *entry, enum rt_kind kind, uint32_t ref,
                 const uint8_t *params);
void rt_entry_delete(struct rt_device *dev, uint32_t index, struct rt_entry *entry, uint32_t place);
int rt_default_reset(struct rt_device *dev, uint32_t index);

/* profiles.c: called with the device locked */
struct rt_group *rt_set_make(struct rt_device *dev, uint32_t profile, const struct rt_group *instead, uint32_t n,
                             const uint8_t *blob, int *error);
void rt_set_free(struct rt_device *dev, uint32_t profile, struct rt_group *set);
size_t rt_set_bytes(const struct p4_program *p, const struct rt_group *set);
uint8_t *rt_set_put(const struct p4_program *p, const struct rt_group *set, uint8_t *out);
void rt_profiles_destroy(struct rt_device *dev);
void rt_groups_refresh(struct rt_device *dev, int32_t port); /* -1: all */
struct rt_member *rt_member_find(struct rt_device *dev, uint32_t profile, uint32_t id);
struct rt_group *rt_group_find(struct rt_device *dev, uint32_t profile, uint32_t id);

/* hashes.c */
extern const struct p4rt_ops rt_ops;
void rt_random_seed(struct rt_random *random);

/* digests.c: called with the device locked */
void rt_digest(struct p4rt_device *dev, uint32_t digest, const uint8_t *data, uint32_t len);
void rt_digests_forget(struct rt_digests *all);

/* profiles.c: things by id */
void *rt_map_find(const struct rt_map *map, uint32_t id);
int rt_map_put(struct rt_map *map, uint32_t id, void *thing);
void rt_map_take(struct rt_map *map, uint32_t id);

/* meters.c: called with the device locked */
uint32_t rt_meter(struct p4rt_device *dev, struct p4rt_meter_cell *cell, uint32_t bytes, const struct p4rt_packet *pkt);

/* entries.c: an entry as programs see it, or NULL; key NULL: the default entry */
struct p4rt_entry *rt_entry_find(struct rt_device *dev, uint32_t index, const uint8_t *key, const uint8_t *aux,
                                 int32_t priority);

/* trace.c */
void rt_trace(struct p4rt_device *dev, const struct p4rt_packet *pkt, enum p4rt_event event, const char *name,
              const char *where, const void *data, uint32_t len);

/* device.c */
void rt_port_state(struct rt_device *dev, uint32_t port, int up); /* takes the lock */
uint64_t rt_now_ns(void);

/* virtual_clock.c */
void rt_virtual_destroy(struct rt_device *dev);

/* What time it is for a device: the virtual clock's when it has one. */
static inline uint64_t rt_device_now(const struct rt_device *dev)
{
    return dev->collected ? dev->traffic.clock_ns : rt_now_ns();
}

/* Microseconds since the program was loaded; 0 for a frame that came before. */
static inline uint64_t rt_micros(const struct rt_device *dev, uint64_t now_ns)
{
    return now_ns > dev->started_ns ? (now_ns - dev->started_ns) / 1000 : 0;
}

static inline uint64_t rt_splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline int rt_port_is_down(const struct rt_device *dev, int32_t port)
{
    return port >= 0 && port < RT_PORTS && (dev->down[port / 64] >> (port % 64) & 1);
}

#endif
