"""Patience with a part that starts or works: the wait lasts while the part advances, on any machine.

    patience = Patience()
    patience.follow("switchd", LocalWork(pid, log))
    while not ready():
        patience.look()
        if patience.is_over("switchd"): ...        # it has done nothing for QUIET_S
        patience.step("switchd")                   # it has reported a step

Design note. Wall time says nothing about a part: in a machine without hardware help an interpreter takes 20 s to
start, and one that waits for a message that never comes looks the same by the clock. A part gets on when its log
grows, when it reports a step, or when it works: it, or a process that it started, uses CPU time, or is ready to run
and waits for a CPU (starved, or held back by a limit). Every part wakes up now and then for nothing, so CPU time
makes up for no more than RESTS_PER_WORK times as much rest: one that uses less than 2 % of a CPU is given up in the
end. What works all the time and is never ready is waited for without end, and told with what it does: whoever waits
can end it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mrc_testbed.ipc import procfs
from mrc_testbed.ipc.peers import peer_of

QUIET_S = 30.0
"""A part that has not got on for so long is given up, seconds."""
LOOK_S = 0.25
"""Interval of two checks, seconds.

One check also counts as no more than this, for the case that the waiting process itself had no CPU.
"""
REST_S = 1.0
"""Time in which a part that works uses some CPU, seconds."""
LIMIT_GROWTH = 16
"""Largest growth of the limit of an answer that is asked for again."""
RESTS_PER_WORK = 50
"""Seconds of rest for which a second of CPU time makes up."""
CPU_SHARE = 0.1
"""Share of a limit: CPU time without any result after which work counts as stopped."""
RESTS_PER_READY = 20
"""Looks at rest for which a look makes up at which it was ready to run."""


class PartWork(Protocol):
    """Sources that tell whether a part gets on."""

    def cpu_seconds(self) -> float:
        """CPU time so far of the part and of all that it started; 0 when it is gone."""

    def is_ready_to_run(self) -> bool:
        """Whether a thread of it runs, waits for a CPU, or for a disk."""

    def is_stopped(self) -> bool:
        """Whether a signal stopped it."""

    def log_bytes(self) -> int:
        """Size of its log."""

    def last_line(self) -> str | None:
        """The last line of its log; None: it has none."""


@dataclass(frozen=True, slots=True)
class LocalWork:
    """The work of a process of this machine, and its log where it has one."""

    pid: int
    log: Path | None = None

    def cpu_seconds(self) -> float:
        return sum(procfs.tree_seconds(self.pid))

    def is_ready_to_run(self) -> bool:
        return procfs.is_ready_to_run(self.pid)

    def is_stopped(self) -> bool:
        return procfs.is_stopped(self.pid)

    def log_bytes(self) -> int:
        try:
            return self.log.stat().st_size if self.log is not None else 0
        except OSError:
            return 0

    def last_line(self) -> str | None:
        if self.log is None:
            return None
        try:
            lines = self.log.read_bytes()[-4096:].decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


@dataclass(slots=True)
class _PartSample:
    """Sample of a part at the last update. Times in seconds."""

    work: PartWork
    began_at: float
    began_cpu_s: float
    cpu_s: float
    log_bytes: int = 0
    quiet_s: float = 0.0


class Patience:
    """Patience with the parts that a process waits for. `quiet_s`: see QUIET_S."""

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self.quiet_s = quiet_s
        self._parts: dict[str, _PartSample] = {}
        self._updated_at = time.monotonic()

    def follow(self, name: str, work: PartWork) -> None:
        """Follow a part by its work."""
        used_s = work.cpu_seconds()
        self._parts[name] = _PartSample(work, time.monotonic(), used_s, used_s, work.log_bytes())

    def step(self, name: str) -> None:
        """Note that a part has reported a step."""
        self._parts[name].quiet_s = 0.0

    def update(self) -> None:
        """Sample the work of every part followed; without effect soon after the last update."""
        now = time.monotonic()
        elapsed_s = now - self._updated_at
        if elapsed_s < min(LOOK_S, self.quiet_s / 4):
            return
        self._updated_at = now
        for part in self._parts.values():
            self._update_part(part, elapsed_s)

    def _update_part(self, part: _PartSample, elapsed_s: float) -> None:
        cpu_s, log_bytes = part.work.cpu_seconds(), part.work.log_bytes()
        counts = min(elapsed_s, LOOK_S)
        if log_bytes != part.log_bytes:
            part.quiet_s = 0.0
        elif cpu_s > part.cpu_s:
            part.quiet_s = max(0.0, part.quiet_s + counts - RESTS_PER_WORK * (cpu_s - part.cpu_s))
        elif part.work.is_ready_to_run():
            part.quiet_s = max(0.0, part.quiet_s - RESTS_PER_READY * counts)
        else:
            part.quiet_s += counts
        part.cpu_s, part.log_bytes = cpu_s, log_bytes

    def is_over(self, names: str | Iterable[str]) -> bool:
        """Whether none of these parts has got on for too long."""
        part_names = [names] if isinstance(names, str) else list(names)
        return all(self._parts[name].quiet_s >= self.quiet_s for name in part_names)

    def used_s(self, name: str) -> float:
        """CPU time that it has used since it was followed, seconds, as of the last look."""
        part = self._parts[name]
        return part.cpu_s - part.began_cpu_s

    def doing(self, name: str) -> str:
        """`12.3 s of CPU in 41 s, last in its log: loading`."""
        part = self._parts[name]
        elapsed_s = time.monotonic() - part.began_at
        text = f"{part.work.cpu_seconds():.1f} s of CPU in {elapsed_s:.0f} s"
        last = part.work.last_line()
        return text + (f", last in its log: {last}" if last else "" if last is None else ", its log is empty")


class Standstill:
    """Judgement whether the common work of some parts has stopped although they had the CPU.

    It has when nothing moved for `quiet_s` seconds in which every part was at rest, or one used CPU_SHARE of that
    time without result. Parts that wait for a CPU are given the time that they need.
    """

    def __init__(self, quiet_s: float, works: Mapping[str, PartWork]) -> None:
        self.quiet_s = quiet_s
        self._works = works
        self._progress: object = None
        self._progress_at = time.monotonic()
        self._patience: Patience | None = None

    def is_over(self, progress: object) -> bool:
        """Whether it has stopped; `progress` is any value that changes with each progress."""
        now = time.monotonic()
        if progress != self._progress:
            self._progress, self._progress_at, self._patience = progress, now, None
        if self._patience is None:
            if now - self._progress_at < LOOK_S:  # progress soon after progress needs no look at the parts
                return False
            self._patience = Patience(self.quiet_s)
            for name, work in self._works.items():
                self._patience.follow(name, work)
        self._patience.update()
        if now - self._progress_at < self.quiet_s:
            return False
        used_s = max((self._patience.used_s(name) for name in self._works), default=self.quiet_s)
        return self._patience.is_over(self._works) or used_s >= CPU_SHARE * self.quiet_s


def peer_pid(connected: socket.socket) -> int:
    """Return the process at the other end of a Unix socket; 0 when it is this one, or unknown."""
    pid = peer_of(connected).pid
    return 0 if pid == os.getpid() else pid


def peer_gets_on(connected: socket.socket) -> bool:
    """Whether the process at the other end of a Unix socket works."""
    pid = peer_pid(connected)
    return pid > 0 and gets_on(LocalWork(pid))


def gets_on(*works: PartWork, quiet_s: float = REST_S) -> bool:
    """Whether one of these parts works: looks at them until it does, `quiet_s` at most."""
    start_cpu_s, deadline = [work.cpu_seconds() for work in works], time.monotonic() + quiet_s
    while time.monotonic() < deadline:
        time.sleep(min(LOOK_S, quiet_s / 4))
        if any(has_worked(work, used_s, quiet_s) for work, used_s in zip(works, start_cpu_s, strict=True)):
            return True
    return False


def serves(server: PartWork, *peers: PartWork) -> bool:
    """Whether a server, or a peer that it asks, gets on; a server that is stopped never answers."""
    return not server.is_stopped() and gets_on(server, *peers)


def has_worked(work: PartWork, start_cpu_s: float, quiet_s: float = REST_S) -> bool:
    """Whether a part, whose CPU time was `start_cpu_s` at most `quiet_s` ago, works."""
    return work.cpu_seconds() - start_cpu_s >= quiet_s / RESTS_PER_WORK or work.is_ready_to_run()


class AnswerLimit:
    """Limit of an answer that is asked for again and again: on a slow machine none may come sooner.

    After an answer that did not come in time the next one has twice the time, up to `limit_max_s`.
    """

    def __init__(self, limit_s: float, limit_max_s: float | None = None) -> None:
        self.limit_s = limit_s
        self._limit_max_s = LIMIT_GROWTH * limit_s if limit_max_s is None else limit_max_s

    def miss(self) -> None:
        """Note that an answer did not come in time."""
        self.limit_s = min(2 * self.limit_s, self._limit_max_s)
