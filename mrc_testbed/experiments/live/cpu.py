"""CPU time of a fabric's processes, and their waiting for a CPU.

    watch = CpuWatch(fabric.thread_seconds, fabric.processors); watch.begin(); ...; notes += watch.notes()

Per thread, from /proc: an agent and the switches' forwarding have one each that does the work. A thread that has no
time to spare (`stat`) makes a live run measure that process, not the network. One that was ready to run and had to wait
for a CPU (`schedstat`) makes it measure the machine: packets and timers were late for no reason of the network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from mrc_testbed.ipc.procfs import TICK_S, ThreadSeconds

FULL = 0.85
"""Share of a CPU from which on a thread is taken to have no time to spare: it has to wait for its CPU, too."""
WAITED = 0.1
"""Share of the time from which on a thread's waiting for a CPU is worth a note: rules about rates allow a few percent.
For scale: `mrc demo` on two cores with eight processes ready to run (load 8): h0 0.21, the receiver and the switches
0.14 each."""


class CpuWatch:
    """`read`: processes by the name that notes give them, with what their threads have had so far; `cpus`: how many
    there are for them.
    """

    def __init__(self, read: Callable[[], Mapping[str, ThreadSeconds]], cpus: int) -> None:
        self._read, self._cpus = read, cpus
        self._began = time.monotonic()
        self._before: Mapping[str, ThreadSeconds] = {}

    def begin(self) -> None:
        """The work begins."""
        self._began = time.monotonic()
        self._before = self._read()

    def _since(self) -> dict[str, list[tuple[float, float]]]:
        """Of each thread of each process: (on a CPU, waiting for one) since `begin`, in CPUs."""
        passed = max(time.monotonic() - self._began, TICK_S)
        out: dict[str, list[tuple[float, float]]] = {}
        for name, threads in self._read().items():
            before = self._before.get(name, {})
            shares = out[name] = []
            for thread, (used, waited) in threads.items():
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
        used, waits = self.used(), self.waits()
        worst = max(waits, key=waits.__getitem__, default="")
        told = f"the fabric took {used:.1f} of {self._cpus} CPUs"
        if worst:
            told += f"; {worst} waited for one {100 * waits[worst]:.0f} % of the time, the others less"
        return {
            "cpus": self._cpus,
            "used": round(used, 3),
            "waited": {name: round(share, 3) for name, share in waits.items()},
            "needed": told,
            "notes": self.notes(),
        }


def _told(shares: Mapping[str, float], least: float) -> str:
    """`h0 93 %, switches 86 %`: those of at least that share; nothing when there are none."""
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in sorted(shares.items()) if share >= least)
