"""Border between the halves of a fabric that two processes run (halves.py).

Packets from T0s to T1s wait here until the halves meet before the next stretch. A packet is on the wire for longer than
a stretch, so none comes late. Memories of flows notify each other on the same way.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from mrc_testbed.hosts.engine.rocev2.rc_packets import Cnp, RcAck, RcOpcode, RcSyndrome, RcWrite
from mrc_testbed.hosts.engine.wire.packets import (
    EndpointOp,
    EndpointRequest,
    EndpointResponse,
    Nack,
    NackReason,
    Opcode,
    ReliabilityProbe,
    Sack,
    Syndrome,
    TransportAck,
    Verdict,
    Write,
)
from mrc_testbed.hosts.engine.wire.payload import TextPart
from mrc_testbed.simulator.events import AddEvent, Handler, NodeEvents, machine_code
from mrc_testbed.simulator.frames import Frame
from mrc_testbed.simulator.halves import MEETING, Half, SplitError, racks_of
from mrc_testbed.simulator.message_slots import MessageSlots, Notify
from mrc_testbed.simulator.ports import EgressPort

RECORDS: Final[list[type[Any]]] = [
    *(Write, Sack, Nack, TransportAck, ReliabilityProbe, EndpointRequest, EndpointResponse),
    *(RcWrite, RcAck, Cnp),
]
"""Types of the packets; one that crosses names its type by the index."""
_FIELDS: Final[dict[type[Any], tuple[int, Callable[[Any], tuple[Any, ...]]]]] = {
    record: (index, attrgetter(*(field.name for field in fields(record)))) for index, record in enumerate(RECORDS)
}
"""Index and function that returns all fields of a packet, by its type."""
MEMBERS: Final[list[Any]] = [
    member for enum in (Opcode, Verdict, NackReason, Syndrome, EndpointOp, RcOpcode, RcSyndrome) for member in enum
]
"""Values of fields that are members of an enumeration; one that crosses is named by the index."""
_MEMBER_INDEX: Final = {(type(member), int(member)): index for index, member in enumerate(MEMBERS)}
MARSHAL_VERSION: Final = 2
"""Format without references, which would have each object looked up."""
Crossing = tuple[float, int, int, int, tuple[int, int, int, int, int], int, list[Any]]
"""A packet as plain values.

