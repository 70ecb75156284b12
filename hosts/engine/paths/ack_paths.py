"""Reverse EV set: EV and plane by which control packets reach one peer (mrc-protocol §6.8).

One slot per plane. An EV gets into it by proof that it leads to the peer: a SACK of our own data that names it, or the
answer to an EV probe. A plane without proof uses the EV on which the peer was heard last. Answers to retransmissions
leave `elsewhere`, the first answer to an EV probe by the way it came. Why: docs/design/control-paths.md.
"""

from __future__ import annotations

from random import Random
from typing import Final

from mrc_testbed.hosts.engine.paths.ev import Ev, EvProfile, shuffle
from mrc_testbed.hosts.engine.paths.ev_state import EvState
from mrc_testbed.hosts.engine.wire.packets import elsewhere

PLANE_FAILURES: Final = 2
"""Number of EV probes unanswered in a row on a plane, after which its proven EV is tried again.

Whichever EVs the probes tried."""
NO_EV: Final = -1
"""Number for no EV: a plain number, since EVs are compared for every packet."""
_WORKING: Final = (EvState.GOOD, EvState.SKIP)


class Slot:
    """State of one plane."""

    __slots__ = ("earlier_heard_ev", "ev", "failed", "heard_ev")

    def __init__(self) -> None:
        self.ev: Ev | None = None
        """Proven to reach the peer."""
        self.heard_ev = NO_EV
        """EV on which a packet of this plane came in last."""
        self.earlier_heard_ev = NO_EV
        """Last different EV before `heard_ev`."""
        self.failed = 0
        """EV probes on this plane without answer since the last proof."""

    @property
    def last_heard(self) -> int | None:
        """EV on which the peer was heard last; None: no packet came in yet."""
        return None if self.heard_ev == NO_EV else self.heard_ev

    @property
    def failing(self) -> bool:
        """Whether no EV is proven and at least one try failed."""
        return self.ev is None and self.failed > 0


