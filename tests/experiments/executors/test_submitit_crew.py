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
    count_results,
    digest,
    files,
    killed_twice,
    mrc,
    news,
    planned_runs,
    refusal,
)
from tests.experiments.report.small_results import Quiet

needs_submitit = pytest.mark.skipif(not has("submitit"), reason="`make test` installs the extra `slurm` (submitit)")


def long_ones(folder: Path) -> Path:
    """Return twelve runs of some time each, handed in at once."""
    path = files(folder)
    path.write_text(STUDY.replace("min: 2, max: 6", "min: 3, max: 3"))
    (folder / "flow.yaml").write_text(SCENARIO.replace("400ms", "2s"))
    return path


@pytest.mark.thorough
@needs_submitit
def test_submitit__killed_twice_and_resumed_is_the_same(tmp_path, study_digest):
    assert killed_twice(tmp_path, "submitit-local") == study_digest


@needs_submitit
def test_submitit__a_task_that_is_killed_loses_runs_by_name_and_resume_makes_them(tmp_path):
    from mrc_testbed.experiments.executors.submitit_crew import SubmititCrew

    run_set, out = planned_runs(tmp_path), tmp_path / "out"
    whole_digest = run_scenario(run_set, Quiet(), out=tmp_path / "whole").digest
    checkpoint = Checkpoint.create(run_set, out)
    with SubmititCrew(ExecutorOptions("submitit-local"), jobs=1) as crew:
        news_queue = crew.hand_in(run_set.runs, store=checkpoint.results.store)
        controller = psutil.Process(int(crew._tasks[0].job.job_id))
        while count_results(out) < 2:
            time.sleep(0.01)
        for process in [*controller.children(recursive=True), controller]:
            process.kill()
        with pytest.raises(UsageError) as error:
            run_scenario(run_set, Quiet(), news_queue=news_queue, checkpoint=checkpoint)
    kept_count = count_results(out)
    assert 2 <= kept_count < len(run_set.runs)
    assert f"{len(run_set.runs) - kept_count} run(s) were lost (" in str(error.value) and "loss=2% #4" in str(
        error.value
    )
    assert "ended without a result" in str(error.value) and "--resume makes what is missing" in str(error.value)
    assert (out / "tasks").is_dir()  # what the task said
    resumed_checkpoint = Checkpoint.resume(run_set, out)
    assert len(resumed_checkpoint.runs_to_make(run_set)) == len(run_set.runs) - kept_count
    with SubmititCrew(ExecutorOptions("submitit-local"), jobs=2) as crew:
        news_queue = crew.hand_in(resumed_checkpoint.runs_to_make(run_set), store=resumed_checkpoint.results.store)
        assert (
            run_scenario(run_set, Quiet(), news_queue=news_queue, checkpoint=resumed_checkpoint).digest == whole_digest
        )


@needs_submitit
def test_submitit__a_run_that_fails_comes_back_with_its_traceback(tmp_path):
    from dataclasses import replace

    from mrc_testbed.experiments.executors.submitit_crew import SubmititCrew

    run_set = planned_runs(tmp_path)
    broken_run = replace(run_set.runs[0], scenario=run_set.runs[0].scenario.model_copy(update={"workload": None}))
    checkpoint = Checkpoint.create(run_set, tmp_path / "out")
    with SubmititCrew(ExecutorOptions("submitit-local"), jobs=1) as crew:
        ((_, error),) = news(crew.hand_in([broken_run], store=checkpoint.results.store), 1)
    assert isinstance(error, TypeError) and "virtual_run.py" in str(error.__cause__)
    checkpoint.results.stop()


