// Not for BMv2: p4c takes one instance alone for a parameter in all calls
// Extern instances given to apply(), through two controls and a function; packet_out given to a control.
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> op; bit<8> x; bit<8> y; }
struct headers_t { data_t data; data_t copy; }
struct metadata_t { }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { b.extract(hdr.data); transition accept; }
}
bit<8> swap(register<bit<8>> cells, in bit<32> at, in bit<8> new) {
    bit<8> old;
    cells.read(old, at);
    cells.write(at, new);
    return old;
}
control Keep(inout data_t data, register<bit<8>> cells, counter many) {
    action keep(bit<32> at) {
        cells.write(at, data.x);
        many.count(at);
    }
    table t {
        key = { data.op : exact; }
        actions = { keep; NoAction; }
        const default_action = NoAction;
        const entries = { 1 : keep(1); 2 : keep(2); 3 : keep(3); }
    }
    apply {
        if (t.apply().hit) {
            data.y = swap(cells, 0, data.x);
        }
    }
}
control Through(inout data_t data, register<bit<8>> cells) {
    counter(4, CounterType.packets) own;
    Keep() keep;
    apply { keep.apply(data = data, many = own, cells = cells); }
}
register<bit<8>>(4) everybodys;
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<8>>(4) mine;
    counter(4, CounterType.packets) seen;
    Keep() keep;
    Through() through;
    apply {
        std.egress_spec = 1;
        if (hdr.data.op == 1) {
            keep.apply(hdr.data, mine, seen);
        } else if (hdr.data.op == 2) {
            keep.apply(hdr.data, everybodys, seen);
        } else {
            through.apply(hdr.data, everybodys);
        }
        hdr.copy = hdr.data;
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Send(packet_out b, in data_t one) { apply { b.emit(one); } }
control D(packet_out b, in headers_t hdr) {
    Send() send;
    apply {
        send.apply(b, hdr.copy);
        send.apply(b, hdr.data);
    }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
