// The egress discipline, shared by srv6.p4 and spray.p4.

#ifndef MRC_EGRESS_P4
#define MRC_EGRESS_P4

control EgressDiscipline(inout headers_t hdr,
                         inout metadata_t meta,
                         inout standard_metadata_t standard_metadata) {
    // Everything that leaves, by egress port; packets to the controller count at CPU_PORT.
    @name("forwarded")
    counter(PORTS, CounterType.packets_and_bytes) forwarded;

    apply {
        if (standard_metadata.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard_metadata.ingress_port;
            hdr.packet_in.pad = 0;
        }

        // The place of the congestion signals (§4.2 to §4.4), in this order: class by DSCP (strict priority),
        // ECN mark above a queue depth except at the last hop, trimming instead of dropping. Today there is one
        // class and no threshold, so a packet leaves as the ingress made it.

        forwarded.count((bit<32>) standard_metadata.egress_port);
    }
}

#endif
