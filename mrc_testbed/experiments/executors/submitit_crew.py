"""Executor of virtual runs as tasks of Slurm, or as processes of submitit (`submitit-local`).

with SubmititCrew(ExecutorOptions("slurm"), jobs=2) as crew:
    news_queue = crew.hand_in(runs, costs, store=results.store)

All nodes share the folder of the results. Tasks write runs into it by themselves (task.py); a thread here watches for
new files. When the command is killed its tasks go on, and `--resume` finds their runs. The tasks that Slurm still has
come from `squeue`, since accounting (sacct, which submitit uses) is not everywhere; a task that is not listed and has
no result is lost.
"""

from __future__ import annotations

import math
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

import psutil

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.executors.crew import NewsQueue, RunLost
from mrc_testbed.experiments.executors.options import ExecutorOptions
from mrc_testbed.experiments.executors.packs import packs, side_by_side
from mrc_testbed.experiments.executors.task import OWNER, RunTask, run_task, tasks_folder
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.run_store import DamagedRun, RunStore
from mrc_testbed.experiments.virtual.estimate import memory_bytes
from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.ipc.child_errors import with_trace

LOOK_S = 0.5
"""Seconds of wall time between two checks for new files."""
ASK_S = 5.0
"""Seconds of wall time between two calls of squeue."""
GONE_AFTER = 3
"""Calls of squeue in a row that must miss a task before it counts as ended: network files come late."""
ANSWER_S = 30.0
"""Longest wait for a command of Slurm, seconds."""
TIME_FACTOR, TIME_LEAST_MIN = 5, 15
"""Time limit of a task: multiple of its estimate, and least minutes; nodes may be slower, and busy."""
MEMORY_FACTOR, MEMORY_LEAST_GB = 1.5, 1.0
"""Memory of a task: multiple of the buffers of its largest run, and least gigabytes."""
RESERVED_KEYS = ("job_name", "array_parallelism", "cpus_per_task", "use_srun")
"""Parameters of Slurm that `--slurm` may not set."""


@dataclass(slots=True)
class _WaitingTask:
    """A task before its submission."""

    task: RunTask
    seconds: float
    runs: dict[str, int]
    news_queue: NewsQueue


@dataclass(slots=True)
class _SubmittedTask:
    """A task that was submitted to the scheduler."""

    job: Any
    """The submitit.Job."""
    runs: dict[str, int]
    """Runs without news of their end: name -> number."""
    store: RunStore
    news_queue: NewsQueue
    absence_count: int = 0
    """Calls of squeue in a row that did not list the task."""


