"""`mrc bench fluid --calibrate`: what the fluid model takes from the packet simulator, measured anew.

Permutations on fabrics of 8 to 64 hosts, of four planes, with dead links, with the denylist (so that nothing is lost),
run in packets. Each T0-T1 link then has a load, users, a queue and shares of marked and trimmed packets, each QP a rate
and the mean of its links' delays: the tables are means over bins of these. Four numbers are those with the least
squares left: `steady` and `relief` of the links, `trim_price`, and `bursts` of QPs whose applications have much or
little outstanding. Then the model runs with the tables, and what rates hold (`price`) is moved as a whole until the
mean rate is that of the packets: errors of the tables add up in it. Two pipes: 10 Mb/s x 10 ms with a PMTU of 1024, the
scenarios' own, and 100 Gb/s x 10 us with 4096, the paper's.

Times and losses (KEPT) are not measured here: they come from runs with faults, and are kept.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mrc_testbed.experiments.fluid.fluid_run import FluidRunner, shape_of
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.virtual.virtual_run import VirtualRun
from mrc_testbed.simulator.fluid.calibration import BURST_POWER, Calibration, calibration_for
from mrc_testbed.simulator.fluid.shape import Floats

FABRICS: Final = (
    (4, 4, 8, 8),
    (4, 6, 8, 8),
    (4, 4, 16, 16),
    (4, 4, 8, 2),
)
"""Planes, racks, spines, hosts a rack; not those of the comparison.

That of two hosts a rack has more uplinks than it can use. On the first, applications have half as much outstanding too.
"""


SHARES: Final = (5, 10)
"""Percent of the T0-T1 links that are dead."""


@dataclass(frozen=True, slots=True)
class Pipe:
    """Links of one depth: lines of a scenario, and the size and number of an application's messages."""

    lines: str
    message: str
    depth: int


PIPES: Final = {
    "own": Pipe("duration: 4s\nmeasure: {every: 50ms}", "64K", 4),
    "paper": Pipe(
        "links: {rate: 100G, rtt: 10us}\ntransport: {pmtu: 4096, clock: 0.001}\nduration: 2000us\n"
        "measure: {every: 40us}",
        "256K",
        16,
    ),
}
SCENARIO: Final = """title: Settled rates
fabric: {{planes: {0}, racks: {1}, spines: {2}, hosts_per_rack: {3}}}
workload: [{{permutation: all, name: job, message: {message}, depth: {depth}}}]
control_plane: {{denylist: all}}
faults: [{{at: 0s, silent: {{random: fabric-links, share: {share}%}}}}]
{lines}
"""
KEPT: Final = (
    "retire_rtts",
    "found_rtts",
    "timer_rtts",
    "own_delay_rtts",
    "lost",
    "lost_young",
    "notice_rtts",
)
"""Values of a calibration that are not measured here."""
SAMPLES: Final = 400
"""Readings of the queues in the second half of a run."""
LOAD_EDGES: Final = (0.2, 0.4, 0.5, 0.6, 0.68, 0.74, 0.78, 0.82, 0.85, 0.88, 0.905, 0.93, 0.96, 1.0)
DELAY_EDGES: Final = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 2.0)
RATE_EDGES: Final = (0.3, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.84, 0.87, 0.89, 0.91, 0.94, 0.96, 0.98, 1.0)
"""Edges of the bins over which the tables' values are means."""
FEEDERS_MIN: Final = 4
"""Links that feed a link whose queue is measured: with fewer, it says little of others."""
FREE_SHARE: Final = 0.05
"""Part of the QPs, those with the least delay, whose rates nothing holds back: the two hosts a rack have such QPs."""
FEWEST: Final = 3
"""Links or QPs that make a bin."""
BUSY_LOADS: Final = 0.68, 0.85
"""Loads of the links whose wire is compared with their payload."""
USED_MIN: Final = 0.003
"""Least share of what a QP sends in a plane that makes it a user of a link: an EV may be tried for a moment."""
TRIMMED_MIN: Final = 1e-4
"""Spread of the trims by which their price is measured."""
OFFSETS: Final = -0.2, 0.2
"""Bounds of what `price` is moved by."""
HALVINGS: Final = 7
RELIEFS: Final = tuple(step / 20 for step in range(13))
"""Values of `relief` that are tried."""
STEADY: Final = tuple(step / 10 for step in range(11))
"""Values of `steady` that are tried."""
HELD_BACK: Final = 0.5, 0.9
"""Rates of the QPs that show what bursts cost."""


