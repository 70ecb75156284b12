// Each switch pushes its number and the depth of the queue onto a stack behind the IPv4 header, at the egress.
#include <core.p4>
#include <v1model.p4>

const bit<8> PROTOCOL_TRACE = 0xfd;

header ethernet_t { bit<48> dst; bit<48> src; bit<16> kind; }
header ipv4_t {
    bit<8>  version_ihl;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<16> total_len;
    bit<32> id_frag;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}
header trace_t { bit<8> count; bit<8> next; }
header hop_t { bit<16> number; bit<16> depth; }

struct parser_metadata { bit<8> left; }
struct metadata { parser_metadata parsing; }
struct headers { ethernet_t ethernet; ipv4_t ipv4; trace_t trace; hop_t[3] hops; }

error { TooManyHops }

parser P(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) { 0x800: ipv4; _: accept; }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.protocol) { PROTOCOL_TRACE: trace; default: accept; }
    }
    state trace {
        packet.extract(hdr.trace);
        verify(hdr.trace.count <= 3, error.TooManyHops);
        meta.parsing.left = hdr.trace.count;
        transition select(hdr.trace.count) { 0: accept; default: hop; }
    }
    state hop {
        packet.extract(hdr.hops.next);
        meta.parsing.left = meta.parsing.left - 1;
        transition select(meta.parsing.left) { 0: accept; default: hop; }
    }
}

control V(inout headers hdr, inout metadata meta) { apply { } }

control I(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    action forward(bit<9> port) { std.egress_spec = port; }
    table to { key = { hdr.ipv4.dst : exact; } actions = { forward; NoAction; } default_action = NoAction(); }
    apply {
        if (std.parser_error == error.NoError && to.apply().hit) {
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        } else {
            mark_to_drop(std);
        }
    }
}

control E(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    action add_hop(bit<16> number) {
        hdr.trace.count = hdr.trace.count + 1;
        hdr.hops.push_front(1);
        hdr.hops[0].setValid();
        hdr.hops[0].number = number;
        hdr.hops[0].depth = (bit<16>) std.deq_qdepth;
        hdr.ipv4.total_len = hdr.ipv4.total_len + 4;
    }
    table who { actions = { add_hop; NoAction; } default_action = NoAction(); }
    apply {
        if (std.enq_qdepth >= 2 && (hdr.ipv4.ecn == 1 || hdr.ipv4.ecn == 2)) {
            hdr.ipv4.ecn = 3;
        }
        if (hdr.trace.isValid()) {
            who.apply();
        }
    }
}

control C(inout headers hdr, inout metadata meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version_ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.id_frag, hdr.ipv4.ttl,
              hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control D(packet_out packet, in headers hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.trace);
        packet.emit(hdr.hops);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