class SubmititCrew:
    """Executor on a Slurm cluster, or on processes of submitit."""

    def __init__(self, options: ExecutorOptions, jobs: int) -> None:
        self._submitit = _submitit(options.name)
        self._options, self._jobs = options, jobs
        self._is_slurm = options.name == "slurm"
        if self._is_slurm:
            _check_slurm()
        self._owner = secrets.token_hex(8)
        self._name = f"mrc-{self._owner}"
        self.least_s = options.task_s
        self._tasks: list[_SubmittedTask] = []
        self._waiting: list[_WaitingTask] = []
        """Local tasks that wait until fewer than `jobs` are running."""
        self._folders: dict[Path, bool] = {}
        """Folder of tasks -> whether all its tasks succeeded."""
        self._lock = Lock()
        self._stop_event = Event()
        self._queried_at = 0.0
        self._limits_text = "nothing"
        """Limits requested of Slurm for each task, as a text."""
        self._watch = Thread(target=self._watch_files, daemon=True)

    def __enter__(self) -> SubmititCrew:
        self._watch.start()
        return self

    def __exit__(self, *_exception_info: object) -> None:
        """Cancel this command's tasks; remove their folders, but those that show why a task failed."""
        self._stop_event.set()
        self._watch.join()
        for task in self._tasks:
            with suppress(OSError, subprocess.SubprocessError, psutil.Error):
                if self._is_slurm:
                    task.job.cancel(check=False)
                else:
                    _end(psutil.Process(int(task.job.job_id)))
        for folder, is_good in self._folders.items():
            with suppress(OSError):
                (folder / OWNER).unlink()  # a task that is not cancelled sees this and ends after its run
            if is_good and not any(tasks_folder(task.store) == folder for task in self._tasks):
                shutil.rmtree(folder, ignore_errors=True)

    # ---- handing in ----------------------------------------------------------------------------------------

    def hand_in(
        self,
        runs: Sequence[RunPlan],
        costs: Mapping[str, float] | None = None,
        *,
        store: RunStore | None = None,
        news_queue: NewsQueue | None = None,
        numbers: Sequence[int] | None = None,
    ) -> NewsQueue:
        """Submit tasks. Raises UsageError when the scheduler refuses them."""
        news_queue = SimpleQueue() if news_queue is None else news_queue
        if not runs:
            return news_queue
        if store is None:
            raise ValueError("tasks of a scheduler write to a folder: give a store")
        run_numbers = list(numbers or range(len(runs)))
        run_costs = [(costs or {}).get(run.name, self._options.task_s) for run in runs]
        task_indexes = packs(run_costs, self.least_s) if self._is_slurm else side_by_side(run_costs, self._jobs)
        folder = tasks_folder(store)
        tasks = [
            _WaitingTask(
                RunTask([runs[index] for index in pack], store, self._owner),
                sum(run_costs[index] for index in pack),
                {runs[index].name: run_numbers[index] for index in pack},
                news_queue,
            )
            for pack in task_indexes
        ]
        with self._lock:
            self._folders.setdefault(folder, True)
            self._waiting += tasks
            self._submit()
        return news_queue

    def _submit(self) -> None:
        """Submit waiting tasks: all to Slurm; locally as many as may run side by side.

        Raises UsageError when the scheduler refuses them.
        """
        count = len(self._waiting) if self._is_slurm else max(0, self._jobs - len(self._tasks))
        tasks, self._waiting = self._waiting[:count], self._waiting[count:]
        for folder in dict.fromkeys(task.task.folder for task in tasks):
            folder_tasks = [task for task in tasks if task.task.folder == folder]
            try:
                folder.mkdir(exist_ok=True)
                write_whole(folder / OWNER, self._owner.encode())
                executor = self._executor(
                    folder, [waiting.task for waiting in folder_tasks], max(waiting.seconds for waiting in folder_tasks)
                )
                with _quiet_children(folder / "controllers.log"), executor.batch():
                    jobs = [executor.submit(run_task, waiting.task) for waiting in folder_tasks]
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                raise UsageError(
                    f"{self._options.name} took no task: {_words(error)}; --slurm KEY=VALUE changes what is asked for "
                    f"(now {self._limits_text})"
                ) from None
            except ValueError as error:
                raise UsageError(f"--slurm: {_words(error)}") from None
            self._tasks += [
                _SubmittedTask(job, waiting.runs, waiting.task.store, waiting.news_queue)
                for job, waiting in zip(jobs, folder_tasks, strict=True)
            ]

    def _executor(self, folder: Path, tasks: list[RunTask], seconds: float) -> Any:
        """Return a submitit executor with limits for these tasks. Raises ValueError for unknown parameters."""
        minutes = max(TIME_LEAST_MIN, math.ceil(seconds * TIME_FACTOR / 60))
        if not self._is_slurm:
            executor = self._submitit.LocalExecutor(folder)
            executor.update_parameters(timeout_min=minutes)
            return executor
        memory = max(memory_bytes(run) for task in tasks for run in task.runs[:1] + task.runs[-1:])
        executor = self._submitit.SlurmExecutor(folder, max_num_timeout=0)
        parameters = {"time": minutes, "mem": f"{max(MEMORY_LEAST_GB, MEMORY_FACTOR * memory / 2**30):.0f}GB"}
        parameters |= self._options.slurm
        self._limits_text = ", ".join(f"{key}={value}" for key, value in parameters.items())
        executor.update_parameters(
            **parameters,
            job_name=self._name,
            cpus_per_task=1,
            array_parallelism=len(tasks),
            use_srun=False,
        )
        return executor

    # ---- looking -------------------------------------------------------------------------------------------

    def _watch_files(self) -> None:
        """Put news into the queues until the executor ends; an exception becomes news of every run."""
        while not self._stop_event.wait(LOOK_S):
            with self._lock:
                tasks = list(self._tasks)
            try:
                self._query_slurm(tasks)
                names_by_folder = {
                    store.folder: store.written_names() for store in {t.store.folder: t.store for t in tasks}.values()
                }
                ended_tasks = [task for task in tasks if self._report_news(task, names_by_folder[task.store.folder])]
            except Exception as error:
                self._refuse(error)
                return
            with self._lock:
                self._tasks = [
                    task for task in self._tasks if not any(task is ended_task for ended_task in ended_tasks)
                ]
                try:
                    self._submit()
                except UsageError as error:
                    self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        """Report an error as the news of all runs."""
        tasks: list[_SubmittedTask | _WaitingTask] = [*self._tasks, *self._waiting]
        for task in tasks:
            for number in task.runs.values():
                task.news_queue.put((number, error))

    def _report_news(self, task: _SubmittedTask, written_names: set[str]) -> bool:
        """Report the new runs of a task; return whether all its runs are reported."""
        is_ended = self._has_ended(task)  # checked before its files are listed, or the last runs could be missed
        if is_ended:
            written_names = task.store.written_names()
        for name in [name for name in task.runs if name in written_names]:
            with suppress(DamagedRun):
                stored_run = task.store.read(name)
                if stored_run is not None:
                    task.news_queue.put((task.runs.pop(name), (stored_run.outcome, stored_run.load)))
        if not is_ended or not task.runs:
            return not task.runs
        failed, reason = self._result(task)
        self._folders[tasks_folder(task.store)] = False
        for name, number in task.runs.items():
            if name in failed:
                task.news_queue.put((number, with_trace(*failed[name])))
            else:
                task.news_queue.put((number, RunLost(reason)))
        return True

    def _has_ended(self, task: _SubmittedTask) -> bool:
        if task.job.paths.result_pickle.exists():
            return True
        if not self._is_slurm:
            return bool(task.job.done())
        return task.absence_count >= GONE_AFTER

    def _query_slurm(self, tasks: list[_SubmittedTask]) -> None:
        """Count for each task the calls of squeue in a row that do not list it."""
        if not self._is_slurm or not tasks or time.monotonic() - self._queried_at < ASK_S:
            return
        self._queried_at = time.monotonic()
        try:
            output = _slurm("squeue", "--noheader", "--array", f"--name={self._name}", "--format=%i")
        except (OSError, subprocess.SubprocessError):
            return  # the controller restarts, or is busy: tasks go on without it
        queued_ids = set(output.split())
        for task in tasks:
            task.absence_count = 0 if task.job.job_id in queued_ids else task.absence_count + 1

    def _result(self, task: _SubmittedTask) -> tuple[dict[str, tuple[Exception, str]], str]:
        """Return the exceptions of runs that failed, and the reason why the others are lost."""
        name = f"task {task.job.job_id} of {self._options.name}"
        try:
            if not task.job.paths.result_pickle.exists():
                error_text = _last_line(task.job.stderr())
                return {}, f"{name} ended without a result" + (f" ({error_text})" if error_text else "")
            failed: dict[str, tuple[Exception, str]] = task.job.result()
        except Exception as error:  # submitit wraps the exception of the task in a text
            error_text = _last_line(
                "\n".join(
                    line
                    for line in str(error).splitlines()
                    if line.strip(" -") and not line.startswith(("You can check", "  - "))
                )
            )
            return {}, f"{name} failed ({error_text})"
        return failed, f"{name} ended before them"


