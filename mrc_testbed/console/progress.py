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
_on_screen: list[Progress] = []
"""The one whose line is on the screen: another one within tells its steps there."""


class Progress:
    """Use as a context manager. `size`: what the time grows with, such as the number of switches."""

    def __init__(
        self, console: Console, command: str, *, guess_s: float | None = None, size: float = 1.0, text: str = ""
    ) -> None:
        self._console, self._command, self._size = console, command, size
        self._now = text or command
        self._rest = _Estimate(_last(command), guess_s, size)
        self._bar: RichProgress | None = None
        self._task: Any = None
        self._timer: threading.Timer | None = None
        self._lock = threading.RLock()

    def __enter__(self) -> Progress:
        self._rest.begin(time.monotonic())
        if self._console.is_terminal and not _on_screen:
            _on_screen.append(self)
            self._timer = threading.Timer(AFTER_S, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            if self in _on_screen:
                _on_screen.remove(self)
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
        self._set_text(text)

    def note(self, text: str) -> None:
        """Print a line above the one at the terminal, which would stand in front of it otherwise."""
        self._console.print(text, markup=False, soft_wrap=not self._console.is_terminal)

    def share(self, share: float, text: str | None = None) -> None:
        """Report the share that is done, 0 to 1."""
        self._rest.share = share
        if text is not None:
            self._set_text(text)

    def _set_text(self, text: str) -> None:
        visible = _on_screen[0] if _on_screen else self
        with visible._lock:
            visible._now = text
            if visible._bar is not None:
                visible._bar.update(visible._task, description=text)

    def _show(self) -> None:
        from rich.progress import Progress as RichProgress
        from rich.progress import ProgressColumn, SpinnerColumn, TextColumn
        from rich.text import Text

        estimate = self._rest

        class TimeColumn(ProgressColumn):
            """Time that has passed and time that is left, as far as it can be told."""

            def render(self, _task: Any) -> Text:
                return Text(estimate.text(time.monotonic()), style="progress.remaining")

        with self._lock:
            # The timer that calls this may fire after the end.
            if self not in _on_screen:
                return
            description = TextColumn("{task.description}", markup=False)
            self._bar = RichProgress(
                SpinnerColumn(),
                description,
                TimeColumn(),
                console=self._console,
                transient=True,
                refresh_per_second=4,
            )
            self._task = self._bar.add_task(self._now, total=None)
            self._bar.start()


class _Estimate:
    """Estimate of the time that is left. Times in seconds.

    `last`: what `record` made the last time, or None.
    """

    def __init__(self, last: dict[str, Any] | None, guess_s: float | None, size: float) -> None:
        self._size = size
        scale = size / last["size"] if last else 1.0
        self._total_s = last["total_s"] * scale if last else guess_s
        self._steps = {name: time_s * scale for name, time_s in last["steps"]} if last else {}
        self._begun = 0.0
        self._taken: list[tuple[str, float]] = []
        self._ahead_s = 0.0
        """Lead of the current step's start over the last time, seconds."""
        self.share: float | None = None

    def begin(self, now: float) -> None:
        self._begun = now

    def step(self, text: str, now: float) -> None:
        name = _name(text)
        time_s = now - self._begun
        if name not in (step_name for step_name, _ in self._taken):  # of one that is repeated, the first time counts
            self._taken.append((name, time_s))
            self._ahead_s = self._steps.get(name, time_s + self._ahead_s) - time_s

    def left_s(self, now: float) -> float | None:
        """Seconds; None when nobody can tell."""
        passed_s = now - self._begun
        if self.share is not None and (left_s := left_by_share(passed_s, self.share)) is not None:
            return left_s
        return None if self._total_s is None else max(self._total_s - self._ahead_s - passed_s, 0.0)

    def text(self, now: float) -> str:
        left_s, passed_text = self.left_s(now), _clock(now - self._begun)
        if left_s is None:
            return f"{passed_text}, how long it takes is known the next time"
        return f"{passed_text}, about {_clock(left_s)} left" if left_s >= 1 else f"{passed_text}, nearly done"

    def record(self, now: float) -> dict[str, Any]:
        return {"size": self._size, "total_s": round(now - self._begun, 3), "steps": self._taken}


def left_by_share(passed_s: float, share: float) -> float | None:
    """Return the seconds left when `share` took `passed_s`; None when that is unknown.

    A share beyond 1 (more came than was asked for) and one below 0 (it has not begun) leave no time, or none known.
    """
    if not (math.isfinite(share) and share > 0 and passed_s >= 0):
        return None
    left_s = passed_s * (1 - min(share, 1.0)) / share
    return left_s if math.isfinite(left_s) else None


def _clock(seconds: float) -> str:
    minutes, second_count = divmod(round(max(seconds, 0.0)), 60)
    return f"{minutes}:{second_count:02d}"


def _name(text: str) -> str:
    """A step without its figures, which differ each time."""
    return re.sub(r"\d[\d.,]*", "#", text)


def _path() -> Path:
    return cache_dir() / "durations.json"


def _stored_records() -> dict[str, Any]:
    try:
        records = json.loads(_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return records if isinstance(records, dict) else {}


def _last(command: str) -> dict[str, Any] | None:
    """Return the record that `_remember` stored; None for none, or one that cannot be read."""
    last: Any = _stored_records().get(command)
    try:
        steps = [(str(name), float(time_s)) for name, time_s in last["steps"]]
        size, total_s = float(last["size"]), float(last["total_s"])
    except (TypeError, KeyError, ValueError):
        return None
    is_sound = size > 0 and all(
        math.isfinite(seconds) and seconds >= 0 for seconds in (size, total_s, *(time_s for _, time_s in steps))
    )
    return {"size": size, "total_s": total_s, "steps": steps} if is_sound else None


def _remember(command: str, record: dict[str, Any]) -> None:
    """A cache that cannot be written tells no rest the next time, and that is all."""
    with contextlib.suppress(OSError, BuildError):
        safe_cache_dir()
        write_whole(_path(), json.dumps({**_stored_records(), command: record}).encode())
