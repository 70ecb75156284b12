"""P4 programs of the tests of this folder."""

HEAD = """
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> kind; }
struct headers_t { ethernet_t ethernet; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { packet.extract(hdr.ethernet); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); } }
"""
MAC_SWITCH = (
    HEAD
    + """
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() { mark_to_drop(std); }
    action forward(bit<9> port) { std.egress_spec = port; }
    table macs { key = { hdr.ethernet.dst : exact; } actions = { forward; drop; } default_action = drop(); }
    apply { macs.apply(); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
)
COUNTED_MAC_SWITCH = (
    HEAD
    + """
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets) hits;
    counter(4, CounterType.packets) ports;
    action drop() { mark_to_drop(std); }
    action forward(bit<9> port) { std.egress_spec = port; hits.count(); ports.count((bit<32>) port); }
    table macs {
        key = { hdr.ethernet.dst : exact; }
        actions = { forward; drop; }
        default_action = drop();
        counters = hits;
    }
    apply { macs.apply(); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
)
CROSS_WIRE = (
    HEAD
    + """
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { std.egress_spec = 3 - std.ingress_port; }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
)
MACS = {"08:00:00:00:01:11": 1, "08:00:00:00:02:22": 2}


def mac_entries() -> dict:
    """Return the entries of MAC_SWITCH for the two hosts, as a runtime.json has them."""
    return {
        "table_entries": [
            {
                "table": "I.macs",
                "match": {"hdr.ethernet.dst": mac},
                "action_name": "I.forward",
                "action_params": {"port": port},
            }
            for mac, port in MACS.items()
        ]
    }
