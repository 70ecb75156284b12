// Skeleton of the exercise "ECN threshold". `pytest -p mrc_testbed.testing test_ecn.py` says what is missing.
//
// A switch marks packets as soon as a queue grows, so that senders slow down before it is full. Two thresholds make a
// ramp: nothing below the first, everything from the second on, and in between the more, the longer the queue.

struct metadata_t { }

#include "ipv4.p4"

const bit<19> MARK_FROM = 4;          // packets that still wait when a packet leaves
const bit<19> MARK_ALL = 12;
const bit<2>  NOT_ECT = 0;            // the sender does not know ECN: never mark
const bit<2>  CE = 3;

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() { mark_to_drop(std); }
    action to_port(port_t port) { std.egress_spec = port; }
    table route {
        key = { hdr.ipv4.dst : lpm; }
        actions = { to_port; drop; }
        default_action = drop();
    }
    apply { route.apply(); }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        // TODO 1: where the sender knows ECN and std.deq_qdepth is MARK_ALL or more, set hdr.ipv4.ecn to CE.
        // TODO 2: from MARK_FROM on, mark with a probability that grows to 1 at MARK_ALL (random).
    }
}

V1Switch(Headers(), NoCheck(), MyIngress(), MyEgress(), Checksum(), Emit()) main;
