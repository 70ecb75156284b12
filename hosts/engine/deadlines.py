"""Times at which something is due, in seconds of the engine's clock."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

NEVER: Final = inf
"""Time of what is not due at all: a plain float, since deadlines are compared after every packet."""
COMPACT_FROM: Final = 64
"""Entries of a queue below which it is never looked through."""


class TimedItem:
    """Item of a Deadlines queue."""

    __slots__ = ("due_at", "queued_at")

    def __init__(self) -> None:
        self.due_at = NEVER
        self.queued_at = NEVER
        """Time of the item's entry in the queue, never later than due_at; NEVER: no entry."""


class Deadlines:
    """The earliest of many deadlines that change all the time, most of them to a later time.

    A deadline that moves back leaves its entry where it is; the entry moves when it comes to the head. So a change
    costs nothing, whatever the number of deadlines, and the head is exact.
    """

    __slots__ = ("_heap", "_limit", "_serial")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, TimedItem]] = []
        self._serial = 0
        self._limit = COMPACT_FROM

    def put(self, item: TimedItem, due: float) -> None:
        """Set the deadline of an item; NEVER takes it out."""
        item.due_at = due
        if due < item.queued_at:
            self._push(item, due)

    def _push(self, item: TimedItem, due: float) -> None:
        heap = self._heap
        self._serial += 1
        heappush(heap, (due, self._serial, item))
        item.queued_at = due
        if len(heap) > self._limit:
            self._compact()

    def _compact(self) -> None:
        """Free the queue of entries that no longer mean anything."""
        entries: list[tuple[float, int, TimedItem]] = []
        for entry in self._heap:
            item = entry[2]
            if entry[0] != item.queued_at:
                continue
            if item.due_at == NEVER:
                item.queued_at = NEVER
            else:
                entries.append(entry)
        self._heap[:] = entries
        heapify(self._heap)
        self._limit = max(COMPACT_FROM, 2 * len(entries))

    def first(self) -> float:
        """Return the earliest deadline; NEVER when there is none."""
        heap = self._heap
        while heap:
            entry = heap[0]
            time, item = entry[0], entry[2]
            if time == item.due_at and time == item.queued_at:
                return time
            heappop(heap)
            if time == item.queued_at:
                item.queued_at = NEVER
                if item.due_at != NEVER:
                    self._push(item, item.due_at)
        return NEVER

    def take_due(self, now: float) -> list[TimedItem]:
        """Take out what is due, earliest first; each stays out until it is put again."""
        due: list[TimedItem] = []
        while self.first() <= now:
            item = heappop(self._heap)[2]
            item.queued_at = NEVER
            due.append(item)
        return due
