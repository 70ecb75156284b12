// Not for BMv2: p4c lets no declaration hide a constructor's parameter (an error there, `shadow`).
// Constructor parameters are constants: as sizes, entries, default arguments, widths, slices, algorithms, labels.
#include <core.p4>
#include <v1model.p4>

struct limits_t { bit<8> low; bit<8> high; }
enum bit<8> Kind { plain = 1, marked = 0x77 }
header data_t { bit<8> op; bit<8> x; bit<8> y; bit<8> kind; bit<32> wide; }
struct headers_t { data_t data; }
struct metadata_t { bit<8> state; }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std)(bit<8> first, int rest) {
    const bit<8> second = first + 1;
    state start {
        b.extract(hdr.data);
        transition select(hdr.data.op) {
            first: one;
            second: two;
            first &&& 0xf0: some;                // 0x40 to 0x4f, but for those above
            default: accept;
        }
    }
    state one { meta.state = 1; transition accept; }
    state two { meta.state = 2; transition accept; }
    state some { meta.state = rest; transition accept; }
}

control Look(inout data_t data)(bit<32> most, bit<8> key, bit<8> none, Kind kind, limits_t limits, bool mark = false) {
    const bit<8> next = key + 1;
    counter(most, CounterType.packets) seen;
    action set(bit<8> to) { data.y = to; }
    table t {
        key = { data.x : exact; }
        actions = { set; NoAction; }
        size = most;
        default_action = set(none);
        const entries = {
            key : set(limits.low);
            next : set(limits.high + 1);
        }
    }
    apply {
        t.apply();
        seen.count(0);
        if (mark) {
            data.kind = (bit<8>)kind;
        }
    }
}
control Cut(inout data_t data)(int low, HashAlgorithm algorithm) {
    const int high = low + 7;
    apply {
        bit<(low)> narrow = 0x1f;
        data.x = data.wide[high:low] + data.wide[low +: 8];
        data.wide[high:low] = low + 0x10;
        data.kind = (bit<8>)narrow + (low << 1);
        hash(data.y, algorithm, 32w0, { data.wide }, 64w256);
    }
}
control Both(inout data_t data)(bit<8> key, int low) {
    Look(16, key, (bit<8>)low, Kind.marked, { 3, key }) inner;
    Cut(low * 2, HashAlgorithm.identity) cut;
    apply { inner.apply(data); cut.apply(data); }
}
control Turn<T>(inout T x)(T one, T other) {
    apply { if (x == one) { x = other; } else { x = one; } }
}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std)(bit<9> port) {
    Look(16, 5, 0xee, Kind.marked, { 3, 9 }, true) look;
    Look(key = 7, none = 0xdd, most = 32, kind = Kind.plain, limits = { high = 1, low = 2 }) other;
    Cut(4, HashAlgorithm.identity) cut;
    Cut(8, HashAlgorithm.xor16) second;
    Both(9, 2) both;
    Turn<bit<8>>(2, 3) turn;
    Turn<bit<32>>(0x10000, 1) turn_wide;
    apply {
        std.egress_spec = port;
        if (hdr.data.op == 1) { look.apply(hdr.data); }
        if (hdr.data.op == 2) { other.apply(hdr.data); }
        if (hdr.data.op == 3) { cut.apply(hdr.data); }
        if (hdr.data.op == 4) { second.apply(hdr.data); }
        if (hdr.data.op == 5) { turn.apply(hdr.data.x); turn_wide.apply(hdr.data.wide); }
        if (hdr.data.op == 6) { both.apply(hdr.data); }
        if (hdr.data.op & 0xf0 == 0x40) { hdr.data.y = meta.state; }
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(0x41, 9), V(), I(2), E(), C(), D()) main;
