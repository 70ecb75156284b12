// Not for BMv2: p4c gives P4Runtime no two actions of one name, as two instances of a control make them ("conflicting").
// Tables: entries with priorities, instances made in properties, apply() of a type, division.
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> op; bit<8> a; bit<8> b; bit<8> c; }
struct headers_t { data_t data; }
struct metadata_t { }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { b.extract(hdr.data); transition accept; }
}
control Add(inout bit<8> x) {
    action more(bit<8> n) { x = x + n; }
    table by_x { key = { x : exact @name("x"); } actions = { more; } default_action = more(1); }
    apply { by_x.apply(); }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action set(bit<8> v) { hdr.data.c = v; }
    table smallest {
        key = { hdr.data.a : ternary; hdr.data.b : range; }
        actions = { set; @defaultonly NoAction; }
        largest_priority_wins = false;
        priority_delta = 10;
        entries = {
            const priority = 5 : (0x10 &&& 0xf0, _)      : set(1);     // 5
            (_, 3 .. 7)                                   : set(2);     // 15
            priority = 10 : (0x12, 5)                     : set(3);
            priority = 1 : (0x13, _)                      : set(4);
        }
    }
    table largest {
        key = { hdr.data.a : optional; }
        actions = { set; }
        default_action = set(9);
        counters = direct_counter(CounterType.packets);
        support_timeout = true;
        entries = {
            priority = 2 : 0x10 : set(1);                               // 2
            priority = 7 : _ : set(2);                                  // 7
        }
    }
    table members {
        key = { hdr.data.a : exact; }
        actions = { set; }
        @name("shared") implementation = action_profile(16);
        size = 8;
    }
    apply {
        std.egress_spec = 1;
        if (hdr.data.op == 1) { smallest.apply(); }
        if (hdr.data.op == 2) { largest.apply(); }
        if (hdr.data.op == 3) { members.apply(); }
        if (hdr.data.op == 4) { Add.apply(hdr.data.a); Add.apply(hdr.data.b); }
        if (hdr.data.op == 5) { hdr.data.c = hdr.data.a / hdr.data.b; hdr.data.a = hdr.data.a % hdr.data.b; }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
