"""Workloads of a scenario as flows and collectives between named hosts: what both back ends have to make.

plans = flow_plans(scenario, plan, seed)       # streams, permutations, incasts
groups = collective_plans(scenario, plan)      # collectives
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from experiments.language.model import Collective, Incast, Permutation, Scenario, Stream, Transport
from experiments.language.validate import work_names
from topologies.plan import Plan


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """Messages from `source` to `target`."""

    work: str
    source: str
    target: str
    transport: Transport
    message_bytes: int
    messages: int | None
    """None: until `stop_s` or the end of the run."""
    depth: int
    start_s: float = 0.0
    stop_s: float | None = None
    rate_bps: float | None = None
    pin: tuple[str, ...] = ()
    """Only paths that cross all of these nodes."""

    @property
    def total_bytes(self) -> int | None:
        return None if self.messages is None else self.messages * self.message_bytes


@dataclass(frozen=True, slots=True)
class CollectivePlan:
    """A collective among hosts; rank i is `ranks[i]`."""

    work: str
    kind: str
    ranks: tuple[str, ...]
    transport: Transport
    size_bytes: int
    iterations: int
    warm_up: int
    start_s: float


def flow_plans(scenario: Scenario, plan: Plan, seed: int) -> list[FlowPlan]:
    """All flows, in file order; a permutation is drawn by the seed."""
    out: list[FlowPlan] = []
    for work, name in zip(scenario.workload, work_names(scenario), strict=True):
        transport = work.transport or scenario.transport
        match work:
            case Stream():
                ends = [work.stream, work.stream[::-1]] if work.bidirectional else [work.stream]
                starts = [work.start] * len(ends)
            case Permutation():
                ends = _permutation(work, plan, random.Random(f"{seed}/{name}"))
                starts = [work.start] * len(ends)
            case Incast():
                ends = [(source, work.incast) for source in work.sources]
                starts = [work.start + number * work.every for number in range(len(ends))]
            case _:
                continue
        message = work.message if work.bytes is None else min(work.message, work.bytes)
        for (source, target), start in zip(ends, starts, strict=True):
            out.append(
                FlowPlan(
                    work=name, source=source, target=target, transport=transport, message_bytes=message,
                    messages=None if work.bytes is None else -(-work.bytes // message), depth=work.depth,
                    start_s=start, stop_s=work.stop,
                    rate_bps=work.rate if isinstance(work, Stream) else None,
                    pin=tuple(work.pin or ()) if isinstance(work, Stream) else (),
                )
            )  # fmt: skip
    return out


def _permutation(work: Permutation, plan: Plan, dice: random.Random) -> list[tuple[str, str]]:
    if work.permutation == "all":
        senders = [host.name for host in plan.hosts]
        receivers = senders[:]
    else:
        senders, receivers = list(work.permutation[0]), list(work.permutation[1])
    if set(senders) == set(receivers) and len(senders) < 2:
        return []
    while True:
        dice.shuffle(receivers)
        if all(a != b for a, b in zip(senders, receivers, strict=True)):
            return list(zip(senders, receivers, strict=True))


def collective_plans(scenario: Scenario, plan: Plan) -> list[CollectivePlan]:
    """All collectives, in file order."""
    out = []
    for work, name in zip(scenario.workload, work_names(scenario), strict=True):
        if isinstance(work, Collective):
            ranks = tuple(h.name for h in plan.hosts) if work.ranks == "all" else tuple(work.ranks)
            transport = work.transport or scenario.transport
            out.append(
                CollectivePlan(
                    name, work.collective, ranks, transport, work.size, work.iterations, work.warm_up, work.start
                )
            )
    return out
