// Not for BMv2: p4c 1.2.5 does not find a struct that its typedef declares ("Cannot find declaration").
// Names: types hidden by parameters and variables, words of C and of the runtime, states called like types; a table
// applied in the key of another, which may exit; an annotation over several
// lines; a selector key that feeds no selector.
#include <core.p4>
#include <v1model.p4>

header data { bit<8> int_; bit<8> double; bit<8> while; }
struct headers { data data; }
typedef struct inner_s { bit<8> key; bit<8> list; } inner_t;
struct metadata { bit<8> volatile; inner_t type; }
typedef bit<8> byte;
type bit<8> id_t;
const id_t NONE = 0;

parser P(packet_in pkt, out headers headers, inout metadata metadata, inout standard_metadata_t std) {
    bit<8> frame = 3;
    bit<8> at = 4;
    state start {
        pkt.extract(headers.data);
        metadata.volatile = frame + at;
        transition goto;
    }
    state goto { transition select(headers.data.while) { 0: accept; default: data; } }
    state data { metadata.volatile = 1; transition accept; }
}
bit<8> twice(in byte byte) { return byte + byte; }
control I(inout headers headers, inout metadata metadata, inout standard_metadata_t std) {
    bit<8> dev = 1;
    bit<8> p = 2;
    bit<8> result = 3;
    action inline(bit<8> metadata_t) {
        p = p + metadata_t;
        if (metadata_t == 0xff) {
            exit;
        }
    }
    action bump(inout byte change) { change = change + result; }
    @entry_restriction("
        // It's the double that counts.
        double != 0xff;
    ")
    table inner { key = { headers.data.double : exact; metadata.volatile : selector; } actions = { inline; NoAction; } default_action = NoAction(); }
    table outer {
        key = { inner.apply().hit : exact @name("found"); p : exact @name("p"); }
        actions = { inline; NoAction; }
        default_action = NoAction();
    }
    apply {
        std.egress_spec = 1;
        byte memcpy = twice(headers.data.int_);
        bump(headers.data.int_);
        metadata.type = { key = metadata.volatile, list = 0 };
        { bit<8> byte = metadata.type.key; headers.data.while = byte; }
        data data;
        data.int_ = memcpy;
        outer.apply();
        id_t id = NONE;
        if (id != NONE) {
            exit;
        }
        headers.data.double = p + dev + data.int_;
    }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t std) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out b, in headers headers) { apply { b.emit(headers.data); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
