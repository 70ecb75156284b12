"""Programs of users on a live fabric: a link is cut, their runs end, and nothing is left."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.repository import ROOT

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and packet sockets"),
    pytest.mark.timeout(240),
]
FABRIC = "fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}\nlinks: {rate: 40M}\n"
STEPS = """import os, socket, sys, time
print(os.environ["MRC_HOST"], [name for _, name in socket.if_nameindex()], flush=True)
for step in range(1, int(sys.argv[1]) + 1):
    start = time.monotonic()
    time.sleep(0.05)
    print(f"step {step:3d}  {time.monotonic() - start:.3f} s", flush=True)
"""


def started_run(folder, text, *options):
    (folder / "steps.py").write_text(STEPS)
    (folder / "live.yaml").write_text(f"title: a program\n{FABRIC}{text}")
    words = [sys.executable, "-m", "mrc_testbed", "run", str(folder / "live.yaml"), "--out", str(folder / "out")]
    environment = {**os.environ, "MRC_RUN_DIR": str(folder / "run")}
    return subprocess.Popen(
        [*words, *options], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(folder, text):
    """Return exit code and report of a scenario's run, and what `mrc run` left of its processes."""
    process = started_run(folder, text, "--json")
    output, errors = process.communicate()
    print(errors)  # pytest shows them of a test that failed
    return process.returncode, json.loads(output)[0], processes_of(folder)


