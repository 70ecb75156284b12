"""Which process of the fabric had no time left: then a live run measures that process, not the network.

    watch = CpuWatch({"h0": pid, ...}); watch.begin(); ...; notes += watch.notes()

Per thread, from /proc: an agent and the switches' forwarding have one each that does the work.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

FULL = 0.85
"""Share of a CPU from which on a thread is taken to have no time to spare: it has to wait for its CPU, too."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class CpuWatch:
    """`pids`: processes by the name that notes give them."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._began = time.monotonic()
        self._before: dict[str, dict[str, float]] = {}

    def begin(self) -> None:
        """The work begins."""
        self._began = time.monotonic()
        self._before = {name: thread_seconds(pid) for name, pid in self._pids.items()}

    def shares(self) -> dict[str, float]:
        """Of each process: the share of a CPU that its busiest thread has had since `begin`."""
        passed = max(time.monotonic() - self._began, _TICK_S)
        out = {}
        for name, pid in self._pids.items():
            before = self._before.get(name, {})
            used = [spent - before.get(thread, 0.0) for thread, spent in thread_seconds(pid).items()]
            out[name] = max(used, default=0.0) / passed
        return out

    def notes(self) -> Iterator[str]:
        """A line for all that had no time to spare."""
        full = {name: share for name, share in self.shares().items() if share >= FULL}
        if full:
            told = ", ".join(f"{name} {100 * share:.0f} %" for name, share in sorted(full.items()))
            yield f"busy nearly all of the time: {told}: rates are what these can do, not what the network allows"


def thread_seconds(pid: int) -> dict[str, float]:
    """CPU seconds of every thread of a process so far; none when it has gone."""
    out = {}
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            out[task.name] = (int(fields[11]) + int(fields[12])) * _TICK_S
    except (OSError, ValueError, IndexError):
        pass
    return out
