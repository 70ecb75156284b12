"""C programs of this folder: built with libmrc, and run against NIC processes without root."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from mrc_testbed.hosts.libmrc import INCLUDE, SOURCES, library_folder
from mrc_testbed.switch.system.gcc import build_program
from tests.hosts.nicd.nic_processes import NicProcesses

FOLDER = Path(__file__).parent
PATIENCE_S = 30
CUT_EVS = (0x001, 0x100)
"""Paths that are cut for the tests of events and probes."""
_TESTS = re.compile(r'\{"(\w+)", \w+\}')


def tests_of(name: str) -> list[str]:
    """Return the names of the tests of a program, from the table at its end."""
    return _TESTS.findall((FOLDER / f"{name}.c").read_text(encoding="utf-8"))


def program(name: str) -> Path:
    """Return a program of this folder, linked with libmrc."""
    folder = library_folder()
    flags = ("-pthread", f"-L{folder}", f"-Wl,-rpath,{folder}", "-lmrc")
    return build_program([FOLDER / f"{name}.c"], [FOLDER, SOURCES, INCLUDE], flags, name)


def sanitized_program(name: str) -> Path:
    """Return a program made of its source and the library's, watched by AddressSanitizer and UBSan."""
    flags = ("-pthread", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
    return build_program([FOLDER / f"{name}.c", *sorted(SOURCES.glob("*.c"))], [FOLDER, SOURCES, INCLUDE], flags, name)


def start(command: list[str], processes: NicProcesses) -> subprocess.Popen[str]:
    """Start a program with both sockets behind its arguments."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("MRC_NIC_", "LD_PRELOAD"))}
    sockets = [str(path) for path in processes.sockets.values()]
    return subprocess.Popen(
        [*command, *sockets],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(command: list[str], processes: NicProcesses) -> str:
    """Run a program to its end, which must be a success, and return what it told on standard error."""
    with start(command, processes) as process:
        try:
            output, errors = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert (process.returncode, output) == (0, "passed\n"), errors
    return errors


def run_control(command: list[str], test: str, folder: Path) -> None:
    """Run a test of check_control.c with NIC processes of its own, over cut paths if it needs them."""
    with NicProcesses(folder) as processes:
        if test in ("events", "old_events", "probes"):
            for ev in CUT_EVS:
                processes.wire.cut(ev)
        run([*command, test], processes)


def run_until_the_nic_ends(program: Path, processes: NicProcesses) -> None:
    """End the NIC processes under the test `nic_ends` of a program, which must be a success."""
    with start([str(program), "nic_ends"], processes) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        processes.end()
        output, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, output) == (0, "passed\n"), errors
        assert "the NIC process of this host has ended" in errors
