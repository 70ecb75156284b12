"""Acceptance rules against what was measured: for each rule a verdict that says what was expected and what was seen.

verdicts = judge(scenario, [(run.label, Measured), ...], where="virtual")
all(verdict.passed for verdict in verdicts)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from testbed.scenario.measure import Measured
from testbed.scenario.metrics import find
from testbed.scenario.model import Expect, Scenario
from topologies import units

EVENTS_AROUND = 12
"""Events told beside a rule that failed."""
AROUND_S = 1.0
EVENT_KINDS = ("fault", "ev", "plane", "qp_error", "control", "detected")


@dataclass(slots=True)
class Verdict:
    """One rule on one run."""

    rule: str
    run: str
    passed: bool
    expected: str
    seen: str
    why: str = ""
    value: float | None = None
    """What was compared: the worst value seen, as a share where the rule has `of`."""
    paper: float | None = None
    events: list[str] = field(default_factory=list)
    """What happened around, when it failed."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Measurements = Sequence[tuple[str, dict[str, Any], Measured]]
"""(name, label, measured) of every run."""


def judge(scenario: Scenario, runs: Measurements, where: str) -> list[Verdict]:
    """Every rule on every run it is for; before them, what any run must hold: nothing damaged, nothing unfinished."""
    out: list[Verdict] = []
    for name, _, measured in runs:
        out += _always(name, measured)
    for rule in scenario.expect:
        if rule.only not in (None, where):
            continue
        chosen = [one for one in runs if matches(one[1], rule.where)]
        if not chosen:
            out.append(Verdict(describe(rule), "no run", False, "a run with " + _label(rule.where), "none", rule.why))
        for name, label, measured in chosen:
            out.append(_judge(rule, name, label, measured, runs))
    return out


def matches(label: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether a run's label has the wanted values; a list of values means any of them."""
    for key, value in wanted.items():
        allowed = value if isinstance(value, list) else [value]
        if label.get(key) not in allowed and str(label.get(key)) not in map(str, allowed):
            return False
    return True


def _always(name: str, measured: Measured) -> list[Verdict]:
    """Not for a scenario to say: bytes are right, sums are right, the run ended."""
    outcome = measured.outcome
    damaged = sum(flow.damaged for flow in outcome.flows)
    wrong = sum(iteration.wrong for one in outcome.collectives for iteration in one.iterations)
    out = [
        Verdict("bytes are in place", name, damaged == 0, "no damaged message", f"{damaged} damaged"),
        Verdict(
            "the run ends", name, outcome.finished, "all work done in time", "done" if outcome.finished else "not done"
        ),
    ]
    if outcome.collectives:
        out.append(Verdict("sums are right", name, wrong == 0, "no wrong element", f"{wrong} wrong"))
    return [verdict for verdict in out if not verdict.passed] or [
        Verdict("bytes are in place, the run ends", name, True, "always", "yes")
    ]


def describe(rule: Expect) -> str:
    """A rule in words: `rate.flow at least 0.95 of baseline from 2s to 5s, in every 1 s`."""
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
    text = " ".join(parts)
    return (
        text + (f", in every {rule.each:g} s" if rule.each else "") + (f" [{_label(rule.where)}]" if rule.where else "")
    )


def _label(label: dict[str, Any] | None) -> str:
    return ", ".join(f"{key}={value}" for key, value in (label or {}).items())


def _judge(rule: Expect, name: str, label: dict[str, Any], measured: Measured, runs: Measurements) -> Verdict:
    values = measured.values(rule.metric, rule.start, rule.stop, rule.each)
    scale = _scale(rule, label, measured, runs)
    if not values or scale is None:
        missing = rule.metric if not values else rule.of
        return Verdict(describe(rule), name, False, _expected(rule), f"nothing measured for {missing}", rule.why)
    shares = [value / scale if scale else (0.0 if value == 0 else float("inf")) for value in values]
    bad = [share for share in shares if not _within(rule, share)]
    worst = bad[0] if bad else _closest(rule, shares)
    at = shares.index(worst)
    seen = _seen(rule, measured, values[at], worst, at if rule.each else None)
    verdict = Verdict(describe(rule), name, not bad, _expected(rule), seen, rule.why, worst, rule.paper)
    if bad:
        low = measured.moment(rule.start, 0.0) + (at * rule.each if rule.each else 0.0)
        high = low + rule.each if rule.each else measured.moment(rule.stop, measured.outcome.duration_s)
        verdict.events = events_around(measured, low, high)
    return verdict


def _scale(rule: Expect, label: dict[str, Any], measured: Measured, runs: Measurements) -> float | None:
    """What a value is divided by before it is compared."""
    if rule.of is None and rule.compared_to is None:
        return 1.0
    other = measured
    if rule.compared_to is not None:
        wanted = {**label, **rule.compared_to}
        found = [one for one in runs if matches(one[1], wanted) and one[2].outcome.repeat == measured.outcome.repeat]
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


def _seen(rule: Expect, measured: Measured, value: float, share: float, number: int | None) -> str:
    text = f"{share:.4g}"
    if rule.of is not None or rule.compared_to is not None:
        text += f" ({show(rule.metric, value, measured)})"
    if number is not None:
        text += f" in interval {number + 1}"
    return text


def show(name: str, value: float, measured: Measured) -> str:
    """A metric's value with its unit."""
    metric = find(name, measured.outcome.works(), measured.scenario.measure.queues)
    unit = metric.unit if metric else ""
    if unit == "bit/s":
        return units.show_rate(value)
    if unit == "s":
        return units.show_seconds(value)
    return f"{value:.4g}" + (f" {unit}" if unit not in ("0/1", "0..1", "share") else "")


def events_around(measured: Measured, low: float, high: float) -> list[str]:
    """What happened from a second before `low` to `high`, the first few of it."""
    events = measured.outcome.events
    near = [e for e in events if e["what"] in EVENT_KINDS and low - AROUND_S <= e["t"] <= high]
    lines = [f"{event['t']:9.3f} s  {event_text(event)}" for event in near[:EVENTS_AROUND]]
    return lines + ([f"... and {len(near) - EVENTS_AROUND} more"] if len(near) > EVENTS_AROUND else [])


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
