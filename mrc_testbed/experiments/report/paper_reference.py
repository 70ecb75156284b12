"""The paper's results as numbers, and a run's distance to them in words.

Lines over time and single ratios are in the scenario files (`paper: series:`, `expect: paper:`). This file has the
curves of Figs 16 and 17 (mrc-protocol §11.3, read off the plots), which are too many for a scenario file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from math import log2
from statistics import fmean
from typing import Any

from mrc_testbed.console import units
from mrc_testbed.experiments.language.model import Scenario
from mrc_testbed.experiments.metrics.metric_values import Measurement

Points = list[tuple[float, float]]
SAME_SHARE = 0.02
"""Difference of shares below which they count as equal."""
FULL_CURVE = ("mrc", "0%")
"""(variant, loss) of the curve whose highest point is 1 in Figs 16 and 17."""

_E15 = """
mrc      0%   | 4:43 16:104 64:183 256:272 1024:378 4096:381 16384:376
roce-1   0%   | 64:179 128:126 256:158 1024:200 16384:223
roce-16  0%   | 256:268 1024:302 2048:352 4096:366 16384:362
mrc      0.1% | 16:32 64:82 256:130 512:195 1024:220 2048:317 8192:351 16384:340
mrc      1%   | 64:45 256:76 1024:106 2048:147 16384:151
roce-1   0.1% | 256:35 1024:84 4096:155 16384:193
roce-16  0.1% | 1024:48 16384:214
roce-1   1%   | 4:32 16384:32
roce-16  1%   | 4:32 16384:32
"""
_E16 = """
mrc      0%   | 2:150 4:224 16:335 64:387 128:400 256:378 1024:363 16384:361
roce-1   0%   | 16:304 64:331 256:354 1024:328
roce-16  0%   | 128:334 512:294 16384:296
mrc      0.1% | 2:50 16:182 32:229 128:270 1024:300 16384:331
mrc      1%   | 2:33 16:140 32:175 1024:213 16384:234
roce-1   0.1% | 16:24 64:67 256:150 1024:240 4096:312 16384:323
roce-16  0.1% | 256:129 1024:195 16384:297
roce-1   1%   | 256:31 1024:48 4096:97 16384:126
roce-16  1%   | 256:31 1024:48 4096:97 16384:126
"""
"""Lines of variant, loss | MB:Gb/s (§11.3).

The table has one curve for RoCE at 1 %, whatever the number of QPs; for the ring it states only a bound of 32.
"""


def _table(text: str) -> dict[tuple[str, str], Points]:
    out = {}
    for line in text.strip().splitlines():
        head, _, points = line.partition("|")
        variant, loss = head.split()
        pairs = (point.split(":") for point in points.split())
        out[variant, loss] = [(float(size) * 2**20, float(rate)) for size, rate in pairs]
    top = max(rate for _, rate in out[FULL_CURVE])
    return {key: [(size, rate / top) for size, rate in points] for key, points in out.items()}


CURVES = {"E15": _table(_E15), "E16": _table(_E16)}
"""Experiment -> (variant, loss) -> (size in bytes, share of MRC's best rate without loss)."""


def curve_of(scenario: Scenario, label: dict[str, Any]) -> Points:
    """Return the paper's curve for a line of a size_curve; empty if the paper has no such curve."""
    if scenario.paper is None:
        return []
    curves = CURVES.get(scenario.paper.id)
    if curves is None:
        series = list(scenario.paper.series.values())
        return series[0] if len(series) == 1 else []
    points = curves.get((str(label.get("variant")), _percent(label.get("loss"))), [])
    return [(size / scenario.paper.size_divisor, share) for size, share in points]


def _percent(value: Any) -> str:
    try:
        return f"{100 * units.share(value):g}%"
    except units.UnitError:
        return str(value)


def lines_of(scenario: Scenario, runs: Sequence[str]) -> list[tuple[str, Points, list[str]]]:
    """Return the paper's lines over time, each with the runs to compare: (`paper (b)`, points, [`b`]).

    A line belongs to the run whose name shares the most words with the line's; a line called `paper` to every run.
    """
    out = []
    for label, points in (scenario.paper.series if scenario.paper else {}).items():
        words = _words(label) - {"paper"}
        best_score = max((len(words & _words(run)) for run in runs), default=0)
        own_runs = [run for run in runs if not words or (best_score and len(words & _words(run)) == best_score)]
        out.append((label, points, own_runs))
    return out


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+|\d+", text.lower()))


def value_at(points: Points, x: float) -> float:
    """Return the value of a line at `x`, interpolated; beyond the ends the first or last value."""
    xs = [abscissa for abscissa, _ in points]
    if x <= xs[0] or len(points) == 1:
        return points[0][1]
    if x >= xs[-1]:
        return points[-1][1]
    next_index = bisect_right(xs, x)
    (x0, y0), (x1, y1) = points[next_index - 1], points[next_index]
    return y1 if x1 == x0 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)


