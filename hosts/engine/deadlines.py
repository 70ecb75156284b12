"""Times at which something is due, in seconds of the engine's clock."""

from __future__ import annotations

from math import inf
from typing import Final

NEVER: Final = inf
"""Time of what is not due at all: a plain float, since deadlines are compared after every packet."""
_NOT_QUEUED: Final = -1


class TimedItem:
    """Item of a Deadlines queue."""

    __slots__ = ("due_at", "heap_index", "queued_at")

    def __init__(self) -> None:
        self.due_at = NEVER
        self.queued_at = NEVER
        """Time by which the queue has the item in its order, never later than due_at; NEVER: it has not."""
        self.heap_index = _NOT_QUEUED

    def postpone(self, due: float) -> bool:
        """Set a deadline, unless it is nearer than the queue has it: False, put() is needed."""
        if due < self.queued_at:
            return False
        self.due_at = due
        return True


class Deadlines:
    """The earliest of many deadlines that change all the time, most of them to a later time.

    A deadline that moves back leaves its item where it is; the item moves when it comes to the head. So a change
    costs nothing, whatever the number of deadlines; `first` is exact, `bound` may be early. The heap holds the items
    themselves, and each knows its index: with tuples of heapq, machine code would make three objects for every packet.
    """

    __slots__ = ("_heap", "bound")

    def __init__(self) -> None:
        self._heap: list[TimedItem] = []
        """Binary heap by `queued_at`."""
        self.bound = NEVER
        """Time not after the earliest deadline, read without a search; NEVER when there is none."""

    def put(self, item: TimedItem, due: float) -> None:
        """Set the deadline of an item; NEVER takes it out."""
        item.due_at = due
        if due < item.queued_at:
            item.queued_at = due
            if due < self.bound:
                self.bound = due
            if item.heap_index == _NOT_QUEUED:
                item.heap_index = len(self._heap)
                self._heap.append(item)
            self._move_up(item)

    def first(self) -> float:
        """Return the earliest deadline; NEVER when there is none."""
        heap = self._heap
        while heap:
            item = heap[0]
            due = item.due_at
            if due == item.queued_at:
                self.bound = due
                return due
            if due == NEVER:
                self._drop_head()
            else:
                item.queued_at = due
                self._move_down(item)
        self.bound = NEVER
        return NEVER

    def bound_after(self, now: float) -> float:
        """Return the earliest deadline where `bound` has passed at `now`, else `bound`."""
        return self.bound if self.bound > now else self.first()

    def take_due(self, now: float) -> list[TimedItem]:
        """Take out what is due, earliest first; each stays out until it is put again."""
        due: list[TimedItem] = []
        while self.bound <= now and self.first() <= now:
            due.append(self._drop_head())
        return due

    def _drop_head(self) -> TimedItem:
        """Take the first item out of the heap, and return it."""
        heap = self._heap
        head, last = heap[0], heap.pop()
        head.queued_at, head.heap_index = NEVER, _NOT_QUEUED
        if last is not head:
            heap[0] = last
            last.heap_index = 0
            self._move_down(last)
        return head

    def _move_up(self, item: TimedItem) -> None:
        heap, index, time = self._heap, item.heap_index, item.queued_at
        while index:
            parent_index = index - 1 >> 1
            parent = heap[parent_index]
            if parent.queued_at <= time:
                break
            heap[index] = parent
            parent.heap_index = index
            index = parent_index
        heap[index] = item
        item.heap_index = index

    def _move_down(self, item: TimedItem) -> None:
        heap, index, time = self._heap, item.heap_index, item.queued_at
        count = len(heap)
        while (child_index := 2 * index + 1) < count:
            child = heap[child_index]
            if child_index + 1 < count and heap[child_index + 1].queued_at < child.queued_at:
                child_index += 1
                child = heap[child_index]
            if time <= child.queued_at:
                break
            heap[index] = child
            child.heap_index = index
            index = child_index
        heap[index] = item
        item.heap_index = index
