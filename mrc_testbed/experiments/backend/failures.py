"""Unwritten rules: failures that no run may have unless its scenario expects them.

    audit(outcome, work, timeline)               # a back end, when its run is over: fills outcome.failures
    unwanted_failures(outcome, rules)            # the failures that no rule of the scenario expects

A failure is reported with its time, so that the first of them, the cause, stands before what followed from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mrc_testbed.console.units import short_seconds, show_seconds
from mrc_testbed.experiments.backend.outcome import Failure, Outcome
from mrc_testbed.experiments.language.model import ExpectFailure, ExpectIncomplete, Rule
from mrc_testbed.experiments.resolve.fault_schedule import FaultStep
from mrc_testbed.experiments.resolve.flows import CollectivePlan, FlowPlan, PlannedWork

UNWRITTEN = {
    "process": "no process of ours dies",
    "qp": "no QP dies",
    "program": "no program ends with an error",
    "message": "no message fails",
    "damage": "no byte is damaged, no sum is wrong",
    "left_out": "nothing of the plan is left out",
    "late": "each fault comes on time",
    "unfinished": "what has an end reaches it",
}
"""Kind of failure -> the rule that it breaks; at equal times causes stand before their effects."""
LATE_SHARE, LATE_S = 0.1, 1.0
"""Lateness of a fault that fails a run: more than this part of the run, and than these seconds."""
OVERLOAD_KINDS = frozenset(("late",))
"""Kinds that an overloaded machine may cause."""
FAILS = ("qp", "program")
"""Kinds of which a rule `failed` counts the failures."""
FOLLOWS = (*FAILS, "message", "unfinished")
"""Kinds that a workload may have where its failure is expected."""


def audit(outcome: Outcome, work: PlannedWork, timeline: Sequence[FaultStep]) -> None:
    """Record what failed in a run that is over, in order of time, and whether all finite work is complete.

    Flows and collectives of the outcome stand in the order of their plans, flows first, steps of programs last.
    """
    _dead_qps(outcome, work.groups)
    _messages(outcome)
    _damage(outcome)
    _left_out(outcome, work.flows, timeline)
    _note_unfinished(outcome, work)
    close(outcome)


def close(outcome: Outcome) -> None:
    """Sort failures by time, and set by them whether the run finished."""
    order = list(UNWRITTEN)
    outcome.failures.sort(key=lambda failure: (failure.at_s, order.index(failure.kind)))
    if not outcome.finished and not outcome.failures:
        text = f"not over when its limit of {short_seconds(outcome.duration_s)} was"
        outcome.fail("unfinished", outcome.duration_s, text)
    outcome.finished = not any(failure.kind == "unfinished" for failure in outcome.failures)


def _dead_qps(outcome: Outcome, groups: Sequence[CollectivePlan]) -> None:
    ranks = {(group.work, host): number for group in groups for number, host in enumerate(group.ranks)}
    for event in outcome.events:
        if event["what"] != "qp_error":
            continue
        work, host = event.get("work", ""), event["host"]
        endpoint = f"rank {ranks[work, host]}" if (work, host) in ranks else host
        outcome.fail("qp", event["t"], dead_qp_text(work, endpoint, event), work)


def dead_qp_text(work: str, endpoint: str, event: dict[str, Any]) -> str:
    """Return `job: rank 3's QP to h0 died at 1.21 s: nothing got through in 5 retries, all 4 EVs dead`."""
    dead_evs, evs = event.get("evs_dead", 0), event.get("evs", 0)
    paths = f", {'all' if dead_evs == evs else f'{dead_evs} of'} {evs} EVs dead" if dead_evs else ""
    name = f"{work}: " if work else ""
    return f"{name}{endpoint}'s QP to {event['peer']} died at {show_seconds(event['t'], 4)}: {event['text']}{paths}"


def _messages(outcome: Outcome) -> None:
    failed: dict[str, int] = {}
    for flow in outcome.flows:
        failed[flow.work] = failed.get(flow.work, 0) + flow.failed
    for work, count in failed.items():
        if count:
            death_times = [failure.at_s for failure in outcome.failures if (failure.kind, failure.work) == ("qp", work)]
            text = f"{work}: {count} message{'s' if count > 1 else ''} did not complete"
            outcome.fail("message", min(death_times, default=outcome.duration_s), text, work, count)


def _damage(outcome: Outcome) -> None:
    for flow in outcome.flows:
        if flow.damaged:
            text = f"{flow.name}: {flow.damaged} damaged: their bytes are not those that were sent"
            outcome.fail("damage", outcome.duration_s, text, flow.work, flow.damaged)
    for collective in outcome.collectives:
        wrong_iterations = [iteration for iteration in collective.iterations if iteration.wrong]
        if wrong_iterations:
            count = sum(iteration.wrong for iteration in wrong_iterations)
            text = f"{collective.work}: {count} wrong elements, the first in iteration {wrong_iterations[0].number}"
            outcome.fail("damage", wrong_iterations[0].finished_s, text, collective.work, count)


def _end_text(outcome: Outcome) -> str:
    return f"the run was over after {show_seconds(outcome.duration_s, 4)}"


def _left_out(outcome: Outcome, flows: Sequence[FlowPlan], timeline: Sequence[FaultStep]) -> None:
    """Record faults that came late or never, as the run was over before, and flows that carried nothing."""
    injected_at = {event["number"]: event["t"] for event in outcome.events if event["what"] == "fault"}
    for step in timeline:
        if step.number in injected_at:
            due_s = step.time.seconds
            delay_s = 0.0 if due_s is None else injected_at[step.number] - max(due_s, 0.0)
            if delay_s > max(LATE_S, LATE_SHARE * outcome.duration_s):
                text = f"the fault `{step}` at {step.time} came {show_seconds(delay_s)} late: the machine had no time"
                outcome.fail("late", injected_at[step.number], text)
        elif step.undo is None:
            text = f"the fault `{step}` at {step.time} never came: {_end_text(outcome)}"
            outcome.fail("left_out", outcome.duration_s, text)
    dead_works = {failure.work for failure in outcome.failures if failure.kind == "qp"}
    for flow, flow_outcome in zip(flows, outcome.flows, strict=False):
        if flow_outcome.received_bytes or flow.work in dead_works:
            continue
        if flow.start_s >= outcome.duration_s:
            name = flow_outcome.name
            text = f"{name} was to start at {show_seconds(flow.start_s, 4)}: {_end_text(outcome)}"
            outcome.fail("left_out", outcome.duration_s, text, flow.work)
        elif outcome.duration_s - flow.start_s > outcome.series.every_s:  # less may be less than a round trip
            text = f"{flow_outcome.name} carried nothing in {show_seconds(outcome.duration_s - flow.start_s, 4)}"
            outcome.fail("left_out", outcome.duration_s, text, flow.work)


def _note_unfinished(outcome: Outcome, work: PlannedWork) -> None:
    for flow, flow_outcome in zip(work.flows, outcome.flows, strict=False):
        if flow.messages is not None and flow.stop_s is None and flow_outcome.completed < flow.messages:
            text = f"{flow_outcome.name}: {flow_outcome.completed} of {flow.messages} messages are complete"
            outcome.fail("unfinished", outcome.duration_s, text, flow.work, flow.messages - flow_outcome.completed)
    for group, collective in zip(work.groups, outcome.collectives, strict=False):
        ended_count = len(collective.iterations)
        if ended_count < group.iterations:
            warm_up = f" after {group.warm_up} to warm up" if group.warm_up else ""
            text = f"{group.work}: {ended_count} of {group.iterations} iterations ended at all ranks{warm_up}"
            outcome.fail("unfinished", outcome.duration_s, text, group.work, group.iterations - ended_count)


def unwanted_failures(outcome: Outcome, rules: Iterable[Rule]) -> list[Failure]:
    """Return the failures that no rule expects; all of the rules are for this run."""
    failing, cut_off = set(), set()
    for rule in rules:
        if isinstance(rule, ExpectFailure):
            failing.add(rule.failed)
        elif isinstance(rule, ExpectIncomplete):
            cut_off.add(rule.unfinished)
    return [
        failure
        for failure in outcome.failures
        if not (failure.kind in FOLLOWS and failure.work in failing)
        and not (failure.kind == "unfinished" and failure.work in cut_off)
    ]


def audit_scope(outcome: Outcome) -> str:
    """Return the number of objects that the unwritten rules judged.

    Example: `12 QPs, 4,310 messages, 1 job of 60 iterations, 3 faults`.
    """
    qps = sum(flow.qps for flow in outcome.flows)
    faults = sum(event["what"] == "fault" and event.get("undo") is None for event in outcome.events)
    iterations = sum(len(collective.iterations) for collective in outcome.collectives)
    counts = (
        (qps, "QP"),
        (sum(flow.completed for flow in outcome.flows), "message"),
        (len(outcome.collectives), "job"),
        (iterations, "iteration"),
        (faults, "fault"),
    )
    return ", ".join(f"{count:,} {word}{'' if count == 1 else 's'}" for count, word in counts if count) or "nothing"