# ---- in words -------------------------------------------------------------------------------------------------


def ratio_distance(value: float | None, paper_value: float | None) -> str:
    """Return the distance to the paper's number in words: `12 % less than in the paper`."""
    if paper_value is None:
        return ""
    if value is None:
        return "not measured here"
    if paper_value == 0:
        return "as in the paper" if value == 0 else f"the paper has 0, here it is {value:.3g}"
    share = (value - paper_value) / abs(paper_value)
    if abs(share) <= SAME_SHARE:
        return f"as in the paper, within {100 * SAME_SHARE:.0f} %"
    if abs(share) >= 1:
        return f"{value / paper_value:.1f} times what the paper has"
    return f"{100 * abs(share):.0f} % {'more' if share > 0 else 'less'} than in the paper"


def line_distance(points: Sequence[tuple[float, float]], paper_points: Points) -> str | None:
    """Return the distance of a line over time to the paper's; points are (seconds, share)."""
    gaps = [
        (abs(y - value_at(paper_points, x)), x)
        for x, y in points
        if paper_points[0][0] <= x <= paper_points[-1][0] and x > 0.5
    ]
    if not gaps:
        return None
    mean, (worst_gap, seconds) = fmean(gap for gap, _ in gaps), max(gaps)
    worst_text = f"{100 * worst_gap:.0f} at most (at {units.show_seconds(seconds)})"
    return f"{100 * mean:.1f} points from the paper's line on average, {worst_text}"


def curve_distance(points: Points, paper_points: Points) -> str | None:
    """Return the distance of a curve to the paper's over their common sizes; points are (bytes, share)."""
    paper_points = [(log2(x), y) for x, y in paper_points]
    common_points = [
        (x, y) for x, y in points if paper_points and paper_points[0][0] - 0.01 <= log2(x) <= paper_points[-1][0] + 0.01
    ]
    if not common_points:
        return None
    gaps = [y - value_at(paper_points, log2(x)) for x, y in common_points]
    mean, (x, y) = fmean(gaps), max(common_points)
    way = "above" if mean > 0 else "below"
    last = f"{y:.2f} here and {value_at(paper_points, log2(x)):.2f} there at the largest size both have"
    return f"{100 * abs(mean):.0f} points {way} the paper's on average; {last}"


def order_text(local_values: dict[str, float], paper_values: dict[str, float]) -> str | None:
    """Return whether the curves lie in the paper's order at one size, in words; None for fewer than two."""
    names = [name for name in local_values if name in paper_values]
    if len(names) < 2:
        return None
    local_order, paper_order = (
        sorted(names, key=lambda name: -values[name]) for values in (local_values, paper_values)
    )
    if local_order == paper_order:
        return f"in the paper's order: {' > '.join(local_order)}"
    return f"here {' > '.join(local_order)}, in the paper {' > '.join(paper_order)}"


def fall_below(
    measurement: Measurement, points: Sequence[tuple[float, float]], share: float
) -> tuple[float, float] | None:
    """Return (deepest share, seconds below `share`) after the first fault; None without a fault."""
    first_fault_s, times = measurement.first_fault_s, measurement.outcome.series.times_s
    widths = {(low + high) / 2: high - low for low, high in zip([0.0, *times[:-1]], times, strict=True)}
    later = [(x, y) for x, y in points if first_fault_s is not None and x > first_fault_s]
    if not later:
        return None
    return min(y for _, y in later), sum(widths[x] for x, y in later if y < share)
