// Digests: a struct by name, a list with the type given, a struct with a header in it, a tuple.
#include <core.p4>
#include <v1model.p4>

enum bit<8> kind_t { NONE = 0, HOST = 7 }
type bit<9> port_t;

header data_t {
    bit<8>  op;
    bit<12> a;
    bit<4>  b;
    bit<48> mac;
}

struct headers_t { data_t data; }

@digest_note("kept")
struct learn_t {
    bit<48> mac;
    port_t  port;
    kind_t  kind;
    bool    odd;
}

struct whole_t {
    data_t data;
    bit<48> at;
}

struct metadata_t { learn_t learn; }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { b.extract(hdr.data); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action learn() {
        meta.learn.mac = hdr.data.mac;
        meta.learn.port = (port_t) std.ingress_port;
        meta.learn.kind = kind_t.HOST;
        meta.learn.odd = hdr.data.mac[0:0] == 1;
        digest(1, meta.learn);
    }
    table seen {
        key = { hdr.data.mac : exact; }
        actions = { learn; NoAction; }
        default_action = learn();
    }
    apply {
        std.egress_spec = 1;
        if (hdr.data.op == 1) {
            seen.apply();
        } else if (hdr.data.op == 2) {
            digest<learn_t>(1, { hdr.data.mac, (port_t) 5, kind_t.NONE, true });
        } else if (hdr.data.op == 3) {
            digest<whole_t>(1, { hdr.data, 48w77 });
        } else if (hdr.data.op == 4) {
            digest(1, { hdr.data.a, hdr.data.b });
            mark_to_drop(std);
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
