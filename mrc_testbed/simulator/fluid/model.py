"""Run of the fluid model: every EV of every queue pair through faults, and the rates step by step.

    result = simulate(shape, pairs, outages, settings, edges_s, watch)

Steps are taken at events alone: an EV that retires or comes back, a port, a QP that starts or ends (ev_life.py, one QP
after the other, only those that something happens to). In between are intervals, at whose ends rates are settled anew
where loads changed (sharing.py). Memory: some 4 KB a QP of 256 EVs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import exp, inf
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mrc_testbed.simulator.fluid.calibration import Calibration
from mrc_testbed.simulator.fluid.ev_life import (
    EMPTY,
    RETIRED,
    Change,
    Intervals,
    Loss,
    PlaneEvs,
    QpLife,
    Timing,
    inside,
    union,
)
from mrc_testbed.simulator.fluid.outages import Outages
from mrc_testbed.simulator.fluid.shape import Bools, FabricShape, Floats, Ints, QueuePairs, Singles
from mrc_testbed.simulator.fluid.sharing import NO_SPINE, SWEEPS_MAX, Sharing

ABSENT, ROTATION, BACKUP, BAD, DENIED = range(5)
"""States of an EV; ABSENT: the QP has fewer EVs (inside a rack, one a plane)."""
CHUNK: Final = 4096
"""QPs worked on at a time, which bounds the memory."""
YOUNG_RTTS: Final = 10.0
"""A QP is young for so many base round trips: its windows open, and it loses less."""
NEAR: Final = 0.6
"""Share of a notice's time inside a rack."""
STUCK_MIN: Final = 1e-3
"""Part of a window that is stuck and no longer matters."""
FEW_SWEEPS: Final = 8
"""Sweeps after a change; rates begin from their former values."""
SMALL: Final = 2048
"""QPs that are always settled all at once, and to the end."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Inputs of a run beside its fabric."""

    timing: Timing
    calibration: Calibration
    seed: int
    denylist: bool = False
    """EVs over links that are dead at the start are DENIED."""
    retry_budget_s: float = inf
    """A QP that has no path for so long fails."""


@dataclass(slots=True)
class FluidResult:
    """Result of a run; entry i of a series is the interval that ends at edge i + 1."""

    states: NDArray[np.int8]
    """[QP, plane, EV]: state of each EV in the end, in the order of its plane."""
    spines: NDArray[np.uint16]
    """The T1 of each."""
    lost: Floats
    """Packets lost by each QP."""
    lost_series: Floats
    """Packets found lost in each interval."""
    changes: list[tuple[int, Change]]
    """(QP, change), in order of time."""
    failed: list[tuple[float, int]]
    """(time, QP) of the QPs without a path for longer than the retry budget."""
    ports: list[tuple[float, int, int, bool]]
    """(time, QP, plane, up) of each plane withdrawn or readmitted."""
    probes: int
    """Probes sent over bad EVs."""

    def count(self, state: int) -> int:
        """EVs in a state."""
        return int(np.count_nonzero(self.states == state))


Watch = Callable[[int, Singles], None]
"""Callback with the number of an interval and the payload rate of each QP in it, bits/s."""


def simulate(
    shape: FabricShape,
    pairs: QueuePairs,
    outages: Outages,
    settings: Settings,
    edges_s: Floats,
    watch: Watch,
    progress: Callable[[float], None] = lambda _: None,
) -> FluidResult:
    """Run the model and return its result.

    `edges_s`: edges of the intervals, from 0 on.
    """
    return _Model(shape, pairs, outages, settings, edges_s).run(watch, progress)


