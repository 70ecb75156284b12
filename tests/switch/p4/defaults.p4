// Not for BMv2: p4c's back end has no slices of a width at a place known at run time (x[low +: 8]).
// `...`, values for whole stacks, enums with numbers in arithmetic, slices that begin anywhere, standard_metadata as a
// value, and the order in which arguments are evaluated.
#include <core.p4>
#include <v1model.p4>

enum bit<8> kind_t { none = 0, one = 1, nine = 9 }
enum bit<8> other_t { ten = 10 }
enum plain_t { first, second }

header op_t { bit<8> op; bit<8> a; bit<8> b; bit<8> c; bit<32> w; }
header item_t { bit<8> v; }
struct pair_t { bit<8> x; bit<8> y; }
struct deep_t {
    kind_t  kind;
    plain_t plain;
    error   problem;
    bool    flag;
    int<8>  number;
    pair_t  pair;
    item_t  item;
}
struct headers_t { op_t op; item_t[3] items; }
struct metadata_t { }

const bit<8> CAST = (bit<8>)(int)16w300;
const bool TRUTH = (bool)1;
const bool CHECKED = static_assert(CAST == 44, "arithmetic");

bit<8> next(inout bit<8> from) {
    from = from + 1;
    return from;
}

control Swap(inout bit<8> to, in bit<8> by) {
    apply { to = to * 16 + by; }
}

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.op);
        transition accept;
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    Swap() swap;
    apply {
        std.egress_spec = 1;
        static_assert(TRUTH);
        if (hdr.op.op == 1) {
            deep_t deep = { number = -3, pair = { y = 4, ... }, ... };
            hdr.op.a = deep.kind == kind_t.none && deep.plain == plain_t.first && deep.problem == error.NoError
                && !deep.flag && deep.pair.x == 0 && !deep.item.isValid() ? 8w0x80 : 0;
            hdr.op.b = (bit<8>)deep.number;
            hdr.op.c = deep.pair.y;
            deep = ...;
            hdr.op.w = (bit<32>)(bit<8>)deep.number;
        } else if (hdr.op.op == 2) {
            item_t one = { 0x11 };
            hdr.items = { one, { 0x22 }, { v = hdr.op.a } };
        } else if (hdr.op.op == 3) {
            item_t[3] more = { { 0x33 }, ... };
            hdr.items = more;
            hdr.items[1] = { 0x34 };
            hdr.items[0] = ...;
        } else if (hdr.op.op == 4) {
            kind_t kind = (kind_t)hdr.op.a;
            hdr.op.a = kind == 9 ? 8w1 : 2;
            hdr.op.b = kind + other_t.ten;
            hdr.op.c = (bit<8>)(kind_t)(kind_t.one + 8) - kind_t.one;
            hdr.op.w = kind ++ 16w0 ++ other_t.ten;
        } else if (hdr.op.op == 5) {
            bit<8> s = hdr.op.w[hdr.op.a +: 8];
            hdr.op.b = hdr.op.w[8 +: 8];
            hdr.op.w[hdr.op.a +: 4] = 0xf;
            hdr.op.w[28 +: 4] = 0xe;
            hdr.op.c = s;
        } else if (hdr.op.op == 6) {
            standard_metadata_t kept = std;
            std.egress_spec = 5;
            kept.egress_spec = std.egress_spec + 2;
            std = kept;
            if (std == kept && std.ingress_port == 4) {
                std = std;
                hdr.op.a = 0xaa;
            }
        } else if (hdr.op.op == 7) {
            pair_t pair = { y = next(hdr.op.a), x = next(hdr.op.a) };
            hdr.op.b = pair.x;
            hdr.op.c = pair.y;
        } else if (hdr.op.op == 8) {
            swap.apply(hdr.op.a, next(hdr.op.a));
        } else if (hdr.op.op == 9) {
            hdr.items[0].setValid();
            hdr.items[(bit<64>)hdr.op.w << 32].v = 1;
            hdr.items[next(hdr.op.a)].v = 1;
            next(hdr.items[(bit<64>)hdr.op.w << 32].v);
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
