"""The processes of a fabric while it runs: unasked deaths are reported, and cured where possible.

One thread looks on, woken by the kernel (pidfds), and tells a death at once; one on another machine as soon as that has
told us (topologies/lab/cluster/remote_machine.py). Another carries out cures, one after the
other: a cure takes as long as the part takes to start, and the next death is told meanwhile.

A part that dies while it is started again stays dead, and so does one that died RELAPSES_MAX times in a row soon after
it was back: whatever kills it would kill it again.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mrc_testbed.ipc.processes import FabricProcess, Processes
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.ipc.rundir import FabricError, HostOffError

LOOK_S = 0.25
"""Seconds for which a process that was just started may not be watched yet."""
LOG_LINES = 3
"""Last lines of its log that are told of a part."""
RELAPSE_S = 2.0
"""A part that dies so soon after it was back has relapsed, seconds."""
RELAPSES_MAX = 3
SOON_S = 2.0
"""Limit in seconds for a death to be seen after an error that it caused.

A process closes its sockets a little before it counts as dead, and one of another machine is reported by its next beat.
"""


@dataclass(slots=True, eq=False)
class DeadPart:
    """A process of the fabric that ended and was not asked to."""

    name: str
    pid: int
    cause: str
    """`h2 (pid 12 on machine b) was killed by SIGKILL`."""
    end_text: str
    """`was killed by SIGKILL`, `exited with code 1`."""
    died_at: float
    """Time at which the death was seen, CLOCK_MONOTONIC seconds."""
    log: str
    """File of its log."""
    last_lines: str
    loses: str
    """Description of what no longer works, and for whom."""
    cure: str
    """Description of what is done about it, or what the user can do."""
    is_back: bool = False
    """Whether the part was started again and answers."""

    def __str__(self) -> str:
        return f"{self.cause}: {self.loses}; {self.cure}; end of its log {self.log}:\n{self.last_lines}"

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "pid": self.pid,
            "how": self.end_text,
            "at": self.died_at,
            "loses": self.loses,
            "log": self.last_lines,
            "is_back": self.is_back,
        }


class PartWatch:
    """Use `start` once all parts are ready, and `close` before they are ended.

    loses    what no longer works without a part, by its name
    restart  starts a part again and returns when it answers; None: nothing is started again
    tell     is told each death and each cure, from the threads here
    mourn    is called with each death before it is told
    """

    def __init__(
        self,
        processes: Processes,
        loses: Callable[[str], str],
        restart: Callable[[str], None],
        report: Callable[[str], None],
        mourn: Callable[[DeadPart], None] = lambda _part: None,
    ) -> None:
        self._processes, self._loses, self._restart = processes, loses, restart
        self._report, self._mourn = report, mourn
        self.cures = False
        """Whether parts are started again; else deaths are only reported."""
        self.deaths: list[DeadPart] = []
        """All deaths, oldest first."""
        self._last_pids: dict[str, int] = {}
        """Pid of the last death by name."""
        self._back_at: dict[str, float] = {}
        self._relapses: dict[str, int] = {}
        self._starting: str | None = None
        """The part that is being started again."""
        self._lock = threading.Lock()
        self._closed_event = threading.Event()
        self._waiting: queue.SimpleQueue[DeadPart | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to look on."""
        for name, job in (("parts", self._look_on), ("cures", self._cure_all)):
            thread = threading.Thread(target=job, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """End both threads, waiting for a cure under way no longer than it takes to notice. Idempotent."""
        self._closed_event.set()
        self._waiting.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(LOOK_S * 4)

    @property
    def closing(self) -> bool:
        """The fabric is being removed."""
        return self._closed_event.is_set()

    def check_open(self) -> None:
        """Raises FabricError once the fabric is being removed: a cure under way ends."""
        if self.closing:
            raise FabricError("the fabric is being removed")

    @property
    def dead_parts(self) -> list[DeadPart]:
        """Parts that are dead now: the last death of each that is not back."""
        last = {part.name: part for part in self.deaths}
        return [part for part in last.values() if not part.is_back]

    def poll_deaths(self) -> list[DeadPart]:
        """Take note of the deaths since the last look; those that are new. From any thread."""
        with self._lock:
            news = [self._note(part) for part in self._processes.parts if self._is_news(part)]
        for part in news:
            self._mourn(part)
            self._report(str(part))
            if self.cures and part.cure == BEING_STARTED:
                self._waiting.put(part)
        return news

    def dismiss(self, name: str) -> None:
        """Count the deaths of a part as over: it was switched off, or begins anew with its host."""
        for part in self.deaths:
            if part.name == name:
                part.is_back = True

    def first_cause(self, wait_s: float = SOON_S) -> DeadPart | None:
        """Return the first part that has died, waiting for it: an error may precede the death behind it."""
        deadline = time.monotonic() + wait_s
        while not self.deaths and time.monotonic() < deadline and not self._closed_event.is_set():
            self.poll_deaths()
            time.sleep(0.01)
        return self.deaths[0] if self.deaths else None

    def _is_news(self, part: FabricProcess) -> bool:
        return part.has_died and self._last_pids.get(part.name) != part.pid and not self._closed_event.is_set()

    def _note(self, part: FabricProcess) -> DeadPart:
        now = time.monotonic()
        self._last_pids[part.name] = part.pid
        death = DeadPart(
            part.name,
            part.pid,
            part.cause,
            part.how_it_ended(),
            now,
            str(part.log),
            part.tail(LOG_LINES),
            self._loses(part.name),
            self._cure_of(part.name, now),
        )
        self.deaths.append(death)
        return death

    def _cure_of(self, name: str, now: float) -> str:
        if not self.cures:
            return STAYS_DEAD
        if name == self._starting:
            return f"it died while it was started again, and stays dead: {BEGIN_AGAIN}"
        back_at = self._back_at.pop(name, None)
        relapsed = back_at is not None and now - back_at < RELAPSE_S
        self._relapses[name] = self._relapses.get(name, 0) + 1 if relapsed else 0
        if self._relapses[name] >= RELAPSES_MAX:
            return f"it died {RELAPSES_MAX} times soon after its start and is not started again: {BEGIN_AGAIN}"
        return BEING_STARTED

    # ---- threads ----------------------------------------------------------------------------------------

    def _look_on(self) -> None:
        pidfds: dict[int, int] = {}
        """pidfd by pid."""
        try:
            while not self._closed_event.is_set():
                pids = {child.pid for child in self._processes if child.alive}
                for pid in [pid for pid in pidfds if pid not in pids]:
                    os.close(pidfds.pop(pid))
                for pid in pids - pidfds.keys():
                    with contextlib.suppress(ProcessLookupError):
                        pidfds[pid] = os.pidfd_open(pid)
                self.poll_deaths()
                poll = select.poll()
                for fd in pidfds.values():
                    poll.register(fd, select.POLLIN)
                poll.poll(LOOK_S * 1000)
        finally:
            for fd in pidfds.values():
                os.close(fd)

    def _cure_all(self) -> None:
        while (part := self._waiting.get()) is not None and not self._closed_event.is_set():
            self._starting = part.name
            try:
                self._restart(part.name)
            except HostOffError:  # its host was switched off meanwhile, and starts it when it is on
                continue
            except (FabricError, JsonlError) as error:
                # The watching thread may not have seen the new process die: noted later, it would be started again.
                self.poll_deaths()
                if not self._closed_event.is_set():
                    part.cure = f"it could not be started again: {BEGIN_AGAIN}"
                    self._report(f"{part.name} could not be started again: {error}\n{BEGIN_AGAIN}")
                continue
            finally:
                self._starting = None
            self._back_at[part.name] = time.monotonic()
            part.is_back = True
            successor = self._processes[part.name]
            self._report(
                f"{part.name} runs again (pid {successor.pid}{successor.machine_note}), "
                f"{time.monotonic() - part.died_at:.1f} s after it died"
            )


BEING_STARTED = "it is being started again"
STAYS_DEAD = "what runs on this fabric ends"
BEGIN_AGAIN = "end this fabric (`exit`) and begin another one; `mrc doctor` tells what the machine lacks"
