// Header fields that the program touches only through parameters must still be loaded and stored.
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> a; bit<8> b; bit<8> c; bit<8> untouched; bit<8> d; }
struct headers_t { data_t data; }
struct metadata_t { }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { b.extract(hdr.data); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Increment(inout bit<8> x) { action up() { x = x + 1; } apply { up(); } }
control Twice(inout bit<8> x) { Increment() one; apply { one.apply(x); one.apply(x); } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    Increment() increment;
    Twice() twice;
    action set(out bit<8> x) { x = 0x77; }
    action rewrite(inout data_t whole) { whole.d = whole.d ^ 0xFF; }
    apply {
        std.egress_spec = 1;
        increment.apply(hdr.data.a);
        twice.apply(hdr.data.b);
        set(hdr.data.c);
        rewrite(hdr.data);
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
