"""Executor of virtual runs in processes of this command; their number does not change outcomes.

    with WorkerPool(jobs) as crew:
        news_queue = crew.hand_in(run_set.runs)
        report = run_scenario(run_set, listener, news_queue=news_queue)

Design note. This was a ProcessPoolExecutor. After Ctrl-C it waits for the runs in progress, for minutes; with its
processes ended it was still seen to hang (an exception inside its locks may leave them held; the cause was not traced);
and when the front process is killed, its workers compute on. Here a daemon thread serves each process, the shared state
is SimpleQueues, which no exception leaves locked, and no thread is joined. A process ends when its parent does. Workers
do not see the SIGINT that a terminal sends to the group: it is blocked while they are started, and they inherit that.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.executors.crash import death_of, stack_file
from mrc_testbed.experiments.executors.crew import NewsQueue, RunLost, RunProgress
from mrc_testbed.experiments.executors.task import timed_run
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.run_store import RunStore
from mrc_testbed.experiments.virtual.estimate import Piece, measure
from mrc_testbed.ipc.child_errors import portable, with_trace

PROGRESS_EVERY_S = 0.5
"""Seconds of wall time between two progress messages of a run."""


@dataclass(frozen=True, slots=True)
class _PieceOf:
    """Request to measure a piece of a run."""

    run: RunPlan


class WorkerPool:
    """Worker processes of a command.

    All runs of a command are handed in at once, so that the last run of a scenario leaves no process idle.
    """

    least_s = 0.0

    def __init__(self, jobs: int) -> None:
        self._job_queue: SimpleQueue[tuple[int, RunPlan | _PieceOf, SimpleQueue[Any]] | None] = SimpleQueue()
        self._processes: list[BaseProcess] = []
        self._stacks: list[Path] = []
        self._starting = Lock()
        """Lock around each start of a process, so that none is started after the end of the pool."""
        self._ended = False
        ensure_running()  # starting it together with a process would unblock SIGINT
        for _ in range(jobs):
            self._start()

    def _start(self) -> None:
        """Start a process, and a thread that serves it."""
        context = get_context("spawn")
        with self._starting:
            if self._ended:
                return
            parent_pipe, child_pipe = context.Pipe()
            stack = stack_file()
            self._stacks.append(stack)
            process = context.Process(target=_work, args=(child_pipe, str(stack)), daemon=True)
            old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
            child_pipe.close()
            self._processes.append(process)
            Thread(target=self._serve, args=(parent_pipe, process, stack), daemon=True).start()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_exception_info: object) -> None:
        """Kill all processes: runs in progress are of no use."""
        with self._starting:
            self._ended = True
        for process in self._processes:
            self._job_queue.put(None)
            process.kill()
        for process in self._processes:
            process.join()
        for stack in self._stacks:
            stack.unlink(missing_ok=True)

    def hand_in(
        self,
        runs: Sequence[RunPlan],
        costs: Mapping[str, float] | None = None,
        *,
        store: RunStore | None = None,  # noqa: ARG002
        news_queue: NewsQueue | None = None,
        numbers: Sequence[int] | None = None,
    ) -> NewsQueue:
        """Queue runs in this order; with costs the longest first, so that all processes end at about one time."""
        news_queue = SimpleQueue() if news_queue is None else news_queue
        numbered_runs = list(zip(numbers or range(len(runs)), runs, strict=True))
        for number, run in (
            sorted(numbered_runs, key=lambda numbered_run: -costs[numbered_run[1].name]) if costs else numbered_runs
        ):
            self._job_queue.put((number, run, news_queue))
        return news_queue

    def measure(self, runs: list[RunPlan]) -> Iterator[tuple[RunPlan, Piece]]:
        """Yield a measured piece of each run, as they end. Raises what a run raises."""
        news: SimpleQueue[tuple[int, tuple[Piece, None] | Exception]] = SimpleQueue()
        for number, run in enumerate(runs):
            self._job_queue.put((number, _PieceOf(run), news))
        for _ in runs:
            number, measured_piece = news.get()
            if isinstance(measured_piece, Exception):
                raise measured_piece
            yield runs[number], measured_piece[0]

    def _serve(self, pipe: Connection, process: BaseProcess, stack: Path) -> None:
        """Give runs to a process, one by one. If it dies, its run is lost and a new process is started."""
        while (job := self._job_queue.get()) is not None:
            number, task, news = job
            try:
                pipe.send(task)
                while isinstance(message := pipe.recv(), RunProgress):
                    news.put((number, message))
                outcome, load_or_trace = message
                if isinstance(outcome, Exception):
                    news.put((number, with_trace(outcome, load_or_trace)))
                else:
                    news.put((number, (outcome, load_or_trace)))
            except (EOFError, OSError):
                process.join()
                if isinstance(task, _PieceOf):
                    news.put((number, UsageError(death_of(task.run.name, process.exitcode, stack))))
                else:
                    news.put((number, RunLost(death_of(task.name, process.exitcode, stack))))
                self._start()
                return
            except Exception as error:
                news.put((number, error))


def _work(pipe: Connection, stack: str) -> None:
    """Run as a worker process: make runs, or measure pieces, until the parent ends."""
    # Stays open: a crash leaves no time to open it.
    faulthandler.enable(os.open(stack, os.O_WRONLY | os.O_CLOEXEC), all_threads=False)
    Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()  # modules stay: what is collected after a run is the run's alone
    # The parent's end closes the pipe, and wakes the thread above: whichever comes first ends this process silently.
    with suppress(EOFError, OSError):
        while True:
            task = pipe.recv()
            try:
                if isinstance(task, _PieceOf):
                    pipe.send((measure(task.run), None))
                    continue
                pipe.send(timed_run(task, _progress_sender(pipe)))
            except Exception as error:
                pipe.send((portable(error), traceback.format_exc()))
    sys.exit(1)


def _progress_sender(pipe: Connection) -> Callable[[float, float], None]:
    """Return a callback that sends a run's progress to the parent, every PROGRESS_EVERY_S at most."""
    sent_at = time.monotonic()

    def send_progress(share: float, now: float) -> None:
        nonlocal sent_at
        if time.monotonic() - sent_at >= PROGRESS_EVERY_S:
            sent_at = time.monotonic()
            pipe.send(RunProgress(share, now))

    return send_progress


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
