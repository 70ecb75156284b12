"""The event queue of a virtual fabric: virtual time, and what happens when.

Two forms do the same: PythonEventQueue, and event_queue.c, which `mrc compile` builds beside the machine code of the
fabric. A heap of tuples costs a third of a compiled run, the more the deeper it is.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from importlib import import_module
from math import inf
from typing import Any, Protocol

from compiled import state

Handler = Callable[[Any, float], None]
Entry = tuple[float, int, Handler, Any]
"""(time, serial number, handler, argument): the handler is called as handler(argument, time)."""


class EventQueue(Protocol):
    """Events in order of time; those of one instant in the order in which they were pushed."""

    now: float
    """Virtual time, seconds."""
    done: int
    """Events handled so far."""

    def __len__(self) -> int: ...

    def add(self, at: float, handler: Handler, argument: Any, /) -> None:
        """Call `handler(argument, at)` at a time that is not before now."""

    def push(self, at: float, handler: Handler, argument: Any, /) -> None:
        """As add(), at now when the time has passed."""

    def next_at(self) -> float:
        """Time of the next event; inf when there is none."""

    def run(self, end: float, /) -> bool:
        """Handle events up to a time, until none is left or halt() was called: True then."""

    def halt(self) -> None:
        """End run() after the event being handled."""

    def take(self, wanted: Callable[[Handler, Any], bool], /) -> list[Any]:
        """Remove the events of which `wanted(handler, argument)` is true; returns their arguments in order."""


class PythonEventQueue:
    """A heap of tuples."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done = 0
        self._heap: list[Entry] = []
        self._serial = 0
        self._halted = False

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at: float, handler: Handler, argument: Any) -> None:
        self._serial = serial = self._serial + 1
        heapq.heappush(self._heap, (at, serial, handler, argument))

    def push(self, at: float, handler: Handler, argument: Any) -> None:
        self.add(max(at, self.now), handler, argument)

    def next_at(self) -> float:
        return self._heap[0][0] if self._heap else inf

    def run(self, end: float) -> bool:
        heap, pop = self._heap, heapq.heappop
        self._halted = False
        while heap and heap[0][0] <= end:
            now, _, handler, argument = pop(heap)
            self.now = now
            self.done += 1
            handler(argument, now)
            if self._halted:
                return True
        return False

    def halt(self) -> None:
        self._halted = True

    def take(self, wanted: Callable[[Handler, Any], bool]) -> list[Any]:
        found = [entry for entry in self._heap if wanted(entry[2], entry[3])]
        gone = {entry[1] for entry in found}
        self._heap[:] = [entry for entry in self._heap if entry[1] not in gone]
        heapq.heapify(self._heap)
        return [entry[3] for entry in sorted(found, key=lambda entry: entry[:2])]


def event_queue() -> EventQueue:
    """An empty queue at time 0: of machine code where the fabric is."""
    if state().active:
        made: EventQueue = import_module("simulator.event_queue").EventQueue()
        return made
    return PythonEventQueue()
