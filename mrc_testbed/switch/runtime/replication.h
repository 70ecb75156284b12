/* Where copies of a packet go: multicast groups and clone sessions. */
#ifndef RT_REPLICATION_H
#define RT_REPLICATION_H

#include "runtime.h"

struct rt_replica {             /* as mrc_testbed/switch/device/native.py writes it */
    uint32_t port, rid;
};

struct rt_replication {
    uint32_t group;             /* of a session: multicast group that gets the copies too; 0: none */
    uint32_t priority;          /* of a session: class of service */
    uint32_t truncate;          /* of a session: longest copy, bytes; 0: whole packets */
    uint32_t n;
    struct rt_replica replicas[];
};

/* Called with the device locked. */
void rt_replication_forget(struct rt_replication_maps *maps);

#endif
