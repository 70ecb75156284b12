"""A study that is killed twice, and what makes it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from queue import Empty

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.executors.crew import RunProgress
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.runner import plan_runs

SCENARIO = """\
title: one flow under loss
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}
links: {rate: 5M}
workload:
  - {stream: h0 h1, name: flow, message: 16K, depth: 2}
duration: 400ms
faults:
  - {at: 0s, loss: {into: hosts, rate: $loss}}
measure: {every: 100ms, evs: false}
sweep: {loss: [1%, 2%]}
expect: [{metric: qp_errors, at_most: 0}]
"""
STUDY = """\
title: 24 runs
scenario: flow.yaml
parameters: {loss: [1%, 3%], links.rtt: [10ms, 15ms]}
seeds: {min: 2, max: 6, step: 2}
metrics:
  - {metric: rate.flow, within: 0.0001%}
  - {metric: retransmitted, of: median, method: bootstrap}
"""
RUNS = 24


def files(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "flow.yaml").write_text(SCENARIO)
    (folder / "study.yaml").write_text(STUDY)
    return folder / "study.yaml"


def mrc(*words: object) -> subprocess.Popen:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, "-m", "mrc_testbed", *map(str, words)], start_new_session=True, **pipes)


def count_results(out: Path) -> int:
    return len(list(out.glob("runs/*.json")))


def digest(out: Path, runs: int = RUNS) -> str:
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["complete"] and len(manifest["runs"]) == count_results(out) == runs
    assert len({run["name"] for run in manifest["runs"]}) == runs
    return manifest["digest"]


def killed_twice(tmp_path: Path, executor: str) -> str:
    """Kill the study's command with a quarter, then with half of its runs made; return its digest."""
    out, study = tmp_path / "out", files(tmp_path)
    for goal in (RUNS // 4, RUNS // 2):
        folder_options = ["--resume", out] if out.exists() else ["--out", out]
        command = mrc("study", study, "--executor", executor, "--task-time", "1s", *folder_options)
        while command.poll() is None and count_results(out) < goal:
            time.sleep(0.01)
        command.send_signal(signal.SIGKILL)
        output = command.communicate()[0]
        assert command.returncode == -signal.SIGKILL, output
        assert json.loads((out / "manifest.json").read_text())["complete"] is False
    count_before = count_results(out)
    command = mrc("study", study, "--executor", executor, "--task-time", "1s", "--resume", out)
    output = command.communicate()[0]
    assert command.returncode == 0, output
    assert (
        f"study: {count_before} of" in output or count_results(out) >= count_before
    )  # tasks that were left may have made more meanwhile
    assert not (out / "tasks").exists() and not list(out.rglob("*.part"))
    return digest(out)


def planned_runs(tmp_path: Path, text: str = SCENARIO):
    (tmp_path / "flow.yaml").write_text(text)
    return plan_runs(read(tmp_path / "flow.yaml"), "virtual", repeat=4)


def news(news_queue, count: int, timeout_s: float = 120.0) -> list:
    """Return the first news of `count` runs."""
    out: list = []
    while len(out) < count:
        try:
            number, outcome = news_queue.get(timeout=timeout_s)
        except Empty:
            pytest.fail(f"{len(out)} of {count} runs came")
        if not isinstance(outcome, RunProgress):
            out.append((number, outcome))
    return out


def refusal(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code != 0
    return str(result.exception) if isinstance(result.exception, UsageError) else result.output
