"""Judge measurements by acceptance rules: a verdict for each rule, with expected and measured value.

verdicts = judge(scenario, [(run.name, run.label, measurement), ...], environments=("virtual",))
all(verdict.passed for verdict in verdicts)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from mrc_testbed.console import units
from mrc_testbed.experiments.backend.failures import FAILS, OVERLOAD_KINDS, UNWRITTEN, audit_scope, unwanted_failures
from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.language.metric_names import find, unit_by_name
from mrc_testbed.experiments.language.model import AnyRule, Expect, ExpectFailure, ExpectIncomplete, Rule, Scenario
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.resolve.run_plan import RunPlan

EVENTS_AROUND = 12
"""Most lines of events printed with a rule that failed."""
AROUND_S = 1.0
TOGETHER_S, TOGETHER_SHARE = 0.25, 0.05
"""Events of one kind, host and cause that follow each other this closely are merged into one line.

The shorter of a time and a share of the run.
"""
EVENT_KINDS = ("fault", "ev", "plane", "qp_error", "control", "detected")


ALWAYS = "nothing died, failed, was damaged, late, left out or unfinished"
"""Text of the unwritten rules of every run (failures.py), where all rules hold."""
MORE_CAUSES = 3
"""Failures of one kind that are printed; the rest are counted."""
NO_RUN = "no run"
"""Name in place of a run's, for a rule that no run matches."""


@dataclass(slots=True)
class ExpectationVerdict:
    """One rule on one run."""

    rule: str
    run: str
    passed: bool
    expected: str
    seen: str
    why: str = ""
    value: float | None = None
    """The compared value: the worst one, as a share where the rule has `of`."""
    unit: str = ""
    """Unit of `value`; empty for a share."""
    paper: float | None = None
    events: list[str] = field(default_factory=list)
    """Lines of the events around the failure."""
    around: str = ""
    """Time span of `events`, as text."""
    timed: bool = False
    """Whether an overloaded machine may decide the verdict; False for unwritten rules and missing values."""
    cause: str = ""
    """First cause of a failed run, whose figures belong in no mean.

    Empty where the rule held, and where a sound run missed a bound."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Measurements = Sequence[tuple[str, dict[str, Any], Measurement]]
"""(name, label, measurement) of every run."""


def judge(
    scenario: Scenario, runs: Measurements, environments: tuple[str, ...], scale: str | None = None
) -> list[ExpectationVerdict]:
    """Return a verdict for every rule on every run that its labels select, failed unwritten rules first.

    `environments`: those of the runs (expand.environments_of); `scale`: the scale of the file.
    """
    out: list[ExpectationVerdict] = []
    rules = [rule for rule in scenario.expect if rule.is_at(environments, scale)]
    for name, label, measurement in runs:
        out += _always(name, measurement, [rule for rule in rules if matches(label, rule.where)])
    for rule in rules:
        selected_runs = [run for run in runs if matches(run[1], rule.where)]
        if not selected_runs:
            out.append(_no_run_verdict(rule, runs))
        for name, label, measurement in selected_runs:
            out.append(_judge(rule, name, label, measurement, runs))
    return out


def conclude(run: RunPlan, outcome: Outcome) -> None:
    """Fill in the metrics of a run that is over, and the cause if it failed."""
    measurement = Measurement(outcome, run)
    outcome.metrics = measurement.all_values()
    rules = [rule for rule in run.scenario.expect if not isinstance(rule, Expect)]
    own_scenario = run.scenario.model_copy(
        update={"expect": [rule for rule in rules if matches(run.label, rule.where)]}
    )
    verdicts = judge(own_scenario, [(run.name, run.label, measurement)], run.environments, run.scale)
    outcome.cause = causes(verdicts).get(run.name, "")


def causes(verdicts: Sequence[ExpectationVerdict]) -> dict[str, str]:
    """Return name -> first cause of each run that failed; a run that missed a bound has not failed."""
    first_causes: dict[str, str] = {}
    for verdict in verdicts:
        if verdict.cause:
            first_causes.setdefault(verdict.run, verdict.cause)
    return first_causes


def matches(label: dict[str, Any], selection: dict[str, Any]) -> bool:
    """Return whether a run's label has the selected values; a list of values means any value of the list."""
    for key, value in selection.items():
        values = value if isinstance(value, list) else [value]
        if not any(_values_equal(label.get(key), value) for value in values):
            return False
    return True


