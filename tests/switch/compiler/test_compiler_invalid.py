"""Programs that look right and are not, and the places of what the compiler did not foresee."""

from __future__ import annotations

import pytest

from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.compiler.backend import emit_tables
from mrc_testbed.switch.compiler.compiler import check_program
from mrc_testbed.switch.compiler.sema import check_expr
from tests.switch.compiled_programs import Bench
from tests.switch.compiler.test_errors import STACK, complaint, program

NUMBERS = [
    (
        dict(local="action a(in int n) { hdr.data.a = hdr.data.a + n; }"),
        "14:21: parameter n of type int is `in`: an "
        "int is known at compile time and has no direction; give it a width, such as bit<32>",
    ),
    (
        dict(local="action a(int n) { hdr.data.a = n; }", apply="a(hdr.data.b);"),
        "16:20: argument n of a of type bit<8> where int is needed",
    ),
    (
        dict(local="action a(int n) { } table u { actions = { a; } }"),
        "14:47: table u: the control plane cannot give n of action a, an int: give it a width, such as bit<32>",
    ),
    (
        dict(top="control Sub(int n) { apply { } }", local="Sub() s;", apply="s.apply(1); s.apply(2);"),
        "16:23: s is applied with other constants for its int parameters: declare a second one",
    ),
    (
        dict(top="bit<8> twice(bit<8> x) { return x + x; }", apply="hdr.data.a = twice(hdr.data.b);"),
        "16:37: argument x of twice must be known at compile time, for x has no direction: write `in`",
    ),
    (
        dict(top="bool more<T>(in T a, in T b) { return a > b; }"),
        "3:39: > is not defined on T, which may be any type: only == and != are",
    ),
    (dict(apply="int x = 3;"), "16:13: x cannot be a variable of type int: make it a `const`, or give it a width"),
    (dict(top="struct s_t { int x; }"), "3:18: field x cannot be a int"),
    (dict(apply="hdr.data.a = 0s0 + 1;"), "16:22: a number of type int<0>: int<N> has at least 1 bit"),
    (
        dict(apply="tuple<int> x = { 1 }; hdr.data.a = x[0];"),
        "16:44: assignment of type int: it must be known at compile time, or have a width, such as bit<32>",
    ),
    (dict(apply="resubmit(1);"), "16:18: argument data of resubmit has no width: write 8w1, say"),
    (dict(apply="digest(1, 5);"), "16:19: argument data of digest has no width: write 8w1, say"),
]
LOCATIONS = [
    (
        dict(top="control Sub() { apply { } } Sub() s;", apply="s.apply();"),
        "3:35: s: a control cannot be made at the "
        "top level: declare it in the control that applies it, or give it to V1Switch as Name()",
    ),
    (
        dict(top="parser Q(packet_in b) { state start { transition accept; } } Q() q;", parse="q.apply(b);"),
        "3:66: q: a parser cannot be made at the top level",
    ),
    (
        dict(local="action a(in bool x) { } table u { actions = { a(t.apply().hit); } }", apply="u.apply();"),
        "14:55: argument x of action a applies table t: apply it before, and keep what it gives in a variable",
    ),
]
TERNARY = "table u { key = { hdr.data.a : ternary; } actions = { NoAction; @defaultonly forward; } "
TABLES = [
    (
        dict(
            local="table u { key = { hdr.data.a : exact; hdr.data.b : lpm; } actions = { NoAction; } "
            "entries = { priority = 1 : (1, 2) : NoAction(); } }"
        ),
        "14:110: table u: entries of a table with exact and lpm keys only have no priority",
    ),
    (
        dict(local=TERNARY + "entries = { 1 : NoAction(); priority = 1 : 2 : NoAction(); } }"),
        "14:105: table u: the first entry needs a priority, for a later one has one: write priority = N: before it",
    ),
    (
        dict(local=TERNARY + "const entries = { priority = 1 : 2 : NoAction(); } }"),
        "14:122: table u: const entries have the priorities of their order: leave out `priority`, or `const`",
    ),
    (
        dict(local=TERNARY + "entries = { 1 : forward(3); } }"),
        "14:109: table u: forward is @defaultonly and cannot be the action of an entry",
    ),
    (
        dict(local="table u { actions = { @tableonly NoAction; } default_action = NoAction(); }"),
        "14:67: table u: NoAction is @tableonly and cannot be the default action",
    ),
    (
        dict(local="table u { actions = { NoAction; forward; .NoAction; } }"),
        "14:47: table u: action NoAction stands twice in `actions`",
    ),
    (
        dict(local="action NoAction() { } table u { actions = { .NoAction; } default_action = NoAction; }"),
        "14:79: table u: this NoAction is another action, at program.p4:14:12; the one in `actions` is at ",
    ),
    (
        dict(local="table u { actions = { NoAction; } entries = { 1 : NoAction(); } key = { hdr.data.a : exact; } }"),
        "14:86: table u: the key stands below the entries: write it above them",
    ),
    (
        dict(local="table u { actions = { NoAction; } entries = { 1 : NoAction(); } }"),
        "14:11: table u has entries and no key: entries have a value for each field of the key",
    ),
    (
        dict(
            local='@name(".same") action a() { } @name(".same") action b() { } table u { actions = { a; b; } } ',
            apply="u.apply();",
        ),
        "14:57: the control plane has two things called same: give one another @name "
        "(the other is at program.p4:14:27)",
    ),
    (
        dict(
            local='@name(".same") action a() { } @name(".same") action b(bit<8> x) { } '
            "table u { actions = { a; } } table v { actions = { b; } }",
            apply="u.apply(); v.apply();",
        ),
        "14:57: the control plane has two things called same: give one another @name ",
    ),
]
PARSERS = [
    (
        dict(parse="transition two; } state two {", next="start"),
        "7:8: parser P never ends: no way from start leads to accept or reject",
    ),
    (dict(top="action a() { }", parse="a();"), "8:19: a parser cannot call an action, a: make it a function"),
    (dict(top="action a() { } void f() { a(); }"), "3:27: a function cannot call an action, a: make it a function"),
    (dict(apply="verify(true, error.NoMatch);"), "16:9: verify stands only in parsers: elsewhere, write if (...)"),
    (
        dict(**STACK, apply="hdr.data.w = hdr.st.lastIndex;"),
        "16:29: `lastIndex` of a header stack exists only in parsers: keep it in the metadata there",
    ),
]
DECLARATIONS = [
    (
        dict(top="type bit<8> t_t;", apply="hdr.data.a = hdr.data.a << (t_t)hdr.data.b;"),
        "16:37: << needs bit<N> or a constant on the right, not t_t: a cast would do, (bit<8>)",
    ),
    (dict(apply="hdr.data.a = hdr.data.b / 0;"), "16:35: / by 0 has no result"),
    (dict(apply="hdr.data.a = hdr.data.b % 8w0;"), "16:35: % by 0 has no result"),
    (
        dict(top='@p4runtime_translation("x", bool) type bit<8> t_t;'),
        "3:1: malformed @p4runtime_translation: it has a string and the type for the control plane, "
        "bit<N>, N or string",
    ),
    (dict(top='@p4runtime_translation("x", bit<4+4>) type bit<8> t_t;'), "3:1: malformed @p4runtime_translation"),
    (dict(top="@p4runtime_translation type bit<8> t_t;"), "3:1: malformed @p4runtime_translation"),
    (dict(top="struct G<T, T> { T x; }"), "3:8: G has two type parameters T"),
    (dict(top="T f<T, U, T>(in T x) { return x; }"), "3:3: f has two type parameters T"),
    (dict(top="void f(out bit<8> x = 3) { x = 1; }"), "3:19: parameter x is `out` and cannot have a default value"),
    (dict(top="type bit<8> t_t; enum t_t e { A = 1 }"), "3:27: enum e: the underlying type must be bit<N> or int<N>"),
    (dict(top="enum bit<4> e { A = 16 }"), "3:21: enum e: the value 16 of A does not fit bit<4>"),
    (dict(top="struct s_t { string x; }"), "3:21: field x cannot be a string"),
    (dict(top="match_kind { near, exact }"), "3:14: match_kind exact is declared twice"),
    (
        dict(top="control Sub() { apply { } } control Use(Sub s) { apply { } }"),
        "3:45: parameter s: a control is given to the constructor, `Use(...)(Sub s)`, not to apply()",
    ),
    (dict(apply="bit<8> hdr = 1;"), "16:16: hdr hides the parameter hdr at program.p4:11:27: give it another name"),
    (
        dict(local="action a() { switch (hdr.data.a) { default: { } } }"),
        "14:35: a switch in an action is not supported by the C backend (nor by p4c for BMv2: write if ... else)",
    ),
]
ORDER = "; the order is V1Switch(parser, verify checksum, ingress, egress, compute checksum, deparser)"
HINTS = [
    (
        dict(apply="if (t.apply()) { }"),
        "16:15: if needs bool, not the result of apply(): write t.apply().hit, or .miss",
    ),
    (
        dict(apply="if (!t.apply()) { }"),
        "16:16: ! needs bool, not the result of apply(): write t.apply().hit, or .miss",
    ),
    (
        dict(apply="bool x = t.apply();"),
        "16:20: initial value of x of type the result of apply() where bool is needed: write t.apply().hit, or .miss",
    ),
    (
        dict(main="V1Switch(P(), I(), V(), E(), C(), D()) main;"),
        "22:15: I has 3 parameters; v1model gives 2 here (inout H, inout M)" + ORDER,
    ),
    (
        dict(main="V1Switch(P(), V(), I(), E(), D(), C()) main;"),
        "22:30: D: b is a packet_out where the headers belong" + ORDER,
    ),
    (
        dict(main="V1Switch(V(), P(), I(), E(), C(), D()) main;"),
        "22:10: argument p of V1Switch must be a parser, made in place: Name()" + ORDER,
    ),
    (dict(apply="hdr.data = {};"), "16:20: assignment: 0 values for the 4 fields of data_t"),
    (
        dict(top="bit<8> f(in bit<8> x) { return f(x); }"),
        "3:32: f cannot be used inside its own declaration: P4 has no recursion",
    ),
    (dict(local="action a() { a(); }"), "14:18: a cannot be used inside its own declaration: P4 has no recursion"),
    (dict(top="control S() { apply { S.apply(); } }"), "3:23: S cannot be used inside its own declaration"),
    (
        dict(top="void f() { g(); } void g() { f(); }"),
        "3:12: g is not declared yet: it is declared below, at program.p4:3:24; move it above its use",
    ),
    (
        dict(local="action a() { u.apply(); } table u { actions = { NoAction; } }"),
        "14:18: u is not declared yet: it is declared below, at program.p4:14:37; move it above its use",
    ),
    (
        dict(local="table u { key = { x : exact; } actions = { NoAction; } } bit<8> x;"),
        "14:23: x is not declared yet: it is declared below, at program.p4:14:69; move it above its use",
    ),
    (
        dict(apply="hdr.data.a = hdr.data.b\n hdr.data.b = 1;"),
        "16:32: syntax error: expected `;` after `b`, found `hdr`",
    ),
    (dict(apply="hdr.data.a = hdr.data.b hdr.data.b = 1;"), "16:32: syntax error: expected `;` after `b`, found `hdr`"),
    (
        dict(apply="bit<8> x = 3\n bit<8> y = 4;"),
        "16:21: syntax error: expected `;` after `3`, found the keyword `bit`",
    ),
    (
        dict(top="typedef bit<8> byte_t\nstruct s_t { }"),
        "3:22: syntax error: expected `;` after `byte_t`, found the keyword `struct`",
    ),
]


