"""Costs of one failure, from runs of packets, and the pace after it, from the fluid model.

costs = sample_costs(packet_report.runs)         # {(transport, failure): [Cost, one a seed]}
paces = sample_paces(fluid_report.runs)          # {failure: [pace, one a seed]}
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.resolve.run_plan import RunPlan

FAILURE = "failure"
"""Sweep of the scenarios that names the failure."""
STEADY = 4
"""Iterations at the end of a sample that tell its pace after the failure, and fewest before it."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one sampled failure."""

    stall_s: float
    """Time that iterations took beyond those at the end of the sample."""
    pace: float
    """Time of an iteration at the end over that before the failure."""
    dies: bool
    """Whether a QP failed, and the job with it."""


def sample_cost(outcome: Outcome) -> Cost:
    """Return the cost of the failure in a run of one collective. Raises UsageError for too few iterations."""
    if any(failure.kind == "qp" for failure in outcome.failures):
        return Cost(0.0, 1.0, dies=True)
    fault_s = min(float(event["t"]) for event in outcome.events if event["what"] == "fault")
    ends = [iteration.finished_s for collective in outcome.collectives for iteration in collective.iterations]
    spans = [(end - start, end) for start, end in pairwise(ends)]
    spans_before = [span for span, end in spans if end <= fault_s]
    spans_after = [span for span, end in spans if end > fault_s]
    if len(spans_before) < STEADY or len(spans_after) < 2 * STEADY:
        raise UsageError(
            f"{outcome.name}: {len(spans_before)} iterations before the failure and {len(spans_after)} after it; "
            f"{STEADY} and {2 * STEADY} are needed: give the scenario more iterations, or the failure another time"
        )
    steady = median(spans_after[-STEADY:])
    return Cost(max(0.0, sum(spans_after) - len(spans_after) * steady), steady / median(spans_before), dies=False)


def sample_costs(runs: Iterable[tuple[RunPlan, Outcome]]) -> dict[tuple[str, str], list[Cost]]:
    """Return the costs of each seed by (transport, failure)."""
    out: dict[tuple[str, str], list[Cost]] = {}
    for run, outcome in runs:
        out.setdefault((str(run.label["variant"]), str(run.label[FAILURE])), []).append(sample_cost(outcome))
    return out


def sample_paces(runs: Iterable[tuple[RunPlan, Outcome]]) -> dict[str, list[float]]:
    """Return the slowest ring's time after each failure over that before, for each seed.

    A job over all NICs goes at the pace of its slowest ring. Raises UsageError for a run that is too short.
    """
    out: dict[str, list[float]] = {}
    for run, outcome in runs:
        if not outcome.jobs:
            raise UsageError(f"{run.name}: no ring ended an iteration before and after the failure: make it longer")
        before_s = max(max(jobs.before_s) for jobs in outcome.jobs)
        after_s = max(max(jobs.after_s) for jobs in outcome.jobs)
        out.setdefault(str(run.label[FAILURE]), []).append(after_s / before_s)
    return out
