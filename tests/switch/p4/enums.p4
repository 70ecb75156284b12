// Not for BMv2: p4c 1.2.5 ends with a bug of its own ("Type_Name is not a canonical type").
// Serializable enums: of int, of a typedef, wider than 32 bits, with equal members, in keys, selects, registers,
// arithmetic and casts of numbers that no member has; entries with p4c's older @priority.
#include <core.p4>
#include <v1model.p4>

typedef bit<8> byte_t;
enum int<8> sign_t { NEG = -3, ONE = 1 }
enum byte_t kind_t { A = 1, ALIAS = 1, C = 7 }
enum bit<48> mac_t { NONE = 0, ALL = 0xffffffffffff, SOME = 48w1 << 40 }
header data_t { sign_t sign; kind_t kind; mac_t mac; bit<16> key; bit<8> sum; }
struct headers_t { data_t data; }
struct metadata_t { }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.data);
        transition select(hdr.data.sign, hdr.data.kind) {
            (sign_t.NEG, kind_t.ALIAS) : accept;
            (sign_t.ONE, _)            : accept;
            (_, (kind_t) 8w9)          : accept;
            default                    : other;
        }
    }
    state other { hdr.data.sum = 0x20; transition accept; }
}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<kind_t>(1) last;
    action add(bit<8> n) { hdr.data.sum = hdr.data.sum + n; }
    action mark(bit<8> n) { hdr.data.sum[7:6] = n[1:0]; }
    table by_key {
        key = { hdr.data.key : ternary; }
        actions = { mark; }
        const default_action = mark(0);
        const entries = {
            0x0001 &&& 0x000f : mark(1) @priority(3);
            0x1001            : mark(2);
            0x1001 &&& 0xf00f : mark(3) @priority(1);
        }
    }
    table by_kind {
        key = { hdr.data.kind : exact; (bit<48>) hdr.data.mac : ternary @name("hdr.data.mac"); }
        actions = { add; }
        const entries = {
            (kind_t.A, (bit<48>) mac_t.ALL)                               : add(4);
            (kind_t.C, ((bit<48>) mac_t.SOME) &&& 0xff0000000000) : add(8);
        }
    }
    apply {
        kind_t before;
        last.read(before, 0);
        last.write(0, hdr.data.kind);
        if (kind_t.A == kind_t.ALIAS && hdr.data.kind == kind_t.ALIAS) {
            hdr.data.sum = hdr.data.sum + 1;
        }
        if (hdr.data.sign < sign_t.ONE) {
            hdr.data.sum = hdr.data.sum + 2;
        }
        by_kind.apply();
        by_key.apply();
        hdr.data.mac = hdr.data.mac == mac_t.SOME ? mac_t.ALL : (mac_t) (hdr.data.mac + 1);
        hdr.data.kind = (kind_t) (before + kind_t.C);
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
