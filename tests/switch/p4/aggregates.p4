// Headers, structs, tuples and slices as values: copied whole, compared, cut and put together.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> what; bit<8> flag; }
header pair_t { bit<16> a; int<16> b; }
header wide_t { bit<128> value; }

struct inner_t { bit<8> x; bit<8> y; }
struct outer_t { inner_t left; inner_t right; bool same; }
struct metadata { outer_t state; pair_t spare; bit<24> joined; }
struct headers { op_t op; pair_t one; pair_t two; wide_t wide; pair_t[2] list; }

const inner_t LIMITS = { 3, 200 };
const inner_t FIXED = { x = 0x11, y = 0x22 };

parser P(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.op);
        packet.extract(hdr.one);
        transition select(hdr.op.flag) {
            0x80 &&& 0x80: accept;
            1 .. 9:        both;
            10:            long;
            12:            long;
            default:       accept;
        }
    }
    state both { packet.extract(hdr.two); transition accept; }
    state long { packet.extract(hdr.wide); transition accept; }
}

control V(inout headers hdr, inout metadata meta) { apply { } }

control Halve(inout bit<16> value)(bit<8> by) {
    bit<16> before = value;
    apply {
        value = before >> by;
    }
}

control I(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    Halve(1) half;
    Halve(4) sixteenth;

    action swap(inout pair_t p, in pair_t q, out bit<16> old) {
        old = p.a;
        p = q;
    }

    apply {
        std.egress_spec = 1;
        bit<16> old = 0xEEEE;
        switch (hdr.op.what) {
            1: {                                        // header copy takes validity along
                hdr.two = hdr.one;
                hdr.one.setInvalid();
            }
            2: { hdr.one = hdr.two; }                   // of an invalid one: invalid
            3: {                                        // equal: both invalid, or both valid with equal fields
                hdr.op.flag = 0;
                if (hdr.one == hdr.two) { hdr.op.flag = 1; }
                if (hdr.list[0] == hdr.list[1]) { hdr.op.flag[7:7] = 1; }
            }
            4: {                                        // through an action: in, inout, out
                swap(hdr.one, hdr.two, old);
                hdr.two.a = old;
            }
            5: {                                        // struct from a list, from names, whole
                meta.state.left = { 1, 2 };
                meta.state.right = FIXED;
                meta.state = { left = meta.state.right, right = meta.state.left, same = meta.state.left == FIXED };
                hdr.one.a = meta.state.left.x ++ meta.state.right.y;
                if (meta.state.same) { hdr.op.flag = 0xFF; }
            }
            6: {                                        // slices on the left; signed shift; sign extension
                hdr.one.a[11:4] = 0xAB;
                hdr.one.b = hdr.one.b >> 4;
                meta.joined = (bit<24>) (bit<16>) hdr.one.b;
                hdr.op.flag = meta.joined[23:16];
            }
            7: {                                        // 128 bits
                hdr.wide.value = hdr.wide.value + 1;
                hdr.wide.value[127:120] = hdr.wide.value[7:0];
                if (hdr.wide.value > 128w1 << 127) { hdr.op.flag = 0x77; }
            }
            8: {                                        // two instances with arguments of their own
                half.apply(hdr.one.a);
                sixteenth.apply(hdr.two.a);
            }
            9: {                                        // stacks: copy of an element, of all, size and lastIndex
                hdr.list[1] = hdr.one;
                hdr.list[0].setValid();
                hdr.list[0].a = (bit<16>) hdr.list.size;
                hdr.list[0].b = -2;
            }
            10: {                                       // limits from a constant; a conditional; division by constants
                hdr.one.a = hdr.one.a > (bit<16>) LIMITS.y ? (bit<16>) LIMITS.x : 16w0xFFFF;
                hdr.op.flag = ((1 + 2 * 3) % 4 == 3 && 17 / 4 == 4) ? 8w1 : 0;
            }
            11: {                                       // a constant beside a field that reads what it replaces
                meta.state.left = { hdr.op.flag, 0 };
                meta.state.left = { 9, meta.state.left.x };
                hdr.one = { meta.state.left.x ++ meta.state.left.y, 5 };
                hdr.list[0] = hdr.one;
                hdr.list = hdr.list;
            }
            default: { mark_to_drop(std); exit; }
        }
        hdr.op.what = 0;
    }
}

control E(inout headers hdr, inout metadata meta, inout standard_metadata_t std) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out packet, in headers hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
