"""Two endpoints, a wire between them, and a clock we own: the bench on which the engine is tested.

The wire is a heap of arrivals. Each (plane, EV) is a path with its own delay; a path may be slow, lossy or cut, in one
direction or both, and a filter may drop, alter or repeat any single packet. With `framed` every packet goes through
the real encoder and decoder. All randomness comes from the seed, so a run repeats bit for bit.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.events import Completion, Event
from mrc_testbed.hosts.engine.qp import EngineQueuePair
from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec
from mrc_testbed.hosts.engine.wire.packets import Nack, Packet, Sack, TransportAck, Write
from mrc_testbed.hosts.engine.wire.payload import TextPart
from mrc_testbed.hosts.engine.wire.wire_variants import in_dialect

MTU = 256
"""Path MTU of the tests, bytes: many packets in little memory."""


def make_evs(planes: int, uplinks: int) -> list[tuple[int, int]]:
    """Return (EV, plane) of a small fabric, numbered as the plan does: plane << 8 | uplink."""
    return [(plane << 8 | uplink, plane) for plane in range(planes) for uplink in range(uplinks)]


@dataclass
class Path:
    """Behaviour of the wire for packets of one (source, plane, EV)."""

    delay_s: float
    cut: bool = False
    free_at: float = 0.0
    """A path is a FIFO: nothing arrives before what left earlier."""


@dataclass
class Line:
    """One packet that left, as the tests read it."""

    time: float
    source: str
    packet: Packet

    def __str__(self) -> str:
        p = self.packet
        if isinstance(p, Write):
            return f"{self.time * 1000:.0f} psn {p.psn} ev {p.ev:#05x}{' rtx' if p.rtx else ''}"
        return f"{self.time * 1000:.0f} {type(p).__name__} ev {p.ev:#05x}"


@dataclass
class Side:
    endpoint: Endpoint
    qp: EngineQueuePair
    events: list[Event] = field(default_factory=list)


class Pair:
    """`a` and `b` with one connected QP each. Times in seconds, virtual."""

    def __init__(
        self,
        *,
        planes: int = 2,
        uplinks: int = 2,
        delay_s: float = 0.005,
        seed: int = 1,
        psn: int | None = None,
        config: dict[str, Any] | None = None,
        config_b: dict[str, Any] | None = None,
        framed: bool = False,
        region: int = 1 << 16,
        per_packet_s: float = 0.0,
        evs: list[tuple[int, int]] | None = None,
        denied: Sequence[int] = (),
    ):
        settings = {"pmtu_bytes": MTU, "timeout": 15, **(config or {})}
        self.config = Config.of(**settings)
        self.now = 0.0
        self.planes = planes
        self.rng = Random(seed)
        self.delay_s, self.per_packet_s = delay_s, per_packet_s
        """A port takes `per_packet_s` to send one packet; 0 = it takes any number at once."""
        self.evs = make_evs(planes, uplinks) if evs is None else evs
        self.paths: dict[tuple[str, int, int], Path] = {}
        self.ports_up = {"a": [True] * planes, "b": [True] * planes}
        self.log: list[Line] = []
        self.filter: Callable[[str, Packet], Sequence[float] | None] | None = None
        """(source, packet) -> extra delays of the copies that arrive ([] = lost); None = deliver as usual."""
        self._port_free_at = {"a": [0.0] * planes, "b": [0.0] * planes}
        self._wire: list[tuple[float, int, str, int, Any]] = []
        self._count = 0
        self._codec = in_dialect(Codec(self.config), self.config, outer_header=False) if framed else None
        self._addressing = {
            "a": Addressing(bytes(15) + b"\x0a", bytes(15) + b"\x0b"),
            "b": Addressing(bytes(15) + b"\x0b", bytes(15) + b"\x0a"),
        }
        # Only a's first PSN is chosen: the tests look at its writes. Side b draws its own
        self.a = self._side("a", self.config, psn)
        self.b = self._side("b", Config.of(**{**settings, **(config_b or {})}), None)
        self.memory = bytearray(region)
        self.region = self.b.endpoint.register(self.memory)
        self.a.qp.connect("b", self.b.qp.attributes(self.region), self.evs, 0.0, denied=denied)
        self.b.qp.connect("a", self.a.qp.attributes(), self.evs, 0.0)

    def _side(self, name: str, config: Config, psn: int | None) -> Side:
        endpoint = Endpoint(name, config, planes=self.planes, seed=Random(self.rng.getrandbits(32)))
        qp = endpoint.create_qp()
        if psn is not None:
            qp.first_psn = psn
        return Side(endpoint, qp)

    # ---- the wire ---------------------------------------------------------------------------------------

    def path(self, source: str, ev: int, plane: int | None = None) -> Path:
        """Return the path of an EV in one direction; change it at will."""
        plane = ev >> 8 if plane is None else plane
        return self.paths.setdefault((source, plane, ev), Path(self.delay_s))

    def cut(self, *evs: int, cut: bool = True) -> None:
        """Cut (or mend) the links of these EVs, both ways."""
        for ev in evs:
            self.path("a", ev).cut = self.path("b", ev).cut = cut

    def port(self, side: str, plane: int, is_up: bool) -> None:
        """Set a NIC port up or down: its end sees it at once, the wire loses the packets on it."""
        self.ports_up[side][plane] = is_up
        self._side_of(side).endpoint.on_port(plane, is_up, self.now)

    def _side_of(self, name: str) -> Side:
        return self.a if name == "a" else self.b

    def _leave(self, source: str, plane: int, packet: Packet) -> None:
        self.log.append(Line(self.now, source, packet))
        target = "b" if source == "a" else "a"
        path = self.path(source, packet.ev, plane)
        copies = None if self.filter is None else self.filter(source, packet)
        if path.cut or not (self.ports_up["a"][plane] and self.ports_up["b"][plane]):
            return
        data = packet if self._codec is None else self._codec.encode(packet, self._addressing[source]).join()
        for extra in (0.0,) if copies is None else copies:
            arrival_time = self.now + path.delay_s + extra
            if not extra:
                arrival_time = path.free_at = max(arrival_time, path.free_at)
            self._arrive(arrival_time, target, plane, data)

    def _arrive(self, arrival_time: float, target: str, plane: int, data: Any) -> None:
        self._count += 1
        heapq.heappush(self._wire, (arrival_time, self._count, target, plane, data))

    def hand_over(self, target: str, packet: Packet, plane: int, delay_s: float) -> None:
        """Let a packet that neither side sent arrive after a while (not with `framed`)."""
        self._arrive(self.now + delay_s, target, plane, packet)

    # ---- the clock --------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Let both endpoints send what they can now."""
        for name, side in (("a", self.a), ("b", self.b)):
            while True:
                free_times = self._port_free_at[name]
                room = None if not self.per_packet_s else [int(free_time <= self.now) for free_time in free_times]
                sent = side.endpoint.transmit(self.now, room=room)
                for plane, _, packet in sent:
                    free_times[plane] = self.now + self.per_packet_s
                    self._leave(name, plane, packet)
                if not sent:
                    break
            side.events += side.endpoint.events()

    def next_time(self) -> float | None:
        """Return when something happens next."""
        times = [t for t in (self.a.endpoint.next_timer(), self.b.endpoint.next_timer()) if t is not None]
        if self._wire:
            times.append(self._wire[0][0])
        if self.per_packet_s:
            times += [
                free_time
                for free_times in self._port_free_at.values()
                for free_time in free_times
                if free_time > self.now
            ]
        return min(times, default=None)

    def step(self) -> bool:
        """Jump to the next event; return False when there is none."""
        self.flush()
        event_time = self.next_time()
        if event_time is None:
            return False
        self.now = max(self.now, event_time)
        while self._wire and self._wire[0][0] <= self.now:
            _, _, target, plane, data = heapq.heappop(self._wire)
            packet = data if self._codec is None else self._codec.decode(data, plane)
            if self.ports_up[target][plane]:
                self._side_of(target).endpoint.receive(packet, plane, "b" if target == "a" else "a", self.now)
        for side in (self.a, self.b):
            side.endpoint.on_timer(self.now)
        self.flush()
        return True

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        end = self.now + seconds
        self.flush()
        while (event_time := self.next_time()) is not None and event_time <= end:
            self.step()
        self.now = end

    def run_until_quiet(self, limit_s: float = 60.0) -> None:
        """Run until the wire is empty, no timer runs (probes of bad EVs aside) and no write is outstanding."""
        end = self.now + limit_s
        self.flush()
        while self.now < end:
            if not self._wire and not self.a.qp.outstanding() and not self.b.qp.outstanding():
                return
            if not self.step():
                return
        raise AssertionError(f"not quiet after {limit_s} s of virtual time: {self.a.qp.counters}")

    # ---- the application --------------------------------------------------------------------------------

    def write(self, data: bytes | TextPart, offset: int = 0, **kwargs: Any) -> int:
        """Post a write from a into b's region."""
        return self.a.qp.post_write(data, self.region.va + offset, self.region.rkey, now=self.now, **kwargs)

    def bytes(self, size: int) -> bytes:
        """Return random bytes from the seed."""
        return self.rng.randbytes(size)

    # ---- what happened ----------------------------------------------------------------------------------

    def sent(self, kind: type = Write, source: str = "a") -> list[Line]:
        return [line for line in self.log if line.source == source and isinstance(line.packet, kind)]

    def retransmissions(self) -> list[Line]:
        return [line for line in self.sent() if line.packet.rtx]

    def completions(self) -> list[tuple[int, str]]:
        """Return (wr_id, status) in the order in which they came."""
        return [(e.wr_id, e.status.name) for e in self.a.events if isinstance(e, Completion)]

    def events_of(self, kind: type, side: str = "a") -> list[Any]:
        """Return the events of one kind."""
        return [e for e in self._side_of(side).events if isinstance(e, kind)]

    def state(self, ev: int) -> str:
        """Return the state of an EV at a, in words."""
        return next(row["state"] for row in self.a.qp.ev_states() if row["ev"] == ev)


def lose_first(pair: Pair, match: Callable[[str, Packet], bool], times: int = 1) -> list[Packet]:
    """Make the wire lose the first `times` packets that match; returns the list they are collected in."""
    victims: list[Packet] = []

    def decide(source: str, packet: Packet) -> Sequence[float] | None:
        if len(victims) < times and match(source, packet):
            victims.append(packet)
            return []
        return None

    pair.filter = decide
    return victims


ACKS = (Sack, Nack, TransportAck)


def finish_write(pair: Pair, size: int = 60_000, **kwargs: Any) -> bytes:
    """Write random data, check that it arrived and completed, and return it."""
    data = pair.bytes(size)
    pair.write(data, **kwargs)
    pair.run_until_quiet()
    assert pair.memory[: len(data)] == data
    assert pair.completions()[-1][1] == "SUCCESS"
    return data
