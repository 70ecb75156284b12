"""C tests under sanitizers and valgrind, and NIC processes under debug malloc."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from mrc_testbed.hosts.nicd import guests
from tests.hosts.libmrc import c_programs
from tests.hosts.nicd.nic_processes import NicProcesses
from tests.repository import ROOT
from tests.switch.system.test_gcc_sanitized import sanitizer

PROGRAMS = ("check_writes", "check_queues", "check_memory", "check_mrc")
NOT_UNDER_VALGRIND = (
    "few_descriptors",  # valgrind does not hold a limit of descriptors to the number
    "until_told",
    "nic_ends",
    "peer_ends",
    "events",
    "ping_pong",
    "wrap",
    "long_list",
    "kinds",
    "limits",
)
"""Tests that take minutes under valgrind, but for the first."""
QUICK = [("check_memory", "forked")]
"""Tests of which `make test` has the sanitizers: each program takes seconds to compile."""
LONG_TESTS = [
    (name, test)
    for name in PROGRAMS
    for test in c_programs.tests_of(name)
    if test not in ("until_told", "nic_ends", "peer_ends") and (name, test) not in QUICK
]
CONTROL_TESTS = [test for test in c_programs.tests_of("check_control") if test not in ("live", "unprivileged")]
needs_sanitizer = pytest.mark.skipif(sanitizer() is None, reason="gcc has no libasan here")


def valgrind(tmp_path):
    """Return valgrind's words before those of a program."""
    # Registered pages are moved whole, with bytes between objects that nobody has written.
    suppressions = tmp_path / "suppressions"
    suppressions.write_text("{\n whole pages\n Memcheck:Param\n pwrite64(buf)\n ...\n fun:move_pages\n ...\n}\n")
    return [
        "valgrind",
        f"--suppressions={suppressions}",
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
    ]


@needs_sanitizer
@pytest.mark.parametrize(("name", "test"), QUICK)
def test_sanitizers__are_silent(processes, name, test):
    c_programs.run([str(c_programs.sanitized_program(name)), test], processes)


@needs_sanitizer
@pytest.mark.thorough
@pytest.mark.parametrize(("name", "test"), LONG_TESTS)
def test_sanitizers__are_silent_in_all_tests(processes, name, test):
    c_programs.run([str(c_programs.sanitized_program(name)), test], processes)


@needs_sanitizer
@pytest.mark.thorough
@pytest.mark.parametrize("test", CONTROL_TESTS)
def test_sanitizers__are_silent_in_controllers(tmp_path, monkeypatch, test):
    monkeypatch.setattr(guests.Caller, "is_root", True)
    c_programs.run_control([str(c_programs.sanitized_program("check_control"))], test, tmp_path)


@needs_sanitizer
@pytest.mark.thorough
@pytest.mark.parametrize("name", ["check_memory", "check_mrc"])
def test_sanitizers__are_silent_when_the_nic_process_ends(tmp_path, name):
    with NicProcesses(tmp_path) as processes:
        c_programs.run_until_the_nic_ends(c_programs.sanitized_program(name), processes)


@pytest.mark.thorough
@pytest.mark.timeout(120)
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
@pytest.mark.parametrize(("name", "test"), [pair for pair in QUICK + LONG_TESTS if pair[1] not in NOT_UNDER_VALGRIND])
def test_valgrind__is_silent(processes, name, test, tmp_path):
    c_programs.run([*valgrind(tmp_path), str(c_programs.program(name)), test], processes)


@pytest.mark.thorough
@pytest.mark.timeout(120)
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
@pytest.mark.parametrize("test", [test for test in CONTROL_TESTS if test not in ("events", "old_events")])
def test_valgrind__is_silent_in_controllers(tmp_path, monkeypatch, test):
    monkeypatch.setattr(guests.Caller, "is_root", True)
    c_programs.run_control([*valgrind(tmp_path), str(c_programs.program("check_control"))], test, tmp_path)


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_nic_process__under_pythons_debug_allocator():
    selection = ["-m", "not thorough and not root", "tests/hosts/nicd"]
    command = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *selection]
    environment = {**os.environ, "PYTHONMALLOC": "debug"}
    result = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