def _values_equal(label_value: Any, selected_value: Any) -> bool:
    """Return whether two values of a sweep are equal: `1M` is 1048576, `1%` is 0.01."""
    if label_value == selected_value or str(label_value) == str(selected_value):
        return True
    for read in (units.size, units.share, units.seconds):
        try:
            return read(label_value) == read(selected_value)
        except (units.UnitError, TypeError):
            continue
    return False


def _no_run_verdict(rule: AnyRule, runs: Measurements) -> ExpectationVerdict:
    """Return the verdict of a rule whose labels no run has."""
    have = {key: list(dict.fromkeys(str(label.get(key)) for _, label, _ in runs)) for key in rule.where}
    result = "; ".join(f"{key}: {', '.join(values)}" for key, values in have.items())
    return ExpectationVerdict(
        describe(rule), NO_RUN, False, "a run with " + _label(rule.where), f"none (runs have {result})", rule.why
    )


def _always(name: str, measurement: Measurement, rules: Sequence[Rule]) -> list[ExpectationVerdict]:
    """Return the verdicts of the unwritten rules on one run: a line for each kind of failure."""
    outcome = measurement.outcome
    failures = unwanted_failures(outcome, rules)
    if not failures:
        result = f"judged on {audit_scope(outcome)}"
        return [ExpectationVerdict(ALWAYS, name, True, "always", result)]
    out = []
    for kind in dict.fromkeys(failure.kind for failure in failures):
        texts = [failure.text for failure in failures if failure.kind == kind]
        omitted_text = f"; and {len(texts) - MORE_CAUSES} more" if len(texts) > MORE_CAUSES else ""
        first_time = next(failure.at_s for failure in failures if failure.kind == kind)
        verdict = ExpectationVerdict(
            UNWRITTEN[kind], name, False, "always", "; ".join(texts[:MORE_CAUSES]) + omitted_text
        )
        verdict.timed = kind in OVERLOAD_KINDS
        faults = [event["t"] for event in outcome.events if event["what"] == "fault" and event["t"] <= first_time]
        low = max(faults, default=first_time)
        verdict.cause, verdict.events = texts[0], events_around(measurement, low, first_time)
        verdict.around = _span_text(max(0.0, low - AROUND_S), first_time)
        out.append(verdict)
    return out


def describe(rule: AnyRule, *, with_label: bool = True) -> str:
    """Return a rule in words.

    For example `rate.flow at least 0.95 of baseline from 2s to 5s, in every 1s [variant=mrc]`.
    """
    match rule:
        case ExpectFailure():
            text = _describe_failure(rule)
        case ExpectIncomplete():
            text = f"{rule.unfinished} is cut off by the end of the run"
        case Expect():
            text = _describe_bound(rule)
    return text + (f" [{_label(rule.where)}]" if rule.where and with_label else "")


def _describe_failure(rule: ExpectFailure) -> str:
    """Return the rule in words: `job fails: at least 1 of its QPs or ranks from 1s to 3s with "retries"`."""
    upper_text = "" if rule.at_most is None else f" and at most {rule.at_most}"
    text = f"{rule.failed} fails: at least {rule.at_least}{upper_text} of its QPs or ranks"
    if not rule.at_least:
        text = f"{rule.failed} may fail: " + (f"at most {rule.at_most}" if rule.at_most is not None else "any number")
        text += " of its QPs or ranks"
    text += f" from {rule.start}" if rule.start is not None else ""
    text += f" to {rule.stop}" if rule.stop is not None else ""
    return text + (f' with "{rule.error}"' if rule.error else "")


