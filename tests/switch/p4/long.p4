// Not for BMv2: p4c divides only what is known when it compiles; PI has no value sets.
// Numbers of more than 128 bits where the control plane meets them: keys of every kind, parameters, entries, select,
// value_sets, digests; and numbers that are not whole bytes.
#include <core.p4>
#include <v1model.p4>

enum bit<136> tag_t { none = 0, first = 1 << 128 }
header data_t { bit<8> op; bit<3> pre; bit<200> w; bit<5> post; }
struct headers_t { data_t data; }
struct metadata_t { bit<200> kept; bit<8> way; }
struct seen_t { bit<200> w; bit<8> op; }

bit<200> twice(inout bit<200> x) {
    x = x + x;
    return x;
}

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    value_set<bit<200>>(4) known;
    state start {
        b.extract(hdr.data);
        transition select(hdr.data.w) {
            200w7 << 192                    : seven;
            0xabcd << 100 &&& 0xffff << 100 : masked;
            1 << 150 .. 2 << 150            : between;
            known                           : in_set;
            _                               : accept;
        }
    }
    state seven { meta.way = 7; transition accept; }
    state masked { meta.way = 8; transition accept; }
    state between { meta.way = 9; transition accept; }
    state in_set { meta.way = 10; transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action set(bit<200> w, bit<5> post) { hdr.data.w = w; hdr.data.post = post; }
    table exactly {
        key = { hdr.data.w : exact; hdr.data.pre : exact; twice(meta.kept) : exact @name("kept"); }
        actions = { set; NoAction; }
        const entries = { (1 << 199, 0, 0) : set((1 << 199) - 1, 3); }
    }
    table longest { key = { hdr.data.w : lpm; } actions = { set; NoAction; } }
    table ternary_one { key = { hdr.data.w : ternary; hdr.data.pre : optional; } actions = { set; NoAction; } }
    table ranged { key = { hdr.data.w : range; } actions = { set; NoAction; } }
    apply {
        std.egress_spec = 1;
        if (hdr.data.op == 0) {
            hdr.data.op = meta.way;
        } else if (hdr.data.op == 1) {
            exactly.apply();
        } else if (hdr.data.op == 2) {
            longest.apply();
        } else if (hdr.data.op == 3) {
            ternary_one.apply();
        } else if (hdr.data.op == 4) {
            ranged.apply();
        } else if (hdr.data.op == 5) {
            digest<seen_t>(1, { hdr.data.w - 1, hdr.data.op });
        } else if (hdr.data.op == 6) {
            hdr.data.w = hdr.data.w - twice(hdr.data.w) * 3;
            tag_t tag = (tag_t)hdr.data.w[135:0];
            hdr.data.post = tag == tag_t.first ? 5w1 : (tag == tag_t.none ? 5w2 : 3);
        } else if (hdr.data.op == 7) {
            hdr.data.w[199:60] = hdr.data.w[139:0] / 10;
        } else if (hdr.data.op == 8) {
            switch (hdr.data.w) {
                1            : { hdr.data.post = 1; }
                1 << 199     :
                2            : { hdr.data.post = 2; }
                default      : { hdr.data.post = 3; }
            }
            switch (hdr.data.w[99:0]) {
                5            : { hdr.data.pre = 5; }
            }
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
