"""A run on the fluid model (simulator/fluid), into an Outcome; what the model cannot do is refused by name.

    outcome = FluidRunner().run(plan, lambda share, now: ...)

Only MODELLED metrics have values; runner.py leaves rules on others out, and a note of the run names them. Of more than
FLOWS_MAX flows of a workload an outcome has one record and one series for all, with the slowest, the fastest and Jain's
index of each interval beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

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
from mrc_testbed.experiments.fluid.fluid_flows import FluidFlows, fluid_flows, refused_work
from mrc_testbed.experiments.language.model import Expect
from mrc_testbed.experiments.resolve.fault_schedule import FaultStep, StepRunner
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.faults.target import FaultError
from mrc_testbed.simulator.fluid.calibration import calibration_for
from mrc_testbed.simulator.fluid.ev_life import RETIRED, Timing
from mrc_testbed.simulator.fluid.model import BAD, DENIED, FluidResult, Settings, simulate
from mrc_testbed.simulator.fluid.outages import FluidFaultTarget, Outages
from mrc_testbed.simulator.fluid.shape import FabricShape, Floats, Singles
from mrc_testbed.simulator.profiles import frame_bytes
from mrc_testbed.topologies.plan import Outline

MODELLED = (
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
"""Metrics, or how their names begin, that the fluid model has a value for."""
NO_PATH = "no path for longer than the retry budget"
ROUNDING = 1e-4
"""Part of a job's bytes that 32-bit rates may lose."""
FLOWS_MAX = 1024
"""Flows of a workload that are kept one by one."""
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
"""Keys of a transport's `config` that the model follows; others are refused."""


def modelled(metric: str) -> bool:
    """Whether the model has a value for that metric."""
    return any(metric == one or (one.endswith(".") and metric.startswith(one)) for one in MODELLED)


def without_unmodelled(runs: list[RunPlan]) -> tuple[list[RunPlan], list[str]]:
    """The runs with rules on modelled metrics alone, and the metrics of the other rules."""
    out, left_out = [], set()
    for run in runs:
        rules = run.scenario.expect
        left_out |= {rule.metric for rule in run.scenario.bounds if not modelled(rule.metric)}
        kept = {"expect": [rule for rule in rules if not isinstance(rule, Expect) or modelled(rule.metric)]}
        out.append(replace(run, scenario=run.scenario.model_copy(update=kept)))
    return out, sorted(left_out)


class FluidRunner:
    """Runs on the fluid model."""

    def run(self, plan: RunPlan, watch: Watch = ignore_progress) -> Outcome:
        """Carry out a run. Raises UsageError naming what the fluid model cannot do."""
        _refuse(plan, next(_refused(plan), None))
        work = plan.work()
        _refuse(plan, next(refused_work(work, plan.transport), None))
        flows = fluid_flows(plan.fabric, work, plan.seed)
        _refuse(plan, next(flows.refused(), None))
        timeline, end = plan.steps(), plan.ends_s
        edges = np.linspace(0.0, end, max(1, round(end / plan.measure.every)) + 1)
        shape = shape_of(plan)
        outages = _outages(plan, timeline, shape, end)
        book = _Book(plan, flows, shape, edges)
        result = simulate(
            shape,
            flows.pairs(),
            outages,
            settings_of(plan, shape),
            edges,
            book.watch,
            lambda share: watch(share, share * end),
        )
        return book.outcome(result, timeline)


def shape_of(plan: RunPlan) -> FabricShape:
    """The fabric of a run as the model has it."""
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
    """Times of the engine and of its calibration for a run."""
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


# ---- what is refused ------------------------------------------------------------------------------------------


def _refuse(plan: RunPlan, what: str | None) -> None:
    if what is not None:
        large = isinstance(plan.fabric, Outline)
        instead = "there is nothing else for a fabric of this size" if large else "give --virtual instead"
        raise UsageError(f"{plan.scenario.name} ({plan.name}): --fluid cannot do {what}; {instead}")