def _describe_bound(rule: Expect) -> str:
    parts = [rule.metric]
    for key, words in (("at_least", "at least"), ("at_most", "at most"), ("about", "about")):
        value = getattr(rule, key)
        if value is not None:
            parts.append(f"{words} {_bound(rule, value)}" + (f" ± {100 * rule.within:g} %" if key == "about" else ""))
    if rule.of:
        parts.append(f"of {rule.of}" + (f" of {_label(rule.compared_to)}" if rule.compared_to else ""))
    elif rule.compared_to:
        parts.append(f"times that of {_label(rule.compared_to)}")
    if rule.start is not None:
        parts.append(f"from {rule.start}")
    if rule.stop is not None:
        parts.append(f"to {rule.stop}")
    return " ".join(parts) + (f", in every {units.short_seconds(rule.each)}" if rule.each else "")


def _bound(rule: Expect, value: float) -> str:
    """Return a bound as text: a time with its unit."""
    is_time = rule.of is None and rule.compared_to is None and unit_by_name(rule.metric) == "s"
    return units.short_seconds(value) if is_time else f"{value:g}"


def _span_text(low: float, high: float) -> str:
    """Return `from 2 to 5 s`, in the unit that fits the longer of both."""
    name, unit = units.time_unit(high)
    return f"from {low / unit:.4g} to {high / unit:.4g} {name}"


def _label(label: dict[str, Any] | None) -> str:
    return ", ".join(f"{key}={value}" for key, value in (label or {}).items())


def _judge(
    rule: AnyRule, name: str, label: dict[str, Any], measurement: Measurement, runs: Measurements
) -> ExpectationVerdict:
    match rule:
        case ExpectFailure():
            return _judge_failure(rule, name, measurement)
        case ExpectIncomplete():
            return _judge_unfinished(rule, name, measurement)
        case Expect():
            return _judge_bound(rule, name, label, measurement, runs)


def _judge_failure(rule: ExpectFailure, name: str, measurement: Measurement) -> ExpectationVerdict:
    outcome = measurement.outcome
    own_failures = [failure for failure in outcome.failures if failure.kind in FAILS and failure.work == rule.failed]
    # The last failure may be at the run's end, rounded up.
    low, high = measurement.moment(rule.start, 0.0), measurement.moment(rule.stop, inf)
    early_or_late = [failure.text for failure in own_failures if not low <= failure.at_s <= high]
    other_errors = [
        failure.text for failure in own_failures if rule.error is not None and rule.error not in failure.text
    ]
    upper_limit = len(own_failures) if rule.at_most is None else rule.at_most
    mismatches = [*early_or_late, *other_errors]
    passed = rule.at_least <= len(own_failures) <= upper_limit and not mismatches
    result = f"{len(own_failures) or 'none'} of its QPs or ranks failed"
    examples = (mismatches or [failure.text for failure in own_failures])[:1]
    result += f": {examples[0]}" if examples else ""
    bound = f"{rule.at_least} or more" if rule.at_most is None else f"{rule.at_least} to {rule.at_most}"
    verdict = ExpectationVerdict(describe(rule, with_label=False), name, passed, f"{bound} failed", result, rule.why)
    verdict.value, verdict.unit, verdict.cause = float(len(own_failures)), "count", "" if passed else result
    return verdict


def _judge_unfinished(rule: ExpectIncomplete, name: str, measurement: Measurement) -> ExpectationVerdict:
    cut_off = [
        failure.text
        for failure in measurement.outcome.failures
        if (failure.kind, failure.work) == ("unfinished", rule.unfinished)
    ]
    result = cut_off[0] if cut_off else "all of it was complete"
    return ExpectationVerdict(describe(rule, with_label=False), name, bool(cut_off), "not all of it", result, rule.why)


