// Everything P4Info can say of a program that the backend takes: kinds of keys, scopes, ids, annotations, types.
#include <core.p4>
#include <v1model.p4>

@p4runtime_translation("", 9)
type bit<9> port_id_t;
enum bit<8> color_t { RED = 1, GREEN = 2 }

@controller_header("packet_in")
header packet_in_header_t { bit<9> ingress_port; @hint("zero") bit<7> _pad; }
@controller_header("packet_out")
header packet_out_header_t { bit<9> egress_port; bit<7> _pad; }

header data_t { bit<32> a; bit<16> b; bit<8> c; bit<8> d; }
struct headers_t { packet_in_header_t packet_in; packet_out_header_t packet_out; data_t data; }
struct metadata_t { port_id_t port; color_t color; }

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.data);
        transition accept;
    }
}

control VerifyImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }

control Next(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action output_hashed(port_id_t port) { standard_metadata.egress_spec = (bit<9>) port; }
    action nop() { }
    @max_group_size(16)
    action_selector(HashAlgorithm.crc16, 32w1024, 32w16) hashed_selector;
    direct_counter(CounterType.packets) hashed_counter;
    table hashed {
        key = {
            hdr.data.a       : exact @name("next_id");
            hdr.data.b       : selector;
            hdr.data.c       : selector;
        }
        actions = { output_hashed; @defaultonly nop; }
        implementation = hashed_selector;
        counters = hashed_counter;
        const default_action = nop();
    }
    apply { hashed.apply(); }
}

control FabricIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Next() next;
    register<bit<48>>(256) last_seen;
    @id(0x42) action paint(color_t color, @id(7) bit<8> shade) { meta.color = color; hdr.data.d = shade; }
    @brief("Sends away.") @hint("x, y", 3)
    action drop() { mark_to_drop(standard_metadata); }
    @name("acl_table") @id(0x02000099)
    table acl {
        key = {
            hdr.data.isValid()  : exact;
            hdr.data.a          : ternary @format(IPV4_ADDRESS);
            hdr.data.b[15:8]    : range;
            hdr.data.c & 0x0f   : optional @name("low");
            meta.port           : exact;
        }
        actions = { paint; @tableonly drop; }
        default_action = paint(color_t.GREEN, 5);
        size = 77;
    }
    @name(".top") table absolute {
        key = { hdr.data.d : lpm; }
        actions = { drop; }
        const entries = { 1 : drop(); 0x10 &&& 0xf0 : drop(); }
    }
    apply {
        acl.apply();
        next.apply(hdr, meta, standard_metadata);
        absolute.apply();
        last_seen.write(0, standard_metadata.ingress_global_timestamp);
    }
}

control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action drop() { mark_to_drop(standard_metadata); }
    table keyless { actions = { drop; NoAction; } default_action = NoAction; }
    apply { keyless.apply(); }
}
control ComputeImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control DeparserImpl(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

@pkginfo(name = "test.p4", version = "1.2")
V1Switch(p = ParserImpl(), ig = FabricIngress(), vr = VerifyImpl(), eg = EgressImpl(), ck = ComputeImpl(),
         dep = DeparserImpl()) main;
