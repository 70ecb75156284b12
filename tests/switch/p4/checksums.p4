// Checksums with and without payload, all hash algorithms, checksum_error.
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> op; bit<8> a; bit<16> sum; bit<32> wide; }
struct headers_t { data_t data; }
struct metadata_t { }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { b.extract(hdr.data); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.data.op == 1, { hdr.data.op, hdr.data.a }, hdr.data.sum, HashAlgorithm.csum16);
        verify_checksum_with_payload(hdr.data.op == 2, { hdr.data.op, hdr.data.a }, hdr.data.sum, HashAlgorithm.csum16);
    }
}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        log_msg("op {}", { hdr.data.op });
        assert(hdr.data.op < 100);
        if (std.checksum_error == 1) { hdr.data.a = 0xee; }
        if (hdr.data.op == 0x10) {
            hash(hdr.data.wide, HashAlgorithm.crc32, 32w0, { hdr.data.a, hdr.data.sum }, 64w0x1_0000_0000);
        } else if (hdr.data.op == 0x11) {
            hash(hdr.data.wide, HashAlgorithm.crc16_custom, 32w0, { hdr.data.a, hdr.data.sum }, 64w0x1_0000_0000);
        } else if (hdr.data.op == 0x12) {
            hash(hdr.data.wide, HashAlgorithm.xor16, 32w0, { hdr.data.a, 8w0, hdr.data.sum }, 64w0x1_0000_0000);
        } else if (hdr.data.op == 0x13) {
            hash(hdr.data.wide, HashAlgorithm.identity, 32w0, { hdr.data.a, hdr.data.sum }, 64w0x1_0000_0000);
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.data.op == 3, { hdr.data.op, hdr.data.a }, hdr.data.sum, HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.data.op == 4, { hdr.data.op, hdr.data.a, hdr.data.wide }, hdr.data.sum,
                                     HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.data.op == 5, { hdr.data.op }, hdr.data.sum, HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.data.op == 6, { hdr.data.a }, hdr.data.wide, HashAlgorithm.crc32);
    }
}
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
