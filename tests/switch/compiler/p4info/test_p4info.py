"""P4Info: ids known from p4c's own outputs, and everything else it says of a program."""

from __future__ import annotations

import pytest
from finsy.proto import p4i
from google.protobuf.text_format import MessageToString

from mrc_testbed.switch.compiler import P4Error, compile_program
from mrc_testbed.switch.compiler.p4info.p4info import jenkins_hash
from tests.switch.compiled_programs import P4_FOLDER, compile_named


@pytest.fixture(scope="module")
def tunnel() -> p4i.P4Info:
    return compile_program(P4_FOLDER / "tunnel.p4").p4info


@pytest.fixture(scope="module")
def control() -> p4i.P4Info:
    return compile_program(P4_FOLDER / "controlplane.p4").p4info


def ids(items) -> dict[str, int]:
    return {item.preamble.name: item.preamble.id for item in items}


def test_tunnel__ids_of_p4c(tunnel):
    assert ids(tunnel.tables) == {"MyIngress.ipv4_lpm": 37375156, "MyIngress.myTunnel_exact": 35862311}
    assert ids(tunnel.actions) == {
        "NoAction": 21257015,
        "MyIngress.drop": 25652968,
        "MyIngress.ipv4_forward": 28792405,
        "MyIngress.myTunnel_ingress": 24181246,
        "MyIngress.myTunnel_forward": 27454791,
        "MyIngress.myTunnel_egress": 33029817,
    }
    assert ids(tunnel.counters) == {
        "MyIngress.ingressTunnelCounter": 315557958,
        "MyIngress.egressTunnelCounter": 312374841,
    }


def test_tunnel__order_sizes_and_what_is_left_out(tunnel):
    """NoAction first; actions in no table and tables never applied are not there (p4c drops them)."""
    assert [action.preamble.alias for action in tunnel.actions][:2] == ["NoAction", "drop"]
    assert "never_applied" not in MessageToString(tunnel)
    table = tunnel.tables[0]
    assert [action_ref.id for action_ref in table.action_refs] == [28792405, 24181246, 25652968, 21257015]
    assert (table.size, table.match_fields[0].name, table.match_fields[0].bitwidth) == (1024, "hdr.ipv4.dstAddr", 32)
    assert table.match_fields[0].match_type == p4i.MatchField.LPM
    assert tunnel.actions[0].preamble.annotations == ['@noWarn("unused")']
    assert tunnel.pkg_info.arch == "v1model" and tunnel.HasField("type_info")


def test_nested__names_ids_and_group_size_as_in_fabric_p4(control):
    """`FabricIngress.next.hashed` and its selector have their ids in p4c's output for fabric.p4."""
    assert ids(control.tables)["FabricIngress.next.hashed"] == 47960972
    (profile,) = control.action_profiles
    assert (profile.preamble.id, profile.preamble.name) == (291115404, "FabricIngress.next.hashed_selector")
    assert (profile.with_selector, profile.size, profile.max_group_size) == (True, 1024, 16)
    assert list(profile.table_ids) == [47960972] and list(profile.preamble.annotations) == []
    table = control.tables[0]
    assert table.implementation_id == 291115404 and list(table.direct_resource_ids) == [322798228]
    assert [match_field.name for match_field in table.match_fields] == ["next_id"]


def test_controller_headers__id_by_type_name_by_annotation(control):
    assert ids(control.controller_packet_metadata) == {"packet_in": 81826293, "packet_out": 76689799}
    packet_in = control.controller_packet_metadata[0]
    assert [(field.id, field.name, field.bitwidth) for field in packet_in.metadata] == [
        (1, "ingress_port", 9),
        (2, "_pad", 7),
    ]
    assert list(packet_in.preamble.annotations) == ['@controller_header("packet_in")']
    assert list(packet_in.metadata[1].annotations) == ['@hint("zero")']


def test_keys__names_kinds_and_widths(control):
    acl = next(table for table in control.tables if table.preamble.alias == "acl_table")
    kinds = p4i.MatchField
    assert [
        (match_field.id, match_field.name, match_field.bitwidth, match_field.match_type)
        for match_field in acl.match_fields
    ] == [
        (1, "hdr.data.$valid$", 1, kinds.EXACT),
        (2, "hdr.data.a", 32, kinds.TERNARY),
        (3, "hdr.data.b[15:8]", 8, kinds.RANGE),
        (4, "low", 8, kinds.OPTIONAL),
        (5, "meta.port", 9, kinds.EXACT),
    ]
    assert list(acl.match_fields[1].annotations) == ["@format(IPV4_ADDRESS)"]
    assert acl.match_fields[4].type_name.name == "port_id_t"
    assert acl.size == 77 and acl.preamble.id == 0x02000099


