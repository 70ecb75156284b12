"""Workloads of a scenario as arrays of queue pairs: source, target, start, stop and number of QPs.

    flows = fluid_flows(plan.fabric, plan.work(), plan.seed)
    flows.pairs()                        # what the model runs
    flows.sum_by_flow(rates_of_qps)

Streams and permutations become their flows. A collective whose ranks each write to one other rank all the time (a ring:
all_reduce, all_gather, reduce_scatter, send_recv) becomes one flow per rank; all have the pace of their job.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mrc_testbed.experiments.language.model import Transport
from mrc_testbed.experiments.resolve.flows import CollectivePlan, FlowPlan, PlannedWork
from mrc_testbed.hosts.traffic.ring_collectives import RingRank
from mrc_testbed.simulator.fluid.rings import Rings
from mrc_testbed.simulator.fluid.shape import Floats, Ints, QueuePairs, Singles
from mrc_testbed.topologies.plan import Plan

RINGS = ("all_reduce", "all_gather", "reduce_scatter", "send_recv")
"""Collectives in which each rank writes to the next alone."""


@dataclass(frozen=True, slots=True)
class RingWork:
    """A workload of rings, and how often they run."""

    rings: Rings
    warm_up: int
    iterations: int


@dataclass(slots=True)
class FluidFlows:
    """All flows; entry i of each array belongs to flow i."""

    plan: Plan
    qps: int
    works: dict[str, tuple[int, int]]
    """Workload -> range of its flows (first, end)."""
    sources: Ints
    targets: Ints
    starts_s: Floats
    stops_s: Floats
    windows: Floats
    """Most bytes that the flow's application has outstanding."""
    message_bytes: dict[str, int]
    rings: dict[str, RingWork]
    """Workloads whose flows wait for each other."""

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def senders(self) -> int:
        return len(np.unique(self.sources))

    def host_conflicts(self) -> Iterator[str]:
        """Yield workloads with two flows from, or to, one host: the model cannot run them."""
        for ends in (self.sources, self.targets):
            hosts, counts = np.unique(ends, return_counts=True)
            if len(hosts) < len(ends):
                index = int(np.flatnonzero(np.isin(ends, hosts[counts > 1]))[-1])
                work = next(name for name, (start, stop) in self.works.items() if start <= index < stop)
                yield f"workload {work}: two flows of, or to, one host"

    def pairs(self) -> QueuePairs:
        """Return one entry per QP; the QPs of a flow are adjacent."""
        qps = self.qps
        return QueuePairs(
            np.repeat(self.sources, qps),
            np.repeat(self.targets, qps),
            np.repeat(self.starts_s, qps),
            np.repeat(self.stops_s, qps),
            np.full(len(self) * qps, 1.0 / qps),
            np.repeat(self.windows, qps),
            tuple(ring.rings for ring in self.rings.values()),
        )

    def sum_by_flow(self, qp_values: Singles) -> Floats:
        """Return the sum over the QPs of each flow."""
        out: Floats = qp_values.astype(np.float64).reshape(-1, self.qps).sum(axis=1)
        return out

    def lost(self, lost_by_qp: Floats) -> tuple[Floats, Floats]:
        """Return the packets lost by each flow, and by its worst QP."""
        rows = lost_by_qp.reshape(-1, self.qps)
        return rows.sum(axis=1), rows.max(axis=1)

    def ends(self, flow: int) -> tuple[str, str]:
        """Return the names of a flow's source and target."""
        hosts = self.plan.hosts
        return hosts[int(self.sources[flow])].name, hosts[int(self.targets[flow])].name

    def name_of_qp(self, qp: int) -> tuple[str, str]:
        """Return the names of a QP's source and target."""
        return self.ends(qp // self.qps)

    def notes(self) -> list[str]:
        """Return notes for the reader of results."""
        return [
            f"{work}: {'a ring' if ring.rings.jobs == 1 else f'{ring.rings.jobs} rings, each'} "
            "at the pace of its steps; single late packets are not modelled"
            for work, ring in sorted(self.rings.items())
        ]


def unsupported_work(work: PlannedWork, transport: Transport) -> Iterator[str]:
    """Yield the work that the model does not support, by name. `transport`: the run's."""
    for group in work.groups:
        if group.kind not in RINGS:
            yield f"{group.kind} of {group.work}: of collectives and programs only rings ({', '.join(RINGS)})"
    for flow in work.flows:
        if flow.messages is not None:
            yield f"workload {flow.work}, which ends with its `bytes`: only work that lasts until a time"
        if flow.rate_bps is not None or flow.pin:
            yield f"the rate or the pinned paths of {flow.work}"
    for work_plan in work.plans:
        if work_plan.transport.model_copy(update={"qps": 1}) != transport.model_copy(update={"qps": 1}):
            yield f"the transport of {work_plan.work}: only the run's, with another number of QPs"
    if len({work_plan.transport.qps for work_plan in work.plans}) > 1:
        yield "workloads with different numbers of QPs"


def fluid_flows(plan: Plan, work: PlannedWork, seed: int) -> FluidFlows:
    """Return all flows of supported work, in the order of its workloads."""
    ends: list[tuple[str, str, str, float, float, float]] = []
    rings: dict[str, RingWork] = {}
    by_work: dict[str, list[FlowPlan]] = {}
    for flow in work.flows:
        by_work.setdefault(flow.work, []).append(flow)
    groups: dict[str, list[CollectivePlan]] = {}
    for group in work.groups:
        groups.setdefault(group.work, []).append(group)
    works: dict[str, tuple[int, int]] = {}
    messages: dict[str, int] = {}
    qps = next((work_plan.transport.qps for work_plan in work.plans), 1)
    inf = float("inf")
    for name in work.names:
        first = len(ends)
        if name in groups:
            # Jobs of one workload are equal: the first gives the sizes of all.
            jobs = groups[name]
            collective = jobs[0].rank(0, seed)
            ranks = len(jobs[0].ranks)
            steps = collective.steps if isinstance(collective, RingRank) else 1
            chunk_bytes = collective.size_bytes * collective.bus_factor / steps
            rings[name] = RingWork(
                Rings(first * qps, len(jobs), ranks, qps, steps, chunk_bytes),
                jobs[0].warm_up,
                jobs[0].iterations,
            )
            messages[name] = max(1, jobs[0].size_bytes // ranks)
            stop = inf if jobs[0].stop_s is None else jobs[0].stop_s
            ends += [
                (name, rank, next_rank, group.start_s, stop, chunk_bytes)
                for group in jobs
                for rank, next_rank in zip(group.ranks, (*group.ranks[1:], group.ranks[0]), strict=True)
            ]
        for flow in by_work.get(name, ()):
            messages[name] = flow.message_bytes
            stop = inf if flow.stop_s is None else flow.stop_s
            window = float(flow.message_bytes * max(flow.depth, flow.transport.qps))
            ends.append((name, flow.source, flow.target, flow.start_s, stop, window))
        works[name] = (first, len(ends))

    def find(host: str) -> int:
        return plan.host(host).number

    return FluidFlows(
        plan,
        qps,
        works,
        np.array([find(end[1]) for end in ends], np.int64),
        np.array([find(end[2]) for end in ends], np.int64),
        np.array([end[3] for end in ends], np.float64),
        np.array([end[4] for end in ends], np.float64),
        np.array([end[5] for end in ends], np.float64),
        messages,
        rings,
    )
