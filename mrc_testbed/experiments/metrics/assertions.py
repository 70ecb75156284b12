"""Acceptance rules applied to measurements: for each rule a verdict with the expected and the measured value.

verdicts = judge(scenario, [(run.label, Measured), ...], places=("virtual",))
all(verdict.passed for verdict in verdicts)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mrc_testbed.console import units
from mrc_testbed.experiments.backend.failures import UNWRITTEN, audit_scope, unwanted_failures
from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.language.metric_names import find
from mrc_testbed.experiments.language.model import AnyRule, Expect, ExpectFailure, ExpectIncomplete, Rule, Scenario
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.resolve.run_plan import RunPlan

EVENTS_AROUND = 12
"""Most lines of events printed with a rule that failed."""
AROUND_S = 1.0
TOGETHER_S = 0.25
"""Events of one kind, host and cause that follow each other this closely are merged into one line."""
EVENT_KINDS = ("fault", "ev", "plane", "qp_error", "control", "detected")


ALWAYS = "nothing died, failed, was damaged, left out or unfinished"
"""The rules that every run has without asking for them (failures.py), where all of them hold."""
MORE_CAUSES = 3
"""Failures of one kind that are told; the rest are counted."""
NO_RUN = "no run"
"""Instead of a run's name: a rule that no run is for."""


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
    """Of `value`; empty for a share."""
    paper: float | None = None
    events: list[str] = field(default_factory=list)
    """Events around the failure ..."""
    around: str = ""
    """... and from when to when that is."""
    timed: bool = False
    """An overloaded machine may have decided it (metrics.py): never what any run must hold, nor what is missing."""
    cause: str = ""
    """First cause of a run that failed: it is not what it was meant to be, and its figures belong in no mean. Empty
    where the rule held, and where a bound was missed by a run that is sound."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Measurements = Sequence[tuple[str, dict[str, Any], Measurement]]
"""(name, label, measured) of every run."""


def judge(
    scenario: Scenario, runs: Measurements, places: tuple[str, ...], scale: str | None = None
) -> list[ExpectationVerdict]:
    """Every rule on every run it is for; before them the unwritten ones that did not hold, the first cause first.

    `environments`: those of the runs (expand.environments_of); `scale`: the scale of the file.
    """
    out: list[ExpectationVerdict] = []
    rules = [rule for rule in scenario.expect if rule.is_at(places, scale)]
    for name, label, measurement in runs:
        out += _always(name, measurement, [rule for rule in rules if matches(label, rule.where)])
    for rule in rules:
        chosen = [run for run in runs if matches(run[1], rule.where)]
        if not chosen:
            out.append(_nobody(rule, runs))
        for name, label, measurement in chosen:
            out.append(_judge(rule, name, label, measurement, runs))
    return out


def conclude(run: RunPlan, outcome: Outcome) -> None:
    """Fill in a run that is over: its metrics, and why it failed if it did."""
    measurement = Measurement(outcome, run)
    outcome.metrics = measurement.all()
    rules = [rule for rule in run.scenario.expect if not isinstance(rule, Expect)]
    ours = run.scenario.model_copy(update={"expect": [rule for rule in rules if matches(run.label, rule.where)]})
    verdicts = judge(ours, [(run.name, run.label, measurement)], run.environments, run.scale)
    outcome.cause = causes(verdicts).get(run.name, "")


def causes(verdicts: Sequence[ExpectationVerdict]) -> dict[str, str]:
    """Name -> first cause of each run that failed, which is not the same as one that missed a bound."""
    found: dict[str, str] = {}
    for verdict in verdicts:
        if verdict.cause:
            found.setdefault(verdict.run, verdict.cause)
    return found


def matches(label: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether a run's label has the wanted values; a list of values means any of them."""
    for key, value in wanted.items():
        allowed = value if isinstance(value, list) else [value]
        if not any(_same(label.get(key), one) for one in allowed):
            return False
    return True


def _same(one: Any, other: Any) -> bool:
    """Whether two values of a sweep are the same: `1M` is 1048576, `1%` is 0.01."""
    if one == other or str(one) == str(other):
        return True
    for read in (units.size, units.share, units.seconds):
        try:
            return read(one) == read(other)
        except (units.UnitError, TypeError):
            continue
    return False


