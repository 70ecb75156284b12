// Parser, deparser and the two empty checksum controls, shared by srv6.p4 and spray.p4.
//
// A packet shorter than the headers it announces reaches the ingress with parser_error set; Admit drops it there. A
// routing header that is no SRH of one to four segments and nothing else ends the parsing: to switches that only shift
// it is payload, and the one that would have to read it drops the packet (srv6.p4).

#ifndef MRC_PARSER_P4
#define MRC_PARSER_P4

parser PacketParser(packet_in packet,
                    out headers_t hdr,
                    inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: parse_packet_out;
            default:  parse_ethernet;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV6: parse_outer;
            default:        accept;
        }
    }

    state parse_outer {
        packet.extract(hdr.outer);
        transition select(hdr.outer.next_header) {
            NEXT_HEADER_IPV6:    parse_inner;
            NEXT_HEADER_UDP:     parse_udp;
            NEXT_HEADER_ROUTING: parse_srh;
            default:             accept;
        }
    }

    state parse_srh {
        packet.extract(hdr.srh);
        transition select(hdr.srh.routing_type, hdr.srh.hdr_ext_len, hdr.srh.last_entry) {
            (ROUTING_TYPE_SRH, 2, 0): parse_segments_1;
            (ROUTING_TYPE_SRH, 4, 1): parse_segments_2;
            (ROUTING_TYPE_SRH, 6, 2): parse_segments_3;
            (ROUTING_TYPE_SRH, 8, 3): parse_segments_4;
            default:                  accept;
        }
    }

    state parse_segments_1 {
        packet.extract(hdr.segment0);
        transition after_segments;
    }

    state parse_segments_2 {
        packet.extract(hdr.segment0);
        packet.extract(hdr.segment1);
        transition after_segments;
    }

    state parse_segments_3 {
        packet.extract(hdr.segment0);
        packet.extract(hdr.segment1);
        packet.extract(hdr.segment2);
        transition after_segments;
    }

    state parse_segments_4 {
        packet.extract(hdr.segment0);
        packet.extract(hdr.segment1);
        packet.extract(hdr.segment2);
        packet.extract(hdr.segment3);
        transition after_segments;
    }

    state after_segments {
        transition select(hdr.srh.next_header) {
            NEXT_HEADER_IPV6: parse_inner;
            NEXT_HEADER_UDP:  parse_udp;
            default:          accept;
        }
    }

    state parse_inner {
        packet.extract(hdr.inner);
        transition select(hdr.inner.next_header) {
            NEXT_HEADER_UDP: parse_udp;
            default:         accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) {
            UDP_PORT_ROCEV2: parse_bth;
            UDP_PORT_MRC:    parse_bth;
            default:         accept;
        }
    }

    state parse_bth {
        packet.extract(hdr.bth);
        transition accept;
    }
}

// IPv6 has no header checksum and MRC's iCRC is the business of the hosts (§3).
control NoVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control NoComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control PacketDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.outer);
        packet.emit(hdr.srh);
        packet.emit(hdr.segment0);
        packet.emit(hdr.segment1);
        packet.emit(hdr.segment2);
        packet.emit(hdr.segment3);
        packet.emit(hdr.inner);
        packet.emit(hdr.udp);
        packet.emit(hdr.bth);
    }
}

#endif
