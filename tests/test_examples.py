"""Every example runs as a user would run it.

examples/live_write.py needs hosts: tests/hosts/verbs/test_verbs_live.py.
"""

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIVE = {"live_write.py"}
EXPECTED = {
    "write.py": "wr_id 1: IBV_WC_SUCCESS, 100000 bytes",
    "write_imm_events.py": "EV 0x102 of port 2: ASSUMED_BAD",
    "ev_profiles.py": "EV 0x203: no answer",
    "loss.py": "rocev2",
}


def test_examples__are_all_tested():
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(EXPECTED) | LIVE


@pytest.mark.parametrize("name", EXPECTED)
def test_example__runs_and_says_what_it_should(name):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert EXPECTED[name] in done.stdout and done.stdout.endswith("ok\n")


def test_example__repeats_bit_for_bit():
    command = [sys.executable, str(ROOT / "examples" / "write_imm_events.py")]
    runs = {
        subprocess.run(command, cwd=ROOT, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}).stdout
        for _ in range(2)
    }
    assert len(runs) == 1


@pytest.mark.parametrize("page", ["verbs", "how-mrc-works"])
def test_documentation__examples_do_what_they_say(page):
    result = doctest.testfile(str(ROOT / "docs" / f"{page}.md"), module_relative=False)
    assert result.attempted > 20 and result.failed == 0
