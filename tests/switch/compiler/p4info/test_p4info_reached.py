"""P4Info names what p4c's front end leaves of a program.

What code can reach, by the names and in the order of p4c.
"""

from __future__ import annotations

import pytest
from finsy.proto import p4d, p4i

from mrc_testbed.switch.compiler import CompiledProgram, compile_program
from mrc_testbed.switch.compiler.compiler import front
from mrc_testbed.switch.compiler.p4info.p4info import Ids, jenkins_hash, make_p4info
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import TableError
from mrc_testbed.switch.device.p4data import flatten, p4_data, register_in, register_out
from mrc_testbed.switch.server.p4runtime.packetio import packet_in_message
from mrc_testbed.switch.server.p4runtime.pipeline import first_difference

PROGRAM = """
#include <core.p4>
#include <v1model.p4>
struct pair_t {{ @name("high") bit<8> a; bit<8> b; }}
header h_t {{ bit<16> a; @name("bee") bit<8> b; bit<8> c; }}
{types}
struct headers_t {{ @name("outer") h_t h; h_t[3] s; @name(".global") h_t g; {headers} }}
struct metadata_t {{ pair_t pair; bit<2> at; }}
parser P(packet_in b, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {{
    state start {{ b.extract(h.h); transition accept; }}
}}
control V(inout headers_t h, inout metadata_t m) {{ apply {{ }} }}
{outside}
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {{
    {locals}
    apply {{ {body} }}
}}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {{ apply {{ {egress} }} }}
control D(packet_out b, in headers_t h) {{ apply {{ b.emit(h.h); }} }}
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""


def text_of(**parts: str) -> str:
    return PROGRAM.format(
        **{"types": "", "headers": "", "outside": "", "locals": "", "body": "", "egress": "", **parts}
    )


def info_of(**parts: str) -> p4i.P4Info:
    checked = front(text_of(**parts))
    return make_p4info(checked, Ids(checked))


def compiled_of(**parts: str) -> CompiledProgram:
    return compile_program(text_of(**parts))


def names(messages) -> list[str]:
    return [message.preamble.name for message in messages]


# ---- actions


def test_actions__one_that_a_control_calls_is_there_without_parameters():
    compilation = compiled_of(
        locals="action set(in bit<16> a, bit<8> b) { h.h.a = a; h.h.b = b; } action unused() { }", body="set(1, 2);"
    )
    (action,) = compilation.p4info.actions
    assert (action.preamble.name, action.preamble.alias, len(action.params)) == ("I.set", "set", 0)
    assert action.preamble.id == 0x01000000 | jenkins_hash("I.set") & 0xFFFFFF
    device = P4Device(1)
    device.load(compilation)
    assert device.process(1, bytes(4)) == [(0, bytes.fromhex("00010200"))]


def test_actions__called_and_in_a_table_it_has_its_parameters():
    info = info_of(
        locals="action set(bit<8> b) { h.h.b = b; }"
        "table t { key = { h.h.a : exact; } actions = { set; } default_action = set(1); }",
        body="set(2); t.apply();",
    )
    (action,) = info.actions
    assert [param.name for param in action.params] == ["b"]


def test_actions__one_that_only_an_action_calls_is_not_there():
    info = info_of(locals="action inner() { h.h.a = 1; } action outer() { inner(); }", body="outer();")
    assert names(info.actions) == ["I.outer"]


def test_actions__those_outside_of_controls_come_first_where_they_are_used_first():
    info = info_of(
        outside="action shared() { } action late(inout h_t x) { x.a = 1; }",
        locals="action own() { }"
        "table t { key = { h.h.a : exact; } actions = { own; shared; } default_action = own(); }",
        body="t.apply(); late(h.h);",
        egress="NoAction();",
    )
    assert names(info.actions) == ["shared", "late", "I.own", "NoAction"]


def test_actions__of_controls_in_the_order_in_which_these_are_made():
    info = info_of(
        outside="control Inner(inout h_t x) { action a() { x.a = 1; } apply { a(); } }",
        locals="action first() { h.h.a = 2; } Inner() inner; action last() { h.h.a = 3; }",
        body="last(); inner.apply(h.h); first();",
    )
    assert names(info.actions) == ["I.first", "I.inner.a", "I.last"]


# ---- what no code reaches


TABLE = "table {0} {{ key = {{ h.h.a : exact; }} actions = {{ {0}_act; }} const default_action = {0}_act(); }}"


def two_tables() -> str:
    return "".join(f"action {name}_act() {{ }}" + TABLE.format(name) for name in ("live", "dead"))


@pytest.mark.parametrize(
    "body",
    [
        "if (false) { dead.apply(); } else { live.apply(); }",
        "live.apply(); h.h.a = (true ? 16w1 : (dead.apply().hit ? 16w2 : 16w3));",
        "live.apply(); if (false && dead.apply().hit) { h.h.a = 1; }",
        "live.apply(); if (h.h.a == 1) { return; } else { exit; } dead.apply();",
        "live.apply(); if (h.h.a == 1) { exit; dead.apply(); } return;",
    ],
)
def test_dead_code__its_tables_and_actions_are_not_there(body):
    compilation = compiled_of(locals=two_tables(), body=body)
    assert names(compilation.p4info.tables) == ["I.live"] and names(compilation.p4info.actions) == ["I.live_act"]
    device = P4Device(1)
    device.load(compilation)
    assert len(device.process(1, bytes(4))) == 1


def test_dead_code__behind_exit_alone_p4c_keeps_it():
    info = info_of(locals=two_tables(), body="live.apply(); exit; dead.apply();")
    assert names(info.tables) == ["I.live", "I.dead"]


def test_calls__of_functions_that_call_each_other_twice_are_followed_once():
    chain = 'void f0() { log_msg("x"); }' + "".join(f"void f{n}() {{ f{n - 1}(); f{n - 1}(); }}" for n in range(1, 40))
    assert info_of(outside=chain, body="f39();").HasField("type_info")


def test_dead_code__externs_of_a_control_that_is_not_applied_are_not_there():
    inner_control = "control Inner(inout h_t x) { counter(4, CounterType.bytes) c; apply { c.count(0); } }"
    locals_ = "counter(2, CounterType.packets) idle; Inner() inner;"
    assert names(info_of(outside=inner_control, locals=locals_).counters) == ["I.idle"]
    assert len(info_of(outside=inner_control, locals=locals_, body="inner.apply(h.h);").counters) == 2


# ---- type_info


@pytest.mark.parametrize(
    ("parts", "expected_presence"),
    [
        ({}, False),
        ({"body": "h.h.a = 1;"}, False),
        ({"locals": "action a() { h.h.a = 1; }", "body": "a();"}, False),
        ({"body": 'static_assert(true, "x");'}, False),
        ({"body": "mark_to_drop(s);"}, True),
        ({"locals": "action a() { truncate(9); }", "body": "a();"}, True),
        ({"locals": "register<bit<8>>(2) r;"}, True),
        ({"locals": "table t { actions = { NoAction; } }", "body": "t.apply();"}, True),
        ({"types": '@controller_header("packet_in") header i_t { bit<8> x; }'}, True),
    ],
)
def test_type_info__is_there_when_p4c_asked_for_a_type(parts, expected_presence):
    assert info_of(**parts).HasField("type_info") == expected_presence


def test_type_info__has_the_errors_when_a_key_is_an_error():
    table = "table t { key = { s.parser_error : exact; } actions = { NoAction; } }"
    info = info_of(locals=table, body="t.apply();")
    assert info.type_info.error.members[:2] == ["NoError", "PacketTooShort"]
    assert info.tables[0].match_fields[0].bitwidth == 0


# ---- names


def test_property__its_name_stands_as_it_is():
    info = info_of(
        locals="""action a() { }
        table t { key = { h.h.a : exact; h.h.b : selector; } actions = { a; } const default_action = a();
                  @name("in.place") implementation = action_selector(HashAlgorithm.crc16, 8, 8); }
        table u { key = { h.h.a : exact; } actions = { a; } const default_action = a();
                  @name("u") counters = direct_counter(CounterType.bytes); }
        @name("declared") action_profile(4) p;
        table v { key = { h.h.a : exact; } actions = { a; } const default_action = a(); implementation = p; }""",
        body="t.apply(); u.apply(); v.apply();",
    )
    assert names(info.action_profiles) == ["in.place", "I.declared"]
    assert [table.implementation_id for table in info.tables] == [
        info.action_profiles[0].preamble.id,
        0,
        info.action_profiles[1].preamble.id,
    ]
    assert info.action_profiles[0].preamble.id == 0x11000000 | jenkins_hash("in.place") & 0xFFFFFF
    assert (info.direct_counters[0].preamble.name, info.direct_counters[0].preamble.alias) == ("u", "u")
    assert info.tables[1].preamble.alias == "I.u"


def test_direct_counters__in_the_order_of_their_tables():
    info = info_of(
        locals="""direct_counter(CounterType.bytes) c2; direct_counter(CounterType.bytes) c1; action a() { }
        table t1 { key = { h.h.a : exact; } actions = { a; } const default_action = a(); counters = c1; }
        table t2 { key = { h.h.a : exact; } actions = { a; } const default_action = a(); counters = c2; }""",
        body="t1.apply(); t2.apply();",
    )
    assert names(info.direct_counters) == ["I.c1", "I.c2"]


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("h.h.a", "h.outer.a"),
        ("h.h.b", "h.outer.bee"),
        ("h.g.b", "global.bee"),
        ("h.h.isValid()", "h.outer.$valid$"),
        ("m.pair.a", "m.pair.high"),
        ("h.s[1].a", "h.s[1].a"),
        ("h.s[0x1].a[0xf:8]", "h.s[0x1].a[0xf:8]"),
        ("h.s[m.at].a", "h.s[m.at].a"),
        ("h.h.a & 0x0FF", "h.outer.a & 0xff"),
        ("h.h.a & 255", "h.outer.a & 255"),
        ("h.h.a & 16w0b11", "h.outer.a & 0b11"),
        ("h.h.a & MASK", "h.outer.a & 0xf0f"),
    ],
)
def test_key__name_from_the_expression(expression, name):
    table = f"table t {{ key = {{ {expression} : exact; }} actions = {{ NoAction; }} }}"
    (table_info,) = info_of(outside="const bit<16> MASK = 16w0x0F0F;", locals=table, body="t.apply();").tables
    assert [match_field.name for match_field in table_info.match_fields] == [name]


def test_digest__fields_by_their_names():
    info = info_of(body="digest<pair_t>(1, m.pair);")
    assert [member.name for member in info.type_info.structs["pair_t"].members] == ["high", "b"]


def test_digests__in_the_order_in_which_code_sends_them():
    info = info_of(
        types="struct one_t { bit<8> x; } struct two_t { bit<8> x; } struct none_t { bit<8> x; }",
        locals="action unused() { digest<none_t>(1, {1}); }"
        "action a() { digest<one_t>(1, {1}); } table t { actions = { a; } default_action = a(); }",
        body="digest<two_t>(1, {1}); t.apply();",
    )
    assert names(info.digests) == ["one_t", "two_t"]


# ---- annotations and controller headers


def test_profile__what_is_said_of_selectors_means_nothing_for_it():
    notes = '@max_group_size(200) @selector_size_semantics("Sum_Of_Members") @max_member_weight(9)'
    info = info_of(
        locals=f"""action a() {{ }} {notes} action_profile(8) p; {notes} action_selector(HashAlgorithm.crc16, 8, 8) q;
        table t {{ key = {{ h.h.a : exact; }} actions = {{ a; }} const default_action = a(); implementation = p; }}
        table u {{ key = {{ h.h.a : exact; h.h.b : selector; }} actions = {{ a; }} const default_action = a();
                  implementation = q; }}""",
        body="t.apply(); u.apply();",
    )
    plain, selector = info.action_profiles
    assert not plain.with_selector and not plain.max_group_size and not plain.HasField("sum_of_members")
    assert (selector.max_group_size, selector.sum_of_members.max_member_weight) == (200, 9)
    assert not plain.preamble.annotations and not selector.preamble.annotations


def test_annotation__tokens_with_blanks_between():
    note = "@refers(a::b,c) @nested(@x(1), y) @empty() @many(1 + 2, {3})"
    (table_info,) = info_of(locals=f"{note} table t {{ actions = {{ NoAction; }} }}", body="t.apply();").tables
    assert list(table_info.preamble.annotations) == [
        "@refers(a : : b , c)",
        "@nested(@ x ( 1 ) , y)",
        "@empty",
        "@many(1 + 2 , { 3 })",
    ]


def test_annotation__a_string_keeps_what_looks_like_a_comment():
    note = '@note("\n// one\n a; /* two */ b\n")'
    text = f"// three\n{note} table t {{ /* four */ actions = {{ NoAction; /* five\n */ }} }}"
    (table_info,) = info_of(locals=text, body="t.apply();").tables
    (annotation,) = table_info.preamble.annotations
    assert "// one" in annotation and "/* two */" in annotation and "three" not in annotation


def test_controller_header__structs_in_it_are_taken_apart():
    compilation = compiled_of(
        types="""struct inner_t { @name("x") bit<4> a; @id(9) bit<4> b; }
        @controller_header("packet_in") header in_t { bit<8> port; @note("n") inner_t inner; @id(1) bit<8> last; }""",
        headers="in_t i;",
    )
    (header_info,) = compilation.p4info.controller_packet_metadata
    assert [(field.id, field.name, field.bitwidth) for field in header_info.metadata] == [
        (2, "port", 8),
        (3, "inner.x", 4),
        (9, "inner.b", 4),
        (1, "last", 8),
    ]
    assert [list(field.annotations) for field in header_info.metadata] == [[], ['@note("n")'], ['@note("n")'], []]
    packet = packet_in_message(compilation.p4info, {}, bytes.fromhex("07 5A FF") + b"rest").packet
    assert {field.metadata_id: field.value for field in packet.metadata} == {2: b"\7", 3: b"\5", 9: b"\n", 1: b"\xff"}
    assert packet.payload == b"rest"


# ---- translated types in digests and registers

TRANSLATED_TYPES = """@p4runtime_translation("a", bit<32>) type bit<48> mac_t;
@p4runtime_translation("b", string) type bit<9> port_t;
struct seen_t { mac_t mac; port_t port; bit<8> n; }"""


def test_translated__digests_have_the_numbers_and_the_text():
    compilation = compiled_of(
        types=TRANSLATED_TYPES,
        body="digest<seen_t>(1, {(mac_t)(bit<48>)(h.h.a ++ 32w0), (port_t)(bit<9>)300, 8w7});",
    )
    device = P4Device(1)
    device.load(compilation)
    device.process(1, bytes.fromhex("0102 0000"))
    (sent,) = device.digests()
    spec = compilation.p4info.digests[0].type_spec
    data = p4_data(spec, compilation.p4info, sent.data, device.schema.type_bits)
    assert [member.bitstring for member in data.struct.members] == [bytes.fromhex("0102 0000 0000"), b"300", b"\7"]
    assert flatten(spec, compilation.p4info, data) == {"mac": 0x010200000000, "port": 300, "n": 7}


def test_translated__registers_have_the_numbers_and_the_text():
    compilation = compiled_of(types=TRANSLATED_TYPES, locals="register<mac_t>(1) macs; register<port_t>(1) ports;")
    info, device = compilation.p4info, P4Device(1)
    device.load(compilation)
    widths = device.schema.type_bits
    assert widths == {"mac_t": 48, "port_t": 9}
    macs, ports = (register.preamble.id for register in info.registers)
    assert register_in(info, widths, macs, p4d.P4Data(bitstring=bytes(2) + b"\1\2\3\4\5\6")) == 0x010203040506
    assert register_in(info, widths, ports, p4d.P4Data(bitstring=b"300")) == 300
    assert register_out(info, widths, macs, 0x010203040506).bitstring == b"\1\2\3\4\5\6"
    assert register_out(info, widths, ports, 300).bitstring == b"300"
    for register_id, value, code in (
        (macs, b"\1" + bytes(6), "OUT_OF_RANGE"),
        (ports, b"512", "OUT_OF_RANGE"),
        (ports, b"x", "INVALID_ARGUMENT"),
        (macs, b"", "INVALID_ARGUMENT"),
    ):
        with pytest.raises(TableError) as caught:
            register_in(info, widths, register_id, p4d.P4Data(bitstring=value))
        assert caught.value.code == code
    with pytest.raises(TableError, match=r"data\.bitstring"):
        register_in(info, widths, macs, p4d.P4Data(bool=True))


# ---- what the daemon takes


def sample_info() -> p4i.P4Info:
    """Return the P4Info of two tables, two actions, a register of a type and a counter."""
    return info_of(
        types="type bit<8> cell_t;",
        locals=two_tables() + "register<cell_t>(2) cells; counter(2, CounterType.bytes) hits;",
        body="live.apply(); dead.apply(); cells.write(0, (cell_t)h.h.b); hits.count(1);",
    )


def copy_of(info: p4i.P4Info) -> p4i.P4Info:
    return p4i.P4Info.FromString(info.SerializeToString())


def test_comparison__the_order_of_things_says_nothing():
    info, other_info = sample_info(), copy_of(sample_info())
    for group in ("tables", "actions"):
        other_info.ClearField(group)
        getattr(other_info, group).extend(reversed(getattr(info, group)))
    assert other_info != info and first_difference(other_info, info) is None


def test_comparison__an_array_may_be_left_out_and_a_table_may_not():
    info, other_info = sample_info(), copy_of(sample_info())
    del other_info.registers[:]
    del other_info.counters[:]
    other_info.ClearField("type_info")
    assert first_difference(other_info, info) is None
    del other_info.tables[0]
    assert "tables" in first_difference(other_info, info)


def test_comparison__an_array_that_is_not_in_the_program_is_refused():
    info, other_info = sample_info(), copy_of(sample_info())
    del info.counters[:]
    assert "counters" in first_difference(other_info, info)
    changed_info = copy_of(other_info)
    changed_info.registers[0].size = 3
    assert "size" in first_difference(changed_info, other_info)


def test_parts_with_constructor_arguments__are_numbered_as_by_p4c():
    text = text_of(locals="table t { actions = { NoAction; } }", body="t.apply(); c.count(k);")
    text = text.replace(
        "standard_metadata_t s) {\n    table", "standard_metadata_t s)(counter c, bit<32> k) {\n    table"
    )
    counter = "counter(4, CounterType.bytes)"
    text = text.replace("I(), E()", f"I({counter}, 1), I({counter}, 2)")
    checked = front(text)
    info = make_p4info(checked, Ids(checked))
    assert names(info.tables) == ["I_0.t", "I_1.t"] and names(info.counters) == ["I_0.c_0", "I_1.c_1"]
