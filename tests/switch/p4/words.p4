// Not for BMv2: p4c has no for-in loops for it, and no blocks in parsers.
// Notes behind #, comparisons of names that are types elsewhere, sizes of types and values, annotations.
#include <core.p4>
#include <v1model.p4>

# a note, which cpp does not know and p4c's lexer skips; don't "stop" here
  #another note

typedef bit<8> octet;
enum bit<8> Kind { low = 3, high = 200 }

header x_t {
    bit<8> a;
    bit<8> b;
    bit<8> c;
    bit<8> d;
}

header option_t {
    bit<8>       len;
    varbit<12000> rest;
}

header_union either_t {
    x_t      x;
    option_t option;
}

struct pair_t {
    bit<3>               first;
    bool                 second;
    tuple<bit<4>, bit<8>> third;
}

struct headers {
    x_t      x;
    x_t      packet_in;
    either_t either;
}

struct metadata {
    bit<8>  counter;
    bit<8>  meter;
    bit<8>  register;
    bit<8>  digest;
    bit<8>  key;
    bit<16> type;
}

const bit<16> HEADS = x_t.minSizeInBits() / 8 + 1;
const int OPTION = option_t.maxSizeInBytes() - option_t.minSizeInBytes();

parser P(packet_in pk, out headers h, inout metadata m, inout standard_metadata_t s) {
    state start {
        pk.extract(h.x);
        m.counter = h.x.a;
        m.meter = h.x.b;
        transition select(pk.lookahead<bit<(4 + 4)>>() < 8) {
            true: more;
            default: accept;
        }
    }
    state more {
        @unroll {
            pk.extract(h.packet_in);
        }
        transition accept;
    }
}

control V(inout headers h, inout metadata m) { apply { } }

control I(inout headers h, inout metadata m, inout standard_metadata_t s) {
    @name("pick") action choose(@low bool lo, @high bool hi) @inline { h.x.c = lo ? 8w1 : (hi ? 8w2 : 8w3); }
    apply {
        s.egress_spec = 2;
        choose(m.counter < m.meter, m.meter > (m.counter));
        m.register = h.x.a;
        if (m.register < Kind.high && h.x.b > (m.register)) {
            h.x.d = h.x.d + 1;
        }
        if (h.packet_in.isValid()) {
            bit<8> hash = h.packet_in.a;
            if (hash < h.packet_in.b) {
                h.packet_in.d = octet.minSizeInBits() + (bit<8>) pair_t.maxSizeInBits();
                h.packet_in.c = (bit<8>) (OPTION / 100) + (bit<8>) h.x.minSizeInBytes() + HEADS[7:0];
            }
            m.type = (bit<16>) h.either.maxSizeInBytes();
        }
        h.x.minSizeInBits();
        for (@loop bit<8> i in 0 .. 1) @inner {
            h.x.a = h.x.a + i;
        }
        for (@from bit<8> i = 0, @to bit<8> key = 2; i < key; i = i + 1) {
            h.x.b = h.x.b + 1;
        }
    }
}

control E(inout headers h, inout metadata m, inout standard_metadata_t s) { apply { } }
control C(inout headers h, inout metadata m) { apply { } }
control D(packet_out pk, in headers h) { apply { pk.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
