// The egress discipline, shared by srv6.p4 and spray.p4 (§4.2 to §4.4): which queue a packet joins, which packets are
// trimmed or dropped before that queue is full, and which are marked on the way out.
//
// v1model gives the depth of a queue only in the egress, when it is too late to trim; so the count is kept here.
// queue_depth[port] is the number of packets in the data queue of a port: the ingress adds one for each packet it lets
// into that queue, and the egress overwrites the sum with the depth that the traffic manager saw when a packet of that
// queue left (deq_qdepth: packets still waiting behind it). So a burst between two departures is seen at once.
//
// Why the count cannot stick. What a packet added, its own departure replaces by the truth, the last one of all by 0;
// and a packet that a full queue loses has others before it that depart. That needs a traffic manager that goes on
// serving a port whose link is down (the frames end at the wire), and that only packets which were counted correct the
// count: a control packet overtakes, and another depth is reported with it. What is lost without any departure (a port
// taken away with its queue, no buffer left in the switch) would leave the count high, and nobody would be let in to
// correct it: so when nobody was let in for SCOUT_GAP, the next packet goes in whatever the count says. If the queue is
// really that slow, that is one packet too many in a second.
// Two threads (BMv2) may lose one addition when both write at once; the next departure sets it right.

#ifndef MRC_EGRESS_P4
#define MRC_EGRESS_P4

register<depth_t>(PORTS) queue_depth;
register<bit<48>>(PORTS) last_admission; // microseconds, by egress port

const bit<48> SCOUT_GAP = 1000000;       // microseconds

const bit<32> SRH_LEN = 8;               // before the segments
const bit<32> IPV6_LEN = 40;
const bit<32> IPV4_LEN = 20;
const bit<32> TRIM_COUNTERS = 1024;      // 2 kinds x 512 ports