def _nobody(rule: AnyRule, runs: Measurements) -> ExpectationVerdict:
    """Verdict of a rule whose labels no run has."""
    have = {key: list(dict.fromkeys(str(label.get(key)) for _, label, _ in runs)) for key in rule.where}
    seen = "; ".join(f"{key}: {', '.join(values)}" for key, values in have.items())
    return ExpectationVerdict(
        describe(rule), NO_RUN, False, "a run with " + _label(rule.where), f"none (runs have {seen})", rule.why
    )


def _always(name: str, measurement: Measurement, rules: Sequence[Rule]) -> list[ExpectationVerdict]:
    """Verdicts that no scenario has to ask for, on a run that these rules are for: a line for each kind of failure."""
    outcome = measurement.outcome
    failures = unwanted_failures(outcome, rules)
    if not failures:
        seen = f"judged on {audit_scope(outcome)}"
        return [ExpectationVerdict(ALWAYS, name, True, "always", seen)]
    out = []
    for kind in dict.fromkeys(failure.kind for failure in failures):
        texts = [failure.text for failure in failures if failure.kind == kind]
        more = f"; and {len(texts) - MORE_CAUSES} more" if len(texts) > MORE_CAUSES else ""
        at = next(failure.at_s for failure in failures if failure.kind == kind)
        verdict = ExpectationVerdict(UNWRITTEN[kind], name, False, "always", "; ".join(texts[:MORE_CAUSES]) + more)
        faults = [event["t"] for event in outcome.events if event["what"] == "fault" and event["t"] <= at]
        low = max(faults, default=at)
        verdict.cause, verdict.events = texts[0], events_around(measurement, low, at)
        verdict.around = f"from {max(0.0, low - AROUND_S):.4g} to {at:.4g} s"
        out.append(verdict)
    return out


def describe(rule: AnyRule, *, where: bool = True) -> str:
    """A rule in words: `rate.flow at least 0.95 of baseline from 2s to 5s, in every 1 s [variant=mrc]`."""
    match rule:
        case ExpectFailure():
            text = _describe_failure(rule)
        case ExpectIncomplete():
            text = f"{rule.unfinished} is cut off by the end of the run"
        case Expect():
            text = _describe_bound(rule)
    return text + (f" [{_label(rule.where)}]" if rule.where and where else "")


def _describe_failure(rule: ExpectFailure) -> str:
    """`job fails: at least 1 QP dies from 1s to 3s with "retries"`."""
    most = "" if rule.at_most is None else f" and at most {rule.at_most}"
    text = f"{rule.failed} fails: at least {rule.at_least}{most} of its QPs die"
    text += f" from {rule.start}" if rule.start is not None else ""
    text += f" to {rule.stop}" if rule.stop is not None else ""
    return text + (f' with "{rule.error}"' if rule.error else "")


def _describe_bound(rule: Expect) -> str:
    parts = [rule.metric]
    for key, words in (("at_least", "at least"), ("at_most", "at most"), ("about", "about")):
        value = getattr(rule, key)
        if value is not None:
            parts.append(f"{words} {value:g}" + (f" ± {100 * rule.within:g} %" if key == "about" else ""))
    if rule.of:
        parts.append(f"of {rule.of}" + (f" of {_label(rule.compared_to)}" if rule.compared_to else ""))
    if rule.start is not None:
        parts.append(f"from {rule.start}")
    if rule.stop is not None:
        parts.append(f"to {rule.stop}")
    return " ".join(parts) + (f", in every {rule.each:g} s" if rule.each else "")


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
    dead = [failure for failure in outcome.failures if (failure.kind, failure.work) == ("qp", rule.failed)]
    low, high = measurement.moment(rule.start, 0.0), measurement.moment(rule.stop, outcome.duration_s)
    early_or_late = [failure.text for failure in dead if not low <= failure.at_s <= high]
    others = [failure.text for failure in dead if rule.error is not None and rule.error not in failure.text]
    most = len(dead) if rule.at_most is None else rule.at_most
    wrong = [*early_or_late, *others]
    passed = rule.at_least <= len(dead) <= most and not wrong
    seen = f"{len(dead)} of its QPs died"
    shown = (wrong or [failure.text for failure in dead])[:1]
    seen += f": {shown[0]}" if shown else ""
    bound = f"{rule.at_least} or more" if rule.at_most is None else f"{rule.at_least} to {rule.at_most}"
    verdict = ExpectationVerdict(describe(rule, where=False), name, passed, f"{bound} dead QPs", seen, rule.why)
    verdict.value, verdict.unit, verdict.cause = float(len(dead)), "count", "" if passed else seen
    return verdict


