// Not for BMv2: no assert in its parsers, and mark_to_drop() without an argument is gone from p4c's v1model.
// v1model from version 20200408 on: index types of the program's choice. And assert, assume, mark_to_drop() as it was.
#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

const bool NEW = static_assert(V1MODEL_VERSION >= 20200000, "old v1model");
const bit<32> VERSION = __v1model_version;

enum bit<2> cell_t { low = 1, high = 3 }
header op_t { bit<8> op; bit<8> at; bit<16> value; }
struct headers_t { op_t op; }
struct metadata_t { }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.op);
        assert(hdr.op.op != 0xee);
        transition accept;
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter<PortId_t>(512, CounterType.packets) by_port;
    meter<bit<4>>(16, MeterType.packets) metered;
    register<bit<16>, bit<8>>(4) cells;
    register<int<16>, cell_t>(4) few;
    PortId_t out_port = 1;
    apply {
        std.egress_spec = out_port;
        by_port.count(std.ingress_port);
        if (hdr.op.op == 1) {
            bit<16> before;
            cells.read(before, hdr.op.at);
            cells.write(hdr.op.at, hdr.op.value);
            hdr.op.value = before;
        } else if (hdr.op.op == 2) {
            few.write(cell_t.high, -2);
            int<16> got;
            few.read(got, cell_t.high);
            hdr.op.value = (bit<16>)got;
            bit<2> colour;
            metered.execute_meter(hdr.op.at[3:0], colour);
            hdr.op.at = colour == V1MODEL_METER_COLOR_GREEN ? 8w1 : 2;
        } else if (hdr.op.op == 3) {
            mark_to_drop();
        } else if (hdr.op.op == 4) {
            clone(CloneType.I2E, 1);
            assert(hdr.op.value == 7);
        } else if (hdr.op.op == 5) {
            hdr.op.value = VERSION[15:0];
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { assume(hdr.op.op != 0xef); }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