def _refused(plan: RunPlan) -> Iterator[str]:
    """Settings that the model knows nothing of."""
    lines, control, queues, transport = plan.lines, plan.control, plan.discipline, plan.transport
    if not plan.fabric.mode.ev_is_path:
        yield f"mode {plan.fabric.mode}: only srv6 and stev, where an EV names its path"
    if plan.duration_s is None:
        yield "a run that lasts until its work is done: give a duration"
    if lines.nic != lines.fabric or lines.nic.rate_bps != plan.rate_bps or lines.nic.jitter_s:
        yield "tiers of links with rates or delays of their own, or jitter"
    if queues != type(queues)():
        yield "queues other than the default ones, which its constants were measured with"
    if control.react_after is not None or control.denylist == "lossy":
        yield "a control plane that reacts, or the denylist `lossy`: only `off` and `all`"
    if transport.kind != "mrc":
        yield f"the transport {transport.kind}: only mrc"
    if unknown := sorted(set(transport.config) - CONFIG_KEYS):
        yield f"the transport's settings {', '.join(unknown)} (it follows: {', '.join(sorted(CONFIG_KEYS))})"


# ---- faults ---------------------------------------------------------------------------------------------------


def _outages(plan: RunPlan, timeline: list[FaultStep], shape: FabricShape, end_s: float) -> Outages:
    """When what is out. Raises UsageError for a fault that a fluid has not."""
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


# ---- out of it ------------------------------------------------------------------------------------------------


