"""`mrc run` that is interrupted or killed leaves nothing, or the next one removes it and says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mrc_testbed.ipc import procfs
from mrc_testbed.ipc.rundir import RunDir, RunState, interfaces_of_group

LIMIT_S = 60.0
SCENARIO = """
title: Short
fabric: {planes: 1, racks: 2, spines: 1, hosts_per_rack: 1}
workload:
  - {stream: h0 h1, name: flow, message: 16K, depth: 2}
duration: DURATION
expect:
  - {metric: qp_errors, at_most: 0}
"""


@pytest.fixture(autouse=True)
def tables_unchanged():
    """Replace the folder's fixture, so that the shared fabric stays down; each run has its own."""


def begin(folder: Path, name: str, duration: str) -> subprocess.Popen[str]:
    """Start `mrc run` of a scenario of that length, with Ctrl-C as at a terminal.

    A virtual run would leave nothing.
    """
    scenario = folder / f"{name}.yaml"
    scenario.write_text(SCENARIO.replace("DURATION", duration))
    command = [
        sys.executable,
        "-m",
        "mrc_testbed",
        "run",
        str(scenario),
        "--wires",
        "veth",
        "--out",
        str(folder / name),
    ]
    return subprocess.Popen(
        command,
        env={**os.environ, "MRC_RUN_DIR": str(folder / "run")},
        start_new_session=True,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def run_state(folder: Path) -> RunState:
    return RunState(**json.loads((folder / "run" / "state.json").read_text()))


def wait_for(condition, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.timeout(300)
def test_run__killed_and_interrupted(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces and raw sockets (run `make resilience`)")
    (tmp_path / "run").mkdir()
    socket = RunDir(tmp_path / "run").agent_socket("h1")
    # The socket of the last host appears when all links are up: before, a kill would leave less
    killed_run = begin(tmp_path, "killed", "60s")
    wait_for(socket.exists, killed_run)
    state = run_state(tmp_path)
    os.killpg(killed_run.pid, signal.SIGKILL)
    killed_run.wait(LIMIT_S)
    assert interfaces_of_group(state.group), "T0-T1 links outlive a killed run"

    whole_run = begin(tmp_path, "whole", "500ms")
    output = whole_run.communicate(timeout=LIMIT_S)[0]
    assert whole_run.returncode == 0, output
    assert "that a killed run had left" in output
    assert not interfaces_of_group(state.group) and procfs.with_environment(state.variable) == []

    socket.unlink(missing_ok=True)
    interrupted_run = begin(tmp_path, "interrupted", "60s")
    wait_for(socket.exists, interrupted_run)
    state = run_state(tmp_path)
    os.killpg(interrupted_run.pid, signal.SIGINT)
    output = interrupted_run.communicate(timeout=LIMIT_S)[0]
    assert (
        interrupted_run.returncode in (130, -signal.SIGINT) and "no process or interface of this run is left" in output
    )
    assert not interfaces_of_group(state.group) and procfs.with_environment(state.variable) == []
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {"lock", "log"}
