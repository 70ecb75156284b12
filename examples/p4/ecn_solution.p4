// Solution of the exercise "ECN threshold".
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
        bit<19> depth = std.deq_qdepth;
        if (hdr.ipv4.isValid() && hdr.ipv4.ecn != NOT_ECT && depth >= MARK_FROM) {
            bit<19> lot;
            random(lot, 0, MARK_ALL - MARK_FROM - 1);
            if (depth >= MARK_ALL || lot < depth - MARK_FROM) {
                hdr.ipv4.ecn = CE;
            }
        }
    }
}

V1Switch(Headers(), NoCheck(), MyIngress(), MyEgress(), Checksum(), Emit()) main;
