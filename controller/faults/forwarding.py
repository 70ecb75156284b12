"""Verdicts from counters: which wires deliver and which switches forward, reading by reading. Pure.

Both ends of a veth pair agree on what crossed it, so their counters alone say nothing. But a P4 program counts a packet
as forwarded before the wire, and the port behind the wire counts it when it has arrived:

    wire A -> B     A forwarded packets to that port, and B's port received none: it loses everything
    switch S        its ports received packets from other switches, and its program neither forwarded nor dropped one:
                    it swallows everything (a black hole)

A port or a program that was not counted says nothing: it is not taken for one that counted 0. Switches are read as
often as they answer, and one that has not answered three times has no verdict.

Readings of two switches are not of one moment, and each takes a while. So what was sent between an earlier reading and
the last but one is compared with all that has arrived since a reading that ended before the former began. A few packets
decide nothing: the earlier reading is the latest one since which enough of them were sent, among the last HISTORY.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mrc_testbed.controller.faults.path_segments import PathSegmenter, PathSegments
from mrc_testbed.topologies.plan import Switch

SENT_MIN = 8
"""Packets sent after which one would have arrived if only a few were lost."""
ARRIVED_MIN = 3
"""Packets that show that a wire or switch works; fewer may be the kernel's own."""
READINGS_MIN = 3
"""Fewest readings of a switch for a verdict."""
HISTORY = 8
"""Readings kept per switch; a single loop of Clustermapper sends five probes between two of them."""
SPACING_S = 0.3
"""Shortest time between two compared readings, seconds: longer than a packet's flight."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters of one switch since its start, by interface, read between `t` and `end` (seconds)."""

    t: float
    received: Mapping[str, int]
    """Packets that arrived at each port."""
    forwarded: Mapping[str, int]
    """Packets that the P4 program sent to each port."""
    dropped: int = 0
    """Packets that the P4 program dropped for a reason it counts."""
    duration: float = 0.0
    """Time from the first counter to the last, seconds: arrivals are read last."""

    @property
    def end(self) -> float:
        return self.t + self.duration

    @property
    def handled_packets(self) -> int:
        return sum(self.forwarded.values()) + self.dropped


@dataclass(frozen=True, slots=True)
class ForwardingVerdict:
    """Verdict that a wire (`trace` has one arc) or a switch works, or does not, since `t`."""

    subject_name: str
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
            (sender, receiver)
            for link in plan.links
            if link.lower.node in self._readings
            for sender, receiver in ((link.lower, link.upper), (link.upper, link.lower))
        ]
        self._peers: dict[str, list[str]] = {switch.name: [] for switch in plan.switches}
        for _, receiver in self._wires:
            self._peers[receiver.node].append(receiver.interface)

    def read(self, switch: Switch, reading: Reading) -> None:
        """Keep a reading of a switch; drop the earlier ones where the counters or ports are new."""
        past = self._readings[switch.name]
        if past and reading.t - past[-1].t < SPACING_S:
            return
        if past and not _continues(past[-1], reading):
            past.clear()
        past.append(reading)

    def verdicts(self, plane: int) -> Iterator[ForwardingVerdict]:
        """Yield verdicts on a plane's wires and switches; none where too few packets were sent."""
        for sender, receiver in self._wires:
            if self._planes[sender.node] == plane:
                yield from self._of_wire(sender.node, sender.interface, receiver.node, receiver.interface)
        for name, past in self._readings.items():
            if self._planes[name] == plane:
                yield from self._of_switch(name, past)

    def _of_wire(
        self, sender_name: str, sender_port: str, receiver_name: str, receiver_port: str
    ) -> Iterator[ForwardingVerdict]:
        sender, receiver = list(self._readings[sender_name]), list(self._readings[receiver_name])
        reading_count = min(len(sender), len(receiver))
        if (
            reading_count < READINGS_MIN
            or sender_port not in sender[-1].forwarded
            or receiver_port not in receiver[-1].received
        ):
            return
        sender, receiver = sender[-reading_count:], receiver[-reading_count:]
        sent = [reading.forwarded[sender_port] for reading in sender]
        arrivals = [reading.received[receiver_port] for reading in receiver]
        trace = self._segmenter.wire_segments(sender_port)
        subject_name = f"{sender_name} -> {receiver_name}"
        if arrivals[-1] - arrivals[-2] >= ARRIVED_MIN:
            yield ForwardingVerdict(subject_name, trace, True, receiver[-2].t, "delivers")
        elif (
            (first := _enough_since(sent)) is not None
            and (base := _last_before(receiver, sender[first].t)) is not None
            and arrivals[base] == arrivals[-1]
            and sender[-2].end <= receiver[-1].t
            and _are_of_one_time(sender[first:], receiver[first:])
        ):
            says = f"{sent[-2] - sent[first]} packets sent, none received"
            yield ForwardingVerdict(subject_name, trace, False, sender[-2].t, says)

    def _of_switch(self, name: str, readings: deque[Reading]) -> Iterator[ForwardingVerdict]:
        past = list(readings)
        if len(past) < READINGS_MIN or not past[-1].forwarded:
            return
        received = [sum(reading.received.get(port, 0) for port in self._peers[name]) for reading in past]
        handled_counts = [reading.handled_packets for reading in past]
        trace = self._segmenter.switch_segments(name)
        if handled_counts[-1] - handled_counts[-2] >= ARRIVED_MIN:
            yield ForwardingVerdict(name, trace, True, past[-2].t, "forwards")
        elif (first := _enough_since(received)) is not None and handled_counts[-1] == handled_counts[first]:
            lost = received[-2] - received[first]
            yield ForwardingVerdict(name, trace, False, past[-2].t, f"{lost} packets received, none forwarded")


def _continues(earlier: Reading, later: Reading) -> bool:
    """Return whether the same ports were counted and no count has decreased.

    Counts restart when a program is loaded or a port is created again.
    """
    return (
        earlier.received.keys() == later.received.keys()
        and earlier.forwarded.keys() == later.forwarded.keys()
        and earlier.handled_packets <= later.handled_packets
        and all(earlier.received[port] <= packets for port, packets in later.received.items())
    )


def _enough_since(counts: list[int]) -> int | None:
    """Return the index of the latest reading with SENT_MIN packets from there to the last but one."""
    return next((n for n in range(len(counts) - 3, -1, -1) if counts[-2] - counts[n] >= SENT_MIN), None)


def _last_before(readings: list[Reading], t: float) -> int | None:
    """Return the index of the latest reading that had ended at `t`: a packet sent since then is not in it."""
    return next((n for n in range(len(readings) - 1, -1, -1) if readings[n].end <= t), None)


def _are_of_one_time(sender: list[Reading], receiver: list[Reading]) -> bool:
    """Return whether both were read in the same rounds: no reading of either is missing between."""
    return all(abs(a.t - b.t) < SPACING_S for a, b in zip(sender, receiver, strict=True))