They are arrival time, number of the egress, size, flags of the frame, its ends (source and target by number, rack,
downlink, plane), index of the packet's type, and its fields.
"""
Note = tuple[int, int, int, int]
"""Message of a memory to its twin: number of the memory, and the arguments of `MessageSlots.note`."""
Judge = Callable[[Sequence[Any]], bool]
"""Function that says whether the values of a predicate, one of each half, end a run."""


class Border:
    """Everything that waits to cross, and the meetings of both halves.

    `host_names`, `ports`: all hosts and egress ports, in the same order in both halves.
    """

    def __init__(self, half: Half, racks: int, host_names: Sequence[str], ports: list[EgressPort]) -> None:
        self._half, self._number, self._racks = half, half.number, racks_of(half.number, racks)
        self._packed = bytearray()
        """Packets that wait, as gates of machine code have packed them."""
        self._waiting: list[tuple[float, Frame, int]] = []
        """Other packets, with the time of their arrival and the length of `_packed` when they came."""
        self._ports = ports
        self._names = list(host_names)
        self._numbers = {name: number for number, name in enumerate(host_names)}
        self._memories: list[MessageSlots] = []
        self._texts: list[bytes] = []
        """Texts of payloads, in the same order in both halves."""
        self._code = machine_code()
        self._notes: list[Note] = []
        self._predicate: Callable[[], Any] | None = None
        self._judge: Judge = all
        self._states: list[Any] = []
        """Last values of the predicate, by half."""

    def gate(self, events: NodeEvents) -> AddEvent:
        """Return the events of a T1, as a T0 adds them: those of packets to the other half wait at the border."""
        common_arguments = (self._waiting, events, self._racks.start, self._racks.stop)
        if self._code is None:
            return Gate(*common_arguments)
        gate: AddEvent = self._code.Gate(*common_arguments, self._packed, self._numbers, self._texts)
        return gate

    def join(self, memory: MessageSlots) -> Notify:
        """Return the function by which a memory notifies its twin, which has to join in the same order."""
        memory_number = len(self._memories)
        self._memories.append(memory)
        if not any(memory.text is text for text in self._texts):
            self._texts.append(memory.text)
        notes = self._notes

        def notify(index: int, number: int, state: int) -> None:
            notes.append((memory_number, index, number, state))

        return notify

    def watch(self, predicate: Callable[[], Any] | None, judge: Judge, states: Sequence[Any]) -> None:
        """Halt once `judge` is true of the values of a predicate in both halves; None: do not halt.

        Its values are plain ones that `marshal` takes, and not None. `states`: the present ones, of both halves.
        """
        self._predicate, self._judge, self._states = predicate, judge, list(states)

    def _state(self, halted: bool) -> Any:
        """Return the value of the predicate here if it may have changed; else None."""
        if self._predicate is None or not halted:
            return None
        state = self._predicate()
        if state == self._states[self._number]:
            return None
        self._states[self._number] = state
        return state

    def meet(
        self, lower: float, upper: float, common_due: float, now: float, halted: bool
    ) -> tuple[float, float, float, bool]:
        """Exchange what waits; agree on the first events of both sides, now and the halt (events.Meeting).

        `halted`: whether the predicate may have another value here. Raises SplitError when the halves differ in events
        that belong to no node.
        """
        waiting = self._waiting
        for time, _, _ in waiting:  # T1s are of the lower side
            lower = min(lower, time)
        if self._packed:
            lower = min(lower, self._code.first_packed(self._packed))
        crossings = [(position, self._pack(time, frame)) for time, frame, position in waiting]
        state = self._state(halted)
        values = (lower, upper, common_due, now, state, crossings, self._packed, self._notes)
        message = marshal.dumps(values, MARSHAL_VERSION)
        waiting.clear()
        self._packed.clear()
        answer = marshal.loads(self._half.swap(MEETING, message))
        self._notes.clear()
        other_lower, other_upper, other_common_due, other_now, other_state, other_crossings, packed, other_notes = (
            answer
        )
        if other_common_due != common_due:
            raise SplitError("the halves of a run differ in what happens next: not all its events are the same in both")
        for memory_number, index, number, slot_state in other_notes:
            self._memories[memory_number].note(index, number, slot_state)
        # In the order in which they were sent: a port's packets may arrive at one instant.
        begin = 0
        for position, crossing in other_crossings:
            self._unpack_range(packed, begin, position)
            self._unpack(crossing)
            begin = position
        self._unpack_range(packed, begin, len(packed))
        if other_state is not None:
            self._states[1 - self._number] = other_state
        is_over = (state is not None or other_state is not None) and self._judge(self._states)
        return min(lower, other_lower), min(upper, other_upper), max(now, other_now), is_over

    def _unpack_range(self, packed: bytes, begin: int, end: int) -> None:
        """Let packets arrive that gates of machine code packed."""
        if begin < end:
            self._code.unpack(packed, begin, end, self._names, self._texts, self._ports)

    def _pack(self, time: float, frame: Frame) -> Crossing:
        """Return a packet as plain values."""
        index, values_of = _FIELDS[type(frame.packet)]
        values = [self._plain(value) for value in values_of(frame.packet)]
        flags = frame.control | frame.trimmable << 1 | frame.ect << 2 | frame.corrupt << 3
        flags |= frame.marked << 4 | frame.trimmed << 5
        numbers = self._numbers
        ends = (numbers[frame.source], numbers[frame.target], frame.rack, frame.downlink, frame.plane)
        return (time, frame.port, frame.size, flags, ends, index, values)

    def _unpack(self, crossing: Crossing) -> None:
        """Make a packet again, which arrives at its T1."""
        time, port_number, size, flags, (source, target, rack, downlink, plane), index, plain_values = crossing
        values = [self._value(plain) if type(plain) is tuple else plain for plain in plain_values]
        names = self._names
        is_control, is_trimmable = bool(flags & 1), bool(flags & 2)
        packet = RECORDS[index](*values)
        frame = Frame(packet, size, names[source], names[target], rack, downlink, plane, is_control, is_trimmable)
        frame.port, frame.is_fresh = port_number, False
        frame.ect, frame.corrupt = bool(flags & 4), bool(flags & 8)
        frame.marked, frame.trimmed = bool(flags & 16), bool(flags & 32)
        self._ports[port_number].deliver(frame, time)

    def _value(self, plain: tuple[int, ...]) -> Any:
        """Return the value of which _plain() made a tuple."""
        return MEMBERS[plain[0]] if len(plain) == 1 else TextPart(self._texts[plain[0]], plain[1], plain[2])

    def _plain(self, value: Any) -> Any:
        """Return a field as a value that `marshal` takes.

        A member of an enumeration becomes (index,), and part of a text (number of the text, begin, length).
        """
        kind = type(value)
        if kind is int or kind is bool or kind is bytes or value is None:
            return value
        if isinstance(value, TextPart):
            number = next(number for number, text in enumerate(self._texts) if text is value.text)
            return (number, value.begin, value.length)
        if isinstance(value, memoryview):
            return bytes(value)
        return (_MEMBER_INDEX[kind, int(value)],)


def models() -> tuple[Frame, Write, Sack, TextPart, tuple[Opcode | None, ...]]:
    """Return an object of each type that machine code packs, and the opcodes by value."""
    part = TextPart(b"", 0, 0)
    write = Write(0, 0, 0, 0, 0, Opcode.WRITE_MIDDLE, 0, 0, 0, 0, 0, part, 0)
    sack = Sack(0, 0, 0, 0, 0, 0, 0, 0, 0, None, 0, 0, 0, 0)
    opcodes: list[Opcode | None] = [None] * 256
    for opcode in Opcode:
        opcodes[opcode] = opcode
    return Frame(write, 0, "", "", 0, 0, 0, False, False), write, sack, part, tuple(opcodes)


class Gate:
    """Way of the packets of a T0 to a T1; see Border.gate()."""

    def __init__(
        self, waiting: list[tuple[float, Frame, int]], events: NodeEvents, first_rack: int, end_rack: int
    ) -> None:
        self._waiting, self._events = waiting, events
        self._first_rack, self._end_rack = first_rack, end_rack

    def __call__(self, time: float, handler: Handler, frame: Any) -> None:
        rack: int = frame.rack
        # A packet whose address was damaged has no rack; any T1 drops it.
        if self._first_rack <= rack < self._end_rack or rack < 0:
            self._events(time, handler, frame)
        else:
            self._waiting.append((time, frame, 0))