@dataclass(frozen=True, slots=True)
class LinkPoint:
    """A T0-T1 link in one direction, over the second half of a run."""

    load: float
    """Payload, a share of what a link carries: a QP's rate as often as it used the link."""
    wire: float
    """Everything sent, a share of the line."""
    delay: float
    """Mean queueing delay, base round trips."""
    marked: float
    """Share of the packets that were marked."""
    trimmed: float
    """Share of the packets that were trimmed."""
    feeders: int
    """Links that feed it."""
    users: int
    """QPs that send over it."""
    mean: float
    """Mean load of the links of its T0 in the plane, in the same direction."""
    rate: float
    """Mean rate of the QPs of its rack that send over such links, by load."""


@dataclass(frozen=True, slots=True)
class QpPoint:
    """A QP between racks, over the second half of a run."""

    rate: float
    delay: float
    """Mean queueing delay of its packets between T0s, base round trips."""
    trims: float
    """Trims of its packets for each that a pipe at rate 1 has."""
    window: float
    """Outstanding bytes of its application, base round trips of all planes."""
    ends: float
    """Mean delay in its NIC's ring and at the last hop, base round trips."""


@dataclass(frozen=True, slots=True)
class PacketRun:
    """A run in packets: its plan, the EVs that it drew, and the mean rate of its QPs, a share of the line."""

    plan: RunPlan
    evs: NDArray[np.uint16]
    rate: float


