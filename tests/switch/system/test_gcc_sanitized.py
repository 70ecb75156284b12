"""Generated C and runtime under AddressSanitizer and UBSan: no bad access, no overflow, no leak.

A few thousand packets each time; `MRC_FUZZ_PACKETS=40000` makes it the long run: so many through each of all programs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.switch.compiled_programs import P4_FOLDER, PROGRAMS, ROOT

SWITCH_TESTS = Path(__file__).parents[1]
QUICK_PROGRAMS = ("stacks", "varbits", "copies", "semantics")
FABRIC_PROGRAMS = (("srv6", "srv6_forward"), ("spray", "spray_modes"))
LONG_RUN_PACKETS = int(os.environ.get("MRC_FUZZ_PACKETS", "0"))
PACKETS = LONG_RUN_PACKETS or 3000


def sanitizer() -> str | None:
    """Return the path of gcc's libasan, which must be loaded before Python; None without one."""
    if shutil.which("gcc") is None:
        return None
    result = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False)
    path = result.stdout.strip()
    return path if os.path.isabs(path) else None


SANITIZED_ENVIRONMENT = {
    **os.environ, "PYTHONPATH": str(ROOT), "LD_PRELOAD": str(sanitizer()), "ASAN_OPTIONS": "detect_leaks=0",
}  # fmt: skip
"""Environment of a process that AddressSanitizer watches."""


def programs() -> list[str]:
    """Return the arguments of sanitized_run.py: programs with their scripts."""
    sources = (
        sorted(P4_FOLDER.glob("*.p4")) if LONG_RUN_PACKETS else [P4_FOLDER / f"{name}.p4" for name in QUICK_PROGRAMS]
    )
    arguments = []
    for source in sources:
        script = SWITCH_TESTS / "stf" / f"{source.stem}.stf"
        arguments.append(f"{source}={script}" if script.exists() else str(source))
    fabric_arguments = [
        f"{PROGRAMS / name}.p4={ROOT / 'tests' / 'p4src' / script}.stf" for name, script in FABRIC_PROGRAMS
    ]
    return arguments + fabric_arguments if LONG_RUN_PACKETS else arguments


@pytest.mark.thorough
@pytest.mark.skipif(sanitizer() is None, reason="gcc has no libasan here")
@pytest.mark.timeout(0 if LONG_RUN_PACKETS else 300)
def test_random_and_mutated_packets():
    arguments = programs()
    result = subprocess.run(
        [sys.executable, str(SWITCH_TESTS / "sanitized_run.py"), str(PACKETS), "1", *arguments],
        env=SANITIZED_ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-1000:] + result.stderr[-4000:]
    assert result.stdout == f"{PACKETS * len(arguments)} packets through {len(arguments)} programs\n"


@pytest.mark.thorough
@pytest.mark.skipif(sanitizer() is None, reason="gcc has no libasan here")
@pytest.mark.timeout(600)
def test_each_allocation_of_the_event_loop_fails_once():
    """Found: events without memory were lost, and ports that could not be read were reported as none."""
    result = subprocess.run(
        [sys.executable, str(SWITCH_TESTS / "allocation_run.py"), "1", "wires"],
        env=SANITIZED_ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-1000:] + result.stderr[-4000:]
    failures, total = (int(word) for word in result.stdout.split() if word.isdigit())
    assert total >= failures > 0.8 * total > 20, "the thread allocates more in some rounds, but hardly"


@pytest.mark.thorough
@pytest.mark.skipif(sanitizer() is None, reason="gcc has no libasan here")
@pytest.mark.parametrize(
    "program",
    [
        f"{P4_FOLDER / name}.p4={SWITCH_TESTS / 'stf' / name}.stf"
        for name in ("semantics", "tables", "copies", "given", "digests")
    ]
    + [f"{PROGRAMS / name}.p4={ROOT / 'tests' / 'p4src' / script}.stf" for name, script in FABRIC_PROGRAMS],
    ids=lambda argument: Path(argument.split("=")[0]).stem,
)
def test_each_allocation_fails_once(program):
    """Found: a device that could not be made for a trial load was used all the same."""
    result = subprocess.run(
        [sys.executable, str(SWITCH_TESTS / "allocation_run.py"), "1", program],
        env=SANITIZED_ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-1000:] + result.stderr[-4000:]
    failures, total = (int(word) for word in result.stdout.split() if word.isdigit())
    assert failures == total > 20, "some allocations came later in another round, or there were hardly any"
