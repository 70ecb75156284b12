"""EVs of one queue pair over time: rotation, backups, bad EVs, and the losses meanwhile.

    life = QpLife(timing, planes, usable, others, others_members, dice)
    life.run(start_s, end_s)
    life.changes, life.losses

The rules are those of EvProfile and QpPaths (hosts/engine/paths): a packet lost retires its EV, a GOOD backup of the
plane takes the slot, probes leave every interval while it is bad, so many answers in a row bring it back, twice as many
each time, and a floor keeps the last EVs. A test holds this file and EvProfile together. What differs: nothing here is
a packet. An EV over a path that is dead from `a` to `b` loses what it would have sent, from its first turn after `a`
until it is retired, and what a probe would find is read off the intervals; so a step is taken at a retirement or a
return and at nothing else, however long the path stays dead.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from math import ceil
from random import Random
from typing import Final, NamedTuple

EMPTY: Final = -1
"""A slot of the rotation without an EV."""
RETIRED, RETURNED = 0, 1
_RETIRE, _RETURN = 0, 1
RETIRE_SPREAD: Final = 0.25
Intervals = list[tuple[float, float]]
"""Disjoint (from, to) intervals, seconds, in order."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of the engine's rules, seconds."""

    retire_s: float
    """Mean time from the first packet lost on an EV until the EV is retired.

    The drawn time differs by up to RETIRE_SPREAD of it.
    """
    notice_s: float
    """Time from the end of a NIC port until its peers know."""
    probe_interval_s: float
    probe_timeout_s: float
    probe_ok_count: int
    probe_ok_max: int
    probe_forgive_s: float
    rtt_s: float


class Change(NamedTuple):
    """An EV left or came back."""

    at: float
    plane: int
    ev: int
    """Place of the EV in its plane's order."""
    kind: int
    """RETIRED, or RETURNED."""
    slot: int
    """Slot of the rotation that it had or got; EMPTY: it is a backup now."""
    by: int
    """EV that took its slot; EMPTY: none."""


class Loss(NamedTuple):
    """An EV in use over a dead path."""

    start: float
    stop: float
    share: float
    """Share of the QP's packets that the loss takes."""


@dataclass(slots=True)
class PlaneEvs:
    """One plane of a QP at its start, and when its paths are dead."""

    plane: int
    slots: list[int]
    """EVs in rotation."""
    backups: deque[int]
    dead: dict[int, Intervals]
    """Intervals in which an EV is dead; EVs that never die have no entry."""
    members: int
    down: Intervals = field(default_factory=list)
    """The port is down at an end, and both know."""


