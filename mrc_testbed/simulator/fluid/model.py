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
    EV_RETIRED,
    Change,
    Intervals,
    Loss,
    PlaneEvs,
    QpLife,
    Timing,
    is_inside,
    union,
)
from mrc_testbed.simulator.fluid.outages import PORT, Outages
from mrc_testbed.simulator.fluid.shape import Bools, FabricShape, Floats, Ints, QueuePairs, Singles
from mrc_testbed.simulator.fluid.sharing import NO_SPINE, SWEEPS_MAX, Sharing

ABSENT, ROTATION, BACKUP, ASSUMED_BAD, DENIED = range(5)
"""States of an EV; ABSENT: the QP has fewer EVs (inside a rack, one a plane)."""
CHUNK: Final = 4096
"""QPs worked on at a time, which bounds the memory."""
YOUNG_RTTS: Final = 10.0
"""A QP is young for so many base round trips: its windows open, and it loses less."""
NEAR: Final = 0.6
"""Share of a notice's time inside a rack."""
LINKS_OF_ROUND_TRIP: Final = 8
"""Links that a packet between racks and its answer cross."""
SACK_PACKETS: Final = 64
"""Packets that a SACK shows."""
WINDOW_RTTS: Final = 1.3
"""Window of a QP that queues hold back, in base round trips."""
STUCK_MIN: Final = 1e-3
"""Part of a window that is stuck and no longer matters."""
FEW_SWEEPS: Final = 8
"""Sweeps after a change; rates begin from their former values."""
SMALL_QP_COUNT: Final = 2048
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
    evs: NDArray[np.uint16] | None = None
    """[QP, plane, EV]: T1 of each EV in the order of its plane, those in rotation first.

    None: drawn by the seed. EVs of a packet run make both runs comparable flow by flow.
    """


