"""`mrc up FILE` with real packets: names of one's own, a host less, a cable cut by its names."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.repository import ROOT

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="a live fabric needs root")]
WORDS = (
    "link red-leaf1 red-spine2 down",
    "send gpu-a gpu-c 256K",
    "wait",
    "links red-leaf1",
    "evs gpu-a gpu-c",
    "exit",
)


def test_up__a_file_with_names_of_its_own(tmp_path):
    environment = {**os.environ, "MRC_RUN_DIR": str(tmp_path / "run"), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    process = subprocess.run(
        [sys.executable, "-m", "mrc_testbed", "up", "examples/topologies/own-names.yaml"],
        cwd=ROOT,
        env=environment,
        input="\n".join(WORDS) + "\n",
        capture_output=True,
        text=True,
    )
    output = process.stdout + process.stderr
    assert process.returncode == 0 and "*** " not in output, output
    assert "gpu-a to gpu-c, 262,144 bytes): arrived bit for bit" in output, output
    rows = [line.split() for line in output.splitlines()]
    assert next(row for row in rows if "DOWN" in row)[1:3] == ["red-leaf1", "red-spine2"], output
    states = {row[1]: (row[3], row[-1]) for row in rows if row[:1] and row[0].startswith("0x")}
    assert len(states) == 4 and states.pop("0/1") == ("assumed_bad", "red-spine2"), output
    assert {state for state, _ in states.values()} == {"good*"} and states["0/0"][1] == "red-spine1", output
