// Destination routing for the modes without SRv6 (mrc-protocol.md §8.4): down by the longest prefix; up, at a T0,
// by any uplink, chosen by a hash over addresses, ports and flow label.
//
// Hosts that change the EV (source port and flow label) per packet spray over all uplinks this way; a constant EV
// makes it classic ECMP. The selector's members carry watch ports: a dead uplink leaves the hash at once.

#include <core.p4>
#include <v1model.p4>

#include "headers.p4"
#include "parser.p4"
#include "ingress.p4"
#include "egress.p4"

const bit<32> ROUTE_SIZE = 4096;         // prefixes
const bit<32> UPLINK_GROUPS = 256;       // at most one group per rack that some uplinks cannot reach
const bit<32> UPLINK_MEMBERS = 1024;     // summed over the groups

control Routing(inout headers_t hdr,
                inout metadata_t meta,
                inout standard_metadata_t standard_metadata) {
    action forward(port_t port) {
        standard_metadata.egress_spec = port;
    }

    action spray(bit<16> uplink_group) {
        meta.uplink_group = uplink_group;
    }

    action no_route() {
        meta.drop_reason = drop_reason_t.NO_ROUTE;
    }

    @name("route")
    table route {
        key = {
            hdr.outer.dst_addr : lpm @name("dst_addr");
        }
        actions = {
            forward;
            spray;
            @defaultonly no_route;
        }
        const default_action = no_route();
        size = ROUTE_SIZE;
    }

    apply {
        route.apply();
    }
}

control UplinkChoice(inout headers_t hdr,
                     inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    action set_hash_seed(bit<32> seed) {
        meta.hash_seed = seed;
    }

    // State of the switch, not of the packet: the controller sets the default action and adds no entries.
    @name("hash_seed")
    table hash_seed {
        actions = {
            set_hash_seed;
        }
        default_action = set_hash_seed(0);
    }

    action use_uplink(port_t port) {
        standard_metadata.egress_spec = port;
    }

    @name("uplink_selector")
    action_selector(HashAlgorithm.crc32, UPLINK_MEMBERS, 32w32) uplink_selector;

    @name("uplinks")
    table uplinks {
        key = {
            meta.uplink_group     : exact @name("uplink_group");
            hdr.outer.src_addr    : selector;
            hdr.outer.dst_addr    : selector;
            hdr.outer.flow_label  : selector;
            hdr.outer.next_header : selector;
            meta.src_port         : selector;
            meta.dst_port         : selector;
            meta.entropy          : selector;
        }
        actions = {
            use_uplink;
        }
        implementation = uplink_selector;
        size = UPLINK_GROUPS;
    }

    apply {
        hash_seed.apply();
        if (hdr.udp.isValid()) {
            meta.src_port = hdr.udp.src_port;
            meta.dst_port = hdr.udp.dst_port;
        }
        // A CRC is linear: a seed put beside the fields would only renumber the members, and flows that share an
        // uplink here would share one at the next switch too (polarisation). The carries of a product break that.
        bit<32> ev = hdr.outer.flow_label[15:0] ++ meta.src_port;
        meta.entropy = (ev ^ meta.hash_seed) * 32w0x9E3779B1;
        // A table with a selector has no default action on BMv2: p4c ignores one. So the miss is looked at here.
        if (!uplinks.apply().hit) {
            meta.drop_reason = drop_reason_t.NO_UPLINK;
        }
    }
}

control SwitchIngress(inout headers_t hdr,
                      inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    Admit()        admit;
    Routing()      routing;
    UplinkChoice() choice;
    Drops()        end;

    apply {
        if (hdr.packet_out.isValid()) {
            standard_metadata.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            admit.apply(hdr, meta, standard_metadata);
            if (hdr.outer.isValid() && meta.drop_reason == drop_reason_t.NONE) {
                routing.apply(hdr, meta, standard_metadata);
                if (meta.uplink_group != 0) {
                    choice.apply(hdr, meta, standard_metadata);
                }
            }
            end.apply(meta, standard_metadata);
        }
    }
}

V1Switch(
    PacketParser(),
    NoVerifyChecksum(),
    SwitchIngress(),
    EgressDiscipline(),
    NoComputeChecksum(),
    PacketDeparser()
) main;
