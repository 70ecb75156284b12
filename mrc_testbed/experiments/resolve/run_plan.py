"""Plan of a run with every default filled in, which back ends, metrics and reports read.

    plan = resolve(run, document)        # run: of expand(); raises ScenarioError
    work = plan.work()                   # its flows and collectives, drawn by the seed
    plan.steps()                         # its faults in order of time

A reader of a plan does not need the document: `plan.scenario` is there for titles, rules and figures alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from mrc_testbed.experiments.language.expand import Run
from mrc_testbed.experiments.language.model import (
    ControlPlane,
    LinksPart,
    Measure,
    ProgramWork,
    QueuesPart,
    RankWork,
    Scenario,
    Span,
    Stream,
    Tier,
    Transport,
)
from mrc_testbed.experiments.language.topology import tier_speed, with_topology
from mrc_testbed.experiments.language.yaml_loader import Document, ScenarioError
from mrc_testbed.experiments.resolve.fault_schedule import FaultStep, steps
from mrc_testbed.experiments.resolve.flows import PlannedWork, planned_work
from mrc_testbed.experiments.resolve.recipe import engine_settings, queue_settings, tier_queues
from mrc_testbed.experiments.resolve.validate import check, dimensions_of, work_names
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.simulator.profiles import Line, LinkProfile, QueueProfile, frame_bytes, scaled_profiles
from mrc_testbed.topologies.plan import Mode, Plan, PlanError
from mrc_testbed.topologies.plan.link_speeds import scaled_speed


class Pin(NamedTuple):
    """Nodes that all paths of a workload cross."""

    work: str
    source: str
    target: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan(Run):
    """One run with every default filled in; made by resolve().

    Flows, collectives and faults are drawn by the seed on each call: all runs of a file are planned before the first
    begins, and 131,072 flows of each of them would fill the memory.
    """

    fabric: Plan
    """Plan with mode, rates, delays and path MTU; an Outline where only the fluid model takes its size."""
    rate_bps: float
    """Rate of links whose tier has none of its own."""
    rtt_s: float
    """Unloaded round trip over a T1."""
    lines: LinkProfile
    """Links in virtual time, where jitter is possible and a packet has the size of SRv6 in every mode."""
    transport: Transport
    """Transport of work that has none of its own."""
    engine: Config
    """Configuration of that transport's QPs."""
    discipline: QueuesPart
    """Egress discipline of switches, in shares of the BDP of a plane."""
    queues: QueueProfile
    """Egress discipline of switches in bytes."""
    host_queues: QueueProfile | None
    """Queues of T0 downlinks whose rate is their own; None: `queues`."""
    fabric_queues: QueueProfile | None
    """Queues of T0-T1 links whose rate is their own."""
    link_queues: Mapping[str, QueueProfile]
    """Queues of single links whose rate is their own, by name (Link.name)."""
    control: ControlPlane
    measure: Measure
    duration_s: float | None
    """Length of the run; None: until all work is done."""
    limit_s: float
    baseline: Span | None
    """Part of the run that rules compare with; None: before the first fault."""
    pins: tuple[Pin, ...]
    iterations: Mapping[str, int]
    """Measured iterations of each workload that has ranks; steps of a program, 0: not given."""

    @property
    def nic_bps(self) -> float:
        """Rate of all ports of a host together."""
        return self.fabric.nic_rate_bps or 0.0

    @property
    def payload_share(self) -> float:
        """Payload bytes per byte on the wire in a full data packet of SRv6."""
        return self.engine.qp.pmtu_bytes / frame_bytes(self.engine.qp.pmtu_bytes)

    @property
    def ends_s(self) -> float:
        """Seconds after which the run is over at the latest."""
        return self.limit_s if self.duration_s is None else self.duration_s

    def config_for(self, transport: Transport) -> Config | None:
        """Configuration of a QP whose transport is not the run's; None: `engine`."""
        return None if transport == self.transport else self.engine.with_values(**engine_settings(transport))

    def work(self) -> PlannedWork:
        """Flows and collectives, made at each call. Raises TrainingProgramError, TraceError."""
        return planned_work(self.scenario, self.fabric, self.seed)

    def steps(self) -> list[FaultStep]:
        """Faults and their ends in order of time, made at each call."""
        return steps(self.scenario, self.fabric, self.seed)