def _judge_unfinished(rule: ExpectIncomplete, name: str, measurement: Measurement) -> ExpectationVerdict:
    cut_off = [
        failure.text
        for failure in measurement.outcome.failures
        if (failure.kind, failure.work) == ("unfinished", rule.unfinished)
    ]
    seen = cut_off[0] if cut_off else "it ended before"
    return ExpectationVerdict(describe(rule, where=False), name, bool(cut_off), "not all of it", seen, rule.why)


def _judge_bound(
    rule: Expect, name: str, label: dict[str, Any], measurement: Measurement, runs: Measurements
) -> ExpectationVerdict:
    values = measurement.values(rule.metric, rule.start, rule.stop, rule.each)
    scale = _scale(rule, label, measurement, runs)
    text = describe(rule, where=False)
    low, high = measurement.moment(rule.start, 0.0), measurement.moment(rule.stop, measurement.outcome.duration_s)
    if not values or scale is None:
        missing = rule.metric if not values else rule.of or rule.metric
        seen = f"{missing} was not measured" + ("" if rule.compared_to is None else f" in {_label(rule.compared_to)}")
        return ExpectationVerdict(text, name, False, _expected(rule), seen, rule.why)
    shares = [value / scale if scale else (0.0 if value == 0 else float("inf")) for value in values]
    bad = [share for share in shares if not _within(rule, share)]
    worst = _closest(rule, bad or shares)
    at = shares.index(worst)
    if rule.each:
        low, high = low + at * rule.each, low + (at + 1) * rule.each
    seen = _seen(rule, measurement, values[at], worst)
    if rule.each:
        seen += f" from {low:g} to {high:g} s"
    if len(bad) > 1:
        seen += f" and {len(bad) - 1} more of {len(shares)} intervals"
    unit = "" if rule.of is not None or rule.compared_to is not None else unit_of(rule.metric, measurement)
    verdict = ExpectationVerdict(text, name, not bad, _expected(rule), seen, rule.why, worst, unit, rule.paper)
    metric = find(rule.metric, measurement.outcome.works(), measurement.plan.measure.queues)
    verdict.timed = metric is not None and metric.timed
    if bad:
        verdict.events = events_around(measurement, low, high, rule.metric)
        verdict.around = f"from {max(0.0, low - AROUND_S):g} to {high:g} s"
    return verdict


def _scale(rule: Expect, label: dict[str, Any], measurement: Measurement, runs: Measurements) -> float | None:
    """Divisor of a value before it is compared."""
    if rule.of is None and rule.compared_to is None:
        return 1.0
    other = measurement
    if rule.compared_to is not None:
        wanted = {**label, **rule.compared_to}
        found = [run for run in runs if matches(run[1], wanted) and run[2].outcome.repeat == measurement.outcome.repeat]
        if not found:
            return None
        other = found[0][2]
    if rule.of == "baseline":
        return other.baseline(rule.metric)
    if rule.of == "capacity":
        return other.outcome.capacity_bps
    values = other.values(rule.of or rule.metric, rule.start, rule.stop, None)  # the same part of the other run
    return values[0] if values else None


def _within(rule: Expect, share: float) -> bool:
    if rule.at_least is not None and share < rule.at_least:
        return False
    if rule.at_most is not None and share > rule.at_most:
        return False
    return rule.about is None or abs(share - rule.about) <= rule.within * abs(rule.about)


def _closest(rule: Expect, shares: list[float]) -> float:
    """The one that is nearest to failing."""
    if rule.about is not None:
        return max(shares, key=lambda share: abs(share - (rule.about or 0.0)))
    return min(shares) if rule.at_least is not None else max(shares)


def _expected(rule: Expect) -> str:
    bounds = []
    if rule.at_least is not None:
        bounds.append(f">= {rule.at_least:g}")
    if rule.at_most is not None:
        bounds.append(f"<= {rule.at_most:g}")
    if rule.about is not None:
        bounds.append(f"{rule.about * (1 - rule.within):.4g} to {rule.about * (1 + rule.within):.4g}")
    return " and ".join(bounds)