def processes_of(folder):
    """Return {PID: words} of the run of a folder: its programs have it among their words or variables."""
    processes = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            variables, words = (path / "environ").read_bytes(), (path / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if os.fsencode(folder / "run") in variables + words and int(path.name) != os.getpid():
            processes[path.name] = words
    return processes


def seen_by_rule(report):
    return {verdict["rule"]: (verdict["passed"], verdict["seen"]) for verdict in report["verdicts"]}


def test_a_program__prints_its_steps_while_a_link_is_cut(tmp_path):
    code, report, processes = run(
        tmp_path,
        f"""workload:
  - {{program: [{sys.executable}, steps.py, "40"], name: job, ranks: [h0, h1], folder: ., steps: 40}}
  - {{stream: h0 h1, name: flow, bytes: 64K, message: 16K}}
faults: [{{at: 25%, cut: p0-t0-0 p0-t1-0}}, {{at: 75%, restore: p0-t0-0 p0-t1-0}}]
expect: [exit_code.job <= 0, step.p50 > 0.01, {{metric: step.max, at_most: 100, of: step.before}}, damaged <= 0]
""",
    )
    assert code == 0 and report["passed"] and not processes, report["verdicts"]
    (outcome,) = report["runs"]
    assert outcome["metrics"]["steps"] == 40 and outcome["metrics"]["exit_code"] == 0
    assert 0 < outcome["metrics"]["step.p50"] <= outcome["metrics"]["step.p99"] <= outcome["metrics"]["step.max"]
    lines = (tmp_path / "out/runs/run.output.txt").read_text().splitlines()
    assert len(lines) == 82 and any("job rank 1 on h1: h1 ['lo'," in line for line in lines)
    run_data = json.loads((tmp_path / "out/runs/run.json").read_text())
    faults = [event["t"] for event in run_data["events"] if event["what"] == "fault"]
    ends = [iteration["finished_s"] for iteration in run_data["collectives"][0]["iterations"]]
    assert len(faults) == 2 and ends[9] < faults[0] and ends[29] < faults[1]
    report_page = subprocess.run(
        [sys.executable, "-m", "mrc_testbed", "report", str(tmp_path / "out")], cwd=ROOT, capture_output=True, text=True
    )
    page = (tmp_path / "out/report.html").read_text()
    assert report_page.returncode == 0 and "exit codes 0, 0" in page and "Steps: job 40 of" in page


def test_a_program__that_ends_early_fails_the_run(tmp_path):
    code, report, processes = run(
        tmp_path, "workload: [{program: sh -c 'echo no data; exit 7', name: job, ranks: 2, placement: spread}]\n"
    )
    assert code == 1 and not processes
    (verdict,) = [verdict for verdict in report["verdicts"] if not verdict["passed"]]
    assert verdict["cause"] == "job: rank 0 on h0 exited with code 7; its last line: no data"


def test_a_program__that_hangs_ends_with_the_limit_and_one_that_starts_others_with_its_stop(tmp_path):
    code, report, processes = run(
        tmp_path,
        """limit: 3s
workload:
  - {program: sleep 1000, name: hangs}
  - {program: sh -c 'setsid sleep 1001 & sleep 1002', name: server, ranks: [h1], stop: 1s}
""",
    )
    assert code == 1 and not processes
    (verdict,) = [verdict for verdict in report["verdicts"] if not verdict["passed"]]
    assert verdict["cause"] == "hangs: 1 of 1 ranks ran on"


def test_a_program__whose_host_loses_its_power(tmp_path):
    code, report, processes = run(
        tmp_path,
        """workload: [{program: sleep 1000, name: job, ranks: [h0]}]
faults: [{at: 1s, power_off: h0}]
expect: [{failed: job}, {metric: exit_code, about: 137, within: 0}]
""",
    )
    assert code == 0 and report["passed"] and not processes, report["verdicts"]


def test_a_program__that_does_not_exist_is_named_before_a_fabric_is_made(tmp_path):
    process = started_run(tmp_path, "workload: [{program: no-such-program}]\n")
    _, errors = process.communicate()
    assert process.returncode == 1 and "Traceback" not in errors
    text = " ".join(errors.split())
    assert "workload program: no program 'no-such-program' in PATH. Cure: install it" in text
    assert not (tmp_path / "run").exists() and not processes_of(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run__that_is_ended_leaves_no_program(tmp_path, number):
    process = started_run(tmp_path, "workload: [{program: sleep 1003, name: job}]\nlimit: 100s\n")
    try:
        while not any(b"sleep\x001003" in words for words in processes_of(tmp_path).values()):
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(number)
        process.communicate()
        while processes_of(tmp_path) and number == signal.SIGKILL:  # they end by themselves, each in its time
            time.sleep(0.1)
        assert not processes_of(tmp_path)
    finally:  # a fabric that stayed would hold the ports of all tests to come
        process.kill()
        process.communicate()
        subprocess.run(
            [sys.executable, "-m", "mrc_testbed", "clean"],
            cwd=ROOT,
            env={**os.environ, "MRC_RUN_DIR": str(tmp_path / "run")},
            check=True,
            capture_output=True,
        )


@pytest.mark.skipif(shutil.which("ib_write_bw") is None, reason="needs perftest")
def test_the_example_of_the_page__goes_through_a_cut_link(tmp_path):
    page = (ROOT / "docs" / "scenarios.md").read_text()
    text = page[page.index("title: ib_write_bw through a cut link") :].partition("```")[0]
    body = text.partition("links: {rate: 40M}\n")[2]
    code, report, processes = run(tmp_path, body)
    assert code == 0 and report["passed"] and not processes, report["verdicts"]
    assert b"65536  " in (tmp_path / "out/runs/run.output.txt").read_bytes()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_a_training_job__goes_through_a_cut_link_and_ends_with_equal_parameters(tmp_path):
    code, report, processes = run(
        tmp_path,
        f"""workload:
  - {{program: examples/ddp.py --steps 10, name: job, folder: {ROOT}, backend: mrc, ranks: [h0, h1], steps: 10}}
faults: [{{at: 25%, cut: p0-t0-0 p0-t1-0}}]
expect: [exit_code <= 0, {{metric: steps, about: 10, within: 0}}, {{metric: digests, about: 1, within: 0}}, sent >= 1]
""",
    )
    assert code == 0 and report["passed"] and not processes, report["verdicts"]