// In the ingress, when the egress port is known: class, thresholds, trimming.
control QueueAdmission(inout headers_t hdr,
                       inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    // Packets that lost their tail: kind ++ egress port; kind 0 = TRIMMED, 1 = TRIMMED_LASTHOP. Bytes as they came.
    @name("trimmed")
    counter(TRIM_COUNTERS, CounterType.packets_and_bytes) trimmed;

    bit<1>  is_data = 0;                 // class of the packet
    bit<1>  may_trim = 0;
    bit<1>  is_retx = 0;
    depth_t trim_depth = 0;              // of the egress port
    depth_t retx_trim_depth = 0;
    depth_t drop_depth = 0;
    bit<1>  to_nic = 0;
    bit<32> cut = 0;                     // of all ports
    bit<6>  fabric_dscp = 0;
    bit<6>  nic_dscp = 0;
    bit<3>  high_priority = 0;

    // Neither counted, marked nor trimmed. Priority 7 is served first; one between 0 and 7 makes a middle class.
    action control_class(bit<3> priority) {
        standard_metadata.priority = priority;
    }

    // Priority 0, the queue with thresholds.
    action data_class(bit<1> trimmable, bit<1> retransmission) {
        is_data = 1;
        may_trim = trimmable;
        is_retx = retransmission;
    }

    // Codepoints are the operator's (§4.1). One without an entry is data that keeps its tail.
    @name("traffic_class")
    table traffic_class {
        key = {
            hdr.outer.dscp : exact @name("dscp");
        }
        actions = {
            control_class;
            data_class;
        }
        default_action = data_class(0, 0);
        size = 64;
    }

    // Depths in packets; 0 switches a rule off. ecn_slope is 65536 / (ecn_max - ecn_min): P4 cannot divide.
    action set_thresholds(depth_t ecn_min, depth_t ecn_max, bit<32> ecn_slope,
                          depth_t trim_at, depth_t retx_trim_at, depth_t drop_at,
                          bit<1> last_hop, bit<1> last_hop_ecn) {
        meta.ecn_min = ecn_min;
        meta.ecn_max = ecn_max;
        meta.ecn_slope = ecn_slope;
        meta.ecn_allowed = ~last_hop | last_hop_ecn;
        trim_depth = trim_at;
        retx_trim_depth = retx_trim_at;
        drop_depth = drop_at;
        to_nic = last_hop;
    }

    // The role of each egress port and the thresholds of its data queue. A port without an entry has none.
    @name("queue_thresholds")
    table queue_thresholds {
        key = {
            standard_metadata.egress_spec : exact @name("egress_port");
        }
        actions = {
            set_thresholds;
        }
        size = PORTS;
    }

    action set_trimming(bit<16> trim_len, bit<3> priority, bit<6> trimmed_dscp, bit<6> trimmed_lasthop_dscp) {
        cut = (bit<32>) trim_len;
        high_priority = priority;
        fabric_dscp = trimmed_dscp;
        nic_dscp = trimmed_lasthop_dscp;
    }

    // State of the switch: the controller sets the default action and adds no entries. trim_len counts from Ethernet
    // on, without an outer header: 98 keeps everything through a RETH behind a TSETH (§4.3).
    @name("trimming")
    table trimming {
        actions = {
            set_trimming;
        }
        default_action = set_trimming(98, 7, 12, 16);
    }

    apply {
        traffic_class.apply();
        bit<1> has_thresholds = 0;
        if (is_data == 1) {
            if (queue_thresholds.apply().hit) {
                has_thresholds = 1;
            }
        }
        if (has_thresholds == 1) {
            bit<32> port = (bit<32>) standard_metadata.egress_spec;
            bit<1>  cut_off = 0;
            depth_t depth;
            queue_depth.read(depth, port);
            if (is_retx == 1) {
                trim_depth = retx_trim_depth;
            }
            if ((trim_depth != 0 && depth >= trim_depth) || (drop_depth != 0 && depth >= drop_depth)) {
                bit<48> last;
                last_admission.read(last, port);
                if (standard_metadata.ingress_global_timestamp - last >= SCOUT_GAP) {
                    trim_depth = 0;
                    drop_depth = 0;
                }
            }
            if (may_trim == 1 && trim_depth != 0 && depth >= trim_depth) {
                trimming.apply();
                // What stands between Ethernet and the hosts' own IP header is kept too.
                bit<8> next_header = hdr.outer.next_header;
                if (hdr.srh.isValid()) {
                    cut = cut + SRH_LEN + ((bit<32>) hdr.srh.hdr_ext_len << 3);
                    next_header = hdr.srh.next_header;
                }
                if (next_header == NEXT_HEADER_IPV6) {
                    cut = cut + IPV6_LEN;
                } else if (next_header == NEXT_HEADER_IPV4) {
                    cut = cut + IPV4_LEN;
                }
                if (standard_metadata.packet_length > cut) {
                    cut_off = 1;
                }
            }
            if (cut_off == 1) {
                trimmed.count((bit<32>) (to_nic ++ standard_metadata.egress_spec));
                truncate(cut);           // of what is sent in the end; lengths in the headers stay as they were
                standard_metadata.priority = high_priority;
                hdr.outer.dscp = fabric_dscp;
                if (to_nic == 1) {
                    hdr.outer.dscp = nic_dscp;
                }
            } else if (drop_depth != 0 && depth >= drop_depth) {
                meta.drop_reason = drop_reason_t.NOT_TRIMMABLE;
                if (trim_depth == 0) {
                    meta.drop_reason = drop_reason_t.QUEUE;
                }
            } else {
                queue_depth.write(port, depth + 1);
                last_admission.write(port, standard_metadata.ingress_global_timestamp);
                meta.in_data_queue = 1;
            }
        }
    }
}

control EgressDiscipline(inout headers_t hdr,
                         inout metadata_t meta,
                         inout standard_metadata_t standard_metadata) {
    // Everything that leaves, by egress port; packets to the controller count at CPU_PORT.
    @name("forwarded")
    counter(PORTS, CounterType.packets_and_bytes) forwarded;

    // Packets that got the mark CE here, by egress port.
    @name("marked")
    counter(PORTS, CounterType.packets_and_bytes) marked;

    // CE on ECT data: always from ecn_max on; from ecn_min on with a probability that rises along the slope. A step
    // is a ramp whose ends meet.
    action mark() {
        hdr.outer.ecn = ECN_CE;
        marked.count((bit<32>) standard_metadata.egress_port);
    }

    apply {
        if (standard_metadata.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard_metadata.ingress_port;
            hdr.packet_in.pad = 0;
        }
        if (meta.in_data_queue == 1) {
            depth_t depth = standard_metadata.deq_qdepth;
            queue_depth.write((bit<32>) standard_metadata.egress_port, depth);
            if (meta.ecn_allowed == 1 && meta.ecn_max != 0 && depth >= meta.ecn_min
                    && hdr.outer.ecn != ECN_NOT_ECT && hdr.outer.ecn != ECN_CE) {
                if (depth >= meta.ecn_max) {
                    mark();
                } else {
                    bit<32> lot;
                    random(lot, 0, 65535);
                    if (lot < (bit<32>) (depth - meta.ecn_min) * meta.ecn_slope) {
                        mark();
                    }
                }
            }
        }
        forwarded.count((bit<32>) standard_metadata.egress_port);
    }
}

#endif
