"""Runs on the fluid model (simulator/fluid), into an Outcome; unsupported features are refused.

    outcome = FluidRunner().run(plan, lambda share, now: ...)

Only MODELLED_METRICS have values; runner.py omits rules on other metrics, and a note of the run names them. A workload
of more than FLOWS_MAX flows gets one record and one series, with the slowest, the fastest and Jain's index of each
interval beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.backend.failures import close, dead_qp_text
from mrc_testbed.experiments.backend.job_times import before_faults, job_times
from mrc_testbed.experiments.backend.outcome import (
    EVENTS_MAX,
    KEPT_ALWAYS,
    FlowOutcome,
    JobsOutcome,
    Outcome,
    SeriesSpread,
)
from mrc_testbed.experiments.backend.protocol import Watch, ignore_progress
from mrc_testbed.experiments.fluid.fluid_flows import FluidFlows, fluid_flows, unsupported_work
from mrc_testbed.experiments.language.model import Expect
from mrc_testbed.experiments.resolve.fault_schedule import FaultStep, StepRunner
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.faults.target import FaultError
from mrc_testbed.simulator.fluid.calibration import calibration_for
from mrc_testbed.simulator.fluid.ev_life import EV_RETIRED, Timing
from mrc_testbed.simulator.fluid.model import ASSUMED_BAD, DENIED, FluidResult, Settings, simulate
from mrc_testbed.simulator.fluid.outages import FluidFaultTarget, Outages
from mrc_testbed.simulator.fluid.shape import FabricShape, Floats, Singles
from mrc_testbed.simulator.profiles import frame_bytes
from mrc_testbed.topologies.plan import Outline

MODELLED_METRICS = (
    "rate.",
    "jain.",
    "outage.",
    "dip.",
    "recover.total",
    "time",
    "loss.total",
    "lost",
    "lost.per_qp.max",
    "qp_errors",
    "evs.",
    "slowed.",
)
"""Metrics that the fluid model computes: names, or prefixes that end in a dot."""
NO_PATH = "no path for longer than the retry budget"
ROUNDING = 1e-4
"""Share of a job's bytes that 32-bit rates may lose."""
FLOWS_MAX = 1024
"""Most flows of a workload that are recorded one by one."""
CONFIG_KEYS = frozenset(
    (
        "backup_per_plane",
        "max_active",
        "probe_interval_s",
        "probe_timeout_s",
        "probe_ok_count",
        "probe_ok_max",
        "probe_forgive_s",
        "timeout",
    )
)
"""Keys of a transport's `config` that the model follows; other keys are refused."""


def modelled(metric: str) -> bool:
    """Return whether the model computes a metric."""
    return any(metric == name or (name.endswith(".") and metric.startswith(name)) for name in MODELLED_METRICS)


def without_unmodelled(runs: list[RunPlan]) -> tuple[list[RunPlan], list[str]]:
    """Return the runs with rules on modelled metrics alone, and the metrics of the other rules."""
    out, left_out = [], set()
    for run in runs:
        rules = run.scenario.expect
        left_out |= {rule.metric for rule in run.scenario.bounds if not modelled(rule.metric)}
        changes = {"expect": [rule for rule in rules if not isinstance(rule, Expect) or modelled(rule.metric)]}
        out.append(replace(run, scenario=run.scenario.model_copy(update=changes)))
    return out, sorted(left_out)


class FluidRunner:
    """Runs on the fluid model.

    `evs`: as in the model's Settings.
    """

    def __init__(self, evs: NDArray[np.uint16] | None = None) -> None:
        self._evs = evs

    def run(self, plan: RunPlan, watch: Watch = ignore_progress) -> Outcome:
        """Carry out a run. Raises UsageError naming a feature that the fluid model does not support."""
        _refuse(plan, next(_unsupported_settings(plan), None))
        work = plan.work()
        _refuse(plan, next(unsupported_work(work, plan.transport), None))
        flows = fluid_flows(plan.fabric, work, plan.seed)
        _refuse(plan, next(flows.host_conflicts(), None))
        timeline, end = plan.steps(), plan.ends_s
        edges = np.linspace(0.0, end, max(1, round(end / plan.measure.every)) + 1)
        shape = shape_of(plan)
        outages = _outages(plan, timeline, shape, end)
        book = _Book(plan, flows, shape, edges)
        result = simulate(
            shape,
            flows.pairs(),
            outages,
            replace(settings_of(plan, shape), evs=self._evs),
            edges,
            book.watch,
            lambda share: watch(share, share * end),
        )
        return book.outcome(result, timeline)


