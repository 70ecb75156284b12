// Tables of every kind and the externs that keep or compute something.
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> which; bit<32> a; bit<16> b; bit<16> sum; bit<64> res; }
struct headers_t { data_t data; }
struct metadata_t { }

register<bit<40>>(4) shared;                  // at the top: ingress and egress see the same cells

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { b.extract(hdr.data); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.data.which == 40, { hdr.data.a, hdr.data.b }, hdr.data.sum, HashAlgorithm.csum16);
    }
}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter(8, CounterType.packets_and_bytes) seen;
    direct_counter(CounterType.packets_and_bytes) per_entry;
    action_profile(4) profile;
    action set(bit<64> value) { hdr.data.res = value; }
    action nothing() { }

    table ternary_one {
        key = { hdr.data.a : ternary; hdr.data.b : ternary; }
        actions = { set; nothing; }
        default_action = nothing();
        counters = per_entry;
    }
    table ranges {
        key = { hdr.data.b : range; hdr.data.a : exact; }
        actions = { set; }
        const entries = {
            (10 .. 20, 1) : set(100);
            (15 .. 30, 1) : set(200);
            (_, 2)        : set(300);
        }
    }
    table longest {
        key = { hdr.data.b : exact; hdr.data.a : lpm; }
        actions = { set; }
        const default_action = set(0xDEAD);
        const entries = {
            (1, 0x0A000000 &&& 0xFF000000) : set(8);
            (1, 0x0A010000 &&& 0xFFFF0000) : set(16);
            (1, _)                         : set(0xFFFF);
        }
    }
    table optional_one {
        key = { hdr.data.b : optional; }
        actions = { set; }
        const default_action = set(1);
    }
    table keyless { actions = { set; } default_action = set(7); }
    table profiled {
        key = { hdr.data.a : exact; }
        actions = { set; nothing; }
        implementation = profile;
        const default_action = nothing();
    }

    apply {
        std.egress_spec = 1;
        seen.count((bit<32>) hdr.data.which & 7);
        bit<40> cell;
        bit<16> h16 = 0;
        bit<32> h32 = 0;
        bit<64> h64 = 0;
        if (hdr.data.which == 1) { ternary_one.apply(); }
        else if (hdr.data.which == 2) { ranges.apply(); }
        else if (hdr.data.which == 3) { longest.apply(); }
        else if (hdr.data.which == 4) { optional_one.apply(); }
        else if (hdr.data.which == 5) { keyless.apply(); }
        else if (hdr.data.which == 6) { profiled.apply(); }
        else if (hdr.data.which == 10) {
            shared.read(cell, hdr.data.a);
            shared.write(hdr.data.a, cell + (bit<40>) hdr.data.b);
            hdr.data.res = (bit<64>) cell;
        }
        else if (hdr.data.which == 20) {
            hash(h16, HashAlgorithm.crc16, 16w0, { hdr.data.a, hdr.data.b }, 32w65536);
            hdr.data.res = (bit<64>) h16;
        } else if (hdr.data.which == 21) {
            hash(h32, HashAlgorithm.crc32, 32w0, { hdr.data.a, hdr.data.b }, 33w0x100000000);
            hdr.data.res = (bit<64>) h32;
        } else if (hdr.data.which == 22) {
            hash(h16, HashAlgorithm.xor16, 16w0, { hdr.data.a, hdr.data.b }, 32w65536);
            hdr.data.res = (bit<64>) h16;
        } else if (hdr.data.which == 23) {
            hash(h64, HashAlgorithm.identity, 64w0, { hdr.data.a[3:0], hdr.data.b[11:0] }, 64w0xFFFFFFFF);
            hdr.data.res = h64;
        } else if (hdr.data.which == 24) {
            hash(h16, HashAlgorithm.crc16, 16w100, { hdr.data.a }, 16w10);
            hdr.data.res = (bit<64>) h16;
        } else if (hdr.data.which == 25) {
            hash(h16, HashAlgorithm.crc16, 16w100, { hdr.data.a }, 16w0);
            hdr.data.res = (bit<64>) h16;
        } else if (hdr.data.which == 30) {
            random(h32, 10, 13);
            hdr.data.res = (bit<64>) h32;
        } else if (hdr.data.which == 32) {
            int<16> n16;
            int<200> n200;
            random(n16, -16s2, 16s1);
            random(n200, -200s2, 200s1);
            hdr.data.res = (bit<64>) ((bit<16>) (n16 + 2) ++ (bit<16>) ((bit<200>) (n200 + 2)));
        } else if (hdr.data.which == 31) {
            truncate(6);
            log_msg("cut {}", { hdr.data.a });
        } else if (hdr.data.which == 40) {
            hdr.data.res = (bit<64>) std.checksum_error;
        } else if (hdr.data.which == 50) {
            std.egress_spec = 3;
            mark_to_drop(std);
        } else if (hdr.data.which == 51) {
            mark_to_drop(std);
            std.egress_spec = 3;
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (hdr.data.which == 11) { shared.write(1, 0xFFFFFFFFFF); }
        if (hdr.data.which == 52) { mark_to_drop(std); }
    }
}
control C(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.data.which == 41, { hdr.data.a, hdr.data.b }, hdr.data.sum, HashAlgorithm.csum16);
    }
}
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr.data); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
