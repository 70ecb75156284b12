"""Intervals: Student's t beside printed tables, both methods beside how often they hold the truth."""

from __future__ import annotations

import random

import pytest

from mrc_testbed.experiments.metrics.intervals import bootstrap_interval, t_below, t_interval, t_quantile

TABLE = {  # as printed in any table of Student's t
    (0.975, 1): 12.7062, (0.975, 2): 4.3027, (0.975, 4): 2.7764, (0.975, 9): 2.2622, (0.975, 29): 2.0452,
    (0.95, 5): 2.0150, (0.995, 10): 3.1693, (0.995, 3): 5.8409, (0.975, 1000): 1.9623, (0.9, 7): 1.4149,
}  # fmt: skip


@pytest.mark.parametrize(("probability", "freedom"), TABLE)
def test_t_quantile__is_that_of_the_tables(probability, freedom):
    assert t_quantile(probability, freedom) == pytest.approx(TABLE[probability, freedom], abs=6e-5)


@pytest.mark.parametrize("freedom", [1, 2, 3, 8, 51])
def test_t_below__rises_from_a_half_to_one(freedom):
    shares = [t_below(t, freedom) for t in (0.0, 0.1, 1.0, 3.0, 1e6)]
    assert shares[0] == 0.5 and shares == sorted(shares) and shares[-1] == pytest.approx(1, abs=1e-5)


def test_t_interval__by_hand():
    interval = t_interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.95)
    assert (interval.estimate, interval.count) == (3.0, 5)
    assert interval.half_width == pytest.approx(2.7764 * 1.5811388 / 5**0.5, rel=1e-4)  # t(4) s / sqrt(n)


def test_intervals__of_equal_values_have_no_width():
    assert t_interval([7.0] * 4, 0.95).half_width == bootstrap_interval([7.0] * 4, 0.9, "median", "k").half_width == 0


@pytest.mark.parametrize(
    "interval_of", [lambda v: t_interval(v, 0.95), lambda v: bootstrap_interval(v, 0.95, "mean", "k")]
)
def test_intervals__of_one_value_are_refused(interval_of):
    with pytest.raises(ValueError, match="two values"):
        interval_of([1.0])


@pytest.mark.parametrize(
    ("interval", "least_share"),
    [
        (lambda values: t_interval(values, 0.9), 0.85),
        (lambda values: bootstrap_interval(values, 0.9, "mean", "k"), 0.80),  # known to be narrow for few values
        (lambda values: bootstrap_interval(values, 0.9, "median", "k"), 0.84),
    ],
    ids=["t", "mean", "median"],
)
def test_intervals__hold_the_truth_about_as_often_as_they_say(interval, least_share):
    dice = random.Random(5)
    held_count = 0
    for _ in range(200):
        bounds = interval([dice.gauss(3.0, 1.0) for _ in range(12)])
        held_count += bounds.low <= 3.0 <= bounds.high
    assert least_share <= held_count / 200 <= 0.96  # 0.9 give or take two standard deviations of 200 draws, 0.04


def test_bootstrap__is_the_same_each_time_and_another_for_another_key():
    values = [1.0, 5.0, 2.0, 8.0, 3.5]
    first = bootstrap_interval(values, 0.95, "mean", "mrc|time")
    assert first == bootstrap_interval(values, 0.95, "mean", "mrc|time")
    assert first != bootstrap_interval(values, 0.95, "mean", "mrc|lost")
