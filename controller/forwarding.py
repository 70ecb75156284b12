"""What switches received and forwarded, reading after reading: which wires deliver, which switches forward. Pure.

Both ends of a veth pair agree on what crossed it, so their counters alone say nothing. But a P4 program counts a packet
as forwarded before the wire, and the port behind the wire counts it when it has arrived:

    wire A -> B     A forwarded packets to that port, and B's port received none: it loses everything
    switch S        its ports received packets from other switches, and its program neither forwarded nor dropped one:
                    it swallows everything (a black hole)

Readings of two switches are not of one moment. So what was sent between the last reading but two and the last but one
is compared with all that has arrived since the former, and a few packets decide nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from controller.traces import Trace, Traces
from topologies.plan import Switch

SENT_MIN = 8
"""Packets sent of which one would have arrived, were it only a few that are lost."""
ARRIVED_MIN = 3
"""Packets that show that something works; fewer may be the kernel's own."""
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
class Verdict:
    """A wire (`trace` has one arc) or a switch works, or does not, since `t`."""

    about: str
    trace: Trace
    works: bool
    t: float
    says: str


class Forwarding:
    """The last readings of all switches."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        plan = traces.plan
        self._readings: dict[str, deque[Reading]] = {switch.name: deque(maxlen=3) for switch in plan.switches}
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
        """One switch was read. One that has begun to count anew has no past."""
        past = self._readings[switch.name]
        if past and reading.t - past[-1].t < SPACING_S:
            return
        if past and reading.handled < past[-1].handled:
            past.clear()
        past.append(reading)

    def verdicts(self, plane: int) -> Iterator[Verdict]:
        """What the readings say of a plane's wires and switches; nothing where too few packets were sent."""
        for here, there in self._wires:
            if self._planes[here.node] == plane:
                yield from self._of_wire(here.node, here.interface, there.node, there.interface)
        for name, past in self._readings.items():
            if self._planes[name] == plane and len(past) == 3:
                yield from self._of_switch(name, past)

    def _of_wire(self, a: str, out: str, b: str, into: str) -> Iterator[Verdict]:
        sender, receiver = self._readings[a], self._readings[b]
        if len(sender) < 3 or len(receiver) < 3:
            return
        arrived = [one.received.get(into, 0) for one in receiver]
        sent = sender[1].forwarded.get(out, 0) - sender[0].forwarded.get(out, 0)
        trace = self._traces.wire(out)
        about = f"{a} -> {b}"
        if arrived[2] - arrived[1] >= ARRIVED_MIN:
            yield Verdict(about, trace, True, receiver[1].t, "delivers")
        elif sent >= SENT_MIN and arrived[2] == arrived[0] and self._are_of_one_time(sender, receiver):
            yield Verdict(about, trace, False, sender[1].t, f"{sent} packets sent, none received")

    @staticmethod
    def _are_of_one_time(sender: deque[Reading], receiver: deque[Reading]) -> bool:
        """Both were read in the same rounds: neither has been without an answer meanwhile."""
        return all(abs(one.t - other.t) < SPACING_S for one, other in zip(sender, receiver, strict=True))

    def _of_switch(self, name: str, past: deque[Reading]) -> Iterator[Verdict]:
        received = [sum(one.received.get(port, 0) for port in self._peers[name]) for one in past]
        handled = [one.handled for one in past]
        trace = self._traces.inside(name)
        if handled[2] - handled[1] >= ARRIVED_MIN:
            yield Verdict(name, trace, True, past[1].t, "forwards")
        elif received[1] - received[0] >= SENT_MIN and handled[2] == handled[0]:
            got = received[1] - received[0]
            yield Verdict(name, trace, False, past[1].t, f"{got} packets received, none forwarded")
