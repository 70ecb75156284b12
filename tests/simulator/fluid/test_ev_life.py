"""EVs of one QP over time, against times made by hand, and against the engine's own EvProfile."""

from collections import deque
from random import Random

import pytest

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.paths.ev import EvProfile
from mrc_testbed.hosts.engine.paths.ev_state import EvSignal, EvState
from mrc_testbed.simulator.fluid.ev_life import (
    EMPTY,
    EV_RETIRED,
    EV_RETURNED,
    PlaneEvs,
    QpLife,
    Timing,
    covered,
    is_inside,
    union,
    without,
)

TIMING = Timing(
    retire_s=0.04,
    notice_s=0.006,
    probe_interval_s=0.2,
    probe_timeout_s=0.1,
    probe_ok_count=3,
    probe_ok_max=64,
    probe_forgive_s=60.0,
    rtt_s=0.01,
)
FOREVER = float("inf")


class Steady(Random):
    """Dice that always give the middle."""

    def random(self) -> float:
        return 0.5


def life_of(*planes: PlaneEvs, healthy_active: int = 12, healthy_members: int = 16, end_s: float = 10.0) -> QpLife:
    """Return a QP whose other planes have so many EVs in rotation, lived through."""
    life = QpLife(TIMING, list(planes), 4, healthy_active, healthy_members, Steady())
    life.run(0.0, end_s)
    return life


def plane(
    dead_intervals: dict, *, slots: int = 3, backups: int = 1, down_intervals: list | None = None, number: int = 0
) -> PlaneEvs:
    return PlaneEvs(
        number,
        list(range(slots)),
        deque(range(slots, slots + backups)),
        dead_intervals,
        slots + backups,
        list(down_intervals or ()),
    )


def changes_of(life: QpLife) -> list[tuple[float, int, int, int, int]]:
    return [
        (round(change.time_s, 6), change.ev, change.kind, change.slot, change.replacement) for change in life.changes
    ]


def test_dead_path__ev_retires_and_a_backup_has_its_slot():
    life = life_of(plane({1: [(1.0, FOREVER)]}))
    assert changes_of(life) == [(1.04, 1, EV_RETIRED, 1, 3)]
    assert [(loss.start, round(loss.stop, 6), round(loss.share, 6)) for loss in life.losses] == [
        (1.0, 1.04, round(1 / 12, 6))
    ]


def test_dead_backup__is_retired_after_it():
    life = life_of(plane({1: [(1.0, FOREVER)], 3: [(0.0, FOREVER)]}))
    assert changes_of(life) == [(1.04, 1, EV_RETIRED, 1, 3), (1.08, 3, EV_RETIRED, 1, EMPTY)]


def test_dead_backup__costs_nothing_until_it_is_needed():
    life = life_of(plane({3: [(0.0, FOREVER)]}))
    assert life.changes == [] and life.losses == []


def test_return__takes_three_probes_in_a_row_and_joins_the_backups():
    """Down for half a second from 1 s on: probes leave 0.2 s apart.

    Those of 1.64, 1.84 and 2.04 s are answered.
    """
    life = life_of(plane({1: [(1.0, 1.5)]}))
    assert changes_of(life) == [(1.04, 1, EV_RETIRED, 1, 3), (2.05, 1, EV_RETURNED, EMPTY, EMPTY)]
    assert life.probes == 5


def test_return__takes_the_empty_slot():
    life = life_of(plane({1: [(1.0, 1.5)]}, backups=0))
    assert changes_of(life)[-1] == (2.05, 1, EV_RETURNED, 1, EMPTY)


def test_return__waits_twice_as_long_after_the_second_fault():
    life = life_of(plane({1: [(1.0, 1.5), (3.0, 3.5)]}, backups=0))
    assert changes_of(life)[2:] == [
        (3.04, 1, EV_RETIRED, 1, EMPTY),
        (4.65, 1, EV_RETURNED, 1, EMPTY),
    ]  # six probes, not three


def test_return__a_flap_between_probes_starts_the_count_again():
    life = life_of(plane({1: [(1.0, 1.5), (1.7, 2.0)]}, backups=0))
    assert changes_of(life)[-1][:3] == (2.45, 1, EV_RETURNED)


def test_flap__between_two_turns_is_not_seen():
    life = QpLife(TIMING, [plane({1: [(1.0, 1.001)]})], 4, 12, 16, Steady(), turn_s=0.01)
    life.run(0.0, 5.0)
    assert life.changes == [] and life.losses == []


def test_floor__keeps_the_last_evs_though_they_lose():
    """No other EV is in rotation: a quarter of the profile stays, whatever it loses."""
    life = life_of(plane({ev: [(1.0, 2.0)] for ev in range(4)}), healthy_active=0, healthy_members=0)
    kept_count = 3 - sum(
        change.replacement == EMPTY for change in life.changes if change.kind == EV_RETIRED and change.time_s < 2
    )
    assert kept_count == 1
    assert max(loss.stop for loss in life.losses) == 2.0


def test_port_down__nothing_is_lost_or_retired_where_both_know():
    life = life_of(plane({1: [(1.0, 2.0)]}, down_intervals=[(0.5, 2.5)]))
    assert life.changes == [] and life.losses == []


@pytest.mark.parametrize("seed", range(20))
def test_rotation_and_backups__as_in_the_engine(seed):
    """Equal retirements and returns leave the same EVs in rotation, in reserve and bad."""
    dice = Random(seed)
    config = Config.of(max_active=12, probe_ok_count=1)
    dead_intervals = {}
    for ev in range(8):
        if dice.random() < 0.7:
            start = dice.uniform(0, 5)
            dead_intervals[ev] = [(start, start + dice.uniform(0.1, 3))]
    timing = Timing(0.04, 0.006, 0.2, 0.1, 1, 64, 60.0, 0.01)
    plane_evs = plane(dead_intervals, slots=6, backups=2)
    life = QpLife(timing, [plane_evs], 1, 0, 0, Random(seed))
    life.run(0.0, 20.0)
    profile = EvProfile([(ev, 0) for ev in range(8)], config, Random(seed))
    order = [ev.value for ev in profile._planes[0].order] + [ev.value for ev in profile._planes[0].backups]
    for change in sorted(life.changes, key=lambda change: change.time_s):
        ev = profile.find(order[change.ev])
        if change.kind == EV_RETIRED:
            profile.signal(ev, EvSignal.LOST, change.time_s)
        else:
            ev.streak = ev.needed_streak
            profile.signal(ev, EvSignal.PROBE_CLEAN, change.time_s)
    active_evs = sorted(ev for ev in plane_evs.slots if ev != EMPTY)
    assert sorted(order.index(ev.value) for ev in profile if ev.active) == active_evs
    bad_evs = {order.index(ev.value) for ev in profile if ev.state is EvState.ASSUMED_BAD}
    assert bad_evs == set(range(8)) - set(active_evs) - set(plane_evs.backups)


def test_intervals():
    assert union([(1, 2)], [(1.5, 3), (5, 6)]) == [(1, 3), (5, 6)]
    assert without([(2, 3)], 1, 4) == [(1, 2), (3, 4)]
    assert without([], 1, 4) == [(1, 4)]
    assert is_inside([(1, 2)], 1) and not is_inside([(1, 2)], 2)
    assert covered([(1, 4)], 2, 3) and not covered([(1, 2), (2, 4)], 1, 3)
