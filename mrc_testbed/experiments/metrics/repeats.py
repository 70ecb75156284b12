"""Median and spread over the repeats of a scenario, for each number that a rule or figure names.

    for spread in spreads(scenario, runs, verdicts):
        spread.run, spread.subject, spread.median     # "mrc loss=1%", "rate.total at least 0.9 ...", ...

How repeats are judged: every rule must hold in every repeat. A rule that holds in 2 of 3 has failed, shown as `2 of 3`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from mrc_testbed.console.units import fitting_unit
from mrc_testbed.experiments.language.metric_names import find
from mrc_testbed.experiments.language.model import Scenario
from mrc_testbed.experiments.metrics.assertions import ExpectationVerdict, Measurements


@dataclass(slots=True)
class Spread:
    """One number over the repeats of one variant and combination of swept values."""

    subject: str
    """A rule in words, or a metric (then over the whole run)."""
    run: str
    """Name without the repeat's number."""
    values: list[float]
    """Value of each repeat, without repeats that failed or measured nothing."""
    unit: str = ""
    rule: bool = False
    repeats_held: int = 0
    """Repeats in which the rule held; rules only."""
    repeats: int = 0
    """Number of repeats; rules only."""
    paper: float | None = None
    seeds: list[int] = field(default_factory=list)
    failed: int = 0
    """Repeats that failed; `values` lacks them."""

    @property
    def median(self) -> float | None:
        return median(self.values) if self.values else None

    @property
    def low(self) -> float | None:
        return min(self.values, default=None)

    @property
    def high(self) -> float | None:
        return max(self.values, default=None)

    @property
    def iqr(self) -> tuple[float, float] | None:
        """First and third quartile, from four values on."""
        if len(self.values) < 4:
            return None
        first, _, third = quantiles(self.values, n=4, method="inclusive")
        return first, third

    def text(self) -> str:
        """Return the spread as text (`median 0.874, 0.871 to 0.876`); failed runs are counted apart."""
        failed = f"; {self.failed} failed and {'is' if self.failed == 1 else 'are'} left out" if self.failed else ""
        return spread_text(self.values, self.unit) + failed

    def to_json(self) -> dict[str, Any]:
        out = {
            "what": self.subject,
            "run": self.run,
            "unit": self.unit,
            "values": self.values,
            "median": self.median,
            "min": self.low,
            "max": self.high,
            "iqr": self.iqr,
            "seeds": self.seeds,
            "paper": self.paper,
            "failed": self.failed,
        }
        return out | ({"held": self.repeats_held, "of": self.repeats} if self.rule else {})


def spread_text(values: Sequence[float], unit: str = "") -> str:
    """Return median and both ends in words, with the quartiles from four values on."""
    if not values:
        return "nothing measured"
    unit, scale = fitting_unit(unit, max(map(abs, values)))
    name = "" if unit in PLAIN else f" {unit}"
    numbers = [f"{value / scale:.4g}" for value in (median(values), min(values), max(values))]
    if len(values) == 1:
        return f"{numbers[0]}{name}"
    text = f"median {numbers[0]}{name}, {numbers[1]} to {numbers[2]}"
    if len(values) >= 4:
        first, _, third = quantiles(values, n=4, method="inclusive")
        text += f" (half of them {first / scale:.4g} to {third / scale:.4g})"
    return text


PLAIN = ("", "0/1", "0..1", "share", "count")
"""Units that are not printed."""


def base_name(run: str) -> str:
    """Return a run's name without the number of its repeat: `mrc loss=1%` for `mrc loss=1% #2`."""
    return re.sub(r" ?#\d+$", "", run) or "run"


def group_repeats(runs: Measurements) -> dict[str, Measurements]:
    """Return the repeats of each run, by name without the repeat's number, in order."""
    out: dict[str, list[Any]] = {}
    for run in runs:
        out.setdefault(base_name(run[0]), []).append(run)
    return dict(out)


def without_failed(runs: Measurements) -> Measurements:
    """Return the runs that did not fail; where all repeats failed, the first of them, marked `(failed)`."""
    out: list[Any] = []
    for base, repeats in group_repeats(runs).items():
        sound_repeats = [repeat for repeat in repeats if not repeat[2].outcome.cause]
        _, label, measurement = repeats[0]
        out += sound_repeats or [(f"{base} (failed)", label, measurement)]
    return out


def spreads(scenario: Scenario, runs: Measurements, verdicts: Iterable[ExpectationVerdict]) -> list[Spread]:
    """Return spreads of the rules (shares where they have `of`), then of the metrics of figures and rules."""
    return [*_of_rules(runs, verdicts), *_of_metrics(scenario, runs)]


def _of_rules(runs: Measurements, verdicts: Iterable[ExpectationVerdict]) -> list[Spread]:
    seeds = {name: measurement.outcome.seed for name, _, measurement in runs}
    failed = {name for name, _, measurement in runs if measurement.outcome.cause}
    repeats = {name: len(group) for name, group in group_repeats(runs).items()}
    spreads_by_rule: dict[tuple[str, str], Spread] = {}
    for verdict in verdicts:
        if verdict.run not in seeds:
            continue
        key = (verdict.rule, base_name(verdict.run))
        repeat_count = repeats[key[1]]
        spread = spreads_by_rule.setdefault(
            key,
            Spread(
                *key, [], verdict.unit, rule=True, repeats_held=repeat_count, repeats=repeat_count, paper=verdict.paper
            ),
        )
        spread.repeats_held -= not verdict.passed
        spread.seeds.append(seeds[verdict.run])
        spread.failed += verdict.run in failed
        if verdict.value is not None and verdict.run not in failed:
            spread.values.append(verdict.value)
    return list(spreads_by_rule.values())


def _of_metrics(scenario: Scenario, runs: Measurements) -> list[Spread]:
    names = [figure.metric for figure in scenario.figures if figure.kind != "latency_cdf"]
    names += [rule.metric for rule in scenario.bounds]
    out = []
    for run, repeats in group_repeats(runs).items():
        works, ports = repeats[0][2].outcome.works(), repeats[0][2].plan.measure.queues
        for name in dict.fromkeys(names):
            metric = find(name, works, ports)
            if metric is None:
                continue
            sound_repeats = [measurement for _, _, measurement in repeats if not measurement.outcome.cause]
            values = [(measurement.value(name), measurement.outcome.seed) for measurement in sound_repeats]
            present = [(value, seed) for value, seed in values if value is not None]
            failed = len(repeats) - len(sound_repeats)
            if present or failed:
                numbers, seeds = [value for value, _ in present], [seed for _, seed in present]
                out.append(Spread(name, run, numbers, unit=metric.unit, seeds=seeds, failed=failed))
    return out
