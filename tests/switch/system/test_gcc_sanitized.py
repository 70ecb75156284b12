"""Generated C and runtime under AddressSanitizer and UBSan.

No access out of bounds, no overflow, no leak.

A few thousand packets each time; `MRC_FUZZ_PACKETS=40000` makes it the long run: so many through each of all programs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.switch.compiled_programs import PROGRAMS, ROOT, SMALL

HERE = Path(__file__).parents[1]
SHORT = ("stacks", "varbits", "copies", "semantics")
OURS = (("srv6", "srv6_forward"), ("spray", "spray_modes"))
LONG = int(os.environ.get("MRC_FUZZ_PACKETS", "0"))
PACKETS = LONG or 3000


def sanitizer() -> str | None:
    """libasan of gcc, which must be there before Python is."""
    if shutil.which("gcc") is None:
        return None
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False)
    path = found.stdout.strip()
    return path if os.path.isabs(path) else None


WATCHED = {
    **os.environ, "PYTHONPATH": str(ROOT), "LD_PRELOAD": str(sanitizer()), "ASAN_OPTIONS": "detect_leaks=0",
}  # fmt: skip
"""Environment of a process that AddressSanitizer watches."""


def programs() -> list[str]:
    """Arguments of sanitized_run.py: programs with their scripts."""
    sources = sorted(SMALL.glob("*.p4")) if LONG else [SMALL / f"{name}.p4" for name in SHORT]
    out = []
    for source in sources:
        script = HERE / "stf" / f"{source.stem}.stf"
        out.append(f"{source}={script}" if script.exists() else str(source))
    ours = [f"{PROGRAMS / name}.p4={ROOT / 'tests' / 'p4src' / script}.stf" for name, script in OURS]
    return out + ours if LONG else out


@pytest.mark.skipif(sanitizer() is None, reason="gcc has no libasan here")
@pytest.mark.timeout(0 if LONG else 300)
def test_random_and_mutated_packets():
    wanted = programs()
    done = subprocess.run(
        [sys.executable, str(HERE / "sanitized_run.py"), str(PACKETS), "1", *wanted],
        env=WATCHED,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    assert done.stdout == f"{PACKETS * len(wanted)} packets through {len(wanted)} programs\n"


@pytest.mark.skipif(sanitizer() is None, reason="gcc has no libasan here")
@pytest.mark.timeout(600)
def test_each_allocation_of_the_event_loop_fails_once():
    """Found: events that there was no memory for were gone, and ports that could not be read were told as none."""
    done = subprocess.run(
        [sys.executable, str(HERE / "allocation_run.py"), "1", "wires"],
        env=WATCHED,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    failures, total = (int(word) for word in done.stdout.split() if word.isdigit())
    assert total >= failures > 0.8 * total > 20, "the thread allocates more in some rounds, but hardly"


@pytest.mark.skipif(sanitizer() is None, reason="gcc has no libasan here")
@pytest.mark.parametrize(
    "program",
    [f"{SMALL / name}.p4={HERE / 'stf' / name}.stf" for name in ("semantics", "tables", "copies", "given", "digests")]
    + [f"{PROGRAMS / name}.p4={ROOT / 'tests' / 'p4src' / script}.stf" for name, script in OURS],
    ids=lambda argument: Path(argument.split("=")[0]).stem,
)
def test_each_allocation_fails_once(program):
    """Found: a device that could not be made for a trial load was used all the same."""
    done = subprocess.run(
        [sys.executable, str(HERE / "allocation_run.py"), "1", program],
        env=WATCHED,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    failures, total = (int(word) for word in done.stdout.split() if word.isdigit())
    assert failures == total > 20, "some allocations came later in another round, or there were hardly any"
