"""Small programs run in memory: control flow, parsers, headers, tables, externs."""

from __future__ import annotations

import zlib
from collections import Counter

import pytest

from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.device.entities import MemberRef, ProfileMember
from tests.switch.compiled_programs import Bench, bench_of
from tests.switch.compiler.test_errors import program


@pytest.fixture(scope="module")
def flow() -> Bench:
    bench = bench_of("flow")
    bench.add("by_x", (5,), "mark", value=0x33)
    bench.add("by_x", (6,), "leave")
    bench.add("by_y", (5,), "mark", value=0x44)
    bench.add("by_y", (6,), "leave")
    return bench


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        ("01 05 00 00 0000", "01 05 00 33 0001"),  # hit
        ("01 06 00 00 0000", "01 06 00 ee 0000"),  # the action exits: nothing after it runs
        ("01 09 00 00 0000", "01 09 00 dd 0002"),  # miss: the default action, and not hit
        ("02 00 05 00 0000", "02 00 05 44 0001"),
        ("02 00 09 00 0000", "02 00 09 00 0002"),  # no default given: NoAction
        ("02 00 06 00 0000", "02 00 06 ee 0000"),
        ("03 05 00 00 0000", "03 05 77 33 0003"),  # action_run
        ("03 09 00 00 0000", "03 09 77 dd 0004"),
        ("03 06 00 00 0000", "03 06 00 ee 0000"),
        ("04 02 03 00 0000", "04 02 05 0a 0000"),  # in, inout, out; the control's variable is shared
        ("05 01 00 00 0000", "05 01 00 01 0009"),  # return leaves the action, not the control
        ("05 02 00 00 0000", "05 02 00 02 0009"),
        ("06 01 02 00 0000", "06 10 02 00 0000"),  # 1 + 2 + 2 + 10 + 1
        ("06 55 02 00 0000", "06 63 02 00 0000"),  # 99: return leaves the sub-control before the last + 1
        ("06 51 02 00 0000", "06 60 02 00 0000"),
        ("07 01 00 00 0000", "07 1c 00 00 0000"),  # the other instance has its own constant
        ("08 09 00 00 0000", "08 09 0a 00 0000"),  # copies: copied out in order, the last one wins
        ("09 07 00 00 0000", "09 07 00 00 0000"),  # exit in a sub-control ends the whole ingress
        ("09 08 00 00 0000", "09 08 00 aa 0000"),
        ("0a 00 00 00 0000", "0a 00 00 10 0000"),  # a case without body falls through
        ("0b 00 00 00 0000", "0b 00 00 10 0000"),
        ("0c 00 00 00 1234", "0c 00 00 00 3a35"),  # slices as inout and out arguments
        ("0d 00 00 00 abcd", "0d 00 00 00 ac9d"),  # 0xbc + 1 + 1 + 10 + 1 = 0xc9 in the middle
        ("0f 01 02 03 0405", "00 42 00 00 0000"),  # a local header, its other fields zero
        ("10 01 02 00 0000", "10 02 01 00 0000"),  # fields of a list are read before any is written
        ("11 00 00 00 0000", "11 00 01 06 0000"),  # shadowing: the initial value is the outer variable's
        ("63 00 00 00 0000", "63 00 00 ff 0000"),
    ],
)
def test_flow(flow, sent, got):
    ((port, out),) = flow.send(1, bytes.fromhex(sent) + b"rest")
    assert (port, out.hex(), out[6:]) == (1, (bytes.fromhex(got) + b"rest").hex(), b"rest")


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        ("0e 01 09 00 0000", "0e 01 03 00 0000 0e 02 09 00 0000"),  # copied: changes do not show in the original
        ("12 01 02 03 0405", "12 01 02 03 0405 00 00 00 00 0000"),  # a new header begins as zeros
        ("13 01 02 03 0405", ""),
        ("14 05 00 00 0000", "14 05 01 00 0000 14 00 00 00 0000"),
    ],
)
def test_headers__added_removed_copied_compared(flow, sent, got):
    ((_, out),) = flow.send(1, bytes.fromhex(sent) + b"payload")
    assert out == bytes.fromhex(got) + b"payload"


@pytest.fixture(scope="module")
def parsing() -> Bench:
    return bench_of("parsing")


