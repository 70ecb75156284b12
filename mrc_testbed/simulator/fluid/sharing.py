"""Shares of links: what rate each queue pair settles at, given the paths that it sprays over.

    sharing = Sharing(shape, calibration, pairs)
    sharing.set_rotation(qps, planes, spines)   # EVs in rotation of some (QP, plane)
    sharing.settle()
    sharing.rate                         # per plane, a share of the line rate

Design note: why not max-min fairness. NSCC has one window for all paths of a destination and steers the *mean* delay
of its packets to a target. In the packet simulator all QPs that are held back at all see the same mean delay, 0.69 of a
base round trip beside the target of 0.75, whatever their rates (0.4 to 0.9 of the line); so a QP is slow when many of
its links are busy, and one busy link among 24 does little. That is a price: a link's price is its queueing delay, a
function of its load, and what its trims take off windows; a QP's price is the mean over its EVs, as often as it uses
each; and its rate is the one at which that price is what its window stands. The faster it is, the less that is, for
more of the delay stands in its NIC's ring and at the last hop. In the ring most of all where the application has little
outstanding: a message that completes lets the next one leave at once (`bursts`). Marks move packets from busy EVs to
others: a mark makes an EV miss a turn. Planes get the same, always, so a rate is one number for all planes.

The three functions (price by load, turns missed by load, price that a rate stands) are calibration.py's. The load is
that of the wire: SACKs of the packets the other way included, and what is trimmed (`_wire_loads`). A sweep moves
each rate a step towards its price, and each EV's share halfway to its turns; loads follow. Sweeps are repeated until
rates stand still.

Flows of a ring wait for each other (rings.py). They load links by their job's pace, so that others get what they leave.
While they send they find a link fuller than in the mean: they themselves send now, and others of rings may or may not.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mrc_testbed.simulator.fluid.calibration import BURST_POWER, Calibration
from mrc_testbed.simulator.fluid.rings import Rings
from mrc_testbed.simulator.fluid.shape import Bools, FabricShape, Floats, Ints, QueuePairs, Singles
from mrc_testbed.switch.system.cache_folder import BuildError
from mrc_testbed.switch.system.gcc import build_shared

NO_SPINE: Final = 0xFFFF
"""An empty slot of the rotation."""
STEP: Final = 0.04
"""Largest change of a rate in one sweep."""
FLOOR: Final = 0.02
"""No QP is slower than this share of the line: a window of a packet or two."""
SWEEPS_MAX: Final = 120
RATE_TOLERANCE: Final = 5e-4
"""Rates stand still when none moves by more."""
AVERAGED_SWEEPS: Final = 20
"""Rates that do not stand still are averaged over the last sweeps."""
PRICE_FLOATS: Final = 4
"""Floats of a link's price in sharing.c."""
UNUSED_LOAD: Final = 1e-6
"""Load of a link that no QP uses, but for rounding, as in sharing.c."""
CHUNK: Final = 4096
"""QPs that a sweep in numpy works on at a time, which bounds its memory."""


class _Table(ctypes.Structure):
    _fields_ = (("values", ctypes.c_void_p), ("count", ctypes.c_longlong), ("per_unit", ctypes.c_float))


