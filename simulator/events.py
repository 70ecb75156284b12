"""The event queue of a virtual fabric: virtual time, and what happens when."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

Handler = Callable[[Any, float], None]
Heap = list[tuple[float, int, Handler, Any]]
"""(time, serial number, handler, argument): the handler is called as handler(argument, time)."""


class EventQueue:
    """Events in order of time; those of one instant in the order in which they were pushed."""

    __slots__ = ("heap", "next_serial", "now", "unqueued")

    def __init__(self) -> None:
        self.now = 0.0
        """Virtual time, seconds."""
        self.heap: Heap = []
        """Its entries: ports and hosts, which know their times to be right, push into it directly."""
        self.unqueued = 0
        """Events that were handled without going through the heap, since they were next in any case."""
        self.next_serial: Callable[[], int] = count().__next__

    def push(self, at: float, handler: Handler, argument: Any) -> None:
        """Call `handler(argument, at)` at a time; not before now."""
        heapq.heappush(self.heap, (max(at, self.now), self.next_serial(), handler, argument))
