"""Contract of all that make virtual runs: runs are handed in, news of them come back by a queue, in any order.

with WorkerPool(jobs) as crew:
    begun = crew.hand_in(planned.runs)
    number, news = begun.get()

A run is a pure function of its file, seed and variant: where, beside what and in which order it is made changes
nothing.
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
    """How far a run has come: share of its work, virtual seconds."""

    share: float
    now: float


@dataclass(frozen=True, slots=True)
class RunLost:
    """A run that will not come: its task ended without it. `reason` is for the user."""

    reason: str


News = RunProgress | RunLost | tuple[Outcome, dict[str, Any]] | Exception
NewsQueue = SimpleQueue[tuple[int, News]]
"""News of runs in the hands of a Crew: number; progress, then outcome (with its metrics) and load of the machine, or
why there is none."""


class ChildError(Exception):
    """The traceback of an exception in another process, as its cause."""


class Crew(Protocol):
    """What makes runs. Leaving the context ends whatever of ours still goes on."""

    least_s: float
    """Estimated seconds of work that are worth a task; who hands in little by little waits for so much."""

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
        """Have runs made. `costs`: estimated seconds by name; `store`: where other machines write them.

        `news_queue`: queue that gets the news, a new one by default; `numbers`: what to call them there, by default places
        in `runs`.
        """


def news_of(error: Exception, trace: str) -> Exception:
    """An exception of another process, with its traceback there as the cause."""
    error.__cause__ = ChildError(trace)
    return error
