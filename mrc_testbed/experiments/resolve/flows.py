"""Workloads of a scenario as flows and collectives between named hosts, for all back ends.

work = planned_work(scenario, plan, seed)
work.flows                  # streams, permutations, incasts
work.groups                 # collectives and simulated programs
work.programs               # commands of users, live only
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from mrc_testbed.experiments.language.model import (
    Collective,
    Incast,
    Permutation,
    ProgramWork,
    RankWork,
    Scenario,
    Stream,
    TraceWork,
    Training,
    Transport,
)
from mrc_testbed.experiments.resolve.placement import jobs_of, placements
from mrc_testbed.experiments.resolve.validate import work_names
from mrc_testbed.experiments.traces.read import trace_of
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.traffic.collectives import NO_OPTIONS, CollectiveOptions, Rank, make, peers_of
from mrc_testbed.hosts.traffic.program import Program
from mrc_testbed.hosts.traffic.program_rank import ProgramRank
from mrc_testbed.hosts.traffic.program_script import ELEMENT_BYTES, RankScript, SendTask, scripts_of
from mrc_testbed.hosts.traffic.training_step import TrainingShape, training_step
from mrc_testbed.topologies.plan import Plan

PROBE_BYTES = 1 << 16
"""Size of the collective that _largest_share() starts."""


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
    """Nodes that all paths cross; empty: all paths."""

    @property
    def total_bytes(self) -> int | None:
        return None if self.messages is None else self.messages * self.message_bytes


@dataclass(frozen=True, slots=True)
class CollectivePlan:
    """A collective, or a program of several, among hosts; rank i is `ranks[i]`."""

    work: str
    kind: str
    """Key of mrc_testbed.hosts.traffic.collectives.KINDS; for a program `training` or `trace`."""
    ranks: tuple[str, ...]
    transport: Transport
    size_bytes: int
    """Size of the collective; for a program the mean bytes that a rank writes in a step."""
    iterations: int
    warm_up: int
    start_s: float
    stop_s: float | None = None
    options: CollectiveOptions = NO_OPTIONS
    scripts: tuple[RankScript, ...] = ()
    """Script of each rank of a program; empty for a collective."""

    def peers(self, number: int) -> list[int]:
        """Return the ranks that a rank writes to, its next one first.

        A host serves its QPs in the order in which they were connected: in the order of ranks all hosts would begin
        with rank 0 when they all have something for everybody.
        """
        count = len(self.ranks)
        peers = self.scripts[number].targets if self.scripts else peers_of(self.kind, number, count, self.options)
        return sorted(peers, key=lambda peer: (peer - number) % count)

    def largest_write_bytes(self) -> int:
        """Return the bytes of the largest write that a rank posts in a step."""
        if not self.scripts:
            return round(self.size_bytes * _largest_share(self.kind, len(self.ranks), self.options))
        sizes = [0]
        for script in self.scripts:
            sizes += [task.elements * ELEMENT_BYTES for task in script.tasks if isinstance(task, SendTask)]
            sizes += [
                round(collective.size * _largest_share(collective.kind, len(collective.group), collective.options))
                for collective in script.collectives
            ]
        return max(sizes)

    def rank(self, number: int, seed: int) -> Rank:
        """Return a rank's state machine, with its memory."""
        if self.scripts:
            return ProgramRank(self.scripts[number], seed)
        return make(
            self.kind, rank=number, ranks=len(self.ranks), size_bytes=self.size_bytes, seed=seed, options=self.options
        )


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """A command of a user on hosts; rank i is on `ranks[i]`."""

    work: str
    words: tuple[str, ...]
    ranks: tuple[str, ...]
    backend: str | None
    """Backend of a training job; None: a plain command."""
    folder: str | None
    """None: that of this process."""
    steps: int | None
    start_s: float
    stop_s: float | None

    def __str__(self) -> str:
        return f"`{shlex.join(self.words)}` on {', '.join(self.ranks)}"


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """All work of a run, in file order."""

    names: tuple[str, ...]
    """Names of the workloads."""
    flows: tuple[FlowPlan, ...]
    groups: tuple[CollectivePlan, ...]
    programs: tuple[ProgramPlan, ...] = ()

    @property
    def plans(self) -> tuple[FlowPlan | CollectivePlan, ...]:
        """Flows, then collectives."""
        return (*self.flows, *self.groups)

    @property
    def senders(self) -> set[str]:
        """Hosts that send."""
        return {flow.source for flow in self.flows} | {host for group in self.groups for host in group.ranks}

    @property
    def hosts(self) -> list[str]:
        """Hosts that send, receive or run a program, sorted."""
        programs = {host for program in self.programs for host in program.ranks}
        return sorted(self.senders | {flow.target for flow in self.flows} | programs)


def planned_work(scenario: Scenario, plan: Plan, seed: int) -> PlannedWork:
    """Draw flows and collectives of a scenario by the seed. Raises TrainingProgramError, TraceError."""
    return PlannedWork(
        tuple(work_names(scenario)),
        tuple(_flows(scenario, plan, seed)),
        tuple(_groups(scenario, plan, seed)),
        tuple(_programs(scenario, plan, seed)),
    )


