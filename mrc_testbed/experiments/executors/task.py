"""Task: runs that one process makes, here or on another machine.

outcome, load = timed_run(run)
failed = run_task(RunTask(runs, store, owner))      # a scheduler's task, in a shared folder

A task writes each run as it ends, so that a task that is killed, runs out of time or loses its node loses only the run
in progress. Started again (a scheduler may do that) it continues where it was. It makes no further runs once the folder
belongs to another command: `--resume` takes over from tasks that a killed command left running.
"""

from __future__ import annotations

import gc
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.backend.protocol import Watch, ignore_progress
from mrc_testbed.experiments.metrics.assertions import conclude
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.results import TASKS, LoadMeter
from mrc_testbed.experiments.run_store import DamagedRun, RunStore
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner
from mrc_testbed.ipc.child_errors import portable

OWNER = "owner"
"""File of the folder `tasks`: token of the command whose tasks may write."""


def timed_run(run: RunPlan, watch: Watch = ignore_progress) -> tuple[Outcome, dict[str, Any]]:
    """Make a run; return its outcome with metrics, and the load. Raises what VirtualRunner raises."""
    meter = LoadMeter()
    outcome = VirtualRunner().run(run, watch)
    load = meter.read("virtual")
    conclude(run, outcome)
    return outcome, load


@dataclass(frozen=True, slots=True)
class RunTask:
    """Runs to make one after the other, and the store to write them to."""

    runs: list[RunPlan]
    store: RunStore
    owner: str
    """Token of the command that handed the task in."""

    @property
    def folder(self) -> Path:
        """Folder for files of tasks."""
        return tasks_folder(self.store)


def tasks_folder(store: RunStore) -> Path:
    """Return the folder for files of tasks, beside the folder `runs`."""
    return store.folder.parent / TASKS


def run_task(task: RunTask) -> dict[str, tuple[Exception, str]]:
    """Make and write the runs of a task; return name -> (exception, traceback) of those that failed.

    Raises OSError when a run cannot be written.
    """
    gc.freeze()  # modules stay: what is collected after a run is the run's alone
    failed: dict[str, tuple[Exception, str]] = {}
    for run in task.runs:
        if not _is_wanted(task):
            break
        if _is_there(task.store, run.name):
            continue
        try:
            outcome, load = timed_run(run)
        except Exception as error:
            failed[run.name] = portable(error), traceback.format_exc()
            continue
        if _is_wanted(task):  # another command may have taken the folder over during the run
            task.store.write(outcome, load)
    return failed


def _is_wanted(task: RunTask) -> bool:
    try:
        return (task.folder / OWNER).read_text() == task.owner
    except OSError:
        return False


def _is_there(store: RunStore, name: str) -> bool:
    try:
        return store.read(name) is not None
    except DamagedRun:
        return False