@needs_submitit
def test_submitit__ctrl_c_ends_its_tasks_and_keeps_what_is_whole(tmp_path):
    out, study = tmp_path / "out", files(tmp_path)
    (tmp_path / "flow.yaml").write_text(SCENARIO.replace("400ms", "4s"))
    command = mrc("study", study, "--executor", "submitit-local", "--jobs", "2", "--out", out)
    while command.poll() is None and count_results(out) < 2:
        time.sleep(0.02)
    tasks = [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(out / "tasks") in " ".join(process.info["cmdline"] or [])
    ]
    os.killpg(command.pid, signal.SIGINT)  # as a terminal does
    output = command.communicate()[0]
    assert command.returncode == 130 and "Traceback" not in output, output
    assert "the same command with --resume" in output and tasks
    psutil.wait_procs(tasks, timeout=60)
    assert not [task for task in tasks if task.is_running() and task.status() != psutil.STATUS_ZOMBIE]
    kept_count = count_results(out)
    assert 2 <= kept_count < RUNS and not json.loads((out / "manifest.json").read_text())["complete"]


@needs_submitit
def test_submitit__tasks_of_a_command_that_was_killed_stop_when_another_takes_over(tmp_path):
    from mrc_testbed.experiments.executors.task import OWNER, RunTask, run_task, tasks_folder

    run_set = planned_runs(tmp_path)
    store = Checkpoint.create(run_set, tmp_path / "out").results.store
    tasks_folder(store).mkdir()
    (tasks_folder(store) / OWNER).write_text("the one that resumed")
    assert run_task(RunTask(run_set.runs, store, "the one that was killed")) == {}
    assert store.written_names() == set()
    assert run_task(RunTask(run_set.runs[:2], store, "the one that resumed")) == {}
    assert store.written_names() == {run.name for run in run_set.runs[:2]}


@pytest.mark.thorough
@pytest.mark.root
@pytest.mark.skipif(bool(without_slurm()), reason=without_slurm())
def test_slurm__killed_twice_a_task_cancelled_and_resumed_is_the_same(tmp_path, study_digest):
    with slurm(tmp_path / "slurm"):
        assert killed_twice(tmp_path, "slurm") == study_digest
        folder, out = tmp_path / "other", tmp_path / "other" / "out"
        long_ones(folder)
        command = mrc("study", folder / "study.yaml", "--executor", "slurm", "--out", out)
        while command.poll() is None and not count_results(out):
            time.sleep(0.02)
        queue = ["squeue", "--noheader", "--array", "--format=%i %j"]
        (task,) = [line.split() for line in subprocess.check_output(queue, text=True).splitlines()]
        assert task[1].startswith("mrc-")
        subprocess.run(["scancel", "--signal=KILL", "--full", task[0]], check=True)  # as a node that dies
        output = command.communicate()[0]
        assert (
            command.returncode == 1 and "run(s) were lost (" in output and "--resume makes what is missing" in output
        ), output
        command = mrc("study", folder / "study.yaml", "--executor", "slurm", "--resume", out)
        assert command.wait() == 0
        assert mrc("study", folder / "study.yaml", "--out", folder / "local").wait() == 0
        assert digest(out, runs=12) == digest(folder / "local", runs=12)
        stopped_study = long_ones(tmp_path / "stopped")
        command = mrc("study", stopped_study, "--executor", "slurm", "--out", stopped_study.parent / "out")
        while command.poll() is None and not count_results(stopped_study.parent / "out"):
            time.sleep(0.02)
        os.killpg(command.pid, signal.SIGINT)
        output = command.communicate()[0]
        assert command.returncode == 130 and "the same command with --resume" in output and "Traceback" not in output, (
            output
        )
        wait_for(["sh", "-c", "squeue --noheader | wc -l"], "0", "an empty queue")
        refused_command = mrc("study", folder / "study.yaml", "--executor", "slurm", "--slurm", "partition=nowhere")
        assert (
            "slurm took no task: " in (output := refused_command.communicate()[0]) and "invalid partition" in output
        ), output


@needs_submitit
def test_no_slurm__is_told_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    files(tmp_path)
    message = refusal("study", str(tmp_path / "study.yaml"), "--executor", "slurm", "--out", str(tmp_path / "out"))
    assert "no sbatch, squeue, scancel, sinfo, srun on PATH: run where sbatch works" in message
    assert not (tmp_path / "out").exists()
