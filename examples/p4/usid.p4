// Skeleton of the exercise "uN and uA". `pytest -p mrc_testbed.testing test_usid.py` says what is missing.
//
// The destination of a packet is a list of micro segments (uSID): 32 bits of locator, then 16 bits for each switch.
// A switch takes its own uSID off the list. uN: the next one says where to go. uA: one's own says by which port.

#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> kind; }
header ipv6_t {
    bit<32> version_class_label; bit<16> payload_len; bit<8> next_header; bit<8> hop_limit;
    bit<128> src; bit<128> dst;
}
struct headers_t { ethernet_t ethernet; ipv6_t ipv6; }
struct metadata_t { bit<1> is_routed; }

parser Headers(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) { 0x86dd: ipv6; default: accept; }
    }
    state ipv6 { packet.extract(hdr.ipv6); transition accept; }
}
control NoCheck(inout headers_t hdr, inout metadata_t meta) { apply { } }

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() { mark_to_drop(std); }

    // TODO 1: keep the locator (bits 127 to 96), move bits 79 to 0 up by 16, and fill up with zeros.
    action un() { }

    // TODO 2: the same; the packet leaves by this port (meta.is_routed = 1: usid_next is not asked).
    action ua(bit<9> port) { }

    // The switch's own uSIDs, with the locator.
    table my_usid {
        key = { hdr.ipv6.dst[127:80] : exact @name("locator_usid"); }
        actions = { un; ua; drop; }
        default_action = drop();
    }

    action forward(bit<9> port) { std.egress_spec = port; }

    // Those of the neighbours.
    table usid_next {
        key = { hdr.ipv6.dst[127:80] : exact @name("locator_usid"); }
        actions = { forward; drop; }
        default_action = drop();
    }

    apply {
        if (!hdr.ipv6.isValid()) { drop(); return; }
        // TODO 3: a packet whose hop limit is 0 or 1 ends here; any other leaves with one less.
        if (my_usid.apply().hit && meta.is_routed == 0) {
            usid_next.apply();
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control Checksum(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Emit(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); packet.emit(hdr.ipv6); } }

V1Switch(Headers(), NoCheck(), MyIngress(), MyEgress(), Checksum(), Emit()) main;
