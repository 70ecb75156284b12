// SRv6 transit for T0 and T1 (mrc-protocol §8.1): the sender chose the whole path; the switch spends its own uSID
// and sends the packet to the neighbour that owns the next one (uN) or to the neighbour that its own uSID names (uA).
//
// Tables are written once and never change. There is no hash and no second choice: a switch that reroutes would
// hide the failure from the requestor, who is the one to act on it (§8.6).

#include <core.p4>
#include <v1model.p4>

#include "headers.p4"
#include "parser.p4"
#include "ingress.p4"
#include "egress.p4"

const bit<32> MY_USID_SIZE = 1024;       // one uN a switch, and one uA for each of its ports
const bit<32> USID_NEXT_SIZE = 1024;     // neighbours of one switch

// A carrier is spent when our uSID was its last one. The path goes on in the next segment of the SRH, from the highest
// index down (RFC 8754 §4.3.1.1, RFC 9800 §4.1); the first uSID there is the neighbour's.
control NextCarrier(inout headers_t hdr, inout metadata_t meta) {
    apply {
        bit<8> left = hdr.srh.segments_left - 1;
        if (!hdr.segment0.isValid() || left > hdr.srh.last_entry) {
            meta.drop_reason = drop_reason_t.BAD_SRH;
        } else {
            hdr.srh.segments_left = left;
            if (left == 0) {
                hdr.outer.dst_addr = hdr.segment0.address;
            } else if (left == 1) {
                hdr.outer.dst_addr = hdr.segment1.address;
            } else if (left == 2) {
                hdr.outer.dst_addr = hdr.segment2.address;
            } else {
                hdr.outer.dst_addr = hdr.segment3.address;
            }
        }
    }
}

control UsidTransit(inout headers_t hdr,
                    inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    NextCarrier() next_carrier;

    bit<1> by_adjacency = 0;

    // uN: drop our uSID from the list by shifting the rest left; 0x0000 fills up from the right and ends it.
    action shift() {
        hdr.outer.dst_addr = hdr.outer.dst_addr[127:96] ++ hdr.outer.dst_addr[79:0] ++ 16w0;
    }

    // uA: the same, and the uSID itself says by which port the packet leaves.
    action shift_and_forward(port_t port) {
        hdr.outer.dst_addr = hdr.outer.dst_addr[127:96] ++ hdr.outer.dst_addr[79:0] ++ 16w0;
        standard_metadata.egress_spec = port;
        by_adjacency = 1;
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
            shift_and_forward;
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
        bit<1> spent = 0;
        if (hdr.srh.isValid() && hdr.srh.segments_left != 0 && hdr.outer.dst_addr[79:0] == 0) {
            spent = 1;
        }
        if (my_usid.apply().hit) {
            if (spent == 1) {
                next_carrier.apply(hdr, meta);
            }
            if (by_adjacency == 0 && meta.drop_reason == drop_reason_t.NONE) {
                usid_next.apply();
            }
        }
    }
}

control SwitchIngress(inout headers_t hdr,
                      inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    Admit()          admit;
    UsidTransit()    transit;
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
                transit.apply(hdr, meta, standard_metadata);
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
