"""Executor of virtual runs as tasks of a running Ray cluster.

with RayCrew(task_s=60.0) as crew:
    news_queue = crew.hand_in(runs, costs)

Nodes need this package, and no shared folder. A task returns its runs one by one, as they end. Ray starts a task again
whose worker or node died, up to RETRIES times: a run is the same on any machine. Runs that do not arrive even so are
reported as lost, by name. When the command ends, its tasks end too.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.executors.crew import NewsQueue, RunLost
from mrc_testbed.experiments.executors.packs import packs
from mrc_testbed.experiments.executors.task import timed_run
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.run_store import RunStore
from mrc_testbed.ipc.child_errors import portable, with_trace

RETRIES = 3
"""Most restarts of a task whose worker or node died."""
ANSWER_S = 10.0
"""Longest wait for a cluster's answer, seconds."""
ADDRESS = "RAY_ADDRESS"
"""Ray's own variable for the address of a cluster."""


class RayCrew:
    """Executor on a Ray cluster; enter it to join the cluster."""

    def __init__(self, task_s: float) -> None:
        self._ray = _ray()
        self.least_s = task_s
        self._tasks: list[Any] = []
        self._threads: list[Thread] = []

    def __enter__(self) -> RayCrew:
        """Join the cluster. Raises UsageError when there is none."""
        address = os.environ.get(ADDRESS) or "auto"
        try:
            _check_address(address)
            with _handlers_kept():
                self._ray.init(
                    address=address,
                    log_to_driver=False,
                    logging_level="ERROR",
                    configure_logging=True,
                )
        except (OSError, RuntimeError, ValueError) as error:
            error_text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UsageError(
                f"--executor ray: no cluster ({error_text}): start one (`ray start --head`, and `ray start "
                f"--address=HEAD:6379` on the others), or say where one is by {ADDRESS}"
            ) from None
        options = {"num_cpus": 1, "max_retries": RETRIES, "num_returns": "streaming"}
        self._remote = self._ray.remote(**options)(make)
        return self

    def __exit__(self, *_exception_info: object) -> None:
        for task in self._tasks:
            with suppress(Exception):  # the task may have ended, or the cluster
                self._ray.cancel(task, force=True)
        with suppress(Exception):
            self._ray.shutdown()

    def hand_in(
        self,
        runs: Sequence[RunPlan],
        costs: Mapping[str, float] | None = None,
        *,
        store: RunStore | None = None,  # noqa: ARG002
        news_queue: NewsQueue | None = None,
        numbers: Sequence[int] | None = None,
    ) -> NewsQueue:
        """Submit all tasks to Ray, which starts as many as it has CPUs."""
        news_queue = SimpleQueue() if news_queue is None else news_queue
        run_numbers = list(numbers or range(len(runs)))
        run_costs = [(costs or {}).get(run.name, self.least_s) for run in runs]
        for pack in packs(run_costs, self.least_s):
            task = self._remote.remote([runs[index] for index in pack])
            self._tasks.append(task)
            thread = Thread(
                target=self._follow, args=(task, [run_numbers[index] for index in pack], news_queue), daemon=True
            )
            thread.start()
            self._threads.append(thread)
        return news_queue

    def _follow(self, task: Any, numbers: list[int], news_queue: NewsQueue) -> None:
        """Put the results of a task into the queue, run by run."""
        pending_numbers = list(numbers)
        try:
            for reference in task:
                outcome, load_or_trace = self._ray.get(reference)
                number = pending_numbers.pop(0)
                news_queue.put(
                    (
                        number,
                        with_trace(outcome, load_or_trace)
                        if isinstance(outcome, Exception)
                        else (outcome, load_or_trace),
                    )
                )
            reason = "its task ended before it"
        except Exception as error:  # many kinds of RayError, and errors of a cluster that stops
            first_line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
            reason = f"Ray gave its task up: {type(error).__name__}" + (f" ({first_line[:160]})" if first_line else "")
        for number in pending_numbers:
            news_queue.put((number, RunLost(reason)))


def make(runs: list[RunPlan]) -> Iterator[tuple[Any, Any]]:
    """Run as a task: yield outcome and load of each run, or an exception and its traceback."""
    for run in runs:
        try:
            yield timed_run(run)
        except Exception as error:
            yield portable(error), traceback.format_exc()


def _check_address(address: str) -> None:
    """Raise OSError unless a process listens at HOST:PORT, where Ray would wait for over ten minutes."""
    host, colon, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    if not colon or not port.isdigit():
        return  # `auto` and `local`, which Ray looks up
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
    except OSError as error:
        raise ConnectionError(f"no process listens at {host}:{port}: {error.strerror or error}") from None


def _ray() -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # no warning about GPUs
    try:
        import ray
    except ImportError:
        raise UsageError(
            "--executor ray needs Ray, which is not installed: pip install 'mrc-testbed[ray]' "
            "(in a checkout: .venv/bin/pip install -e '.[ray]')"
        ) from None
    return ray


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Restore signal handlers: ray.init replaces that of SIGTERM."""
    is_main_thread = threading.current_thread() is threading.main_thread()
    handlers = (
        {signal_number: signal.getsignal(signal_number) for signal_number in (signal.SIGINT, signal.SIGTERM)}
        if is_main_thread
        else {}
    )
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
