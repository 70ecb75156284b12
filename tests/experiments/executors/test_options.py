"""Options of executors, and packages that are missing: errors that name the cure."""

from __future__ import annotations

import os
import sys

import pytest

from tests.experiments.executors.killed_study import files, refusal


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["run", "e7", "--executor", "slurm"],
            "--executor is for runs in virtual time: fluid runs take seconds, live ones have --servers; give --virtual",
        ),
        (["run", "e2", "--fluid", "--executor", "ray"], "--executor is for runs in virtual time: fluid"),
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
    assert says in refusal(*words)


@pytest.mark.parametrize(
    ("executor", "module", "cure"),
    [
        ("slurm", "submitit", "pip install 'mrc-testbed[slurm]'"),
        ("submitit-local", "submitit", "pip install 'mrc-testbed[slurm]'"),
        ("ray", "ray", "pip install 'mrc-testbed[ray]'"),
    ],
)
def test_what_is_not_installed__is_told_with_the_command(tmp_path, monkeypatch, executor, module, cure):
    monkeypatch.setitem(sys.modules, module, None)  # as Python has it for a module that cannot be imported
    files(tmp_path)
    message = refusal("study", str(tmp_path / "study.yaml"), "--executor", executor, "--out", str(tmp_path / "out"))
    assert cure in message and not (tmp_path / "out").exists()
