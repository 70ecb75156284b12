"""Functions of mrc.h and mrc_ctl.h on docs/libmrc-functions.md: each has tests, which call it."""

from __future__ import annotations

import re
import subprocess
from typing import NamedTuple

import pytest

from mrc_testbed.hosts.libmrc import INCLUDE, SOURCES, library
from tests.hosts.libmrc import c_programs
from tests.repository import ROOT

CANNOT_FAIL = "cannot fail"
NEVER_REFUSED = {"mrc_destroy_qp"}
"""Functions that are refused only for an object that is not there."""
FOR_THE_NIC_PROCESS = {"mrc_nic_publish", "mrc_nic_read", "mrc_nic_sleep"}
"""Functions that are exported for hosts/nicd, in no header of programs."""
_BODY = re.compile(r"^[A-Za-z][\w *]*?\b(\w+)\([^;{}]*\)\n\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_DECLARATION = re.compile(r"^(\w[\w ]*[ *])(mrc_\w+)\([^;{]*\);", re.MULTILINE)
_REFUSAL = re.compile(r"\b(FAILS|MINUS_ONE|NO_VALUE)\(|\bCHECK\(!|, (-1|-?E[A-Z0-9]+)\)")


class Row(NamedTuple):
    """A function with its tests."""

    function: str
    test: str
    refusal_test: str


def rows(header):
    """Return the rows of a header's table."""
    page = (ROOT / "docs/libmrc-functions.md").read_text(encoding="utf-8")
    section = page.split(f"\n## {header}\n")[1].split("\n## ")[0]
    cells = [[cell.strip("` ") for cell in line.strip("| ").split(" | ")] for line in section.splitlines()]
    return [Row(names[0], names[2], names[3]) for names in cells if names[0].startswith("mrc_")]


def declarations(header):
    """Return the functions of a header and what they return."""
    text = (INCLUDE / header).read_text(encoding="utf-8")
    return {name: result_type.strip() for result_type, name in _DECLARATION.findall(text)}


def bodies(path):
    """Return the functions of a C file and their bodies."""
    return dict(_BODY.findall(path.read_text(encoding="utf-8")))


def statements(test):
    """Return the statements of a test `file: name` and of all functions of its file that it calls."""
    file, name = test.split(": ")
    functions = bodies(c_programs.FOLDER / file)
    callees, names = set(), {name}
    while names:
        callees |= names
        words = {word for name in names for word in re.findall(r"\w+", functions[name])}
        names = words & set(functions) - callees
    return [statement for name in callees for statement in functions[name].split(";")]


ROWS = [*rows("mrc.h"), *rows("mrc_ctl.h")]
TESTS = [(row.function, test) for row in ROWS for test in (row.test, row.refusal_test) if test != CANNOT_FAIL]


@pytest.mark.parametrize(("header", "count"), [("mrc.h", 27), ("mrc_ctl.h", 14)])
def test_page__has_exactly_the_functions_of_a_header(header, count):
    names = [row.function for row in rows(header)]
    assert len(names) == count and sorted(names) == sorted(declarations(header))


def test_library__has_exactly_the_functions_of_both_headers():
    words = subprocess.run(["nm", "-D", "--defined-only", library()], capture_output=True, text=True, check=True).stdout
    symbols = {line.split()[-1].split("@")[0] for line in words.splitlines()}
    names = {name for name in symbols if name.startswith("mrc_")}
    assert names - FOR_THE_NIC_PROCESS == {row.function for row in ROWS}


@pytest.mark.parametrize(("function", "test"), TESTS)
def test_page__names_tests_that_exist_and_call_the_function(function, test):
    file, name = test.split(": ")
    assert name in c_programs.tests_of(file.removesuffix(".c"))
    assert any(re.search(rf"\b{function}\b", statement) for statement in statements(test))


@pytest.mark.parametrize("row", [row for row in ROWS if row.refusal_test != CANNOT_FAIL])
def test_page__names_tests_that_expect_a_refusal(row):
    calls = [text for text in statements(row.refusal_test) if re.search(rf"\b{row.function}\b", text)]
    assert [call for call in calls if _REFUSAL.search(call)] != []


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.refusal_test == CANNOT_FAIL and row.function not in NEVER_REFUSED]
)
def test_page__names_no_other_functions_that_cannot_fail(row):
    result_type = {**declarations("mrc.h"), **declarations("mrc_ctl.h")}[row.function]
    body = {**bodies(SOURCES / "mrc.c"), **bodies(SOURCES / "mrc_ctl.c")}[row.function]
    assert re.findall(r"return\b([^;]*);", body) == ([] if result_type == "void" else [" 0"])


def test_programs__are_linked_to_all_functions():
    symbols = ""
    for name in ("check_mrc", "check_control"):
        command = ["nm", "-u", c_programs.program(name)]
        symbols += subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert {row.function for row in ROWS} <= set(symbols.split())
