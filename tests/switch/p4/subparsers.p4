// Sub-parsers (twice, nested, with constructor arguments, with a loop), value_sets, constructor arguments in the package.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> op; }
header item_t { bit<8> kind; bit<8> value; }
struct headers_t { op_t op; item_t first; item_t second; item_t[3] rest; }
struct metadata_t { bit<8> sum; bit<8> set; }
struct member_t { @match(exact) bit<8> kind; @match(ternary) bit<8> value; }

parser Item(packet_in b, out item_t item, inout bit<8> sum)(bit<8> more) {
    state start {
        b.extract(item);
        sum = sum + item.value + more;
        transition select(item.kind) {
            0xff    : reject;
            default : accept;
        }
    }
}
parser Rest(packet_in b, inout headers_t hdr, in bit<8> count) {
    Item(0) one;
    bit<8> left = count;
    bit<8> ignored = 0;
    state start {
        transition select(left) {
            0       : accept;
            default : next;
        }
    }
    state next {
        b.extract(hdr.rest.next);
        left = left - 1;
        transition start;
    }
}
parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std)(bit<8> base) {
    Item(1) first;
    Item(base) second;
    Rest() rest;
    value_set<bit<8>>(4) ops;
    value_set<member_t>(4) items;
    state start {
        b.extract(hdr.op);
        transition select(hdr.op.op) {
            1       : two;
            2       : some;
            ops     : in_ops;
            default : accept;
        }
    }
    state two {
        first.apply(b, hdr.first, meta.sum);
        second.apply(b, hdr.second, meta.sum);
        transition accept;
    }
    state some {
        rest.apply(b, hdr, b.lookahead<bit<8>>());
        transition accept;
    }
    state in_ops {
        meta.set = 1;
        b.extract(hdr.first);
        transition select(hdr.first.kind, hdr.first.value) {
            items   : in_items;
            default : accept;
        }
    }
    state in_items { meta.set = 2; transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std)(bit<9> port) {
    apply {
        std.egress_spec = port;
        if (std.parser_error != error.NoError) {
            hdr.op.op = 0xee;
        } else if (hdr.op.op == 1) {
            hdr.op.op = meta.sum;
        } else if (hdr.op.op != 2) {
            hdr.op.op = meta.set;
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(16), V(), I(3), E(), C(), D()) main;
