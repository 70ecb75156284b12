"""Times of a job's iterations before the first fault and after it, which `slowed.NAME` compares.

span = before_faults(None, first_fault_s=2.0)
job_times(iterations, span, ends_s=8.0, planned_count=100)          # (0.21, 0.24, 0.31)
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from mrc_testbed.experiments.language.model import Span as Baseline

Span = tuple[float, float]
"""Start and stop, seconds from the start of the workload."""


def before_faults(baseline: Baseline | None, first_fault_s: float | None) -> Span | None:
    """Return the span that jobs are compared with: `baseline`, or all before the first fault, or None."""
    if baseline is not None:
        return baseline.start, baseline.stop
    return None if first_fault_s is None else (0.0, first_fault_s)


def job_times(
    iterations: Sequence[Span], reference: Span, ends_s: float, planned_count: int
) -> tuple[float, float, float] | None:
    """Return the median time of iterations in `reference`, and median and maximum of those that end later.

    An iteration still open when the run ends (a job has `planned_count`) counts as long as it has lasted: for the
    maximum, and for the median where no other ended. None when one of the two sides is empty.
    """
    start, stop = reference
    usual = [stop_s - start_s for start_s, stop_s in iterations if start_s >= start and stop_s <= stop]
    later_s = [stop_s - start_s for start_s, stop_s in iterations if stop_s > stop]
    last = max((stop_s for _, stop_s in iterations), default=start)
    open_s = [ends_s - last] if len(iterations) < planned_count and ends_s > max(last, stop) else []
    if not usual or not (later_s or open_s):
        return None
    return median(usual), median(later_s or open_s), max(later_s + open_s)
