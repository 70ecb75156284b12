"""The event queues of a virtual fabric: virtual time, and what happens when.

Each has two forms that do the same: a class here, and one in event_queue.c, which `mrc compile` builds beside the
machine code of the fabric. A heap of tuples costs a third of a compiled run, the more the deeper it is.

Orders of the same events, by how far a node may run ahead of others:

    0   the exact order of time, whatever they belong to: for traces, and for whoever looks between any two events
    1   the order of time at each place (a node). What one place does reaches another no sooner than the shortest link's
        delay, so each runs alone up to that far ahead of the first event of all: a stretch. Its objects are then in the
        CPU's caches, which is what a fabric of hundreds of hosts is slow for. The rule is that of conservative parallel
        simulation (K. M. Chandy, J. Misra, 1979); here there is one thread.
    2   the same with stretches of up to two delays: places have two sides, and those of one reach only those of the
        other (hosts and T1s; T0s). Each side in turn runs to one delay beyond the other's first event.

Events of no place (faults, samples) come between stretches, at their exact time, with all places up to there and none
beyond.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from importlib import import_module
from math import inf, nextafter
from typing import Any, Protocol

from mrc_testbed.native_build import state

Handler = Callable[[Any, float], None]
Entry = tuple[float, int, Handler, Any]
"""(time, serial number, handler, argument): the handler is called as handler(argument, time)."""


class EventPlace(Protocol):
    """Events of one place, in order of time; those of one instant in the order in which they were pushed."""

    def __call__(self, at: float, handler: Handler, argument: Any, /) -> None:
        """Call `handler(argument, at)` at a time that is not before now."""

    def push(self, at: float, handler: Handler, argument: Any, /) -> None:
        """Add an event, at now when its time has passed."""

    def next_at(self) -> float:
        """Time of the next event here; inf when there is none."""

    def keep_near(self, objects: Sequence[object], parts: bool, /) -> None:
        """Make the CPU fetch objects that the place's handlers read, at the place's turn.

        `parts`: fetch also what note_part() named, of the arguments of the coming events and of those parts.

        `parts`: and what note_part() named, of the arguments of the events that come, and of those parts.
        """

    def count_if_alone(self, now: float, /) -> bool:
        """Return whether no other event happens here at `now`; True counts an event.

        The caller then does at once what would be an event.
        """


class EventQueue(EventPlace, Protocol):
    """All events, and those that belong to no place."""

    now: float
    """Virtual time, seconds."""
    done: int
    """Events handled so far."""

    def __len__(self) -> int: ...

    def run(self, end: float, /) -> bool:
        """Handle events up to a time, until none is left or halt() was called: True then."""

    def halt(self) -> None:
        """End run() after the event being handled, or its stretch."""

    def place(self, upper: bool, /) -> EventPlace:
        """A place for events of its own, where the order knows places, on either side; else the queue itself."""

    def note_delay(self, delay_s: float, /) -> None:
        """Note that what happens at one place reaches another after that time, at the earliest."""

    def note_part(self, example: object, name: str, /) -> bool:
        """Note that handlers look at what objects of that type have by a name; see EventPlace.keep_near.

        Whether it will be fetched: in machine code, and where the example has a value of its own by that name.
        """

    def take(self, wanted: Callable[[Handler, Any], bool], /) -> list[Any]:
        """Remove the events of which `wanted(handler, argument)` is true; returns their arguments in order."""


class PythonEventQueue:
    """The exact order: a heap of tuples."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done = 0
        self._heap: list[Entry] = []
        self._serial = 0
        self._halted = False

    def __len__(self) -> int:
        return len(self._heap)

    def __call__(self, at: float, handler: Handler, argument: Any) -> None:
        self._serial = serial = self._serial + 1
        heapq.heappush(self._heap, (at, serial, handler, argument))

    def push(self, at: float, handler: Handler, argument: Any) -> None:
        self(max(at, self.now), handler, argument)

    def next_at(self) -> float:
        return self._heap[0][0] if self._heap else inf

    def keep_near(self, _objects: Sequence[object], _parts: bool) -> None:
        pass

    def count_if_alone(self, now: float) -> bool:
        alone = not self._heap or self._heap[0][0] > now
        self.done += alone
        return alone

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

    def place(self, _upper: bool) -> PythonEventQueue:
        return self

    def note_part(self, _example: object, _name: str) -> bool:
        return False

    def note_delay(self, delay_s: float) -> None:
        pass

    def take(self, wanted: Callable[[Handler, Any], bool]) -> list[Any]:
        return [entry[3] for entry in _taken(self._heap, wanted)]


class PythonPlace:
    """Events of one place of a PythonLookaheadQueue."""

    def __init__(self, queue: PythonLookaheadQueue, number: int, side: int) -> None:
        self._queue, self.number, self.side = queue, number, side
        self.heap: list[Entry] = []
        self._serial = 0
        self.now = 0.0
        """Time of the last event here."""
        self.listed = inf
        """Earliest time of the place among the turns; inf: not listed."""

    def __call__(self, at: float, handler: Handler, argument: Any) -> None:
        if at < self.now:
            raise RuntimeError("an event in the past of its place: the queue looks further ahead than it may")
        self._serial = serial = self._serial + 1
        heapq.heappush(self.heap, (at, serial, handler, argument))
        if at < self.listed and self is not self._queue.running:
            self._queue.list_turn(self)

    def push(self, at: float, handler: Handler, argument: Any) -> None:
        self(max(at, self._queue.now), handler, argument)

    def next_at(self) -> float:
        return self.heap[0][0] if self.heap else inf

    def keep_near(self, _objects: Sequence[object], _parts: bool) -> None:
        pass

    def count_if_alone(self, now: float) -> bool:
        alone = not self.heap or self.heap[0][0] > now
        self._queue.done += alone
        return alone


