"""P4Info beside what p4c's own tests publish (testdata/p4_16_samples_outputs).

Ids and forms that clients rely on.
"""

from __future__ import annotations

from functools import lru_cache

import pytest
from finsy.proto import p4i, p4r
from google.protobuf import text_format

from mrc_testbed.switch.compiler import CompiledProgram, P4Error, compile_program
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import ActionCall, FieldMatch, TableEntry, TableError
from mrc_testbed.switch.server.p4runtime.pipeline import first_difference

TEXT = """
#include <core.p4>
#include <v1model.p4>
enum bit<16> kind_t { A = 1, B = 0x203 }
enum plain_t { X, Y }
@p4runtime_translation("here/port", bit<32>) type bit<9> port_t;
@p4runtime_translation("here/name", string) type bit<9> name_t;
@foo("x") type int<7> signed_t;
@controller_header("packet_in")
header in_t { port_t port; name_t name; @hidden bit<6> pad; }
@controller_header("packet_out")
header out_t { name_t name; bit<7> rest; }
header h_t { bit<32> a; kind_t kind; port_t port; name_t name; bit<14> z; }
struct headers_t { in_t i; out_t o; h_t h; }
struct metadata_t { signed_t s; }
struct member_t { @id(7) @match(ternary) @brief("the address") bit<32> a; bit<8> b; }
parser P(packet_in b, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    value_set<member_t>(4) members;
    state start {
        b.extract(h.h);
        transition select(h.h.a, h.h.a[7:0]) { members: accept; default: accept; }
    }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control IngressI(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<kind_t>(2) kinds;
    register<signed_t>(2) signeds;
    register<bool>(2) flags;
    action drop() { mark_to_drop(s); }
    action add(bit<32> va, bit<32> vb) { h.h.a = va + vb; }
    action send(port_t port, name_t name, kind_t kind, @brief("one of two") plain_t plain) {
        s.egress_spec = (bit<9>)port; h.h.name = name; h.h.kind = kind;
        if (plain == plain_t.Y) { h.h.z = 1; }
    }
    @id(0xABCDEF) @Empty[] @Mixed[1, "hello", true, 1 == 2, 5 + 6] @Pairs[label = "text", yes = true, n = 2 * 3]
    @brief("what it is") @description("more")
    table t1 {
        key = { h.h.kind : exact; h.h.port : exact @brief("where"); h.h.name : ternary; }
        actions = { @brief("dropped") send; add; @defaultonly drop; }
        const default_action = drop();
    }
    table t2 { key = { h.h.a : exact; } actions = { add; } default_action = add(10, 0); size = 7; }
    @max_group_size(200) @selector_size_semantics("sum_of_members") @max_member_weight(4000)
    action_selector(HashAlgorithm.crc16, 1024, 16) ap_ws;
    action_profile(128) ap;
    table indirect { key = { h.h.a : exact; } actions = { drop; NoAction; } const default_action = NoAction();
                     implementation = ap; }
    table indirect_ws { key = { h.h.a : exact; h.h.z : selector; } actions = { drop; NoAction; }
                        const default_action = NoAction(); implementation = ap_ws; }
    apply { t1.apply(); t2.apply(); indirect.apply(); indirect_ws.apply(); kinds.write(0, h.h.kind);
            flags.write(0, true); signeds.write(0, m.s); }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control D(packet_out b, in headers_t h) { apply { b.emit(h.h); } }
@pkginfo(name = "n", organization = "o") @platform_property(multicast_group_table_size = 5) @brief("the program") @other
V1Switch(P(), V(), IngressI(), E(), V(), D()) main;
"""


@lru_cache(maxsize=1)
def program() -> CompiledProgram:
    return compile_program(TEXT)


def object_of(messages, alias: str):
    return next(message for message in messages if message.preamble.alias == alias)


def text(message) -> str:
    return text_format.MessageToString(message, as_one_line=True)


