// Not for BMv2: p4c's back end has arrays of headers alone
// Arrays of numbers, structs, tuples and arrays: in headers, metadata, locals, parameters; hashed, compared, gone over.
#include <core.p4>
#include <v1model.p4>

const int N = 4;
struct pair_t { bit<8> a; bit<8> b; }
header data_t { bit<8> op; bit<8> at; bit<8>[N] x; bit<4> nibbles[2]; }
struct headers_t { data_t data; data_t again; }
struct metadata_t { bit<16>[N] kept; pair_t[2] pairs; bit<8>[2][3] grid; }

parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.data);
        meta.kept[1] = hdr.data.x[0] ++ hdr.data.x[1];
        transition accept;
    }
}
bit<8> sum(in bit<8>[N] of) {
    bit<8> total = 0;
    for (bit<8> one in of) {
        total = total + one;
    }
    return total;
}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    bit<8>[N] local = { 1, 2, 3, 4 };
    const bit<8>[3] primes = { 2, 3, 5 };
    action rotate(inout bit<8>[N] of) {
        bit<8> first = of[0];
        of[0] = of[1];
        of[1] = of[2];
        of[2] = of[3];
        of[3] = first;
    }
    apply {
        std.egress_spec = 1;
        bit<8> at = hdr.data.at;
        if (hdr.data.op == 1) {                          // known only at run time; beyond the end: nobody's
            hdr.data.x[at] = 0xaa;
            hdr.data.nibbles[at] = 0xb;
        } else if (hdr.data.op == 2) {
            hdr.data.x = local;
            local[at] = 0x55;
            hdr.data.nibbles = { 0xc, local[at][3:0] };
        } else if (hdr.data.op == 3) {
            rotate(hdr.data.x);
        } else if (hdr.data.op == 4) {
            hdr.data.at = sum(hdr.data.x);
            hdr.data.x = { primes[2], primes[0], hdr.data.x[0], hdr.data.x[0] };
        } else if (hdr.data.op == 5) {
            hdr.data.at = hdr.data.x == local ? 8w1 : 0;
        } else if (hdr.data.op == 6) {
            meta.pairs[0] = { 7, hdr.data.x[3] };
            meta.pairs[1] = meta.pairs[0];
            meta.pairs[at].a = meta.pairs[1].b;
            hdr.data.x[0] = meta.pairs[0].a;
            hdr.data.x[1] = meta.pairs[1].a;
            hdr.data.x[2] = meta.kept[1][15:8];
        } else if (hdr.data.op == 7) {
            meta.grid[2][1] = 9;
            meta.grid[at] = { 3, hdr.data.x[1] };
            hdr.data.x = { meta.grid[0][0], meta.grid[1][1], meta.grid[2][0], meta.grid[2][1] };
        } else if (hdr.data.op == 8) {
            hash(hdr.data.at, HashAlgorithm.xor16, 16w0, { hdr.data.x }, 32w256);
        } else if (hdr.data.op == 9) {
            hdr.again = hdr.data;
            hdr.again.x[0] = hdr.data.x[3];
        } else if (hdr.data.op == 10) {
            hdr.data.x[at][7:4] = 0xe;
            hdr.data.at = (bit<8>)hdr.data.x.size;
        }
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
