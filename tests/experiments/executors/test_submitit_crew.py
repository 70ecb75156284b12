"""Slurm, and submitit without it: a study killed twice and losing tasks is the same.

Errors that name the cure.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.executors.options import ExecutorOptions
from mrc_testbed.experiments.runner import Checkpoint, run_scenario
from tests.experiments.executors.clusters import (
    has,
    slurm,
    wait_for,
    without_slurm,
)
from tests.experiments.executors.killed_study import (
    RUNS,
    SCENARIO,
    STUDY,
    digest,
    files,
    killed_twice,
    mrc,
    news,
    planned,
    refused,
    whole,
)
from tests.experiments.report.small_results import Quiet

needs_submitit = pytest.mark.skipif(not has("submitit"), reason="`make test` installs the extra `slurm` (submitit)")


def long_ones(folder: Path) -> Path:
    """Return twelve runs of some time each, handed in at once."""
    path = files(folder)
    path.write_text(STUDY.replace("min: 2, max: 6", "min: 3, max: 3"))
    (folder / "flow.yaml").write_text(SCENARIO.replace("400ms", "2s"))
    return path


@needs_submitit
def test_submitit__killed_twice_and_resumed_is_the_same(tmp_path, expected):
    assert killed_twice(tmp_path, "submitit-local") == expected


@needs_submitit
def test_submitit__a_task_that_is_killed_loses_runs_by_name_and_resume_makes_them(tmp_path):
    from mrc_testbed.experiments.executors.submitit_crew import SubmititCrew

    one, out = planned(tmp_path), tmp_path / "out"
    expected = run_scenario(one, Quiet(), out=tmp_path / "whole").digest
    prepared = Checkpoint.create(one, out)
    with SubmititCrew(ExecutorOptions("submitit-local"), jobs=1) as crew:
        begun = crew.hand_in(one.runs, store=prepared.results.store)
        controller = psutil.Process(int(crew._tasks[0].job.job_id))
        while whole(out) < 2:
            time.sleep(0.01)
        for process in [*controller.children(recursive=True), controller]:
            process.kill()
        with pytest.raises(UsageError) as error:
            run_scenario(one, Quiet(), news_queue=begun, checkpoint=prepared)
    kept = whole(out)
    assert 2 <= kept < len(one.runs)
    assert f"{len(one.runs) - kept} run(s) were lost (" in str(error.value) and "loss=2% #4" in str(error.value)
    assert "ended without a result" in str(error.value) and "--resume makes what is missing" in str(error.value)
    assert (out / "tasks").is_dir()  # what the task said
    again = Checkpoint.resume(one, out)
    assert len(again.runs_to_make(one)) == len(one.runs) - kept
    with SubmititCrew(ExecutorOptions("submitit-local"), jobs=2) as crew:
        begun = crew.hand_in(again.runs_to_make(one), store=again.results.store)
        assert run_scenario(one, Quiet(), news_queue=begun, checkpoint=again).digest == expected


@needs_submitit
def test_submitit__a_run_that_fails_comes_back_with_its_traceback(tmp_path):
    from dataclasses import replace

    from mrc_testbed.experiments.executors.submitit_crew import SubmititCrew

    one = planned(tmp_path)
    bad = replace(one.runs[0], scenario=one.runs[0].scenario.model_copy(update={"workload": None}))
    prepared = Checkpoint.create(one, tmp_path / "out")
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
    from mrc_testbed.experiments.executors.task import OWNER, RunTask, run_task, tasks_folder

    one = planned(tmp_path)
    store = Checkpoint.create(one, tmp_path / "out").results.store
    tasks_folder(store).mkdir()
    (tasks_folder(store) / OWNER).write_text("the one that resumed")
    assert run_task(RunTask(one.runs, store, "the one that was killed")) == {}
    assert store.written_names() == set()
    assert run_task(RunTask(one.runs[:2], store, "the one that resumed")) == {}
    assert store.written_names() == {run.name for run in one.runs[:2]}


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


@needs_submitit
def test_no_slurm__is_told_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    files(tmp_path)
    said = refused("study", str(tmp_path / "study.yaml"), "--executor", "slurm", "--out", str(tmp_path / "out"))
    assert "no sbatch, squeue, scancel, sinfo, srun on PATH: run where sbatch works" in said
    assert not (tmp_path / "out").exists()
