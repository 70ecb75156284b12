// For tests of the traffic manager: the frame says where it goes and in which priority, egress writes down its queue.

#include <core.p4>
#include <v1model.p4>

header order_t {
    bit<16> port;
    bit<8>  priority;
    bit<8>  egress_drops;      // 1: egress drops it
    bit<16> cut;               // not 0: ingress truncates to so many bytes
    bit<16> number;
}

header seen_t {
    bit<64> ingress_us;
    bit<32> enq_us;
    bit<32> enq_depth;
    bit<32> waited_us;
    bit<32> deq_depth;
    bit<64> egress_us;
}

struct headers_t {
    order_t order;
    seen_t  seen;
}

struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.order);
        packet.extract(hdr.seen);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply { } }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = hdr.order.port[8:0];
        sm.priority = hdr.order.priority[2:0];
        hdr.seen.ingress_us = (bit<64>) sm.ingress_global_timestamp;
        if (hdr.order.cut != 0) {
            truncate((bit<32>) hdr.order.cut);
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    @name("left")
    counter(512, CounterType.packets) left;

    apply {
        hdr.seen.enq_us = sm.enq_timestamp;
        hdr.seen.enq_depth = (bit<32>) sm.enq_qdepth;
        hdr.seen.waited_us = sm.deq_timedelta;
        hdr.seen.deq_depth = (bit<32>) sm.deq_qdepth;
        hdr.seen.egress_us = (bit<64>) sm.egress_global_timestamp;
        left.count((bit<32>) sm.egress_port);
        if (hdr.order.egress_drops == 1) {
            mark_to_drop(sm);
        }
    }
}

control C(inout headers_t hdr, inout metadata_t meta) { apply { } }

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.order);
        packet.emit(hdr.seen);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
