// Not for BMv2: p4c's back end has no packet_in.length().
// Parser: masks, ranges, tuples, verify, lookahead, advance, loops, errors of our own.
#include <core.p4>
#include <v1model.p4>

error { BadMagic, Tired }
header kind_t { bit<8> kind; }
header pair_t { bit<8> a; bit<8> b; }
header tail_t { bit<12> x; bit<20> y; }
header out_t { bit<8> error_number; bit<8> path; bit<32> seen; }
struct headers_t { kind_t kind; pair_t pair; tail_t tail; out_t result; }
struct metadata_t { bit<8> path; bit<8> count; bit<32> seen; }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    bit<8> loops = 0;
    state start {
        b.extract(hdr.kind);
        transition select(hdr.kind.kind) {
            0x10 &&& 0xF0: masked;
            0x20 .. 0x2F: ranged;
            0x30: pairs;
            0x40: looking;
            0x50: checked;
            0x60: loop;
            0x61: endless;
            0x70: skipping;
            0x80: tails;
            0x90: accept;
            0x91: reject;
        }
    }
    state masked { meta.path = 1; transition accept; }
    state ranged { meta.path = 2; transition accept; }
    state pairs {
        b.extract(hdr.pair);
        transition select(hdr.pair.a, hdr.pair.b) {
            (1, 2): first;
            (1, _): second;
            (3 .. 5, 0x80 &&& 0x80): third;
            (_, 9): first;
            default: fourth;
        }
    }
    state first { meta.path = 11; transition accept; }
    state second { meta.path = 12; transition accept; }
    state third { meta.path = 13; transition accept; }
    state fourth { meta.path = 14; transition accept; }
    state looking {
        meta.seen = (bit<32>) b.lookahead<bit<24>>();
        transition select(b.lookahead<bit<4>>()) {
            0xA: looked;
            default: accept;
        }
    }
    state looked { b.extract(hdr.pair); meta.path = 20; transition accept; }
    state checked {
        b.extract(hdr.pair);
        verify(hdr.pair.a == 0x55, error.BadMagic);
        meta.path = 30;
        transition accept;
    }
    state loop {
        loops = loops + 1;
        b.extract(hdr.kind);
        meta.count = loops;
        transition select(hdr.kind.kind) {
            0: accept;
            default: loop;
        }
    }
    state endless { transition endless; }
    state skipping {
        b.advance(16);
        b.extract(hdr.pair);
        b.advance((bit<32>) hdr.pair.a * 8);
        meta.seen = b.length();
        transition accept;
    }
    state tails {
        b.extract(hdr.tail);
        meta.seen = (bit<32>) hdr.tail.x << 20 | (bit<32>) hdr.tail.y;
        transition accept;
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        hdr.result.setValid();
        hdr.result.path = meta.path + meta.count;
        hdr.result.seen = meta.seen;
        if (std.parser_error == error.NoError) { hdr.result.error_number = 0; }
        else if (std.parser_error == error.PacketTooShort) { hdr.result.error_number = 1; }
        else if (std.parser_error == error.NoMatch) { hdr.result.error_number = 2; }
        else if (std.parser_error == error.BadMagic) { hdr.result.error_number = 3; }
        else if (std.parser_error == error.ParserTimeout) { hdr.result.error_number = 4; }
        else { hdr.result.error_number = 5; }
        hdr.kind.setInvalid();
        hdr.pair.setInvalid();
        hdr.tail.y = 0x12345;
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr.result); b.emit(hdr.tail); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