def _end(controller: psutil.Process) -> None:
    """Kill a local task and its children.

    The SIGINT of submitit is ignored by children of a command in the background.
    """
    for process in [*controller.children(recursive=True), controller]:
        with suppress(psutil.Error):
            process.kill()


def _submitit(name: str) -> Any:
    try:
        import submitit
    except ImportError:
        raise UsageError(
            f"--executor {name} needs submitit, which is not installed: pip install 'mrc-testbed[slurm]' "
            "(in a checkout: .venv/bin/pip install -e '.[slurm]')"
        ) from None
    return submitit


def _check_slurm() -> None:
    """Raise UsageError unless a Slurm controller answers."""
    cure = "run where sbatch works (`sinfo` lists nodes), or give another --executor: local, submitit-local, ray"
    missing_commands = [
        command for command in ("sbatch", "squeue", "scancel", "sinfo", "srun") if shutil.which(command) is None
    ]
    if missing_commands:
        raise UsageError(f"--executor slurm: no {', '.join(missing_commands)} on PATH: {cure}")
    try:
        _slurm("sinfo", "--noheader", "--format=%P")
    except subprocess.TimeoutExpired:
        raise UsageError(f"--executor slurm: sinfo did not answer within {ANSWER_S:.0f} s: {cure}") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"--executor slurm: {_words(error)}: {cure}") from None


def _slurm(*command: str) -> str:
    """Return the output of a command of Slurm. Raises OSError, SubprocessError."""
    return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=True).stdout


def _words(error: Exception) -> str:
    """Return an error in one line; for a command, the end of its standard error."""
    stderr = getattr(error, "stderr", None)
    if isinstance(stderr, bytes):
        stderr = stderr.decode(errors="replace")
    lines = [line.strip() for line in (stderr or str(error)).splitlines() if line.strip()]
    return "; ".join(lines[-3:]) if stderr else " ".join(lines[:12]) or type(error).__name__


def _last_line(text: str | None) -> str:
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


@contextmanager
def _quiet_children(log: Path) -> Iterator[None]:
    """Redirect standard error to a file for children that are started meanwhile.

    submitit's local controllers inherit standard error, and Ctrl-C at a terminal would print a traceback of each.
    """
    with log.open("ab") as file:
        saved_stderr = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            yield
        finally:
            os.dup2(saved_stderr, 2)
            os.close(saved_stderr)
