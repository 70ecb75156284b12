// Not for BMv2: a table applied in two places that come together makes a circle in what p4c writes for BMv2.
// Functions, evaluation order, lookahead of headers, structs as values, {#}, `_` as an argument, defaults.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> op; bit<8> a; bit<8> b; bit<8> c; }
header pair_t { bit<4> x; bit<12> y; }
struct pair_s { bit<8> first; bit<8> second; }
struct headers_t { op_t op; pair_t pair; }
struct metadata_t { pair_s s; bit<8> seen; bit<12> y; }

bit<8> max(in bit<8> a, in bit<8> b) {
    if (a > b) {
        return a;
    }
    return b;
}
bit<8> max(in bit<8> a, in bit<8> b, in bit<8> c) { return max(max(a, b), c); }
bit<8> bump(inout bit<8> x) { x = x + 1; return x; }
pair_s swap(in pair_s p) { return { p.second, p.first }; }
void clear(inout op_t h, out bit<8> was) { was = h.a; h.a = 0; }
bool yes(inout bit<8> n) { n = n + 1; return true; }
pair_t made(in bit<4> x) {
    pair_t p = { x, 0xabc };
    return p;
}
bit<8> with_default(in bit<8> a, in bit<8> b = 7) { return a + b; }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        meta.seen = b.lookahead<op_t>().c;
        b.extract(hdr.op);
        transition select(hdr.op.op) {
            0x20    : look;
            0x21    : skip;
            default : accept;
        }
    }
    state look {
        pair_t p = b.lookahead<pair_t>();
        meta.y = p.y;
        meta.s = b.lookahead<pair_s>();
        transition accept;
    }
    state skip { b.extract<pair_t>(_); b.extract(hdr.pair); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action set(out bit<8> x, in bit<8> v) { x = v; }
    table t { key = { hdr.op.a : exact; } actions = { NoAction; } const entries = { 5 : NoAction(); } }
    apply {
        std.egress_spec = 1;
        if (hdr.op.op == 1) {
            hdr.op.a = max(hdr.op.a, hdr.op.b);
        } else if (hdr.op.op == 2) {
            hdr.op.a = max(hdr.op.a, hdr.op.b, hdr.op.c);
        } else if (hdr.op.op == 3) {
            hdr.op.b = hdr.op.a + bump(hdr.op.a);          // a as it was before the call
        } else if (hdr.op.op == 4) {
            meta.s = { hdr.op.a, hdr.op.b };
            meta.s = swap(swap(swap(meta.s)));
            hdr.op.a = meta.s.first;
            hdr.op.b = swap(meta.s).first;
        } else if (hdr.op.op == 5) {
            clear(hdr.op, hdr.op.c);
        } else if (hdr.op.op == 6) {
            if (hdr.op.a == 1 && yes(hdr.op.b) || yes(hdr.op.c)) { hdr.op.op = 0x66; }
        } else if (hdr.op.op == 7) {
            bit<8> n = 0;
            hdr.op.c = hdr.op.a == 0 ? bump(n) : max(hdr.op.a, 3);
            hdr.op.b = n;
        } else if (hdr.op.op == 8) {
            hdr.pair = made((bit<4>) hdr.op.a);
        } else if (hdr.op.op == 9) {
            hdr.op = {#};
        } else if (hdr.op.op == 10) {
            set(_, 3);
            hdr.op.a = with_default(1);
            hdr.op.b = with_default(1, 2);
            hdr.op.c = with_default(b = 5, a = 3);
        } else if (hdr.op.op == 11) {
            hdr.op.b = t.apply().hit ? 8w1 : 2;
            hdr.op.c = !t.apply().miss && hdr.op.a == 5 ? 8w1 : 2;
        } else if (hdr.op.op == 12) {
            pair_s p = hdr.op.a == 1 ? (pair_s){ 3, 4 } : meta.s;
            hdr.op.b = p.first;
            hdr.op.c = p == { 3, 4 } ? 8w1 : 2;
        } else if (hdr.op.op == 13) {
            hdr.op.a = max(bump(hdr.op.b), hdr.op.b) + bump(hdr.op.b);
        } else if (hdr.op.op == 14) {
            set(hdr.op.b, t.apply().hit ? 8w1 : 2);        // a table in an argument: applied before the action runs
        } else if (hdr.op.op == 0x20) {
            hdr.op.a = meta.seen;
            hdr.op.b = meta.s.second;
            hdr.op.c = (bit<8>) meta.y;
        } else if (hdr.op.op == 0x21) {
            hdr.op.a = (bit<8>) hdr.pair.x;
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