@pytest.mark.parametrize(
    ("sent", "error", "path", "payload_value"),
    [
        ("1f", 0, 1, 0),
        ("2f", 0, 2, 0),
        ("20", 0, 2, 0),
        ("90", 0, 0, 0),
        ("91", 0, 0, 0),
        ("00", 2, 0, 0),
        ("", 1, 0, 0),
        ("30 01 02", 0, 11, 0),
        ("30 01 03", 0, 12, 0),
        ("30 04 81", 0, 13, 0),
        ("30 04 01", 0, 14, 0),
        ("30 06 81", 0, 14, 0),
        ("30 07 09", 0, 11, 0),
        ("30 01", 1, 0, 0),
        ("40 a1 b2 c3", 0, 20, 0xA1B2C3),
        ("40 b1 b2 c3", 0, 0, 0xB1B2C3),
        ("40 b1 b2", 1, 0, 0),
        ("50 55 00", 0, 30, 0),
        ("50 56 00", 3, 0, 0),
        ("60 01 02 00", 0, 3, 0),
        ("60 01 02", 1, 2, 0),
        ("61", 4, 0, 0),
        ("70 ff ff 01 00 aa", 0, 0, 6),
        ("70 ff ff 02 00 aa", 1, 0, 0),
        ("70 ff", 1, 0, 0),
        ("80 ab c9 87 65", 0, 0, 0xABC98765),
    ],
)
def test_parser(parsing, sent, error, path, payload_value):
    ((_, out),) = parsing.send(1, bytes.fromhex(sent))
    assert (out[0], out[1], int.from_bytes(out[2:6], "big")) == (error, path, payload_value)


def test_parser__payload_begins_where_it_stopped(parsing):
    """Bytes that were not extracted are payload, also after an error."""
    ((_, out),) = parsing.send(1, bytes.fromhex("50 56 00") + b"tail")
    assert out[6:] == b"tail"
    ((_, out),) = parsing.send(1, bytes.fromhex("30 01"))
    assert out[6:] == b"\x01"


def test_deparser__stores_a_field_that_is_not_byte_aligned(parsing):
    ((_, out),) = parsing.send(1, bytes.fromhex("80 ab c9 87 65 ff"))
    assert out[6:] == bytes.fromhex("abc12345 ff")


@pytest.fixture
def state() -> Bench:
    return bench_of("state")


def data(table_number: int, a: int = 0, b: int = 0, total: int = 0) -> bytes:
    return bytes([table_number]) + a.to_bytes(4, "big") + b.to_bytes(2, "big") + total.to_bytes(2, "big") + bytes(8)


def result(bench: Bench, frame: bytes) -> int:
    ((_, out),) = bench.send(1, frame)
    return int.from_bytes(out[9:17], "big")


def test_ternary__highest_priority_and_direct_counter(state):
    state.add("ternary_one", ((0x0A000000, 0xFF000000),), "set", priority=1, value=1)
    state.add("ternary_one", ((0x0A010000, 0xFFFF0000),), "set", priority=2, value=2)
    assert [result(state, data(1, a)) for a in (0x0A000001, 0x0A010001, 0x0B000000)] == [1, 2, 0]
    assert sorted(entry.counter.packets for entry in state.device.read() if entry.counter) == [1, 1]


def test_range__first_of_the_const_entries_wins(state):
    assert [result(state, data(2, 1, b)) for b in (10, 15, 20, 21, 30, 31)] == [100, 100, 100, 200, 200, 0]
    assert result(state, data(2, 2, 9999)) == 300


def test_lpm__longest_prefix_beside_an_exact_key(state):
    results = [result(state, data(3, a, 1)) for a in (0x0A020000, 0x0A010203, 0x0B000000)]
    assert results == [8, 16, 0xFFFF] and result(state, data(3, 0x0A020000, 2)) == 0xDEAD


def test_optional_and_keyless(state):
    state.add("optional_one", (9,), "set", priority=5, value=99)
    assert [result(state, data(4, 0, b)) for b in (9, 8)] == [99, 1]
    assert result(state, data(5)) == 7
    state.set_default("keyless", "set", value=0x123456789ABCDEF0)
    assert result(state, data(5)) == 0x123456789ABCDEF0


def test_action_profile__entries_share_a_member(state):
    state.device.insert_member(ProfileMember(state.id("profile"), 3, state.call("set", value=55)))
    state.add("profiled", (1,), MemberRef(3))
    state.add("profiled", (2,), MemberRef(3))
    assert [result(state, data(6, a)) for a in (1, 2, 3)] == [55, 55, 0]


def test_register__wraps_at_its_width_and_is_shared_with_egress(state):
    assert [result(state, data(10, 1, 2)) for _ in range(3)] == [0, 2, 4]
    state.send(1, data(11))
    assert [result(state, data(10, 1, 2)) for _ in range(2)] == [(1 << 40) - 1, 1]
    assert result(state, data(10, 4, 2)) == 0  # out of range: reads 0, writes nothing


def test_counter__by_index(state):
    for table_number in (1, 1, 9):
        state.send(1, data(table_number))
    assert state.count("seen", 1) == 3


def crc16(message: bytes) -> int:
    """Return the CRC-16/ARC of a message, bit by bit."""
    crc = 0
    for byte in message:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xA001 if crc & 1 else 0)
    return crc


def test_hash__every_algorithm(state):
    message = bytes.fromhex("12345678 9abc")
    a, b = 0x12345678, 0x9ABC
    assert result(state, data(20, a, b)) == crc16(message)
    assert result(state, data(21, a, b)) == zlib.crc32(message)
    assert result(state, data(22, a, b)) == 0x1234 ^ 0x5678 ^ 0x9ABC
    assert result(state, data(23, a, b)) == 0x8ABC
    assert result(state, data(24, a)) == 100 + crc16(message[:4]) % 10
    assert result(state, data(25, a)) == 100


