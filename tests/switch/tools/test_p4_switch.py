"""The pytest fixtures for P4 developers, and docs/p4-development.md's examples outside the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mrc_testbed.switch.tools.stf import StfError
from tests.switch.compiled_programs import P4_FOLDER, ROOT

PAGE = (ROOT / "docs" / "p4-development.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def project(tmp_path) -> Path:
    """Return a folder outside the repository, with the page's program and test."""
    (tmp_path / "router.p4").write_text(blocks("p4")[0])
    (tmp_path / "test_router.py").write_text(blocks("python")[0])
    (tmp_path / "alone.py").write_text(blocks("python")[1])
    return tmp_path


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_examples_of_the_page_and_a_failure_with_its_trace(project):
    with (project / "test_router.py").open("a") as file:
        file.write("\n\ndef test_fails(router):\n    router.send(1, PACKET)\n    router.expect(4, PACKET)\n")
    result = run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "mrc_testbed.testing")
    assert "3 passed" in result.stdout and "1 failed" in result.stdout, result.stdout
    assert "AssertionError: router: port 4 sent nothing (more)" in result.stdout
    assert "state ipv4" in result.stdout and "routes" in result.stdout and "forward(port=3)" in result.stdout


def test_example_without_pytest(project):
    result = run(project, "alone.py")
    assert result.returncode == 0, result.stderr
    assert "forward(port=2)" in result.stdout


def test_program_is_compiled_once_and_switches_are_fresh(p4_program, p4_switch):
    assert p4_program(P4_FOLDER / "digests.p4") is p4_program(P4_FOLDER / "digests.p4")
    first, second = p4_switch("../p4/digests.p4"), p4_switch("../p4/digests.p4")
    first.add("seen", {"mac": 3}, "learn")
    second.add("seen", {"mac": b"\0\3"}, "learn")
    assert first.program is second.program


def test_digests_and_differences(p4_switch):
    switch = p4_switch("../p4/digests.p4")
    assert switch.send(3, "02 1234 000000000003") == [(1, bytes.fromhex("021234000000000003"))]
    with pytest.raises(AssertionError, match=r"(?s)port 1 differs from byte 2 on.*came in at port 3.*state"):
        switch.expect(1, "02 1235")
    with pytest.raises(AssertionError, match="no packet was expected, but port 1 sent"):
        switch.expect_nothing()
    assert switch.expect(1, "02 1*34").hex() == "021234000000000003"
    switch.expect_nothing()
    assert switch.digests()
    assert switch.digests() == []


def test_wrong_names_are_told(p4_switch):
    switch = p4_switch("../p4/digests.p4")
    for call, message in (
        (lambda: switch.add("seem", {}, "learn"), "no table seem"),
        (lambda: switch.add("seen", {"make": 1}, "learn"), "no key make"),
        (lambda: switch.add("seen", {"mac": 1}, "lern"), "no action lern"),
        (lambda: switch.counter("c"), "no counter c"),
        (lambda: switch.script("pocket 1 00"), "no command 'pocket'"),
    ):
        with pytest.raises(StfError, match=message):
            call()
    with pytest.raises(TypeError, match="is no packet"):
        switch.send(1, 5)


def test_counter__of_an_entry_whose_table_counts_nothing(p4_switch):
    switch = p4_switch("../p4/digests.p4")
    entry = switch.add("seen", {"mac": 1}, "learn")
    with pytest.raises(AssertionError, match="digests: the table of this entry has no direct counter"):
        switch.counter("seen", entry)


def test_scripts__checks_count_at_once(p4_switch):
    switch = p4_switch("../p4/digests.p4")
    switch.script("packet 3 02 1234 000000000003\nexpect 1 02 1234\nno_packet")
    with pytest.raises(AssertionError, match="sent nothing"):
        switch.script("expect 1")
