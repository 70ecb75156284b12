// Not for BMv2: clone3, and resubmit and recirculate with data, are gone from p4c's v1model; semantics.p4 has the newer forms.
// Multicast, clones (I2E, E2E) with and without field lists, resubmit, recirculate, truncate, and their order.
#include <core.p4>
#include <v1model.p4>

header data_t {
    bit<8> op;
    bit<8> arg;
    bit<8> seen;      // instance_type of the packet that leaves
    bit<8> kept;      // metadata that came along
    bit<8> lost;
    bit<8> rid;
}
struct headers_t { data_t data; }
const bit<8> KEPT = 1;
enum bit<8> lists_t { OTHER = 2, DEEP = 3 }
struct inner_t { @field_list(KEPT + 1, lists_t.DEEP) bit<8> deep; }
struct metadata_t {
    @field_list(KEPT) bit<8> kept;
    @field_list(2) bit<8> other;
    bit<8>  lost;
    inner_t inner;
}

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { b.extract(hdr.data); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (std.instance_type == 6) {                       // resubmitted
            hdr.data.kept = meta.kept;
            hdr.data.lost = meta.lost;
            std.egress_spec = 6;
        } else if (std.instance_type == 4) {                // recirculated
            std.egress_spec = 4;
            hdr.data.kept = meta.kept + meta.inner.deep;
            if (hdr.data.op == 0x12) {                      // the egress sees instance_type 0
                hdr.data.op = 0x22;
            }
        } else {
            std.egress_spec = 1;
            meta.kept = 0x11;
            meta.lost = 0x22;
            meta.inner.deep = 0x33;
            if (hdr.data.op == 1) {
                std.mcast_grp = (bit<16>) hdr.data.arg;
            } else if (hdr.data.op == 2) {
                clone(CloneType.I2E, (bit<32>) hdr.data.arg);
                hdr.data.lost = 0x99;                       // the clone is of the packet as it came in
            } else if (hdr.data.op == 3) {
                clone_preserving_field_list(CloneType.I2E, (bit<32>) hdr.data.arg, 1);
                mark_to_drop(std);                          // cloned all the same
            } else if (hdr.data.op == 4) {
                resubmit_preserving_field_list(1);
                mark_to_drop(std);
            } else if (hdr.data.op == 5) {
                std.mcast_grp = 1;
                mark_to_drop(std);                          // takes the group away
            } else if (hdr.data.op == 7) {
                clone3(CloneType.I2E, 7, { meta.kept, std.ingress_port });
            } else if (hdr.data.op == 8) {
                resubmit({ meta.kept });
            } else if (hdr.data.op == 9) {
                clone3(CloneType.I2E, 7, { meta, 16w1 });   // all of it
            } else if (hdr.data.op == 6) {
                std.mcast_grp = (bit<16>) hdr.data.arg;
                truncate(6);
            }
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        hdr.data.seen = (bit<8>) std.instance_type;
        if (std.instance_type == 1 || std.instance_type == 2) {
            hdr.data.kept = meta.kept;
            hdr.data.lost = meta.lost;
        } else if (std.instance_type == 5) {
            hdr.data.rid = (bit<8>) std.egress_rid;
            hdr.data.lost = (bit<8>) std.mcast_grp;
            hdr.data.kept = meta.kept;
        } else if (hdr.data.op == 0x10) {
            hdr.data.arg = hdr.data.arg + 1;
            clone_preserving_field_list(CloneType.E2E, 7, 1);
        } else if (hdr.data.op == 0x11) {
            clone(CloneType.E2E, 7);
            mark_to_drop(std);
        } else if (hdr.data.op == 0x12) {
            recirculate_preserving_field_list(lists_t.DEEP);
            truncate(4);                                    // not of what goes round
            hdr.data.arg = hdr.data.arg + 1;
        }
        if (hdr.data.op == 0x13) {
            recirculate_preserving_field_list(1);           // round and round
        }
    }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
