"""The cost of a failure, from the iterations of a run."""

from __future__ import annotations

from itertools import accumulate

import pytest

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.backend.outcome import CollectiveOutcome, Failure, Iteration, Outcome
from mrc_testbed.experiments.failure_cost.samples import sample_cost


def outcome_of(spans: list[float], fault_s: float, *, dies: bool = False) -> Outcome:
    ends = list(accumulate(spans))
    iterations = [Iteration(n, end - span, end, "h0", 0) for n, (span, end) in enumerate(zip(spans, ends, strict=True))]
    outcome = Outcome("mine", "run", {}, "virtual", 1, 0, "srv6", 1.0)
    outcome.collectives.append(CollectiveOutcome("job", "all_reduce", ["h0"], 8, 1.0, 8, iterations))
    outcome.events.append({"t": fault_s, "what": "fault"})
    if dies:
        outcome.failures.append(Failure("qp", "job", fault_s, "a QP died"))
    return outcome


def test_a_stall__is_the_time_beyond_the_pace_afterwards():
    cost = sample_cost(outcome_of([1.0] * 6 + [4.0, 2.5] + [1.5] * 8, fault_s=6.5))
    assert cost.stall_s == pytest.approx(2.5 + 1.0)
    assert cost.pace == pytest.approx(1.5)
    assert not cost.dies


def test_nothing_lost__costs_nothing():
    cost = sample_cost(outcome_of([1.0] * 16, fault_s=6.5))
    assert (cost.stall_s, cost.pace, cost.dies) == (0.0, 1.0, False)


def test_a_dead_qp__kills_the_job():
    assert sample_cost(outcome_of([1.0] * 6, fault_s=6.5, dies=True)).dies


def test_too_few_iterations__are_refused():
    with pytest.raises(UsageError, match="3 iterations before the failure and 2 after it"):
        sample_cost(outcome_of([1.0] * 6, fault_s=4.5))