def _seen(rule: Expect, measurement: Measurement, value: float, share: float) -> str:
    if rule.of is None and rule.compared_to is None:
        return show(rule.metric, value, measurement)
    return f"{share:.4g} ({show(rule.metric, value, measurement)})"


def unit_of(name: str, measurement: Measurement) -> str:
    """Unit of a metric."""
    metric = find(name, measurement.outcome.works(), measurement.plan.measure.queues)
    return metric.unit if metric else ""


def show(name: str, value: float, measurement: Measurement) -> str:
    """A metric's value with its unit."""
    unit = unit_of(name, measurement)
    if unit == "bit/s":
        return units.show_rate(value)
    if unit == "s":
        return units.show_seconds(value)
    number = f"{value:.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:.4g}"
    return number + (f" {unit}" if unit not in ("", "0/1", "0..1", "share", "count") else "")


def events_around(measurement: Measurement, low: float, high: float, metric: str = "") -> list[str]:
    """Lines of the events from a second before `low` to `high`.

    When that is more than there is room for: the first and the last of what counts most (faults; for `evs.` metrics
    what EVs did, too).
    """
    events = measurement.outcome.events
    lines = told_together([e for e in events if e["what"] in EVENT_KINDS and low - AROUND_S <= e["t"] <= high])
    if len(lines) <= EVENTS_AROUND:
        return [text for _, _, text in lines]
    rank = {"fault": 0, "qp_error": 0, "ev": 0 if metric.startswith("evs.") else 3, "control": 1, "plane": 2}
    for worst in range(4):
        kept = [line for line in lines if rank.get(line[1], 3) <= worst]
        if len(kept) >= EVENTS_AROUND or worst == 3:
            break
    half = EVENTS_AROUND // 2
    more = f"{'...':>11s}  {len(lines) - EVENTS_AROUND} more lines"
    return [*(text for _, _, text in kept[:half]), more, *(text for _, _, text in kept[-half:])]


def told_together(events: list[dict[str, Any]]) -> list[tuple[float, str, str]]:
    """(time, what, line) of events; moves of many EVs at about the same time become one line."""
    out: list[tuple[float, str, str]] = []
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for event in events:
        if event["what"] != "ev":
            out.append((event["t"], event["what"], f"{event['t']:9.3f} s  {event_text(event)}"))
            continue
        key = (event["host"], event["peer"], event["old"], event["new"], event["cause"])
        group = groups.get(key)
        if group is not None and event["t"] - group[-1]["t"] <= TOGETHER_S:
            group.append(event)
            continue
        if group is not None:
            out.append(_group_line(group))
        groups[key] = [event]
    out += [_group_line(group) for group in groups.values()]
    return sorted(out, key=lambda line: line[0])


def _group_line(group: list[dict[str, Any]]) -> tuple[float, str, str]:
    first = group[0]
    at = f"{first['t']:9.3f} s  "
    if len(group) == 1:
        return first["t"], "ev", at + event_text(first)
    planes = ", ".join(str(plane) for plane in sorted({event["plane"] for event in group}))
    evs = len({event["ev"] for event in group})
    what = f"{evs} EVs" if evs > 1 else f"{len(group)} times EV {first['ev']:#06x}"
    moved = f"{first['old']} -> {first['new']}: {first['cause']}"
    text = f"{first['host']}: {what} to {first['peer']} (plane {planes}) {moved}, until {group[-1]['t']:.3f} s"
    return first["t"], "ev", at + text


def event_text(event: dict[str, Any]) -> str:
    """An event of an Outcome in words."""
    match event["what"]:
        case "ev":
            moved = f"{event['old']} -> {event['new']}: {event['cause']}"
            return f"{event['host']}: EV {event['ev']:#06x} to {event['peer']} {moved}"
        case "plane":
            whose = "own port" if event["peer"] is None else f"port of {event['peer']}"
            return f"{event['host']}: plane {event['plane']} {'up' if event['up'] else 'down'} ({whose})"
        case "replaced":
            by = "nothing" if event["by"] is None else f"{event['by']:#06x}"
            return f"{event['host']}: EV {event['ev']:#06x} replaced by {by}"
        case "qp_error":
            return f"{event['host']}: QP to {event['peer']} failed: {event['text']}"
    return str(event.get("text", event))
