// Queues: the first byte is the priority, the second the port; the depths seen in the egress are written back.
#include <core.p4>
#include <v1model.p4>

header data_t {
    bit<8>  priority;
    bit<8>  port;
    bit<8>  enq;
    bit<8>  deq;
}
struct headers_t { data_t data; }
struct metadata_t { }

register<bit<19>>(16) depth;

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { b.extract(hdr.data); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        std.priority = (bit<3>) hdr.data.priority;
        std.egress_spec = (bit<9>) hdr.data.port;
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        hdr.data.enq = (bit<8>) std.enq_qdepth;
        hdr.data.deq = (bit<8>) std.deq_qdepth;
        depth.write((bit<32>) std.egress_port, std.deq_qdepth);
    }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
