// Flow ECMP, which the sprayer is compared with: all packets of a flow take one uplink, whatever becomes of it.

struct metadata_t {
    bit<9>  out_port;
    bit<8>  uplinks;      // uplinks to choose from; 0: the port is known
    bit<8>  uplink;       // number of the one that was chosen
    bit<1>  is_sent;
}

#include "ipv4.p4"

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
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

    action choose() {
        hash(meta.uplink, HashAlgorithm.crc32, 8w0,
             { hdr.ipv4.src, hdr.ipv4.dst, hdr.ipv4.protocol, hdr.ports.src, hdr.ports.dst }, meta.uplinks);
    }

    apply {
        if (!hdr.ipv4.isValid() || hdr.ipv4.ttl < 2) { drop(); return; }
        route.apply();
        if (std.egress_spec == 511) { return; }
        if (meta.uplinks != 0) {
            uplink_of.apply();
            choose();
            uplink_port.apply();
        }
        live_ports.apply();
        if (meta.is_sent == 1) {
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        } else {
            drop();
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }

V1Switch(Headers(), NoCheck(), MyIngress(), MyEgress(), Checksum(), Emit()) main;
