// What the ingress of srv6.p4 and spray.p4 have in common: who may pass, and the one place where packets end.

#ifndef MRC_INGRESS_P4
#define MRC_INGRESS_P4

// Looks at everything but the route: broken packets, packets that are not IPv6, the hop limit.
control Admit(inout headers_t hdr,
              inout metadata_t meta,
              inout standard_metadata_t standard_metadata) {
    action to_controller() {
        standard_metadata.egress_spec = CPU_PORT;
    }

    action not_ipv6() {
        meta.drop_reason = drop_reason_t.NOT_IPV6;
    }

    // EtherTypes that the controller wants to see, for instance its own link discovery. Never on the way of IPv6.
    @name("punt")
    table punt {
        key = {
            hdr.ethernet.ether_type : exact @name("ether_type");
        }
        actions = {
            to_controller;
            @defaultonly not_ipv6;
        }
        const default_action = not_ipv6();
        size = 16;
    }

    apply {
        if (standard_metadata.parser_error != error.NoError) {
            meta.drop_reason = drop_reason_t.MALFORMED;
        } else if (!hdr.outer.isValid()) {
            punt.apply();
        } else if (hdr.outer.hop_limit <= 1) {
            meta.drop_reason = drop_reason_t.HOP_LIMIT;
        } else {
            hdr.outer.hop_limit = hdr.outer.hop_limit - 1;
        }
    }
}

// Next hops the controller declared dead. Empty means: all alive, or nobody looks.
control Liveness(inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action dead() {
        meta.drop_reason = drop_reason_t.DEAD_NEXT_HOP;
        meta.dead_port = standard_metadata.egress_spec;
    }

    @name("dead_ports")
    table dead_ports {
        key = {
            standard_metadata.egress_spec : exact @name("egress_port");
        }
        actions = {
            dead;
        }
        size = PORTS;
    }

    apply {
        dead_ports.apply();
    }
}

// When a next hop was last reported, microseconds since the switch started, 0: never. Indexed as the counter `drops`.
register<bit<48>>(DROP_COUNTERS) last_report;

const bit<48> REPORT_GAP = 100000;       // microseconds: at most ten reports a second for each reason and port

// The only place that drops: every packet lost in the ingress is counted once, by reason and port. The first packet that
// meets a next hop that nobody knows, or one declared dead, is reported to the controller. BMv2 reads the fields of a
// digest when the ingress ends, so it may name nothing that changes until then, as mark_to_drop changes egress_spec.
control Drops(inout headers_t hdr,
              inout metadata_t meta,
              inout standard_metadata_t standard_metadata) {
    @name("drops")
    counter(DROP_COUNTERS, CounterType.packets_and_bytes) drops;

    apply {
        if (meta.drop_reason != drop_reason_t.NONE) {
            bit<4> reason = (bit<4>) meta.drop_reason;
            port_t port = standard_metadata.ingress_port;
            if (reason[3:2] == 2) {
                port = standard_metadata.egress_spec;
            }
            bit<32> cell = (bit<32>) (reason ++ port);
            drops.count(cell);
            if (meta.drop_reason == drop_reason_t.UNKNOWN_USID || meta.drop_reason == drop_reason_t.NO_ROUTE
                    || meta.drop_reason == drop_reason_t.NO_UPLINK
                    || meta.drop_reason == drop_reason_t.DEAD_NEXT_HOP) {
                bit<48> now = standard_metadata.ingress_global_timestamp | 1;
                bit<48> last;
                last_report.read(last, cell);
                if (last == 0 || now - last >= REPORT_GAP) {
                    last_report.write(cell, now);
                    digest<next_hop_report>(1, {
                        reason, standard_metadata.ingress_port, meta.dead_port, hdr.outer.dst_addr
                    });
                }
            }
            mark_to_drop(standard_metadata);
        }
    }
}

#endif
