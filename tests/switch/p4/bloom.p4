// A stateful firewall: connections begun inside are remembered in a Bloom filter of two hashes.
#include <core.p4>
#include <v1model.p4>

const bit<32> CELLS = 4096;

header ethernet_t { bit<48> dst; bit<48> src; bit<16> kind; }
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> tos; bit<16> total_len; bit<32> id_frag; bit<8> ttl; bit<8> protocol;
    bit<16> checksum; bit<32> src; bit<32> dst;
}
header tcp_t {
    bit<16> src_port; bit<16> dst_port; bit<32> seq; bit<32> ack; bit<4> offset; bit<4> res; bit<2> ecn;
    bit<1> urg; bit<1> ack_flag; bit<1> psh; bit<1> rst; bit<1> syn; bit<1> fin; bit<16> window; bit<16> sum; bit<16> up;
}

struct headers { ethernet_t ethernet; ipv4_t ipv4; tcp_t tcp; }
struct metadata { }

parser P(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) { 0x800: ipv4; default: reject; }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.protocol) { (5, 6): tcp; default: accept; }
    }
    state tcp { packet.extract(hdr.tcp); transition accept; }
}

control V(inout headers hdr, inout metadata meta) { apply { } }

control I(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    register<bit<1>>(CELLS) first;
    register<bit<1>>(CELLS) second;
    counter(2, CounterType.packets) refused;
    bit<32> at_first;
    bit<32> at_second;
    bit<1> inside = 0;

    action drop() { mark_to_drop(std); }
    action forward(bit<9> port) { std.egress_spec = port; }
    action from_inside(bit<1> yes) { inside = yes; }

    action places(bit<32> a, bit<32> b, bit<16> p, bit<16> q) {
        hash(at_first, HashAlgorithm.crc16, 32w0, { a, b, p, q, hdr.ipv4.protocol }, CELLS);
        hash(at_second, HashAlgorithm.crc32, 32w0, { a, b, p, q, hdr.ipv4.protocol }, CELLS);
    }

    table route { key = { hdr.ipv4.dst : lpm; } actions = { forward; drop; } default_action = drop(); size = 64; }
    table side { key = { std.ingress_port : exact; std.egress_spec : exact; } actions = { from_inside; NoAction; } }

    apply {
        if (!hdr.ipv4.isValid() || std.parser_error != error.NoError) {
            drop();
            exit;
        }
        route.apply();
        if (hdr.tcp.isValid() && std.egress_spec != 511) {
            if (side.apply().hit) {
                if (inside == 1) {
                    places(hdr.ipv4.src, hdr.ipv4.dst, hdr.tcp.src_port, hdr.tcp.dst_port);
                    if (hdr.tcp.syn == 1) {
                        first.write(at_first, 1);
                        second.write(at_second, 1);
                    }
                } else {
                    places(hdr.ipv4.dst, hdr.ipv4.src, hdr.tcp.dst_port, hdr.tcp.src_port);
                    bit<1> seen_first;
                    bit<1> seen_second;
                    first.read(seen_first, at_first);
                    second.read(seen_second, at_second);
                    if ((seen_first & seen_second) == 0) {
                        refused.count(1);
                        drop();
                    }
                }
            }
        }
    }
}

control E(inout headers hdr, inout metadata meta, inout standard_metadata_t std) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out packet, in headers hdr) {
    apply { packet.emit(hdr.ethernet); packet.emit(hdr.ipv4); packet.emit(hdr.tcp); }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