class QpLife:
    """EVs of one QP from its first packet to the end; see the module.

    Planes where nothing breaks are not given: `others` EVs in rotation, of `others_members`.

    `turn_s`: from one packet of an EV to its next.
    """

    def __init__(
        self,
        timing: Timing,
        planes: list[PlaneEvs],
        usable: int,
        others: int,
        others_members: int,
        dice: Random,
        turn_s: float = 0.0,
    ) -> None:
        self.timing = timing
        self._dice, self._turn_s = dice, turn_s
        self.planes = {plane.plane: plane for plane in planes}
        self.usable = usable
        """Planes of the QP."""
        self.changes: list[Change] = []
        self.losses: list[Loss] = []
        self.probes = 0
        """Probes sent while EVs were bad."""
        self.probed_until: dict[tuple[int, int], float] = {}
        """Start of the bad time of each EV that is bad at the end, by (plane, EV)."""
        self._others, self._others_members = others, others_members
        self._events: list[tuple[float, int, int, int, int, int]] = []
        self._serial = 0
        self._needed: dict[tuple[int, int], int] = {}
        self._fault_at: dict[tuple[int, int], float] = {}

    # ---- running ----------------------------------------------------------------------------------------

    def run(self, start_s: float, end_s: float) -> None:
        """Live from the QP's first packet to the end."""
        for plane in self.planes.values():
            for slot, ev in enumerate(plane.slots):
                if ev in plane.dead:
                    self._enter(plane, slot, ev, start_s, end_s)
        while self._events and self._events[0][0] < end_s:
            at, _, kind, number, ev, slot = heapq.heappop(self._events)
            plane = self.planes[number]
            if kind == _RETIRE:
                if plane.slots[slot] == ev:
                    self._retire(plane, slot, ev, at, end_s)
            else:
                self._return(plane, ev, at, end_s)
        for (number, ev), since in self.probed_until.items():
            if ev in self.planes[number].dead:
                self.probes += int((end_s - since) / self.timing.probe_interval_s)

    def _push(self, at: float, kind: int, plane: int, ev: int, slot: int) -> None:
        self._serial += 1
        heapq.heappush(self._events, (at, self._serial, kind, plane, ev, slot))

    def _enter(self, plane: PlaneEvs, slot: int, ev: int, at: float, end_s: float) -> None:
        """An EV is in use from now on: find out what it will lose."""
        for begins, stops in plane.dead.get(ev, ()):
            if stops <= at or begins >= end_s:
                continue
            since = max(begins, at)
            first = since + self._turn_s * self._dice.random()
            retired = first + self.timing.retire_s * (1 + RETIRE_SPREAD * (2 * self._dice.random() - 1))
            if first >= stops and since > at:
                continue  # between two of its turns
            used = sum(one != EMPTY for one in plane.slots)
            for start, stop in without(plane.down, since, min(retired, stops, end_s)):
                self.losses.append(Loss(start, stop, 1.0 / (self.usable * used)))
            if not covered(plane.down, since, min(retired, stops)):
                self._push(retired, _RETIRE, plane.plane, ev, slot)
                return

    # ---- states -----------------------------------------------------------------------------------------

    def _retire(self, plane: PlaneEvs, slot: int, ev: int, at: float, end_s: float) -> None:
        if not plane.backups and self._at_floor(at, plane):
            self._keep(plane, slot, ev, at, end_s)
            return
        key = (plane.plane, ev)
        self._hold_down(key, at)
        by = EMPTY
        if plane.backups:
            by = plane.backups.popleft()
        plane.slots[slot] = by
        self.changes.append(Change(at, plane.plane, ev, RETIRED, slot, by))
        self.probed_until[key] = at
        back = self._back_at(plane.dead.get(ev, []), at, self._needed[key])
        if back is not None:
            self._push(back, _RETURN, plane.plane, ev, EMPTY)
        if by != EMPTY:
            self._enter(plane, slot, by, at, end_s)

    def _keep(self, plane: PlaneEvs, slot: int, ev: int, at: float, end_s: float) -> None:
        """The floor keeps it: it goes on losing until its path is alive again."""
        stops = next((b for a, b in plane.dead.get(ev, ()) if a <= at < b), at)
        used = sum(one != EMPTY for one in plane.slots)
        if stops > at:
            self.losses.append(Loss(at, min(stops, end_s), 1.0 / (self.usable * used)))
        if stops < end_s:
            self._enter(plane, slot, ev, stops, end_s)

    def _return(self, plane: PlaneEvs, ev: int, at: float, end_s: float) -> None:
        key = (plane.plane, ev)
        self.probes += int((at - self.probed_until.pop(key)) / self.timing.probe_interval_s)
        if EMPTY in plane.slots:
            slot = plane.slots.index(EMPTY)
            plane.slots[slot] = ev
            self.changes.append(Change(at, plane.plane, ev, RETURNED, slot, EMPTY))
            self._enter(plane, slot, ev, at, end_s)
        else:
            plane.backups.append(ev)
            self.changes.append(Change(at, plane.plane, ev, RETURNED, EMPTY, EMPTY))

    def _at_floor(self, at: float, asking: PlaneEvs) -> bool:
        """No more EVs in rotation than ev_min_active, a quarter of those of the planes that are up, leaves."""
        active, members = self._others, self._others_members
        for plane in self.planes.values():
            if not inside(plane.down, at):
                active += sum(slot != EMPTY for slot in plane.slots)
                members += plane.members
        return active <= max(1, members // 4) and not inside(asking.down, at)

    def _hold_down(self, key: tuple[int, int], at: float) -> None:
        """Answers needed for the way back: twice as many at each fault, half for each quiet minute between."""
        timing = self.timing
        needed = self._needed.get(key, timing.probe_ok_count)
        if key in self._fault_at:
            quiet = int((at - self._fault_at[key]) / timing.probe_forgive_s)
            needed = max(timing.probe_ok_count, min(needed * 2 >> min(quiet, 64), timing.probe_ok_max))
        self._needed[key], self._fault_at[key] = needed, at

    def _back_at(self, dead: Intervals, since: float, needed: int) -> float | None:
        """Return when enough successive probes were answered over a path; None: never.

        `dead`: the path's dead intervals.

        Probe k leaves k intervals after the retirement, and is asked again half of its time later.
        """
        interval, grace = self.timing.probe_interval_s, self.timing.probe_timeout_s / 2
        place = bisect_right(dead, (since, float("inf")))
        alive = since if place == 0 or dead[place - 1][1] <= since else dead[place - 1][1]
        while alive != float("inf"):
            dies = dead[place][0] if place < len(dead) else float("inf")
            first = max(1, ceil((alive - grace - since) / interval))
            last = since + (first + needed - 1) * interval
            if last < dies:
                return last + self.timing.rtt_s
            alive = dead[place][1]
            place += 1
        return None


# ---- intervals ------------------------------------------------------------------------------------------------


def inside(intervals: Intervals, at: float) -> bool:
    """Whether a moment is in one of them."""
    place = bisect_right(intervals, (at, float("inf"))) - 1
    return place >= 0 and intervals[place][1] > at


def covered(intervals: Intervals, start: float, stop: float) -> bool:
    """Whether one of them holds all of (start, stop)."""
    return any(a <= start and stop <= b for a, b in intervals)


def without(intervals: Intervals, start: float, stop: float) -> Intervals:
    """Return the parts of (start, stop) outside the intervals."""
    out = []
    for a, b in intervals:
        if b <= start or a >= stop:
            continue
        if a > start:
            out.append((start, a))
        start = max(start, b)
    if start < stop:
        out.append((start, stop))
    return out


def union(*many: Intervals) -> Intervals:
    """Merge lists of intervals into one."""
    out: Intervals = []
    for a, b in sorted(one for some in many for one in some):
        if out and a <= out[-1][1]:
            out[-1] = (out[-1][0], max(b, out[-1][1]))
        else:
            out.append((a, b))
    return out
