// SRv6 uN transit for T0 and T1 (mrc-protocol.md §8.1): the sender chose the whole path; the switch spends its
// own uSID and sends the packet to the neighbour that owns the next one.
//
// Tables are written once and never change. There is no hash and no second choice: a switch that reroutes would
// hide the failure from the requestor, who is the one to act on it (§8.5).

#include <core.p4>
#include <v1model.p4>

#include "headers.p4"
#include "parser.p4"
#include "ingress.p4"
#include "egress.p4"

const bit<32> MY_USID_SIZE = 16;         // one uSID a switch; room for aliases while renumbering
const bit<32> USID_NEXT_SIZE = 1024;     // neighbours of one switch

control UsidTransit(inout headers_t hdr,
                    inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    // uN: drop our uSID from the list by shifting the rest left; 0x0000 fills up from the right and ends it.
    action shift() {
        hdr.outer.dst_addr = hdr.outer.dst_addr[127:96] ++ hdr.outer.dst_addr[79:0] ++ 16w0;
    }

    action wrong_usid() {
        meta.drop_reason = drop_reason_t.WRONG_USID;
    }

    // Is the packet for us? A wrong plane or a stray packet ends here.
    @name("my_usid")
    table my_usid {
        key = {
            hdr.outer.dst_addr[127:80] : exact @name("locator_usid");
        }
        actions = {
            shift;
            @defaultonly wrong_usid;
        }
        const default_action = wrong_usid();
        size = MY_USID_SIZE;
    }

    action forward(port_t port) {
        standard_metadata.egress_spec = port;
    }

    action unknown_usid() {
        meta.drop_reason = drop_reason_t.UNKNOWN_USID;
    }

    // The /48 of each neighbour. All prefixes have one length, so an exact match says the same as an LPM.
    @name("usid_next")
    table usid_next {
        key = {
            hdr.outer.dst_addr[127:80] : exact @name("locator_usid");
        }
        actions = {
            forward;
            @defaultonly unknown_usid;
        }
        const default_action = unknown_usid();
        size = USID_NEXT_SIZE;
    }

    apply {
        if (my_usid.apply().hit) {
            usid_next.apply();
        }
    }
}

control SwitchIngress(inout headers_t hdr,
                      inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    Admit()       admit;
    UsidTransit() transit;
    Drops()       end;

    apply {
        if (hdr.packet_out.isValid()) {
            standard_metadata.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            admit.apply(hdr, meta, standard_metadata);
            if (hdr.outer.isValid() && meta.drop_reason == drop_reason_t.NONE) {
                transit.apply(hdr, meta, standard_metadata);
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
