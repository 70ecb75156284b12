"""`mrc bench fluid --calibrate`: what the fluid model takes from the packet simulator, measured anew.

Permutations on fabrics of 8 to 48 hosts, of four planes, whole and with dead links, with the denylist (so that nothing
is lost), run in packets. Each T0-T1 link then has a load, a queue and a share of marked packets, each QP a rate and the
mean of its links' delays: the tables are means over bins of these. Two pipes: 10 Mb/s x 10 ms with a PMTU of 1024, the
scenarios' own, and 100 Gb/s x 10 us with 4096, the paper's.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from mrc_testbed.experiments.fluid.fluid_run import shape_of
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.virtual.virtual_run import VirtualRun
from mrc_testbed.simulator.fluid.calibration import BURST_POWER, TRIM_PRICE, Calibration, calibration_for
from mrc_testbed.simulator.fluid.shape import Floats

FABRICS: Final = (
    (4, 4, 8, 8),
    (4, 6, 8, 8),
    (4, 4, 8, 2),
    (4, 8, 8, 4),
)
"""Planes, racks, spines, hosts a rack; not those of the comparison.

That of two hosts a rack has more uplinks than it can use.
"""
SHARES: Final = (0, 5, 15)
"""Percent of the T0-T1 links that are dead."""
PIPES: Final = {
    "own": ("duration: 4s\nmeasure: {every: 50ms}", "message: 64K, depth: 4", 1.0),
    "paper": (
        "links: {rate: 100G, rtt: 10us}\ntransport: {pmtu: 4096, clock: 0.001}\nduration: 3200us\n"
        "measure: {every: 40us}",
        "message: 256K, depth: 16",
        0.001,
    ),
}
"""Lines of a scenario, its messages, and its seconds in the own one's."""
SCENARIO: Final = """title: Settled rates
fabric: {{planes: {0}, racks: {1}, spines: {2}, hosts_per_rack: {3}}}
workload: [{{permutation: all, name: job, {messages}}}]
control_plane: {{denylist: all}}
faults: {faults}
{lines}
"""
SAMPLES: Final = 400
"""Readings of the queues in the second half of a run."""
LOAD_EDGES: Final = (0.2, 0.4, 0.5, 0.6, 0.68, 0.74, 0.78, 0.81, 0.83, 0.85, 0.87, 0.89, 0.92, 0.95, 1.0, 1.1)
DELAY_EDGES: Final = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 2.0)
RATE_EDGES: Final = (0.3, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.84, 0.87, 0.89, 0.91, 0.94, 0.96, 0.98, 1.0)
"""Edges of the bins over which the tables' values are means."""
FEEDERS_MIN: Final = 4
"""Links that feed a link whose queue is measured: with fewer, it says little of others."""
FREE_QUANTILE: Final = 0.9
"""Quantile of the rates that nothing holds back: half of the fabrics have QPs that are free."""
FEWEST: Final = 3
"""Links or QPs that make a bin."""
BUSY_LOADS: Final = 0.68, 0.85
"""Loads of the links whose wire is compared with their payload."""


@dataclass(frozen=True, slots=True)
class LinkPoint:
    """A T0-T1 link in one direction, over the second half of a run."""

    load: float
    """Payload, a share of what a link carries: a QP's rate as often as it used the link."""
    wire: float
    """Everything offered: sent, or trimmed here; a share of the line."""
    delay: float
    """Mean queueing delay, base round trips."""
    marked: float
    """Share of the packets that were marked."""
    trimmed: float
    """Share of the packets that were trimmed."""
    feeders: int
    """Links that feed it."""
    streams: int
    """NICs of the rack."""
    row_wire: float
    """Mean of `wire` over the T0's links in the plane that are used."""


@dataclass(frozen=True, slots=True)
class QpPoint:
    """A QP between racks, over the second half of a run."""

    rate: float
    price: float
    """Mean price of its packets between T0s: queueing delay and trims, base round trips."""
    window: float
    """Outstanding bytes of its application, base round trips of all planes."""


def calibrate(pipe: str, seeds: int, report: Callable[[str], None]) -> Calibration:
    """The calibration of a pipe, of `own` or `paper`."""
    links: list[LinkPoint] = []
    qps: list[QpPoint] = []
    for fabric in FABRICS:
        for share in SHARES:
            for seed in range(1, seeds + 1):
                report(f"{pipe}: {'x'.join(map(str, fabric))}, {share} % dead, seed {seed}")
                run = scenario_run(pipe, fabric, share, seed)
                run_links, run_qps = MeasuredRun(run).points()
                links += run_links
                qps += run_qps
    shape = shape_of(run)
    return tables_of(replace(calibration_for(shape), packets=shape.packets_per_rtt), links, qps)


