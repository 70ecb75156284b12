// Checksums of fields of headers that are not there, and hashes of such headers: these are left out. A hash of single
// fields has them, as they were: p4c gives BMv2 copies of them.
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> op; bit<8> there; bit<16> sum; bit<32> wide; }
header a_t { bit<16> x; bit<4> high; bit<4> low; }
header b_t { bit<16> y; bit<16> sum; }
struct headers_t { data_t data; a_t a; b_t b; b_t[2] many; }
struct metadata_t { bit<16> kept; bit<32> found; }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.data);
        transition select(hdr.data.op, hdr.data.there) {
            (1, 0) : accept;
            (9, 0) : accept;
            default : rest;
        }
    }
    state rest {
        b.extract(hdr.a);
        b.extract(hdr.b);
        b.extract(hdr.many.next);
        b.extract(hdr.many.next);
        transition accept;
    }
}
control V(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.data.op == 1, { hdr.data.op, hdr.data.there, hdr.b.y }, hdr.data.sum, HashAlgorithm.csum16);
        verify_checksum(hdr.data.op == 9, { hdr.data.op }, hdr.b.sum, HashAlgorithm.csum16);
    }
}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        meta.kept = 0x0100;
        if (std.checksum_error == 1) { hdr.data.wide = 0xee; }
        if (hdr.data.there[0:0] == 0) { hdr.a.setInvalid(); }
        if (hdr.data.there[1:1] == 0) { hdr.b.setInvalid(); }
        if (hdr.data.there[2:2] == 0) { hdr.many[1].setInvalid(); }
        if (hdr.data.op == 2) {
            hash(meta.found, HashAlgorithm.identity, 32w0, { hdr.a.x, meta.kept, hdr.b.y }, 64w0x1_0000_0000_0000);
        } else if (hdr.data.op == 3) {          // not of whole bytes
            hash(meta.found, HashAlgorithm.identity, 32w0, { hdr.data.op, hdr.a.high, 4w0xf, hdr.b.y }, 64w1 << 40);
        } else if (hdr.data.op == 4) {          // whole headers, and one known only at run time
            hash(meta.found, HashAlgorithm.identity, 32w0, { hdr.a, hdr.many[1].y }, 64w1 << 48);
        } else if (hdr.data.op == 5) {
            bit<8> at = hdr.data.there >> 7;
            hash(meta.found, HashAlgorithm.identity, 32w0, { 8w1, hdr.many[at].y }, 64w1 << 40);
        } else if (hdr.data.op == 6) {          // one field alone
            hash(meta.found, HashAlgorithm.crc16, 32w7, { hdr.a.x }, 64w1 << 40);
        }
        if (hdr.data.op > 1 && hdr.data.op < 7) { hdr.data.wide = meta.found; }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.data.op == 7, { hdr.data.op, hdr.data.there, hdr.a.x, hdr.b.y }, hdr.data.sum,
                        HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.data.op == 8, { hdr.a.x, hdr.b.y }, hdr.data.sum, HashAlgorithm.csum16);
    }
}
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr.data); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
