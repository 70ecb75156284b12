"""What keeps the controller from its work: an exception of ours, a switch that it may not write or cannot read.

A problem is no fault of the fabric. It says what no longer works until it is over, and is told like a fault: as an
event (the prompt's notices), in `GET /v1/faults` (`faults` at the prompt) and in the log. An exception in one reaction,
which is a bug of ours, ends that reaction alone: `guarded` passes it over, `keep` begins the task again.
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
    """One of them; equal ones are counted. Times are CLOCK_MONOTONIC seconds."""

    number: int
    kind: ProblemKind
    about: str
    """The switch, or the reaction that failed."""
    cause: str
    effect: str
    """What no longer works."""
    log: str
    """File that has the details."""
    began: float
    last_seen: float
    times: int = 1
    over: float | None = None

    @property
    def text(self) -> str:
        return f"{self.kind.value}: {self.about}: {self.cause}; {self.effect}"

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "kind": self.kind.value,
            "about": self.about,
            "text": self.text,
            "cause": self.cause,
            "effect": self.effect,
            "log": self.log,
            "began": self.began,
            "last_seen": self.last_seen,
            "times": self.times,
            "over": self.over,
        }


class Problems:
    """Problems of one controller. `on_change(change, problem)` hears of each that has `begun` or is `over`."""

    def __init__(
        self,
        log_file: Path | str = "",
        on_change: Callable[[str, ControllerProblem], None] = lambda _change, _problem: None,
    ) -> None:
        self._log_file = str(log_file)
        self._on_change = on_change
        self._active: dict[tuple[ProblemKind, str, str], ControllerProblem] = {}
        """By kind, what it is about, and the cause where one thing may have several."""
        self._over: list[ControllerProblem] = []
        self._last_number = 0
        self.count = 0
        """Exceptions so far."""

    def active(self) -> list[ControllerProblem]:
        """Problems that last, oldest first."""
        return list(self._active.values())

    def all(self) -> list[ControllerProblem]:
        """Problems that last or are over, oldest first."""
        return sorted((*self._over, *self._active.values()), key=lambda problem: problem.number)

    def begin(self, kind: ProblemKind, about: str, cause: str, effect: str) -> None:
        """Tell of a problem; one that is known is counted."""
        self._begin((kind, about, ""), cause, effect)

    def end(self, kind: ProblemKind, about: str) -> None:
        """Tell that a problem is over; nothing when there was none."""
        problem = self._active.pop((kind, about, ""), None)
        if problem is not None:
            problem.over = time.monotonic()
            self._over = [*self._over, problem][-KEEP_OVER:]
            self._tell("over", problem)

    def internal(self, reaction: str, error: BaseException) -> None:
        """Tell of an exception that nothing of ours expected. Its traceback goes to the log, the first time."""
        self.count += 1
        frames = extract_tb(error.__traceback__)
        at = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        cause = f"{type(error).__name__}{at}"
        problem = self._begin(
            (ProblemKind.INTERNAL, reaction, cause),
            f"{cause}: {error}" if str(error) else cause,
            f"what this was about is passed over and the controller goes on (see {self._log_file or 'its log'})",
        )
        if problem.times == 1:
            log.error("%s failed", reaction, exc_info=error)
        elif problem.times & (problem.times - 1) == 0:  # at 2, 4, 8, ...: one that fails all the time fills no disk
            log.error("%s failed again (%d times): %r", reaction, problem.times, error)

    def guarded(self, reaction: str, method: Callable[P, None]) -> Callable[P, None]:
        """The method, whose exceptions are told and go no further."""

        def guard(*arguments: P.args, **named: P.kwargs) -> None:
            try:
                method(*arguments, **named)
            except Exception as error:
                self.internal(reaction, error)

        return guard

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
        self._tell("begun", problem)
        return problem

    def _tell(self, change: str, problem: ControllerProblem) -> None:
        log.warning("problem %d %s: %s", problem.number, change, problem.text)
        self._on_change(change, problem)