def calibrate(pipe: str, seeds: int, report: Callable[[str], None]) -> Calibration:
    """The calibration of a pipe, of `own` or `paper`."""
    links: list[LinkPoint] = []
    qps: list[QpPoint] = []
    runs: list[PacketRun] = []
    depth = PIPES[pipe].depth
    for fabric, fabric_depth in (*((fabric, depth) for fabric in FABRICS), (FABRICS[0], depth // 2)):
        for share in SHARES:
            for seed in range(1, seeds + 1):
                report(f"{pipe}: {'x'.join(map(str, fabric))}, {fabric_depth} messages, {share} % dead, seed {seed}")
                measured = MeasuredRun(scenario_run(pipe, fabric, share, seed, fabric_depth))
                run_links, run_qps = measured.points()
                links += run_links
                qps += run_qps
                runs.append(PacketRun(measured.plan, measured.evs, float(np.mean(measured.rates()))))
    shape = shape_of(runs[0].plan)
    tables = tables_of(replace(calibration_for(shape), packets=round(shape.packets_per_rtt, 2)), links, qps)
    report(f"{pipe}: the model with these tables")
    return balanced(tables, runs)


def balanced(calibration: Calibration, runs: Sequence[PacketRun]) -> Calibration:
    """Return a calibration with `price` moved until the model's mean rate is that of the packets."""
    low, high = OFFSETS
    packets = float(np.mean([run.rate for run in runs]))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        trial = replace(calibration, price=tuple(round(price + middle, 4) for price in calibration.price))
        if float(np.mean([fluid_rate(run, trial) for run in runs])) < packets:
            low = middle
        else:
            high = middle
    return trial


def fluid_rate(run: PacketRun, calibration: Calibration) -> float:
    """Return the mean rate that the model settles at, a share of the line."""
    series = FluidRunner(run.evs, calibration).run(run.plan).series.received_bps
    shape = shape_of(run.plan)
    return float(np.mean([values[-1] for values in series.values()])) / (shape.payload_bps * shape.planes)


def tables_of(calibration: Calibration, links: Sequence[LinkPoint], qps: Sequence[QpPoint]) -> Calibration:
    """Return a calibration with the tables that links and QPs show."""
    busy_links = [link for link in links if BUSY_LOADS[0] <= link.load <= BUSY_LOADS[1]]
    wire = float(np.mean([link.wire / link.load for link in busy_links]))
    free_qps = sorted(qps, key=lambda qp: qp.delay)[: max(1, int(FREE_SHARE * len(qps)))]
    top = float(np.median([qp.rate for qp in free_qps]))
    calibration = replace(calibration, wire=round(wire, 4), top=round(top, 4))
    steady, relief, loads, wander = wander_of(calibration, links)
    delays, marks = bins(DELAY_EDGES, [link.delay for link in links], [link.marked for link in links])
    _, trims = bins(DELAY_EDGES, [link.delay for link in links], [link.trimmed for link in links])
    held, bursts, trim_price = costs_of(qps, calibration)
    prices = [qp.delay + trim_price * qp.trims + bursts * (qp.rate / qp.window) ** BURST_POWER for qp in qps]
    rates, price = bins(RATE_EDGES, [qp.rate for qp in qps], prices)
    return replace(
        calibration,
        steady=steady,
        relief=relief,
        loads=(0.0, *loads),
        wander=(0.0, *wander),
        delays=(0.0, *delays),
        marks=(0.0, *marks),
        trims=(0.0, *trims),
        trim_price=round(trim_price, 2),
        bursts=round(bursts, 2),
        rates=(0.0, *rates),
        price=(round(held, 4), *price),
    )


def wander_of(
    calibration: Calibration, links: Sequence[LinkPoint]
) -> tuple[float, float, tuple[float, ...], tuple[float, ...]]:
    """Return `steady`, `relief`, `loads` and `wander`.

    The table has what is left of delays once the part that has a formula is taken off; of the two numbers the values
    that leave the least squares.
    """
    measured_links = [link for link in links if min(link.feeders, link.users) >= FEEDERS_MIN]
    load, mean, rate = (np.array([getattr(link, name) for link in measured_links]) for name in ("load", "mean", "rate"))
    crowd = 1 - 1 / np.array([min(link.feeders, link.users) for link in measured_links])
    regular = [float(calibration.streams_delay(np.array([link.load]), link.users)[0]) for link in measured_links]
    rest = np.array([link.delay for link in measured_links]) - crowd * np.array(regular)
    fits = []
    for steady, relief in product(STEADY, RELIEFS):
        factor, mixed = crowd * (1 - steady * rate), load + relief * (mean - load)
        # Of each bin the value that leaves the least squares: links whose QPs are at line rate say little of it.
        loads, products = bins(LOAD_EDGES, mixed.tolist(), (factor * rest).tolist())
        _, squares = bins(LOAD_EDGES, mixed.tolist(), (factor**2).tolist())
        wander = tuple(round(a / b, 4) for a, b in zip(products, squares, strict=True))
        missed = rest - factor * np.interp(mixed, (0.0, *loads), (0.0, *wander))
        fits.append((float((missed**2).sum()), steady, relief, loads, wander))
    _, steady, relief, loads, wander = min(fits)
    return steady, relief, loads, wander


def costs_of(qps: Sequence[QpPoint], former: Calibration) -> tuple[float, float, float]:
    """Return the delay that QPs hold, `bursts` and `trim_price`: what it falls by for bursts and for trims.

    The whole delay, from the NIC's ring to the last hop, is one number for all QPs that are held back, but for trims.
    The part between T0s falls by bursts, beside any function of the rate. By least squares. `former`: its values stay
    if all windows, or trims, are equal.
    """
    held_back = [qp for qp in qps if HELD_BACK[0] <= qp.rate <= HELD_BACK[1]]
    held, bursts, trim_price = former.price[0], former.bursts, former.trim_price
    if not held_back:
        return held, bursts, trim_price
    rate, delay, trims, ends = (
        np.array([getattr(qp, name) for qp in held_back]) for name in ("rate", "delay", "trims", "ends")
    )
    if np.ptp(trims) > TRIMMED_MIN:
        trim_price = -float(np.polyfit(trims, delay + ends, 1)[0])
    held = float(np.mean(delay + ends + trim_price * trims))
    if len({qp.window for qp in held_back}) > 1:
        costs = np.array([(qp.rate / qp.window) ** BURST_POWER for qp in held_back])
        knots = [edge for edge in RATE_EDGES if HELD_BACK[0] <= edge <= HELD_BACK[1]]
        shapes = [np.interp(rate, knots, row) for row in np.eye(len(knots))]
        priced = delay + trim_price * trims
        bursts = float(np.linalg.lstsq(np.stack([*shapes, -costs], axis=1), priced, rcond=None)[0][-1])
    return held, bursts, trim_price


def bins(
    edges: Sequence[float], positions: Sequence[float], values: Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the means of positions and values in each bin that has enough of them."""
    abscissas, ordinates = np.array(positions), np.array(values)
    masks = [(abscissas >= low) & (abscissas < high) for low, high in pairwise(edges)]
    full_masks = [mask for mask in masks if mask.sum() >= FEWEST]
    return (
        tuple(round(float(abscissas[mask].mean()), 4) for mask in full_masks),
        tuple(round(float(ordinates[mask].mean()), 4) for mask in full_masks),
    )


class DrawnRun(VirtualRun):
    """A packet run that keeps the EVs that it began with."""

    def begin(self) -> None:
        """Set up the run, and note the EVs."""
        super().begin()
        shape = shape_of(self.plan)
        self.evs = np.zeros((len(self.flows), shape.planes, shape.evs_per_plane), np.uint16)
        """[QP, plane, EV]: see the model's Settings."""
        for number, flow in enumerate(self.flows):
            states = flow.pairs[0][0].ev_states()
            for plane in range(shape.planes):
                in_plane = sorted((not ev["active"], ev["ev"] & 0xFF) for ev in states if ev["plane"] == plane)
                self.evs[number, plane, : len(in_plane)] = [spine for _, spine in in_plane]


class MeasuredRun(DrawnRun):
    """A permutation in packets, whose links and QPs are read in its second half."""

    def __init__(self, run: RunPlan) -> None:
        super().__init__(run)
        self._queued_bytes: Floats = np.zeros(0)
        self._readings = 0
        self._at_half: tuple[float, Floats, list[Counter[int]], list[int]] | None = None

    def begin(self) -> None:
        """Set up the run, and readings of its queues from the middle on."""
        super().begin()
        assert self.plan.duration_s is not None
        half = self.plan.duration_s / 2
        self.fabric.schedule(
            self.start_time + half,
            lambda: self.fabric.sample(half / SAMPLES, self._sample_queues, self.start_time + self.plan.limit_s),
        )

    def _sample_queues(self, _: float) -> None:
        if self._at_half is None:
            self._at_half = self._counters()
            self._queued_bytes = np.zeros(len(self.fabric.ports))
        self._queued_bytes += [port.data_bytes for port in self.fabric.ports.values()]
        self._readings += 1

    def _counters(self) -> tuple[float, Floats, list[Counter[int]], list[int]]:
        """Return time, (bytes, packets, marked, trimmed) of ports, packets by EV and bytes received of flows."""
        ports = self.fabric.ports.values()
        return (
            self.fabric.now,
            np.array([(port.forwarded_bytes, port.forwarded, port.marked, port.trimmed) for port in ports], float),
            [Counter({ev["ev"]: ev["sent"] for ev in flow.pairs[0][0].ev_states()}) for flow in self.flows],
            [flow.received_bytes for flow in self.flows],
        )

    def rates(self) -> list[float]:
        """Return the rates of all flows in the second half, shares of the line."""
        assert self._at_half is not None
        shape = shape_of(self.plan)
        seconds = self._end[0] - self._at_half[0]
        line_bytes = shape.payload_bps * shape.planes * seconds / 8
        return [(new - old) / line_bytes for old, new in zip(self._at_half[3], self._end[3], strict=True)]

    def points(self) -> tuple[list[LinkPoint], list[QpPoint]]:
        """Run, and return what each T0-T1 link and each QP between racks did."""
        self.carry_out(lambda *_: None)
        shape, plan = shape_of(self.plan), self.plan.fabric
        assert self._at_half is not None
        half_s, ports_before, evs_before, bytes_before = self._at_half
        self._end = self._counters()
        end_s, ports_now, evs_now, bytes_now = self._end
        lasts = end_s - half_s
        sent_bytes, sent_packets, marked, trimmed = (ports_now - ports_before).T
        # Little's law: mean queue over throughput is the mean time in the queue.
        trimmed_shares = trimmed / np.maximum(sent_packets, 1)
        delays = self._queued_bytes / self._readings / np.maximum(sent_bytes, 1) * lasts / shape.rtt_s
        ports = {(port.node, port.neighbour): index for index, port in enumerate(self.fabric.ports.values())}
        hosts = {host.name: host.number for host in plan.hosts}
        loads, users = np.zeros(len(ports)), np.zeros(len(ports), int)
        senders: dict[int, set[int]] = {rack: set() for rack in range(shape.racks)}
        qps = []
        rates: dict[tuple[int, bool], list[float]] = {}
        for flow, old_counts, new_counts, old_bytes, new_bytes in zip(
            self.flows, evs_before, evs_now, bytes_before, bytes_now, strict=True
        ):
            source, target = (hosts[name] // shape.hosts_per_rack for name in (flow.plan.source, flow.plan.target))
            if source == target:
                continue
            senders[target].add(source)
            rate = (new_bytes - old_bytes) * 8 / lasts / (shape.payload_bps * shape.planes)
            sent = new_counts - old_counts
            total, delay, trims = sum(sent.values()), 0.0, 0.0
            for ev, count in sent.items():
                plane, spine = ev >> 8, ev & 0xFF
                t0s, t1 = [f"p{plane}-t0-{rack}" for rack in (source, target)], f"p{plane}-t1-{spine}"
                for index in (ports[t0s[0], t1], ports[t1, t0s[1]]):
                    loads[index] += rate * count / total * shape.planes
                    users[index] += count / total * shape.planes > USED_MIN
                    delay += float(delays[index]) * count / total
                    trims += rate * float(trimmed_shares[index]) * count / total
            window = flow.plan.message_bytes * flow.plan.depth / (shape.planes * shape.rate_bps / 8 * shape.rtt_s)
            hops = [
                delays[ports[hop]]
                for plane in range(shape.planes)
                for hop in (
                    (flow.plan.source, f"p{plane}-t0-{source}"),
                    (f"p{plane}-t0-{target}", flow.plan.target),
                )
            ]
            qps.append(QpPoint(rate, delay, trims, window, float(np.sum(hops)) / shape.planes))
            for key in ((source, True), (target, False)):
                rates.setdefault(key, []).append(rate)
        links = []
        rows: dict[tuple[str, bool], list[int]] = {}
        for (node, neighbour), index in ports.items():
            if users[index] and "-t0-" in node + neighbour and "-t1-" in node + neighbour:
                goes_up = "-t0-" in node
                rows.setdefault((node if goes_up else neighbour, goes_up), []).append(index)
        for (t0, goes_up), indexes in rows.items():
            rack = int(t0.rsplit("-", 1)[1])
            feeders = shape.hosts_per_rack if goes_up else len(senders[rack])
            rack_rates = np.array(rates[rack, goes_up])
            for index in indexes:
                links.append(
                    LinkPoint(
                        float(loads[index]),
                        float(sent_bytes[index]) * 8 / lasts / shape.rate_bps,
                        float(delays[index]),
                        float(marked[index] / sent_packets[index]),
                        float(trimmed_shares[index]),
                        feeders,
                        int(users[index]),
                        float(loads[indexes].mean()),
                        float((rack_rates**2).sum() / rack_rates.sum()),
                    )
                )
        return links, qps


def scenario_run(pipe: str, fabric: tuple[int, int, int, int], share: int, seed: int, depth: int) -> RunPlan:
    """The run of a pipe on a fabric with so many percent of its links dead, and so many messages outstanding."""
    text = SCENARIO.format(*fabric, message=PIPES[pipe].message, depth=depth, share=share, lines=PIPES[pipe].lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settled.yaml"
        path.write_text(text, encoding="utf-8")
        (run,) = plan_runs(read(path), "virtual", seed=seed).runs
    return run