def _judge_bound(
    rule: Expect, name: str, label: dict[str, Any], measurement: Measurement, runs: Measurements
) -> ExpectationVerdict:
    values = measurement.values(rule.metric, rule.start, rule.stop, rule.each)
    scale = _scale(rule, label, measurement, runs)
    text = describe(rule, with_label=False)
    low, high = measurement.moment(rule.start, 0.0), measurement.moment(rule.stop, measurement.outcome.duration_s)
    if not values or scale is None:
        missing_name = rule.metric if not values else rule.of or rule.metric
        result = f"{missing_name} was not measured" + (
            "" if rule.compared_to is None else f" in {_label(rule.compared_to)}"
        )
        return ExpectationVerdict(text, name, False, _bound_text(rule), result, rule.why)
    # A value above 0 against a scale of 0 is infinitely above it: the rule must not pass by a division left out.
    shares = [value / scale if scale else (0.0 if value == 0 else float("inf")) for value in values]
    violations = [share for share in shares if not _satisfies(rule, share)]
    worst_share = _closest(rule, violations or shares)
    worst_index = shares.index(worst_share)
    if rule.each:
        low, high = low + worst_index * rule.each, low + (worst_index + 1) * rule.each
    result = _value_text(rule, measurement, values[worst_index], worst_share)
    if rule.each:
        result += f" {_span_text(low, high)}"
    if len(violations) > 1:
        result += f" and {len(violations) - 1} more of {len(shares)} intervals"
    unit = "" if rule.of is not None or rule.compared_to is not None else unit_of(rule.metric, measurement)
    verdict = ExpectationVerdict(
        text, name, not violations, _bound_text(rule), result, rule.why, worst_share, unit, rule.paper
    )
    metric = find(rule.metric, measurement.outcome.works(), measurement.plan.measure.queues)
    verdict.timed = metric is not None and metric.timed
    if violations:
        verdict.events = events_around(measurement, low, high, rule.metric)
        verdict.around = _span_text(max(0.0, low - AROUND_S), high)
    return verdict


def _scale(rule: Expect, label: dict[str, Any], measurement: Measurement, runs: Measurements) -> float | None:
    """Return the divisor of a value before it is compared."""
    if rule.of is None and rule.compared_to is None:
        return 1.0
    base_measurement = measurement
    if rule.compared_to is not None:
        base_label = {**label, **rule.compared_to}
        base_runs = [
            run for run in runs if matches(run[1], base_label) and run[2].outcome.repeat == measurement.outcome.repeat
        ]
        if not base_runs:
            return None
        base_measurement = base_runs[0][2]
    if rule.of == "baseline":
        return base_measurement.baseline(rule.metric)
    if rule.of == "capacity":
        return base_measurement.outcome.capacity_bps
    values = base_measurement.values(
        rule.of or rule.metric, rule.start, rule.stop, None
    )  # the same part of the other run
    return values[0] if values else None


def _satisfies(rule: Expect, share: float) -> bool:
    if rule.at_least is not None and share < rule.at_least:
        return False
    if rule.at_most is not None and share > rule.at_most:
        return False
    return rule.about is None or abs(share - rule.about) <= rule.within * abs(rule.about)


def _closest(rule: Expect, shares: list[float]) -> float:
    """Return the share that is nearest to failing."""
    if rule.about is not None:
        return max(shares, key=lambda share: abs(share - (rule.about or 0.0)))
    return min(shares) if rule.at_least is not None else max(shares)


def _bound_text(rule: Expect) -> str:
    bounds = []
    if rule.at_least is not None:
        bounds.append(f">= {_bound(rule, rule.at_least)}")
    if rule.at_most is not None:
        bounds.append(f"<= {_bound(rule, rule.at_most)}")
    if rule.about is not None:
        bounds.append(f"{rule.about * (1 - rule.within):.4g} to {rule.about * (1 + rule.within):.4g}")
    return " and ".join(bounds)


def _value_text(rule: Expect, measurement: Measurement, value: float, share: float) -> str:
    if rule.of is None and rule.compared_to is None:
        return show(rule.metric, value, measurement)
    return f"{share:.4g} ({show(rule.metric, value, measurement)})"


def unit_of(name: str, measurement: Measurement) -> str:
    """Return the unit of a metric."""
    metric = find(name, measurement.outcome.works(), measurement.plan.measure.queues)
    return metric.unit if metric else ""


def show(name: str, value: float, measurement: Measurement) -> str:
    """Return a metric's value with its unit."""
    unit = unit_of(name, measurement)
    if unit == "bit/s":
        return units.show_rate(value)
    if unit == "s":
        return units.show_seconds(value)
    number = f"{value:.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:.4g}"
    return number + (f" {unit}" if unit not in ("", "0/1", "0..1", "share", "count") else "")