@pytest.mark.parametrize(("parts", "message"), NUMBERS + LOCATIONS + TABLES + PARSERS + DECLARATIONS + HINTS)
def test_invalid__place_cause_and_what_would_have_worked(parts, message):
    assert complaint(program(**parts)).startswith(f"program.p4:{message}")


@pytest.mark.parametrize(("version", "value"), [("20000101", 20000101), ("-1", 2**32 - 1), ("20990101", 20990101)])
def test_v1model_version__another_is_a_warning_as_p4c_takes_all(version, value):
    warnings = check_program(f"#define V1MODEL_VERSION {version}\n" + program(apply="t.apply();"))
    assert [warning.message for warning in warnings if "V1MODEL" in warning.message] == [
        f"V1MODEL_VERSION {value}: v1model had 20180101 to 20200408"
    ]


@pytest.mark.parametrize("types", ["headers_t { data_t data; odd_t o; }", "metadata_t { odd_t[2] o; }"])
def test_header_of_no_whole_bytes__is_refused_unsent_as_well(types):
    text = program(top="header odd_t { bit<12> a; }")
    name = types.partition(" ")[0]
    text = "\n".join(f"struct {types}" if line.startswith(f"struct {name}") else line for line in text.splitlines())
    assert complaint(text).endswith(
        "3:8: header odd_t has 12 bits: only whole bytes can be sent: add a field of bit<4>"
    )


