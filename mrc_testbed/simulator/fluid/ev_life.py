"""EVs of one queue pair over time: rotation, backups, bad EVs, and the losses meanwhile.

    life = QpLife(timing, planes, usable_planes, healthy_active, healthy_members, dice)
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
EV_RETIRED, EV_RETURNED = 0, 1
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
    """Time from the failure of a NIC port until its peers know."""
    probe_interval_s: float
    probe_timeout_s: float
    probe_ok_count: int
    probe_ok_max: int
    probe_forgive_s: float
    rtt_s: float


class Change(NamedTuple):
    """Retirement or return of one EV."""

    time_s: float
    plane: int
    ev: int
    """Position of the EV in its plane's order."""
    kind: int
    """EV_RETIRED, or EV_RETURNED."""
    slot: int
    """Slot of the rotation that the EV had or got; EMPTY: the EV is a backup now."""
    replacement: int
    """EV that took the slot; EMPTY: none."""


class Loss(NamedTuple):
    """Interval in which an EV in use sends over a dead path."""

    start: float
    stop: float
    share: float
    """Share of the QP's packets that the loss takes."""
    by_timer: bool = False
    """Whether only the retry timer finds the losses, as in a plane that has lost its port."""


@dataclass(slots=True)
class PlaneEvs:
    """One plane of a QP at its start, with the dead intervals of its paths."""

    plane: int
    slots: list[int]
    """EVs in rotation."""
    backups: deque[int]
    dead_intervals: dict[int, Intervals]
    """Intervals in which an EV is dead; EVs that never die have no entry."""
    members: int
    down_intervals: Intervals = field(default_factory=list)
    """Intervals in which the port is down at an end, and both ends know."""