def test_ids__of_names_that_p4c_publishes():
    info = program().p4info
    ids = {table.preamble.name: table.preamble.id for table in (*info.tables, *info.actions, *info.action_profiles)}
    assert ids["IngressI.indirect"] == 46872340 and ids["IngressI.indirect_ws"] == 38116258
    assert ids["IngressI.ap"] == 289199568 and ids["IngressI.ap_ws"] == 285903678
    assert ids["NoAction"] == 21257015 and ids["IngressI.drop"] == 23455883
    assert ids["IngressI.t1"] == 0x02ABCDEF


def test_default_actions__const_in_both_places_and_arguments_of_full_width():
    info = program().p4info
    drop, add = (object_of(info.actions, alias).preamble.id for alias in ("drop", "add"))
    first, second = object_of(info.tables, "t1"), object_of(info.tables, "t2")
    assert (first.const_default_action_id, first.initial_default_action.action_id) == (drop, drop)
    assert (second.const_default_action_id, second.initial_default_action.action_id) == (0, add)
    assert [argument.value for argument in second.initial_default_action.arguments] == [b"\0\0\0\n", bytes(4)]
    assert (first.size, second.size) == (1024, 7)


def test_selector__size_semantics():
    info = program().p4info
    assert text(object_of(info.action_profiles, "ap")).endswith("table_ids: 46872340 size: 128")
    assert text(object_of(info.action_profiles, "ap_ws")) == (
        'preamble { id: 285903678 name: "IngressI.ap_ws" alias: "ap_ws" } table_ids: 38116258 with_selector: true '
        "size: 1024 max_group_size: 200 sum_of_members { max_member_weight: 4000 }"
    )


def test_types__translated_serializable_and_plain():
    info = program().p4info
    kinds = info.type_info.serializable_enums["kind_t"]
    assert [(member.name, member.value) for member in kinds.members] == [("A", b"\0\1"), ("B", b"\2\3")]
    assert text(info.type_info.new_types["port_t"]) == 'translated_type { uri: "here/port" sdn_bitwidth: 32 }'
    assert text(info.type_info.new_types["name_t"]) == 'translated_type { uri: "here/name" sdn_string { } }'
    assert text(info.type_info.new_types["signed_t"]) == (
        'original_type { bitstring { int { bitwidth: 7 } } } annotations: "@foo(\\"x\\")"'
    )
    fields = [
        (match_field.bitwidth, match_field.type_name.name) for match_field in object_of(info.tables, "t1").match_fields
    ]
    assert fields == [(16, ""), (32, "port_t"), (0, "name_t")]
    params = [(param.bitwidth, param.type_name.name) for param in object_of(info.actions, "send").params]
    assert params == [(32, "port_t"), (0, "name_t"), (16, ""), (0, "plain_t")]
    assert [member.name for member in info.type_info.enums["plain_t"].members] == ["X", "Y"]
    specs = {register.preamble.alias: text(register.type_spec) for register in info.registers}
    assert specs == {
        "kinds": 'serializable_enum { name: "kind_t" }',
        "signeds": 'new_type { name: "signed_t" }',
        "flags": "bool { }",
    }


def test_notes__structured_documentation_package():
    info = program().p4info
    table = object_of(info.tables, "t1")
    empty_note, mixed_note, pair_note = table.preamble.structured_annotations
    assert text(empty_note) == 'name: "Empty"'
    kinds = [expression.WhichOneof("value") for expression in mixed_note.expression_list.expressions]
    assert kinds == ["int64_value", "string_value", "bool_value", "bool_value", "int64_value"]
    assert mixed_note.expression_list.expressions[4].int64_value == 11
    assert not mixed_note.expression_list.expressions[3].bool_value
    assert [pair.key for pair in pair_note.kv_pair_list.kv_pairs] == ["label", "yes", "n"]
    assert pair_note.kv_pair_list.kv_pairs[2].value.int64_value == 6
    assert (table.preamble.doc.brief, table.preamble.doc.description) == ("what it is", "more")
    assert table.match_fields[1].doc.brief == "where" and not table.action_refs[0].annotations
    assert object_of(info.actions, "send").params[3].doc.brief == "one of two"
    assert text(info.pkg_info) == (
        'name: "n" doc { brief: "the program" } annotations: "@other" arch: "v1model" organization: "o" '
        "platform_properties { multicast_group_table_size: 5 }"
    )
    (value_set,) = info.value_sets
    assert [(field.id, field.name, field.match_type) for field in value_set.match] == [(7, "a", 4), (2, "b", 2)]
    assert value_set.match[0].doc.brief == "the address" and not value_set.match[0].annotations
    assert [field.name for field in info.controller_packet_metadata[0].metadata] == ["port", "name"]


