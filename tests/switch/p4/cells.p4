// Not for BMv2: simple_switch ends at a write beyond a register, and its random() knows 64 bits.
// Cells of any width: registers of more than 128 bits, and results of meters, hashes and random numbers in other types.
#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

enum Colour { green, yellow, red }
enum bit<8> Level { none = 0, some = 1, all = 2 }
type bit<300> long_t;
typedef bit<8> octet;

header x_t {
    bit<8> op;
    bit<8> index;
    bit<8> value;
}

struct headers {
    x_t x;
}

struct metadata {
    Colour   colour;
    Level    level;
    bit<200> far;
    bit<512> halves;
    long_t   longer;
}

parser P(packet_in pk, out headers h, inout metadata m, inout standard_metadata_t s) {
    state start {
        pk.extract(h.x);
        transition accept;
    }
}

control V(inout headers h, inout metadata m) { apply { } }

control I(inout headers h, inout metadata m, inout standard_metadata_t s) {
    register<bit<256>, octet>(4) wide;
    register<int<192>, bit<200>>(2) negative;
    register<long_t, bit<8>>(2) longs;
    register<Level, bit<8>>(2) levels;
    meter<bit<140>>(4, MeterType.packets) metered;
    counter<bit<140>>(4, CounterType.packets) seen;
    direct_meter<Colour>(MeterType.bytes) direct;
    action go() { direct.read(m.colour); }
    @hidden action quiet() { h.x.value = h.x.value + 1; }
    table t {
        key = { h.x.index : exact; }
        actions = { go; }
        meters = direct;
        default_action = go();
    }
    @hidden table unseen {
        key = { h.x.op : exact; }
        actions = { quiet; }
        const entries = { 7 : quiet(); }
    }
    apply {
        s.egress_spec = 2;
        bit<256> v = 0;
        int<192> n = 0;
        m.far = (bit<200>) h.x.index;
        if (h.x.op == 1) {
            wide.read(v, h.x.index);
            v = v + (256w1 << 250) + (bit<256>) h.x.value;
            wide.write(h.x.index, v);
            h.x.value = v[7:0];
        } else if (h.x.op == 2) {
            negative.read(n, m.far);
            negative.write(m.far, n - 1);
            wide.read(m.halves[511:256], 0);
            wide.write(3, m.halves[511:256] ^ 1);
            h.x.value = (bit<8>) (m.halves[511:504]);
        } else if (h.x.op == 3) {
            t.apply();
            metered.execute_meter<Level>((bit<140>) h.x.index, m.level);
            metered.execute_meter(140w1, m.far);
            seen.count((bit<140>) h.x.index);
            h.x.value = m.colour == Colour.green && m.level == Level.none && m.far == 0 ? 8w1 : 8w0;
        } else if (h.x.op == 4) {
            hash(m.level, HashAlgorithm.identity, 8w1, { 4w0, 4w1 }, 8w2);
            random(m.colour, Colour.red, Colour.red);
            h.x.value = m.level == Level.all && m.colour == Colour.red ? 8w1 : 8w0;
            hash(m.halves, HashAlgorithm.identity, 8w0, { h.x.index }, 16w256);
            h.x.index = m.halves[7:0] + 1;
            levels.write(1, m.level);
        } else if (h.x.op == 5) {
            longs.read(m.longer, 1);
            longs.write(0, m.longer);
            levels.read(m.level, h.x.index);
            h.x.value = m.level;
        } else if (h.x.op == 6) {
            bit<128> full;
            random(full, 1, 128w1 << 127);
            random(m.longer, (long_t) 300w9, (long_t) 300w11);
            h.x.index = ((bit<300>) m.longer)[7:0];
            h.x.value = full >= 1 && full <= 128w1 << 127 && h.x.index >= 9 && h.x.index <= 11 ? 8w1 : 8w0;
        }
        unseen.apply();
    }
}

control E(inout headers h, inout metadata m, inout standard_metadata_t s) { apply { } }
control C(inout headers h, inout metadata m) { apply { } }
control D(packet_out pk, in headers h) { apply { pk.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
