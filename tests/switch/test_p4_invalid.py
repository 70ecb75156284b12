"""Programs that look right and are not, and the places of what the compiler did not foresee."""

from __future__ import annotations

import pytest
from p4_kit import Bench
from test_p4_errors import complaint, program

from switch.p4 import compile_program

NUMBERS = [
    (dict(local="action a(in int n) { hdr.data.a = hdr.data.a + n; }"), "14:21: parameter n of type int is `in`: an "
     "int is known at compile time and has no direction; give it a width, such as bit<32>"),
    (dict(local="action a(int n) { hdr.data.a = n; }", apply="a(hdr.data.b);"),
     "16:20: argument n of a of type bit<8> where int is needed"),
    (dict(local="action a(int n) { } table u { actions = { a; } }"),
     "14:47: table u: the control plane cannot give n of action a, an int: give it a width, such as bit<32>"),
    (dict(top="control Sub(int n) { apply { } }", local="Sub() s;", apply="s.apply(1); s.apply(2);"),
     "16:23: s is applied with other constants for its int parameters: declare a second one"),
    (dict(apply="int x = 3;"), "16:13: x cannot be a variable of type int: make it a `const`, or give it a width"),
    (dict(top="struct s_t { int x; }"), "3:18: field x cannot be a int"),
    (dict(apply="hdr.data.a = 0s0 + 1;"), "16:22: a number of type int<0>: int<N> has at least 1 bit"),
    (dict(apply="tuple<int> x = { 1 }; hdr.data.a = x[0];"),
     "16:44: assignment of type int: it must be known at compile time, or have a width, such as bit<32>"),
]  # fmt: skip
PLACES = [
    (dict(top="control Sub() { apply { } } Sub() s;", apply="s.apply();"), "3:35: s: a control cannot be made at the "
     "top level: declare it in the control that applies it, or give it to V1Switch as Name()"),
    (dict(top="parser Q(packet_in b) { state start { transition accept; } } Q() q;", parse="q.apply(b);"),
     "3:66: q: a parser cannot be made at the top level"),
    (dict(local="action a(in bool x) { } table u { actions = { a(t.apply().hit); } }", apply="u.apply();"),
     "14:55: argument x of action a applies table t: apply it before, and keep what it gives in a variable"),
    (dict(local="action a(in bool x) { }", apply="a(t.apply().hit);"),
     "16:13: argument x of action a applies table t: apply it before"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "message"), NUMBERS + PLACES)
def test_invalid__place_cause_and_what_would_have_worked(parts, message):
    assert complaint(program(**parts)).startswith(f"program.p4:{message}")


INT_PARAMETERS = dict(
    top="""
bit<8> plus(in bit<8> x, int by) { return x + by; }
action flip(int n, inout bit<8> x) { x = x ^ n; }
control Twice(inout bit<8> x, int n) { apply { x = x + 2 * n; } }
control Step(int n, inout bit<8> x)(bit<8> k) {
    table inside { key = { x : exact; } actions = { NoAction; } }
    apply { if (x == n) { x = n + 8w1; } else { x = 1 + n + k; } inside.apply(); }
}""",
    local="action add(int n, bit<8> m) { hdr.data.a = hdr.data.a + n + m; } Step(3) s; Step(4) never;",
    parse="b.extract(hdr.data);",
    apply="""
        add(n = 2, m = 1); add(3, 2); add(2, 7);    // a: 1 + 3 + 5 + 9 = 18
        s.apply(7, hdr.data.a); s.apply(7, hdr.data.b);    // a: 1 + 7 + 3 = 11; b: 7 + 1 = 8
        Twice.apply(hdr.data.b, 5); Twice.apply(hdr.data.b, 6);    // b: 8 + 10 + 12 = 30
        hdr.data.b = plus(hdr.data.b, 300);    // modulo 256: 74
        flip(1, hdr.data.b);
        std.egress_spec = 1;""",
)


def test_int_parameters__are_the_constants_of_each_call():
    bench = Bench(compile_program(program(**INT_PARAMETERS)))
    assert bench.send(0, bytes([1, 7, 0, 0, 0, 0, 0, 0])) == [(1, bytes([11, 75, 0, 0, 0, 0, 0, 0]))]
    assert [one.preamble.name for one in bench.info.tables] == ["I.s.inside"]


UNAPPLIED = dict(
    local="""
    direct_counter(CounterType.packets) dc;
    direct_meter<bit<8>>(MeterType.packets) dm;
    action_profile(16) ap;
    action_selector(HashAlgorithm.crc16, 16, 16) as;
    action measure() { dm.read(hdr.data.b); dc.count(); }
    table u { key = { hdr.data.a : exact; } actions = { measure; } counters = dc; meters = dm; }
    table v { key = { hdr.data.a : exact; } actions = { NoAction; } implementation = ap;
              counters = direct_counter(CounterType.bytes); }
    table w { key = { hdr.data.a : exact; hdr.data.b : selector; } actions = { NoAction; } implementation = as; }
    """,
    apply="measure(); t.apply();",
)


def test_tables_never_applied__leave_no_trace_of_their_counters_meters_and_profiles():
    info = compile_program(program(**UNAPPLIED)).p4info
    assert [one.preamble.name for one in info.tables] == ["I.t"]
    assert not info.direct_counters and not info.direct_meters
    assert [(one.preamble.name, list(one.table_ids)) for one in info.action_profiles] == [("I.ap", []), ("I.as", [])]


def test_bug__has_the_place_of_the_construct_the_compiler_was_at(monkeypatch):
    """In the back end too, which works on instances."""

    def broken(*_):
        raise KeyError("nobody thought of this")

    monkeypatch.setattr("switch.p4.check_expr.Expressions._concat", broken)
    text = program(apply="hdr.data.w = hdr.data.a ++ 24w1;")
    assert complaint(text).startswith("program.p4:16:31: internal error in the compiler (KeyError: ")
    monkeypatch.undo()
    monkeypatch.setattr("switch.p4.emit_tables.Tables._key", broken)
    text = program(apply="t.apply();")
    assert complaint(text).startswith("program.p4:13:11: internal error in the compiler (KeyError: ")
