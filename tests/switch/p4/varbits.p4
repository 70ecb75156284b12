// varbit: extract with a length, emit, copies, comparison, a checksum over it, fields behind it.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> op; bit<8> length; }
header options_t { bit<8> before; varbit<64> list; bit<16> after; }
struct headers_t { op_t op; options_t first; options_t second; }
struct metadata_t { options_t kept; }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.op);
        b.extract(hdr.first, (bit<32>) hdr.op.length);
        transition select(hdr.op.op) {
            2       : more;
            4       : more;
            default : accept;
        }
    }
    state more {
        b.extract(hdr.second, 16);
        transition accept;
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (std.parser_error != error.NoError) {
            hdr.op.op = std.parser_error == error.HeaderTooShort ? 8w0xe1 :
                        (std.parser_error == error.ParserInvalidArgument ? 8w0xe2 :
                        (std.parser_error == error.PacketTooShort ? 8w0xe3 : 0xe4));
        } else if (hdr.op.op == 1) {
            hdr.second = hdr.first;
            hdr.first.after = 0;
        } else if (hdr.op.op == 2) {
            hdr.op.length = hdr.first.list == hdr.second.list ? 8w1 : 0;
        } else if (hdr.op.op == 3) {
            meta.kept = hdr.first;
            hdr.first.setInvalid();
            hdr.second.setValid();
            hdr.second.before = 0x77;
            hdr.second.list = meta.kept.list;
        } else if (hdr.op.op == 4) {
            hdr.first.list = hdr.second.list;
        } else if (hdr.op.op == 5) {
            hdr.op.length = (bit<8>) (hdr.first.minSizeInBytes() * 16 + hdr.first.maxSizeInBytes());
        } else if (hdr.op.op == 6) {
            hash(hdr.first.after, HashAlgorithm.csum16, 16w0, { hdr.first.before, hdr.first.list, 8w0 }, 32w65536);
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