METER_TABLE = "direct_meter<bit<8>>(MeterType.bytes) m; table u { actions = { a; } meters = m; }"


@pytest.mark.parametrize(
    ("action", "statements"),
    [
        ("action a() { m.read(hdr.data.a); }", "u.apply();"),
        ("action b() { m.read(hdr.data.a); } action a() { b(); }", "u.apply();"),
        ("action a() { }", "u.apply(); m.read(hdr.data.a);"),
        ("action a() { }", ""),
    ],
)
def test_direct_meter__is_read_in_an_action_or_by_the_control(action, statements):
    check_program(program(local=METER_TABLE.replace("table", f"{action} table"), apply=statements))


def test_direct_meter__that_nothing_reads_is_a_mistake():
    text = program(local=METER_TABLE.replace("table", "action a() { } table"), apply="u.apply();")
    assert complaint(text).startswith("program.p4:14:67: table u: no action reads its direct meter m")


@pytest.mark.parametrize(
    "local",
    [
        "bit<8> meta = 3; action a() { hdr.data.a = meta; }",
        "register<bit<8>>(2) meta;",
        "action meta() { }",
        "table meta { actions = { NoAction; } }",
        "const bit<8> meta = 1;",
    ],
)
def test_parameter__a_name_of_the_control_may_hide_it(local):
    check_program(program(local=local))


