// Parameters of apply() that are numbers known at compile time, beside those of the constructor; and digests of types
// that only copies have: of generic controls and functions, of values, of numbers.
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> a; bit<8> b; bit<8> c; bit<8> d; }
struct learn_t { bit<8> x; }
struct count_t { bit<8> n; bit<16> m; }
struct headers_t { data_t data; }
struct metadata_t { }

parser Read(packet_in b, out headers_t hdr, int n)(bit<8> m) {
    state start {
        b.extract(hdr.data);
        hdr.data.d = hdr.data.d + n + m;
        transition accept;
    }
}
parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    Read(7) read;
    state start { read.apply(b, hdr, 16); transition accept; }
}

control Scale(inout bit<8> x, int n)(bit<8> m) {
    apply { x = x + n * m; }
}
control Outer(inout bit<8> x, int n)(bit<8> m) {
    Scale(m + 1) scale;
    apply { scale.apply(x, n + 1); }
}
control Learn<T>(in T what) {
    apply { digest(1, what); }
}
control Count(in bit<8> n)(bit<16> m) {
    apply { digest<count_t>(1, { n, m }); }
}
control Three(in bit<8> n, int m) {
    apply { digest(1, { n, (bit<8>)m, n }); }
}
void tell<T>(in T x) { digest<tuple<T, bit<16>>>(1, { x, 7 }); }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    Scale(3) scale;
    Scale(3) again;
    Scale(5) other;
    Outer(4) outer;
    Learn<learn_t>() learn;
    Count(0x1234) count;
    Three() three;
    apply {
        std.egress_spec = 1;
        scale.apply(hdr.data.a, 2);
        again.apply(hdr.data.a, 8);
        other.apply(hdr.data.b, 2);
        outer.apply(hdr.data.c, 9);
        if (hdr.data.d == 0x18) { learn_t seen = { hdr.data.a }; learn.apply(seen); }
        if (hdr.data.d == 0x19) { count.apply(hdr.data.a); }
        if (hdr.data.d == 0x1a) { three.apply(hdr.data.b, 5); }
        if (hdr.data.d == 0x1b) { tell(hdr.data.a); }
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
