// Not for BMv2: p4c takes no select without values
// Ways to write things: (x) = 1, bit<N>, tuple<>, joined strings, lists as entries, select on tuples and on nothing,
// parts of constants, arrays as type arguments, properties of other targets.
#include <core.p4>
#include <v1model.p4>

const int N = 8;
struct pair_t { bit<N> a; bit<N> b; }
const pair_t PAIR = { 1, 0x22 };
const tuple<bit<8>, pair_t> BOTH = { 7, { 3, PAIR.a } };
const pair_t INNER = BOTH[1];
const bit<(N)> SUM = PAIR.b + INNER.a + BOTH[1].b + BOTH[0];       // 0x22 + 3 + 1 + 7
const string JOINED = "I." ++ "second";
header data_t { bit<N> op; bit<N*2> x; bit<N> y; }
struct headers_t { data_t data; data_t[PAIR.a + 1] more; }
struct metadata_t { tuple<bit<8>, bit<16>> key; pair_t pair; tuple<> nothing; bit<8> state; }

parser Nothing(packet_in b, out bit<8> to) {
    state start { to = 5; transition select() { default : accept; } }
}
parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    Nothing() nothing;
    state start {
        b.extract<data_t>(hdr.data);
        meta.key = { hdr.data.op, hdr.data.x };
        meta.pair = { hdr.data.op, hdr.data.y };
        transition select(meta.key) {
            (PAIR.a, 0x102) : first;
            { 2, 0x304 } : second;
            (3, 0x400 &&& 0xff00) : third;
            (4 .. 6, _) : fourth;
            default : accept;
        }
    }
    state first { meta.state = 1; transition accept; }
    state second { nothing.apply(b, meta.state); transition accept; }
    state third {
        meta.state = 3;
        transition select(meta.pair, hdr.data.x[7:0]) {
            ({ 3, 9 }, 1) : other;
            (_, 2) : first;
            default : accept;
        }
    }
    state fourth { meta.state = 4; transition accept; }
    state other { meta.state = 6; transition accept; }
}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action set(bit<N> to) { (hdr.data.y) = to; }
    table t {
        key = { hdr.data.op : exact; hdr.data.x : exact; }
        actions = { set; NoAction; }
        default_action = NoAction;
        const entries = {
            { 7, (8w1 ++ 8w2) } : set(SUM);
            (7, 0x103) : set(INNER.b + 1);
        }
        placed_in_stage = 3;
    }
    apply {
        (std.egress_spec) = 1;
        meta.nothing = {};
        log_msg(JOINED ++ "!");
        if (hdr.data.op <= 6) {
            ((hdr.data)).y = meta.state;
        }
        t.apply();
        if (PAIR == { 1, 0x22 } && INNER != PAIR && hdr.data.op == 8) {
            (hdr.more[1]).setValid();
            hdr.more[1] = hdr.data;
            (hdr.more[1].x)[15:8] = PAIR.b;
        }
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) {
    apply {
        b.emit<data_t>(hdr.data);
        b.emit<data_t[2]>(hdr.more);
    }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
