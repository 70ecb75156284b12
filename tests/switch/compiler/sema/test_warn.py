"""Warnings: their places, kinds and words; programs without them; the command's options."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.p4 import app
from mrc_testbed.switch.compiler.compiler import check_program
from tests.switch.compiler.test_errors import program

APPLIED_TABLE = "t.apply();"
TERNARY = "table u { key = { hdr.data.a : ternary; } actions = { NoAction; } "
SUBTRACTION = "control Sub(inout bit<8> x)(int n) { apply { bit<8> y = n - 2; x = y; } }"
WARNING_CASES = [
    (
        dict(
            apply=APPLIED_TABLE,
            fields="data_t[2] s;",
            parse="b.extract(hdr.s.next);",
            next="more; } state more { transition select(hdr.s.next.a) { _: end; } } state end { transition accept",
        ),
        ["8:103: warning: a of `next` has no value yet: the header extracted before it is `last` [uninitialized-use]"],
    ),
    (dict(apply=APPLIED_TABLE + "bit<8> x = 1;"), ["16:26: warning: variable x is never used [unused]"]),
    (dict(apply=APPLIED_TABLE, local="action a() { }"), ["14:12: warning: action a is never used [unused]"]),
    (
        dict(apply=APPLIED_TABLE, local="table u { actions = { NoAction; } }"),
        ["14:11: warning: table u is never applied [unused]"],
    ),
    (
        dict(apply=APPLIED_TABLE + "a(1);", local="action a(bit<8> x) { }"),
        ["14:21: warning: parameter x is never used [unused]"],
    ),
    (
        dict(apply=APPLIED_TABLE, top="control Sub() { apply { } }"),
        ["3:9: warning: control Sub is never used [unused]"],
    ),
    (
        dict(apply=APPLIED_TABLE, local="counter(1, CounterType.bytes) c;"),
        ["14:35: warning: instance c is never used [unused]"],
    ),
    (
        dict(apply=APPLIED_TABLE + "bit<8> x = 1; if (x == 1) { bit<8> x = 2; hdr.data.a = x; }"),
        ["16:54: warning: x hides the x at program.p4:16:26 [shadow]"],
    ),
    (
        dict(apply=APPLIED_TABLE + "bit<8> x; hdr.data.a = x;"),
        ["16:42: warning: x may have no value: it is 0 then here, anything elsewhere [uninitialized-use]"],
    ),
    (
        dict(apply=APPLIED_TABLE + "bit<8> x; if (hdr.data.b == 1) { x = 1; } hdr.data.a = x;"),
        ["16:74: warning: x may have no value: it is 0 then here, anything elsewhere [uninitialized-use]"],
    ),
    (
        dict(apply=APPLIED_TABLE + "hdr.data.a = x;", local="bit<8> x;"),
        ["16:32: warning: x may have no value: it is 0 then here, anything elsewhere [uninitialized-use]"],
    ),
    (
        dict(apply=APPLIED_TABLE + "f(hdr.data.a);", top="void f(out bit<8> x) { if (true) { return; } x = 1; }"),
        [
            "3:19: warning: out parameter x may end without a value: it is 0 then here, anything elsewhere "
            "[uninitialized-out-param]"
        ],
    ),
    (
        dict(apply=APPLIED_TABLE + "hdr.data.a = 256;"),
        ["16:32: warning: 256 does not fit bit<8> and becomes 0 [overflow]"],
    ),
    (
        dict(apply=APPLIED_TABLE + "hdr.data.a = 8w257;"),
        ["16:32: warning: 257 does not fit bit<8> and becomes 1 [overflow]"],
    ),
    (
        dict(apply=APPLIED_TABLE + "hdr.data.a = -1;"),
        ["16:32: warning: -1 is negative and becomes 255 as bit<8> [mismatch]"],
    ),
    (
        dict(
            apply=APPLIED_TABLE + "u.apply();",
            local=TERNARY + "entries = { priority = 1 : 1 : NoAction(); "
            "priority = 2 : 2 : NoAction(); priority = 2 : 3 : NoAction(); } }",
        ),
        [
            "14:125: warning: table u: priority 2 below 1: it wins over those above it [entries-out-of-priority-order]",
            "14:156: warning: table u: another entry has priority 2, too [duplicate-priorities]",
        ],
    ),
    (
        dict(apply=APPLIED_TABLE + "u.apply();", local="table u { actions = { NoAction; } stage = 3; }"),
        ["14:39: warning: table u: property stage means nothing here [ignore-prop]"],
    ),
    (
        dict(apply=APPLIED_TABLE + "n.apply(hdr.data.a);", top=SUBTRACTION, local="Sub(1) n;"),
        ["3:57: warning: -1 is negative and becomes 255 as bit<8> [mismatch]"],
    ),
    (
        dict(apply=APPLIED_TABLE, top=SUBTRACTION),
        [
            "3:9: warning: control Sub is never used [unused]",
            "3:57: warning: -1 is negative and becomes 255 as bit<8> [mismatch]",
        ],
    ),
    (
        dict(apply=APPLIED_TABLE, next="accept; } state lost { "),
        [
            "8:56: warning: no way from start leads to state lost [unreachable]",
            "8:56: warning: state lost has no transition: it goes to reject [parser-transition]",
        ],
    ),
]
CLEAN_CASES = [
    dict(apply=APPLIED_TABLE),
    dict(apply=APPLIED_TABLE, local='@noWarn("unused") action a() { }'),
    dict(apply=APPLIED_TABLE + "bit<8> x; if (hdr.data.b == 1) { x = 1; } else { x = 2; } hdr.data.a = x;"),
    dict(apply=APPLIED_TABLE + "bit<8> x; if (hdr.data.b == 1) { exit; } else { x = 2; } hdr.data.a = x;"),
    dict(
        apply=APPLIED_TABLE + "bit<8> x; switch (hdr.data.b) { 1: { x = 1; } 2: default: { x = 2; } } hdr.data.a = x;"
    ),
    dict(apply=APPLIED_TABLE + "bit<8> x; f(x); hdr.data.a = x;", top="void f(out bit<8> x) { x = 1; }"),
    dict(apply=APPLIED_TABLE + "set(); hdr.data.a = x;", local="bit<8> x; action set() { x = 1; }"),
    dict(apply=APPLIED_TABLE + "n.apply(hdr.data.a);", top=SUBTRACTION, local="Sub(3) n;"),
    dict(apply=APPLIED_TABLE + "hdr.data.s = -1; hdr.data.a = (bit<8>)256;"),
]


def warnings_of(**parts: str) -> list[str]:
    return [warning.line().removeprefix("program.p4:") for warning in check_program(program(**parts))]


@pytest.mark.parametrize(("parts", "lines"), WARNING_CASES)
def test_warning__place_cause_and_kind(parts, lines):
    assert warnings_of(**parts) == lines


@pytest.mark.parametrize("parts", CLEAN_CASES)
def test_no_warning__where_all_is_well(parts):
    assert warnings_of(**parts) == []


def test_check__warnings_go_to_stderr_and_are_errors_when_asked(tmp_path):
    path = tmp_path / "a.p4"
    path.write_text(program(apply="t.apply(); bit<8> x = 1; hdr.data.a = 256;"))
    unused_location, overflow_location = f"{path}:16:27: ", f"{path}:16:47: "
    result = CliRunner().invoke(app, ["check", str(path)])
    assert (result.exit_code, result.stdout) == (0, "")
    assert [line.partition("warning:")[0] for line in result.stderr.splitlines()] == [
        unused_location,
        overflow_location,
    ]
    result = CliRunner().invoke(app, ["check", "--Werror", "--Wdisable", "unused", str(path)])
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout == f"{overflow_location}error: 256 does not fit bit<8> and becomes 0 [overflow]\n"
    for _ in range(2):  # the second time from the cache
        result = CliRunner().invoke(app, ["compile", str(path), "-o", str(tmp_path / "out")])
        assert result.exit_code == 0 and len(result.stdout.splitlines()) == 3
        assert [line.partition("warning:")[0] for line in result.stderr.splitlines()] == [
            unused_location,
            overflow_location,
        ]
    result = CliRunner().invoke(app, ["compile", "--Werror", "--Wdisable", "unused", str(path), "-o", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout == f"{overflow_location}error: 256 does not fit bit<8> and becomes 0 [overflow]\n"
    assert not list(tmp_path.glob("*.c"))
    result = CliRunner().invoke(app, ["check", "--Wdisable", "unusd", str(path)])
    assert result.exit_code == 1 and "no kind of warning (has: duplicate-priorities, " in result.stderr
