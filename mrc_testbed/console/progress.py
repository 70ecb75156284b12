"""Progress of a long command in one line at a terminal: its step, elapsed time and estimated rest.

    with Progress(console, "bench incast", guess_s=60.0) as progress:
        progress.step("as designed")              # a line of its own everywhere, and the one at the terminal
        progress.share(2 / 7)                     # where the part that is done can be told

The rest is told by the part that is done; else by what the same command took the last time on this machine, step by
step (`durations.json` in the cache); else by the caller's guess. The line comes after a second, for what ends sooner
needs none, and is gone in the end. Without a terminal there are the lines of the steps alone.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrc_testbed.switch.system.cache_folder import BuildError, cache_dir, safe_cache_dir, write_whole

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

AFTER_S = 1.0
"""Seconds before the line appears; a shorter command shows none."""
_shown: list[Progress] = []
"""The one whose line is on the screen: another one within tells its steps there."""


class Progress:
    """Use as a context manager. `size`: what the time grows with, such as the number of switches."""

    def __init__(
        self, console: Console, command: str, *, guess_s: float | None = None, size: float = 1.0, text: str = ""
    ) -> None:
        self._console, self._command, self._size = console, command, size
        self._now = text or command
        self._rest = _Rest(_last(command), guess_s, size)
        self._bar: RichProgress | None = None
        self._task: Any = None
        self._timer: threading.Timer | None = None
        self._lock = threading.RLock()

    def __enter__(self) -> Progress:
        self._rest.begin(time.monotonic())
        if self._console.is_terminal and not _shown:
            _shown.append(self)
            self._timer = threading.Timer(AFTER_S, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_why: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            if self in _shown:
                _shown.remove(self)
            if self._bar is not None:
                self._bar.stop()
                self._bar = None
        record = self._rest.record(time.monotonic())
        if kind is None and record["total_s"] > AFTER_S:
            _remember(self._command, record)

    def step(self, text: str, *, quiet: bool = False) -> None:
        """The next step begins. `quiet`: it gets no line of its own."""
        self._rest.step(text, time.monotonic())
        if not quiet:
            self._console.print(text, style="dim", markup=False)
        self._tell(text)

    def share(self, done: float, text: str | None = None) -> None:
        """`done` of it, 0 to 1, is over."""
        self._rest.share = done
        if text is not None:
            self._tell(text)

    def _tell(self, text: str) -> None:
        shown = _shown[0] if _shown else self
        with shown._lock:
            shown._now = text
            if shown._bar is not None:
                shown._bar.update(shown._task, description=text)

    def _show(self) -> None:
        from rich.progress import Progress as RichProgress
        from rich.progress import ProgressColumn, SpinnerColumn, TextColumn
        from rich.text import Text

        rest = self._rest

        class Left(ProgressColumn):
            """Time that has passed and time that is left, as far as it can be told."""

            def render(self, _task: Any) -> Text:
                return Text(rest.text(time.monotonic()), style="progress.remaining")

        with self._lock:
            # The timer that calls this may fire after the end.
            if self not in _shown:
                return
            described = TextColumn("{task.description}", markup=False)
            self._bar = RichProgress(
                SpinnerColumn(),
                described,
                Left(),
                console=self._console,
                transient=True,
                refresh_per_second=4,
            )
            self._task = self._bar.add_task(self._now, total=None)
            self._bar.start()


class _Rest:
    """Estimate of the time that is left. Times in seconds.

    `last`: what `record` made the last time, or None.
    """

    def __init__(self, last: dict[str, Any] | None, guess_s: float | None, size: float) -> None:
        self._size = size
        scale = size / last["size"] if last else 1.0
        self._total_s = last["total_s"] * scale if last else guess_s
        self._steps = {name: at * scale for name, at in last["steps"]} if last else {}
        self._begun = 0.0
        self._taken: list[tuple[str, float]] = []
        self._ahead_s = 0.0
        """Lead of the current step's start over the last time, seconds."""
        self.share: float | None = None

    def begin(self, now: float) -> None:
        self._begun = now

    def step(self, text: str, now: float) -> None:
        name = _name(text)
        at = now - self._begun
        if name not in (known for known, _ in self._taken):  # of one that is repeated, the first time counts
            self._taken.append((name, at))
            self._ahead_s = self._steps.get(name, at + self._ahead_s) - at

    def left_s(self, now: float) -> float | None:
        """Seconds; None when nobody can tell."""
        passed = now - self._begun
        if self.share is not None and (left := left_by_share(passed, self.share)) is not None:
            return left
        return None if self._total_s is None else max(self._total_s - self._ahead_s - passed, 0.0)

    def text(self, now: float) -> str:
        left, passed = self.left_s(now), _clock(now - self._begun)
        if left is None:
            return f"{passed}, how long it takes is known the next time"
        return f"{passed}, about {_clock(left)} left" if left >= 1 else f"{passed}, nearly done"

    def record(self, now: float) -> dict[str, Any]:
        return {"size": self._size, "total_s": round(now - self._begun, 3), "steps": self._taken}


def left_by_share(passed_s: float, done: float) -> float | None:
    """Return the seconds left when the share `done` took `passed_s`; None when that is unknown.

    A share beyond 1 (more came than was asked for) and one below 0 (it has not begun) leave no time, or none known.
    """
    if not (math.isfinite(done) and done > 0 and passed_s >= 0):
        return None
    left_s = passed_s * (1 - min(done, 1.0)) / done
    return left_s if math.isfinite(left_s) else None


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    return f"{minutes}:{rest:02d}"


def _name(text: str) -> str:
    """A step without its figures, which differ each time."""
    return re.sub(r"\d[\d.,]*", "#", text)


def _path() -> Path:
    return cache_dir() / "durations.json"


def _known() -> dict[str, Any]:
    try:
        known = json.loads(_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _last(command: str) -> dict[str, Any] | None:
    """Return the record that `_remember` stored; None for none, or one that cannot be read."""
    last: Any = _known().get(command)
    try:
        steps = [(str(name), float(at)) for name, at in last["steps"]]
        size, total_s = float(last["size"]), float(last["total_s"])
    except (TypeError, KeyError, ValueError):
        return None
    is_sound = size > 0 and all(math.isfinite(one) and one >= 0 for one in (size, total_s, *(at for _, at in steps)))
    return {"size": size, "total_s": total_s, "steps": steps} if is_sound else None


def _remember(command: str, record: dict[str, Any]) -> None:
    """A cache that cannot be written tells no rest the next time, and that is all."""
    with contextlib.suppress(OSError, BuildError):
        safe_cache_dir()
        write_whole(_path(), json.dumps({**_known(), command: record}).encode())
