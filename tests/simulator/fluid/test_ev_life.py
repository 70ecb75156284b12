"""EVs of one QP over time, against times made by hand, and against the engine's own EvProfile."""

from collections import deque
from random import Random

import pytest

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.paths.ev import EvProfile
from mrc_testbed.hosts.engine.paths.ev_state import EvSignal, EvState
from mrc_testbed.simulator.fluid.ev_life import (
    EMPTY,
    RETIRED,
    RETURNED,
    PlaneEvs,
    QpLife,
    Timing,
    covered,
    inside,
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
EVER = float("inf")


class Steady(Random):
    """Dice that always give the middle."""

    def random(self) -> float:
        return 0.5


def life_of(*planes: PlaneEvs, others: int = 12, members: int = 16, end_s: float = 10.0) -> QpLife:
    """Return a QP whose other planes have so many EVs in rotation, lived through."""
    life = QpLife(TIMING, list(planes), 4, others, members, Steady())
    life.run(0.0, end_s)
    return life


def plane(dead: dict, *, slots: int = 3, backups: int = 1, down: list | None = None, number: int = 0) -> PlaneEvs:
    return PlaneEvs(
        number, list(range(slots)), deque(range(slots, slots + backups)), dead, slots + backups, list(down or ())
    )


def told(life: QpLife) -> list[tuple[float, int, int, int, int]]:
    return [(round(change.at, 6), change.ev, change.kind, change.slot, change.by) for change in life.changes]


def test_dead_path__ev_retires_and_a_backup_has_its_slot():
    life = life_of(plane({1: [(1.0, EVER)]}))
    assert told(life) == [(1.04, 1, RETIRED, 1, 3)]
    assert [(loss.start, round(loss.stop, 6), round(loss.share, 6)) for loss in life.losses] == [
        (1.0, 1.04, round(1 / 12, 6))
    ]


def test_dead_backup__is_retired_after_it():
    life = life_of(plane({1: [(1.0, EVER)], 3: [(0.0, EVER)]}))
    assert told(life) == [(1.04, 1, RETIRED, 1, 3), (1.08, 3, RETIRED, 1, EMPTY)]


def test_dead_backup__costs_nothing_until_it_is_needed():
    life = life_of(plane({3: [(0.0, EVER)]}))
    assert life.changes == [] and life.losses == []


def test_return__takes_three_probes_in_a_row_and_joins_the_backups():
    """Down for half a second from 1 s on: probes leave 0.2 s apart.

    Those of 1.64, 1.84 and 2.04 s are answered.
    """
    life = life_of(plane({1: [(1.0, 1.5)]}))
    assert told(life) == [(1.04, 1, RETIRED, 1, 3), (2.05, 1, RETURNED, EMPTY, EMPTY)]
    assert life.probes == 5


def test_return__takes_the_empty_slot():
    life = life_of(plane({1: [(1.0, 1.5)]}, backups=0))
    assert told(life)[-1] == (2.05, 1, RETURNED, 1, EMPTY)


def test_return__waits_twice_as_long_after_the_second_fault():
    life = life_of(plane({1: [(1.0, 1.5), (3.0, 3.5)]}, backups=0))
    assert told(life)[2:] == [(3.04, 1, RETIRED, 1, EMPTY), (4.65, 1, RETURNED, 1, EMPTY)]  # six probes, not three


def test_return__a_flap_between_probes_starts_the_count_again():
    life = life_of(plane({1: [(1.0, 1.5), (1.7, 2.0)]}, backups=0))
    assert told(life)[-1][:3] == (2.45, 1, RETURNED)


def test_flap__between_two_turns_is_not_seen():
    life = QpLife(TIMING, [plane({1: [(1.0, 1.001)]})], 4, 12, 16, Steady(), turn_s=0.01)
    life.run(0.0, 5.0)
    assert life.changes == [] and life.losses == []


def test_floor__keeps_the_last_evs_though_they_lose():
    """No other EV is in rotation: a quarter of the profile stays, whatever it loses."""
    life = life_of(plane({ev: [(1.0, 2.0)] for ev in range(4)}), others=0, members=0)
    kept = 3 - sum(change.by == EMPTY for change in life.changes if change.kind == RETIRED and change.at < 2)
    assert kept == 1
    assert max(loss.stop for loss in life.losses) == 2.0


def test_port_down__nothing_is_lost_or_retired_where_both_know():
    life = life_of(plane({1: [(1.0, 2.0)]}, down=[(0.5, 2.5)]))
    assert life.changes == [] and life.losses == []


@pytest.mark.parametrize("seed", range(20))
def test_rotation_and_backups__as_in_the_engine(seed):
    """Equal retirements and returns leave the same EVs in rotation, in reserve and bad."""
    dice = Random(seed)
    config = Config.of(max_active=12, probe_ok_count=1)
    dead = {}
    for ev in range(8):
        if dice.random() < 0.7:
            start = dice.uniform(0, 5)
            dead[ev] = [(start, start + dice.uniform(0.1, 3))]
    timing = Timing(0.04, 0.006, 0.2, 0.1, 1, 64, 60.0, 0.01)
    one = plane(dead, slots=6, backups=2)
    life = QpLife(timing, [one], 1, 0, 0, Random(seed))
    life.run(0.0, 20.0)
    profile = EvProfile([(ev, 0) for ev in range(8)], config, Random(seed))
    order = [ev.value for ev in profile._planes[0].order] + [ev.value for ev in profile._planes[0].backups]
    for change in sorted(life.changes, key=lambda one: one.at):
        ev = profile.find(order[change.ev])
        if change.kind == RETIRED:
            profile.signal(ev, EvSignal.LOST, change.at)
        else:
            ev.streak = ev.needed_streak
            profile.signal(ev, EvSignal.PROBE_CLEAN, change.at)
    ours = sorted(ev for ev in one.slots if ev != EMPTY)
    assert sorted(order.index(ev.value) for ev in profile if ev.active) == ours
    bad = {order.index(ev.value) for ev in profile if ev.state is EvState.ASSUMED_BAD}
    assert bad == set(range(8)) - set(ours) - set(one.backups)


def test_intervals():
    assert union([(1, 2)], [(1.5, 3), (5, 6)]) == [(1, 3), (5, 6)]
    assert without([(2, 3)], 1, 4) == [(1, 2), (3, 4)]
    assert without([], 1, 4) == [(1, 4)]
    assert inside([(1, 2)], 1) and not inside([(1, 2)], 2)
    assert covered([(1, 4)], 2, 3) and not covered([(1, 2), (2, 4)], 1, 3)