def test_random__within_its_bounds(state):
    counts = Counter(result(state, data(30)) for _ in range(200))
    assert sorted(counts) == [10, 11, 12, 13]
    counts = Counter(n for _ in range(100) for n in divmod(result(state, data(32)), 1 << 16))
    assert sorted(counts) == [0, 1, 2, 3], "from -2 to 1, and 2 added"


def test_truncate__cuts_the_deparsed_packet(state):
    ((_, out),) = state.send(1, data(31, 0xAABBCCDD, 0xEEFF))
    assert out == data(31, 0xAABBCCDD, 0xEEFF)[:6]


def test_checksum__verified_and_updated(state):
    total = ~(0x1234 + 0x5678 + 0x9ABC - 0xFFFF) & 0xFFFF
    assert result(state, data(40, 0x12345678, 0x9ABC, total)) == 0
    assert result(state, data(40, 0x12345678, 0x9ABC, total ^ 1)) == 1
    ((_, out),) = state.send(1, data(41, 0x12345678, 0x9ABC))
    assert out[7:9] == total.to_bytes(2, "big")


def test_mark_to_drop__in_ingress_and_egress_and_taken_back(state):
    assert state.send(1, data(50)) == [] and state.send(1, data(52)) == []
    assert state.send(1, data(51))[0][0] == 3
    stats = state.device.stats()
    assert (stats.dropped_ingress, stats.dropped_egress, stats.sent) == (1, 1, 1)


def test_parameters__fields_touched_only_through_them():
    ((_, out),) = bench_of("byname").send(1, bytes.fromhex("01 02 03 04 05 06"))
    assert out == bytes.fromhex("02 04 77 04 fa 06")


TWINS = """
#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> a; bit<8> b; }
struct headers_t { h_t h; }
struct meta_t { }
parser P(packet_in b, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { b.extract(hdr.h); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    action t_0(bit<8> value) { hdr.h.b = value; std.egress_spec = 1; }
    table t {
        key = { hdr.h.a : exact; }
        actions = { t_0; }
        const entries = { 1 : t_0(7); }
        const default_action = t_0(8);
    }
    apply { t.apply(); }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def test_names__an_action_called_like_an_entry_of_a_table():
    """Arguments of the first entry and parameters of the action had one name in C (found by the fuzz)."""
    bench = Bench(compile_program(TWINS))
    assert [bench.send(2, bytes([key, 0])) for key in (1, 2)] == [[(1, b"\1\7")], [(1, b"\2\10")]]


SAME_NAME = dict(
    local="""@name(".set") action set_a(bit<8> x) { hdr.data.a = x; }
    @name(".set") action set_b(bit<8> x) { hdr.data.b = x; }
    table u { key = { hdr.data.a : exact; } actions = { set_a; } }
    table v { key = { hdr.data.b : exact; } actions = { set_b; } }""",
    parse="b.extract(hdr.data);",
    apply="switch (u.apply().action_run) { set_a: { v.apply(); } } std.egress_spec = 1;",
)


def test_names__actions_of_one_name_are_one_in_p4info_and_each_table_runs_its_own():
    bench = Bench(compile_program(program(**SAME_NAME)))
    assert [action.preamble.name for action in bench.info.actions if action.params] == ["set"]
    bench.add("u", (1,), "set", x=5)
    bench.add("v", (2,), "set", x=6)
    assert bench.send(0, bytes([1, 2, 0, 0, 0, 0, 0, 0])) == [(1, bytes([5, 6, 0, 0, 0, 0, 0, 0]))]


def test_lists__one_that_reads_the_header_it_is_assigned_to():
    """The header is valid afterwards; p4c 1.2.5 leaves it invalid, so that BMv2 cannot be asked."""
    body = TWINS.replace("t.apply();", "std.egress_spec = 1; hdr.h = { hdr.h.b, hdr.h.a };")
    assert Bench(compile_program(body)).send(2, b"\3\4\5") == [(1, b"\4\3\5")]


def test_packet_length__grows_with_a_header_that_a_list_makes_valid():
    """The length grows as by setValid in simple_switch.

    A copy of a header counts nowhere (found by the fuzz of both switches).
    """
    body = TWINS.replace("struct headers_t { h_t h; }", "struct headers_t { h_t h; h_t o; }")
    body = body.replace(
        "control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {",
        "control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply {"
        " hdr.h.b = (bit<8>) std.packet_length;",
    )
    for change, want in (
        ("hdr.o = { 7, 8 };", b"\3\5\7\10\5"),
        ("hdr.o = { 7, 8 }; hdr.o = { 7, 8 };", b"\3\5\7\10\5"),
        ("hdr.o = hdr.h;", b"\3\3\3\4\5"),
        ("hdr.o = { 7, 8 }; hdr.o = {#};", b"\3\3\5"),
    ):
        bench = Bench(compile_program(body.replace("t.apply();", "std.egress_spec = 1; " + change)))
        assert bench.send(2, b"\3\4\5") == [(1, want)], change