@dataclass(slots=True)
class FluidResult:
    """Result of a run; entry i of a series is the interval that ends at edge i + 1."""

    states: NDArray[np.int8]
    """[QP, plane, EV]: state of each EV in the end, in the order of its plane."""
    spines: NDArray[np.uint16]
    """[QP, plane, EV]: number of the T1 of each EV."""
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
        """Count the EVs in a state."""
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
        self._turn_s = shape.rotation / shape.packets_per_s
        self._empty_slots = [EMPTY] * shape.rotation
        self._mortal: dict[int, list[int]] = {}
        """QP x plane -> EVs over links that are ever out."""

    # ---- before the first packet ------------------------------------------------------------------------

    def draw(self) -> None:
        """Draw the order of each plane's EVs by the seed, or take the settings'; the first are in rotation.

        Inside a rack there is one EV for each plane.
        """
        shape, sharing = self.shape, self.sharing
        racks, planes, per_plane, slots = shape.racks, shape.planes, shape.evs_per_plane, shape.rotation
        dead_links = self._dead_at_start() if self.settings.denylist else None
        first = np.arange(planes)[None, :, None] * racks
        for part in _parts(len(self.pairs)):
            count = len(self.pairs.sources[part])
            if self.settings.evs is None:
                draws = self.rng.random((count, planes, shape.spines), dtype=np.float32)
                order = draws.argsort(axis=2)[:, :, :per_plane].astype(np.int64)
            else:
                order = self.settings.evs[part].astype(np.int64)
            states = np.full(order.shape, BACKUP, np.int8)
            if dead_links is not None:
                up_link = (first + sharing.source[part][:, None, None]) * shape.spines + order
                down_link = (first + sharing.target[part][:, None, None]) * shape.spines + order
                states[dead_links[0].ravel()[up_link] | dead_links[1].ravel()[down_link]] = DENIED
            # The first `slots` EVs of the order that are not denied go into rotation, the others stay backups.
            good = states == BACKUP
            rank = np.cumsum(good, axis=2)
            in_use = good & (rank <= slots)
            states[in_use] = ROTATION
            spine = np.full((count, planes, slots), NO_SPINE, np.uint16)
            qp, plane, ev = np.nonzero(in_use)
            spine[qp, plane, rank[qp, plane, ev] - 1] = order[qp, plane, ev]
            # Inside a rack there is no T1 to choose: one EV a plane, whose spine number only fills the slot.
            local = sharing.local[part]
            states[local] = ABSENT
            states[local, :, 0] = ROTATION
            spine[local] = NO_SPINE
            spine[local, :, 0] = 0
            self.states[part], self.spines[part] = states, order
            sharing.spine[part] = spine
            has_spine = spine != NO_SPINE
            sharing.share[part] = has_spine / np.maximum(has_spine.sum(axis=2, keepdims=True), 1)

    def _dead_at_start(self) -> tuple[Bools, Bools]:
        """Return [plane, rack, spine]: T0-T1 links that are out at 0, on their way up and down."""
        shape, now = self.shape, self.outages.dead_at(0.0)
        up_dead, down_dead = (np.zeros((shape.planes, shape.racks, shape.spines), bool) for _ in range(2))
        for kind, plane, number, spine in now:
            if kind == "up":
                up_dead[plane, number, spine] = True
            elif kind == "down":
                down_dead[plane, number, spine] = True
            elif kind == "spine":
                up_dead[plane, :, number] = True
        return up_dead, down_dead

    # ---- EVs over time ----------------------------------------------------------------------------------

    def simulate_lives(self, progress: Callable[[float], None]) -> None:
        """Simulate the EVs of each QP that an outage touches."""
        touched_qps = self._touched_qps()
        for number, qp in enumerate(touched_qps):
            if number % CHUNK == 0:
                progress(number / len(touched_qps))
            self._simulate_life(int(qp))
        self.changes.sort(key=lambda entry: (entry[1].time_s, entry[0]))
        self.ports.sort()

    def _touched_qps(self) -> Ints:
        """Return the QPs with an EV in rotation over a link, or a host at a port, that is ever out.

        A backup over a dead link matters only once it is needed.
        """
        shape, sharing = self.shape, self.sharing
        if not self.outages.keys:
            return np.zeros(0, np.int64)
        up_dead, down_dead = (mask.ravel() for mask in self.outages.ever_dead())
        at_fault = self.outages.hosts_at_fault()
        self._at_fault: Bools = at_fault[:, self.pairs.sources].T | at_fault[:, self.pairs.targets].T
        self._rows: Bools = self._at_fault.copy()
        self._in_use, self._members = (np.zeros(self._rows.shape, np.int16) for _ in range(2))
        first = np.arange(shape.planes)[None, :, None] * shape.racks
        for part in _parts(len(self.pairs)):
            spine = self.spines[part].astype(np.int64)
            is_mortal = up_dead[(first + sharing.source[part][:, None, None]) * shape.spines + spine]
            is_mortal |= down_dead[(first + sharing.target[part][:, None, None]) * shape.spines + spine]
            is_mortal &= ~sharing.local[part][:, None, None] & (self.states[part] != DENIED)
            self._rows[part] |= (is_mortal & (self.states[part] == ROTATION)).any(axis=2)
            self._in_use[part] = (self.states[part] == ROTATION).sum(axis=2)
            self._members[part] = (self.states[part] != ABSENT).sum(axis=2)
            is_mortal &= self._rows[part][:, :, None]
            qp, plane, ev = np.nonzero(is_mortal)
            for row, ev_index in zip(((qp + part.start) * shape.planes + plane).tolist(), ev.tolist(), strict=True):
                self._mortal.setdefault(row, []).append(ev_index)
        qps: Ints = np.flatnonzero(self._rows.any(axis=1))
        return qps

    def _simulate_life(self, qp: int) -> None:
        shape, pairs, timing = self.shape, self.pairs, self.settings.timing
        source, target = int(pairs.sources[qp]), int(pairs.targets[qp])
        racks = source // shape.hosts_per_rack, target // shape.hosts_per_rack
        start, end = float(pairs.starts_s[qp]), min(float(pairs.stops_s[qp]), float(self.edges[-1]))
        faulty_planes, healthy_active, healthy_members, usable_planes = [], 0, 0, 0
        counts = zip(self._rows[qp].tolist(), self._in_use[qp].tolist(), self._members[qp].tolist(), strict=True)
        for plane, (is_faulty, in_use, members) in enumerate(counts):
            usable_planes += in_use > 0
            # Nothing breaks in such a plane: its EVs count, but need no life of their own.
            if not is_faulty:
                healthy_active += in_use
                healthy_members += members
                continue
            faulty_planes.append(self._plane_of(qp, plane, source, target, racks))
        dice = Random(self.settings.seed * 1_000_003 + qp)
        life = QpLife(
            timing,
            faulty_planes,
            max(1, usable_planes),
            healthy_active,
            healthy_members,
            dice,
            self._turn_s,
        )
        life.run(start, end)
        self.changes += [(qp, change) for change in life.changes]
        losses = life.losses
        notice_s = timing.notice_s * (NEAR if racks[0] == racks[1] else 1.0)
        for plane_evs in faulty_planes:
            for down_from, down_until in plane_evs.down_intervals:
                if down_from < end and down_until > start:
                    self.ports.append((max(down_from, start) + notice_s, qp, plane_evs.plane, False))
                    # A port that was down before the QP began is known, so nothing is sent into it.
                    if down_from >= start:
                        under_way, unaware = self._lost_to_port(plane_evs.plane, target, racks, down_from)
                        first, last = down_from - under_way * shape.rtt_s, down_from + unaware * shape.rtt_s
                        losses.append(Loss(max(first, start), last, 1.0 / max(1, usable_planes), by_timer=True))
                    if down_until < end:
                        self.ports.append((down_until + notice_s, qp, plane_evs.plane, True))
        if losses:
            self.losses[qp] = losses
        self.probes += life.probes
        # One plane without faults always leaves a living path.
        if len(faulty_planes) == usable_planes and self.settings.retry_budget_s < end - start:
            self._check_retry_budget(qp, faulty_planes, start, end)

    def _lost_to_port(self, plane: int, target: int, racks: tuple[int, int], time_s: float) -> tuple[float, float]:
        """Return from when to when what a QP sends in a plane is lost to a port that goes down at `time_s`.

        Base round trips before and after that time. A sender knows at once; its packets are safe behind one link and
        half the queues. To a target's port they cross three links and all queues, and more of them leave until the
        sender knows, half a round trip later. Inside a rack both know at once, and there are two links.
        """
        link, queues = 1 / LINKS_OF_ROUND_TRIP, self.settings.calibration.own_delay_rtts
        if racks[0] == racks[1]:
            return 2 * link + queues / 2, 0.0
        if is_inside(self.outages.intervals_of(PORT, plane, target), time_s):
            return 3 * link + queues, 0.5
        return link + queues / 2, 0.0

    def _plane_of(self, qp: int, plane: int, source: int, target: int, racks: tuple[int, int]) -> PlaneEvs:
        """Return a plane of a QP as input of ev_life.py."""
        outages, states = self.outages, self.states[qp, plane].tolist()
        slots = self._empty_slots.copy()
        in_use = [ev for ev, state in enumerate(states) if state == ROTATION]
        slots[: len(in_use)] = in_use
        at_fault = bool(self._at_fault[qp, plane])
        ends = outages.of_ends(plane, source, target) if at_fault else []
        dead_intervals: dict[int, Intervals] = {}
        for ev in self._mortal.get(qp * self.shape.planes + plane, ()):
            dead_intervals[ev] = outages.of_path(plane, racks[0], racks[1], int(self.spines[qp, plane, ev]))
        if ends:
            for ev in (ev for ev, state in enumerate(states) if state not in (ABSENT, DENIED)):
                dead_intervals[ev] = union(ends, dead_intervals[ev]) if ev in dead_intervals else ends
        return PlaneEvs(
            plane,
            slots,
            deque(ev for ev, state in enumerate(states) if state == BACKUP),
            dead_intervals,
            int(self._members[qp, plane]),
            outages.of_ports(plane, source, target) if at_fault else [],
        )

    def _check_retry_budget(self, qp: int, planes: list[PlaneEvs], start: float, end: float) -> None:
        """Record the failure of a QP without a living path for longer than its retry budget."""
        paths = [
            union(plane_evs.down_intervals, plane_evs.dead_intervals.get(ev, []))
            for plane_evs in planes
            for ev in {
                *(
                    index
                    for index in range(self.shape.evs_per_plane)
                    if self.states[qp, plane_evs.plane, index] != ABSENT
                )
            }
        ]
        moments = sorted({start, *(a for path in paths for a, _ in path if start < a < end)})
        for time_s in moments:
            if not all(is_inside(path, time_s) for path in paths):
                continue
            recovery_s = min(next(b for a, b in path if a <= time_s < b) for path in paths)
            if min(recovery_s, end) - time_s > self.settings.retry_budget_s:
                self.failed.append((time_s + self.settings.retry_budget_s, qp))
                return

    # ---- rates ------------------------------------------------------------------------------------------

    def run(self, watch: Watch, progress: Callable[[float], None]) -> FluidResult:
        self.draw()
        self.simulate_lives(lambda share: progress(0.3 * share))
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
        per_s = shape.packets_per_s * shape.planes * calibration.top
        widths = np.diff(edges)
        times: list[float] = []
        counts: list[float] = []
        for qp, losses in self.losses.items():
            weight = float(self.pairs.weights[qp])
            window = float(self.pairs.window_bytes[qp]) / (shape.rate_bps / 8 * shape.rtt_s * shape.planes)
            missing_share: dict[int, float] = {}
            young = float(self.pairs.starts_s[qp]) + YOUNG_RTTS * shape.rtt_s
            for start, stop, lost_s, rate_share, found_s in stalls(losses, calibration, shape, window):
                packets = lost_s * per_s * weight * (calibration.lost if start >= young else calibration.lost_young)
                if packets:
                    lost[qp] += packets
                    # A long loss is found bit by bit; up to 8 points spread it over the intervals.
                    pieces = max(1, min(8, int((stop - start) / (found_s / 2)) + 1))
                    for piece in range(pieces):
                        times.append(start + (stop - start) * (piece + 0.5) / pieces + found_s)
                        counts.append(packets / pieces)
                # A factor below 1 is shared out over the intervals that the stall touches.
                if rate_share >= 1:
                    continue
                interval = max(0, int(np.searchsorted(edges, start, side="right")) - 1)
                while interval < len(widths) and edges[interval] < stop:
                    part = min(stop, edges[interval + 1]) - max(start, edges[interval])
                    missing_share[interval] = missing_share.get(interval, 0.0) + part / widths[interval] * (
                        1 - rate_share
                    )
                    interval += 1
            for interval, share in missing_share.items():
                factors.setdefault(interval, []).append((qp, max(0.0, 1 - share)))
        if times:
            series += np.histogram(times, edges, weights=counts)[0]
        return lost, series, factors

    def _flow(
        self, watch: Watch, factors: dict[int, list[tuple[int, float]]], progress: Callable[[float], None]
    ) -> None:
        """Apply the changes of each interval, settle the rates, and call the watcher."""
        shape, sharing, pairs, edges = self.shape, self.sharing, self.pairs, self.edges
        changes, ports = iter(self.changes), iter(self.ports)
        change, port = next(changes, None), next(ports, None)
        failed = dict((qp, failure_s) for failure_s, qp in self.failed)
        sends: Bools = np.zeros(len(pairs), bool)
        to_bps = shape.payload_bps * shape.planes
        first = True
        for number in range(len(edges) - 1):
            start_s, end_s = float(edges[number]), float(edges[number + 1])
            rows: dict[tuple[int, int], NDArray[np.uint16]] = {}
            while change is not None and change[1].time_s < end_s:
                self._change(change[0], change[1], rows)
                change = next(changes, None)
            flips: dict[tuple[int, int], bool] = {}
            while port is not None and port[0] < end_s:
                flips[port[1], port[2]] = port[3]
                port = next(ports, None)
            due = (pairs.starts_s < end_s) & (pairs.stops_s > start_s)
            for qp, failure_s in failed.items():
                due[qp] &= failure_s > start_s
            starting, stopping = np.flatnonzero(due & ~sends), np.flatnonzero(sends & ~due)
            has_changed = self._apply(rows, flips, starting, stopping)
            sends = due
            # Rates that no change touched stand; intervals between the ends need not be exact in a large fabric.
            if has_changed or number == 0:
                last = number + 2 >= len(edges)
                to_the_end = first or last or len(pairs) <= SMALL_QP_COUNT
                sharing.settle(SWEEPS_MAX if to_the_end else FEW_SWEEPS)
                first = False
            rates = sharing.rate * sharing.weight * (sharing.planes_used() / shape.planes * to_bps)
            # A QP that begins or ends in the interval sends for a part of it.
            rates *= np.clip(
                (np.minimum(end_s, pairs.stops_s) - np.maximum(start_s, pairs.starts_s)) / (end_s - start_s), 0, 1
            )
            for qp, rate_share in factors.get(number, ()):
                rates[qp] *= rate_share
            watch(number, sharing.mean_rates(rates.astype(np.float32)))
            progress(0.3 + 0.7 * (number + 1) / (len(edges) - 1))

    def _change(self, qp: int, change: Change, rows: dict[tuple[int, int], NDArray[np.uint16]]) -> None:
        """Apply a change to states and rotation."""
        key = qp, change.plane
        states, spines = self.states[key], self.spines[key]
        row = rows.get(key)
        if row is None:
            row = rows[key] = self.sharing.spine[key].copy()
        if change.kind == EV_RETIRED:
            states[change.ev] = ASSUMED_BAD
            row[change.slot] = NO_SPINE if change.replacement == EMPTY else spines[change.replacement]
            if change.replacement != EMPTY:
                states[change.replacement] = ROTATION
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
        """Apply the changes of an interval; return whether there were any."""
        sharing = self.sharing
        if rows:
            keys = np.array(list(rows), np.int64)
            sharing.set_rotation(keys[:, 0], keys[:, 1], np.stack(list(rows.values())))
        if flips:
            keys = np.array(list(flips), np.int64)
            sharing.set_usable(keys[:, 0], keys[:, 1], np.array(list(flips.values()), bool))
        if len(stopping):
            sharing.send(stopping, False)
        if len(starting):
            sharing.send(starting, True)
        return bool(rows or flips or len(starting) or len(stopping))


