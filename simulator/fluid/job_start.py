"""Start of a job on a fabric with dead T0-T1 links, EV by EV, in arrays: no packets, a step only where an EV retires.

    shape = FabricShape(planes=4, racks=4, spines=4, hosts_per_rack=2, line=Line(...))
    result = start_job(shape, alive, Flows(sources, targets, starts_s), edges_s, seed=1, denied=False)

Each flow has one QP over at most EVS_MAX EVs. A plane's EVs stand in an order drawn by the seed: the first are in
rotation, the others its backups, as EvProfile has them (hosts/engine/paths/ev.py). An EV over a dead link loses
packets until it is retired, CALIBRATION.detection_rtts after its first one; then a backup has its slot, which may be
dead too. The rate of a flow on a plane is what the most loaded of its links leaves it.

What was left out: probes and EVs that come back, SACKs lost on the way, slow start, queues. The calibrated numbers are
those of `mrc bench fluid --calibrate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

EVS_MAX: Final = 256
"""EVs of a QP."""
ABSENT, ROTATION, BACKUP, BAD, DENIED = range(5)
"""States of an EV; ABSENT: the flow has fewer EVs (inside a rack, one a plane)."""
CHUNK: Final = 4096
"""Flows worked on at a time, which bounds the memory."""

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the packet simulator shows and no formula of ours gives; measured by `mrc bench fluid --calibrate`."""

    detection_rtts: float
    """From an EV's first packet until it is retired, base round trips."""
    lost_rtts: float
    """Packets an EV loses until then: what its share of the line rate is in so many base round trips. Fewer than
    `detection_rtts`, for hosts are slower while they start."""
    efficiency: float
    """Payload rate as a share of what the links leave: room for SACKs, and for the congestion window's swings."""


CALIBRATION: Final = Calibration(detection_rtts=7.01, lost_rtts=3.90, efficiency=0.945)


