// Not for BMv2: simple_switch does not take what p4c makes of a whole header union ("Invalid reference to object").
// Header unions: extraction, validity, assignment, comparison, stacks of unions.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> op; }
header one_t { bit<8> kind; bit<8> a; }
header two_t { bit<8> kind; bit<16> b; }
header_union either_t { one_t one; two_t two; }
struct headers_t { op_t op; either_t u; either_t[3] list; }
struct metadata_t { either_t kept; }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.op);
        transition select(b.lookahead<bit<8>>()) {
            1       : one;
            2       : two;
            default : accept;
        }
    }
    state one { b.extract(hdr.u.one); transition more; }
    state two { b.extract(hdr.u.two); transition more; }
    state more {
        transition select(b.lookahead<bit<8>>()) {
            1       : next_one;
            2       : next_two;
            default : accept;
        }
    }
    state next_one { b.extract(hdr.list.next.one); transition more; }
    state next_two { b.extract(hdr.list.next.two); transition more; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (std.parser_error != error.NoError) {
            hdr.op.op = 0xee;
        } else if (hdr.op.op == 1) {
            if (hdr.u.one.isValid()) {
                hdr.u.two.setValid();                    // takes the other away
                hdr.u.two.kind = 2;
                hdr.u.two.b = 8w0 ++ hdr.u.one.a;
            } else if (hdr.u.isValid()) {
                hdr.u.one = { 1, 0x99 };
            }
        } else if (hdr.op.op == 2) {
            hdr.u = hdr.list[0];
            hdr.list[0].two.setInvalid();
            hdr.list[0].one.setInvalid();
        } else if (hdr.op.op == 3) {
            meta.kept = hdr.u;
            hdr.op.op = meta.kept == hdr.list[1] ? 8w0x31 : 0x30;
        } else if (hdr.op.op == 4) {
            hdr.list.pop_front(1);
        } else if (hdr.op.op == 5) {
            hdr.op.op = hdr.list[2].isValid() ? 8w0x51 : 0x50;
            hdr.list[1].one = hdr.list[0].one;           // a header that is not valid makes it invalid
        } else if (hdr.op.op == 6) {
            hdr.u = {#};
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr.op); b.emit(hdr.u); b.emit(hdr.list); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
