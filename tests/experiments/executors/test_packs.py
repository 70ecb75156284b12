"""Runs in tasks: each in one, tasks long enough, no more of them than there may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.experiments.executors.packs import packs, side_by_side

costs = st.lists(st.floats(0.001, 200.0), min_size=1, max_size=80)


@pytest.mark.parametrize(
    ("given_s", "tasks"),
    [
        ([0.3] * 1000, 5),
        ([1.0] * 10, 1),  # less than a task's worth is one
        ([100.0, 70.0, 90.0], 3),
        ([100.0, 1.0, 1.0], 1),  # what is left over goes with others
        ([], 0),
    ],
)
def test_packs__are_as_many_as_there_is_work_for(given_s, tasks):
    assert len(packs(given_s, least_s=60.0)) == tasks


@given(costs, st.floats(0.1, 100.0), st.integers(1, 20))
def test_packs__hold_each_run_once_and_are_long_enough(run_costs, least_s, tasks_max):
    run_packs = packs(run_costs, least_s, tasks_max)
    assert sorted(number for pack in run_packs for number in pack) == list(range(len(run_costs)))
    assert len(run_packs) <= tasks_max + sum(cost >= sum(run_costs) / tasks_max for cost in run_costs)
    if len(run_packs) > 1:
        assert all(sum(run_costs[number] for number in pack) >= least_s * 0.999 for pack in run_packs)


@given(costs, st.integers(1, 8))
def test_side_by_side__shares_the_work(run_costs, count):
    run_packs = side_by_side(run_costs, count)
    assert sorted(number for pack in run_packs for number in pack) == list(range(len(run_costs)))
    loads = [sum(run_costs[number] for number in pack) for pack in run_packs]
    assert len(run_packs) <= count and max(loads) - min(loads) <= max(run_costs) + 1e-9