@dataclass(frozen=True, slots=True)
class FabricShape:
    """A fabric and its links; every link has the same rate."""

    planes: int
    racks: int
    spines: int
    hosts_per_rack: int
    rate_bps: float
    rtt_s: float
    """Base round trip, seconds."""
    frame_bytes: int
    """A full data packet on the wire."""
    payload_bytes: int
    max_active: int = 100
    """As Config.max_active."""

    @property
    def hosts(self) -> int:
        return self.racks * self.hosts_per_rack

    @property
    def evs_per_plane(self) -> int:
        """EVs of a QP between racks, in each plane."""
        return max(1, min(self.spines, EVS_MAX // self.planes))

    @property
    def rotation(self) -> int:
        """EVs of a plane in rotation; the rest are backups: as EvProfile shares them out."""
        spare = self.evs_per_plane // 4
        return max(1, min(self.max_active // self.planes, self.evs_per_plane - spare))


@dataclass(frozen=True, slots=True)
class Flows:
    """One QP each, from host number to host number; hosts count rack by rack."""

    sources: Ints
    targets: Ints
    starts_s: Floats


@dataclass(slots=True)
class JobStart:
    """What came of it; entry i of the series is the interval that ends at edge i + 1."""

    states: NDArray[np.int8]
    """[flow, EV]: state of each EV in the end; the EVs of a plane stand together, in its order."""
    lost: Floats
    """Packets lost by each flow."""
    lost_series: Floats
    """Packets found lost in each interval."""
    rate_bps: Floats
    """Payload of each flow once its dead EVs are retired, bits/s."""
    payload_bits: float
    """Of a full packet."""
    retired_s: Floats
    """When each retired EV was, seconds; in no order."""

    def count(self, state: int) -> int:
        """EVs in a state."""
        return int(np.count_nonzero(self.states == state))

    def rates_of(self, flow: int, flows: Flows, edges_s: Floats) -> Floats:
        """Payload of one flow in each interval, bits/s. What it lost is missing from its first intervals."""
        sent = np.diff(np.maximum(edges_s - flows.starts_s[flow], 0.0)) * self.rate_bps[flow]
        missing = self.lost[flow] * self.payload_bits
        gone = np.diff(np.minimum(np.concatenate(([0.0], np.cumsum(sent))), missing))
        rates: Floats = (sent - gone) / np.diff(edges_s)
        return rates


def start_job(
    shape: FabricShape, alive: Bools, flows: Flows, edges_s: Floats, *, seed: int, denied: bool,
    calibration: Calibration,
) -> JobStart:  # fmt: skip
    """Simulate the start of all flows.

    `alive`: [plane, rack, spine], whether that T0-T1 link carries packets. `denied`: EVs over dead links are denied
    before. `edges_s`: of the intervals of the series, seconds. Raises ValueError for an `alive` of another shape.
    """
    if alive.shape != (shape.planes, shape.racks, shape.spines):
        raise ValueError(f"alive has shape {alive.shape}: planes, racks, spines are wanted")
    count, per_plane = len(flows.sources), shape.evs_per_plane
    rng = np.random.default_rng(seed)
    states = np.full((count, shape.planes * per_plane), ABSENT, np.int8)
    lost, lost_series = np.zeros(count), np.zeros(len(edges_s) - 1)
    retired: list[Floats] = []
    spines = np.zeros((count, shape.planes * per_plane), np.int16)
    packets = _packets_per_s(shape) / shape.rotation * calibration.lost_rtts * shape.rtt_s
    for part in _parts(count):
        rows = _Rows(shape, alive, flows, part, rng)
        if denied:
            rows.deny()
        else:
            losing = rows.retire(calibration.detection_rtts * shape.rtt_s, rng)
            lost[part] = np.bincount(losing.row // shape.planes, minlength=rows.count) * packets
            lost_series += np.histogram(losing.to_s, edges_s)[0] * packets
            retired.append(losing.to_s)
        states[part], spines[part] = rows.states.reshape(rows.count, -1), rows.spines.reshape(rows.count, -1)
    rates = _shares(shape, flows, states, spines).mean(axis=1) * shape.planes * _payload_bps(shape)
    times = np.concatenate(retired) if retired else np.zeros(0)
    return JobStart(states, lost, lost_series, rates * calibration.efficiency, 8.0 * shape.payload_bytes, times)


def _packets_per_s(shape: FabricShape) -> float:
    """Full packets of one NIC port a second."""
    return shape.rate_bps / 8 / shape.frame_bytes


def _payload_bps(shape: FabricShape) -> float:
    """Payload of one NIC port at line rate."""
    return shape.rate_bps * shape.payload_bytes / shape.frame_bytes


def _shares(shape: FabricShape, flows: Flows, states: NDArray[np.int8], spines: NDArray[np.int16]) -> Floats:
    """[flow, plane]: share of its NIC port that a flow gets: what its most loaded link leaves it.

    A flow puts the same on each EV in rotation; NSCC's window follows the worst of the paths. 0 without any EV.
    """
    up, down = (np.zeros(shape.planes * shape.racks * shape.spines) for _ in range(2))
    for part in _parts(len(states)):
        uses, there, back, crosses = _links(shape, flows, states, spines, part)
        weight = crosses / np.maximum(uses.sum(axis=2, keepdims=True), 1)
        up += np.bincount(there.ravel(), weight.ravel(), len(up))
        down += np.bincount(back.ravel(), weight.ravel(), len(down))
    out = np.zeros((len(states), shape.planes))
    for part in _parts(len(states)):
        uses, there, back, crosses = _links(shape, flows, states, spines, part)
        worst = (np.maximum(up[there], down[back]) * crosses).max(axis=2)
        out[part] = uses.any(axis=2) / np.maximum(worst, 1.0)
    return out


def _parts(count: int) -> Iterator[slice]:
    return (slice(first, min(first + CHUNK, count)) for first in range(0, count, CHUNK))


def _links(
    shape: FabricShape, flows: Flows, states: NDArray[np.int8], spines: NDArray[np.int16], part: slice
) -> tuple[Bools, Ints, Ints, Bools]:
    """[flow, plane, EV] four times: in rotation; number of its link up; of its link down; whether it takes links."""
    split = (-1, shape.planes, shape.evs_per_plane)
    uses = states[part].reshape(split) == ROTATION
    source, target = flows.sources[part] // shape.hosts_per_rack, flows.targets[part] // shape.hosts_per_rack
    first = np.arange(shape.planes)[None, :, None] * shape.racks
    spine = spines[part].reshape(split).astype(np.int64)
    up = (first + source[:, None, None]) * shape.spines + spine
    down = (first + target[:, None, None]) * shape.spines + spine
    return uses, up, down, uses & (source != target)[:, None, None]


@dataclass(frozen=True, slots=True)
class _Losing:
    """EVs that lost packets, by row (flow x plane)."""

    row: Ints
    to_s: Floats
    """When each is retired."""


class _Rows:
    """The EVs of some flows: a row is one flow's plane, a column a place in its order."""

    def __init__(self, shape: FabricShape, alive: Bools, flows: Flows, part: slice, rng: np.random.Generator) -> None:
        self.shape = shape
        sources, targets = flows.sources[part], flows.targets[part]
        self.count = len(sources)
        racks = sources // shape.hosts_per_rack, targets // shape.hosts_per_rack
        planes, per_plane = shape.planes, shape.evs_per_plane
        order = rng.random((self.count * planes, shape.spines), dtype=np.float32).argsort(axis=1)[:, :per_plane]
        self.spines = order.astype(np.int16)
        plane = np.tile(np.arange(planes), self.count)
        here, there = (np.repeat(rack, planes) for rack in racks)
        inside = here == there
        ok = alive[plane[:, None], here[:, None], order] & alive[plane[:, None], there[:, None], order]
        self.dead = ~ok & ~inside[:, None]
        self.states = np.full(self.dead.shape, BACKUP, np.int8)
        self.states[:, : shape.rotation] = ROTATION
        self.states[inside, 1:] = ABSENT
        self.states[inside, 0] = ROTATION
        self.starts = np.repeat(flows.starts_s[part], planes)

    def deny(self) -> None:
        """Deny the EVs over dead links; backups fill the slots."""
        self.states[self.dead] = DENIED
        good = (self.states == ROTATION) | (self.states == BACKUP)
        place = np.cumsum(good, axis=1)
        self.states[good & (place <= self.shape.rotation)] = ROTATION

    def retire(self, detection_s: float, rng: np.random.Generator) -> _Losing:
        """Retire dead EVs, and the dead backups that follow in their slots, wave by wave."""
        row, column = np.nonzero(self.dead & (self.states == ROTATION))
        turn_s = self.shape.rotation / _packets_per_s(self.shape)
        begins = self.starts[row] + rng.random(len(row)) * turn_s
        next_backup = np.full(len(self.states), self.shape.rotation)
        waves = []
        while len(row):
            ends = begins + detection_s
            self.states[row, column] = BAD
            waves.append(_Losing(row, ends))
            by_time = np.lexsort((ends, row))
            row, ends = row[by_time], ends[by_time]
            firsts = np.flatnonzero(np.diff(row, prepend=-1))
            nth = np.arange(len(row)) - np.repeat(firsts, np.diff(np.append(firsts, len(row))))
            column = next_backup[row] + nth
            np.add.at(next_backup, row, 1)
            there = column < self.shape.evs_per_plane
            row, column, begins = row[there], column[there], ends[there]
            self.states[row, column] = ROTATION
            dead = self.dead[row, column]
            row, column, begins = row[dead], column[dead], begins[dead]
        if not waves:
            return _Losing(np.zeros(0, np.int64), np.zeros(0))
        return _Losing(np.concatenate([one.row for one in waves]), np.concatenate([one.to_s for one in waves]))