class _Sharing(ctypes.Structure):
    """Arguments of a sweep, laid out as in sharing.c."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("planes", "racks", "spines", "slots")),
        *((name, ctypes.c_float) for name in ("eta", "step", "top", "floor", "sacks", "relief")),
        *((name, _Table) for name in ("prices", "wanted")),
        *(
            (name, ctypes.c_void_p)
            for name in (
                "source",
                "target",
                "weight",
                "spine",
                "usable",
                "limit",
                "rate",
                "demand",
                "share",
                "up",
                "down",
                "variance",
                "price",
                "delay",
                "crowd",
                "bursts",
            )
        ),
    )


@cache
def _in_c() -> ctypes.CDLL | None:
    """Load the sweep in C; None: no compiler, or MRC_COMPILED=0 asks for Python."""
    if os.environ.get("MRC_COMPILED") == "0":
        return None
    try:
        library = ctypes.CDLL(str(build_shared([Path(__file__).with_name("sharing.c")], flags=("-O3",), tag="sharing")))
    except (BuildError, OSError):
        return None
    library.sweep.restype = ctypes.c_double
    for function in (library.sweep, library.set_rates):
        function.argtypes = [ctypes.c_void_p, ctypes.c_longlong, *[ctypes.c_void_p] * 2]
    library.set_rates.restype = None
    return library


class Sharing:
    """See the module. Rates and shares stay between calls: what follows a small change settles soon."""

    def __init__(self, shape: FabricShape, calibration: Calibration, pairs: QueuePairs, *, in_c: bool = True) -> None:
        self.shape, self.calibration = shape, calibration
        count, planes, slots = len(pairs), shape.planes, shape.rotation
        self.source = (pairs.sources // shape.hosts_per_rack).astype(np.int32)
        self.target = (pairs.targets // shape.hosts_per_rack).astype(np.int32)
        self.local: Bools = self.source == self.target
        self.weights = pairs.weights.astype(np.float32)
        self.weight: Singles = np.zeros(count, np.float32)
        """Weight of each QP that sends now, else 0."""
        self.bursts = calibration.bursts_of(pairs.window_bytes / (planes * shape.rate_bps / 8 * shape.rtt_s))
        """Factor of rate ** BURST_POWER by which bursts in the NIC's ring lower the price of each QP."""
        self.spine: NDArray[np.uint16] = np.full((count, planes, slots), NO_SPINE, np.uint16)
        self.usable_planes: NDArray[np.uint8] = np.ones((count, planes), np.uint8)
        """Whether the ports of a plane are up at both ends."""
        self.rate: Singles = np.full(count, calibration.top * 0.9, np.float32)
        # Inside a rack no T0-T1 link is shared, so nothing holds the rate back.
        self.rate[self.local] = calibration.top
        self.rings = pairs.rings
        self.limit: Singles = np.full(count, np.inf, np.float32)
        """Mean rate of each QP at the pace of its job; inf: a QP without a job."""
        self.demand: Singles = self.rate.copy()
        """Mean rate of each QP, which loads links: the lesser of `rate`, while it sends, and `limit`."""
        self.delay: Singles = np.zeros(count, np.float32)
        """Mean price of each QP's links, base round trips."""
        self._variance: Floats = np.zeros(2 * planes * shape.racks)
        """[way, plane, rack]: sum of the variances of a T0's links, whose rings send and wait by turns."""
        self.share: Singles = np.zeros((count, planes, slots), np.float32)
        """Share of a plane's packets in each slot."""
        self.up_load: Floats = np.zeros(shape.links)
        self.down_load: Floats = np.zeros(shape.links)
        """Load of each link, a share of the line."""
        up_feeders = _feeders(self.source, pairs.sources, shape.racks)
        remote = ~self.local
        down_feeders = _feeders(self.target[remote], self.source[remote], shape.racks)
        self.crowd: Singles = (1 - 1 / np.maximum(np.concatenate([up_feeders, down_feeders]), 1)).astype(np.float32)
        """Part of a full queue at each rack's links, up then down: 1 - 1 / n for n feeding links.

        What one link brings comes at its pace and never queues; n of them queue as n - 1 do. A rack's NICs feed its
        links up, and the racks that send to it feed its links down.
        """
        self._tables = calibration.tables(max(2, int(up_feeders.max(initial=0))), planes)
        self._library = _in_c() if in_c else None
        self._price: Singles = np.zeros(2 * PRICE_FLOATS * shape.links if self._library is not None else 0, np.float32)
        cost, skips, trims, _ = self._tables
        rows = np.stack([cost, skips, trims, np.zeros_like(cost)], axis=1)
        self._price_rows: Singles = np.concatenate([rows, rows[-1:]])
        """Table of prices as sharing.c has it: a row for each load, the last one twice."""

    # ---- load of QPs ------------------------------------------------------------------------------------

    def send(self, qps: Ints, on: bool) -> None:
        """Start or stop some QPs."""
        weight = self.weights[qps] if on else np.zeros(len(qps), np.float32)
        self._load(qps, weight - self.weight[qps])
        self.weight[qps] = weight

    def set_rotation(self, qps: Ints, planes: Ints, spines: NDArray[np.uint16]) -> None:
        """Set new rotations of some (QP, plane), each at most once; NO_SPINE: an empty slot.

        New EVs begin with an equal share.
        """
        self._rows(qps, planes, -1.0)
        former_spines, former_share = self.spine[qps, planes], self.share[qps, planes]
        has_spine = spines != NO_SPINE
        equal = 1.0 / np.maximum(has_spine.sum(axis=1, keepdims=True), 1)
        share = np.where(has_spine, np.where((spines == former_spines) & (former_share > 0), former_share, equal), 0.0)
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-9)
        self.spine[qps, planes], self.share[qps, planes] = spines, share
        self._rows(qps, planes, 1.0)

    def set_usable(self, qps: Ints, planes: Ints, is_usable: Bools) -> None:
        """Withdraw or readmit planes: ports of some (QP, plane) went down at an end, or came up at both."""
        goes_down = ~is_usable
        self._rows(qps[goes_down], planes[goes_down], -1.0)
        self.share[qps[goes_down], planes[goes_down]] = 0.0
        self.usable_planes[qps, planes] = is_usable
        comes_up = is_usable
        has_spine = self.spine[qps[comes_up], planes[comes_up]] != NO_SPINE
        self.share[qps[comes_up], planes[comes_up]] = has_spine / np.maximum(has_spine.sum(axis=1, keepdims=True), 1)
        self._rows(qps[comes_up], planes[comes_up], 1.0)

    def planes_used(self) -> Ints:
        """Return the number of planes that each QP can send on."""
        counts: Ints = ((self.share.sum(axis=2) > 0) & (self.usable_planes > 0)).sum(axis=1)
        return counts

    def _load(self, qps: Ints, weight: Singles) -> None:
        """Add QPs to the loads of their links, with these weights."""
        shape = self.shape
        for part in range(0, len(qps), CHUNK):
            chunk, chunk_weight = qps[part : part + CHUNK], weight[part : part + CHUNK]
            up_links, down_links = self._links(chunk)
            amount = (self.share[chunk] * (self.demand[chunk] * chunk_weight)[:, None, None]).astype(np.float64)
            has_link = (self.spine[chunk] != NO_SPINE) & ~self.local[chunk][:, None, None]
            self.up_load += np.bincount(up_links[has_link], amount[has_link], shape.links)
            self.down_load += np.bincount(down_links[has_link], amount[has_link], shape.links)

    def _rows(self, qps: Ints, planes: Ints, sign: float) -> None:
        """Add (QP, plane) rows to the loads of their links, or take them out."""
        shape = self.shape
        spine = self.spine[qps, planes].astype(np.int64)
        has_link = (spine != NO_SPINE) & ~self.local[qps][:, None]
        amount = self.share[qps, planes] * (sign * self.demand[qps] * self.weight[qps])[:, None]
        first = planes * shape.racks
        for links, rack in ((self.up_load, self.source[qps]), (self.down_load, self.target[qps])):
            number = (first + rack)[:, None] * shape.spines + spine
            np.add.at(links, number[has_link], amount[has_link])

    def _links(self, qps: Ints) -> tuple[Ints, Ints]:
        """Return [QP, plane, slot]: numbers of the links up and down."""
        shape = self.shape
        first = np.arange(shape.planes)[None, :, None] * shape.racks
        spine = self.spine[qps].astype(np.int64)
        up_links = (first + self.source[qps][:, None, None]) * shape.spines + spine
        down_links = (first + self.target[qps][:, None, None]) * shape.spines + spine
        return up_links, down_links

    # ---- settling ---------------------------------------------------------------------------------------

    def settle(self, sweeps: int = SWEEPS_MAX) -> int:
        """Sweep over all QPs that send until their rates stand still; return the number of sweeps.

        All of them, even after a change that few feel: QPs settled among others that stand still find a better balance
        than all of them do together, and rates would creep up by two percent over a few hundred flaps.
        """
        qps = np.flatnonzero(self.weight > 0)
        if not len(qps):
            return 0
        numbers = qps.astype(np.int32)
        averaged_count, total = min(AVERAGED_SWEEPS, max(1, sweeps // 4)), np.zeros(len(qps))
        planes = self.planes_used() if self.rings else np.zeros(0, np.int64)
        for sweep_count in range(1, sweeps + 1):
            self._set_limits(planes)
            largest_change = self.sweep(numbers)
            if sweep_count > sweeps - averaged_count:
                total += self.rate[qps]
            if largest_change < RATE_TOLERANCE:
                return sweep_count
        self._set_rates(qps, (total / averaged_count).astype(np.float32))
        return sweeps

    def _set_limits(self, planes: Ints) -> None:
        """Set the limits of rings from the rates of their flows; `planes`: used by each QP."""
        for rings in self.rings:
            qps = slice(rings.first, rings.end)
            full_bps = self.weight[qps] * (planes[qps] * self.shape.payload_bps)
            self.limit[qps] = self._ring_rates(rings, self.rate[qps] * full_bps) / np.where(full_bps > 0, full_bps, 1.0)

    def mean_rates(self, rates_bps: Singles) -> Singles:
        """Return the mean rates of QPs from those while they send: rings have their job's pace."""
        means: Singles = rates_bps.copy()
        for rings in self.rings:
            means[rings.first : rings.end] = self._ring_rates(rings, rates_bps[rings.first : rings.end])
        return means

    def _ring_rates(self, rings: Rings, rates_bps: NDArray[np.floating[Any]]) -> Floats:
        """Return the mean rates of the QPs of rings, whose rates while they send are `rates_bps`."""
        shape, qps = self.shape, slice(rings.first, rings.end)
        # Inside a rack there are two links of four, and no queues.
        length = np.where(self.local[qps], 0.5, 1.0).reshape(-1, rings.qps)[:, 0]
        queues_s = shape.rtt_s * self.delay[qps].astype(np.float64).reshape(-1, rings.qps).mean(axis=1)
        flows_bps = rates_bps.astype(np.float64).reshape(-1, rings.qps)
        flow_bps = flows_bps.sum(axis=1)
        paces = rings.paces(flow_bps, shape.one_way_s * length + queues_s, (shape.rtt_s - shape.one_way_s) * length)
        part = np.repeat(paces, rings.ranks) / np.where(flow_bps > 0, flow_bps, 1.0)
        means: Floats = (flows_bps * part[:, None]).ravel()
        return means

    def _set_rates(self, qps: Ints, rates: Singles) -> None:
        if self._library is not None:
            numbers = qps.astype(np.int32)
            self._library.set_rates(ctypes.byref(self._in_c_form()), len(qps), numbers.ctypes.data, rates.ctypes.data)
            return
        weight = self.weight[qps]
        self._load(qps, -weight)
        self.rate[qps] = rates
        self.demand[qps] = np.minimum(rates, self.limit[qps])
        self._load(qps, weight)

    def sweep(self, active: NDArray[np.int32]) -> float:
        """Do one sweep; return the largest change of a rate."""
        return self._sweep_in_numpy(active) if self._library is None else self._sweep_in_c(active)

    def _in_c_form(self) -> _Sharing:
        shape, calibration = self.shape, self.calibration
        price_step, *_, rate_step = calibration.steps()
        tables = (
            _Table(self._price_rows.ctypes.data, len(self._price_rows) - 1, price_step),
            _Table(self._tables[3].ctypes.data, len(self._tables[3]), rate_step),
        )
        arrays = (
            self.source,
            self.target,
            self.weight,
            self.spine,
            self.usable_planes,
            self.limit,
            self.rate,
            self.demand,
            self.share,
            self.up_load,
            self.down_load,
            self._variance,
            self._price,
            self.delay,
            self.crowd,
            self.bursts,
        )
        # The order of the fields is that of the struct in sharing.c.
        return _Sharing(
            shape.planes,
            shape.racks,
            shape.spines,
            shape.rotation,
            calibration.eta,
            STEP,
            calibration.top,
            FLOOR,
            calibration.sacks,
            calibration.relief,
            *tables,
            *(array.ctypes.data for array in arrays),
        )

    def _sweep_in_c(self, active: NDArray[np.int32]) -> float:
        assert self._library is not None
        row = np.empty(self.shape.planes * self.shape.rotation, np.float32)
        largest_change: float = self._library.sweep(
            ctypes.byref(self._in_c_form()), len(active), active.ctypes.data, row.ctypes.data
        )
        return largest_change

    def _wire_loads(self) -> Iterator[tuple[Floats, Floats]]:
        """Yield a low and a high load by which queues are read, up and then down: see set_prices in sharing.c."""
        calibration, shape = self.calibration, self.shape
        ways = [load.reshape(-1, shape.spines) for load in (self.up_load, self.down_load)]
        data = 1 - calibration.sacks
        for load, reverse_load, variance in zip(ways, ways[::-1], self._variance.reshape(2, -1), strict=True):
            sums, link_counts = load.sum(axis=1), (load > UNUSED_LOAD).sum(axis=1)
            part = calibration.relief * data * sums + calibration.sacks * reverse_load.sum(axis=1)
            part = np.where(link_counts > 0, part / np.maximum(link_counts, 1), 0.0)
            excess = (variance / np.where(sums > 0, sums, 1.0))[:, None] * (load > UNUSED_LOAD)
            deviation = np.sqrt(np.maximum(load, 0.0) * excess)
            low, high = (
                ((1 - calibration.relief) * data * (load + excess + sign * deviation) + part[:, None]).ravel()
                for sign in (-1, 1)
            )
            yield low, high

    def _sweep_in_numpy(self, active: NDArray[np.int32]) -> float:
        calibration = self.calibration
        cost, skips, trims, target_price = self._tables
        load_steps, *_, rate_steps = calibration.steps()
        crowd = np.tile(np.repeat(self.crowd.reshape(2, -1), self.shape.spines, axis=1), self.shape.planes)
        prices = [
            crowd[way] * (_interpolate(table, low, load_steps) + _interpolate(table, high, load_steps)) / 2
            for way, (low, high) in enumerate(self._wire_loads())
            for table in (cost, skips, trims)
        ]
        updates = []
        for part in range(0, len(active), CHUNK):
            chunk = active[part : part + CHUNK].astype(np.int64)
            up_links, down_links = self._links(chunk)
            has_link = (self.spine[chunk] != NO_SPINE) & (self.usable_planes[chunk] > 0)[:, :, None]
            up_links, down_links = np.where(has_link, up_links, 0), np.where(has_link, down_links, 0)
            # Half of the former share is kept, or shares would swing from sweep to sweep.
            turns = has_link / (1 + prices[1][up_links] + prices[4][down_links])
            total = turns.sum(axis=2, keepdims=True)
            share = np.where(has_link, 0.5 * self.share[chunk] + 0.5 * turns / np.where(total > 0, total, 1), 0.0)
            planes_in_use = (total[:, :, 0] > 0).sum(axis=1)
            # Trims cost more the more packets a round trip has.
            former_rate = self.rate[chunk].astype(np.float64)
            link_prices = prices[0][up_links] + prices[3][down_links]
            link_prices += former_rate[:, None, None] * (prices[2][up_links] + prices[5][down_links])
            mean_price = (share * link_prices).sum(axis=(1, 2)) / np.maximum(planes_in_use, 1)
            self.delay[chunk] = np.where(self.local[chunk], 0.0, mean_price)
            wanted_price = _interpolate(target_price, former_rate, rate_steps)
            wanted_price -= self.bursts[chunk] * former_rate**BURST_POWER
            change = calibration.eta * (wanted_price - mean_price)
            rate = np.clip(self.rate[chunk] + np.clip(change, -STEP, STEP), FLOOR, calibration.top)
            rate = np.where(planes_in_use > 0, rate, self.rate[chunk])
            rate = np.where(self.local[chunk], calibration.top, rate).astype(np.float32)
            updates.append((chunk, rate, np.where(self.local[chunk][:, None, None], 0.0, share).astype(np.float32)))
        # Applied after all chunks are computed: each chunk has to see the loads from before the sweep.
        largest_change = 0.0
        self._variance[:] = 0.0
        for chunk, rate, share in updates:
            largest_change = max(largest_change, float(np.abs(rate - self.rate[chunk]).max(initial=0.0)))
            self._load(chunk, -self.weight[chunk])
            self.rate[chunk], self.demand[chunk], self.share[chunk] = (
                rate,
                np.minimum(rate, self.limit[chunk]),
                np.where(self.local[chunk][:, None, None], self.share[chunk], share),
            )
            self._load(chunk, self.weight[chunk])
            self._vary(chunk)
        return largest_change

    def _vary(self, qps: Ints) -> None:
        """Add the variances of the loads that QPs of rings make, which send and wait by turns."""
        shape, demand = self.shape, self.demand[qps].astype(np.float64)
        squares = (self.share[qps] ** 2).sum(axis=2) * (~self.local[qps])[:, None]
        variances = squares * (self.weight[qps] ** 2 * demand * (self.rate[qps] - demand))[:, None]
        first = np.arange(2 * shape.planes).reshape(2, 1, -1) * shape.racks
        for planes, racks in zip(first, (self.source[qps], self.target[qps]), strict=True):
            np.add.at(self._variance, planes + racks[:, None], variances)


def _feeders(racks: NDArray[np.int32], ends: NDArray[np.int32] | Ints, count: int) -> Ints:
    """Return for each rack the number of different `ends` beside it."""
    different = np.unique(np.stack([racks, ends]), axis=1)[0]
    return np.bincount(different, minlength=count)


def _interpolate(table: Singles, positions: Floats, per_unit: float) -> Floats:
    """Interpolate a table of equal steps: linear between them, constant beyond its end."""
    values: Floats = np.interp(positions * per_unit, np.arange(len(table)), table)
    return values
