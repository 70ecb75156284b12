"""A run on the fluid model (simulator/fluid), into an Outcome: starts with dead links so far; the rest is refused.

    outcome = run_fluid(run, progress=lambda share, now: ...)

Only MODELLED metrics have values; runner.py leaves rules on others out, and a note of the run names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from experiments.flows import FlowPlan, flow_plans
from experiments.language.expand import Run
from experiments.language.fault_schedule import FaultStep, steps
from experiments.language.model import Permutation, Scenario, Stream, Transport
from experiments.language.validate import plan_of
from experiments.outcome import FlowOutcome, Outcome, Series
from ipc.errors import UsageError
from simulator.fluid.job_start import BAD, CALIBRATION, DENIED, Bools, FabricShape, Flows, JobStart, start_job
from simulator.profiles import frame_bytes
from topologies.plan import Plan

MODELLED = ("rate.", "jain.", "loss.total", "lost", "lost.per_qp.max", "evs.bad", "evs.denied")
"""Metrics, or how their names begin, that the fluid model has a value for."""
FAULTS = ("silent", "cut")


def modelled(metric: str) -> bool:
    """Whether the model has a value for that metric."""
    return any(metric == one or (one.endswith(".") and metric.startswith(one)) for one in MODELLED)


def without_unmodelled(runs: list[Run]) -> tuple[list[Run], list[str]]:
    """The runs with rules on modelled metrics alone, and the metrics of the other rules."""
    out, left_out = [], set()
    for run in runs:
        rules = run.scenario.expect
        left_out |= {rule.metric for rule in rules if not modelled(rule.metric)}
        kept = {"expect": [rule for rule in rules if modelled(rule.metric)]}
        out.append(Run(run.scenario.model_copy(update=kept), run.label, run.repeat, run.seed))
    return out, sorted(left_out)


def run_fluid(run: Run, progress: Callable[[float, float], None] | None = None) -> Outcome:
    """Carry out a run. Raises UsageError naming what the fluid model cannot do."""
    scenario, plan = run.scenario, plan_of(run.scenario)
    planned = flow_plans(scenario, plan, run.seed)
    timeline = steps(scenario, plan, run.seed)
    refused = [*_refused(scenario), *_refused_flows(planned), *_refused_faults(timeline, plan)]
    if refused:
        raise UsageError(f"{scenario.name} ({run.name}): --fluid cannot do {refused[0]}; give --virtual instead")
    assert scenario.duration is not None  # _refused() took care
    edges = np.linspace(0.0, scenario.duration, max(1, round(scenario.duration / scenario.measure.every)) + 1)
    shape, alive, flows = model_of(run)
    denied = scenario.control_plane.denylist == "all"
    result = start_job(shape, alive, flows, edges, seed=run.seed, denied=denied, calibration=CALIBRATION)
    if progress is not None:
        progress(1.0, scenario.duration)
    return _outcome(run, planned, flows, timeline, edges, result)


def model_of(run: Run) -> tuple[FabricShape, Bools, Flows]:
    """The run's fabric, the T0-T1 links that are alive in it ([plane, rack, spine]), and its flows."""
    plan = plan_of(run.scenario)
    planned = flow_plans(run.scenario, plan, run.seed)
    flows = Flows(
        np.array([plan.host(flow.source).number for flow in planned], np.int64),
        np.array([plan.host(flow.target).number for flow in planned], np.int64),
        np.array([flow.start_s for flow in planned]),
    )
    return shape_of(run.scenario), _alive(steps(run.scenario, plan, run.seed), plan), flows


def shape_of(scenario: Scenario) -> FabricShape:
    """The scenario's fabric as the model has it."""
    fabric, links, pmtu = scenario.fabric, scenario.links, scenario.transport.pmtu
    return FabricShape(
        planes=fabric.planes, racks=fabric.racks, spines=fabric.spines, hosts_per_rack=fabric.hosts_per_rack,
        rate_bps=links.rate, rtt_s=links.rtt, frame_bytes=frame_bytes(pmtu), payload_bytes=pmtu,
    )  # fmt: skip


# ---- what is refused ------------------------------------------------------------------------------------------


