"""Event queues of a virtual fabric, with its virtual time.

Each has two forms that do the same: a class here, and one in event_queue.c, which `mrc compile` builds beside the
machine code of the fabric. A heap of tuples costs a third of a compiled run, the more the deeper it is.

Orders of the same events, by how far a node may run ahead of others:

    0   the exact order of time over all nodes: for traces, and for code that runs between any two events
    1   the order of time at each node. An effect of one node reaches another no sooner than the shortest link's delay,
        so each node runs alone up to that far ahead of the first event of all: a stretch. Its objects are then in the
        CPU's caches; cache misses are what slows a fabric of hundreds of hosts. The rule is that of conservative
        parallel simulation (K. M. Chandy, J. Misra, 1979); here there is one thread.
    2   the same with stretches of up to two delays: nodes have two sides, and nodes of one side reach only those of the
        other (hosts and T1s; T0s). Each side in turn runs to one delay beyond the other's first event.

Events of no node (faults, samples) come between stretches, at their exact time: all nodes have run up to that time and
none beyond.

Two processes may share a fabric (halves.py). Each then has a queue that knows all nodes, and ignores the events of
those that run in the other. Before each stretch the two queues meet, and agree on it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from math import inf, nextafter
from typing import Any, Protocol

from mrc_testbed.native_build import state

Handler = Callable[[Any, float], None]
AddEvent = Callable[[float, Handler, Any], None]
"""Function that adds an event of a node: (time, handler, argument)."""
Meeting = Callable[[float, float, float, float, bool], tuple[float, float, float, bool]]
"""Exchange with the queue of the other half.

Called with the times of the first events of the lower side, of the upper and of no node, now, and whether halt() was
called here. Returns the first events of both sides and now, over both halves, and whether the run is over.
"""
Entry = tuple[float, int, Handler, Any]
"""(time, serial number, handler, argument): the handler is called as handler(argument, time)."""


class NodeEvents(Protocol):
    """Events of one node, in order of time; those of one instant in the order in which they were pushed."""

    def __call__(self, time: float, handler: Handler, argument: Any, /) -> None:
        """Call `handler(argument, time)` at a time that is not before now."""

    def push(self, time: float, handler: Handler, argument: Any, /) -> None:
        """Add an event; one whose time has passed happens now."""

    def next_at(self) -> float:
        """Return the time of the node's next event; inf when there is none."""

    def keep_near(self, objects: Sequence[object], parts: bool, /) -> None:
        """Make the CPU fetch objects that the node's handlers read, at the node's turn.

        `parts`: fetch also the parts named to note_part(), of the arguments of the coming events and of those parts.
        """

    def count_if_alone(self, now: float, /) -> bool:
        """Return whether the node has no other event at `now`; True counts an event.

        The caller then does at once what would have been an event.
        """

    def disown(self) -> None:
        """Ignore all events of the node, present and future: it runs in the other half."""


class EventQueue(NodeEvents, Protocol):
    """All events of a fabric, with those that belong to no node."""

    now: float
    """Virtual time, seconds."""
    event_count: int
    """Number of events handled so far."""

    def __len__(self) -> int: ...

    def run(self, end: float, /) -> bool:
        """Handle events up to a time or until none is left; return True when halt() was called."""

    def halt(self) -> None:
        """End run() after the event being handled, or its stretch."""

    def add_node(self, upper: bool, /) -> NodeEvents:
        """Return the events of one more node, on either side; in the exact order the queue itself."""

    def note_delay(self, delay_s: float, /) -> None:
        """Note that an effect of one node reaches another after that time, at the earliest."""

    def note_part(self, example: object, name: str, /) -> bool:
        """Note that handlers read an attribute of objects of that type; see NodeEvents.keep_near.

        Return whether it will be fetched: in machine code, and where the attribute's value is an object of its own.
        """

    def take(self, predicate: Callable[[Handler, Any], bool], /) -> list[Any]:
        """Remove the events for which `predicate(handler, argument)` holds; return their arguments in order."""

    def split(self, meeting: Meeting, /) -> None:
        """Agree with the other half before each stretch. Only queues with lookahead can."""


NO_HALVES = "a queue in the exact order has no halves. Cure: give the fabric a lookahead"