class QpLife:
    """EVs of one QP from its first packet to the end; see the module.

    Healthy planes are given as counts alone: `healthy_active` EVs in rotation, of `healthy_members`.

    `turn_s`: seconds from one packet of an EV to its next.
    """

    def __init__(
        self,
        timing: Timing,
        planes: list[PlaneEvs],
        usable_planes: int,
        healthy_active: int,
        healthy_members: int,
        dice: Random,
        turn_s: float = 0.0,
    ) -> None:
        self.timing = timing
        self._dice, self._turn_s = dice, turn_s
        self.planes = {plane.plane: plane for plane in planes}
        self.usable_planes = usable_planes
        """Planes of the QP."""
        self.changes: list[Change] = []
        self.losses: list[Loss] = []
        self.probes = 0
        """Probes sent while EVs were bad."""
        self.probed_until: dict[tuple[int, int], float] = {}
        """Start of the bad time of each EV that is bad at the end, by (plane, EV)."""
        self._healthy_active, self._healthy_members = healthy_active, healthy_members
        self._events: list[tuple[float, int, int, int, int, int]] = []
        self._serial = 0
        self._answers_needed: dict[tuple[int, int], int] = {}
        self._fault_at: dict[tuple[int, int], float] = {}

    # ---- running ----------------------------------------------------------------------------------------

    def run(self, start_s: float, end_s: float) -> None:
        """Run from the QP's first packet to the end."""
        for plane in self.planes.values():
            for slot, ev in enumerate(plane.slots):
                if ev in plane.dead_intervals:
                    self._enter(plane, slot, ev, start_s, end_s)
        while self._events and self._events[0][0] < end_s:
            time_s, _, kind, number, ev, slot = heapq.heappop(self._events)
            plane = self.planes[number]
            if kind == _RETIRE:
                if plane.slots[slot] == ev:
                    self._retire(plane, slot, ev, time_s, end_s)
            else:
                self._return(plane, ev, time_s, end_s)
        for (number, ev), bad_from in self.probed_until.items():
            if ev in self.planes[number].dead_intervals:
                self.probes += int((end_s - bad_from) / self.timing.probe_interval_s)

    def _push(self, time_s: float, kind: int, plane: int, ev: int, slot: int) -> None:
        self._serial += 1
        heapq.heappush(self._events, (time_s, self._serial, kind, plane, ev, slot))

    def _enter(self, plane: PlaneEvs, slot: int, ev: int, time_s: float, end_s: float) -> None:
        """Record the losses of an EV that is in use from now on, and schedule its retirement."""
        for dead_from, dead_until in plane.dead_intervals.get(ev, ()):
            if dead_until <= time_s or dead_from >= end_s:
                continue
            loss_start = max(dead_from, time_s)
            first = loss_start + self._turn_s * self._dice.random()
            retire_time = first + self.timing.retire_s * (1 + RETIRE_SPREAD * (2 * self._dice.random() - 1))
            if first >= dead_until and loss_start > time_s:
                continue  # between two of its turns
            used_slots = sum(slot_ev != EMPTY for slot_ev in plane.slots)
            for start, stop in without(plane.down_intervals, loss_start, min(retire_time, dead_until, end_s)):
                self.losses.append(Loss(start, stop, 1.0 / (self.usable_planes * used_slots)))
            if not covered(plane.down_intervals, loss_start, min(retire_time, dead_until)):
                self._push(retire_time, _RETIRE, plane.plane, ev, slot)
                return

    # ---- states -----------------------------------------------------------------------------------------

    def _retire(self, plane: PlaneEvs, slot: int, ev: int, time_s: float, end_s: float) -> None:
        if not plane.backups and self._at_floor(time_s, plane):
            self._keep(plane, slot, ev, time_s, end_s)
            return
        key = (plane.plane, ev)
        self._hold_down(key, time_s)
        replacement = EMPTY
        if plane.backups:
            replacement = plane.backups.popleft()
        plane.slots[slot] = replacement
        self.changes.append(Change(time_s, plane.plane, ev, EV_RETIRED, slot, replacement))
        self.probed_until[key] = time_s
        return_time = self._back_at(plane.dead_intervals.get(ev, []), time_s, self._answers_needed[key])
        if return_time is not None:
            self._push(return_time, _RETURN, plane.plane, ev, EMPTY)
        if replacement != EMPTY:
            self._enter(plane, slot, replacement, time_s, end_s)

    def _keep(self, plane: PlaneEvs, slot: int, ev: int, time_s: float, end_s: float) -> None:
        """Keep an EV in rotation because of the floor: it loses packets until its path is alive again."""
        stops = next((b for a, b in plane.dead_intervals.get(ev, ()) if a <= time_s < b), time_s)
        used_slots = sum(slot_ev != EMPTY for slot_ev in plane.slots)
        if stops > time_s:
            self.losses.append(Loss(time_s, min(stops, end_s), 1.0 / (self.usable_planes * used_slots)))
        if stops < end_s:
            self._enter(plane, slot, ev, stops, end_s)

    def _return(self, plane: PlaneEvs, ev: int, time_s: float, end_s: float) -> None:
        key = (plane.plane, ev)
        self.probes += int((time_s - self.probed_until.pop(key)) / self.timing.probe_interval_s)
        if EMPTY in plane.slots:
            slot = plane.slots.index(EMPTY)
            plane.slots[slot] = ev
            self.changes.append(Change(time_s, plane.plane, ev, EV_RETURNED, slot, EMPTY))
            self._enter(plane, slot, ev, time_s, end_s)
        else:
            plane.backups.append(ev)
            self.changes.append(Change(time_s, plane.plane, ev, EV_RETURNED, EMPTY, EMPTY))

    def _at_floor(self, time_s: float, retiring_plane: PlaneEvs) -> bool:
        """Whether the rotation is at ev_min_active: a quarter of the EVs of the planes that are up."""
        active, members = self._healthy_active, self._healthy_members
        for plane in self.planes.values():
            if not is_inside(plane.down_intervals, time_s):
                active += sum(slot != EMPTY for slot in plane.slots)
                members += plane.members
        return active <= max(1, members // 4) and not is_inside(retiring_plane.down_intervals, time_s)

    def _hold_down(self, key: tuple[int, int], time_s: float) -> None:
        """Set the answers needed to return: twice as many at each fault, half for each quiet minute between."""
        timing = self.timing
        answers_needed = self._answers_needed.get(key, timing.probe_ok_count)
        if key in self._fault_at:
            quiet = int((time_s - self._fault_at[key]) / timing.probe_forgive_s)
            answers_needed = max(timing.probe_ok_count, min(answers_needed * 2 >> min(quiet, 64), timing.probe_ok_max))
        self._answers_needed[key], self._fault_at[key] = answers_needed, time_s

    def _back_at(self, dead_intervals: Intervals, retired_at: float, answers_needed: int) -> float | None:
        """Return the time when enough successive probes were answered over a path; None: never.

        `dead_intervals`: of the path.

        Probe k leaves k intervals after the retirement, and is repeated half of its timeout later.
        """
        interval, grace = self.timing.probe_interval_s, self.timing.probe_timeout_s / 2
        index = bisect_right(dead_intervals, (retired_at, float("inf")))
        alive_from = (
            retired_at if index == 0 or dead_intervals[index - 1][1] <= retired_at else dead_intervals[index - 1][1]
        )
        while alive_from != float("inf"):
            dies = dead_intervals[index][0] if index < len(dead_intervals) else float("inf")
            first = max(1, ceil((alive_from - grace - retired_at) / interval))
            last = retired_at + (first + answers_needed - 1) * interval
            if last < dies:
                return last + self.timing.rtt_s
            alive_from = dead_intervals[index][1]
            index += 1
        return None


# ---- intervals ------------------------------------------------------------------------------------------------


def is_inside(intervals: Intervals, time_s: float) -> bool:
    """Whether a moment is in one of the intervals."""
    index = bisect_right(intervals, (time_s, float("inf"))) - 1
    return index >= 0 and intervals[index][1] > time_s


def covered(intervals: Intervals, start: float, stop: float) -> bool:
    """Whether one interval holds all of (start, stop)."""
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


def union(*interval_lists: Intervals) -> Intervals:
    """Merge lists of intervals into one."""
    out: Intervals = []
    for a, b in sorted(interval for intervals in interval_lists for interval in intervals):
        if out and a <= out[-1][1]:
            out[-1] = (out[-1][0], max(b, out[-1][1]))
        else:
            out.append((a, b))
    return out