@pytest.mark.parametrize(
    ("original", "replacement", "words"),
    [
        ("@Empty[]", "@Empty[a]", "want a string, true or false"),
        ("@Empty[]", "@Empty[a = 1, 2]", "not of both"),
        ("@Empty[]", "@Empty[9223372036854775808]", "64 bits"),
        ('"sum_of_members"', '"sum"', "sum_of_weights"),
        ("multicast_group_table_size", "nothing", "want NUMBERs for multicast_group_table_size"),
    ],
)
def test_bad_notes__are_refused(original, replacement, words):
    with pytest.raises(P4Error, match=words):
        compile_program(TEXT.replace(original, replacement))


def test_translated_values__are_numbers_that_must_fit_or_decimal_text():
    device, info = P4Device(1), program().p4info
    device.load(program())
    table, send = object_of(info.tables, "t1"), object_of(info.actions, "send")

    def entry(port: bytes, name: bytes) -> TableEntry:
        values = enumerate((port, name, b"\1", b"\1"), 1)
        match = FieldMatch.exact(1, b"\1"), FieldMatch.exact(2, port), FieldMatch.ternary(3, name, b"\1\xff")
        return TableEntry(table.preamble.id, match, ActionCall(send.preamble.id, tuple(values)), 1)

    device.insert(entry(b"\0\0\1\0", b"17"))
    (read_entry,) = device.read(table.preamble.id)
    assert read_entry == entry(b"\1\0", b"17")
    frame = bytes(4) + b"\0\1" + (256 << 23 | 17 << 14).to_bytes(4, "big")
    assert [port for port, _ in device.process(1, frame)] == [256]
    for port, name, code in (
        (b"\2\0", b"17", "OUT_OF_RANGE"),
        (b"\1", b"512", "OUT_OF_RANGE"),
        (b"\1", b"eth0", "INVALID_ARGUMENT"),
        (b"\1", b"017", "INVALID_ARGUMENT"),
    ):
        with pytest.raises(TableError) as caught:
            device.insert(entry(port, name))
        assert caught.value.code == code


def test_translated_values__in_packet_ins_and_outs():
    from mrc_testbed.switch.server.p4runtime.packetio import packet_in_message, packet_out_frame

    device, info = P4Device(1), program().p4info
    device.load(program())
    widths = device.schema.type_bits
    assert widths == {"port_t": 9, "name_t": 9}
    packet_out = p4r.PacketOut(payload=b"x")
    packet_out.metadata.add(metadata_id=1, value=b"17")
    packet_out.metadata.add(metadata_id=2, value=b"\5")
    assert packet_out_frame(info, widths, packet_out) == (17 << 7 | 5).to_bytes(2, "big") + b"x"
    packet_in = packet_in_message(info, widths, (3 << 15 | 4 << 6).to_bytes(3, "big") + b"y").packet
    assert [metadata.value for metadata in packet_in.metadata] == [b"\3", b"4"] and packet_in.payload == b"y"


def test_comparison__leaves_out_what_no_entry_depends_on():
    info = program().p4info
    other_info = p4i.P4Info.FromString(info.SerializeToString())
    other_info.pkg_info.arch = "v1"
    other_info.actions[0].preamble.annotations.append("@corelib")
    other_info.tables[1].ClearField("initial_default_action")
    other_info.tables[0].preamble.ClearField("doc")
    assert first_difference(other_info, info) is None
    other_info.tables[1].size = 8
    assert "size" in first_difference(other_info, info)
