"""CPU time of a fabric's processes, and their waiting for a CPU.

    watch = CpuWatch({"h0": pid, ...}); watch.begin(); ...; notes += watch.notes()

Per thread, from /proc: an agent and the switches' forwarding have one each that does the work. A thread that has no
time to spare (`stat`) makes a live run measure that process, not the network. One that was ready to run and had to wait
for a CPU (`schedstat`) makes it measure the machine: packets and timers were late for no reason of the network.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FULL = 0.85
"""Share of a CPU from which on a thread is taken to have no time to spare: it has to wait for its CPU, too."""
WAITED = 0.1
"""Share of the time from which on a thread's waiting for a CPU is worth a note: rules about rates allow a few percent.
For scale: `mrc demo` on two cores with eight processes ready to run (load 8): h0 0.21, the receiver and the switches
0.14 each."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")

Seconds = dict[str, dict[str, tuple[float, float]]]
"""By process and thread: CPU time so far, and time ready to run without a CPU."""


class CpuWatch:
    """`pids`: processes by the name that notes give them."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._began = time.monotonic()
        self._before: Seconds = {}

    def begin(self) -> None:
        """The work begins."""
        self._began = time.monotonic()
        self._before = {name: thread_seconds(pid) for name, pid in self._pids.items()}

    def _since(self) -> dict[str, list[tuple[float, float]]]:
        """Of each thread of each process: (on a CPU, waiting for one) since `begin`, in CPUs."""
        passed = max(time.monotonic() - self._began, _TICK_S)
        out: dict[str, list[tuple[float, float]]] = {}
        for name, pid in self._pids.items():
            before = self._before.get(name, {})
            shares = out[name] = []
            for thread, (used, waited) in thread_seconds(pid).items():
                used_then, waited_then = before.get(thread, (0.0, 0.0))
                shares.append(((used - used_then) / passed, (waited - waited_then) / passed))
        return out

    def shares(self) -> dict[str, float]:
        """Of each process: the share of a CPU that its busiest thread has had since `begin`."""
        return {name: max((used for used, _ in threads), default=0.0) for name, threads in self._since().items()}

    def waits(self) -> dict[str, float]:
        """Of each process: the share of the time since `begin` that one of its threads, the worst, had no CPU and could
        have used one.
        """
        return {name: max((waited for _, waited in threads), default=0.0) for name, threads in self._since().items()}

    def used(self) -> float:
        """CPUs that all processes together have had since `begin`."""
        return sum(used for threads in self._since().values() for used, _ in threads)

    def notes(self) -> list[str]:
        """A line about all that had no time to spare, and one about all that had to wait."""
        out = []
        if full := _told(self.shares(), FULL):
            out.append(f"busy nearly all of the time: {full}: rates are what these can do, not what the network allows")
        if late := _told(self.waits(), WAITED):
            out.append(
                f"ready to run and without a CPU: {late} of the time: other work keeps the machine busy; packets and "
                "timers were late, times are not the network's"
            )
        return out

    def report(self) -> dict[str, Any]:
        """CPU demand and supply for a report: `cpus` of the machine, `used` of them, `waited` by
        process (`waits`), `notes`, and `needed` in words.
        """
        cpus, used, waits = len(os.sched_getaffinity(0)), self.used(), self.waits()
        worst = max(waits, key=waits.__getitem__, default="")
        told = f"the fabric took {used:.1f} of {cpus} CPUs"
        if worst:
            told += f"; {worst} waited for one {100 * waits[worst]:.0f} % of the time, the others less"
        return {
            "cpus": cpus, "used": round(used, 3), "waited": {name: round(share, 3) for name, share in waits.items()},
            "needed": told, "notes": self.notes(),
        }  # fmt: skip


def _told(shares: Mapping[str, float], least: float) -> str:
    """`h0 93 %, switches 86 %`: those of at least that share; nothing when there are none."""
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in sorted(shares.items()) if share >= least)


def thread_seconds(pid: int) -> dict[str, tuple[float, float]]:
    """Of every thread of a process: CPU seconds so far, and seconds for which it waited for a CPU (0 where the kernel
    does not count them); none when the process has gone.
    """
    out = {}
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            try:
                waited = int((task / "schedstat").read_text().split()[1]) / 1e9
            except FileNotFoundError:
                waited = 0.0
            out[task.name] = ((int(fields[11]) + int(fields[12])) * _TICK_S, waited)
    except (OSError, ValueError, IndexError):
        pass
    return out
