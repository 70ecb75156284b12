"""Health of a target by the fates of its probes: down, lossy, slow."""

import random

import pytest

from mrc_testbed.hosts.clustermapper.health import Rules, TargetHealth, TargetState
from tests.hosts.clustermapper.probe_fates import play_fates


def test_health__three_in_a_row_are_down_and_since_the_first():
    health = TargetHealth(Rules())
    assert play_fates(health, ".....", "xx", "...", "xxx") == [TargetState.OK, TargetState.DOWN]
    assert health.began_at == pytest.approx(1.0)


def test_health__an_outage_leaves_no_lossy_link_behind():
    health = TargetHealth(Rules())
    assert play_fates(health, "." * 30, "x" * 7, "." * 200) == [TargetState.OK, TargetState.DOWN, TargetState.OK]
    assert health.began_at == pytest.approx(3.7)
    assert health.loss == 0


def test_health__loss_in_both_windows_is_lossy_and_clears_after_five_windows():
    health = TargetHealth(Rules())
    assert play_fates(health, "." * 40, "x", "." * 20, "x") == [TargetState.OK, TargetState.LOSSY]
    assert health.began_at == pytest.approx(4.0)
    assert play_fates(health, "." * 99, start=62) == [TargetState.LOSSY]
    assert play_fates(health, ".", start=161) == [TargetState.OK]


def test_health__one_burst_is_no_lossy_link():
    health = TargetHealth(Rules())
    assert play_fates(health, "." * 40, "xx", "." * 60) == [TargetState.OK]


def test_health__half_lost_is_lossy_not_down():
    health = TargetHealth(Rules())
    rng = random.Random(3)
    play_fates(health, "." * 40, "".join(rng.choice(".x") for _ in range(300)))
    assert health.state is TargetState.LOSSY
    assert play_fates(health, "x" * 10, start=340)[-1] is TargetState.DOWN


def test_health__late_is_not_lost():
    health = TargetHealth(Rules())
    play_fates(health, ".....xxxx")
    assert health.state is TargetState.DOWN and health.lost == 4
    assert all(health.came_late(sequence, 0.4) for sequence in (5, 6, 7, 8))
    assert not health.came_late(8, 0.4) and not health.came_late(4, 0.4) and not health.came_late(100, 0.4)
    assert (health.state, health.lost, health.late_count, health.loss) == (TargetState.OK, 0, 4, 0)
