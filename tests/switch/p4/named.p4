// Not for BMv2: p4c gives entries no arguments of type error ("a type which is not bit<>, int<>, bool").
// Errors declared before core.p4, arguments by name (evaluated as written, in actions of tables too), default values that
// belong to where they are declared, annotations with anything in them.
error { Early, Other }
#include <core.p4>
#include <v1model.p4>

@remark(
    - It's an annotation; isn't it? `any` $text \ goes {as} [long] (as) "its" brackets match.
    0xdeadbeef
)
header op_t { bit<8> op; bit<8> a; bit<8> b; bit<8> c; }
struct headers_t { op_t op; }
struct metadata_t { }
struct pair_t { bit<8> x; bit<8> y; }

const bit<8> K = 4;

bit<8> next(inout bit<8> from) {
    from = from + 1;
    return from;
}
bit<8> join(in bit<8> high = K, in bit<8> low = K + 1) {
    return high * 16 + low;
}
control Add(inout bit<8> to, in bit<8> by = K, in pair_t also = { 1, 2 }) {
    apply { to = to + by + also.y; }
}

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.op);
        verify(hdr.op.op != 0xee && hdr.op.a != 0xee, error.Early);
        transition accept;
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    const bit<8> K = 9;
    counter(type = CounterType.packets, size = 4) seen;
    Add() add;
    action set(in bit<8> from, bit<8> b, bit<8> c = 7) { hdr.op.a = from; hdr.op.b = b; hdr.op.c = c; }
    table t {
        key = { hdr.op.a : ternary; }
        actions = { set(from = hdr.op.op); }
        const entries = {
            1       : set(from = hdr.op.op, c = 3, b = 2);
            2       : set(hdr.op.op, 5, 7);
            3       : set(hdr.op.op, 8, 9);
            default : set(from = hdr.op.op, c = 7, b = 6);
        }
        default_action = set(from = hdr.op.op, c = 1, b = 2);
    }
    action note(error e, bool b) { hdr.op.b = e == error.Early ? 8w1 : 2; hdr.op.c = b ? 8w1 : 2; }
    table by_error {
        key = { std.parser_error : exact; std.checksum_error == 1 : exact @name("bad"); }
        actions = { note; NoAction; }
        const entries = {
            (error.Early, false)   : note(error.Early, true);
            (error.NoError, false) : note(b = false, e = error.Other);
        }
    }
    apply {
        std.egress_spec = 1;
        seen.count(index = 2);
        if (hdr.op.op == 4) {
            by_error.apply();
        }
        if (std.parser_error == error.Early) {
            hdr.op.a = 1;
        } else if (std.parser_error != error.NoError) {
            hdr.op.a = 2;
        } else if (hdr.op.op == 1) {
            hdr.op.a = join();
            hdr.op.b = join(K);
            hdr.op.c = join(low = 1);
        } else if (hdr.op.op == 2) {
            hdr.op.b = join(low = next(hdr.op.a), high = next(hdr.op.a));
            add.apply(hdr.op.c);
            add.apply(by = next(hdr.op.c), to = hdr.op.c);
        } else if (hdr.op.op == 3) {
            t.apply();
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
