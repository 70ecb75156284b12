"""Workloads of a scenario as arrays of queue pairs: who sends to whom, from when on, over how many QPs.

    flows = fluid_flows(plan.fabric, plan.work(), plan.seed)
    flows.pairs()                        # what the model runs
    flows.of_flows(rates_of_qps)

Streams and permutations are what they are. A collective whose ranks each write to one other rank all the time (a ring:
all_reduce, all_gather, reduce_scatter, send_recv) is as many flows that run at the pace of the slowest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mrc_testbed.experiments.language.model import Transport
from mrc_testbed.experiments.resolve.flows import CollectivePlan, FlowPlan, PlannedWork
from mrc_testbed.simulator.fluid.shape import Floats, Ints, QueuePairs, Singles
from mrc_testbed.topologies.plan import Plan

RINGS = ("all_reduce", "all_gather", "reduce_scatter", "send_recv")
"""Collectives in which each rank writes to the next alone."""


@dataclass(frozen=True, slots=True)
class Ring:
    """A workload of one ring or, as `jobs`, several equal ones, whose flows stand one job after the other."""

    jobs: int
    ranks: int
    step_bytes: float
    """That each rank sends in an iteration."""
    warm_up: int
    iterations: int


@dataclass(slots=True)
class FluidFlows:
    """All flows; entry i of each array is one of them."""

    plan: Plan
    qps: int
    works: dict[str, tuple[int, int]]
    """Flows (from, to) of each workload."""
    sources: Ints
    targets: Ints
    starts_s: Floats
    stops_s: Floats
    windows: Floats
    """Bytes that its application has outstanding at most."""
    message_bytes: dict[str, int]
    rings: dict[str, Ring]
    """Workloads whose jobs run at the pace of their slowest flow."""

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def senders(self) -> int:
        return len(np.unique(self.sources))

    def refused(self) -> Iterator[str]:
        """What the model cannot do with them."""
        for ends in (self.sources, self.targets):
            hosts, counts = np.unique(ends, return_counts=True)
            if len(hosts) < len(ends):
                at = int(np.flatnonzero(np.isin(ends, hosts[counts > 1]))[-1])
                work = next(name for name, (start, stop) in self.works.items() if start <= at < stop)
                yield f"workload {work}: two flows of, or to, one host"

    def pairs(self) -> QueuePairs:
        """One entry a QP; those of a flow stand together."""
        many = self.qps
        return QueuePairs(
            np.repeat(self.sources, many),
            np.repeat(self.targets, many),
            np.repeat(self.starts_s, many),
            np.repeat(self.stops_s, many),
            np.full(len(self) * many, 1.0 / many),
            np.repeat(self.windows, many),
        )

    def of_flows(self, of_qps: Singles) -> Floats:
        """Sums of the QPs of each flow."""
        out: Floats = of_qps.astype(np.float64).reshape(-1, self.qps).sum(axis=1)
        return out

    def paced(self, work: str, rates: Floats) -> Floats:
        """Rates of a workload's flows; in a ring nobody is faster than the slowest."""
        ring = self.rings.get(work)
        return rates if ring is None else np.repeat(rates.reshape(ring.jobs, ring.ranks).min(axis=1), ring.ranks)

    def lost(self, of_qps: Floats) -> tuple[Floats, Floats]:
        """Packets lost by each flow, and by its worst QP."""
        rows = of_qps.reshape(-1, self.qps)
        return rows.sum(axis=1), rows.max(axis=1)

    def ends(self, flow: int) -> tuple[str, str]:
        """Names of its hosts."""
        hosts = self.plan.hosts
        return hosts[int(self.sources[flow])].name, hosts[int(self.targets[flow])].name

    def name_of_qp(self, qp: int) -> tuple[str, str]:
        """Names of the hosts of a QP."""
        return self.ends(qp // self.qps)

    def notes(self) -> list[str]:
        """Notes for the reader of results."""
        return [
            f"{work}: {'a ring' if ring.jobs == 1 else f'{ring.jobs} rings, each'} at the pace of its slowest flow; "
            "steps and their latency are not modelled"
            for work, ring in sorted(self.rings.items())
        ]


def refused_work(work: PlannedWork, transport: Transport) -> Iterator[str]:
    """Work that the model knows nothing of, by name. `transport`: of the run."""
    for group in work.groups:
        if group.kind not in RINGS:
            yield f"{group.kind} of {group.work}: of collectives and programs only rings ({', '.join(RINGS)})"
    for flow in work.flows:
        if flow.messages is not None:
            yield f"workload {flow.work}, which ends with its `bytes`: only work that lasts until a time"
        if flow.rate_bps is not None or flow.pin:
            yield f"the rate or the pinned paths of {flow.work}"
    for one in work.plans:
        if one.transport.model_copy(update={"qps": 1}) != transport.model_copy(update={"qps": 1}):
            yield f"the transport of {one.work}: only the run's, with another number of QPs"
    if len({one.transport.qps for one in work.plans}) > 1:
        yield "workloads with different numbers of QPs"


def fluid_flows(plan: Plan, work: PlannedWork, seed: int) -> FluidFlows:
    """All flows of work that is not refused, in its order."""
    ends: list[tuple[str, str, str, float, float, float]] = []
    rings: dict[str, Ring] = {}
    by_work: dict[str, list[FlowPlan]] = {}
    for flow in work.flows:
        by_work.setdefault(flow.work, []).append(flow)
    groups: dict[str, list[CollectivePlan]] = {}
    for group in work.groups:
        groups.setdefault(group.work, []).append(group)
    works: dict[str, tuple[int, int]] = {}
    messages: dict[str, int] = {}
    inf = float("inf")
    for name in work.names:
        first = len(ends)
        if name in groups:
            jobs = groups[name]
            one = jobs[0].rank(0, seed)
            ring = rings[name] = Ring(
                len(jobs), len(jobs[0].ranks), one.size_bytes * one.bus_factor, jobs[0].warm_up, jobs[0].iterations
            )
            messages[name] = max(1, jobs[0].size_bytes // ring.ranks)
            stop = inf if jobs[0].stop_s is None else jobs[0].stop_s
            ends += [
                (name, rank, next_rank, group.start_s, stop, float(group.size_bytes))
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
        next((one.transport.qps for one in work.plans), 1),
        works,
        np.array([find(end[1]) for end in ends], np.int64),
        np.array([find(end[2]) for end in ends], np.int64),
        np.array([end[3] for end in ends], np.float64),
        np.array([end[4] for end in ends], np.float64),
        np.array([end[5] for end in ends], np.float64),
        messages,
        rings,
    )