class _Model:
    def __init__(
        self, shape: FabricShape, pairs: QueuePairs, outages: Outages, settings: Settings, edges_s: Floats
    ) -> None:
        self.shape, self.pairs, self.outages, self.settings, self.edges = shape, pairs, outages, settings, edges_s
        self.rng = np.random.default_rng(settings.seed)
        self.sharing = Sharing(shape, settings.calibration, pairs)
        count, planes, evs = len(pairs), shape.planes, shape.evs_per_plane
        self.states: NDArray[np.int8] = np.full((count, planes, evs), ABSENT, np.int8)
        self.spines: NDArray[np.uint16] = np.zeros((count, planes, evs), np.uint16)
        self.changes: list[tuple[int, Change]] = []
        self.ports: list[tuple[float, int, int, bool]] = []
        self.failed: list[tuple[float, int]] = []
        self.losses: dict[int, list[Loss]] = {}
        self.probes = 0
        self._mortal: dict[int, list[int]] = {}
        """QP x plane -> EVs over links that are ever out."""

    # ---- before the first packet ------------------------------------------------------------------------

    def draw(self) -> None:
        """Draw the order of each plane's EVs by the seed; the first are in rotation.

        Inside a rack there is one EV for each plane.
        """
        shape, sharing = self.shape, self.sharing
        racks, planes, per_plane, slots = shape.racks, shape.planes, shape.evs_per_plane, shape.rotation
        dead = self._dead_at_start() if self.settings.denylist else None
        first = np.arange(planes)[None, :, None] * racks
        for part in _parts(len(self.pairs)):
            count = len(self.pairs.sources[part])
            draws = self.rng.random((count, planes, shape.spines), dtype=np.float32)
            order = draws.argsort(axis=2)[:, :, :per_plane].astype(np.int64)
            states = np.full(order.shape, BACKUP, np.int8)
            if dead is not None:
                up = (first + sharing.source[part][:, None, None]) * shape.spines + order
                down = (first + sharing.target[part][:, None, None]) * shape.spines + order
                states[dead[0].ravel()[up] | dead[1].ravel()[down]] = DENIED
            # The first `slots` EVs of the order that are not denied go into rotation, the others stay backups.
            good = states == BACKUP
            place = np.cumsum(good, axis=2)
            in_use = good & (place <= slots)
            states[in_use] = ROTATION
            spine = np.full((count, planes, slots), NO_SPINE, np.uint16)
            qp, plane, ev = np.nonzero(in_use)
            spine[qp, plane, place[qp, plane, ev] - 1] = order[qp, plane, ev]
            # Inside a rack there is no T1 to choose: one EV a plane, whose spine number only fills the slot.
            local = sharing.local[part]
            states[local] = ABSENT
            states[local, :, 0] = ROTATION
            spine[local] = NO_SPINE
            spine[local, :, 0] = 0
            self.states[part], self.spines[part] = states, order
            sharing.spine[part] = spine
            there = spine != NO_SPINE
            sharing.share[part] = there / np.maximum(there.sum(axis=2, keepdims=True), 1)

    def _dead_at_start(self) -> tuple[Bools, Bools]:
        """[plane, rack, spine]: T0-T1 links that are out at 0, on their way up and down."""
        shape, now = self.shape, self.outages.dead_at(0.0)
        up, down = (np.zeros((shape.planes, shape.racks, shape.spines), bool) for _ in range(2))
        for what, plane, number, other in now:
            if what == "up":
                up[plane, number, other] = True
            elif what == "down":
                down[plane, number, other] = True
            elif what == "spine":
                up[plane, :, number] = True
        return up, down

    # ---- what happens to EVs ----------------------------------------------------------------------------

    def live(self, progress: Callable[[float], None]) -> None:
        """Let each QP live that an outage touches."""
        touched = self._touched()
        for number, qp in enumerate(touched):
            if number % CHUNK == 0:
                progress(number / len(touched))
            self._live_one(int(qp))
        self.changes.sort(key=lambda one: (one[1].at, one[0]))
        self.ports.sort()

    def _touched(self) -> Ints:
        """QPs with an EV in rotation over a link, or a host at a port, that is ever out.

        A backup over a dead link is nothing to them until it is needed.
        """
        shape, sharing = self.shape, self.sharing
        if not self.outages.places:
            return np.zeros(0, np.int64)
        up, down = (one.ravel() for one in self.outages.ever_dead())
        at_fault = self.outages.hosts_at_fault()
        self._at_fault: Bools = at_fault[:, self.pairs.sources].T | at_fault[:, self.pairs.targets].T
        self._rows: Bools = self._at_fault.copy()
        first = np.arange(shape.planes)[None, :, None] * shape.racks
        for part in _parts(len(self.pairs)):
            spine = self.spines[part].astype(np.int64)
            there = up[(first + sharing.source[part][:, None, None]) * shape.spines + spine]
            there |= down[(first + sharing.target[part][:, None, None]) * shape.spines + spine]
            there &= ~sharing.local[part][:, None, None] & (self.states[part] != DENIED)
            self._rows[part] |= (there & (self.states[part] == ROTATION)).any(axis=2)
            there &= self._rows[part][:, :, None]
            qp, plane, ev = np.nonzero(there)
            for row, place in zip(((qp + part.start) * shape.planes + plane).tolist(), ev.tolist(), strict=True):
                self._mortal.setdefault(row, []).append(place)
        found: Ints = np.flatnonzero(self._rows.any(axis=1))
        return found

    def _live_one(self, qp: int) -> None:
        shape, pairs, timing = self.shape, self.pairs, self.settings.timing
        source, target = int(pairs.sources[qp]), int(pairs.targets[qp])
        racks = source // shape.hosts_per_rack, target // shape.hosts_per_rack
        start, end = float(pairs.starts_s[qp]), min(float(pairs.stops_s[qp]), float(self.edges[-1]))
        given, others, members, usable = [], 0, 0, 0
        for plane in range(shape.planes):
            states = self.states[qp, plane]
            in_use = int(np.count_nonzero(states == ROTATION))
            usable += in_use > 0
            # Nothing breaks in such a plane: its EVs count, but need no life of their own.
            if not self._rows[qp, plane]:
                others += in_use
                members += int(np.count_nonzero(states != ABSENT))
                continue
            given.append(self._plane_of(qp, plane, source, target, racks))
        dice = Random(self.settings.seed * 1_000_003 + qp)
        life = QpLife(timing, given, max(1, usable), others, members, dice, shape.rotation / shape.packets_per_s)
        life.run(start, end)
        self.changes += [(qp, change) for change in life.changes]
        losses = life.losses
        notice_s = timing.notice_s * (NEAR if racks[0] == racks[1] else 1.0)
        for one in given:
            for begins, stops in one.down:
                if begins < end and stops > start:
                    self.ports.append((max(begins, start) + notice_s, qp, one.plane, False))
                    # A port that was down before the QP began is known, so nothing is sent into it.
                    if begins >= start:
                        losses.append(Loss(begins, begins + notice_s, 1.0 / max(1, usable)))
                    if stops < end:
                        self.ports.append((stops + notice_s, qp, one.plane, True))
        if losses:
            self.losses[qp] = losses
        self.probes += life.probes
        # One plane without faults always leaves a living path.
        if len(given) == usable and self.settings.retry_budget_s < end - start:
            self._look_for_darkness(qp, given, start, end)

    def _plane_of(self, qp: int, plane: int, source: int, target: int, racks: tuple[int, int]) -> PlaneEvs:
        """A plane of a QP as ev_life.py wants it."""
        outages, states = self.outages, self.states[qp, plane]
        slots = [EMPTY] * self.shape.rotation
        in_use = np.flatnonzero(states == ROTATION).tolist()
        slots[: len(in_use)] = in_use
        at_fault = self._at_fault[qp, plane]
        ends = outages.of_ends(plane, source, target) if at_fault else []
        dead: dict[int, Intervals] = {}
        for ev in self._mortal.get(qp * self.shape.planes + plane, ()):
            dead[ev] = outages.of_path(plane, racks[0], racks[1], int(self.spines[qp, plane, ev]))
        if ends:
            for ev in np.flatnonzero((states != ABSENT) & (states != DENIED)).tolist():
                dead[ev] = union(ends, dead[ev]) if ev in dead else ends
        return PlaneEvs(
            plane,
            slots,
            deque(np.flatnonzero(states == BACKUP).tolist()),
            dead,
            int(np.count_nonzero(states != ABSENT)),
            outages.of_ports(plane, source, target) if at_fault else [],
        )

    def _look_for_darkness(self, qp: int, given: list[PlaneEvs], start: float, end: float) -> None:
        """Whether the QP had no living path for longer than it tries."""
        paths = [
            union(one.down, one.dead.get(ev, []))
            for one in given
            for ev in {*(e for e in range(self.shape.evs_per_plane) if self.states[qp, one.plane, e] != ABSENT)}
        ]
        moments = sorted({start, *(a for path in paths for a, _ in path if start < a < end)})
        for at in moments:
            if not all(inside(path, at) for path in paths):
                continue
            back = min(next(b for a, b in path if a <= at < b) for path in paths)
            if min(back, end) - at > self.settings.retry_budget_s:
                self.failed.append((at + self.settings.retry_budget_s, qp))
                return

    # ---- rates ------------------------------------------------------------------------------------------

    def run(self, watch: Watch, progress: Callable[[float], None]) -> FluidResult:
        self.draw()
        self.live(lambda share: progress(0.3 * share))
        lost, lost_series, factors = self._losses()
        self._flow(watch, factors, progress)
        return FluidResult(
            self.states,
            self.spines,
            lost,
            lost_series,
            self.changes,
            self.failed,
            self.ports,
            self.probes,
        )

    def _losses(self) -> tuple[Floats, Floats, dict[int, list[tuple[int, float]]]]:
        """Return losses by QP, losses by interval, and the factors of slowed QPs.

        Packets lost by each QP, packets found lost in each interval, and {interval: (QP, part of its rate that is
        left)}.
        """
        shape, calibration, edges = self.shape, self.settings.calibration, self.edges
        lost, series = np.zeros(len(self.pairs)), np.zeros(len(edges) - 1)
        factors: dict[int, list[tuple[int, float]]] = {}
        found_s = calibration.found_rtts * shape.rtt_s
        per_s = shape.packets_per_s * shape.planes * calibration.top
        widths = np.diff(edges)
        times: list[float] = []
        counts: list[float] = []
        for qp, losses in self.losses.items():
            weight = float(self.pairs.weights[qp])
            window = float(self.pairs.window_bytes[qp]) / (shape.rate_bps / 8 * shape.rtt_s * shape.planes)
            missing: dict[int, float] = {}
            young = float(self.pairs.starts_s[qp]) + YOUNG_RTTS * shape.rtt_s
            for start, stop, gone, left in stalls(losses, calibration, shape, window):
                packets = gone * per_s * weight * (calibration.lost if start >= young else calibration.lost_young)
                if packets:
                    lost[qp] += packets
                    # A long loss is found bit by bit; up to 8 points spread it over the intervals.
                    pieces = max(1, min(8, int((stop - start) / (found_s / 2)) + 1))
                    for piece in range(pieces):
                        times.append(start + (stop - start) * (piece + 0.5) / pieces + found_s)
                        counts.append(packets / pieces)
                # A factor below 1 is shared out over the intervals that the stall touches.
                if left >= 1:
                    continue
                at = max(0, int(np.searchsorted(edges, start, side="right")) - 1)
                while at < len(widths) and edges[at] < stop:
                    part = min(stop, edges[at + 1]) - max(start, edges[at])
                    missing[at] = missing.get(at, 0.0) + part / widths[at] * (1 - left)
                    at += 1
            for at, share in missing.items():
                factors.setdefault(at, []).append((qp, max(0.0, 1 - share)))
        if times:
            series += np.histogram(times, edges, weights=counts)[0]
        return lost, series, factors

    def _flow(
        self, watch: Watch, factors: dict[int, list[tuple[int, float]]], progress: Callable[[float], None]
    ) -> None:
        """Interval by interval: what changed, rates anew, and the watcher told."""
        shape, sharing, pairs, edges = self.shape, self.sharing, self.pairs, self.edges
        changes, ports = iter(self.changes), iter(self.ports)
        change, port = next(changes, None), next(ports, None)
        failed = dict((qp, at) for at, qp in self.failed)
        sends: Bools = np.zeros(len(pairs), bool)
        to_bps = shape.payload_bps * shape.planes
        first = True
        for number in range(len(edges) - 1):
            begins, ends = float(edges[number]), float(edges[number + 1])
            rows: dict[tuple[int, int], NDArray[np.uint16]] = {}
            while change is not None and change[1].at < ends:
                self._change(change[0], change[1], rows)
                change = next(changes, None)
            flips: dict[tuple[int, int], bool] = {}
            while port is not None and port[0] < ends:
                flips[port[1], port[2]] = port[3]
                port = next(ports, None)
            due = (pairs.starts_s < ends) & (pairs.stops_s > begins)
            for qp, at in failed.items():
                due[qp] &= at > begins
            starting, stopping = np.flatnonzero(due & ~sends), np.flatnonzero(sends & ~due)
            moved = self._apply(rows, flips, starting, stopping)
            sends = due
            # Rates that no change touched stand; intervals between the ends need not be exact in a large fabric.
            if moved or number == 0:
                last = number + 2 >= len(edges)
                to_the_end = first or last or len(pairs) <= SMALL
                sharing.settle(SWEEPS_MAX if to_the_end else FEW_SWEEPS)
                first = False
            rates = sharing.rate * sharing.weight * (sharing.planes_used() / shape.planes * to_bps)
            # A QP that begins or ends in the interval sends for a part of it.
            rates *= np.clip(
                (np.minimum(ends, pairs.stops_s) - np.maximum(begins, pairs.starts_s)) / (ends - begins), 0, 1
            )
            for qp, left in factors.get(number, ()):
                rates[qp] *= left
            watch(number, rates.astype(np.float32))
            progress(0.3 + 0.7 * (number + 1) / (len(edges) - 1))

    def _change(self, qp: int, change: Change, rows: dict[tuple[int, int], NDArray[np.uint16]]) -> None:
        """Note what a change does to states and rotation."""
        key = qp, change.plane
        states, spines = self.states[key], self.spines[key]
        row = rows.get(key)
        if row is None:
            row = rows[key] = self.sharing.spine[key].copy()
        if change.kind == RETIRED:
            states[change.ev] = BAD
            row[change.slot] = NO_SPINE if change.by == EMPTY else spines[change.by]
            if change.by != EMPTY:
                states[change.by] = ROTATION
        elif change.slot == EMPTY:
            states[change.ev] = BACKUP
        else:
            states[change.ev] = ROTATION
            row[change.slot] = spines[change.ev]

    def _apply(
        self,
        rows: dict[tuple[int, int], NDArray[np.uint16]],
        flips: dict[tuple[int, int], bool],
        starting: Ints,
        stopping: Ints,
    ) -> bool:
        """Do what changed; whether anything did."""
        sharing = self.sharing
        if rows:
            at = np.array(list(rows), np.int64)
            sharing.place(at[:, 0], at[:, 1], np.stack(list(rows.values())))
        if flips:
            at = np.array(list(flips), np.int64)
            sharing.set_usable(at[:, 0], at[:, 1], np.array(list(flips.values()), bool))
        if len(stopping):
            sharing.send(stopping, False)
        if len(starting):
            sharing.send(starting, True)
        return bool(rows or flips or len(starting) or len(stopping))


