"""Every executor gives the same study: killed twice, with tasks lost on the way; errors that name the cure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from queue import Empty

import psutil
import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.executors.crew import RunLost, RunProgress
from mrc_testbed.experiments.executors.options import ExecutorOptions
from mrc_testbed.experiments.executors.worker_pool import WorkerPool
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.runner import Prepared, carry_out, plan_runs
from tests.experiments.executors.clusters import (
    WITHOUT_RAY,
    free_port,
    has,
    ray_cluster,
    slurm,
    wait_for,
    without_slurm,
)
from tests.experiments.report.test_report import Quiet

needs_submitit = pytest.mark.skipif(not has("submitit"), reason="`make test` installs the extra `slurm` (submitit)")
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


def in_one_go(folder: Path) -> Path:
    """The same runs without a look before the last of them: all are handed in at once."""
    path = files(folder)
    path.write_text(STUDY.replace("min: 2", "min: 6"))
    return path


def long_ones(folder: Path) -> Path:
    """Twelve runs of some time each, handed in at once."""
    path = files(folder)
    path.write_text(STUDY.replace("min: 2, max: 6", "min: 3, max: 3"))
    (folder / "flow.yaml").write_text(SCENARIO.replace("400ms", "2s"))
    return path


def mrc(*words: object) -> subprocess.Popen:
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, "-m", "mrc_testbed", *map(str, words)], start_new_session=True, **said)


def whole(out: Path) -> int:
    return len(list(out.glob("runs/*.json")))


def digest(out: Path, runs: int = RUNS) -> str:
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["complete"] and len(manifest["runs"]) == whole(out) == runs
    assert len({one["name"] for one in manifest["runs"]}) == runs
    return manifest["digest"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> str:
    """Digest of the study made in one go, by one process."""
    folder = tmp_path_factory.mktemp("expected")
    done = CliRunner().invoke(app, ["study", str(files(folder)), "--jobs", "1", "--out", str(folder / "out")])
    assert done.exit_code == 0, done.output
    return digest(folder / "out")


def killed_twice(tmp_path: Path, executor: str) -> str:
    """Digest of the study whose command is killed (SIGKILL) with a quarter, then with half of its runs made."""
    out, study = tmp_path / "out", files(tmp_path)
    for goal in (RUNS // 4, RUNS // 2):
        where = ["--resume", out] if out.exists() else ["--out", out]
        command = mrc("study", study, "--executor", executor, "--task-time", "1s", *where)
        while command.poll() is None and whole(out) < goal:
            time.sleep(0.01)
        command.send_signal(signal.SIGKILL)
        said = command.communicate()[0]
        assert command.returncode == -signal.SIGKILL, said
        assert json.loads((out / "manifest.json").read_text())["complete"] is False
    there = whole(out)
    command = mrc("study", study, "--executor", executor, "--task-time", "1s", "--resume", out)
    said = command.communicate()[0]
    assert command.returncode == 0, said
    assert f"study: {there} of" in said or whole(out) >= there  # tasks that were left may have made more meanwhile
    assert not (out / "tasks").exists() and not list(out.rglob("*.part"))
    return digest(out)


def test_local__killed_twice_and_resumed_is_the_same(tmp_path, expected):
    assert killed_twice(tmp_path, "local") == expected


@needs_submitit
def test_submitit__killed_twice_and_resumed_is_the_same(tmp_path, expected):
    assert killed_twice(tmp_path, "submitit-local") == expected


# ---- tasks that end badly ---------------------------------------------------------------------------------------


def planned(tmp_path: Path, text: str = SCENARIO):
    (tmp_path / "flow.yaml").write_text(text)
    return plan_runs(read(tmp_path / "flow.yaml"), "virtual", repeat=4)


def news(begun, count: int, timeout_s: float = 120.0) -> list:
    """The first news of `count` runs."""
    out: list = []
    while len(out) < count:
        try:
            number, one = begun.get(timeout=timeout_s)
        except Empty:
            pytest.fail(f"{len(out)} of {count} runs came")
        if not isinstance(one, RunProgress):
            out.append((number, one))
    return out


@needs_submitit
def test_submitit__a_task_that_is_killed_loses_runs_by_name_and_resume_makes_them(tmp_path):
    from mrc_testbed.experiments.executors.submitit_crew import SubmititCrew

    one, out = planned(tmp_path), tmp_path / "out"
    expected = carry_out(one, Quiet(), out=tmp_path / "whole").digest
    prepared = Prepared.create(one, out)
    with SubmititCrew(ExecutorOptions("submitit-local"), jobs=1) as crew:
        begun = crew.hand_in(one.runs, store=prepared.results.store)
        controller = psutil.Process(int(crew._tasks[0].job.job_id))
        while whole(out) < 2:
            time.sleep(0.01)
        for process in [*controller.children(recursive=True), controller]:
            process.kill()
        with pytest.raises(UsageError) as error:
            carry_out(one, Quiet(), begun=begun, prepared=prepared)
    kept = whole(out)
    assert 2 <= kept < len(one.runs)
    assert f"{len(one.runs) - kept} run(s) were lost (" in str(error.value) and "loss=2% #4" in str(error.value)
    assert "ended without a result" in str(error.value) and "--resume makes what is missing" in str(error.value)
    assert (out / "tasks").is_dir()  # what the task said
    again = Prepared.resume(one, out)
    assert len(again.missing(one)) == len(one.runs) - kept
    with SubmititCrew(ExecutorOptions("submitit-local"), jobs=2) as crew:
        begun = crew.hand_in(again.missing(one), store=again.results.store)
        assert carry_out(one, Quiet(), begun=begun, prepared=again).digest == expected


@needs_submitit
def test_submitit__a_run_that_fails_comes_back_with_its_traceback(tmp_path):
    from dataclasses import replace

    from mrc_testbed.experiments.executors.submitit_crew import SubmititCrew

    one = planned(tmp_path)
    bad = replace(one.runs[0], scenario=one.runs[0].scenario.model_copy(update={"workload": None}))
    prepared = Prepared.create(one, tmp_path / "out")
    with SubmititCrew(ExecutorOptions("submitit-local"), jobs=1) as crew:
        ((_, error),) = news(crew.hand_in([bad], store=prepared.results.store), 1)
    assert isinstance(error, TypeError) and "virtual_run.py" in str(error.__cause__)
    prepared.results.stop()


@needs_submitit
def test_submitit__ctrl_c_ends_its_tasks_and_keeps_what_is_whole(tmp_path):
    out, study = tmp_path / "out", files(tmp_path)
    (tmp_path / "flow.yaml").write_text(SCENARIO.replace("400ms", "4s"))
    command = mrc("study", study, "--executor", "submitit-local", "--jobs", "2", "--out", out)
    while command.poll() is None and whole(out) < 2:
        time.sleep(0.02)
    tasks = [
        one for one in psutil.process_iter(["cmdline"]) if str(out / "tasks") in " ".join(one.info["cmdline"] or [])
    ]
    os.killpg(command.pid, signal.SIGINT)  # as a terminal does
    said = command.communicate()[0]
    assert command.returncode == 130 and "Traceback" not in said, said
    assert "the same command with --resume" in said and tasks
    psutil.wait_procs(tasks, timeout=60)
    assert not [task for task in tasks if task.is_running() and task.status() != psutil.STATUS_ZOMBIE]
    kept = whole(out)
    assert 2 <= kept < RUNS and not json.loads((out / "manifest.json").read_text())["complete"]


@needs_submitit
def test_submitit__tasks_of_a_command_that_was_killed_stop_when_another_takes_over(tmp_path):
    from mrc_testbed.experiments.executors.task import OWNER, RunTask, carry_out_task, tasks_folder

    one = planned(tmp_path)
    store = Prepared.create(one, tmp_path / "out").results.store
    tasks_folder(store).mkdir()
    (tasks_folder(store) / OWNER).write_text("the one that resumed")
    assert carry_out_task(RunTask(one.runs, store, "the one that was killed")) == {}
    assert store.written() == set()
    assert carry_out_task(RunTask(one.runs[:2], store, "the one that resumed")) == {}
    assert store.written() == {run.name for run in one.runs[:2]}


# ---- a real Slurm, a real Ray -----------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.skipif(bool(without_slurm()), reason=without_slurm())
def test_slurm__killed_twice_a_task_cancelled_and_resumed_is_the_same(tmp_path, expected):
    with slurm(tmp_path / "slurm"):
        assert killed_twice(tmp_path, "slurm") == expected
        other, out = tmp_path / "other", tmp_path / "other" / "out"
        long_ones(other)
        command = mrc("study", other / "study.yaml", "--executor", "slurm", "--out", out)
        while command.poll() is None and not whole(out):
            time.sleep(0.02)
        queue = ["squeue", "--noheader", "--array", "--format=%i %j"]
        (task,) = [line.split() for line in subprocess.check_output(queue, text=True).splitlines()]
        assert task[1].startswith("mrc-")
        subprocess.run(["scancel", "--signal=KILL", "--full", task[0]], check=True)  # as a node that dies
        said = command.communicate()[0]
        assert command.returncode == 1 and "run(s) were lost (" in said and "--resume makes what is missing" in said, (
            said
        )
        command = mrc("study", other / "study.yaml", "--executor", "slurm", "--resume", out)
        assert command.wait() == 0
        assert mrc("study", other / "study.yaml", "--out", other / "local").wait() == 0
        assert digest(out, runs=12) == digest(other / "local", runs=12)
        stopped = long_ones(tmp_path / "stopped")
        command = mrc("study", stopped, "--executor", "slurm", "--out", stopped.parent / "out")
        while command.poll() is None and not whole(stopped.parent / "out"):
            time.sleep(0.02)
        os.killpg(command.pid, signal.SIGINT)
        said = command.communicate()[0]
        assert command.returncode == 130 and "the same command with --resume" in said and "Traceback" not in said, said
        wait_for(["sh", "-c", "squeue --noheader | wc -l"], "0", "an empty queue")
        refused = mrc("study", other / "study.yaml", "--executor", "slurm", "--slurm", "partition=nowhere")
        assert "slurm took no task: " in (said := refused.communicate()[0]) and "invalid partition" in said, said


@pytest.mark.skipif(not has("ray"), reason=WITHOUT_RAY)
def test_ray__killed_twice_a_node_lost_and_resumed_is_the_same(tmp_path, expected):
    with ray_cluster(tmp_path) as nodes:
        assert killed_twice(tmp_path, "ray") == expected
        other, out = tmp_path / "other", tmp_path / "other" / "out"
        study = in_one_go(other)
        command = mrc("study", study, "--executor", "ray", "--task-time", "0.5s", "--out", out)
        while command.poll() is None and not whole(out):
            time.sleep(0.02)
        nodes[1].terminate()
        said = command.communicate()[0]
        assert command.returncode == 0 and digest(out) == expected, said


# ---- mistakes ---------------------------------------------------------------------------------------------------


def refused(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code != 0
    return str(done.exception) if isinstance(done.exception, UsageError) else done.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["run", "e7", "--executor", "slurm"],
            "--executor is for runs in virtual time: fluid runs take seconds, live ones have --servers; give --virtual",
        ),
        (
            ["run", "e2", "--fluid", "--executor", "ray"],
            "--executor is for runs in virtual time: fluid",
        ),
        (
            ["run", "e7", "--virtual", "--executor", "pbs"],
            "--executor pbs: give one of local, slurm, submitit-local",
        ),
        (["run", "e7", "--virtual", "--slurm", "partition=a"], "--slurm belongs to --executor slurm, not to local"),
        (["run", "e7", "--virtual", "--executor", "slurm", "--slurm", "a"], "--slurm a: give KEY=VALUE"),
        (["run", "e7", "--virtual", "--task-time", "0s"], "--task-time 0s: above 0, at most a day"),
        (["run", "e7", "--virtual", "--task-time", "soon"], "--task-time: time 'soon'"),
    ],
)
def test_mistakes__are_told_with_what_would_do(monkeypatch, words, says):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert says in refused(*words)


@pytest.mark.parametrize(("executor", "module", "cure"), [
    ("slurm", "submitit", "pip install 'mrc-testbed[slurm]'"),
    ("submitit-local", "submitit", "pip install 'mrc-testbed[slurm]'"),
    ("ray", "ray", "pip install 'mrc-testbed[ray]'"),
])  # fmt: skip
def test_what_is_not_installed__is_told_with_the_command(tmp_path, monkeypatch, executor, module, cure):
    monkeypatch.setitem(sys.modules, module, None)  # as Python has it for a module that cannot be imported
    files(tmp_path)
    said = refused("study", str(tmp_path / "study.yaml"), "--executor", executor, "--out", str(tmp_path / "out"))
    assert cure in said and not (tmp_path / "out").exists()


@needs_submitit
def test_no_slurm__is_told_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    files(tmp_path)
    said = refused("study", str(tmp_path / "study.yaml"), "--executor", "slurm", "--out", str(tmp_path / "out"))
    assert "no sbatch, squeue, scancel, sinfo, srun on PATH: run where sbatch works" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not has("ray"), reason=WITHOUT_RAY)
def test_no_ray_cluster__is_told_with_how_to_start_one(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    files(tmp_path)
    said = refused("study", str(tmp_path / "study.yaml"), "--executor", "ray", "--out", str(tmp_path / "out"))
    assert "--executor ray: no cluster (nobody listens at 127.0.0.1:" in said and "ray start --head" in said
    assert not (tmp_path / "out").exists()


def test_pool__numbers_are_those_that_were_given(tmp_path):
    one = planned(tmp_path)
    with WorkerPool(2) as pool:
        begun = pool.hand_in(one.runs[:2], numbers=[7, 3])
        found = dict(news(begun, 2))
        pool.hand_in(one.runs[2:3], begun=begun, numbers=[5])
        found |= dict(news(begun, 1))
    names = {number: outcome.name for number, (outcome, _) in found.items()}
    assert names == {7: one.runs[0].name, 3: one.runs[1].name, 5: one.runs[2].name}
    assert not any(isinstance(one, RunLost) for one in found.values())