def test_actions__given_ids_scopes_defaults_and_documentation(control):
    by_name = {action.preamble.name: action for action in control.actions}
    paint = by_name["FabricIngress.paint"]
    assert paint.preamble.id == 0x01000042
    assert [(param.id, param.name, param.bitwidth) for param in paint.params] == [(1, "color", 8), (7, "shade", 8)]
    assert not paint.params[0].type_name.name  # p4c names `type`s only
    drop = by_name["FabricIngress.drop"].preamble
    assert drop.doc.brief == "Sends away." and list(drop.annotations) == ['@hint("x, y" , 3)']
    assert drop.alias == "FabricIngress.drop" and by_name["EgressImpl.drop"].preamble.alias == "EgressImpl.drop"
    acl = next(table for table in control.tables if table.preamble.alias == "acl_table")
    assert [action_ref.scope for action_ref in acl.action_refs] == [
        p4i.ActionRef.TABLE_AND_DEFAULT,
        p4i.ActionRef.TABLE_ONLY,
    ]
    default_action = acl.initial_default_action
    assert default_action.action_id == 0x01000042
    assert [(argument.param_id, argument.value) for argument in default_action.arguments] == [(1, b"\2"), (7, b"\5")]


def test_implicit_default__no_action_for_the_default_only(control):
    top = next(table for table in control.tables if table.preamble.name == "top")
    last = top.action_refs[-1]
    assert (last.id, last.scope, list(last.annotations)) == (21257015, p4i.ActionRef.DEFAULT_ONLY, ["@defaultonly"])
    assert top.is_const_table and top.has_initial_entries and top.size == 1024


def test_types__translated_and_serializable(control):
    port = control.type_info.new_types["port_id_t"]
    assert port.translated_type.sdn_bitwidth == 9 and port.translated_type.uri == ""
    color = control.type_info.serializable_enums["color_t"]
    assert color.underlying_type.bitwidth == 8
    assert [(member.name, member.value) for member in color.members] == [("RED", b"\1"), ("GREEN", b"\2")]


def test_package_and_register(control):
    assert (control.pkg_info.name, control.pkg_info.version) == ("test.p4", "1.2")
    (register,) = control.registers
    assert register.size == 256 and register.type_spec.bitstring.bit.bitwidth == 48
    assert register.preamble.id >> 24 == 0x16


def test_clash__the_later_name_counts_up():
    """Two names with one 24-bit hash: ids in alphabetical order of the names."""
    names_by_hash: dict[int, str] = {}
    for n in range(20000):
        name = f"t{n}"
        earlier_name = names_by_hash.setdefault(jenkins_hash(f"I.{name}") & 0xFFFFFF, name)
        if earlier_name != name:
            break
    else:
        pytest.fail("no clash among 20000 names")
    first, second = sorted((name, earlier_name))
    tables = "".join(f"table {table_name} {{ actions = {{ NoAction; }} }}" for table_name in (second, first))
    text = f"""#include <core.p4>
#include <v1model.p4>
struct h {{ }} struct m {{ }}
parser P(packet_in b, out h x, inout m y, inout standard_metadata_t s) {{ state start {{ transition accept; }} }}
control V(inout h x, inout m y) {{ apply {{ }} }}
control I(inout h x, inout m y, inout standard_metadata_t s) {{
    {tables} apply {{ {first}.apply(); {second}.apply(); }}
}}
control E(inout h x, inout m y, inout standard_metadata_t s) {{ apply {{ }} }}
control D(packet_out b, in h x) {{ apply {{ }} }}
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""
    table_ids = ids(compile_program(text).p4info.tables)
    assert table_ids[f"I.{second}"] == table_ids[f"I.{first}"] + 1
    with pytest.raises(P4Error, match="is used twice"):
        compile_program(
            text.replace(f"table {first} ", f"@id(1) table {first} ").replace(
                f"table {second} ", f"@id(1) table {second} "
            )
        )


@pytest.mark.parametrize("name", ["srv6", "spray"])
def test_our_programs__aliases_are_single_words(name):
    info = compile_named(name).p4info
    groups = (info.tables, info.actions, info.counters, info.action_profiles)
    assert all("." not in object_info.preamble.alias for group in groups for object_info in group)


def test_annotation__a_string_over_several_lines_keeps_what_looks_like_a_comment():
    inner = next(
        table for table in compile_program(P4_FOLDER / "names.p4").p4info.tables if table.preamble.name == "I.inner"
    )
    assert [annotation.split() for annotation in inner.preamble.annotations] == [
        ['@entry_restriction("', "//", "It's", "the", "double", "that", "counts.", "double", "!=", "0xff;", '")']
    ]
