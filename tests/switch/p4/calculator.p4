// A calculator in the switch: the answer goes back where the question came from.
#include <core.p4>
#include <v1model.p4>

enum bit<8> Op { ADD = 0x2b, SUB = 0x2d, AND = 0x26, OR = 0x7c, XOR = 0x5e, SAT = 0x73, SHIFT = 0x3c }

header ethernet_t { bit<48> dst; bit<48> src; bit<16> kind; }
header question_t {
    bit<8>  p;
    bit<8>  four;
    bit<8>  version;
    Op      op;
    bit<32> a;
    bit<32> b;
    bit<32> answer;
}

struct headers { ethernet_t ethernet; question_t question; }
struct metadata { }

parser P(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            0x1234:  look;
            default: accept;
        }
    }
    state look {
        transition select(packet.lookahead<question_t>().p, packet.lookahead<question_t>().four,
                          packet.lookahead<question_t>().version) {
            (0x50, 0x34, 0x01): question;
            default:            accept;
        }
    }
    state question {
        packet.extract(hdr.question);
        transition accept;
    }
}

control V(inout headers hdr, inout metadata meta) { apply { } }

control I(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    action reply(bit<32> answer) {
        bit<48> other = hdr.ethernet.dst;
        hdr.ethernet.dst = hdr.ethernet.src;
        hdr.ethernet.src = other;
        hdr.question.answer = answer;
        std.egress_spec = std.ingress_port;
    }
    action add() { reply(hdr.question.a + hdr.question.b); }
    action subtract() { reply(hdr.question.a - hdr.question.b); }
    action both() { reply(hdr.question.a & hdr.question.b); }
    action either() { reply(hdr.question.a | hdr.question.b); }
    action one() { reply(hdr.question.a ^ hdr.question.b); }
    action saturate() { reply(hdr.question.a |+| hdr.question.b); }
    action shift() { reply(hdr.question.a << (bit<8>) hdr.question.b); }
    action drop() { mark_to_drop(std); }

    table calculate {
        key = { hdr.question.op : exact @name("op"); }
        actions = { add; subtract; both; either; one; saturate; shift; drop; }
        const default_action = drop();
        const entries = {
            Op.ADD:   add();
            Op.SUB:   subtract();
            Op.AND:   both();
            Op.OR:    either();
            Op.XOR:   one();
            Op.SAT:   saturate();
            Op.SHIFT: shift();
        }
    }

    apply {
        if (hdr.question.isValid()) {
            calculate.apply();
        } else {
            drop();
        }
    }
}

control E(inout headers hdr, inout metadata meta, inout standard_metadata_t std) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out packet, in headers hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.question);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
