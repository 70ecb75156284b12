"""How long the iterations of a job took before the first fault, and after it: what `slowed.NAME` compares.

span = before_faults(None, first_fault_s=2.0)
job_times(iterations, span, ends_s=8.0, wanted=100)          # (0.21, 0.24, 0.31)
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from mrc_testbed.experiments.language.model import Span as Baseline

Span = tuple[float, float]
"""From and to, seconds from the start of the workload."""


def before_faults(baseline: Baseline | None, first_fault_s: float | None) -> Span | None:
    """The time that jobs are compared with: `baseline`, or all before the first fault; None without either."""
    if baseline is not None:
        return baseline.start, baseline.stop
    return None if first_fault_s is None else (0.0, first_fault_s)


def job_times(
    iterations: Sequence[Span], before: Span, ends_s: float, wanted: int
) -> tuple[float, float, float] | None:
    """Median of the iterations that lie in `before`, median of those that end after it, and the longest of these.

    One that is not over when the run ends (a job has `wanted`) counts as long as it has lasted: for the longest, and
    for the median where no other ended. None when there is nothing on one of the two sides.
    """
    start, stop = before
    usual = [to - since for since, to in iterations if since >= start and to <= stop]
    after = [to - since for since, to in iterations if to > stop]
    last = max((to for _, to in iterations), default=start)
    unfinished = [ends_s - last] if len(iterations) < wanted and ends_s > max(last, stop) else []
    if not usual or not (after or unfinished):
        return None
    return median(usual), median(after or unfinished), max(after + unfinished)