class PythonEventQueue:
    """Queue in the exact order: a heap of tuples."""

    def __init__(self) -> None:
        self.now = 0.0
        self.event_count = 0
        self._heap: list[Entry] = []
        self._serial = 0
        self._halted = False

    def __len__(self) -> int:
        return len(self._heap)

    def __call__(self, time: float, handler: Handler, argument: Any) -> None:
        self._serial = serial = self._serial + 1
        heapq.heappush(self._heap, (time, serial, handler, argument))

    def push(self, time: float, handler: Handler, argument: Any) -> None:
        self(max(time, self.now), handler, argument)

    def next_at(self) -> float:
        return self._heap[0][0] if self._heap else inf

    def keep_near(self, _objects: Sequence[object], _parts: bool) -> None:
        pass

    def count_if_alone(self, now: float) -> bool:
        is_alone = not self._heap or self._heap[0][0] > now
        self.event_count += is_alone
        return is_alone

    def run(self, end: float) -> bool:
        heap, pop = self._heap, heapq.heappop
        self._halted = False
        while heap and heap[0][0] <= end:
            now, _, handler, argument = pop(heap)
            self.now = now
            self.event_count += 1
            handler(argument, now)
            if self._halted:
                return True
        return False

    def halt(self) -> None:
        self._halted = True

    def add_node(self, _upper: bool) -> PythonEventQueue:
        return self

    def disown(self) -> None:
        raise RuntimeError(NO_HALVES)

    def split(self, _meeting: Meeting) -> None:
        raise RuntimeError(NO_HALVES)

    def note_part(self, _example: object, _name: str) -> bool:
        return False

    def note_delay(self, delay_s: float) -> None:
        pass

    def take(self, predicate: Callable[[Handler, Any], bool]) -> list[Any]:
        return [entry[3] for entry in _remove_events(self._heap, predicate)]


class PythonNodeEvents:
    """Events of one node of a PythonLookaheadQueue."""

    def __init__(self, queue: PythonLookaheadQueue, number: int, side: int) -> None:
        self._queue, self.number, self.side = queue, number, side
        self.heap: list[Entry] = []
        self._serial = 0
        self.now = 0.0
        """Time of the node's last event."""
        self.turn_time = inf
        """Earliest time of the node among the turns; inf: not listed."""

    def __call__(self, time: float, handler: Handler, argument: Any) -> None:
        if time < self.now:
            if self.now == inf:  # disowned
                return
            raise RuntimeError("an event in the past of its node: the queue looks further ahead than it may")
        self._serial = serial = self._serial + 1
        heapq.heappush(self.heap, (time, serial, handler, argument))
        if time < self.turn_time and self is not self._queue.running:
            self._queue.list_turn(self)

    def push(self, time: float, handler: Handler, argument: Any) -> None:
        self(max(time, self._queue.now), handler, argument)

    def next_at(self) -> float:
        return self.heap[0][0] if self.heap else inf

    def keep_near(self, _objects: Sequence[object], _parts: bool) -> None:
        pass

    def count_if_alone(self, now: float) -> bool:
        is_alone = not self.heap or self.heap[0][0] > now
        self._queue.event_count += is_alone
        return is_alone

    def disown(self) -> None:
        self.heap.clear()
        self.now = self.turn_time = inf


