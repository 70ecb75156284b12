// v1model of version 20200408: the type of an index is a parameter; the older mark_to_drop().
#include <core.p4>
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

header data_t { bit<8> at; bit<8> value; }
struct headers_t { data_t data; }
struct metadata_t { }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { b.extract(hdr.data); transition accept; }
}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter<bit<8>>(16, CounterType.packets) count;
    meter<bit<8>>(16, MeterType.packets) rate;
    register<bit<8>, bit<8>>(16) sums;
    apply {
        bit<8> sum;
        bit<2> colour;
        count.count(hdr.data.at);
        sums.read(sum, hdr.data.at);
        sums.write(hdr.data.at, sum + hdr.data.value);
        rate.execute_meter(hdr.data.at, colour);
        hdr.data.value = sum;
        if (sum == 9 || colour != 0) {
            mark_to_drop();
        }
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
