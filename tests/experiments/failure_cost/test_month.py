"""Drawn months against what theory expects of them."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import pytest

from mrc_testbed.experiments.failure_cost.month import Hazard, Terms, draw_month
from mrc_testbed.experiments.failure_cost.samples import Cost

MONTH_S = 30 * 86_400.0
TERMS = Terms(MONTH_S, restart_s=600.0, checkpoint_s=10_800.0, exposed_share=0.2)
DEATH, STALL, NO_COST = Cost(0.0, 1.0, dies=True), Cost(2.0, 1.0, dies=False), Cost(0.0, 1.0, dies=False)
SEEDS = 400


def hazard(
    expected_count: float, cost: Cost, pace: float = 1.0, lasts_s: float = 3600.0, *, swap: bool = False
) -> Hazard:
    return Hazard("link", expected_count, [cost], pace, lasts_s, evaded_by_swap=swap)


def near(values: list[float], expected_count: float) -> bool:
    """Return whether the mean is within 4 standard errors of the expected_count one."""
    return abs(fmean(values) - expected_count) < 4 * stdev(values) / math.sqrt(len(values))


def test_failures_come_as_often_as_the_rate_says():
    months = [draw_month([hazard(7.0, NO_COST)], TERMS, seed) for seed in range(SEEDS)]
    counts = [float(month.failures) for month in months]
    assert near(counts, 7.0)
    assert stdev(counts) ** 2 == pytest.approx(7.0, rel=0.3)  # Poisson: the variance is the mean
    assert all(month.lost_s == 0.0 and month.restarts == 0 for month in months)


def test_stalls_add_up():
    months = [draw_month([hazard(50.0, STALL)], TERMS, seed) for seed in range(SEEDS)]
    assert all(month.stalled_s == 2.0 * month.failures for month in months)


@pytest.mark.parametrize("expected_count", [0.5, 30.0, 3000.0])
def test_restarts__are_those_of_a_renewal_process(expected_count):
    months = [draw_month([hazard(expected_count, DEATH)], TERMS, seed) for seed in range(100)]
    # A restart of r seconds in which no failure counts: one each 1/rate + r seconds.
    renewals = MONTH_S / (MONTH_S / expected_count + TERMS.restart_s)
    assert fmean(month.restarts for month in months) == pytest.approx(renewals, rel=0.02, abs=0.3)


@pytest.mark.parametrize("expected_count", [10.0, 200.0])
def test_work_done_again__is_what_theory_says(expected_count):
    months = [draw_month([hazard(expected_count, DEATH)], TERMS, seed) for seed in range(SEEDS)]
    rate = expected_count / MONTH_S
    # Time since the last multiple of I at an exponential time: 1/rate - I / (e**(rate I) - 1).
    again_s = 1 / rate - TERMS.checkpoint_s / math.expm1(rate * TERMS.checkpoint_s)
    lost = [month.down_s for month in months]
    restarts = fmean(month.restarts for month in months)
    assert fmean(lost) == pytest.approx(restarts * (again_s + TERMS.restart_s), rel=0.05)


def test_a_job_that_never_gets_up_loses_the_month():
    month = draw_month([hazard(1e6, DEATH)], TERMS, 1)
    assert month.lost_s == pytest.approx(MONTH_S, rel=0.01) and month.lost_s <= MONTH_S


def test_slower_parts__count_once_and_the_slowest_counts():
    hazards = [hazard(2000.0, NO_COST, 2.0, MONTH_S), hazard(2000.0, NO_COST, 1.5, MONTH_S)]
    month = draw_month(hazards, TERMS, 1)
    # All the month at least one part of each kind is broken: a step takes 1 + 0.2 (2 - 1) of its time.
    assert month.slowed_s == pytest.approx(MONTH_S * (1 - 1 / 1.2), rel=0.01)
    assert draw_month(hazards[:1], TERMS, 1).slowed_s == pytest.approx(month.slowed_s, rel=1e-9)


def test_rare_slow_parts__lose_their_time_each():
    months = [draw_month([hazard(3.0, NO_COST, 1.5, 3600.0)], TERMS, seed) for seed in range(SEEDS)]
    assert fmean(month.slowed_s for month in months) == pytest.approx(3 * 3600 * (1 - 1 / 1.1), rel=0.1)


def test_swaps__end_the_slower_pace_at_the_next_checkpoint():
    terms = Terms(MONTH_S, 600.0, 10_800.0, 0.2, swaps=True)
    broken_ports = [hazard(4.0, NO_COST, 1.5, MONTH_S, swap=True)]
    month_without, month_with = draw_month(broken_ports, TERMS, 3), draw_month(broken_ports, terms, 3)
    assert month_without.swaps == 0 and month_with.swaps == month_without.failures > 0
    assert month_with.down_s == 600.0 * month_with.swaps
    assert month_with.slowed_s <= month_with.swaps * terms.checkpoint_s * (1 - 1 / 1.1) < month_without.slowed_s