def resolve(run: Run, document: Document | None = None, *, outlined: bool = False) -> RunPlan:
    """Return the plan of a run. `outlined`: its fabric may be larger than a Plan can be.

    With the document of the run, names and values are checked: raises ScenarioError with every mistake, its line and
    the cure. Without it, the run must have been checked before; raises PlanError or ProfileError otherwise. A topology
    file that the run names is read: raises ScenarioError with its mistakes.
    """
    try:
        run = replace(run, scenario=with_topology(run.scenario))
    except ScenarioError as error:
        if document is None:
            raise
        texts = [f"{error.path.name}:{problem}" for problem in error.problems]
        raise ScenarioError(document.path, [document.problem(("fabric", "file"), text) for text in texts]) from None
    if document is not None and (
        problems := check(document, run.scenario, outlined=outlined, live="live" in run.environments)
    ):
        raise ScenarioError(document.path, problems)
    try:
        return _fill_defaults(run)
    except PlanError as error:
        if document is None:
            raise
        raise ScenarioError(document.path, [document.problem(("links",), str(error))]) from None


def _fill_defaults(run: Run) -> RunPlan:
    scenario, names = run.scenario, work_names(run.scenario)
    links, queues, transport = scenario.links, scenario.queues, scenario.transport
    recipe = scaled_profiles(
        scenario.fabric.planes,
        rate_bps=links.rate,
        rtt_s=links.rtt,
        pmtu_bytes=transport.pmtu,
        ecn=queues.ecn,
        trim=queues.trim,
        config=engine_settings(transport),
        queues=queue_settings(queues, links.rate * links.rtt / 8, links.rtt),
    )
    line = replace(recipe.links.nic, jitter_s=links.jitter)
    # jitter exists in virtual time alone: the recipe's links know none
    fabric = _fabric(scenario)
    named_works = list(zip(names, scenario.workload, strict=True))
    return RunPlan(
        scenario=scenario,
        label=run.label,
        repeat=run.repeat,
        seed=run.seed,
        environments=run.environments,
        scale=run.scale,
        fabric=fabric,
        rate_bps=links.rate,
        rtt_s=links.rtt,
        lines=LinkProfile(
            nic=_line(line, links.host),
            fabric=_line(line, links.fabric),
            single={name: _own_line(line, links, fabric, name) for name in fabric.own_speeds},
        ),
        transport=transport,
        engine=recipe.config,
        discipline=queues,
        queues=recipe.queues,
        host_queues=_own_queues(scenario, links.host),
        fabric_queues=_own_queues(scenario, links.fabric),
        link_queues=_queues_of_links(scenario, fabric),
        control=scenario.control_plane,
        measure=scenario.measure,
        duration_s=scenario.duration,
        limit_s=scenario.limit,
        baseline=scenario.baseline,
        pins=tuple(
            Pin(name, *work.stream, tuple(work.pin))
            for name, work in named_works
            if isinstance(work, Stream) and work.pin
        ),
        iterations={name: work.iterations for name, work in named_works if isinstance(work, RankWork)}
        | {name: work.steps or 0 for name, work in named_works if isinstance(work, ProgramWork)},
    )


def _fabric(scenario: Scenario) -> Plan:
    """Return the plan with mode, rates, delays and path MTU. Raises PlanError."""
    links, pmtu, mode = scenario.links, scenario.transport.pmtu, Mode(scenario.mode)
    if scenario.fabric.file is not None:
        return dimensions_of(scenario)
    base = scaled_speed(links.rate, links.rtt, pmtu, mode)
    return replace(
        dimensions_of(scenario),
        mode=mode,
        pmtu_bytes=pmtu,
        host_link=tier_speed(base, links.host),
        fabric_link=tier_speed(base, links.fabric),
    )


def _line(base: Line, tier: Tier) -> Line:
    return replace(
        base,
        rate_bps=base.rate_bps if tier.rate is None else tier.rate,
        delay_s=base.delay_s if tier.delay is None else tier.delay,
    )


def _own_queues(scenario: Scenario, tier: Tier) -> QueueProfile | None:
    return None if tier.rate in (None, scenario.links.rate) else tier_queues(scenario, tier.rate)


def _own_line(base: Line, links: LinksPart, fabric: Plan, name: str) -> Line:
    """Return the line of a link whose speed differs from its tier's.

    Rate and delay are kept where the speed only repeats its tier: virtual packets have the size of SRv6 in every mode,
    and so have the recipe's delays.
    """
    link = fabric.link_named(name)
    tier, speed = (fabric.host_link if link.is_nic else fabric.fabric_link), fabric.own_speeds[name]
    line = _line(base, links.host if link.is_nic else links.fabric)
    if speed.rate_bps is not None and speed.rate_bps != tier.rate_bps:
        line = replace(line, rate_bps=speed.rate_bps)
    return line if speed.delay_s == tier.delay_s else replace(line, delay_s=speed.delay_s)


def _queues_of_links(scenario: Scenario, fabric: Plan) -> dict[str, QueueProfile]:
    """Return the queues of links whose rate is their own, made once a rate."""
    rates = {name: speed.rate_bps for name, speed in fabric.own_speeds.items() if speed.rate_bps is not None}
    profiles = {rate: tier_queues(scenario, rate) for rate in set(rates.values())}
    return {name: profiles[rate] for name, rate in rates.items()}
