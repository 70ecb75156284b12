"""CPU time of a fabric's processes, and their waiting for a CPU.

    watch = CpuWatch(fabric.thread_seconds, fabric.processors); watch.start(); ...; notes += watch.notes()

Per thread, from /proc: an agent and the switches' forwarding have one each that does the work. A thread that has no
time to spare (`stat`) makes a live run measure that process, not the network. One that was ready to run and had to wait
for a CPU (`schedstat`) makes it measure the machine: packets and timers were late for no reason of the network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from mrc_testbed.ipc.procfs import TICK_S, ThreadSeconds

BUSY_SHARE = 0.85
"""Share of a CPU above which a thread counts as saturated; the rest goes into waiting for its CPU."""
WAIT_SHARE = 0.1
"""Share of the time above which a thread's waiting for a CPU is noted.

Rules about rates allow a few percent. For scale: `mrc demo` on two cores with eight processes ready to run (load 8):
h0 0.21, the receiver and the switches 0.14 each."""


class CpuWatch:
    """CPU use of a fabric's processes since `start`.

    `read`: returns the CPU and waiting times of threads so far, by process name; `cpus`: number of CPUs of the machine.
    """

    def __init__(self, read: Callable[[], Mapping[str, ThreadSeconds]], cpus: int) -> None:
        self._read, self._cpus = read, cpus
        self._start_time = time.monotonic()
        self._baseline: Mapping[str, ThreadSeconds] = {}

    def start(self) -> None:
        """Take the baseline, when the work begins."""
        self._start_time = time.monotonic()
        self._baseline = self._read()

    def _thread_shares(self) -> dict[str, list[tuple[float, float]]]:
        """Return (on a CPU, waiting for a CPU) of each thread since `start`, in CPUs, by process."""
        elapsed_s = max(time.monotonic() - self._start_time, TICK_S)
        out: dict[str, list[tuple[float, float]]] = {}
        for name, threads in self._read().items():
            baseline = self._baseline.get(name, {})
            shares = out[name] = []
            for thread, (used_s, waited_s) in threads.items():
                used_before, waited_before = baseline.get(thread, (0.0, 0.0))
                shares.append(((used_s - used_before) / elapsed_s, (waited_s - waited_before) / elapsed_s))
        return out

    def shares(self) -> dict[str, float]:
        """Return the share of a CPU that each process's busiest thread has had since `start`."""
        return {
            name: max((share for share, _ in threads), default=0.0) for name, threads in self._thread_shares().items()
        }

    def waits(self) -> dict[str, float]:
        """Return each process's longest wait for a CPU, as a share of the time since `start`.

        The thread that waited longest counts: it was ready to run and had no CPU.
        """
        return {
            name: max((share for _, share in threads), default=0.0) for name, threads in self._thread_shares().items()
        }

    def cpus_used(self) -> float:
        """Return the CPUs that all processes together have had since `start`."""
        return sum(share for threads in self._thread_shares().values() for share, _ in threads)

    def notes(self) -> list[str]:
        """Return a line about saturated processes, and one about processes that waited for a CPU."""
        out = []
        if busy_threads := _list_shares(self.shares(), BUSY_SHARE):
            out.append(
                f"busy nearly all of the time: {busy_threads}: rates are what these can do, not what the network allows"
            )
        if waiting_threads := _list_shares(self.waits(), WAIT_SHARE):
            out.append(
                f"ready to run and without a CPU: {waiting_threads} of the time: other work keeps the machine busy; "
                "packets and timers were late, times are not the network's"
            )
        return out

    def report(self) -> dict[str, Any]:
        """Return CPU demand and supply for a report.

        Keys: `cpus` of the machine, CPUs `used`, `waited` by process (see `waits`), `notes`, and `needed` in words.
        """
        cpus_used, waits = self.cpus_used(), self.waits()
        process = max(waits, key=waits.__getitem__, default="")
        summary = f"the fabric took {cpus_used:.1f} of {self._cpus} CPUs"
        if process:
            summary += f"; {process} waited for one {100 * waits[process]:.0f} % of the time, the others less"
        return {
            "cpus": self._cpus,
            "used": round(cpus_used, 3),
            "waited": {name: round(share, 3) for name, share in waits.items()},
            "needed": summary,
            "notes": self.notes(),
        }


def _list_shares(shares: Mapping[str, float], threshold: float) -> str:
    """Return the shares of at least `threshold` as text (`h0 93 %, switches 86 %`); empty without any."""
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in sorted(shares.items()) if share >= threshold)