class AckPaths:
    """Reverse EV set of one peer.

    `profiles`: those of the QPs connected to the peer, which name the available EVs; the owner keeps the list.
    """

    __slots__ = ("_profiles", "_rng", "_round", "_slots", "_turn", "_usual_next", "proved_at", "rtt_s")

    def __init__(self, planes: int, profiles: list[EvProfile], rng: Random) -> None:
        self._slots = [Slot() for _ in range(planes)]
        self._profiles, self._rng = profiles, rng
        self._turn = 0
        self._usual_next = False
        """Whether the next answer that should go elsewhere leaves by the usual way."""
        self._round: list[int] = []
        """EVs of the first profile that had no probe in this round."""
        self.proved_at = float("-inf")
        """Time at which a SACK of our data last proved an EV."""
        self.rtt_s: float | None = None
        """Smoothed round trip of our EV probes (gain 1/8)."""

    # ---- evidence ---------------------------------------------------------------------------------------

    def on_packet(self, plane: int, ev: int) -> None:
        """Note the EV of a packet that came in from the peer."""
        slot = self._slots[plane]
        if ev != slot.heard_ev:
            slot.earlier_heard_ev, slot.heard_ev = slot.heard_ev, ev

    def on_proof(self, ev: Ev, now: float) -> None:
        """Take an EV as proven: a SACK names a packet of ours that went over it."""
        slot = self._slots[ev.plane]
        slot.ev = ev
        slot.failed = 0
        self.proved_at = now

    def on_probe_answered(self, ev: Ev, rtt_s: float) -> None:
        """Take an EV as proven: an EV probe over it was answered."""
        slot = self._slots[ev.plane]
        slot.ev = ev
        slot.failed = 0
        self.rtt_s = rtt_s if self.rtt_s is None else self.rtt_s + (rtt_s - self.rtt_s) / 8

    def on_probe_unanswered(self, ev: Ev) -> None:
        """Count an unanswered EV probe: the EV may have failed, or the answer's way."""
        slot = self._slots[ev.plane]
        slot.failed += 1
        if slot.ev is ev:
            slot.ev = None

    def forget(self) -> None:
        """Make all planes unproven: the peer may have been restarted, or its QPs are gone."""
        for slot in self._slots:
            slot.ev, slot.failed = None, 0
        self._round.clear()

    # ---- choice -----------------------------------------------------------------------------------------

    def draw(self, free_ports: int) -> Ev | None:
        """Return an EV for the next probe, from the planes in the mask `free_ports`; None: no QP has one.

        First an EV whose proof is in doubt, else each in turn, in random order.
        """
        for plane, slot in enumerate(self._slots):
            if free_ports >> plane & 1 and slot.failed >= PLANE_FAILURES and slot.ev is not None:
                return slot.ev
        if not self._profiles:
            return None
        profile = self._profiles[0]
        for _ in (1, 2):  # what is left of this round, then a whole one
            while self._round:
                ev = profile.find(self._round.pop())
                if ev is not None and free_ports >> ev.plane & 1 and ev.state in _WORKING:
                    return ev
            self._round = profile.values()
            shuffle(self._round, self._rng.random)
        return None

    @property
    def proven(self) -> bool:
        """Some plane has a proven EV."""
        return any(slot.ev is not None for slot in self._slots)

    def _random_ev(self, plane: int, avoid: int | None = None) -> Ev | None:
        """Return a random EV of the plane that our data has not found bad, but not `avoid`; None: none."""
        for profile in self._profiles:
            evs = [ev for ev in profile.on_plane(plane) if ev.state in _WORKING and ev.value != avoid]
            if evs:
                return evs[int(self._rng.random() * len(evs))]
        return None

    def route(self, plane: int, ports_up: int, free_ports: int) -> tuple[int, int]:
        """Return (plane, EV) for a control packet whose trigger came in on `plane`.

        `elsewhere(plane)`: the best-known way but the usual one. `ports_up`: mask of the planes that can be used;
        `free_ports`: of those whose port has room. Returns (ports, NOTHING) when the packet has to wait for room at
        any of `ports`, a mask: 0 when no EV of the planes in `ports_up` is known. A packet rather waits for room than
        to take a plane whose probes fail.
        """
        if plane < 0:
            return self._other_way(elsewhere(plane), ports_up, free_ports)
        slots = self._slots
        if free_ports >> plane & 1 and not slots[plane].failing:
            ev = self._ev(plane)
            if ev != NO_EV:
                return plane, ev
        count, wait = len(slots), 0
        for failing in (False, True):
            # Among failing planes by chance: packets that come in pairs would meet the same ones in turn.
            start = int(self._rng.random() * count) if failing else self._turn
            for step in range(1, count + 1):
                candidate = (start + step) % count
                if ports_up >> candidate & 1 and slots[candidate].failing is failing:
                    ev = self._ev(candidate)
                    if ev == NO_EV:
                        continue
                    if free_ports >> candidate & 1:
                        self._turn = candidate
                        return candidate, ev
                    wait |= 1 << candidate
            if wait:
                break
        return wait, NO_EV

    def _other_way(self, usual: int, ports_up: int, free_ports: int) -> tuple[int, int]:
        """See route(). Planes in turn, the usual one last."""
        self._usual_next = not self._usual_next
        if not self._usual_next:
            return self.route(usual, ports_up, free_ports)
        slot, count = self._slots[usual], len(self._slots)
        avoid = slot.last_heard if slot.ev is None else slot.ev.value
        self._doubt(usual, avoid)
        best_rank: tuple[int, bool, int] | None = None
        way = None
        for step in range(1, count + 1):
            plane = (self._turn + step) % count
            if ports_up >> plane & 1:
                rank, ev = self._best_known_ev(
                    plane, avoid, self._rng.random() < 0.5
                )  # what was heard may be dead this way
                if ev is not None and (best_rank is None or (rank, plane == usual, step) < best_rank):
                    best_rank, way = (rank, plane == usual, step), (plane, ev)
        if way is None:
            return self.route(usual, ports_up, free_ports)  # there is no other
        if not free_ports >> way[0] & 1:
            return 1 << way[0], NO_EV
        self._turn = way[0]
        return way

    def other_ways(self, plane: int, ev: int, ports_up: int) -> list[tuple[int, int]]:
        """Return (plane, EV) of the best-known EV of each usable plane but `plane`.

        On `plane` an answer over `ev` was lost. Without another plane: another EV of `plane`, if there is one, else
        `ev` again.
        """
        self._doubt(plane, ev)
        evs = {
            other_plane: self._best_known_ev(other_plane, ev, True)[1]
            for other_plane in range(len(self._slots))
            if ports_up >> other_plane & 1
        }
        own_ev = evs.pop(plane, None)
        return [(p, e) for p, e in evs.items() if e is not None] or [(plane, ev if own_ev is None else own_ev)]

    def _doubt(self, plane: int, ev: int | None) -> None:
        """Doubt an EV over which an answer was lost: the next EV probe tests it."""
        slot = self._slots[plane]
        if slot.ev is not None and slot.ev.value == ev:
            slot.failed = max(slot.failed, PLANE_FAILURES)

    def _best_known_ev(self, plane: int, avoid: int | None, heard: bool) -> tuple[int, int | None]:
        """Return (rank, EV) of the best-known EV of a plane.

        Ranks: 0 = proven, 1 = heard, 2 = any, 3 = probes of the plane fail. `heard`: EVs on which the peer was heard
        come before any.
        """
        slot = self._slots[plane]
        if slot.ev is not None and slot.ev.value != avoid and slot.ev.state in _WORKING and not slot.failed:
            return 0, slot.ev.value
        rank = 3 if slot.failing else 1
        for value in (slot.heard_ev, slot.earlier_heard_ev) if heard else ():
            if value != NO_EV and value != avoid:
                return rank, value
        ev = self._random_ev(plane, avoid)
        return max(rank, 2), None if ev is None else ev.value

    def _ev(self, plane: int) -> int:
        """Return the EV of a plane for the usual answer, or NO_EV."""
        slot = self._slots[plane]
        ev = slot.ev
        if ev is not None and ev.state not in _WORKING:
            ev = slot.ev = None
        if ev is not None:
            return ev.value
        if slot.heard_ev != NO_EV and not (slot.failing and self._profiles):
            return slot.heard_ev
        ev = self._random_ev(plane)
        return slot.heard_ev if ev is None else ev.value