def _refused(scenario: Scenario) -> Iterator[str]:
    """Settings that the model knows nothing of."""
    links, control = scenario.links, scenario.control_plane
    if scenario.mode not in ("srv6", "stev"):
        yield f"mode {scenario.mode}: only srv6 and stev, where an EV names its path"
    if scenario.duration is None:
        yield "a run that lasts until its work is done: give a duration"
    if links.host.rate or links.fabric.rate:
        yield "tiers of links with rates of their own"
    if control.react_after is not None or control.denylist == "lossy":
        yield "a control plane that reacts, or the denylist `lossy`: only `off` and `all`"
    for work in scenario.workload:
        if not isinstance(work, Stream | Permutation):
            yield f"workload {work.name or type(work).__name__.lower()}: only permutations and streams"
        elif work.stop is not None or work.bytes is not None:
            yield "work that ends before the run does (`stop`, `bytes`)"


def _refused_flows(planned: list[FlowPlan]) -> Iterator[str]:
    """A host that sends or receives twice, transports of another kind."""
    for ends in ([flow.source for flow in planned], [flow.target for flow in planned]):
        if len(set(ends)) < len(ends):
            yield "two flows of, or to, one host"
    for flow in planned:
        if flow.transport != Transport(pmtu=flow.transport.pmtu):
            yield f"the transport of {flow.work}: only MRC with one QP and its default settings"
        if flow.rate_bps is not None or flow.pin:
            yield f"the rate or the pinned paths of {flow.work}"


def _refused_faults(timeline: list[FaultStep], plan: Plan) -> Iterator[str]:
    hosts = {host.name for host in plan.hosts}
    for step in timeline:
        if step.action not in FAULTS:
            yield f"the fault {step.action}: only {' and '.join(FAULTS)} of T0-T1 links"
        elif step.when.seconds is None or step.when.seconds > 0 or step.undo is not None:
            yield f"the fault {step.action} after the start, or one that ends: only those that are there from 0 s on"
        elif any(end in hosts for pair in step.targets for end in pair):
            yield f"the fault {step.action} of a host's link: only of T0-T1 links"


# ---- into the model and out of it -----------------------------------------------------------------------------


def _alive(timeline: list[FaultStep], plan: Plan) -> Bools:
    """[plane, rack, spine]: whether that T0-T1 link carries packets."""
    out = np.ones((plan.planes, plan.racks, plan.spines), bool)
    for step in timeline:
        for pair in step.targets:
            t0, t1 = sorted((plan.switch(name) for name in pair), key=lambda switch: switch.tier)
            out[t0.plane, t0.number, t1.number] = False
    return out


def _outcome(
    run: Run, planned: list[FlowPlan], flows: Flows, timeline: list[FaultStep], edges: np.ndarray, result: JobStart
) -> Outcome:
    scenario, shape = run.scenario, shape_of(run.scenario)
    capacity = len(planned) * shape.planes * shape.rate_bps * shape.payload_bytes / shape.frame_bytes
    outcome = Outcome(
        scenario=scenario.name, name=run.name, label=dict(run.label), where="fluid", seed=run.seed, repeat=run.repeat,
        mode=scenario.mode, capacity_bps=capacity, duration_s=float(edges[-1]), series=Series(scenario.measure.every),
    )  # fmt: skip
    outcome.evs_bad, outcome.evs_denied = result.count(BAD), result.count(DENIED)
    for step in timeline:
        outcome.event(0.0, "fault", number=step.number, action=step.action, undo=None, text=str(step))
    series = outcome.series
    series.times_s = [round(float(edge), 9) for edge in edges[1:]]
    series.lost = [round(float(count)) for count in result.lost_series]
    duration = float(edges[-1])
    for at, flow in enumerate(planned):
        rates = result.rates_of(at, flows, edges)
        made = FlowOutcome(flow.work, flow.source, flow.target, 1, flow.message_bytes)
        made.started_s, made.lost = flow.start_s, round(float(result.lost[at]))
        made.lost_worst_qp = made.lost
        made.received_bytes = int(rates.sum() / 8 * duration / len(rates))
        outcome.flows.append(made)
        series.received_bps[made.name] = [float(rate) for rate in rates]
    return outcome
