"""`kill -9` of each kind of part under a run or the demonstration, which fails with that as the cause."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from mrc_testbed.ipc import procfs
from mrc_testbed.ipc.rundir import RunFiles
from tests.cli.prompt.terminal import ROOT

LIMIT_S = 120.0
SCENARIO = """
title: Long enough
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}
workload:
  - {stream: h0 h1, name: flow, message: 16K, depth: 2}
duration: 60s
expect:
  - {metric: rate.flow, at_least: 0}
"""


@pytest.fixture(autouse=True)
def tables_unchanged():
    """Replace the folder's fixture, so that the shared fabric stays down; each test has its own."""


def begin(tmp_path, *command):
    """Start a command with a fabric of its own; return it once that is up and at work."""
    env = {**os.environ, "MRC_RUN_DIR": str(tmp_path / "r"), "PYTHONPATH": str(ROOT)}
    front = subprocess.Popen(
        [sys.executable, "-m", "mrc_testbed", *command],
        env=env,
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return front, RunFiles(tmp_path / "r")


SENDING_S = 0.1
"""CPU time that h0 has used for nothing but sending, seconds."""


def kill_at_work(files, part, front):
    """Kill a part once the fabric is ready and h0 sends; its pid."""
    end, cpu_before = time.monotonic() + LIMIT_S, None
    while time.monotonic() < end and front.poll() is None:
        time.sleep(0.05)
        try:
            processes = json.loads(files.state_file.read_text())["processes"]
            if "ready" not in (files.logs / "controller.log").read_text() or "mapper" not in processes:
                continue
            cpu_s = procfs.cpu_seconds(processes["h0"]["pid"])
        except (OSError, ValueError, KeyError):
            continue
        cpu_before = cpu_s if cpu_before is None else cpu_before
        if cpu_s - cpu_before >= SENDING_S:
            os.kill(processes[part]["pid"], signal.SIGKILL)
            return processes[part]["pid"]
    raise AssertionError(front.communicate(timeout=LIMIT_S)[0])


@pytest.mark.parametrize(
    "part", ["switchd", *(pytest.param(part, marks=pytest.mark.thorough) for part in ("h1", "controller", "mapper"))]
)
def test_run__fails_with_the_dead_part_as_its_cause(tmp_path, part):
    (tmp_path / "long.yaml").write_text(SCENARIO)
    front, files = begin(tmp_path, "run", "long.yaml", "--out", "out")
    pid = kill_at_work(files, part, front)
    output = front.communicate(timeout=LIMIT_S)[0]
    assert front.returncode == 1 and "FAILED" in output, output
    (path,) = (tmp_path / "out" / "runs").glob("*.json")
    outcome = json.loads(path.read_text())
    assert [(part["name"], part["pid"], part["how"]) for part in outcome["dead_parts"]] == [
        (part, pid, "was killed by SIGKILL")
    ]
    assert outcome["finished"] is False and 0 < outcome["dead_parts"][0]["t"] <= outcome["duration_s"] < 60
    assert f"{part} (pid {pid}) was killed by SIGKILL" in " ".join(output.split())


@pytest.mark.parametrize(
    "part",
    ["h2", *(pytest.param(part, marks=pytest.mark.thorough) for part in ("switchd", "controller"))],
)
def test_demo__fails_with_the_dead_part_as_its_cause(tmp_path, part):
    front, files = begin(tmp_path, "demo", "--planes", "2")
    pid = kill_at_work(files, part, front)
    output = front.communicate(timeout=LIMIT_S)[0]
    assert front.returncode == 1 and f"mrc: error: {part} (pid {pid}) was killed by SIGKILL" in output, output


KILLED_FOR_A_WHILE = """
title: The controller is dead for a while, and a plane drained for less than its links are cut after
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}
workload:
  - {stream: h0 h1, name: flow, message: 16K, depth: 2}
duration: 8s
faults:
  - {at: 1s, controller: kill, for: 1s}
  - {at: 5s, drain: 1, for: 200ms}
expect:
  - {metric: lost, at_most: 0}
"""


def test_run__starts_a_controller_again_that_a_fault_killed_for_a_while(tmp_path):
    (tmp_path / "while.yaml").write_text(KILLED_FOR_A_WHILE)
    front, files = begin(tmp_path, "run", "while.yaml", "--out", "out")
    pids = {}
    while front.poll() is None:
        time.sleep(0.05)
        with contextlib.suppress(OSError, ValueError, KeyError):
            pids[json.loads(files.state_file.read_text())["processes"]["controller"]["pid"]] = None
    output = front.communicate(timeout=LIMIT_S)[0]
    assert front.returncode == 0 and len(pids) == 2, (pids, output)
    (path,) = (tmp_path / "out" / "runs").glob("*.json")
    outcome = json.loads(path.read_text())
    assert "dead_parts" not in outcome and outcome["evs_denied"] == outcome["evs_bad"] == 0
