"""Warnings: their places, kinds and words; programs without them; the command's options."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.p4 import app
from mrc_testbed.switch.compiler.compiler import check_program
from tests.switch.compiler.test_errors import program

USED = "t.apply();"
TERNARY = "table u { key = { hdr.data.a : ternary; } actions = { NoAction; } "
BELOW = "control Sub(inout bit<8> x)(int n) { apply { bit<8> y = n - 2; x = y; } }"
WARNED = [
    (dict(apply=USED + "bit<8> x = 1;"), ["16:26: warning: variable x is never used [unused]"]),
    (dict(apply=USED, local="action a() { }"), ["14:12: warning: action a is never used [unused]"]),
    (
        dict(apply=USED, local="table u { actions = { NoAction; } }"),
        ["14:11: warning: table u is never applied [unused]"],
    ),
    (
        dict(apply=USED + "a(1);", local="action a(bit<8> x) { }"),
        ["14:21: warning: parameter x is never used [unused]"],
    ),
    (dict(apply=USED, top="control Sub() { apply { } }"), ["3:9: warning: control Sub is never used [unused]"]),
    (dict(apply=USED, local="counter(1, CounterType.bytes) c;"), ["14:35: warning: instance c is never used [unused]"]),
    (
        dict(apply=USED + "bit<8> x = 1; if (x == 1) { bit<8> x = 2; hdr.data.a = x; }"),
        ["16:54: warning: x hides the x at program.p4:16:26 [shadow]"],
    ),
    (
        dict(apply=USED + "bit<8> x; hdr.data.a = x;"),
        ["16:42: warning: x may have no value: it is 0 then here, anything elsewhere [uninitialized-use]"],
    ),
    (
        dict(apply=USED + "bit<8> x; if (hdr.data.b == 1) { x = 1; } hdr.data.a = x;"),
        ["16:74: warning: x may have no value: it is 0 then here, anything elsewhere [uninitialized-use]"],
    ),
    (
        dict(apply=USED + "hdr.data.a = x;", local="bit<8> x;"),
        ["16:32: warning: x may have no value: it is 0 then here, anything elsewhere [uninitialized-use]"],
    ),
    (
        dict(apply=USED + "f(hdr.data.a);", top="void f(out bit<8> x) { if (true) { return; } x = 1; }"),
        [
            "3:19: warning: out parameter x may end without a value: it is 0 then here, anything elsewhere "
            "[uninitialized-out-param]"
        ],
    ),
    (dict(apply=USED + "hdr.data.a = 256;"), ["16:32: warning: 256 does not fit bit<8> and becomes 0 [overflow]"]),
    (dict(apply=USED + "hdr.data.a = 8w257;"), ["16:32: warning: 257 does not fit bit<8> and becomes 1 [overflow]"]),
    (dict(apply=USED + "hdr.data.a = -1;"), ["16:32: warning: -1 is negative and becomes 255 as bit<8> [mismatch]"]),
    (
        dict(
            apply=USED + "u.apply();",
            local=TERNARY + "entries = { priority = 1 : 1 : NoAction(); "
            "priority = 2 : 2 : NoAction(); priority = 2 : 3 : NoAction(); } }",
        ),
        [
            "14:125: warning: table u: priority 2 below 1: it wins over those above it [entries-out-of-priority-order]",
            "14:156: warning: table u: another entry has priority 2, too [duplicate-priorities]",
        ],
    ),
    (
        dict(apply=USED + "u.apply();", local="table u { actions = { NoAction; } stage = 3; }"),
        ["14:39: warning: table u: property stage means nothing here [ignore-prop]"],
    ),
    (
        dict(apply=USED + "n.apply(hdr.data.a);", top=BELOW, local="Sub(1) n;"),
        ["3:57: warning: -1 is negative and becomes 255 as bit<8> [mismatch]"],
    ),
    (
        dict(apply=USED, top=BELOW),
        [
            "3:9: warning: control Sub is never used [unused]",
            "3:57: warning: -1 is negative and becomes 255 as bit<8> [mismatch]",
        ],
    ),
    (
        dict(apply=USED, next="accept; } state lost { "),
        [
            "8:56: warning: no way from start leads to state lost [unreachable]",
            "8:56: warning: state lost has no transition: it goes to reject [parser-transition]",
        ],
    ),
]
SILENT = [
    dict(apply=USED),
    dict(apply=USED, local='@noWarn("unused") action a() { }'),
    dict(apply=USED + "bit<8> x; if (hdr.data.b == 1) { x = 1; } else { x = 2; } hdr.data.a = x;"),
    dict(apply=USED + "bit<8> x; if (hdr.data.b == 1) { exit; } else { x = 2; } hdr.data.a = x;"),
    dict(apply=USED + "bit<8> x; switch (hdr.data.b) { 1: { x = 1; } 2: default: { x = 2; } } hdr.data.a = x;"),
    dict(apply=USED + "bit<8> x; f(x); hdr.data.a = x;", top="void f(out bit<8> x) { x = 1; }"),
    dict(apply=USED + "set(); hdr.data.a = x;", local="bit<8> x; action set() { x = 1; }"),
    dict(apply=USED + "n.apply(hdr.data.a);", top=BELOW, local="Sub(3) n;"),
    dict(apply=USED + "hdr.data.s = -1; hdr.data.a = (bit<8>)256;"),
]


def warned(**parts: str) -> list[str]:
    return [one.line().removeprefix("program.p4:") for one in check_program(program(**parts))]


@pytest.mark.parametrize(("parts", "lines"), WARNED)
def test_warning__place_cause_and_kind(parts, lines):
    assert warned(**parts) == lines


@pytest.mark.parametrize("parts", SILENT)
def test_no_warning__where_all_is_well(parts):
    assert warned(**parts) == []


def test_check__warnings_go_to_stderr_and_are_errors_when_asked(tmp_path):
    path = tmp_path / "a.p4"
    path.write_text(program(apply="t.apply(); bit<8> x = 1; hdr.data.a = 256;"))
    unused, overflow = f"{path}:16:27: ", f"{path}:16:47: "
    done = CliRunner().invoke(app, ["check", str(path)])
    assert (done.exit_code, done.stdout) == (0, "")
    assert [line.partition("warning:")[0] for line in done.stderr.splitlines()] == [unused, overflow]
    done = CliRunner().invoke(app, ["check", "--Werror", "--Wdisable", "unused", str(path)])
    assert (done.exit_code, done.stderr) == (1, "")
    assert done.stdout == f"{overflow}error: 256 does not fit bit<8> and becomes 0 [overflow]\n"
    for _ in range(2):  # the second time from the cache
        done = CliRunner().invoke(app, ["compile", str(path), "-o", str(tmp_path / "out")])
        assert done.exit_code == 0 and len(done.stdout.splitlines()) == 3
        assert [line.partition("warning:")[0] for line in done.stderr.splitlines()] == [unused, overflow]
    done = CliRunner().invoke(app, ["compile", "--Werror", "--Wdisable", "unused", str(path), "-o", str(tmp_path)])
    assert (done.exit_code, done.stderr) == (1, "")
    assert done.stdout == f"{overflow}error: 256 does not fit bit<8> and becomes 0 [overflow]\n"
    assert not list(tmp_path.glob("*.c"))
    done = CliRunner().invoke(app, ["check", "--Wdisable", "unusd", str(path)])
    assert done.exit_code == 1 and "no kind of warning (has: duplicate-priorities, " in done.stderr
