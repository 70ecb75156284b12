"""Protocol of executors: runs are handed in, news of them come back by a queue, in any order.

with WorkerPool(jobs) as crew:
    news_queue = crew.hand_in(run_set.runs)
    number, news = news_queue.get()

A run is a pure function of its file, seed and variant: machine, order and other runs change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Protocol

from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.run_store import RunStore


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of a run: share of its work done, virtual seconds."""

    share: float
    now: float


@dataclass(frozen=True, slots=True)
class RunLost:
    """A run whose task ended without a result. `reason` is a text for the user."""

    reason: str


News = RunProgress | RunLost | tuple[Outcome, dict[str, Any]] | Exception
NewsQueue = SimpleQueue[tuple[int, News]]
"""Queue of (run number, news): progress, then the outcome with its metrics and the load, or a failure."""


class Crew(Protocol):
    """Protocol of an executor. Leaving the context ends its processes and tasks."""

    least_s: float
    """Least estimated seconds of work for a task; callers that hand in gradually collect that much."""

    def __enter__(self) -> Crew: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def hand_in(
        self,
        runs: Sequence[RunPlan],
        costs: Mapping[str, float] | None = None,
        *,
        store: RunStore | None = None,
        news_queue: NewsQueue | None = None,
        numbers: Sequence[int] | None = None,
    ) -> NewsQueue:
        """Make runs, and return the queue of their news.

        `costs`: estimated seconds by name; `store`: store that tasks on other machines write to; `news_queue`: queue to
        use, a new one by default; `numbers`: numbers of the runs in the news, by default their index in `runs`.
        """
