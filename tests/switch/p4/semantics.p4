// What simple_switch does with a packet at the end of ingress and egress, field by field (docs/p4-target.md).
#include <core.p4>
#include <v1model.p4>

header data_t {
    bit<8>  op;
    bit<8>  arg;
    bit<8>  type;       // instance_type in the egress
    bit<8>  port;       // egress_port in the egress, as the traffic manager has it
    bit<8>  spec;       // egress_spec at the start of the egress
    bit<8>  rid;
    bit<8>  group;
    bit<8>  length;     // packet_length in the egress
    bit<8>  fault;      // checksum_error, and whether the parser had an error
    bit<8>  meta;       // user metadata in the egress
}
header more_t { bit<16> word; bit<8> sum; bit<8> last; }
struct headers_t { data_t data; more_t more; more_t extra; }
struct metadata_t {
    @field_list(1) bit<8> first;        // the parser writes it
    @field_list(2) bit<8> second;
    bit<8> third;                       // the parser writes it
}

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.data);
        meta.first = 0xf1;
        meta.third = 0xf3;
        transition select(hdr.data.op) {
            0x30 .. 0x3f: more;
            default: accept;
        }
    }
    state more { b.extract(hdr.more); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) {
    apply { verify_checksum(hdr.more.isValid(), { hdr.more.word }, hdr.more.sum, HashAlgorithm.xor16); }
}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<8>>(4) cells;
    counter(4, CounterType.packets_and_bytes) counts;
    meter(4, MeterType.packets) meters;
    bit<8> got = 0x77;

    apply {
        std.egress_spec = 2;
        std.egress_port = 6;                                    // says nothing
        bool again = std.instance_type != 0;
        if (hdr.data.op == 0x01) {                              // dropped, then sent after all
            mark_to_drop(std);
            std.egress_spec = 3;
        } else if (hdr.data.op == 0x02) {                       // the group wins, the port does not matter
            std.mcast_grp = 1;
            std.egress_spec = 511;
        } else if (hdr.data.op == 0x03) {
            std.mcast_grp = 1;
            mark_to_drop(std);
        } else if (hdr.data.op == 0x04) {                       // 0 is no group
            std.mcast_grp = 0;
        } else if (hdr.data.op == 0x05 && !again) {             // round again, not to the group, and a clone besides
            std.mcast_grp = 1;
            meta.first = 0x0a;
            clone_preserving_field_list(CloneType.I2E, (bit<32>) hdr.data.arg, 1);
            resubmit_preserving_field_list(2);
        } else if (hdr.data.op == 0x06) {                       // the last call counts
            clone_preserving_field_list(CloneType.I2E, 5, 2);
            clone_preserving_field_list(CloneType.I2E, 6, 1);
            meta.first = 0x0b;
            std.mcast_grp = 1;
        } else if (hdr.data.op == 0x07) {                       // cut: the clone is not
            clone(CloneType.I2E, 5);
            truncate(10);
        } else if (hdr.data.op == 0x08) {                       // longer by a header: packet_length tells
            hdr.extra.setValid();
            hdr.extra.word = 0xeeee;
        } else if (hdr.data.op == 0x09 && again) {              // recirculated
            meta.second = meta.first;
            std.egress_spec = 4;
            hdr.data.op = 0x0f;
        } else if (hdr.data.op == 0x10) {                       // indexes: 0 to 3 are there
            cells.write((bit<32>) hdr.data.arg, 0x55);
            cells.read(got, (bit<32>) hdr.data.arg);
            counts.count((bit<32>) hdr.data.arg);
            hdr.data.rid = got;
        } else if (hdr.data.op == 0x11) {
            meters.execute_meter((bit<32>) hdr.data.arg, got);
            hdr.data.rid = got;
        } else if (hdr.data.op == 0x12) {                       // an empty range, and one of one number
            bit<8> one;
            random(one, 9, hdr.data.arg);
            hdr.data.rid = one;
        } else if (hdr.data.op == 0x13) {                       // base + hash % max; max 0: base
            hash(got, HashAlgorithm.identity, 8w7, { 8w13 }, hdr.data.arg);
            hdr.data.rid = got;
        } else if (hdr.data.op == 0x14) {
            std.egress_spec = (bit<9>) hdr.data.arg;
            std.priority = 7;
            exit;
        }
        if (std.parser_error != error.NoError) {
            hdr.data.fault = 2;
        } else {
            hdr.data.fault = (bit<8>) std.checksum_error;
        }
        meta.second = meta.second + 1;
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        hdr.data.type = (bit<8>) std.instance_type;
        hdr.data.port = (bit<8>) std.egress_port;
        hdr.data.spec = (bit<8>) std.egress_spec;
        hdr.data.group = (bit<8>) std.mcast_grp;
        hdr.data.length = (bit<8>) std.packet_length;
        hdr.data.meta = meta.first ^ meta.second ^ meta.third;
        if (hdr.data.op < 0x10) {
            hdr.data.rid = (bit<8>) std.egress_rid;
        }
        std.egress_port = 9;                                    // says nothing either
        std.egress_spec = 8;
        if (hdr.data.op == 0x09 && std.instance_type == 0) {
            meta.first = 0x21;
            recirculate_preserving_field_list(1);
        } else if (hdr.data.op == 0x0a) {                       // drop takes recirculate away
            recirculate_preserving_field_list(1);
            mark_to_drop(std);
        } else if (hdr.data.op == 0x0b) {                       // set again: sent
            mark_to_drop(std);
            std.egress_spec = 1;
        } else if (hdr.data.op == 0x0c && std.instance_type == 0) {
            hdr.extra.setValid();
            hdr.extra.word = 0xdddd;
            clone(CloneType.E2E, 5);                            // with the header, and what follows
            hdr.extra.last = 1;
            std.egress_spec = 511;
        }
    }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
