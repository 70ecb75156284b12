// Not for BMv2: p4c 1.2.5 ends with a bug of its own ("Overwriting definitions") at `exit` in a control that is used twice.
// Constructors: values by name and by default, and instances of controls, parsers and externs given to others.
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> once; bit<8> twice; bit<8> stored; }
struct headers_t { data_t data; }
struct metadata_t { }

control Change(inout bit<8> x);              // what is given must take this
parser Take(packet_in b, out data_t data);

control Add(inout bit<8> x)(bit<8> by, bit<8> more = 1) {
    apply {
        x = x + by + more;
        if (x == 0xff) {
            exit;                            // ends the ingress, from within whatever applies it
        }
    }
}
control Twice(inout bit<8> x)(Change change) {
    apply {
        change.apply(x);
        change.apply(x);
        x = x + 0x10;
    }
}
control Swap(inout bit<8> x)(register<bit<8>> cells, bit<32> at) {
    apply {
        bit<8> old;
        cells.read(old, at);
        cells.write(at, x);
        x = old;
    }
}
parser All(packet_in b, out data_t data) {
    state start { b.extract(data); transition accept; }
}
parser Through(packet_in b, out data_t data)(Take take) {
    state start { take.apply(b, data); transition accept; }
}
parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    All() all;
    Through(all) through;
    state start { through.apply(b, hdr.data); transition accept; }
}
register<bit<8>>(4) everybodys;
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<8>>(4) own;
    Add(more = 2, by = 3) five;
    Twice(five) ten;
    Twice(Add(7)) sixteen;
    Swap(own, 2) first;
    Swap(at = 1, cells = everybodys) second;
    apply {
        std.egress_spec = 1;
        ten.apply(hdr.data.once);
        sixteen.apply(hdr.data.twice);
        first.apply(hdr.data.stored);
        second.apply(hdr.data.stored);
        hdr.data.stored = hdr.data.stored + 1;
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
