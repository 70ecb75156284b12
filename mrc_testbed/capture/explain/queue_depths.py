"""Depths of the data queues that captured packets have left, read from the switch daemon.

They are read during the capture.

The frame does not say how full its queue was, so the daemon is asked every few milliseconds, and a comment says how old
the answer is. BMv2 has no such door: then nothing is said.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Collection
from pathlib import Path

from mrc_testbed.ipc.rpc import JsonlClient, JsonlError

EVERY_S = 0.01
"""Seconds between two questions; a depth changes by 12.5 kB in that time at 10 Mb/s."""
FRESH_S = 0.01
"""Age from which an answer is no longer used, seconds.

Beside a mark, an old depth would seem to contradict it.
"""
ANSWERS_KEPT = 256
"""Answers that are kept: a packet is looked at some answers after it passed."""


class QueueDepths:
    """Data queues of some switch ports, by interface."""

    def __init__(self, control: Path, interfaces: Collection[str]) -> None:
        self._client = JsonlClient(control, name="switchd") if control.exists() and interfaces else None
        self._interfaces = sorted(interfaces)
        self._answers: deque[tuple[int, dict[str, int | None]]] = deque(maxlen=ANSWERS_KEPT)
        """(CLOCK_REALTIME nanoseconds, bytes by interface), oldest first."""
        self._next_s = 0.0

    @property
    def open(self) -> bool:
        """Whether the daemon answers."""
        return self._client is not None

    def request(self) -> None:
        """Read all depths, if it is time. A daemon that has gone is asked no more."""
        now = time.monotonic()
        if self._client is None or now < self._next_s:
            return
        self._next_s = now + EVERY_S
        try:
            depths = self._client.request("counts", depths=self._interfaces)["depths"]
        except JsonlError:
            self.close()
            return
        self._answers.append((time.time_ns(), depths))

    def text(self, interface: str, at_ns: int) -> str:
        """`queue of p1-t0-0-eth3: 5120 bytes, 3.1 ms before`: the last answer before that time.

        Empty without one that is fresh.
        """
        index = bisect_right(self._answers, at_ns, key=lambda answer: answer[0]) - 1
        if index < 0:
            return ""
        then_ns, depths = self._answers[index]
        depth = depths.get(interface)
        if depth is None or at_ns - then_ns > FRESH_S * 1e9:
            return ""
        return f"queue of {interface}: {depth} bytes, {(at_ns - then_ns) / 1e6:.1f} ms before"

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None
