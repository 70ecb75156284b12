// Not for BMv2: p4c extracts no header whose type has the parameter of a generic parser in it ("argument must be a header").
// Generic functions, structs, headers, controls and parsers; standard metadata as an argument of actions and functions.
#include <core.p4>
#include <v1model.p4>

@pragma anything goes here
struct pair_t<T> { T first; T second; }
header value_t<T> { T v; }
header data_t { bit<8> op; bit<8> a; bit<16> w; }
struct headers_t { data_t data; value_t<bit<8>> small; value_t<bit<16>> large; }
struct metadata_t { pair_t<bit<8>> p; }

T choose<T>(in bool first, in T a, in T b) { return first ? a : b; }
pair_t<T> swapped<T>(in pair_t<T> p) { return { p.second, p.first }; }
void send_to(inout standard_metadata_t s, in bit<9> port) { s.egress_spec = port; }
action dropped(inout standard_metadata_t s) { mark_to_drop(s); }

parser Value<T>(packet_in b, out value_t<T> h) {
    state start { b.extract(h); transition accept; }
}
parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    Value<bit<8>>() small;
    Value<bit<16>>() large;
    state start {
        b.extract(hdr.data);
        small.apply(b, hdr.small);
        large.apply(b, hdr.large);
        transition accept;
    }
}
control Put<T>(inout T x, in T by)(bit<8> times) {
    apply {
        if (times == 2) { x = by; }
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    Put<bit<8>>(1) once;
    Put<bit<16>>(2) twice;
    apply {
        send_to(std, 4);
        if (hdr.data.op == 1) {
            hdr.data.a = choose(hdr.data.a > hdr.small.v, hdr.data.a, hdr.small.v);
            hdr.data.w = choose<bit<16>>(hdr.data.w > 0x1000, hdr.data.w, 0x1000);
        } else if (hdr.data.op == 2) {
            once.apply(hdr.data.a, 3);
            twice.apply(hdr.data.w, 0x10);
        } else if (hdr.data.op == 3) {
            meta.p = { hdr.data.a, hdr.small.v };
            meta.p = swapped(meta.p);
            hdr.data.a = meta.p.first;
            hdr.large.v = swapped<bit<16>>({ 1, 2 }).first;
        } else if (hdr.data.op == 4) {
            dropped(std);
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
