// Headers, constants and metadata shared by srv6.p4 and spray.p4.
//
// Bit layouts are those of mrc-protocol §1 and §2; DSCP and ECN lie in one octet, split here as RFC 3168 does.

#ifndef MRC_HEADERS_P4
#define MRC_HEADERS_P4

typedef bit<9>   port_t;
typedef bit<48>  mac_t;
typedef bit<128> ipv6_t;
typedef bit<19>  depth_t;                // packets in a queue, as wide as v1model's deq_qdepth

const port_t  CPU_PORT = 510;            // packet-in and packet-out; 511 is v1model's drop port
const bit<32> PORTS = 512;               // v1model numbers ports in 9 bits

const bit<16> ETHERTYPE_IPV6 = 0x86DD;
const bit<8>  NEXT_HEADER_IPV4 = 4;      // IPv4 in IPv6
const bit<8>  NEXT_HEADER_UDP = 17;
const bit<8>  NEXT_HEADER_IPV6 = 41;     // IPv6 in IPv6: the outer header is a uSID carrier (§1.1)
const bit<8>  NEXT_HEADER_ROUTING = 43;
const bit<8>  ROUTING_TYPE_SRH = 4;      // RFC 8754
const bit<16> UDP_PORT_ROCEV2 = 4791;
const bit<16> UDP_PORT_MRC = 4971;       // the same digits transposed; both are in use (§1.3)

const bit<2> ECN_NOT_ECT = 0;
const bit<2> ECN_CE = 3;

// Why a packet was dropped. The counter `drops` is indexed by drop_reason ++ port (reason * 512 + port): the egress
// port for reasons 8 to 11, which a packet meets when its way is known, else the ingress port.
enum bit<4> drop_reason_t {
    NONE         = 0,
    MALFORMED    = 1,    // shorter than the headers it announces
    NOT_IPV6     = 2,    // neither IPv6 nor an EtherType punted to the controller
    HOP_LIMIT    = 3,    // would leave with hop limit 0
    WRONG_USID   = 4,    // srv6.p4: locator + first uSID are not this switch
    UNKNOWN_USID = 5,    // srv6.p4: no neighbour has the uSID after our own
    NO_ROUTE     = 6,    // spray.p4: no prefix covers the destination
    NO_UPLINK    = 7,    // spray.p4: no such group of uplinks, no uplink in it alive, or no uplink of that number
    NOT_TRIMMABLE = 8,   // by egress port: the data queue is full, and this packet may not or cannot be trimmed
    QUEUE         = 9,   // by egress port: the data queue is full, and trimming is off on this port
    DEAD_NEXT_HOP = 10,  // by egress port: the controller knows that nobody is there
    BAD_SRH       = 12   // srv6.p4: the carrier is spent and the routing header is no SRH that we take
}
const bit<32> DROP_COUNTERS = 8192;      // 16 reasons x 512 ports

@controller_header("packet_in")
header packet_in_t {
    port_t ingress_port;
    bit<7> pad;
}

@controller_header("packet_out")
header packet_out_t {
    port_t egress_port;
    bit<7> pad;
}

header ethernet_t {
    mac_t   dst_addr;
    mac_t   src_addr;
    bit<16> ether_type;
}

header ipv6_h {
    bit<4>  version;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<20> flow_label;
    bit<16> payload_len;
    bit<8>  next_header;
    bit<8>  hop_limit;
    ipv6_t  src_addr;
    ipv6_t  dst_addr;
}

// Segment routing header (RFC 8754 §2); the carriers of the segment list (RFC 9800) follow as segment_t, last one first.
header srh_t {
    bit<8>  next_header;
    bit<8>  hdr_ext_len;                 // units of 8 bytes after the first 8: twice the number of segments
    bit<8>  routing_type;
    bit<8>  segments_left;
    bit<8>  last_entry;                  // index of the last segment in the list
    bit<8>  flags;
    bit<16> tag;
}

header segment_t {
    ipv6_t address;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

header bth_t {                           // §2.2
    bit<8>  opcode;
    bit<1>  se;
    bit<1>  m;
    bit<2>  pad;
    bit<4>  tver;
    bit<16> p_key;
    bit<8>  reserved;
    bit<24> dest_qp;
    bit<1>  ack_request;
    bit<1>  reserved2;
    bit<1>  rtx;
    bit<1>  ts;
    bit<4>  reserved3;
    bit<24> psn;
}

// `outer` is the IPv6 header that switches forward on. With SRv6 the packet of the hosts begins at `inner`;
// without, `inner` is absent and `outer` is the hosts' own header.
struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   ethernet;
    ipv6_h       outer;
    srh_t        srh;                    // only for paths that do not fit one carrier
    segment_t    segment0;               // the end of the path
    segment_t    segment1;
    segment_t    segment2;
    segment_t    segment3;
    ipv6_h       inner;
    udp_t        udp;
    bth_t        bth;
}

// Digest: the first packet that met an unknown or dead next hop, at most one per reason, port and REPORT_GAP.
// A digest bears the name of its type.
struct next_hop_report {
    bit<4> reason;                       // drop_reason_t
    port_t ingress_port;
    port_t egress_port;                  // the dead one; 0: none was found
    ipv6_t dst_addr;                     // srv6.p4: the first uSID in it is the one that nobody has, or who is dead
}

struct metadata_t {
    drop_reason_t drop_reason;           // anything but NONE: the packet ends in Drops
    port_t        dead_port;             // whose next hop is dead; 0: none
    bit<1>        in_data_queue;         // counted in queue_depth: the egress must correct the count
    bit<1>        ecn_allowed;           // not at the last hop, unless the entry of the port says so
    depth_t       ecn_min;               // of the egress port, packets; ecn_max 0: no marks
    depth_t       ecn_max;
    bit<32>       ecn_slope;             // 65536 / (ecn_max - ecn_min)
    bit<16>       uplink_group;          // spray.p4: not 0 when any port of this group will do
    bit<32>       hash_seed;             // spray.p4: differs from switch to switch
    bit<16>       src_port;              // spray.p4: UDP ports, 0 in packets that are not UDP
    bit<16>       dst_port;
    bit<32>       ev;                    // spray.p4: layout L of §1.4
    bit<32>       entropy;               // spray.p4: what the choice of an uplink depends on, beside the addresses
    bit<1>        by_ev;                 // spray.p4: the EV names the uplink
    bit<32>       uplink;                // spray.p4: ... by this number
}

#endif
