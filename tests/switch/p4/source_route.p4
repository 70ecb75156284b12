// The sender writes the path: a stack of ports, one taken at each hop. Then plain IPv4 by longest prefix.
#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_IPV4 = 0x800;
const bit<16> TYPE_ROUTE = 0x1234;

typedef bit<9> port_t;
typedef bit<48> mac_t;

header ethernet_t { mac_t dst; mac_t src; bit<16> kind; }
header hop_t { bit<1> last; bit<15> port; }
header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  diffserv;
    bit<16> total_len;
    bit<16> id;
    bit<3>  flags;
    bit<13> frag;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

struct metadata { }
struct headers { ethernet_t ethernet; hop_t[4] hops; ipv4_t ipv4; }

error { NoHopIsLast }

parser ParserImpl(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            TYPE_ROUTE: hop;
            TYPE_IPV4:  ipv4;
            default:    accept;
        }
    }
    state hop {
        packet.extract(hdr.hops.next);
        transition select(hdr.hops.last.last) {
            1:       ipv4;
            default: hop;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.version == 4, error.NoHopIsLast);
        transition accept;
    }
}

control VerifyImpl(inout headers hdr, inout metadata meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.total_len, hdr.ipv4.id, hdr.ipv4.flags,
              hdr.ipv4.frag, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control IngressImpl(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets) routed;

    action drop() { mark_to_drop(standard_metadata); }

    action last_hop() { hdr.ethernet.kind = TYPE_IPV4; }

    action by_route() {
        standard_metadata.egress_spec = (port_t) hdr.hops[0].port;
        hdr.hops.pop_front(1);
    }

    action forward(mac_t dst, port_t port) {
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = dst;
        standard_metadata.egress_spec = port;
    }

    table ipv4_lpm {
        key = { hdr.ipv4.dst : lpm; }
        actions = { forward; drop; NoAction; }
        counters = routed;
        default_action = drop();
    }

    apply {
        if (standard_metadata.parser_error != error.NoError || standard_metadata.checksum_error == 1) {
            drop();
            return;
        }
        if (hdr.hops[0].isValid()) {
            if (hdr.hops[0].last == 1) { last_hop(); }
            by_route();
        } else if (hdr.ipv4.isValid()) {
            ipv4_lpm.apply();
        } else {
            drop();
        }
        if (hdr.ipv4.isValid()) { hdr.ipv4.ttl = hdr.ipv4.ttl - 1; }
    }
}

control EgressImpl(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) { apply { } }

control ComputeImpl(inout headers hdr, inout metadata meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.total_len, hdr.ipv4.id, hdr.ipv4.flags,
              hdr.ipv4.frag, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control DeparserImpl(packet_out packet, in headers hdr) {
    apply { packet.emit(hdr); }
}

V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), ComputeImpl(), DeparserImpl()) main;