def tables_of(calibration: Calibration, links: Sequence[LinkPoint], qps: Sequence[QpPoint]) -> Calibration:
    """Return a calibration with the tables that links and QPs show."""
    busy_links = [link for link in links if BUSY_LOADS[0] <= link.load <= BUSY_LOADS[1]]
    wire = float(np.mean([link.wire / link.load for link in busy_links]))
    top = float(np.quantile([qp.rate for qp in qps], FREE_QUANTILE))
    calibration = replace(calibration, wire=wire, top=top)
    read_loads = {link: (link.wire + calibration.relief * (link.row_wire - link.wire)) / wire for link in links}
    # What is left of a link's delay once the part that has a formula is taken off.
    measured_links = [link for link in links if link.feeders >= FEEDERS_MIN]
    wander = [
        link.delay / (1 - 1 / link.feeders)
        - float(calibration.streams_delay(np.array([read_loads[link]]), max(2, link.streams))[0])
        for link in measured_links
    ]
    loads, wander_by_load = bins(LOAD_EDGES, [read_loads[link] for link in measured_links], wander)
    delays, marks = bins(DELAY_EDGES, [link.delay for link in links], [link.marked for link in links])
    _, trims = bins(DELAY_EDGES, [link.delay for link in links], [link.trimmed for link in links])
    bursts = [calibration.bursts * (qp.rate / qp.window) ** BURST_POWER for qp in qps]
    rates, price = bins(
        RATE_EDGES, [qp.rate for qp in qps], [qp.price + burst for qp, burst in zip(qps, bursts, strict=True)]
    )
    return replace(
        calibration,
        loads=(0.0, *loads),
        wander=(0.0, *wander_by_load),
        delays=(0.0, *delays),
        marks=(0.0, *marks),
        trims=(0.0, *trims),
        rates=rates,
        price=price,
    )


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


class MeasuredRun(VirtualRun):
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

    def points(self) -> tuple[list[LinkPoint], list[QpPoint]]:
        """Run, and return what each T0-T1 link and each QP between racks did."""
        self.carry_out(lambda *_: None)
        shape, plan = shape_of(self.plan), self.plan.fabric
        assert self._at_half is not None
        half_s, ports_before, evs_before, bytes_before = self._at_half
        end_s, ports_now, evs_now, bytes_now = self._counters()
        lasts = end_s - half_s
        sent_bytes, sent_packets, marked, trimmed = (ports_now - ports_before).T
        # Little's law: mean queue over throughput is the mean time in the queue.
        trimmed_shares = trimmed / np.maximum(sent_packets, 1)
        delays = self._queued_bytes / self._readings / np.maximum(sent_bytes, 1) * lasts / shape.rtt_s
        ports = {(port.node, port.neighbour): index for index, port in enumerate(self.fabric.ports.values())}
        hosts = {host.name: host.number for host in plan.hosts}
        loads = np.zeros(len(ports))
        senders: dict[int, set[int]] = {rack: set() for rack in range(shape.racks)}
        qps = []
        for flow, old_counts, new_counts, old_bytes, new_bytes in zip(
            self.flows, evs_before, evs_now, bytes_before, bytes_now, strict=True
        ):
            source, target = (hosts[name] // shape.hosts_per_rack for name in (flow.plan.source, flow.plan.target))
            if source == target:
                continue
            senders[target].add(source)
            rate = (new_bytes - old_bytes) * 8 / lasts / (shape.payload_bps * shape.planes)
            sent = new_counts - old_counts
            total, price = sum(sent.values()), 0.0
            for ev, count in sent.items():
                plane, spine = ev >> 8, ev & 0xFF
                t0s, t1 = [f"p{plane}-t0-{rack}" for rack in (source, target)], f"p{plane}-t1-{spine}"
                for index in (ports[t0s[0], t1], ports[t1, t0s[1]]):
                    loads[index] += rate * count / total * shape.planes
                    price += float(delays[index] + TRIM_PRICE * rate * trimmed_shares[index]) * count / total
            window = flow.plan.message_bytes * flow.plan.depth / (shape.planes * shape.rate_bps / 8 * shape.rtt_s)
            qps.append(QpPoint(rate, price, window))
        wire = (sent_bytes + trimmed * shape.frame_bytes) * 8 / lasts / shape.rate_bps
        fabric_ports = [
            (node, neighbour, index)
            for (node, neighbour), index in ports.items()
            if loads[index] and "-t0-" in node + neighbour and "-t1-" in node + neighbour
        ]
        rows: dict[tuple[str, bool], list[float]] = {}
        for node, neighbour, index in fabric_ports:
            is_up = "-t0-" in node
            rows.setdefault((node if is_up else neighbour, is_up), []).append(float(wire[index]))
        links = []
        for node, neighbour, index in fabric_ports:
            is_up = "-t0-" in node
            feeders = shape.hosts_per_rack if is_up else len(senders[int(neighbour.rsplit("-", 1)[1])])
            links.append(
                LinkPoint(
                    float(loads[index]),
                    float(wire[index]),
                    float(delays[index]),
                    float(marked[index] / sent_packets[index]),
                    float(trimmed_shares[index]),
                    feeders,
                    shape.hosts_per_rack,
                    float(np.mean(rows[node if is_up else neighbour, is_up])),
                )
            )
        return links, qps


def scenario_run(pipe: str, fabric: tuple[int, int, int, int], share: int, seed: int) -> RunPlan:
    """The run of a pipe on a fabric with so many percent of its links dead."""
    lines, messages, _ = PIPES[pipe]
    faults = f"[{{at: 0s, silent: {{random: fabric-links, share: {share}%}}}}]" if share else "[]"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settled.yaml"
        path.write_text(SCENARIO.format(*fabric, messages=messages, faults=faults, lines=lines), encoding="utf-8")
        (run,) = plan_runs(read(path), "virtual", seed=seed).runs
    return run
