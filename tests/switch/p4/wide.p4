// Numbers of more than 128 bits: extracted, copied, compared, cut, joined, as constants, hashed, looked ahead to.
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> op; bit<4> pre; bit<160> w; bit<4> post; }
header more_t { bit<256> big; }
struct headers_t { data_t data; more_t more; }
struct metadata_t { bit<160> kept; }

const bit<160> MARK = 160w0xaa << 152 | 1;

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        meta.kept = b.lookahead<data_t>().w;
        b.extract(hdr.data);
        transition select(hdr.data.op) {
            5       : more;
            default : accept;
        }
    }
    state more { b.extract(hdr.more); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (hdr.data.op == 1) {
            hdr.data.post = hdr.data.w == meta.kept ? 4w1 : 2;
            if (hdr.data.w == MARK) { hdr.data.post = 3; }
        } else if (hdr.data.op == 2) {
            hdr.data.w = hdr.data.w[7:0] ++ hdr.data.w[159:84] ++ hdr.data.w[83:8];
        } else if (hdr.data.op == 3) {
            hdr.data.w[159:152] = hdr.data.w[151:144] + 1;
            hdr.data.w[7:0] = (bit<8>) hdr.data.w + 1;
        } else if (hdr.data.op == 4) {
            bit<160> m = MARK;
            hdr.data.w = (m & ~hdr.data.w) | (bit<160>) hdr.data.pre;
        } else if (hdr.data.op == 5) {
            hdr.more.big = hdr.data.w ++ hdr.more.big[95:0];
        } else if (hdr.data.op == 6) {
            hash(hdr.data.post, HashAlgorithm.xor16, 4w0, { 4w0, hdr.data.w, 4w0 }, 8w16);
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