def events_around(measurement: Measurement, low: float, high: float, metric: str = "") -> list[str]:
    """Return lines of the events from a second before `low` to `high`.

    Of more than EVENTS_AROUND lines, the first and the last of the most important kinds are returned (faults; for
    `evs.` metrics also events of EVs).
    """
    events = measurement.outcome.events
    events = [e for e in events if e["what"] in EVENT_KINDS and low - AROUND_S <= e["t"] <= high]
    lines = merge_events(events, measurement.outcome.duration_s)
    if len(lines) <= EVENTS_AROUND:
        return [text for _, _, text in lines]
    rank = {"fault": 0, "qp_error": 0, "ev": 0 if metric.startswith("evs.") else 3, "control": 1, "plane": 2}
    for max_rank in range(4):
        kept_lines = [line for line in lines if rank.get(line[1], 3) <= max_rank]
        if len(kept_lines) >= EVENTS_AROUND or max_rank == 3:
            break
    half = EVENTS_AROUND // 2
    omitted_text = f"{'...':>11s}  {len(lines) - EVENTS_AROUND} more lines"
    return [*(text for _, _, text in kept_lines[:half]), omitted_text, *(text for _, _, text in kept_lines[-half:])]


def merge_events(events: list[dict[str, Any]], duration_s: float) -> list[tuple[float, str, str]]:
    """Return (time, kind, line) of events; changes of many EVs at about the same time become one line.

    `duration_s`: that of the run, which decides the unit of all times.
    """
    unit, together_s = units.time_unit(duration_s), min(TOGETHER_S, TOGETHER_SHARE * duration_s)
    out: list[tuple[float, str, str]] = []
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for event in events:
        if event["what"] != "ev":
            out.append((event["t"], event["what"], f"{_time_text(event['t'], unit):>11s}  {event_text(event)}"))
            continue
        key = (event["host"], event["peer"], event["old"], event["new"], event["cause"])
        group = groups.get(key)
        if group is not None and event["t"] - group[-1]["t"] <= together_s:
            group.append(event)
            continue
        if group is not None:
            out.append(_group_line(group, unit))
        groups[key] = [event]
    out += [_group_line(group, unit) for group in groups.values()]
    return sorted(out, key=lambda line: line[0])


def _time_text(t: float, unit: tuple[str, float]) -> str:
    return f"{t / unit[1]:.3f} {unit[0]}"


def _group_line(group: list[dict[str, Any]], unit: tuple[str, float]) -> tuple[float, str, str]:
    first = group[0]
    time_text = f"{_time_text(first['t'], unit):>11s}  "
    if len(group) == 1:
        return first["t"], "ev", time_text + event_text(first)
    planes = ", ".join(str(plane) for plane in sorted({event["plane"] for event in group}))
    evs = len({event["ev"] for event in group})
    evs_text = f"{evs} EVs" if evs > 1 else f"{len(group)} times EV {first['ev']:#06x}"
    transition = f"{first['old']} -> {first['new']}: {first['cause']}"
    until_text = _time_text(group[-1]["t"], unit)
    text = f"{first['host']}: {evs_text} to {first['peer']} (plane {planes}) {transition}, until {until_text}"
    return first["t"], "ev", time_text + text


def event_text(event: dict[str, Any]) -> str:
    """Return an event of an Outcome in words."""
    match event["what"]:
        case "ev":
            transition = f"{event['old']} -> {event['new']}: {event['cause']}"
            return f"{event['host']}: EV {event['ev']:#06x} to {event['peer']} {transition}"
        case "plane":
            port_owner = "own port" if event["peer"] is None else f"port of {event['peer']}"
            return f"{event['host']}: plane {event['plane']} {'up' if event['up'] else 'down'} ({port_owner})"
        case "lost":
            return f"{event['host']}: finds a packet lost over EV {event['ev']:#06x} ({event['cause']})"
        case "replaced":
            successor = "nothing" if event["by"] is None else f"{event['by']:#06x}"
            return f"{event['host']}: EV {event['ev']:#06x} replaced by {successor}"
        case "qp_error":
            return f"{event['host']}: QP to {event['peer']} failed: {event['text']}"
    return str(event.get("text", event))
