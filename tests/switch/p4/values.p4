// Not for BMv2: p4c knows no `for` over values in a list, only over ranges, header stacks and lists known when it compiles.
// Tuples, lists, `...`, structs in headers, slices of slices, compound assignment, loops, actions with inout in tables.
#include <core.p4>
#include <v1model.p4>

struct half_t { bit<4> x; bit<4> y; }
header data_t { bit<8> op; bit<8> a; bit<8> b; half_t h; bit<16> w; }
header small_t { bit<8> v; }
enum kind_t { FIRST, SECOND }
struct many_t { bit<8> a; bool b; kind_t k; half_t h; small_t s; }
struct headers_t { data_t data; small_t[3] list; }
struct metadata_t { tuple<bit<8>, bit<16>> t; }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.data);
        transition select(hdr.data.h.x, hdr.data.op) {
            (1, _)         : one;
            (2 .. 3, 0x20) : three;
            default        : accept;
        }
    }
    state one { b.extract(hdr.list.next); transition accept; }
    state three { b.extract(hdr.list.next); b.extract(hdr.list.next); b.extract(hdr.list.next); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action both(inout bit<8> x, in bit<8> y, bit<8> z) { x = x + y + z; }
    table t {
        key = { hdr.data.op : exact; }
        actions = { both(hdr.data.a, hdr.data.b); }
        const entries = { 6 : both(hdr.data.a, hdr.data.b, 100); }
    }
    apply {
        std.egress_spec = 1;
        if (hdr.data.op == 1) {
            meta.t = { hdr.data.a, hdr.data.w };
            tuple<bit<8>, bit<16>> other = meta.t;
            hdr.data.b = other[0] + (other == meta.t ? 8w1 : 0);
            hdr.data.w = other[1] + 1;
        } else if (hdr.data.op == 2) {
            hdr.data.b = { hdr.data.a, hdr.data.b } == { 8w1, 8w2 } ? 8w0x77 : 0x66;
        } else if (hdr.data.op == 3) {
            many_t m = { 5, ... };
            hdr.data.a = m.a + (m.b ? 8w1 : 0) + (m.k == kind_t.FIRST ? 8w16 : 0) + (bit<8>) m.h.y +
                         (m.s.isValid() ? 8w1 : 0);
        } else if (hdr.data.op == 4) {
            hdr.data.h.x = hdr.data.h.y + 1;
            hdr.data.h = { hdr.data.h.y, hdr.data.h.x };
        } else if (hdr.data.op == 5) {
            hdr.data.w[11:4][5:2] = 4w0xf;
            hdr.data.a += 3;
            hdr.data.b <<= 1;
            hdr.data.h.x |= 8;
        } else if (hdr.data.op == 6) {
            t.apply();
        } else if (hdr.data.op == 7) {
            for (bit<8> i = 0, bit<8> j = 10; i < j; i += 1, j -= 1) {
                if (i == 1) { continue; }
                if (i == 4) { break; }
                hdr.data.a += i;
            }
        } else if (hdr.data.op == 8) {
            for (bit<8> i in 250 .. 255) { hdr.data.a += 1; hdr.data.b = i; }
            for (bit<8> i in 9 .. 3) { hdr.data.a = 0; }
        } else if (hdr.data.op == 9) {
            for (bit<8> i = 0; i < 8; i = i + 0) { hdr.data.w = hdr.data.w + 1; }     // ends all the same
        } else if (hdr.data.op == 0x20) {
            for (small_t s in hdr.list) {
                if (s.v == 2) { continue; }
                hdr.data.a += s.v;
            }
            for (bit<8> n in { 8w1, hdr.data.a, 8w3 }) { hdr.data.b += n; }
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) {
    small_t trailer;
    apply {
        b.emit(hdr.data);
        for (small_t s in hdr.list) { b.emit(s); }
        if (hdr.data.op == 0xf0) {
            trailer = { 0x99 };
            b.emit(trailer);
        }
    }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