def test_program__without_a_switch_ends_in_its_own_file():
    assert complaint("#include <core.p4>\n").startswith("program.p4:1:1: the program has no `main`")


def test_v1switch__wants_the_directions_of_v1model():
    text = program().replace("control E(inout headers_t hdr", "control E(in headers_t hdr")
    assert complaint(text) == "program.p4:19:24: E: parameter hdr must be `inout`"


def test_v1switch__wants_structs_as_headers_and_metadata():
    text = program().replace("headers_t hdr", "data_t hdr").replace("hdr.data", "hdr")
    assert complaint(text) == "program.p4:7:34: P: parameter hdr must be a struct, not a data_t"


def test_direct_meter__that_no_table_has_is_not_read():
    text = program(
        local="direct_meter<bit<8>>(MeterType.bytes) m; action a() { m.read(hdr.data.a); }",
        apply="a();",
    )
    assert "14:61: direct meter m belongs to no table: write `meters = m;` in one" in complaint(text)


def test_size_of_0__is_taken_as_p4c_takes_it_but_for_registers():
    parts = dict(local="counter(0, CounterType.packets) c;", apply="c.count(0);")
    assert compile_program(program(**parts)).p4info.counters[0].size == 0
    message = "14:22: I.r: size 0: must be 1 to 67108864"
    assert message in complaint(program(local="register<bit<8>>(0) r;", apply="r.write(0, 1);"))


TABLE = "control c(in bit<8> x) {{ table t {{ key = {{ x : {}; }} actions = {{ }} }} apply {{ }} }}\n"
CORE = "#include <core.p4>\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("control c(packet_in x) { apply { } }\n", "expected a type, `in`, `inout`, `out` or `)` (it is in core.p4: "),
        (CORE + "control c() { counter(3, 4) y; apply { } }\n", "`table` (it is in v1model.p4: write #include <v1m"),
        (CORE + "control c() { apply { mark_to_drop(); } }\n", "mark_to_drop is not declared: it is in v1model.p4, w"),
        (TABLE.format("exact"), "table t: no match kind exact (it is in core.p4: write #include <core.p4>)"),
        (CORE + TABLE.format("range"), "no match kind range (it is in v1model.p4: write #include <v1model.p4>)"),
    ],
)
def test_missing_include__is_named(text, message):
    assert message in complaint(text)


def test_generated_c__names_the_place_of_each_statement():
    apply = """bit<8> x = hdr.data.a;
        if (x == 1) {
            hdr.data.b = x;
        } else { t.apply(); }
        for (bit<8> i in 1 .. 3) { hdr.data.a = hdr.data.a + i; }
        switch (x) { 1: { exit; } }"""
    lines = compile_program(program(apply=apply, parse="b.extract(hdr.data);")).c_path.read_text().splitlines()
    locations = {line.strip().rpartition(" /* program.p4:")[2] for line in lines if line.endswith(" */")}
    assert locations >= {
        f"{location} */" for location in ("8:21", "16:16", "17:13", "18:22", "19:20", "20:9", "20:45", "21:27")
    }


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
    assert [table.preamble.name for table in bench.info.tables] == ["I.s.inside"]


UNAPPLIED_PARTS = dict(
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
    info = compile_program(program(**UNAPPLIED_PARTS)).p4info
    assert [table.preamble.name for table in info.tables] == ["I.t"]
    assert not info.direct_counters and not info.direct_meters
    assert [
        (action_profile.preamble.name, list(action_profile.table_ids)) for action_profile in info.action_profiles
    ] == [("I.ap", []), ("I.as", [])]


def test_bug__has_the_place_of_the_construct_the_compiler_was_at(monkeypatch):
    """The place is known in the back end too, which works on instances."""

    def raise_bug(*_):
        raise KeyError("nobody thought of this")

    monkeypatch.setattr(check_expr.ExpressionChecker, "_concat", raise_bug)
    text = program(apply="hdr.data.w = hdr.data.a ++ 24w1;")
    assert complaint(text).startswith("program.p4:16:31: internal error in the compiler (KeyError: ")
    monkeypatch.undo()
    monkeypatch.setattr(emit_tables.TableEmitter, "_key", raise_bug)
    text = program(apply="t.apply();")
    assert complaint(text).startswith("program.p4:13:11: internal error in the compiler (KeyError: ")
