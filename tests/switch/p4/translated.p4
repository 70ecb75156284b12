// Not for BMv2: p4c gives P4Runtime no two actions of one name ("conflicting control plane name").
// As p4c writes P4_14 programs anew: all names given by annotations from the root, one name for a header, a table, a
// state, a counter and two actions; keys with masks and of validity; a slice of what lies ahead.
#include <core.p4>
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

@name("same") header same_0 { bit<32> same; bit<8> n; bit<8> left; }
struct headers_t { @name(".same") same_0 same; @name(".more") same_0 more; }
struct deep_t { bit<4> at; }
struct metadata_t { @name(".deep") deep_t deep; }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    @name(".same") state same {
        b.extract(hdr.same);
        transition select((b.lookahead<bit<24>>())[8:8], (b.lookahead<bit<4>>())[3:0]) {
            (1w1, 4w0xa &&& 4w0xe) : more;
            default                : accept;
        }
    }
    @name(".more") state more {
        b.extract(hdr.more);
        transition accept;
    }
    @name(".start") state start { transition same; }
}
@name(".same") counter<bit<4>>(32w16, CounterType.packets) same_1;
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    @name(".same") action same_2(bit<8> left, bit<4> at) {
        hdr.same.left = left;
        meta.deep.at = at;
        same_1.count((bit<4>)(bit<4>)meta.deep.at);
    }
    @name("._nop") action _nop() { }
    @name(".same") table same_3 {
        actions = { same_2; _nop; @defaultonly NoAction; }
        key = { hdr.same.same & 32w0xff00ff : exact; hdr.more.isValid() : exact @name("more.$valid$"); }
        default_action = NoAction();
    }
    @name(".last") table last_0 {
        actions = { same_2; @defaultonly NoAction; }
        key = { hdr.more.isValid() : ternary; hdr.same.n : ternary @name("same.n"); }
        default_action = NoAction();
    }
    apply {
        std.egress_spec = 1;
        if (!same_3.apply().hit) last_0.apply();
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    @name("._mark") action _nop() { hdr.more.left = 0xee; }    // the control plane has each name once
    @name(".more") action same_5(bit<8> left, bit<4> at) { hdr.more.n = left; }
    @name(".after") table after_0 {
        actions = { _nop; same_5; @defaultonly NoAction; }
        key = { hdr.more.n : exact @name("more.n"); }
        default_action = NoAction();
    }
    apply { after_0.apply(); }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr.same); b.emit(hdr.more); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
