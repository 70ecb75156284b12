"""The unwritten rules: what no run may have unless its scenario wants it, and what of it a run had.

    audit(outcome, work, timeline)               # a back end, when its run is over: fills outcome.failures
    unwanted(outcome, rules)                     # the failures that no rule of the scenario wants

A failure is told with its time, so that the first of them, the cause, stands before what followed from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mrc_testbed.experiments.backend.outcome import Failure, Outcome
from mrc_testbed.experiments.language.model import ExpectFailure, ExpectUnfinished, Rule
from mrc_testbed.experiments.resolve.fault_schedule import FaultStep
from mrc_testbed.experiments.resolve.flows import CollectivePlan, FlowPlan, PlannedWork

UNWRITTEN = {
    "process": "no process of ours dies",
    "qp": "no QP dies",
    "message": "no message fails",
    "damage": "no byte is damaged, no sum is wrong",
    "left_out": "nothing of the plan is left out",
    "unfinished": "what has an end reaches it",
}
"""Kind of failure -> the rule that it breaks; causes stand before what follows from them at the same time."""
FOLLOWS = ("qp", "message", "unfinished")
"""Kinds that a workload may have where its failure is wanted."""


def audit(outcome: Outcome, work: PlannedWork, timeline: Sequence[FaultStep]) -> None:
    """Note what failed in a run that is over, in order of time, and whether all that has an end reached it.

    Flows and collectives of the outcome stand in the order of their plans, flows first.
    """
    _dead_qps(outcome, work.groups)
    _messages(outcome)
    _damage(outcome)
    _left_out(outcome, work.flows, timeline)
    _unfinished(outcome, work)
    close(outcome)


def close(outcome: Outcome) -> None:
    """Put failures in order of time, and say by them whether the run finished."""
    order = list(UNWRITTEN)
    outcome.failures.sort(key=lambda failure: (failure.at_s, order.index(failure.kind)))
    if not outcome.finished and not outcome.failures:
        outcome.fail("unfinished", outcome.duration_s, f"not over when its limit of {outcome.duration_s:g} s was")
    outcome.finished = not any(failure.kind == "unfinished" for failure in outcome.failures)


def _dead_qps(outcome: Outcome, groups: Sequence[CollectivePlan]) -> None:
    ranks = {(group.work, host): number for group in groups for number, host in enumerate(group.ranks)}
    for event in outcome.events:
        if event["what"] != "qp_error":
            continue
        work, host = event.get("work", ""), event["host"]
        whose = f"rank {ranks[work, host]}" if (work, host) in ranks else host
        outcome.fail("qp", event["t"], dead_qp_text(work, whose, event), work)


def dead_qp_text(work: str, whose: str, event: dict[str, Any]) -> str:
    """`job: rank 3's QP to h0 died at 1.21 s: nothing got through in 5 retries, all 4 EVs dead`."""
    dead, evs = event.get("evs_dead", 0), event.get("evs", 0)
    paths = f", {'all' if dead == evs else f'{dead} of'} {evs} EVs dead" if dead else ""
    name = f"{work}: " if work else ""
    return f"{name}{whose}'s QP to {event['peer']} died at {event['t']:.4g} s: {event['text']}{paths}"


def _messages(outcome: Outcome) -> None:
    failed: dict[str, int] = {}
    for flow in outcome.flows:
        failed[flow.work] = failed.get(flow.work, 0) + flow.failed
    for work, count in failed.items():
        if count:
            died = [failure.at_s for failure in outcome.failures if (failure.kind, failure.work) == ("qp", work)]
            text = f"{work}: {count} message{'s' if count > 1 else ''} did not complete"
            outcome.fail("message", min(died, default=outcome.duration_s), text, work, count)


def _damage(outcome: Outcome) -> None:
    for flow in outcome.flows:
        if flow.damaged:
            text = f"{flow.name}: {flow.damaged} damaged: their bytes are not those that were sent"
            outcome.fail("damage", outcome.duration_s, text, flow.work, flow.damaged)
    for collective in outcome.collectives:
        wrong = [iteration for iteration in collective.iterations if iteration.wrong]
        if wrong:
            count = sum(iteration.wrong for iteration in wrong)
            text = f"{collective.work}: {count} wrong elements, the first in iteration {wrong[0].number}"
            outcome.fail("damage", wrong[0].finished_s, text, collective.work, count)


def _left_out(outcome: Outcome, flows: Sequence[FlowPlan], timeline: Sequence[FaultStep]) -> None:
    """Faults that never came, as the run was over before, and flows that carried nothing."""
    come = {event["number"] for event in outcome.events if event["what"] == "fault"}
    for step in timeline:
        if step.undo is None and step.number not in come:
            text = f"the fault `{step}` at {step.when} never came: the run was over after {outcome.duration_s:.4g} s"
            outcome.fail("left_out", outcome.duration_s, text)
    dead = {failure.work for failure in outcome.failures if failure.kind == "qp"}
    for flow, made in zip(flows, outcome.flows, strict=False):
        if made.received_bytes or flow.work in dead:
            continue
        if flow.start_s >= outcome.duration_s:
            text = f"{made.name} was to start at {flow.start_s:g} s: the run was over after {outcome.duration_s:.4g} s"
            outcome.fail("left_out", outcome.duration_s, text, flow.work)
        elif outcome.duration_s - flow.start_s > outcome.series.every_s:  # less may be less than a round trip
            text = f"{made.name} carried nothing in {outcome.duration_s - flow.start_s:.4g} s"
            outcome.fail("left_out", outcome.duration_s, text, flow.work)


def _unfinished(outcome: Outcome, work: PlannedWork) -> None:
    for flow, made in zip(work.flows, outcome.flows, strict=False):
        if flow.messages is not None and flow.stop_s is None and made.completed < flow.messages:
            text = f"{made.name}: {made.completed} of {flow.messages} messages are complete"
            outcome.fail("unfinished", outcome.duration_s, text, flow.work, flow.messages - made.completed)
    for group, collective in zip(work.groups, outcome.collectives, strict=True):
        ended = len(collective.iterations)
        if ended < group.iterations:
            warm_up = f" after {group.warm_up} to warm up" if group.warm_up else ""
            text = f"{group.work}: {ended} of {group.iterations} iterations ended at all ranks{warm_up}"
            outcome.fail("unfinished", outcome.duration_s, text, group.work, group.iterations - ended)


def unwanted(outcome: Outcome, rules: Iterable[Rule]) -> list[Failure]:
    """Failures that none of these rules, all of which are for this run, wants."""
    failing, cut_off = set(), set()
    for rule in rules:
        if isinstance(rule, ExpectFailure):
            failing.add(rule.failed)
        elif isinstance(rule, ExpectUnfinished):
            cut_off.add(rule.unfinished)
    return [
        failure
        for failure in outcome.failures
        if not (failure.kind in FOLLOWS and failure.work in failing)
        and not (failure.kind == "unfinished" and failure.work in cut_off)
    ]


def looked_at(outcome: Outcome) -> str:
    """What the unwritten rules were judged on, in words: `12 QPs, 4,310 messages, 1 job of 60 iterations, 3 faults`."""
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
