// Not for BMv2: simple_switch ends when it reads what p4c makes of a stack element known at run time ("not convertible to string").
// Header stacks by index: computed in the parser, with a side effect in an assignment, in keys; lookahead for nothing
// but its error; extract of something that nobody wants.
#include <core.p4>
#include <v1model.p4>

header count_t { bit<8> n; bit<8> at; }
header item_t { bit<8> last; bit<8> value; }
struct headers_t { count_t count; item_t[3] items; }
struct metadata_t { }
struct four_t { bit<32> bytes; }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    int<8> at = 0;
    state start {
        b.lookahead<four_t>();               // at least four bytes
        b.extract<item_t>(_);
        b.extract(hdr.count);
        transition items;
    }
    state items {
        b.extract(hdr.items[at]);
        at = at + 1;
        transition select(hdr.items[at - 1].last) {
            0       : items;
            default : accept;
        }
    }
}
bit<8> next(inout bit<8> n) {
    bit<8> before = n;
    n += 1;
    return before;
}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action name(bit<8> n) { hdr.count.n = n; }
    table first {
        key = { hdr.items[0].value : exact; hdr.count.at[3:0] : exact; hdr.items[1].isValid() : exact; }
        actions = { name; NoAction; }
        default_action = NoAction();
    }
    apply {
        std.egress_spec = 1;
        if (std.parser_error == error.StackOutOfBounds) {
            std.egress_spec = 2;
        } else if (std.parser_error != error.NoError) {
            std.egress_spec = 3;
        }
        first.apply();
        hdr.items[next(hdr.count.at) & 1].value |= 0x80;
        hdr.items[next(hdr.count.at) & 1].value += 0x11;
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
