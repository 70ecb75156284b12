// Values known only at run time as numbers without a width: in sums, differences and products that are cast at once.
// p4c 1.2.5 takes this, and masks (int)x to 0 bits.
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> a; int<8> b; bit<8> low; int<8> known; int<16> s; bit<32> c; bit<256> wide; }
struct headers_t { data_t data; }
struct metadata_t { }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { b.extract(hdr.data); transition accept; }
}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        bit<4> less = (bit<4>)((int)hdr.data.a - 1);
        hdr.data.low = (bit<8>)(int)less;
        hdr.data.c = (bit<32>)((int)hdr.data.a * (int)hdr.data.b + 1);
        hdr.data.wide = (bit<256>)(-(int)hdr.data.b - 3);
        hdr.data.s = (int<16>)((int)hdr.data.b * 300 - (int)4w3);
        hdr.data.known = (int<8>)((int)4w3 + 1);
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
