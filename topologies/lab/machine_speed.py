"""Machine's speed, and the scale of a live fabric that it carries.

    speed = measure()
    speed.slowdown                    # 1 on most machines: the usual rates and delays
    f"{speed}"                        # `0.1 CPUs, each 2.1 times slower than the reference`

Design note. Under emulation, or with a small share of a CPU, everything works and takes longer, as long as less is
offered: links whose rates are divided by the slowdown, and whose delays are multiplied by it, hold as many packets as
the usual ones (mrc-protocol §11.4 does the same with the paper's). The measure is CPU time, not wall time: other work
may be over soon, and the scheduler serves those first who sleep much, as the parts of a fabric do. A limit of the
CPU (cgroups) stays; it is read.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

PROBE_STEPS = 64
"""Steps of Python per packet of the probe, about as many as an agent's turn has."""
PROBE_BYTES = 1024
PROBE_S = 0.01
"""CPU time of one measurement, seconds."""
REFERENCE_S = 20e-6
"""CPU time of one packet of the probe on the machine of the docs' figures, seconds."""
NEEDED_CPUS = 1.5
"""CPUs of the reference that carry the usual rates at a load of a third.

There `mrc demo` takes 0.4, of which 0.1 is for probes.
"""
USUAL_FROM_CPUS = 0.5
"""Least CPUs of the reference for the usual rates, which take all of them."""
SLOWDOWNS = (2, 5, 10, 20, 50, 100)
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MachineCapacity:
    """Measured capacity. `cpus`: CPUs that this process may use, a part of one under a limit."""

    cpus: float
    packet_s: float
    """CPU time of one packet of the probe, seconds."""

    @property
    def reference_cpus(self) -> float:
        """CPUs of the reference machine that are as fast together."""
        return self.cpus * REFERENCE_S / self.packet_s

    @property
    def slowdown(self) -> int:
        """Divisor of the usual rates, and factor of the usual delays and intervals; 1: the usual ones."""
        if self.reference_cpus >= USUAL_FROM_CPUS:
            return 1
        ratio = NEEDED_CPUS / self.reference_cpus
        return next((step for step in SLOWDOWNS if step >= ratio), SLOWDOWNS[-1])

    def __str__(self) -> str:
        times = self.packet_s / REFERENCE_S
        cpus = f"{self.cpus:.2g} CPU{'' if self.cpus == 1 else 's'}"
        return cpus if times < 1.5 else f"{cpus}, each {times:.2g} times slower than the reference"

    def note(self, choice: str, options: str) -> str:
        """Return the line about a choice that `slowdown` made; `options` make another one."""
        return f"slow machine ({self}): {choice}, at 1:{self.slowdown} of the usual ({options}: other values)"


REFERENCE = MachineCapacity(2.0, REFERENCE_S)
"""Machine of the docs' figures."""


def measure(probe_s: float = PROBE_S) -> MachineCapacity:
    """Measure this machine; takes two times `probe_s` of CPU time, of which the better half counts."""
    return MachineCapacity(allowed_cpus(), min(_packet_s(probe_s), _packet_s(probe_s)))


def _packet_s(probe_s: float) -> float:
    """Return the CPU time of a packet that crosses a socket and some Python, seconds."""
    table: dict[int, int] = {}
    count = state = 0
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with near, far:
        start_s = time.thread_time()
        while (elapsed_s := time.thread_time() - start_s) < probe_s:
            near.send(bytes(PROBE_BYTES))
            state += far.recv(PROBE_BYTES)[0]
            for step in range(PROBE_STEPS):
                state = (31 * state + step) & 0xFFFFFFFF
                table[step] = state
            count += 1
    return elapsed_s / max(count, 1)


def allowed_cpus(groups: Path = CGROUPS, own_groups: Path = Path("/proc/self/cgroup")) -> float:
    """Return the CPUs that this process may use: those of its affinity, or the part that cgroups leave it."""
    limits = [float(len(os.sched_getaffinity(0)))]
    try:
        lines = own_groups.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if not controllers:  # version 2, alone or beside version 1
            limits += _quotas([groups, groups / "unified"], name)
        elif "cpu" in controllers.split(","):
            limits += _quotas([groups / "cpu", groups / controllers], name)
    return min(limits)


def _quotas(roots: list[Path], name: str) -> list[float]:
    """Return the limits of a group and of all above it; a container may not see its own by its name."""
    group = Path(name.lstrip("/"))
    folders = [root / parent for root in roots for parent in (group, *group.parents)]
    return [quota for folder in folders if (quota := _quota(folder)) is not None]


def _quota(group: Path) -> float | None:
    """Return the CPUs that a cgroup may use; None: no limit, or none to be read."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((group / name).read_text() for name in names).split()
            if quota != "max" and float(quota) > 0 and float(period) > 0:
                return float(quota) / float(period)
        except (OSError, ValueError):
            continue
    return None