def stalls(
    losses: list[Loss], calibration: Calibration, shape: FabricShape, window: float
) -> Iterator[tuple[float, float, float, float, float]]:
    """Yield the parts of a QP's time in which it loses packets, or waits for lost ones.

    As (from, to, seconds of its full rate that are lost, part of its rate that arrives, time until a loss is found).

    A lost packet stays in the window until it is found lost, so the rate falls as the window fills with them: with a
    part `share` of the packets going into dead paths, the stuck part s follows ds/dt = share (1 - s) / turn - s / found
    where a window turns over in `turn` (turn_s) and a loss is found in `found` (found_s). The application's window
    bounds the rate too, once holes are always there: messages complete in order, and the mean age of a hole is half its
    lifetime. `window`: bytes that an application has outstanding, in units of what all planes carry in a base round
    trip.
    """
    rtt_s = shape.rtt_s
    turn_s = (1 + calibration.own_delay_rtts) * rtt_s
    # A SACK begins with the oldest hole, so what lies beyond its last packet is seen once that hole is filled.
    hidden_share = max(0.0, 1 - SACK_PACKETS / (WINDOW_RTTS * shape.packets_per_rtt * shape.planes))
    overtaken_s = calibration.found_rtts * rtt_s + hidden_share * turn_s
    moments = sorted({moment for loss in losses for moment in (loss.start, loss.stop)})
    stuck = 0.0
    for number, start in enumerate(moments):
        last = number + 1 == len(moments)
        present = [loss for loss in losses if loss.start <= start < loss.stop]
        by_timer = any(loss.by_timer for loss in present)
        found_s = calibration.timer_rtts * rtt_s if by_timer else overtaken_s
        stop = start + 3 * found_s if last else moments[number + 1]
        share = min(0.98, sum(loss.share for loss in present))
        if share == 0:
            if stuck < STUCK_MIN:
                stuck = 0.0
                continue
            stop = min(stop, start + 3 * found_s)
        pace = share / turn_s + 1 / found_s
        equilibrium = share / turn_s / pace
        lasts = stop - start
        decay = exp(-pace * lasts)
        mean = equilibrium + (stuck - equilibrium) * (1 - decay) / (pace * lasts)
        stuck = equilibrium + (stuck - equilibrium) * decay
        arriving_share = 1 - mean
        holes = share * shape.packets_per_rtt * shape.planes * calibration.found_rtts
        # What is lost to a port at once is over before the application's window is full of holes.
        if (not by_timer and holes > 1) or (share == 0 and mean > 0.05):
            arriving_share = min(arriving_share, window / (calibration.found_rtts / 2 + 1 + calibration.own_delay_rtts))
        yield start, stop, lasts * arriving_share * share, arriving_share * (1 - share), found_s


def _parts(count: int) -> Iterator[slice]:
    return (slice(first, min(first + CHUNK, count)) for first in range(0, count, CHUNK))
