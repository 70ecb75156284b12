// Parser, deparser and the two empty checksum controls, shared by srv6.p4 and spray.p4.
//
// A packet shorter than the headers it announces reaches the ingress with parser_error set; Admit drops it there.

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
        packet.emit(hdr.inner);
        packet.emit(hdr.udp);
        packet.emit(hdr.bth);
    }
}

#endif
