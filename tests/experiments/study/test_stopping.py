"""The number of seeds of a point: by its first seeds alone, in whatever order results arrive."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from mrc_testbed.experiments.metrics.intervals import t_interval
from mrc_testbed.experiments.study.model import Seeds, StudyMetric
from mrc_testbed.experiments.study.plan import Bound, MetricGoal, Point
from mrc_testbed.experiments.study.stopping import PointProgress, SeedValues

NARROW = MetricGoal(StudyMetric(metric="time"), "s", Bound(0.05, is_share=True))
VALUES = [1.0 + 0.3 * Random(9).gauss(0, 1) * (-1) ** n / (n + 1) for n in range(40)]


def point(*goals: MetricGoal, seeds_min: int = 4, seeds_max: int = 20, step: int | None = 3) -> PointProgress:
    seeds = Seeds(min=seeds_min, max=seeds_max, step=step)
    return PointProgress(SimpleNamespace(study=SimpleNamespace(seeds=seeds), goals=list(goals)), Point(0, {}))


def carried_out(progress: PointProgress, order: Random | None, values: list[float | None]) -> tuple[int, list[int]]:
    """Seeds it was decided with, and those that were made, in their order."""
    made_seeds: list[int] = []
    while not progress.decide():
        missing_seeds = progress.missing_seeds()
        if order:
            order.shuffle(missing_seeds)
        for seed in missing_seeds:
            made_seeds.append(seed)
            progress.take(seed, SeedValues({"time": values[seed]}))
            progress.decide()
    return progress.seeds_needed, made_seeds


def test_point__stops_at_the_first_look_that_is_narrow():
    seed_count, made_seeds = carried_out(point(NARROW), None, VALUES)
    by_hand = next(
        n
        for n in range(4, 20, 3)
        if t_interval(VALUES[:n], 0.95).half_width <= 0.05 * t_interval(VALUES[:n], 0.95).estimate
    )
    assert seed_count == by_hand and made_seeds == list(range(seed_count)) and 4 < seed_count < 20


@pytest.mark.parametrize("seed", range(10))
def test_point__is_decided_alike_in_every_order_without_a_run_too_many(seed):
    seed_count, made_seeds = carried_out(point(NARROW), Random(seed), VALUES)
    assert seed_count == carried_out(point(NARROW), None, VALUES)[0]
    assert sorted(made_seeds) == list(range(seed_count))


@pytest.mark.parametrize("known_seeds", [[], [0, 1, 2], [5], [0, 1, 2, 3, 6, 9], list(range(30))])
def test_point__goes_on_with_what_there_is_to_the_same_end(known_seeds):
    progress = point(NARROW)
    for seed in known_seeds:
        progress.take(seed, SeedValues({"time": VALUES[seed]}))
    seed_count, made_seeds = carried_out(progress, None, VALUES)
    assert seed_count == carried_out(point(NARROW), None, VALUES)[0]
    assert not set(made_seeds) & set(known_seeds)


def test_point__that_is_never_narrow_ends_at_the_most():
    wild = [(-1.0) ** n * 10 for n in range(40)]
    progress = point(NARROW)
    assert carried_out(progress, None, wild)[0] == 20 and not progress.is_narrow
    assert (
        carried_out(point(NARROW, seeds_max=21, step=6), None, wild)[0] == 21
    )  # the last step is as long as it may be


def test_point__without_a_bound_has_all_seeds():
    assert carried_out(point(MetricGoal(StudyMetric(metric="time"), "s", None)), None, VALUES)[0] == 20


def test_point__waits_for_all_of_its_bounds():
    loss_goal = MetricGoal(StudyMetric(metric="lost"), "packets", Bound(0.5, is_share=False))
    progress = point(NARROW, loss_goal)
    while not progress.decide():
        for seed in progress.missing_seeds():
            progress.take(seed, SeedValues({"time": 1.0, "lost": float(seed % 2)}))
    assert progress.seeds_needed > 4 and progress.is_narrow


def test_point__with_nothing_measured_is_not_narrow():
    progress = point(NARROW)
    assert carried_out(progress, None, [None] * 40)[0] == 20
    assert progress.interval(NARROW) is None and progress.is_within_bound(NARROW) is False


def test_interval__before_the_first_look_is_of_the_seeds_without_a_gap():
    progress = point(NARROW)
    for seed in (0, 1, 3):
        progress.take(seed, SeedValues({"time": VALUES[seed]}))
    assert progress.seeds_done == 2 and progress.interval(NARROW).count == 2
