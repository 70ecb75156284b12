"""Repeats of a scenario as one: median and spread of every number that an expectation or a figure names.

    for one in spreads(scenario, runs, verdicts):
        one.run, one.what, one.median, one.low, one.high     # "mrc loss=1%", "rate.total at least 0.9 ...", ...

How repeats are judged: every rule must hold in every repeat. A rule that holds in 2 of 3 has failed, shown as `2 of 3`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from mrc_testbed.experiments.language.metric_names import find
from mrc_testbed.experiments.language.model import Scenario
from mrc_testbed.experiments.metrics.assertions import ExpectationVerdict, Measurements


@dataclass(slots=True)
class Spread:
    """One number over the repeats of one variant and combination of swept values."""

    what: str
    """A rule in words, or a metric (then over the whole run)."""
    run: str
    """Name without the repeat's number."""
    values: list[float]
    """By repeat; those that had nothing to measure, or failed, are missing."""
    unit: str = ""
    rule: bool = False
    held: int = 0
    """Of a rule: repeats in which it held ..."""
    of: int = 0
    """... of so many."""
    paper: float | None = None
    seeds: list[int] = field(default_factory=list)
    failed: int = 0
    """Repeats that failed and are not among the values."""

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
        """`median 0.874, 0.871 to 0.876`, in the unit of the values; runs that failed are counted apart."""
        failed = f"; {self.failed} failed and {'is' if self.failed == 1 else 'are'} left out" if self.failed else ""
        return spread_text(self.values, self.unit) + failed

    def to_json(self) -> dict[str, Any]:
        out = {
            "what": self.what,
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
        return out | ({"held": self.held, "of": self.of} if self.rule else {})


def spread_text(values: Sequence[float], unit: str = "") -> str:
    """Median and both ends in words; from four values on the quartiles too."""
    if not values:
        return "nothing measured"
    scale, name = (1e6, " Mb/s") if unit == "bit/s" else (1.0, f" {unit}" if unit not in PLAIN else "")
    shown = [f"{value / scale:.4g}" for value in (median(values), min(values), max(values))]
    if len(values) == 1:
        return f"{shown[0]}{name}"
    text = f"median {shown[0]}{name}, {shown[1]} to {shown[2]}"
    if len(values) >= 4:
        first, _, third = quantiles(values, n=4, method="inclusive")
        text += f" (half of them {first / scale:.4g} to {third / scale:.4g})"
    return text


PLAIN = ("", "0/1", "0..1", "share", "count")
"""Units that go without saying."""


def base_name(run: str) -> str:
    """A run's name without the number of its repeat: `mrc loss=1% #2` is one of `mrc loss=1%`."""
    return re.sub(r" ?#\d+$", "", run) or "run"


def grouped(runs: Measurements) -> dict[str, Measurements]:
    """Runs by name without the repeat's number, in order; entries are the repeats."""
    out: dict[str, list[Any]] = {}
    for run in runs:
        out.setdefault(base_name(run[0]), []).append(run)
    return dict(out)


def sound(runs: Measurements) -> Measurements:
    """Runs that did not fail; of repeats that all did the first, named for what it is: no mean has a failed run."""
    out: list[Any] = []
    for base, repeats in grouped(runs).items():
        whole = [repeat for repeat in repeats if not repeat[2].outcome.cause]
        _, label, measured = repeats[0]
        out += whole or [(f"{base} (failed)", label, measured)]
    return out


def spreads(scenario: Scenario, runs: Measurements, verdicts: Iterable[ExpectationVerdict]) -> list[Spread]:
    """First the rules (what they compare: shares where they say `of`), then the metrics of figures and rules."""
    return [*_of_rules(runs, verdicts), *_of_metrics(scenario, runs)]


def _of_rules(runs: Measurements, verdicts: Iterable[ExpectationVerdict]) -> list[Spread]:
    seeds = {name: measured.outcome.seed for name, _, measured in runs}
    failed = {name for name, _, measured in runs if measured.outcome.cause}
    repeats = {name: len(ones) for name, ones in grouped(runs).items()}
    found: dict[tuple[str, str], Spread] = {}
    for verdict in verdicts:
        if verdict.run not in seeds:
            continue
        key = (verdict.rule, base_name(verdict.run))
        of = repeats[key[1]]
        one = found.setdefault(key, Spread(*key, [], verdict.unit, rule=True, held=of, of=of, paper=verdict.paper))
        one.held -= not verdict.passed
        one.seeds.append(seeds[verdict.run])
        one.failed += verdict.run in failed
        if verdict.value is not None and verdict.run not in failed:
            one.values.append(verdict.value)
    return list(found.values())


def _of_metrics(scenario: Scenario, runs: Measurements) -> list[Spread]:
    names = [figure.metric for figure in scenario.figures if figure.kind != "latency_cdf"]
    names += [rule.metric for rule in scenario.bounds]
    out = []
    for run, repeats in grouped(runs).items():
        works, ports = repeats[0][2].outcome.works(), repeats[0][2].plan.measure.queues
        for name in dict.fromkeys(names):
            metric = find(name, works, ports)
            if metric is None:
                continue
            whole = [measured for _, _, measured in repeats if not measured.outcome.cause]
            values = [(measured.value(name), measured.outcome.seed) for measured in whole]
            there = [(value, seed) for value, seed in values if value is not None]
            failed = len(repeats) - len(whole)
            if there or failed:
                numbers, seeds = [value for value, _ in there], [seed for _, seed in there]
                out.append(Spread(name, run, numbers, unit=metric.unit, seeds=seeds, failed=failed))
    return out