def pinned_evs(plan: Plan, source: str, target: str, nodes: tuple[str, ...]) -> list[int]:
    """Return the EVs whose path crosses all `nodes`. Raises LocalError when no path does."""
    a, b = plan.host(source), plan.host(target)
    evs = [ev for ev in plan.evs(a, b) if set(nodes) <= set(plan.path(a, b, ev).nodes)]
    if not evs:
        raise LocalError(f"no path from {source} to {target} crosses {', '.join(nodes)}")
    return evs


@lru_cache(maxsize=256)
def _largest_share(kind: str, ranks: int, options: CollectiveOptions) -> float:
    """Return the largest write of a collective as a share of its size."""
    machines = [make(kind, rank=rank, ranks=ranks, size_bytes=PROBE_BYTES, options=options) for rank in range(ranks)]
    return max(send.count for rank in machines for send in rank.start(0)) / machines[0].elements


def _flows(scenario: Scenario, plan: Plan, seed: int) -> Iterator[FlowPlan]:
    """Yield all flows, in file order; a permutation is drawn by the seed."""
    for work, name in zip(scenario.workload, work_names(scenario), strict=True):
        transport = work.transport or scenario.transport
        pins: list[tuple[str, ...]]
        match work:
            case Stream():
                ends = [work.stream, work.stream[::-1]] if work.bidirectional else [work.stream]
                starts = [work.start] * len(ends)
                pins = [tuple(work.pin or ())] * len(ends)
            case Permutation():
                ends = _permutation(work, plan, random.Random(f"{seed}/{name}"))
                dice = random.Random(f"{seed}/{name}/starts")
                starts = [work.start + (dice.random() * work.spread if work.spread else 0.0) for _ in ends]
                pins = [()] * len(ends)
            case Incast():
                ends = [(source, work.incast) for source in work.sources]
                starts = [work.start + number * work.every for number in range(len(ends))]
                pins = [(node,) for node in work.pins] if work.pins else [()] * len(ends)
            case _:
                continue
        # A workload smaller than one message is a single shorter message.
        message = work.message if work.bytes is None else min(work.message, work.bytes)
        for (source, target), start, pin in zip(ends, starts, pins, strict=True):
            yield FlowPlan(
                work=name,
                source=source,
                target=target,
                transport=transport,
                message_bytes=message,
                messages=None if work.bytes is None else -(-work.bytes // message),
                depth=work.depth,
                start_s=start,
                stop_s=work.stop,
                rate_bps=work.rate if isinstance(work, Stream) else None,
                pin=pin,
            )


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


def _groups(scenario: Scenario, plan: Plan, seed: int) -> Iterator[CollectivePlan]:
    """Yield all collectives and programs in file order, one for each of `jobs`; the seed may draw hosts.

    Raises TrainingProgramError for a program that cannot run.
    """
    hosts_by_work = placements(scenario, plan, seed)
    for work_index, (work, name) in enumerate(zip(scenario.workload, work_names(scenario), strict=True)):
        if not isinstance(work, RankWork):
            continue
        transport = work.transport or scenario.transport
        timing = (work.iterations, work.warm_up, work.start, work.stop)
        for ranks in jobs_of(work, hosts_by_work[work_index]):
            if isinstance(work, Collective):
                racks = tuple(plan.host(host).rack for host in ranks)
                options = CollectiveOptions(racks, work.experts, work.skew, at_once=work.at_once)
                yield CollectivePlan(name, work.collective, ranks, transport, work.size, *timing, options)
            elif isinstance(work, Training | TraceWork):
                program = program_of(work, plan, ranks)
                scripts = tuple(scripts_of(program))
                mean = sum(script.sent_bytes for script in scripts) // len(scripts)
                kind = "training" if isinstance(work, Training) else "trace"
                hosts = ranks[: len(scripts)]
                yield CollectivePlan(name, kind, hosts, transport, mean, *timing, scripts=scripts)


def _programs(scenario: Scenario, plan: Plan, seed: int) -> Iterator[ProgramPlan]:
    """Yield the programs of users in file order; the seed may draw their hosts."""
    hosts_by_work = placements(scenario, plan, seed)
    for index, (work, name) in enumerate(zip(scenario.workload, work_names(scenario), strict=True)):
        if isinstance(work, ProgramWork):
            hosts, words = hosts_by_work[index], tuple(work.program)
            yield ProgramPlan(name, words, hosts, work.backend, work.folder, work.steps, work.start, work.stop)


def program_of(work: Training | TraceWork, plan: Plan, ranks: tuple[str, ...]) -> Program:
    """Return the step of a training job on these hosts. Raises TrainingProgramError, TraceError."""
    if isinstance(work, TraceWork):
        return trace_of(work)
    shape = work.training
    racks = tuple(plan.host(host).rack for host in ranks)
    return training_step(
        TrainingShape(
            ranks=len(ranks),
            stages=shape.stages,
            micro_batches=shape.micro_batches,
            layers=shape.layers,
            forward_s=shape.forward,
            backward_s=shape.backward,
            optimizer_s=shape.optimizer,
            gradient_bytes=shape.gradients,
            gradient_kind=shape.all_reduce,
            activation_bytes=shape.activations,
            token_bytes=shape.tokens,
            expert_every=shape.expert_every,
            experts=shape.experts,
            skew=shape.skew,
        ),
        racks,
    )