def shape_of(plan: RunPlan) -> FabricShape:
    """Return the fabric of a run in the model's terms."""
    fabric, pmtu = plan.fabric, plan.transport.pmtu
    return FabricShape(
        planes=fabric.planes,
        racks=fabric.racks,
        spines=fabric.spines,
        hosts_per_rack=fabric.hosts_per_rack,
        rate_bps=plan.rate_bps,
        rtt_s=plan.rtt_s,
        frame_bytes=frame_bytes(pmtu),
        payload_bytes=pmtu,
        max_active=plan.engine.paths.max_active,
        backups=plan.engine.paths.backup_per_plane,
    )


def settings_of(plan: RunPlan, shape: FabricShape) -> Settings:
    """Return the engine's times for a run, with their calibration."""
    calibration = calibration_for(shape)
    config = plan.engine
    timing = Timing(
        retire_s=calibration.retire_rtts * shape.rtt_s,
        notice_s=calibration.notice_rtts * shape.rtt_s,
        probe_interval_s=config.probes.interval_s,
        probe_timeout_s=config.probes.timeout_s,
        probe_ok_count=config.probes.ok_count,
        probe_ok_max=config.probes.ok_max,
        probe_forgive_s=config.probes.forgive_s,
        rtt_s=shape.rtt_s,
    )
    limit = config.loss.retry_limit
    budget = float("inf") if limit is None else sum(config.loss.retry_interval_s(number) for number in range(limit))
    return Settings(timing, calibration, plan.seed, plan.control.denylist == "all", budget)


# ---- unsupported features -------------------------------------------------------------------------------------


def _refuse(plan: RunPlan, feature: str | None) -> None:
    if feature is not None:
        large = isinstance(plan.fabric, Outline)
        instead = "no other backend runs a fabric of this size" if large else "give --virtual instead"
        raise UsageError(f"{plan.scenario.name} ({plan.name}): --fluid cannot do {feature}; {instead}")


def _unsupported_settings(plan: RunPlan) -> Iterator[str]:
    """Yield the settings of a run that the model does not support."""
    lines, control, queues, transport = plan.lines, plan.control, plan.discipline, plan.transport
    if not plan.fabric.mode.ev_is_path:
        yield f"mode {plan.fabric.mode}: only srv6 and stev, where an EV names its path"
    if plan.fabric.layout is not None:
        yield "a fabric of a topology file that is no full grid: all planes alike, with default names and speeds"
    if plan.duration_s is None:
        yield "a run that lasts until its work is done: give a duration"
    if lines.nic != lines.fabric or lines.nic.rate_bps != plan.rate_bps or lines.nic.jitter_s:
        yield "tiers of links with rates or delays of their own, or jitter"
    if queues != type(queues)():
        yield "queues other than the default ones, which the model's constants were measured with"
    if control.react_after is not None or control.denylist == "lossy":
        yield "a control plane that reacts, or the denylist `lossy`: only `off` and `all`"
    if transport.kind != "mrc":
        yield f"the transport {transport.kind}: only mrc"
    if unknown := sorted(set(transport.config) - CONFIG_KEYS):
        yield f"the transport's settings {', '.join(unknown)} (known: {', '.join(sorted(CONFIG_KEYS))})"


# ---- faults ---------------------------------------------------------------------------------------------------


def _outages(plan: RunPlan, timeline: list[FaultStep], shape: FabricShape, end_s: float) -> Outages:
    """Return the outages of links and switches by time. Raises UsageError for an unsupported fault."""
    target = FluidFaultTarget(plan.fabric, shape)
    runner = StepRunner(target)
    for step in timeline:
        if step.time.seconds is None:
            _refuse(plan, f"the fault {step.action} at a share of the work")
        assert step.time.seconds is not None
        target.advance(max(0.0, step.time.seconds))
        try:
            runner.apply(step)
        except FaultError as error:
            _refuse(plan, f"the fault {step.action}: {error}")
    return target.finish(end_s)


# ---- the outcome ----------------------------------------------------------------------------------------------