class PythonLookaheadQueue:
    """The order with lookahead; `sided`: of two delays."""

    def __init__(self, sided: bool = False) -> None:
        self._sided = sided
        self.now = 0.0
        self.done = 0
        self.running: PythonPlace | None = None
        """The place whose turn it is."""
        self._places: list[PythonPlace] = []
        self._turns: tuple[list[tuple[float, int]], list[tuple[float, int]]] = ([], [])
        """Heaps of (due time, place number) by side; entries may be out of date."""
        self._heap: list[Entry] = []
        """Events of no place."""
        self._serial = 0
        self._ahead = inf
        self._stretch = -inf
        """End of the present stretch; -inf between stretches."""
        self._halted = False

    def __len__(self) -> int:
        return len(self._heap) + sum(len(place.heap) for place in self._places)

    def place(self, upper: bool) -> PythonPlace:
        made = PythonPlace(self, len(self._places), int(self._sided and upper))
        self._places.append(made)
        return made

    def note_part(self, _example: object, _name: str) -> bool:
        return False

    def note_delay(self, delay_s: float) -> None:
        self._ahead = min(self._ahead, delay_s)

    def __call__(self, at: float, handler: Handler, argument: Any) -> None:
        self._serial = serial = self._serial + 1
        heapq.heappush(self._heap, (max(at, self._stretch), serial, handler, argument))

    def push(self, at: float, handler: Handler, argument: Any) -> None:
        self(max(at, self.now), handler, argument)

    def next_at(self) -> float:
        return min(self._heap[0][0] if self._heap else inf, self._first_turn(0), self._first_turn(1))

    def keep_near(self, _objects: Sequence[object], _parts: bool) -> None:
        pass

    def count_if_alone(self, now: float) -> bool:
        alone = self.next_at() > now
        self.done += alone
        return alone

    def list_turn(self, place: PythonPlace) -> None:
        """Note when a place is due, if it has events."""
        place.listed = place.next_at()
        if place.heap:
            heapq.heappush(self._turns[place.side], (place.listed, place.number))

    def _first_turn(self, side: int) -> float:
        turns, places = self._turns[side], self._places
        while turns and turns[0][0] != places[turns[0][1]].listed:
            heapq.heappop(turns)
        return turns[0][0] if turns else inf

    def run(self, end: float) -> bool:
        heap = self._heap
        self._halted = False
        while True:
            common = heap[0][0] if heap else inf
            lower, upper = self._first_turn(0), self._first_turn(1)
            turn = min(lower, upper)
            first = min(common, turn)
            if first > end or first == inf:
                return False
            if common <= turn:
                self._handle(heapq.heappop(heap))
            else:
                reach = turn + self._ahead
                if self._sided:
                    reach = min(max(lower, upper) + self._ahead, turn + 2 * self._ahead)
                self._stretch = min(max(reach, nextafter(turn, inf)), common, nextafter(end, inf))
                try:
                    self._run_stretch(self._stretch, int(lower > upper))
                finally:
                    self._stretch = -inf
            if self._halted:
                return True

    def _run_stretch(self, end: float, side: int) -> None:
        """Run all places of a side up to a time, one after the other."""
        latest = self.now
        while self._first_turn(side) < end:
            place = self.running = self._places[heapq.heappop(self._turns[side])[1]]
            heap = place.heap
            try:
                while heap and heap[0][0] < end:
                    place.now = heap[0][0]
                    self._handle(heapq.heappop(heap))
            finally:
                self.now = latest = max(latest, self.now)
                self.running = None
                self.list_turn(place)

    def _handle(self, entry: Entry) -> None:
        now, _, handler, argument = entry
        self.now = now
        self.done += 1
        handler(argument, now)

    def halt(self) -> None:
        self._halted = True

    def take(self, wanted: Callable[[Handler, Any], bool]) -> list[Any]:
        found = _taken(self._heap, wanted)
        for place in self._places:
            found += _taken(place.heap, wanted)
            if place is not self.running and place.listed != place.next_at():
                self.list_turn(place)
        return [entry[3] for entry in sorted(found, key=lambda entry: entry[0])]


def _taken(heap: list[Entry], wanted: Callable[[Handler, Any], bool]) -> list[Entry]:
    """Events taken out of a heap, in order."""
    found = sorted((entry for entry in heap if wanted(entry[2], entry[3])), key=lambda entry: entry[:2])
    gone = {entry[1] for entry in found}
    heap[:] = [entry for entry in heap if entry[1] not in gone]
    heapq.heapify(heap)
    return found


def event_queue(lookahead: int = 0) -> EventQueue:
    """An empty queue at time 0, of machine code where the fabric is; `lookahead`: see the module."""
    if state().active:
        module = import_module("mrc_testbed.simulator.event_queue")
        made: EventQueue = module.LookaheadQueue(lookahead > 1) if lookahead else module.EventQueue()
        return made
    return PythonLookaheadQueue(lookahead > 1) if lookahead else PythonEventQueue()
