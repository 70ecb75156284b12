// Not for BMv2: simple_switch ends when it reads what p4c makes of a stack element known at run time ("not convertible to string").
// Header stacks: next, last, lastIndex, size, indexes, push_front, pop_front, copies, a loop in the parser.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> op; bit<8> arg; }
header label_t { bit<7> value; bit<1> bottom; }
header tail_t { bit<8> x; }

struct headers_t {
    op_t       op;
    label_t[4] labels;
    tail_t     tail;
}
struct metadata_t { bit<32> count; bit<7> last; label_t[2] kept; }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.op);
        transition select(hdr.op.op) {
            0xf0    : last_of_none;
            default : label;
        }
    }
    state label {
        b.extract(hdr.labels.next);
        meta.last = hdr.labels.last.value;
        meta.count = hdr.labels.lastIndex;
        transition select(hdr.labels.last.bottom) {
            1 : tail;
            0 : label;
        }
    }
    state last_of_none {
        meta.last = hdr.labels.last.value;
        transition accept;
    }
    state tail { b.extract(hdr.tail); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (std.parser_error != error.NoError) {
            hdr.op.op = 0xee;
            hdr.op.arg = std.parser_error == error.StackOutOfBounds ? 8w1 : 8w2;
        } else if (hdr.op.op == 1) {
            hdr.labels.pop_front(1);
        } else if (hdr.op.op == 2) {
            hdr.labels.push_front(2);
            hdr.labels[0].setValid();
            hdr.labels[0].value = 0x11;
            hdr.labels[0].bottom = 0;
        } else if (hdr.op.op == 3) {
            hdr.op.arg = (bit<8>) meta.count;
            hdr.tail.x = (bit<8>) meta.last + (bit<8>) hdr.labels.size;
        } else if (hdr.op.op == 4) {
            hdr.labels[hdr.op.arg].value = 0x7f;            // beyond the end: no effect
        } else if (hdr.op.op == 5) {
            hdr.labels[1] = hdr.labels[hdr.op.arg];
        } else if (hdr.op.op == 6) {
            hdr.labels.push_front(9);
        } else if (hdr.op.op == 7) {
            hdr.labels.pop_front(3);
        } else if (hdr.op.op == 8) {
            hdr.tail.x = hdr.labels[hdr.op.arg].isValid() ? hdr.labels[hdr.op.arg].value ++ 1w1 : 0xaa;
        } else if (hdr.op.op == 9) {
            meta.kept[0] = hdr.labels[0];
            meta.kept[1] = hdr.labels[1];
            label_t[2] copy = meta.kept;
            hdr.labels[0] = copy[1];
            hdr.labels[1] = copy[0];
            hdr.tail.x = copy == meta.kept ? 8w1 : 8w0;
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr.op); b.emit(hdr.labels); b.emit(hdr.tail); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
