"""Errors of the compiler for programs that it does not take.

Location, cause, and a cure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mrc_testbed.switch.compiler import P4Error, compile_program
from tests.switch.compiled_programs import PROGRAMS, ROOT

BASE = """#include <core.p4>
#include <v1model.p4>
/*top*/
header data_t { bit<8> a; bit<8> b; int<16> s; bit<32> w; }
struct headers_t { data_t data; /*fields*/ }
struct metadata_t { }
parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { /*parse*/ transition /*next*/; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action forward(bit<9> port) { std.egress_spec = port; }
    table t { key = { hdr.data.a : exact; } actions = { forward; } }
    /*local*/
    apply {
        /*apply*/
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
/*main*/
"""
MAIN = "V1Switch(P(), V(), I(), E(), C(), D()) main;"


def program(**parts: str) -> str:
    text = BASE
    for name, part in {"next": "accept", "main": MAIN, **parts}.items():
        text = text.replace(f"/*{name}*/", part)
    return text


def complaint(text: str) -> str:
    with pytest.raises(P4Error) as caught:
        compile_program(text)
    return str(caught.value)


SYNTAX = [
    (dict(apply="hdr.data.a = 1"), "16:23: syntax error: expected `;` after `1`, found `}`"),
    (dict(apply="hdr.data.a = ;"), "16:22: syntax error: found `;`, expected an expression"),
    (dict(apply="exit"), "16:13: syntax error: expected `;` after `exit`, found `}`"),
    (dict(apply="if (true) { exit;"), "18:2: syntax error: expected `}` after `}`, found the keyword `control`"),
    (
        dict(top="struct s { foo_t x; }"),
        "3:12: syntax error: found `foo_t`, expected a type or `}` (no type `foo_t` is declared)",
    ),
    (
        dict(top="control c() { apply { } } control d(in bit<8> key, in bit<8> out) { apply { } }"),
        "3:62: syntax error: found the keyword `out`, expected a name (`out` is a keyword and cannot be a name)",
    ),
    (
        dict(top="function f() {}"),
        "3:1: syntax error: found `function`, expected a declaration or the end of the program (no type `function` "
        "is declared)",
    ),
    (dict(top="$"), "3:1: '$' is no part of P4"),
    (
        dict(
            local="action a(inout bit<8> x) {}table u { actions = { a(hdr.data.a); } default_action = a(hdr.data.b); }",
        ),
        "14:99: table u: the argument of a must be as it stands in `actions`",
    ),
    (
        dict(local="table u { key = { hdr.data.a : lpm; hdr.data.w : lpm; } actions = { NoAction; } }"),
        "14:50: table u: a second lpm key; BMv2 takes one",
    ),
    (dict(top="header q { bit<8> x; } struct r { q[0] z; }"), "3:35: an array of 0 elements: it has at least one"),
    (dict(apply="switch (hdr.data.a) { default: {} 1: {} }"), "16:31: switch: default stands last"),
    (dict(apply="switch (hdr) { default: {} }"), "16:17: switch on a headers_t: action_run, numbers, bool"),
    (
        dict(top="bit<8> f(in bit<8> x) { if (x == 0) { return 1; } }"),
        "3:8: function f may end without `return`: it returns a bit<8>",
    ),
    (dict(top="header_union u { bit<8> a; }"), "3:25: header_union u: a member of type bit<8>; only headers can be"),
    (
        dict(top="parser Q(packet_in b) { state start { transition accept; } }", local="Q() q;"),
        "14:9: q: a parser can be made only in a parser",
    ),
    (
        dict(top="struct s_t { @field_list(NONE) bit<8> a; }"),
        "3:26: NONE is not declared",
    ),
    (
        dict(top="struct s_t { @field_list(true) bit<8> a; }"),
        "3:26: @field_list: the number of a list must be an integer known at compile time",
    ),
    (
        dict(top="struct s_t { @field_list(1 2) bit<8> a; }"),
        "3:28: syntax error: found `2`, expected",
    ),
    (
        dict(
            apply="u.apply();",
            local="table u { key = { hdr.data.a : ternary; } actions = { NoAction; }"
            "const entries = { 1 : NoAction() @priority(x); } }",
        ),
        "14:103: @priority needs one number, 1 or more",
    ),
    (
        dict(
            local="action a() {} table u { actions = { a; } } counter(4, CounterType.bytes) c;",
            top="control Sub(inout bit<8> x)(counter n) { apply { } } control Use(inout bit<8> x) { "
            "meter(4, MeterType.bytes) m; Sub(m) s; apply { s.apply(x); } }",
        ),
        "3:117: argument n of Sub of type meter where counter is needed",
    ),
    (
        dict(apply="hdr.data.a = hdr.data.b == 1 ? 1 : 2;"),
        "16:31: ? : needs a width for one of its values, such as 8w1, when the condition is not constant",
    ),
    (dict(apply="if (hdr.data) { }"), "16:17: if needs bool, not data_t: isValid() tells whether it is there"),
    (
        dict(apply="if (hdr.data.isValid) { }"),
        "16:22: header data_t has no field isValid (has: a, b, s, w): isValid is a method, write isValid()",
    ),
    (
        dict(apply="hdr.data.setValid;"),
        "16:26: syntax error: found `;`, expected `+=`, `=`, `.`, `<`, `(` or `[`",
    ),
    (dict(top="header x_t { bit<-1> a; }"), "3:14: bit<-1>: the width must be 0 to 2048"),
    (dict(top="@name("), "3:1: the annotation @name is never closed"),
    (dict(top="#error stop"), "3:2: #error stop"),
    (dict(top="#if"), "3:4: #if with no expression"),
    (
        dict(top='#include "/etc/hostname"'),
        '3:1: a program given as text may include only <core.p4> and <v1model.p4>, not "/etc/hostname": preprocess '
        "it first, or compile the file",
    ),
]
NUMBERED_CONTROL = "control n_t(inout bit<8> x)(int n) { apply { x[n:0] = 1; } }"
REGISTER_CONTROL = "control n_t(inout bit<8> x, register<bit<8>> r) { apply { r.read(x, 0); } }"
CONSTRUCTORS = [
    (
        dict(top=NUMBERED_CONTROL, local="n_t(3) n; n_t(9) m;", apply="n.apply(hdr.data.a);"),
        "3:46: slice [9:0] of bit<8>: needs 7 >= high >= low >= 0 (in n_t with n = 9)",
    ),
    (dict(top="control n_t(inout bit<8> x)(bit<8> n) { apply { x = y; } }"), "3:53: y is not declared"),
    (
        dict(top="control n_t(inout bit<8> x)(bit<8> n) { apply { n = x; } }", local="n_t(3) n; n_t(4) m;"),
        "3:49: assignment: n is a constant, which cannot be written to",
    ),
    (
        dict(top=NUMBERED_CONTROL, local="n_t(hdr.data.a) n;"),
        "14:18: argument n of n_t of type bit<8> where int is needed",
    ),
    (
        dict(top="control n_t(inout bit<8> x)(bit<8> n) { apply { } }", local="n_t(hdr.data.a) n;"),
        "14:18: argument n of n_t must be known at compile time",
    ),
    (
        dict(top="control o_t() { apply { } } control n_t(o_t r) { apply { } }"),
        "3:45: parameter r: a control is given to the constructor, `n_t(...)(o_t r)`, not to apply()",
    ),
    (
        dict(top=REGISTER_CONTROL, local="n_t() n; register<bit<16>>(3) r;", apply="n.apply(hdr.data.a, r);"),
        "16:29: argument r of apply of type register<bit<16>> where register<bit<8>> is needed",
    ),
    (
        dict(top="struct q { bit<8> a; } bit<8> f() { return 1; } const q c = { f() };"),
        "3:63: constant c: the value is not known at compile time",
    ),
    (
        dict(top="const tuple<bit<8>, bit<8>> c = { 1, 2 };", apply="hdr.data.a = c[2];"),
        "16:24: index 2 of tuple<bit<8>, bit<8>>: 0 to 1 exist",
    ),
    (
        dict(apply='log_msg("a" ++ 8w1);'),
        "16:17: ++ needs numbers with a width, such as 8w1, or two strings, not string",
    ),
    (dict(local="table u { actions = { NoAction; } stage = nowhere; }"), "14:47: nowhere is not declared"),
    (dict(local="string[2] s;"), "14:5: an array of string: headers, structs, tuples, numbers, bool, enums and errors"),
    (
        dict(local="bit<8>[2] s;", apply="s.push_front(1);"),
        "16:11: an array of bit<8> has no methods: header stacks have push_front and pop_front",
    ),
    (
        dict(local="bit<8>[2] s;", apply="hdr.data.a = s.lastIndex;"),
        "16:24: an array of bit<8> has no member lastIndex (has: size)",
    ),
    (
        dict(local="bit<8>[2] s;", apply="s = { 1, 2, 3 };"),
        "16:15: assignment: 3 values for the 2 elements of bit<8>[2]",
    ),
]
NAMES = [
    (dict(apply="hdr.data.nope = 1;"), "16:18: header data_t has no field nope (has: a, b, s, w)"),
    (dict(apply="forwrd(1);"), "16:9: forwrd is not declared (did you mean forward?)"),
    (dict(apply="t.aply();"), "16:11: a table has no method aply (has: apply)"),
    (
        dict(apply="hdr.data.isVald();"),
        "16:18: header data_t has no method isVald (has: isValid, maxSizeInBits, "
        "maxSizeInBytes, minSizeInBits, minSizeInBytes, setInvalid, setValid)",
    ),
    (dict(apply="bit<8> x = 1; bit<8> x = 2;"), "16:30: x is already declared at program.p4:16:16"),
    (
        dict(apply="switch (t.apply().action_run) { forwrd: {} }"),
        "16:41: switch: forwrd is no action of table t (has: forward)",
    ),
    (
        dict(local="table u { key = { hdr.data.a : exct; } actions = { NoAction; } }"),
        "14:32: table u: no match kind exct (has: exact, lpm, optional, range, selector, ternary)",
    ),
    (
        dict(local="table u { actions = { NoActon; } }"),
        "14:27: action NoActon is not declared (did you mean NoAction?)",
    ),
    (
        dict(local="table u { actions = { NoAction; } sise = 3; }"),
        "14:39: table u: unknown property sise (has: actions, counters, default_action, entries, "
        "implementation, key, largest_priority_wins, meters, priority_delta, size, support_timeout)",
    ),
    (dict(next="nowhere"), "8:40: no state nowhere (has: accept, reject, start)"),
    (
        dict(parse="b.extrakt(hdr.data);"),
        "8:21: extern packet_in has no method extrakt (has: advance, extract, length, lookahead)",
    ),
    (
        dict(top="control Ingress() { apply { } }"),
        f"3:9: Ingress is already declared at {ROOT}/mrc_testbed/switch/include/",
    ),
    (dict(apply="hdr.data.a = (bit<8>) HashAlgorithm.crc15;"), "16:31: enum HashAlgorithm has no member crc15 (has: "),
    (dict(main=" "), "21:9: the program has no `main`: end it with V1Switch(...) main;"),
]
TYPES = [
    (
        dict(apply="hdr.data.a = hdr.data.w;"),
        "16:31: assignment of type bit<32> where bit<8> is needed: a cast would do, (bit<8>)",
    ),
    (
        dict(apply="hdr.data.b = hdr.data.a + hdr.data.w;"),
        "16:31: bit<8> + bit<32>: both sides must have one type: a cast would do, (bit<32>)",
    ),
    (
        dict(apply="hdr.data.a = (bit<8>) hdr.data.s;"),
        "16:23: int<16> cannot be cast to bit<8>: change the width first, (bit<8>)(int<8>)",
    ),
    (dict(apply="if (hdr.data.a) { }"), "16:22: if needs bool, not bit<8>: compare with 0, say"),
    (dict(apply="hdr.data.a[9:3] = 1;"), "16:18: slice [9:3] of bit<8>: needs 7 >= high >= low >= 0"),
    (dict(apply="forward();"), "16:9: forward takes 1 argument (port), not 0"),
    (dict(apply="mark_to_drop(std, std);"), "16:9: mark_to_drop takes 0 arguments or 1 argument, not 2"),
    (
        dict(top="enum bit<8> e_t { a = 1, b = 1 }", apply="switch ((e_t)hdr.data.a) { e_t.a: { } e_t.b: { } }"),
        "16:47: switch: this label stands twice",
    ),
    (
        dict(local="action x(bit<8> a) { a = 1; }"),
        "14:26: assignment: parameter a has no direction; only `out` and `inout` can be written",
    ),
    (dict(local="action x() { t.apply(); }"), "14:20: an action cannot apply a table"),
    (dict(local="action x() { if (t.apply().hit) { } }"), "14:24: an action cannot apply a table"),
    (dict(local="action x() { bool b = t.apply().miss; }"), "14:29: an action cannot apply a table"),
    (
        dict(apply="hdr.data.w = HashAlgorithm.minSizeInBits();"),
        "16:22: minSizeInBits of HashAlgorithm: it has no width",
    ),
    (dict(apply="hdr.data.w = data_t.maxSizeInBits(8);"), "16:22: maxSizeInBits takes no arguments"),
    (
        dict(local="table u { actions = { forward; } default_action = forward(); }"),
        "14:55: action forward takes 1 argument (port), not 0",
    ),
    (
        dict(local="table u { actions = { NoAction; } default_action = forward(1); }"),
        "14:56: table u: no action forward (has: NoAction)",
    ),
    (
        dict(local="table u { key = { hdr.data.a + 1: exact; } actions = { NoAction; } }", apply="u.apply();"),
        '14:32: this key needs a name: write expression : kind @name("...");',
    ),
    (
        dict(
            local="table u { key = { hdr.data.a : exact; } actions = { forward; } entries = { (1, 2): forward(1); } }",
            apply="u.apply();",
        ),
        "14:81: entry of table u: 2 values for 1 key",
    ),
    (dict(parse="b.extract(hdr);"), "8:21: extract needs a header, not a headers_t"),
    (
        dict(top="header h { bit<7> x; }", fields="h odd;", parse="b.extract(hdr.odd);"),
        "3:8: header h has 7 bits: only whole bytes can be sent: add a field of bit<1>",
    ),
    (
        dict(top="const bit<8> K = 1; const bit<4> L = K;"),
        "3:38: constant L of type bit<8> where bit<4> is needed: a cast would do, (bit<4>)",
    ),
    (dict(top="enum bit<4> e { A = 1, B }"), "3:24: enum e: member B needs a value"),
    (dict(local="bit<5000> big;"), "14:5: bit<5000>: the width must be 0 to 2048"),
    (
        dict(main="V1Switch(V(), V(), I(), E(), C(), D()) main;"),
        "22:10: argument p of V1Switch must be a parser, made in place: Name()",
    ),
    (
        dict(main="V1Switch(P(), V(), I(), E(), C()) main;"),
        "22:35: V1Switch takes 6 arguments (p, vr, ig, eg, ck, dep), not 5",
    ),
]
STACK = dict(top="header d_t { bit<8> v; }", fields="d_t[4] st; d_t one;")
TYPES += [
    (dict(**STACK, apply="hdr.st[4].v = 1;"), "16:16: index 4 of d_t[4]: 0 to 3 exist"),
    (dict(**STACK, apply="hdr.st.next.v = 1;"), "16:16: `next` of a header stack exists only in parsers: use an index"),
    (dict(**STACK, apply="hdr.st.push(1);"), "16:16: a header stack has no method push (has: pop_front, push_front)"),
    (dict(**STACK, apply="hdr.st.push_front(-1);"), "16:27: push_front needs a count of at least 0"),
    (
        dict(**STACK, apply="hdr.st.top = hdr.one;"),
        "16:16: d_t[4] has no member top (has: last, lastIndex, next, size)",
    ),
    (
        dict(apply="hdr.data.a[hdr.data.b].c = 1;"),
        "16:18: bit<8> cannot be indexed: only header stacks, arrays and tuples can",
    ),
    (
        dict(apply="tuple<bit<8>> x = { 1 }; hdr.data.a = x[hdr.data.b];"),
        "16:58: the index of a tuple must be known at compile time",
    ),
    (dict(top="bit<8> f(in bit<8> x) { return; }"), "3:25: function f returns a bit<8>: return needs a value"),
    (dict(top="void f(in bit<8> x) { return x; }"), "3:23: return with a value: only a function with a result"),
    (
        dict(top="bit<8> f(in bit<8> x) { return x; }", apply="hdr.data.w = f(1);"),
        "16:22: assignment of type bit<8> where bit<32> is needed: a cast would do, (bit<32>)",
    ),
    (
        dict(top="bit<8> f(in bit<8> x) { return x; }", apply="hdr.data.a = f(_);"),
        "16:24: argument x of f: `_` stands only for an `out` argument",
    ),
    (
        dict(top="T f<T>(in T x) { return x; }", apply="hdr.data.a = f(1);"),
        "16:22: f: cannot tell type T: write f<...>(...), or give a width",
    ),
    (dict(top="struct G<T> { T x; }", apply="G<bit<8>, bit<8>> g;"), "16:9: G takes 1 type argument, not 2"),
    (dict(apply="break;"), "16:9: break outside a loop"),
    (dict(apply="for (bit<8> i = 0; i; i += 1) { }"), "16:28: for needs bool, not bit<8>: compare with 0, say"),
    (dict(apply="for (bit<8> i in hdr.data) { }"), "16:30: for goes over a range, a list or an array of bit<8>"),
    (
        dict(
            top="parser Q(packet_in b) { state start { transition accept; } } control c()(Q q){ apply{ q.apply(1); } }"
        ),
        "3:89: a parser can be applied only in a parser",
    ),
    (
        dict(top="header v_t { bit<8> n; varbit<32> v; }", fields="v_t v;", parse="b.extract(hdr.v);"),
        "8:21: header v_t has a varbit field, v: extract takes 2 arguments",
    ),
    (dict(parse="b.extract(hdr.data, 8);"), "8:21: header data_t has no varbit field: extract takes 1 argument"),
    (
        dict(top="header v_t { varbit<32> a; varbit<32> b; }", fields="v_t v;", parse="b.extract(hdr.v, 8);"),
        "3:39: header v_t: a second varbit field",
    ),
    (
        dict(top="header d_t { bit<8> v; } header_union u_t { d_t d; }", fields="u_t u;", apply="hdr.u.setValid();"),
        "16:15: setValid of a header_union: set a member of it",
    ),
    (dict(apply='log_msg("x", ...);'), "16:22: `...` stands only for a whole value, or at the end"),
    (dict(apply="hdr.data = { ..., 1, 2, 3 };"), "16:22: `...` stands only for a whole value, or at the end of a list"),
    (dict(apply="forward(port = 1, port = 2);"), "16:27: forward: the argument port is given twice"),
    (dict(top="bit<8> f(in bit<8> x = Y) { return x; }", local="const bit<8> Y = 1;"), "3:24: Y is not declared"),
    (dict(apply="for (bit<8> x in (list<bit<9>>){ 1 }) { }"), "16:27: for over a list of bit<8> needs list<bit<8>>"),
    (
        dict(apply="hdr.data = { a = 1, z = 2, ... };"),
        "16:26: assignment: the fields of data_t are a, b, s, w; given a, z",
    ),
    (dict(apply="hdr.data = { a = 1, a = 2, ... };"), "16:26: assignment: the field a is given twice"),
    (
        dict(apply="hdr.data.a = hdr.data.w[hdr.data.s +: 8];"),
        "16:42: a slice begins at a bit<N> or a number, not at a int<16>",
    ),
    (
        dict(apply="hdr.data.a = hdr.data.w[hdr.data.a +: 33];"),
        "16:47: a slice of 33 bits of bit<32>: 1 to 32 can be taken",
    ),
    (dict(apply="hdr.data.a = hdr.data.w[28 +: 8];"), "16:31: slice [35:28] of bit<32>: needs 31 >= high >= low >= 0"),
    (dict(apply='static_assert(1 + 1 == 3, "one and one");'), "16:9: static_assert failed: one and one"),
    (dict(apply="static_assert(hdr.data.a == 3);"), "16:9: static_assert: the condition is not known at compile time"),
    (dict(apply="bool b = (bool)2;"), "16:19: 2 as bool: 0 and 1 are, as false and true"),
    (dict(apply="bit<8> x = 1 + (int)hdr.data.a;"), "16:25: bit<8> as int: the value must be known at compile time"),
    (
        dict(apply="bit<8> x = (bit<8>)((int)hdr.data.a / 2);"),
        "16:30: bit<8> as int: the value must be known at compile time, but in sums, differences and products that",
    ),
    (dict(apply="bit<8> x = (bit<8>)((int)hdr.data.a + hdr.data.b);"), "16:56: an int is needed here, not a bit<8>"),
    (dict(top="bit<8> f() { exit; return 1; }"), "3:14: a function cannot exit: only controls and actions can"),
    (dict(parse="if (std.ingress_port == 1) { exit; }"), "8:48: a parser cannot exit: only controls and actions can"),
    (dict(parse="if (std.ingress_port == 1) { return; }"), "8:48: return in a parser: a transition ends a state"),
    (
        dict(
            local="table u { key = { hdr.data.a : ternary; } actions = { NoAction; } entries = { "
            "priority = 1 : 1 : NoAction(); 2 : NoAction(); 3 : NoAction(); } }",
            apply="u.apply();",
        ),
        "14:134: table I.u: the priority of this entry would be -1",
    ),
    (dict(local="table u { actions = { NoAction; } priority_delta = 0; }"), "14:39: priority_delta must be at least 1"),
    (
        dict(local="direct_meter<bit<8>>(MeterType.bytes) m; table u { actions = { NoAction; } counters = m; }"),
        "14:80: table u: `counters` must be an instance of direct_counter",
    ),
    (
        dict(local="table u { actions = { NoAction; } support_timeout = 3; }"),
        "14:39: table u: support_timeout is true or false",
    ),
]
UNSUPPORTED_PARTS = [
    (dict(apply="clone(CloneType.E2E, 5);"), "16:9: CloneType.E2E outside the egress"),
    (dict(apply="recirculate_preserving_field_list(1);"), "16:9: recirculate outside the egress"),
    (dict(top="const list<bit<8>> L = { 1, 2 };"), "3:7: list<T> here"),
    (dict(local="register<data_t>(5) m;"), "14:25: a register of data_t"),
    (dict(local="bit<200> big;", apply="big[hdr.data.a +: 8] = 1;"), "16:9: writing [... +: ...] of bit<200>"),
    (dict(local="bit<2048> b; table u { key = { b : exact; b : exact; b : exact; } actions = { forward; } }",
          apply="u.apply();"), "14:24: table I.u with a longer key"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "message"), SYNTAX + CONSTRUCTORS + NAMES + TYPES)
def test_wrong__place_cause_and_what_would_have_worked(parts, message):
    assert complaint(program(**parts)).startswith(f"program.p4:{message}")


@pytest.mark.parametrize(("parts", "message"), UNSUPPORTED_PARTS)
def test_unsupported__refused_by_name(parts, message):
    error_text = complaint(program(**parts))
    assert error_text.startswith(f"program.p4:{message} ") and "not supported by the C backend" in error_text


def test_base_program__compiles():
    assert compile_program(program()).library.exists()


def test_file__name_line_and_column_of_the_author(tmp_path):
    """cpp squeezes blanks and comments; the column is the author's all the same, in included files too."""
    (tmp_path / "parts.p4").write_text("\n    const    bit<8>  K  = /* why */  nothing;\n")
    main = tmp_path / "usid.p4"
    main.write_text('#include <core.p4>\n#include "parts.p4"\n')
    with pytest.raises(P4Error) as caught:
        compile_program(main)
    assert str(caught.value) == f"{tmp_path}/parts.p4:2:38: nothing is not declared"
    assert (caught.value.location.line, caught.value.location.column) == (2, 38)


def test_config__compiles_to_the_same_and_names_the_same_places(tmp_path):
    """`config` travels over P4Runtime; the far end sees the same program and the author's file names."""
    first = compile_program(PROGRAMS / "srv6.p4")
    second_program = compile_program(first.config.decode())
    assert (second_program.name, second_program.p4info) == (first.name, first.p4info)
    assert second_program.config == first.config and second_program.library == first.library
    bad_source = first.config.decode().replace("hdr.outer.hop_limit <= 1", "hdr.outer.hop_limt <= 1")
    assert "ingress.p4:" in complaint(bad_source) and "has no field hop_limt" in complaint(bad_source)


MISTAKES = """
    hdr.data.nothing = 1;
    bit<8> lost = hdr.data.nowhere;
    lost = 8w1;
    if (hdr.data.a == 1) { mising(); exit; }
    hdr.data.w = hdr.data.a;"""


def test_several_mistakes__each_is_told_once_and_no_consequence():
    """`lost` is not declared only because its declaration is wrong."""
    with pytest.raises(P4Error) as caught:
        compile_program(program(apply=MISTAKES, top="const bit<8> X = 8w1 + 4w1;"))
    lines = caught.value.lines()
    assert [line.split(": ", 2)[1] for line in lines] == ["error"] * 5
    assert [int(line.split(":")[1]) for line in lines] == sorted(int(line.split(":")[1]) for line in lines)
    assert all(word in line for word, line in zip(("4", "nothing", "nowhere", "mising", "bit<32>"), lines, strict=True))
    assert str(caught.value) == lines[0].replace(" error:", "")


def test_several_mistakes__twenty_are_enough():
    with pytest.raises(P4Error) as caught:
        compile_program(program(apply="".join(f"n{number}(); " for number in range(50))))
    assert len(caught.value.lines()) == 20


@pytest.mark.parametrize("tool", ["cpp", "gcc"])
def test_missing_tool__named_with_the_cure(tool, tmp_path, monkeypatch):
    cpp_path = subprocess.run(["which", "cpp"], capture_output=True, text=True, check=True).stdout.strip()
    if tool == "gcc":
        (tmp_path / "cpp").symlink_to(cpp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(P4Error, match=rf"^{tool} is not on PATH: install it \(Debian, Ubuntu: apt-get install"):
        compile_program(PROGRAMS / "srv6.p4")


def test_cache__two_processes_at_once_and_nothing_left_over(tmp_path):
    program = str(PROGRAMS / "srv6.p4")
    code = f"from mrc_testbed.switch.compiler import compile_program; print(compile_program({program!r}).library)"
    env = {**os.environ, "MRC_CACHE_DIR": str(tmp_path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    paths = {process.communicate()[0].strip() for process in processes}
    assert len(paths) == 1 and Path(paths.pop()).exists()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".c", ".p4info", ".so", ".tables", ".warnings"]


def test_hostile__names_cannot_leave_a_comment_or_clash_in_c():
    """File names in line markers and @name come over the network; the C they end up in runs as root."""
    evil = "*/ int evil = ; /*"
    text = compile_program(program()).config.decode().replace('"program.p4"', f'"{evil}"')
    assert "int evil" in compile_program(text).c_path.read_text()
    clashes = """
    action int(bit<8> register, in bit<8> void_) { }"""
    assert complaint(program(local=clashes)).startswith("program.p4:15:12: syntax error: found the keyword `int`")
    names = """
    @name("a.b_c") table u { key = { hdr.data.a : exact @name("*/ int x; /*"); } actions = { x; y; } }
    @name("a_b.c") table w { key = { hdr.data.linux : exact; } actions = { x; y; } }
    @name("p.q_r") action x(bit<8> memcpy) { hdr.data.at = memcpy; }
    @name("p_q.r") action y(bit<8> dev) { bit<8> action_I_forward = dev; hdr.data.is_valid = action_I_forward; }"""
    local = names.replace('    @name("a.b', '    /*t*/@name("a.b')
    actions, tables = local[local.index('    @name("p.q') :], local[: local.index('    @name("p.q')]
    fields = "bit<8> linux; bit<8> at; bit<8> at_; bit<8> is_valid; bit<8> INT8_MAX;"
    source = program(local=actions + tables, apply="u.apply(); w.apply(); hdr.data.at_ = hdr.data.INT8_MAX;")
    assert compile_program(source.replace("bit<32> w; }", f"bit<32> w; {fields} }}")).library.exists()
