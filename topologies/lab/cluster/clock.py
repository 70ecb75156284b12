"""One clock for all machines of a cluster, by time namespaces.

CLOCK_MONOTONIC of the processes on another machine is set to the front machine's clock.

All `t` of our processes are CLOCK_MONOTONIC, so that times of different processes can be subtracted. On another
machine it counts from another boot. A time namespace (Linux 5.6) gives a process and its children an offset of its own;
with the right one, events of all machines stand in one order, as well as half a round trip of ssh tells. That is fit
for "when was the link seen down", not for one-way delays: nothing here measures those between machines.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.ipc.signals import end_with_parent

ROUNDS: Final = 8
WORTH_S: Final = 1e-3
"""A difference smaller than that is left alone: it is less than can be told."""
_CLONE_NEWTIME: Final = 0x80
_OFFSETS: Final = Path("/proc/self/timens_offsets")


def measure(read_clock: Callable[[], float]) -> tuple[float, float]:
    """Return (offset, uncertainty) of another clock, seconds: clock there + offset = our clock.

    `ask()` returns the other clock's present time.
    """
    estimate = (0.0, float("inf"))
    for _ in range(ROUNDS):
        start = time.monotonic()
        remote_time = read_clock()
        end = time.monotonic()
        if end - start < 2 * estimate[1]:
            estimate = ((start + end) / 2 - remote_time, (end - start) / 2)
    return estimate


def enter(offset_s: float) -> None:
    """Continue in a child process whose clock is `offset_s` ahead; the parent waits and ends as it ends.

    To be called while there is one thread. Raises FabricError where the kernel has no time namespaces.
    """
    if abs(offset_s) < WORTH_S:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWTIME):
        number = ctypes.get_errno()
        reason = (
            "it is older than 5.6, or built without CONFIG_TIME_NS" if number == errno.EINVAL else os.strerror(number)
        )
        raise FabricError(f"its clock is {-offset_s:.3f} s ahead, and its kernel has no time namespaces ({reason})")
    total_s = offset_s + _given_s()
    seconds = int(total_s // 1)
    _OFFSETS.write_text(f"monotonic {seconds} {int((total_s - seconds) * 1e9)}\n")
    child = os.fork()
    if child:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda signal_number, _frame: os.kill(child, signal_number))
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    end_with_parent(signal.SIGKILL)


def _given_s() -> float:
    """Return the offset, seconds, that children already get.

    The kernel counts offsets from its first clock, not from the clock of this process.
    """
    for line in _OFFSETS.read_text().splitlines():
        name, seconds, nanoseconds = line.split()
        if name == "monotonic":
            return int(seconds) + int(nanoseconds) * 1e-9
    return 0.0
