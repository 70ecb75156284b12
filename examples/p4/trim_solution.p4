// Solution of the exercise "trim instead of drop".
//
// A full queue drops packets, and the receiver learns of it by a timeout. A switch that trims sends the headers on, ahead
// of the queue: the receiver learns at once what is missing.

struct metadata_t { bit<1> in_data_queue; }

#include "ipv4.p4"

const bit<19> TRIM_AT = 8;            // packets that wait at a port
const bit<32> TRIMMED_BYTES = 42;     // Ethernet, IPv4 and UDP headers
const bit<3>  HEADERS_PRIORITY = 7;   // served before data, which has 0
const bit<6>  TRIMMED_DSCP = 12;

register<bit<19>>(512) depth;         // by port: packets let in and not sent, as the egress last saw it

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() { mark_to_drop(std); }
    action to_port(port_t port) { std.egress_spec = port; }
    table route {
        key = { hdr.ipv4.dst : lpm; }
        actions = { to_port; drop; }
        default_action = drop();
    }

    apply {
        route.apply();
        if (std.egress_spec == 511) { return; }
        bit<19> waiting;
        depth.read(waiting, (bit<32>) std.egress_spec);
        if (waiting >= TRIM_AT) {
            truncate(TRIMMED_BYTES);
            std.priority = HEADERS_PRIORITY;
            hdr.ipv4.dscp = TRIMMED_DSCP;
        } else {
            meta.in_data_queue = 1;
            depth.write((bit<32>) std.egress_spec, waiting + 1);
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (meta.in_data_queue == 1) { depth.write((bit<32>) std.egress_port, std.deq_qdepth); }
    }
}

V1Switch(Headers(), NoCheck(), MyIngress(), MyEgress(), Checksum(), Emit()) main;
