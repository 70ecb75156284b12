"""Verdicts from counters: which wires deliver and which switches forward, reading by reading. Pure.

Both ends of a veth pair agree on what crossed it, so their counters alone say nothing. But a P4 program counts a packet
as forwarded before the wire, and the port behind the wire counts it when it has arrived:

    wire A -> B     A forwarded packets to that port, and B's port received none: it loses everything
    switch S        its ports received packets from other switches, and its program neither forwarded nor dropped one:
                    it swallows everything (a black hole)

A port or a program that was not counted says nothing: it is not taken for one that counted 0. Switches are read as
often as they answer, and one that has not answered three times has no verdict.

Readings of two switches are not of one moment. So what was sent between an earlier reading and the last but one is
compared with all that has arrived since the former. A few packets decide nothing: the earlier reading is the latest one
since which enough of them were sent, among the last HISTORY.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mrc_testbed.controller.faults.path_segments import PathSegmenter, PathSegments
from mrc_testbed.topologies.plan import Switch

SENT_MIN = 8
"""Packets sent of which one would have arrived, were it only a few that are lost."""
ARRIVED_MIN = 3
"""Packets that show that something works; fewer may be the kernel's own."""
READINGS_MIN = 3
"""Readings of a switch without which nothing is said of it."""
HISTORY = 8
"""Readings that are kept of a switch: a single loop of Clustermapper sends five probes between two of them."""
SPACING_S = 0.3
"""Between two readings that are compared, seconds: what was sent before the one has arrived before the other."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Of one switch, since it started; by interface. `t` in seconds."""

    t: float
    received: Mapping[str, int]
    """Packets that arrived at each port."""
    forwarded: Mapping[str, int]
    """Packets that the P4 program sent to each port."""
    dropped: int = 0
    """Packets that the P4 program dropped and has a reason for."""

    @property
    def handled(self) -> int:
        return sum(self.forwarded.values()) + self.dropped


@dataclass(frozen=True, slots=True)
class ForwardingVerdict:
    """A wire (`trace` has one arc) or a switch works, or does not, since `t`."""

    about: str
    trace: PathSegments
    works: bool
    t: float
    says: str


class Forwarding:
    """The last readings of all switches."""

    def __init__(self, segmenter: PathSegmenter) -> None:
        self._segmenter = segmenter
        plan = segmenter.plan
        self._readings: dict[str, deque[Reading]] = {switch.name: deque(maxlen=HISTORY) for switch in plan.switches}
        self._planes = {switch.name: switch.plane for switch in plan.switches}
        self._wires = [
            (here, there)
            for link in plan.links
            if link.lower.node in self._readings
            for here, there in ((link.lower, link.upper), (link.upper, link.lower))
        ]
        self._peers: dict[str, list[str]] = {switch.name: [] for switch in plan.switches}
        for _, there in self._wires:
            self._peers[there.node].append(there.interface)

    def read(self, switch: Switch, reading: Reading) -> None:
        """One switch was read. One that counts anew, or other ports, has no past."""
        past = self._readings[switch.name]
        if past and reading.t - past[-1].t < SPACING_S:
            return
        if past and not _continues(past[-1], reading):
            past.clear()
        past.append(reading)

    def verdicts(self, plane: int) -> Iterator[ForwardingVerdict]:
        """Verdicts on a plane's wires and switches; none where too few packets were sent."""
        for here, there in self._wires:
            if self._planes[here.node] == plane:
                yield from self._of_wire(here.node, here.interface, there.node, there.interface)
        for name, past in self._readings.items():
            if self._planes[name] == plane:
                yield from self._of_switch(name, past)

    def _of_wire(self, a: str, out: str, b: str, into: str) -> Iterator[ForwardingVerdict]:
        sender, receiver = list(self._readings[a]), list(self._readings[b])
        kept = min(len(sender), len(receiver))
        if kept < READINGS_MIN or out not in sender[-1].forwarded or into not in receiver[-1].received:
            return
        sender, receiver = sender[-kept:], receiver[-kept:]
        sent = [reading.forwarded[out] for reading in sender]
        arrived = [reading.received[into] for reading in receiver]
        trace = self._segmenter.wire(out)
        about = f"{a} -> {b}"
        if arrived[-1] - arrived[-2] >= ARRIVED_MIN:
            yield ForwardingVerdict(about, trace, True, receiver[-2].t, "delivers")
        elif (
            (first := _enough_since(sent)) is not None
            and arrived[first] == arrived[-1]
            and _are_of_one_time(sender[first:], receiver[first:])
        ):
            says = f"{sent[-2] - sent[first]} packets sent, none received"
            yield ForwardingVerdict(about, trace, False, sender[-2].t, says)

    def _of_switch(self, name: str, readings: deque[Reading]) -> Iterator[ForwardingVerdict]:
        past = list(readings)
        if len(past) < READINGS_MIN or not past[-1].forwarded:
            return
        received = [sum(reading.received.get(port, 0) for port in self._peers[name]) for reading in past]
        handled = [reading.handled for reading in past]
        trace = self._segmenter.inside(name)
        if handled[-1] - handled[-2] >= ARRIVED_MIN:
            yield ForwardingVerdict(name, trace, True, past[-2].t, "forwards")
        elif (first := _enough_since(received)) is not None and handled[-1] == handled[first]:
            lost = received[-2] - received[first]
            yield ForwardingVerdict(name, trace, False, past[-2].t, f"{lost} packets received, none forwarded")


def _continues(before: Reading, after: Reading) -> bool:
    """Whether the same ports were counted, and no count has gone back: a program is loaded, a port made, again."""
    return (
        before.received.keys() == after.received.keys()
        and before.forwarded.keys() == after.forwarded.keys()
        and before.handled <= after.handled
        and all(before.received[port] <= packets for port, packets in after.received.items())
    )


def _enough_since(counts: list[int]) -> int | None:
    """The latest reading since which SENT_MIN were counted until the last but one; None where there is none."""
    return next((n for n in range(len(counts) - 3, -1, -1) if counts[-2] - counts[n] >= SENT_MIN), None)


def _are_of_one_time(sender: list[Reading], receiver: list[Reading]) -> bool:
    """Whether both were read in the same rounds: neither has been without an answer meanwhile."""
    return all(abs(a.t - b.t) < SPACING_S for a, b in zip(sender, receiver, strict=True))
