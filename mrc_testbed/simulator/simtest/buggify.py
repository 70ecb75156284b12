"""Rare and legal behaviour of a host and its engine, on request (after FoundationDB's macro).

`RareEngine` stands between a virtual host and its engine, where the clock, the ports, the wire and the application are:
what the engine may do or suffer rarely is done there, and nothing of it is in the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from mrc_testbed.hosts.engine.deadlines import NEVER
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.events import Event
from mrc_testbed.hosts.engine.paths.ev import Ev
from mrc_testbed.hosts.engine.paths.ev_state import EvState
from mrc_testbed.hosts.engine.wire.packets import EndpointResponse, Nack, PacketRecord, Sack, TransportAck
from mrc_testbed.simulator.host import HostEngine

POINTS: Final = {
    "timer late": "a host without CPU looks at its clock late; a timer says when something may be done, not when it is",
    "backup EV early": "which EVs of a plane are in the rotation is free; the one that leaves it is a backup now",
    "completion late": "what an application does after an event has no deadline, and its next write needs none before",
    "ports seem full": "a port is asked again after a while, and says nothing about the path behind it",
    "bursts of one": "how many packets a queue pair sends in its turn is free",
    "probe unanswered": "a SACK may be lost, and the probe is repeated",
    "Transport ACK lost": "a probe of what is awaited has it said again",
    "NACK lost": "the packet's timer runs, and a copy of it is refused again if it has to be",
    "request unanswered": "port status updates and EV probes are repeated",
}
"""Points of rare behaviour, each with the reason why the rest of the system must tolerate it."""
LATE_S: Final = 0.02
"""Most that a timer or an event is late."""
AGAIN_S: Final = 0.002
"""Most that a port seems full for."""
RARE_S: Final = 2 * LATE_S + 5 * AGAIN_S
"""Seconds that rare behaviour adds between two charges of a retry budget.

A timer is late at either end, and ports seem full several times in a row.
"""


class Chance:
    """Decisions of a run, drawn from the seed of its schedule: a `share` of them is yes."""

    def __init__(self, seed: int, share: float) -> None:
        self.rng, self._share = Random(seed ^ 0xB06), share

    def happens(self, _point: str) -> bool:
        return self.rng.random() < self._share


class RareEngine:
    """Engine with rare behaviour of its host."""

    def __init__(self, engine: HostEngine, endpoint: Endpoint, chance: Chance) -> None:
        self._engine, self._endpoint, self._chance = engine, endpoint, chance
        self._now = 0.0
        self._due = self._late_until = NEVER
        """Time of the engine's next timer, and time when the timer is run."""
        self._again_at = NEVER
        """Time when the engine is asked for packets in any case."""
        self._late_events: list[Event] = []
        """Events that are delivered late, at `_release_at`."""
        self._release_at = 0.0

    @property
    def is_late(self) -> bool:
        """Whether a timer is due and not run yet."""
        return self._due <= self._now < self._late_until

    def receive(self, packet: PacketRecord, plane: int, peer: str, now: float) -> None:
        self._now = now
        self._engine.receive(packet, plane, peer, now)

    def on_port(self, plane: int, is_up: bool, now: float) -> None:
        self._now = now
        self._engine.on_port(plane, is_up, now)

    def next_deadline(self, now: float) -> float:
        due = self._engine.next_deadline(now)
        if due not in (NEVER, self._due):
            is_timer_late = self._chance.happens("timer late")
            self._late_until = max(due, self._now) + self._chance.rng.uniform(0, LATE_S) if is_timer_late else due
        self._due = due
        first = min(NEVER if due == NEVER else self._late_until, self._again_at)
        return min(first, self._release_at) if self._late_events else first

    def on_timer(self, now: float) -> None:
        self._now = now
        if self._again_at <= now:
            self._again_at = NEVER
        if not self.is_late:
            self._engine.on_timer(now)
            if self._chance.happens("backup EV early"):
                self._swap(now)

    def _swap(self, now: float) -> None:
        """Swap an EV in rotation with a backup."""
        pairs = [
            (qp, ev)
            for qp in self._endpoint._qps.values()
            if qp.sends and qp.transport == "mrc"
            for ev in qp.paths.profile
            if ev.active and _has_backup(qp.paths.profile.on_plane(ev.plane))
        ]
        if pairs:
            qp, ev = self._chance.rng.choice(pairs)
            qp.deny_ev(ev.value, True, now)
            qp.deny_ev(ev.value, False, now)

    def transmit(
        self, now: float, limit: int = 64, room: list[int] | None = None
    ) -> list[tuple[int, str, PacketRecord]]:
        self._now = now
        port_room = [limit] * self._endpoint.planes if room is None else list(room)
        if self._chance.happens("ports seem full"):
            port_room = [self._chance.rng.choice((0, packets)) for packets in port_room]
            self._again_at = now + self._chance.rng.uniform(0, AGAIN_S)
        burst = 1 if self._chance.happens("bursts of one") else limit
        out: list[tuple[int, str, PacketRecord]] = []
        while len(out) < limit:
            sent = self._engine.transmit(now, burst, port_room)
            for plane, _, _ in sent:
                port_room[plane] -= 1
            out += sent
            if burst == limit or not sent:
                break
        arriving = [item for item in out if not self._is_lost(item[2])]
        if len(arriving) < len(out):
            self._again_at = now  # for the host a call that gives less than it asked for is the last one
        return arriving

    def _is_lost(self, packet: PacketRecord) -> bool:
        kind = type(packet)
        if kind is TransportAck:
            return self._chance.happens("Transport ACK lost")
        if kind is Nack:
            return self._chance.happens("NACK lost")
        if kind is EndpointResponse:
            return self._chance.happens("request unanswered")
        return isinstance(packet, Sack) and packet.probe_id is not None and self._chance.happens("probe unanswered")

    def events(self) -> list[Event]:
        new_events = self._engine.events()
        if new_events and not self._late_events and self._chance.happens("completion late"):
            self._release_at = self._now + self._chance.rng.uniform(0, LATE_S)
        self._late_events += new_events
        if self._now < self._release_at:
            return []
        due_events, self._late_events = self._late_events, []
        return due_events


def _has_backup(evs: Sequence[Ev]) -> bool:
    """Whether one of a plane's EVs may join the rotation."""
    return any(ev.state is EvState.GOOD and not ev.active for ev in evs)
