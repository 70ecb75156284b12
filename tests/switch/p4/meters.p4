// Meters: of packets and bytes, indexed and direct.
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> op; bit<8> a; bit<8> color; }
struct headers_t { data_t data; }
struct metadata_t { bit<32> color; }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { b.extract(hdr.data); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    meter(8, MeterType.packets) by_packet;
    meter(8, MeterType.bytes) by_byte;
    direct_meter<bit<32>>(MeterType.packets) by_entry;
    action metered() { by_entry.read(meta.color); }
    table entries_of {
        key = { hdr.data.a : exact; }
        actions = { metered; NoAction; }
        default_action = metered();
        meters = by_entry;
    }
    apply {
        std.egress_spec = 1;
        if (hdr.data.op == 1) { by_packet.execute_meter((bit<32>) hdr.data.a, hdr.data.color); }
        if (hdr.data.op == 2) { by_byte.execute_meter((bit<32>) hdr.data.a, hdr.data.color); }
        if (hdr.data.op == 3) { entries_of.apply(); hdr.data.color = (bit<8>) meta.color; }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