class PythonLookaheadQueue:
    """Queue in the order with lookahead; `two_sided`: stretches of two delays."""

    def __init__(self, two_sided: bool = False) -> None:
        self._two_sided = two_sided
        self.now = 0.0
        self.event_count = 0
        self.running: PythonNodeEvents | None = None
        """Node whose turn it is."""
        self._nodes: list[PythonNodeEvents] = []
        self._turns: tuple[list[tuple[float, int]], list[tuple[float, int]]] = ([], [])
        """Heaps of (due time, node number) by side; entries may be out of date."""
        self._heap: list[Entry] = []
        """Events of no node."""
        self._serial = 0
        self._ahead = inf
        self._stretch = -inf
        """End of the present stretch; -inf between stretches."""
        self._halted = False
        self._meeting: Meeting | None = None

    def __len__(self) -> int:
        return len(self._heap) + sum(len(node.heap) for node in self._nodes)

    def add_node(self, upper: bool) -> PythonNodeEvents:
        node = PythonNodeEvents(self, len(self._nodes), int(self._two_sided and upper))
        self._nodes.append(node)
        return node

    def note_part(self, _example: object, _name: str) -> bool:
        return False

    def note_delay(self, delay_s: float) -> None:
        self._ahead = min(self._ahead, delay_s)

    def __call__(self, time: float, handler: Handler, argument: Any) -> None:
        self._serial = serial = self._serial + 1
        heapq.heappush(self._heap, (max(time, self._stretch), serial, handler, argument))

    def push(self, time: float, handler: Handler, argument: Any) -> None:
        self(max(time, self.now), handler, argument)

    def next_at(self) -> float:
        return min(self._heap[0][0] if self._heap else inf, self._first_turn(0), self._first_turn(1))

    def keep_near(self, _objects: Sequence[object], _parts: bool) -> None:
        pass

    def count_if_alone(self, now: float) -> bool:
        is_alone = self.next_at() > now
        self.event_count += is_alone
        return is_alone

    def list_turn(self, node: PythonNodeEvents) -> None:
        """List a node's turn at the time of its next event, if it has events."""
        node.turn_time = node.next_at()
        if node.heap:
            heapq.heappush(self._turns[node.side], (node.turn_time, node.number))

    def _first_turn(self, side: int) -> float:
        turns, nodes = self._turns[side], self._nodes
        while turns and turns[0][0] != nodes[turns[0][1]].turn_time:
            heapq.heappop(turns)
        return turns[0][0] if turns else inf

    def run(self, end: float) -> bool:
        heap = self._heap
        self._halted = False
        while True:
            common_due = heap[0][0] if heap else inf
            lower, upper = self._first_turn(0), self._first_turn(1)
            if self._meeting is not None:
                # Both halves halt, and run each stretch, together.
                agreement = self._meeting(lower, upper, common_due, self.now, self._halted)
                lower, upper, self.now = agreement[:3]
                self._halted = False
                if agreement[3]:
                    return True
            turn = min(lower, upper)
            first = min(common_due, turn)
            if first > end or first == inf:
                return False
            if common_due <= turn:
                self._handle(heapq.heappop(heap))
            else:
                reach = turn + self._ahead
                if self._two_sided:
                    reach = min(max(lower, upper) + self._ahead, turn + 2 * self._ahead)
                self._stretch = min(max(reach, nextafter(turn, inf)), common_due, nextafter(end, inf))
                try:
                    self._run_stretch(self._stretch, int(lower > upper))
                finally:
                    self._stretch = -inf
            if self._halted and self._meeting is None:
                return True

    def _run_stretch(self, end: float, side: int) -> None:
        """Run all nodes of a side up to a time, one after the other."""
        latest = self.now
        while self._first_turn(side) < end:
            node = self.running = self._nodes[heapq.heappop(self._turns[side])[1]]
            heap = node.heap
            try:
                while heap and heap[0][0] < end:
                    node.now = heap[0][0]
                    self._handle(heapq.heappop(heap))
            finally:
                self.now = latest = max(latest, self.now)
                self.running = None
                self.list_turn(node)

    def _handle(self, entry: Entry) -> None:
        now, _, handler, argument = entry
        self.now = now
        self.event_count += 1
        handler(argument, now)

    def halt(self) -> None:
        self._halted = True

    def split(self, meeting: Meeting) -> None:
        self._meeting = meeting

    def disown(self) -> None:
        raise RuntimeError("events of no node are in both halves")

    def take(self, predicate: Callable[[Handler, Any], bool]) -> list[Any]:
        entries = _remove_events(self._heap, predicate)
        for node in self._nodes:
            entries += _remove_events(node.heap, predicate)
            if node is not self.running and node.turn_time != node.next_at():
                self.list_turn(node)
        return [entry[3] for entry in sorted(entries, key=lambda entry: entry[0])]


def _remove_events(heap: list[Entry], predicate: Callable[[Handler, Any], bool]) -> list[Entry]:
    """Remove the matching events from a heap; return them in order."""
    entries = sorted((entry for entry in heap if predicate(entry[2], entry[3])), key=lambda entry: entry[:2])
    serials = {entry[1] for entry in entries}
    heap[:] = [entry for entry in heap if entry[1] not in serials]
    heapq.heapify(heap)
    return entries


def event_queue(lookahead: int = 0) -> EventQueue:
    """Return an empty queue at time 0, in machine code where the fabric is; `lookahead`: see the module."""
    module = machine_code()
    if module is not None:
        queue: EventQueue = module.LookaheadQueue(lookahead > 1) if lookahead else module.EventQueue()
        return queue
    return PythonLookaheadQueue(lookahead > 1) if lookahead else PythonEventQueue()


@cache
def machine_code() -> Any:
    """Return the module in C with its queues; None where the fabric is not in machine code.

    Most events of switches and ports it handles itself (hops.c), and those of hosts (host.c). It packs what crosses
    between halves (crossing.c), and exchanges it (channel.c).
    """
    if not state().active:
        return None
    module = import_module("mrc_testbed.simulator.event_queue")
    host = import_module("mrc_testbed.simulator.host")
    models = import_module("mrc_testbed.simulator.border").models()
    module.learn(*models, host.BATCH, host.STUCK_AFTER)
    return module