class _Book:
    """Records rates while the model runs, and builds the outcome from the records."""

    def __init__(self, plan: RunPlan, flows: FluidFlows, shape: FabricShape, edges: Floats) -> None:
        self.plan, self.flows, self.shape, self.edges = plan, flows, shape, edges
        self.rates = {
            work: np.zeros((len(edges) - 1, stop - start)) if stop - start <= FLOWS_MAX else None
            for work, (start, stop) in flows.works.items()
        }
        self.paces = {
            work: np.zeros((len(edges) - 1, ring.rings.jobs), np.float32) for work, ring in flows.rings.items()
        }
        self.spreads = {work: np.zeros((len(edges) - 1, 4)) for work, rate in self.rates.items() if rate is None}

    def watch(self, number: int, qp_rates: Singles) -> None:
        """Record the rates of all QPs in interval `number`."""
        rates = self.flows.sum_by_flow(qp_rates)
        for work, (start, stop) in self.flows.works.items():
            work_rates = rates[start:stop]
            ring = self.flows.rings.get(work)
            if ring is not None:
                self.paces[work][number] = work_rates[:: ring.rings.ranks]
            record = self.rates[work]
            if record is not None:
                record[number] = work_rates
                continue
            total, squares = float(work_rates.sum()), float((work_rates**2).sum())
            jain = total**2 / (len(work_rates) * squares) if squares else 1.0
            self.spreads[work][number] = total, work_rates.min(), work_rates.max(), jain

    def outcome(self, result: FluidResult, timeline: list[FaultStep]) -> Outcome:
        shape, edges = self.shape, self.edges
        outcome = Outcome.begin(self.plan, "fluid", shape.planes * shape.payload_bps * self.flows.senders)
        outcome.duration_s = float(edges[-1])
        outcome.evs_bad, outcome.evs_denied = result.count(ASSUMED_BAD), result.count(DENIED)
        series = outcome.series
        series.times_s = [round(float(edge), 9) for edge in edges[1:]]
        series.lost = [round(float(count)) for count in result.lost_series]
        self._events(outcome, result, timeline)
        for work, (start, stop) in self.flows.works.items():
            self._work(outcome, work, start, stop, result)
        self._jobs(outcome, timeline)
        self._failures(outcome, result)
        outcome.counters["probes"] = result.probes
        outcome.notes += self.flows.notes()
        return outcome

    def _work(self, outcome: Outcome, work: str, start: int, stop: int, result: FluidResult) -> None:
        flows, widths = self.flows, np.diff(self.edges)
        lost, worst_qp_lost = flows.lost(result.lost)
        record = self.rates[work]
        if record is None:
            flow_outcome = FlowOutcome(work, f"{stop - start}", "flows", flows.qps, flows.message_bytes[work])
            flow_outcome.started_s = float(flows.starts_s[start:stop].min())
            flow_outcome.lost, flow_outcome.lost_worst_qp = (
                round(float(lost[start:stop].sum())),
                round(float(worst_qp_lost[start:stop].max())),
            )
            flow_outcome.received_bytes = int((self.spreads[work][:, 0] * widths).sum() / 8)
            outcome.flows.append(flow_outcome)
            total, minimum, maximum, jain = self.spreads[work].T.tolist()
            outcome.series.received_bps[flow_outcome.name] = total
            outcome.series.spread[work] = SeriesSpread(stop - start, minimum, maximum, jain)
            return
        for flow in range(start, stop):
            source, target = flows.ends(flow)
            flow_outcome = FlowOutcome(work, source, target, flows.qps, flows.message_bytes[work])
            flow_outcome.started_s = float(flows.starts_s[flow])
            flow_outcome.lost, flow_outcome.lost_worst_qp = round(float(lost[flow])), round(float(worst_qp_lost[flow]))
            flow_outcome.received_bytes = int((record[:, flow - start] * widths).sum() / 8)
            outcome.flows.append(flow_outcome)
            outcome.series.received_bps[flow_outcome.name] = record[:, flow - start].tolist()

    def _jobs(self, outcome: Outcome, timeline: list[FaultStep]) -> None:
        """Add the iteration times of ring jobs.

        A rank ends an iteration when it has sent the iteration's bytes, at the job's pace.
        """
        moments = [step.time.seconds for step in timeline if step.time.seconds]
        span = before_faults(self.plan.baseline, min(moments, default=None))
        if span is None:
            return
        for work, ring in self.flows.rings.items():
            first = self.flows.works[work][0]
            start_s = float(self.flows.starts_s[first])
            ends_s = min(outcome.duration_s, float(self.flows.stops_s[first]))
            sent = np.cumsum(self.paces[work].astype(np.float64) * np.diff(self.edges)[:, None] / 8, axis=0)
            times = []
            for job_sent in sent.T:
                count = min(int(job_sent[-1] / ring.rings.iteration_bytes), ring.warm_up + ring.iterations)
                ends = np.interp(
                    np.arange(1, count + 1) * ring.rings.iteration_bytes, [0.0, *job_sent], self.edges
                ).tolist()
                spans = [*zip([start_s, *ends], ends, strict=False)][ring.warm_up :]
                job_record = job_times(spans, span, ends_s, ring.iterations)
                times += [] if job_record is None else [job_record]
            if times:
                outcome.jobs.append(
                    JobsOutcome(work, *([float(x) for x in column] for column in zip(*times, strict=True)))
                )

    def _failures(self, outcome: Outcome, result: FluidResult) -> None:
        """Add failed QPs and unfinished jobs to the outcome.

        The other kinds of failures.UNWRITTEN have no meaning in a fluid.
        """
        flows = self.flows
        name_of = {flow: work for work, (start, stop) in flows.works.items() for flow in range(start, stop)}
        for time_s, qp in result.failed:
            if time_s > outcome.duration_s:
                continue
            host, peer = flows.name_of_qp(qp)
            flow, work = qp // flows.qps, name_of[qp // flows.qps]
            ring = flows.rings.get(work)
            owner = host if ring is None else f"rank {(flow - flows.works[work][0]) % ring.rings.ranks}"
            event = {"t": time_s, "peer": peer, "text": NO_PATH}
            outcome.fail("qp", time_s, dead_qp_text(work, owner, event), work)
        for work, ring in flows.rings.items():
            widths, jobs = np.diff(self.edges)[:, None], ring.rings.jobs
            sent = (self.paces[work].astype(np.float64) * widths).sum(axis=0) / 8
            planned_bytes = ring.rings.iteration_bytes * (ring.warm_up + ring.iterations)
            unfinished_jobs = int((sent < planned_bytes * (1 - ROUNDING)).sum())
            if unfinished_jobs:
                text = f"{work}: {unfinished_jobs} of {jobs} jobs did not end their {ring.iterations} iterations"
                outcome.fail("unfinished", outcome.duration_s, text, work, unfinished_jobs)
        close(outcome)

    def _events(self, outcome: Outcome, result: FluidResult, timeline: list[FaultStep]) -> None:
        """Add faults, and the changes of EVs, planes and QPs, in order of time."""
        events: list[tuple[float, str, dict[str, Any]]] = []
        for step in timeline:
            assert step.time.seconds is not None
            events.append(
                (
                    step.time.seconds,
                    "fault",
                    {"number": step.number, "action": step.action, "undo": step.undo, "text": str(step)},
                )
            )
        name = self.flows.name_of_qp
        for qp, change in result.changes:
            host, peer = name(qp)
            ev = change.plane << 8 | int(result.spines[qp, change.plane, change.ev])
            bad = change.kind == EV_RETIRED
            old_state, new_state = ("good", "assumed_bad") if bad else ("assumed_bad", "good")
            fields = {"host": host, "qpn": qp, "peer": peer, "ev": ev, "plane": change.plane}
            cause = "a packet was lost without trace" if bad else "enough probes were answered"
            events.append((change.time_s, "ev", {**fields, "old": old_state, "new": new_state, "cause": cause}))
            # An EV with a slot was active: its substitute, if any, takes the slot.
            if bad and change.slot >= 0:
                substitute = (
                    None
                    if change.replacement < 0
                    else change.plane << 8 | int(result.spines[qp, change.plane, change.replacement])
                )
                events.append(
                    (
                        change.time_s,
                        "replaced",
                        {"host": host, "qpn": qp, "ev": ev, "by": substitute, "plane": change.plane},
                    )
                )
        for time_s, qp, plane, is_up in result.ports:
            host, peer = name(qp)
            events.append((time_s, "plane", {"host": host, "peer": peer, "plane": plane, "up": is_up}))
        for time_s, qp in result.failed:
            host, peer = name(qp)
            events.append((time_s, "qp_error", {"host": host, "qpn": qp, "peer": peer, "text": NO_PATH}))
        events.sort(key=lambda event: event[0])
        for time_s, kind, fields in _limit_events(events, outcome):
            if time_s <= outcome.duration_s:
                outcome.event(time_s, kind, **fields)


def _limit_events(
    events: list[tuple[float, str, dict[str, Any]]], outcome: Outcome
) -> list[tuple[float, str, dict[str, Any]]]:
    """Return at most EVENTS_MAX events: faults and failed QPs, then the first and the last of the others."""
    required_events = [event for event in events if event[1] in KEPT_ALWAYS]
    other_events = [event for event in events if event[1] not in KEPT_ALWAYS]
    half = max(0, EVENTS_MAX - len(required_events)) // 2
    if len(other_events) > 2 * half:
        outcome.events_dropped += len(other_events) - 2 * half
        other_events = other_events[:half] + other_events[len(other_events) - half :]
    return sorted([*required_events, *other_events], key=lambda event: event[0])