class _Book:
    """Takes down rates while the model runs, and makes the outcome of them."""

    def __init__(self, plan: RunPlan, flows: FluidFlows, shape: FabricShape, edges: Floats) -> None:
        self.plan, self.flows, self.shape, self.edges = plan, flows, shape, edges
        self.rates = {
            work: np.zeros((len(edges) - 1, stop - start)) if stop - start <= FLOWS_MAX else None
            for work, (start, stop) in flows.works.items()
        }
        self.paces = {work: np.zeros((len(edges) - 1, ring.jobs), np.float32) for work, ring in flows.rings.items()}
        self.spreads = {work: np.zeros((len(edges) - 1, 4)) for work, rate in self.rates.items() if rate is None}

    def watch(self, number: int, of_qps: Singles) -> None:
        """Rates of all QPs in an interval."""
        rates = self.flows.of_flows(of_qps)
        for work, (start, stop) in self.flows.works.items():
            mine = self.flows.paced(work, rates[start:stop])
            if work in self.paces:
                self.paces[work][number] = mine[:: self.flows.rings[work].ranks]
            kept = self.rates[work]
            if kept is not None:
                kept[number] = mine
                continue
            total, squares = float(mine.sum()), float((mine**2).sum())
            jain = total**2 / (len(mine) * squares) if squares else 1.0
            self.spreads[work][number] = total, mine.min(), mine.max(), jain

    def outcome(self, result: FluidResult, timeline: list[FaultStep]) -> Outcome:
        shape, edges = self.shape, self.edges
        outcome = Outcome.begin(self.plan, "fluid", shape.planes * shape.payload_bps * self.flows.senders)
        outcome.duration_s = float(edges[-1])
        outcome.evs_bad, outcome.evs_denied = result.count(BAD), result.count(DENIED)
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
        lost, worst = flows.lost(result.lost)
        kept = self.rates[work]
        if kept is None:
            made = FlowOutcome(work, f"{stop - start}", "flows", flows.qps, flows.message_bytes[work])
            made.started_s = float(flows.starts_s[start:stop].min())
            made.lost, made.lost_worst_qp = round(float(lost[start:stop].sum())), round(float(worst[start:stop].max()))
            made.received_bytes = int((self.spreads[work][:, 0] * widths).sum() / 8)
            outcome.flows.append(made)
            total, least, most, jain = self.spreads[work].T.tolist()
            outcome.series.received_bps[made.name] = total
            outcome.series.spread[work] = SeriesSpread(stop - start, least, most, jain)
            return
        for at in range(start, stop):
            source, target = flows.ends(at)
            made = FlowOutcome(work, source, target, flows.qps, flows.message_bytes[work])
            made.started_s = float(flows.starts_s[at])
            made.lost, made.lost_worst_qp = round(float(lost[at])), round(float(worst[at]))
            made.received_bytes = int((kept[:, at - start] * widths).sum() / 8)
            outcome.flows.append(made)
            outcome.series.received_bps[made.name] = kept[:, at - start].tolist()

    def _jobs(self, outcome: Outcome, timeline: list[FaultStep]) -> None:
        """Times of iterations: a rank is through with one when it has sent what an iteration has, at the job's pace."""
        moments = [step.time.seconds for step in timeline if step.time.seconds]
        span = before_faults(self.plan.baseline, min(moments, default=None))
        if span is None:
            return
        for work, ring in self.flows.rings.items():
            first = self.flows.works[work][0]
            begins = float(self.flows.starts_s[first])
            ends_s = min(outcome.duration_s, float(self.flows.stops_s[first]))
            sent = np.cumsum(self.paces[work].astype(np.float64) * np.diff(self.edges)[:, None] / 8, axis=0)
            times = []
            for mine in sent.T:
                many = min(int(mine[-1] / ring.step_bytes), ring.warm_up + ring.iterations)
                ends = np.interp(np.arange(1, many + 1) * ring.step_bytes, [0.0, *mine], self.edges).tolist()
                spans = [*zip([begins, *ends], ends, strict=False)][ring.warm_up :]
                found = job_times(spans, span, ends_s, ring.iterations)
                times += [] if found is None else [found]
            if times:
                outcome.jobs.append(
                    JobsOutcome(work, *([float(x) for x in column] for column in zip(*times, strict=True)))
                )

    def _failures(self, outcome: Outcome, result: FluidResult) -> None:
        """QPs that failed, and jobs that did not end; the rest of failures.UNWRITTEN has no meaning in a fluid."""
        flows = self.flows
        name_of = {at: work for work, (start, stop) in flows.works.items() for at in range(start, stop)}
        for at, qp in result.failed:
            if at > outcome.duration_s:
                continue
            host, peer = flows.name_of_qp(qp)
            flow, work = qp // flows.qps, name_of[qp // flows.qps]
            ring = flows.rings.get(work)
            whose = host if ring is None else f"rank {(flow - flows.works[work][0]) % ring.ranks}"
            event = {"t": at, "peer": peer, "text": NO_PATH}
            outcome.fail("qp", at, dead_qp_text(work, whose, event), work)
        for work, ring in flows.rings.items():
            widths = np.diff(self.edges)[:, None]
            sent = (self.paces[work].astype(np.float64) * widths).sum(axis=0) / 8
            wanted = ring.step_bytes * (ring.warm_up + ring.iterations)
            short = int((sent < wanted * (1 - ROUNDING)).sum())
            if short:
                text = f"{work}: {short} of {ring.jobs} jobs did not end their {ring.iterations} iterations"
                outcome.fail("unfinished", outcome.duration_s, text, work, short)
        close(outcome)

    def _events(self, outcome: Outcome, result: FluidResult, timeline: list[FaultStep]) -> None:
        """Faults, and what became of EVs, planes and QPs, in order of time."""
        found: list[tuple[float, str, dict[str, Any]]] = []
        for step in timeline:
            assert step.time.seconds is not None
            found.append(
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
            bad = change.kind == RETIRED
            old, new = ("good", "assumed_bad") if bad else ("assumed_bad", "good")
            fields = {"host": host, "qpn": qp, "peer": peer, "ev": ev, "plane": change.plane}
            cause = "a packet was lost without trace" if bad else "enough probes were answered"
            found.append((change.at, "ev", {**fields, "old": old, "new": new, "cause": cause}))
            if bad and change.slot >= 0:
                by = None if change.by < 0 else change.plane << 8 | int(result.spines[qp, change.plane, change.by])
                found.append(
                    (change.at, "replaced", {"host": host, "qpn": qp, "ev": ev, "by": by, "plane": change.plane})
                )
        for at, qp, plane, up in result.ports:
            host, peer = name(qp)
            found.append((at, "plane", {"host": host, "peer": peer, "plane": plane, "up": up}))
        for at, qp in result.failed:
            host, peer = name(qp)
            found.append((at, "qp_error", {"host": host, "qpn": qp, "peer": peer, "text": NO_PATH}))
        found.sort(key=lambda one: one[0])
        for at, what, fields in _thinned(found, outcome):
            if at <= outcome.duration_s:
                outcome.event(at, what, **fields)


def _thinned(
    found: list[tuple[float, str, dict[str, Any]]], outcome: Outcome
) -> list[tuple[float, str, dict[str, Any]]]:
    """Events that an outcome has room for: faults and QPs that failed, then the first and the last of the others."""
    kept = [one for one in found if one[1] in KEPT_ALWAYS]
    others = [one for one in found if one[1] not in KEPT_ALWAYS]
    half = max(0, EVENTS_MAX - len(kept)) // 2
    if len(others) > 2 * half:
        outcome.events_dropped += len(others) - 2 * half
        others = others[:half] + others[len(others) - half :]
    return sorted([*kept, *others], key=lambda one: one[0])
