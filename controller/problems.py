"""Problems of the controller itself: internal exceptions, switches it may not write or cannot read.

A problem is no fault of the fabric. It says what no longer works until it is over, and is reported like a fault: as an
event (the prompt's notices), in `GET /v1/faults` (`faults` at the prompt) and in the log. An exception in one reaction
is a bug and ends that reaction alone: `guard` reports it, `keep` starts the task again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from traceback import extract_tb
from typing import Any, ParamSpec

AGAIN_S = 0.5
"""Pause before a task that an exception ended begins again, seconds."""
KEEP_OVER = 100
"""Problems that are over and still listed; the oldest are forgotten."""

P = ParamSpec("P")
log = logging.getLogger(__name__)


class ProblemKind(Enum):
    """Kind of a problem, as the northbound API names it."""

    INTERNAL = "controller internal error"  # lasts as long as the controller: what it missed stays missed
    NOT_PRIMARY = "not primary"  # another controller writes the switch
    UNREAD = "unread"  # the switch is up, and its counters are not to be had
    UNWRITTEN = "unwritten"  # the switch refuses entries that follow what is alive


@dataclass(slots=True)
class ControllerProblem:
    """One problem; repetitions are counted. Times are CLOCK_MONOTONIC seconds."""

    number: int
    kind: ProblemKind
    subject: str
    """The switch, or the reaction that failed."""
    cause: str
    effect: str
    """Functions that no longer work."""
    log: str
    """File that has the details."""
    began: float
    last_seen: float
    times: int = 1
    end_time: float | None = None
    """Time at which the problem was over; None while it lasts."""

    @property
    def text(self) -> str:
        return f"{self.kind.value}: {self.subject}: {self.cause}; {self.effect}"

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "kind": self.kind.value,
            "about": self.subject,
            "text": self.text,
            "cause": self.cause,
            "effect": self.effect,
            "log": self.log,
            "began": self.began,
            "last_seen": self.last_seen,
            "times": self.times,
            "over": self.end_time,
        }


class Problems:
    """Problems of one controller.

    `on_change(change, problem)` is called with change `begun` or `over`.
    """

    def __init__(
        self,
        log_file: Path | str = "",
        on_change: Callable[[str, ControllerProblem], None] = lambda _change, _problem: None,
    ) -> None:
        self._log_file = str(log_file)
        self._on_change = on_change
        self._active: dict[tuple[ProblemKind, str, str], ControllerProblem] = {}
        """Problems that last, by (kind, subject, cause); the cause is empty for all kinds but INTERNAL."""
        self._ended_problems: list[ControllerProblem] = []
        self._last_number = 0
        self.count = 0
        """Number of exceptions so far."""

    def active(self) -> list[ControllerProblem]:
        """Return the problems that last, oldest first."""
        return list(self._active.values())

    def all_problems(self) -> list[ControllerProblem]:
        """Return the problems that last or are over, oldest first."""
        return sorted((*self._ended_problems, *self._active.values()), key=lambda problem: problem.number)

    def begin(self, kind: ProblemKind, subject: str, cause: str, effect: str) -> None:
        """Report a problem, or count a repetition of one that lasts."""
        self._begin((kind, subject, ""), cause, effect)

    def end(self, kind: ProblemKind, subject: str) -> None:
        """Report that a problem is over; without such a problem do nothing."""
        problem = self._active.pop((kind, subject, ""), None)
        if problem is not None:
            problem.end_time = time.monotonic()
            self._ended_problems = [*self._ended_problems, problem][-KEEP_OVER:]
            self._report("over", problem)

    def internal(self, reaction: str, error: BaseException) -> None:
        """Report an unexpected exception. Its traceback goes to the log, the first time."""
        self.count += 1
        frames = extract_tb(error.__traceback__)
        location = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        cause = f"{type(error).__name__}{location}"
        problem = self._begin(
            (ProblemKind.INTERNAL, reaction, cause),
            f"{cause}: {error}" if str(error) else cause,
            f"what this was about is passed over and the controller goes on (see {self._log_file or 'its log'})",
        )
        if problem.times == 1:
            log.error("%s failed", reaction, exc_info=error)
        elif problem.times & (problem.times - 1) == 0:  # at 2, 4, 8, ...: one that fails all the time fills no disk
            log.error("%s failed again (%d times): %r", reaction, problem.times, error)

    def guard(self, reaction: str, method: Callable[P, None]) -> Callable[P, None]:
        """Return the method with its exceptions reported and not raised."""

        def guarded_call(*arguments: P.args, **keywords: P.kwargs) -> None:
            try:
                method(*arguments, **keywords)
            except Exception as error:
                self.internal(reaction, error)

        return guarded_call

    async def keep(self, reaction: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a task to its end, and again after each exception."""
        while True:
            try:
                await run()
                return
            except Exception as error:
                self.internal(reaction, error)
            await asyncio.sleep(AGAIN_S)

    def _begin(self, key: tuple[ProblemKind, str, str], cause: str, effect: str) -> ControllerProblem:
        now = time.monotonic()
        problem = self._active.get(key)
        if problem is not None:
            problem.times, problem.last_seen, problem.cause = problem.times + 1, now, cause
            return problem
        self._last_number += 1
        problem = ControllerProblem(self._last_number, key[0], key[1], cause, effect, self._log_file, now, now)
        self._active[key] = problem
        self._report("begun", problem)
        return problem

    def _report(self, change: str, problem: ControllerProblem) -> None:
        log.warning("problem %d %s: %s", problem.number, change, problem.text)
        self._on_change(change, problem)
