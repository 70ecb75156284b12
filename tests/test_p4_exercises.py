"""Exercises of examples/p4: solutions pass their tests, skeletons fail with hints."""

import os
import subprocess
import sys

import pytest

from tests.repository import ROOT

FOLDER = ROOT / "examples" / "p4"
EXERCISES = ("ecn", "sprayer", "trim", "usid")
HINTS = ("step 1: the busiest of 4 uplinks", "step 1: 47 of 47 packets", "cut them instead", "step 2: nothing left")


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of all exercises, as their pages say."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "mrc_testbed.testing", "-p", "no:cacheprovider", str(FOLDER)]
    environment = {key: value for key, value in os.environ.items() if key != "SOLUTION"} | environment
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=FOLDER)


def test_solutions__pass():
    result = run(SOLUTION="1")
    assert result.returncode == 0, result.stdout


def test_skeletons__fail_and_say_what_is_missing():
    result = run()
    assert result.returncode == 1, result.stdout
    for hint in HINTS:
        assert hint in result.stdout
    for name in EXERCISES:
        assert f"test_{name}.py" in result.stdout


@pytest.mark.parametrize("name", EXERCISES)
def test_skeleton__differs_from_its_solution_where_it_says_todo(name):
    skeleton, solution = ((FOLDER / f"{name}{end}.p4").read_text() for end in ("", "_solution"))
    assert "TODO" in skeleton and "TODO" not in solution
