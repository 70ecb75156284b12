// Destination routing for the modes without SRv6 (mrc-protocol §8.4, §8.5): down by the longest prefix; up, at a T0,
// by any uplink, in one of three ways that the controller sets in `uplink_choice`.
//
// By hash over addresses, ports and flow label: hosts that change the EV (source port and flow label) per packet spray
// over all uplinks, a constant EV makes it classic ECMP. By a field of the EV: the host chose. At random for each packet:
// the switch sprays. The selector's members carry watch ports: a dead uplink leaves hash and lottery at once.

#include <core.p4>
#include <v1model.p4>

#include "headers.p4"
#include "parser.p4"
#include "ingress.p4"
#include "egress.p4"

const bit<32> ROUTE_SIZE = 4096;         // prefixes
const bit<32> UPLINK_GROUPS = 256;       // at most one group per rack that some uplinks cannot reach
const bit<32> UPLINK_MEMBERS = 1024;     // summed over the groups
const bit<32> UPLINKS = 256;             // of one switch, by number

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

    // A CRC is linear: a seed put beside the fields would only renumber the members, and flows that share an uplink
    // here would share one at the next switch too (polarisation). The carries of a product break that.
    action by_hash() {
        meta.entropy = (meta.ev ^ meta.hash_seed) * 32w0x9E3779B1;
    }

    // (EV >> shift) & mask is the uplink's number.
    action by_ev(bit<8> shift, bit<32> mask) {
        meta.by_ev = 1;
        meta.uplink = (meta.ev >> shift) & mask;
    }

    action at_random() {
        random(meta.entropy, 0, 0xFFFFFFFF);
    }

    // How this switch chooses: set as the default action, no entries.
    @name("uplink_choice")
    table uplink_choice {
        actions = {
            by_hash;
            by_ev;
            at_random;
        }
        default_action = by_hash();
    }

    // Clears the group: it has served its purpose.
    action use_uplink(port_t port) {
        standard_metadata.egress_spec = port;
        meta.uplink_group = 0;
    }

    @name("ev_uplinks")
    table ev_uplinks {
        key = {
            meta.uplink : exact @name("uplink");
        }
        actions = {
            use_uplink;
        }
        size = UPLINKS;
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
        meta.ev = hdr.outer.flow_label[15:0] ++ meta.src_port;
        uplink_choice.apply();
        if (meta.by_ev == 1) {
            ev_uplinks.apply();
        } else {
            uplinks.apply();
        }
        // A table with a selector has no default action on BMv2 (p4c ignores one), so the miss is looked at here.
        if (meta.uplink_group != 0) {
            meta.drop_reason = drop_reason_t.NO_UPLINK;
        }
    }
}

control SwitchIngress(inout headers_t hdr,
                      inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    Admit()          admit;
    Routing()        routing;
    UplinkChoice()   choice;
    Liveness()       liveness;
    QueueAdmission() queue;
    Drops()          end;

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
                if (meta.drop_reason == drop_reason_t.NONE) {
                    liveness.apply(meta, standard_metadata);
                }
                if (meta.drop_reason == drop_reason_t.NONE) {
                    queue.apply(hdr, meta, standard_metadata);
                }
            }
            end.apply(hdr, meta, standard_metadata);
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
