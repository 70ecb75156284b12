// Not for BMv2: a table applied in two places goes on from both alike in BMv2; here it does not ("multiple successors").
// Control flow: each row of `which` tries one thing and leaves what happened in the header.
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> which; bit<8> x; bit<8> y; bit<8> trace; bit<16> wide; }
struct headers_t { data_t data; data_t second; }
struct metadata_t { bit<8> left; data_t spare; }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { b.extract(hdr.data); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }

control AddTwice(inout bit<8> a, in bit<8> b)(bit<8> extra) {
    bit<8> sum = a + b;
    action again() { sum = sum + b; }
    apply {
        again();
        a = sum + extra;
        if (a == 99) { return; }
        a = a + 1;
    }
}

control Swapper(inout headers_t hdr, inout data_t first) {
    apply {
        // Called with overlapping arguments: what is written through one name must not show through the other.
        hdr.data.x = 1;
        first.y = hdr.data.x + first.x;
    }
}

control Leaver(in bit<8> x) {
    apply { if (x == 7) { exit; } }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    AddTwice(10) ten;
    AddTwice(extra = 20) twenty;
    Swapper() swapper;
    Leaver() leaver;
    bit<8> local = 5;

    action mark(bit<8> value) { hdr.data.trace = value; }
    action mark_default() { hdr.data.trace = 0xDD; }
    action leave() { hdr.data.trace = 0xEE; exit; }
    action directed(in bit<8> i, inout bit<8> io, out bit<8> o) {
        io = io + i;
        o = io + local;
        local = 0;
    }
    action early() {
        hdr.data.trace = 1;
        if (hdr.data.x == 1) { return; }
        hdr.data.trace = 2;
    }

    table by_x {
        key = { hdr.data.x : exact; }
        actions = { mark; leave; mark_default; }
        default_action = mark_default();
    }
    table by_y {
        key = { hdr.data.y : exact; }
        actions = { mark; leave; @defaultonly NoAction; }
    }

    apply {
        std.egress_spec = 1;
        switch (hdr.data.which) {
            1: { if (by_x.apply().hit) { hdr.data.wide = 1; } else { hdr.data.wide = 2; } }
            2: { if (!by_y.apply().miss) { hdr.data.wide = 1; } else { hdr.data.wide = 2; } }
            3: {
                switch (by_x.apply().action_run) {
                    mark: { hdr.data.wide = 3; }
                    leave:
                    mark_default: { hdr.data.wide = 4; }
                }
                hdr.data.y = 0x77;
            }
            4: { directed(hdr.data.x, hdr.data.y, hdr.data.trace); hdr.data.wide = (bit<16>) local; }
            5: { early(); hdr.data.wide = 9; }
            6: { ten.apply(hdr.data.x, hdr.data.y); }
            7: { twenty.apply(hdr.data.x, 3); }
            8: { swapper.apply(hdr, hdr.data); }
            9: { leaver.apply(hdr.data.x); hdr.data.trace = 0xAA; }
            10:
            11: { hdr.data.trace = 0x10; }
            12: { directed(1, hdr.data.wide[7:0], hdr.data.wide[15:8]); }
            13: { ten.apply(hdr.data.wide[11:4], 1); }
            14: {
                hdr.second = hdr.data;
                hdr.second.x = hdr.second.x + 1;
                meta.spare = { 1, 2, 3, 4, 5 };
                hdr.data.y = meta.spare.y + (bit<8>)meta.left;
            }
            15: {
                data_t mine;
                mine.setValid();
                mine.x = 0x42;
                if (mine.isValid() && !hdr.second.isValid()) { hdr.data = mine; }
            }
            16: { hdr.data = { y = hdr.data.x, x = hdr.data.y, which = 16, trace = 0, wide = 0 }; }
            17: { bit<8> local = local + 1; hdr.data.trace = local; { bit<8> local = 1; hdr.data.y = local; } }
            18: { hdr.second.setValid(); }
            19: { hdr.data.setInvalid(); }
            20: { hdr.second = hdr.data; if (hdr.second == hdr.data) { hdr.second.x = 0; } if (hdr.second != hdr.data) { hdr.data.y = 1; } }
            default: { hdr.data.trace = 0xFF; }
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
