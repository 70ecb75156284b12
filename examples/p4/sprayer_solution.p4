// A sprayer: each packet takes the next uplink, and uplinks that lead nowhere are left out (docs/write-a-sprayer.md).

struct metadata_t {
    bit<9>  out_port;
    bit<8>  uplinks;      // uplinks to choose from; 0: the port is known
    bit<8>  uplink;       // number of the one that was chosen
    bit<1>  is_sent;
}

#include "ipv4.p4"

const bit<48> REST_US = 1000000;      // a bad uplink is left alone for a second
const bit<32> UPLINKS = 16;

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<32>>(1) turn;
    register<bit<48>>(UPLINKS) bad_until;      // by uplink: microseconds

    action drop() { mark_to_drop(std); }
    action to_port(port_t port) { meta.out_port = port; }
    action to_uplinks(bit<8> count) { meta.uplinks = count; }

    table route {
        key = { hdr.ipv4.dst : lpm; }
        actions = { to_port; to_uplinks; drop; }
        default_action = drop();
    }

    // Uplinks by number, and the number of an uplink by its port.
    table uplink_port { key = { meta.uplink : exact; } actions = { to_port; } }
    action is_uplink(bit<8> uplink) { meta.uplink = uplink; }
    table uplink_of { key = { std.ingress_port : exact; } actions = { is_uplink; } }

    // Every port has an entry with one member that watches it: without carrier the entry hits and sends nothing.
    action send() { std.egress_spec = meta.out_port; meta.is_sent = 1; }
    @name("port_watch")
    action_selector(HashAlgorithm.crc16, 64, 16) port_watch;
    table live_ports {
        key = { meta.out_port : exact; hdr.ipv4.dst : selector; }
        actions = { send; }
        implementation = port_watch;
    }

    // STEP 1: the next uplink in turn, for each packet. STEP 2: not one that is bad.
    action choose() {
        bit<32> next;
        bit<48> until;
        turn.read(next, 0);
        bit<32> candidate = next % (bit<32>) meta.uplinks;
        bad_until.read(until, candidate);
        for (bit<8> step in 0..14) {
            if (until > std.ingress_global_timestamp && step < meta.uplinks) {
                next = next + 1;
                candidate = next % (bit<32>) meta.uplinks;
                bad_until.read(until, candidate);
            }
        }
        turn.write(0, next + 1);
        meta.uplink = (bit<8>) candidate;
    }

    apply {
        if (!hdr.ipv4.isValid() || hdr.ipv4.ttl < 2) { drop(); return; }
        route.apply();
        if (std.egress_spec == 511) { return; }
        if (meta.uplinks != 0) {
            // STEP 3: it came back from an uplink: the switch there has no way on.
            if (uplink_of.apply().hit) {
                bad_until.write((bit<32>) meta.uplink, std.ingress_global_timestamp + REST_US);
            }
            choose();
            uplink_port.apply();
        }
        live_ports.apply();
        if (meta.is_sent == 1) {
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        } else if (meta.uplinks != 0) {
            // STEP 2: no carrier. The packet goes through the ingress again, and takes the next uplink.
            bad_until.write((bit<32>) meta.uplink, std.ingress_global_timestamp + REST_US);
            resubmit_preserving_field_list(0);
        } else if (uplink_of.apply().miss) {
            // STEP 3: a spine without a way down returns the packet to the leaf, which has other uplinks.
            std.egress_spec = std.ingress_port;
        } else {
            drop();
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }

V1Switch(Headers(), NoCheck(), MyIngress(), MyEgress(), Checksum(), Emit()) main;