def stalls(
    losses: list[Loss], calibration: Calibration, shape: FabricShape, window: float
) -> Iterator[tuple[float, float, float, float]]:
    """Yield the parts of a QP's time in which it loses packets, or waits for lost ones.

    As (from, to, seconds of its full rate that are lost, part of its rate that arrives).

    A lost packet stays in the window until it is found lost, so the rate falls as the window fills with them: with a
    part `share` of the packets going into dead paths, the stuck part s follows ds/dt = share (1 - s) / turn - s / found
    where a window turns over in `turn`. What an application has outstanding bounds it too, once
    holes are always there: messages complete in order, and a hole is half as old as it gets, on average.
    `window`: that, in bytes that all planes carry in a base round trip.
    """
    rtt_s = shape.rtt_s
    turn, found = (1 + calibration.own_delay_rtts) * rtt_s, calibration.found_rtts * rtt_s
    moments = sorted({one for loss in losses for one in (loss.start, loss.stop)})
    stuck = 0.0
    for number, start in enumerate(moments):
        last = number + 1 == len(moments)
        stop = start + 3 * found if last else moments[number + 1]
        share = min(0.98, sum(one.share for one in losses if one.start <= start < one.stop))
        if share == 0:
            if stuck < STUCK_MIN:
                stuck = 0.0
                continue
            stop = min(stop, start + 3 * found)
        pace = share / turn + 1 / found
        settled = share / turn / pace
        lasts = stop - start
        decay = exp(-pace * lasts)
        mean = settled + (stuck - settled) * (1 - decay) / (pace * lasts)
        stuck = settled + (stuck - settled) * decay
        left = 1 - mean
        holes = share * shape.packets_per_rtt * shape.planes * calibration.found_rtts
        if holes > 1 or (share == 0 and mean > 0.05):
            left = min(left, window / (calibration.found_rtts / 2 + 1 + calibration.own_delay_rtts))
        yield start, stop, lasts * left * share, left * (1 - share)


def _parts(count: int) -> Iterator[slice]:
    return (slice(first, min(first + CHUNK, count)) for first in range(0, count, CHUNK))
