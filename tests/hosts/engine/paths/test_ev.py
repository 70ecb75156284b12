"""EV states as a table, and the rotation."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.paths.ev import Ev, EvProfile, Obstacle
from mrc_testbed.hosts.engine.paths.ev_state import EV_MOVES, EvSignal, EvState
from tests.hosts.engine.engine_pair import make_evs

ALL_PORTS = ~0


def profile(planes: int = 2, uplinks: int = 4, seed: int = 1, **keys: object) -> EvProfile:
    return EvProfile(make_evs(planes, uplinks), Config.of(**keys), Random(seed))


def planes_of(evs: list[Ev]) -> Counter[int]:
    return Counter(ev.plane for ev in evs)


# ---- the table --------------------------------------------------------------------------------------------

# §7, one row per event: the state after it for GOOD, SKIP, ASSUMED_BAD, DENIED. "-": cannot happen.
REFERENCE = {
    EvSignal.SACK_CLEAN: "GOOD SKIP ASSUMED_BAD DENIED",
    EvSignal.SACK_SKIP_ONCE: "SKIP SKIP ASSUMED_BAD DENIED",
    EvSignal.SACK_ALWAYS_SKIP: "ASSUMED_BAD ASSUMED_BAD ASSUMED_BAD DENIED",
    EvSignal.TRIMMED: "SKIP SKIP ASSUMED_BAD DENIED",
    EvSignal.REFUSED: "GOOD SKIP ASSUMED_BAD DENIED",
    EvSignal.LOST: "ASSUMED_BAD ASSUMED_BAD ASSUMED_BAD DENIED",
    EvSignal.TURN_PASSED: "GOOD GOOD - -",
    EvSignal.PROBE_CLEAN: "GOOD GOOD GOOD DENIED",
    EvSignal.PROBE_SKIP_ONCE: "SKIP SKIP SKIP DENIED",
    EvSignal.PROBE_FAILED: "ASSUMED_BAD ASSUMED_BAD ASSUMED_BAD DENIED",
    EvSignal.RECALLED: "- - GOOD -",
    EvSignal.DENY: "DENIED DENIED DENIED DENIED",
    EvSignal.ALLOW: "GOOD GOOD GOOD GOOD",
}
COLUMNS = (EvState.GOOD, EvState.SKIP, EvState.ASSUMED_BAD, EvState.DENIED)


@pytest.mark.parametrize("state, signal", list(product(EvState, EvSignal)))
def test_ev_moves__every_pair_is_in_the_table_or_raises(state: EvState, signal: EvSignal) -> None:
    expected_state = REFERENCE[signal].split()[COLUMNS.index(state)]
    if expected_state == "-":
        with pytest.raises(KeyError):
            EV_MOVES[state, signal]
    else:
        assert EV_MOVES[state, signal] is EvState[expected_state]


@pytest.mark.parametrize("state, signal", EV_MOVES)
def test_signal__does_what_the_table_says(state: EvState, signal: EvSignal) -> None:
    paths = profile(ev_min_active=0)
    ev = paths.choose(ALL_PORTS)
    assert ev is not None
    start = {
        EvState.SKIP: EvSignal.TRIMMED,
        EvState.ASSUMED_BAD: EvSignal.LOST,
        EvState.DENIED: EvSignal.DENY,
    }.get(state)
    if start is not None:
        paths.signal(ev, start, 0.0)
    assert ev.state is state
    move = paths.signal(ev, signal, 1.0)
    assert ev.state is EV_MOVES[state, signal]
    assert (move is None) == (EV_MOVES[state, signal] is state)


# ---- rotation ---------------------------------------------------------------------------------------------


def test_choose__one_ev_of_each_plane_in_turn() -> None:
    paths = profile(planes=4, uplinks=4)
    choices = [paths.choose(ALL_PORTS) for _ in range(4 * 3 * 5)]
    for i in range(0, len(choices), 4):
        assert planes_of(choices[i : i + 4]) == {0: 1, 1: 1, 2: 1, 3: 1}
    for i in range(0, len(choices), 12):
        assert len(set(choices[i : i + 12])) == 12, "a rotation uses each active EV once"


def test_choose__order_differs_by_seed_and_by_rotation() -> None:
    def rotation(paths: EvProfile) -> list[int]:
        return [paths.choose(ALL_PORTS).value for _ in range(12)]

    first_profile, second_profile = profile(4, 4, seed=1), profile(4, 4, seed=2)
    first = rotation(first_profile)
    assert first != rotation(second_profile)
    assert first != rotation(first_profile)
    assert rotation(profile(4, 4, seed=1)) == first


def test_choose__passes_over_ports_without_room() -> None:
    paths = profile(planes=4)
    assert {paths.choose(0b0100).plane for _ in range(10)} == {2}
    assert paths.choose(0) is None


def test_choose__avoids_the_ev_that_failed_unless_it_is_alone() -> None:
    paths = profile(planes=2, uplinks=1)
    ev = paths.choose(ALL_PORTS)
    assert all(paths.choose(ALL_PORTS, avoid=ev) is not ev for _ in range(6))
    lone_profile = profile(planes=1, uplinks=1)
    only = lone_profile.choose(ALL_PORTS)
    assert lone_profile.choose(ALL_PORTS, avoid=only) is only


def test_choose__skip_sits_out_one_turn() -> None:
    paths = profile(planes=1, uplinks=2, backup_per_plane=0)
    ev = paths.choose(ALL_PORTS)
    other_ev = next(e for e in paths if e is not ev)
    paths.signal(other_ev, EvSignal.TRIMMED, 0.0)
    assert paths.choose(ALL_PORTS) is ev, "the other one's turn, but it is skipped"
    assert other_ev.state is EvState.GOOD
    assert {paths.choose(ALL_PORTS) for _ in range(4)} == {ev, other_ev}


def test_choose__skip_for_the_rest_of_the_rotation() -> None:
    paths = profile(planes=1, uplinks=4, backup_per_plane=0, skip_mode="rotation")
    first = paths.choose(ALL_PORTS)
    victim = next(ev for ev in paths if ev is not first)
    paths.signal(victim, EvSignal.TRIMMED, 0.0)
    later_choices = [paths.choose(ALL_PORTS) for _ in range(2)]
    assert victim not in later_choices and victim.state is EvState.SKIP, "passed over, and still SKIP"
    assert victim in [paths.choose(ALL_PORTS) for _ in range(5)] and victim.state is EvState.GOOD
    for ev in paths:
        paths.signal(ev, EvSignal.TRIMMED, 1.0)
    assert paths.choose(ALL_PORTS) is not None, "all SKIP: one is used rather than none (§5.4)"


def test_choose__uses_skip_when_all_are() -> None:
    paths = profile(planes=1, uplinks=3, backup_per_plane=0)
    for ev in paths:
        paths.signal(ev, EvSignal.TRIMMED, 0.0)
    assert paths.choose(ALL_PORTS) is not None
    assert sum(ev.state is EvState.GOOD for ev in paths) == 1, "one SKIP ends with each packet"


# ---- replacement ------------------------------------------------------------------------------------------


def test_lost__a_backup_of_the_same_plane_takes_the_slot() -> None:
    paths = profile(planes=2, uplinks=4)
    assert paths.active_count == 6
    ev = paths.choose(ALL_PORTS)
    move = paths.signal(ev, EvSignal.LOST, 0.0)
    assert move is not None and move.substitute is not None
    assert move.substitute.plane == ev.plane and move.substitute.active and not ev.active
    assert paths.active_count == 6


def test_lost__without_backup_the_slot_stays_empty_and_the_plane_keeps_its_share() -> None:
    paths = profile(planes=2, uplinks=2)
    ev = next(iter(paths))
    move = paths.signal(ev, EvSignal.LOST, 0.0)
    assert move is not None and move.left_rotation and move.substitute is None
    choices = [paths.choose(ALL_PORTS) for _ in range(20)]
    assert ev not in choices
    assert planes_of(choices) == {0: 10, 1: 10}


def test_recovered__takes_an_empty_slot_else_becomes_a_backup() -> None:
    paths = profile(planes=1, uplinks=4, ev_min_active=1)  # 3 active, 1 backup
    first, second = [ev for ev in paths if ev.active][:2]
    paths.signal(first, EvSignal.LOST, 0.0)  # the backup takes over
    paths.signal(second, EvSignal.LOST, 0.0)  # nobody left
    assert paths.active_count == 2
    paths.signal(first, EvSignal.PROBE_CLEAN, 1.0)
    assert first.active and paths.active_count == 3
    paths.signal(second, EvSignal.PROBE_CLEAN, 1.0)
    assert not second.active and second.state is EvState.GOOD
    assert paths.active_count == 3


def test_floor__losses_leave_ev_min_active() -> None:
    paths = profile(planes=2, uplinks=2)  # 4 EVs, floor 1
    for ev in paths:
        paths.signal(ev, EvSignal.LOST, 0.0)
    active_evs = [ev for ev in paths if ev.active]
    assert len(active_evs) == paths.floor == 1 and active_evs[0].held_count == 1
    paths.signal(active_evs[0], EvSignal.DENY, 0.0)  # the controller's word is not held
    assert paths.active_count == 0 and paths.choose(ALL_PORTS) is None


def test_ports__a_plane_that_is_down_is_not_chosen_and_its_evs_keep_their_state() -> None:
    paths = profile(planes=3, uplinks=2)
    paths.set_ports(0b101, ALL_PORTS, now=1.0)
    assert planes_of([paths.choose(ALL_PORTS) for _ in range(10)]) == {0: 5, 2: 5}
    paths.set_ports(0b101, 0b110, now=2.0)
    assert planes_of([paths.choose(ALL_PORTS) for _ in range(10)]) == {2: 10}
    paths.set_ports(ALL_PORTS, ALL_PORTS, now=3.0)
    assert planes_of([paths.choose(ALL_PORTS) for _ in range(9)]) == {0: 3, 1: 3, 2: 3}
    assert all(ev.state is EvState.GOOD for ev in paths)
    assert paths.up_since == {0: 3.0, 1: 3.0, 2: 0.0}


def test_hold_down__a_repeat_offender_needs_twice_as_many_and_quiet_halves_it() -> None:
    paths = profile(planes=1, uplinks=4)
    ev = next(iter(paths))
    streaks = []
    for time in (0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 190.0, 1000.0):
        paths.signal(ev, EvSignal.LOST, time)
        streaks.append(ev.needed_streak)
        paths.signal(ev, EvSignal.PROBE_CLEAN, time + 1)
    # 130 s of quiet halve 128 twice; 810 s more often than there is to halve.
    assert streaks == [3, 6, 12, 24, 48, 64, 64, 32, 3]


def test_hold_down__a_ceiling_below_the_first_number_does_not_ease_the_way_back() -> None:
    paths = profile(planes=1, uplinks=4, probe_ok_count=3, probe_ok_max=1)
    ev = next(iter(paths))
    for time in (0.0, 10.0):
        paths.signal(ev, EvSignal.LOST, time)
        assert ev.needed_streak == 3
        paths.signal(ev, EvSignal.PROBE_CLEAN, time + 1)


def test_profile__refuses_duplicates_and_nothing() -> None:
    with pytest.raises(ValueError, match="twice"):
        EvProfile([(1, 0), (1, 1)], Config(), Random(1))
    with pytest.raises(ValueError, match="at least one"):
        EvProfile([], Config(), Random(1))


SIGNALS = [signal for signal in EvSignal if signal is not EvSignal.RECALLED]


@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(0, 19), st.sampled_from(SIGNALS)), max_size=60),
)
def test_profile__invariants_under_any_signals(
    planes: int, uplinks: int, seed: int, signals: list[tuple[int, EvSignal]]
) -> None:
    paths = profile(planes, uplinks, seed)
    evs = list(paths)
    denied = False
    for time, (index, signal) in enumerate(signals):
        ev = evs[index % len(evs)]
        if signal is EvSignal.TURN_PASSED:
            continue
        denied = denied or signal is EvSignal.DENY
        paths.signal(ev, signal, float(time))
        choice = paths.choose(ALL_PORTS)
        active = [e for e in evs if e.active]
        assert len(active) == paths.active_count
        assert all(e.state in (EvState.GOOD, EvState.SKIP) for e in active)
        assert denied or len(active) >= paths.floor
        assert choice in active if active else choice is None


# ---- ports, floor and the last resort ---------------------------------------------------------------------


def test_floor__counts_planes_that_are_up_alone() -> None:
    """EVs of a plane whose port is down carry nothing: they must not let losses take all the others."""
    paths = profile(planes=2, uplinks=4, backup_per_plane=0)
    assert (paths.floor, paths.usable_count, paths.active_count) == (2, 8, 8)
    paths.set_ports(0b10, ALL_PORTS, 1.0)
    assert (paths.floor, paths.usable_count, paths.active_count) == (1, 4, 8)
    for ev in paths.on_plane(1):
        paths.signal(ev, EvSignal.LOST, 1.0)
    assert paths.usable_count == 1 and paths.choose(ALL_PORTS) is not None


def test_least_bad__is_asked_for_when_ports_or_denials_took_the_rest() -> None:
    paths = profile(planes=2, uplinks=2, backup_per_plane=0)
    for ev in paths.on_plane(1):
        ev.sent, ev.lost = 100, 50 + ev.value % 2
        paths.signal(ev, EvSignal.LOST, 0.0)
    assert paths.least_bad() is None, "plane 0 works"
    paths.set_ports(0b10, ALL_PORTS, 1.0)
    first, second = paths.on_plane(1) if paths.on_plane(1)[0].lost == 50 else paths.on_plane(1)[::-1]
    assert paths.obstacle is Obstacle.PATHS and paths.least_bad() is first, "it lost fewer"
    second.streak = 1
    assert paths.least_bad() is second, "its probes are answered"
    paths.signal(second, EvSignal.RECALLED, 1.0)
    assert second.active and paths.obstacle is None and paths.least_bad() is None


def test_least_bad__never_without_a_floor_nor_a_denied_one() -> None:
    bare = profile(planes=1, uplinks=2, ev_min_active=0)
    for ev in bare:
        bare.signal(ev, EvSignal.LOST, 0.0)
    assert bare.usable_planes == 0 and bare.least_bad() is None and bare.obstacle is Obstacle.PATHS
    denied = profile(planes=1, uplinks=2)
    for ev in denied:
        denied.signal(ev, EvSignal.DENY, 0.0)
    assert denied.least_bad() is None and denied.obstacle is Obstacle.DENIED
    denied.signal(next(iter(denied)), EvSignal.ALLOW, 0.0)
    denied.set_ports(0, ALL_PORTS, 1.0)
    assert denied.obstacle is Obstacle.PORTS


def test_obstacle__a_plane_that_is_up_and_denied_is_no_port_that_is_down() -> None:
    """Such a QP with `all_ports_down` "wait" would have waited for a port, for ever, though one is up."""
    paths = profile(planes=2, uplinks=1)
    for ev in paths.on_plane(1):
        paths.signal(ev, EvSignal.DENY, 0.0)
    paths.set_ports(0b10, ALL_PORTS, 1.0)
    assert paths.obstacle is Obstacle.PATHS
    paths.set_ports(0, ALL_PORTS, 2.0)
    assert paths.obstacle is Obstacle.PORTS


def test_spares__one_good_backup_of_each_plane_that_is_up() -> None:
    paths = profile(planes=3, uplinks=4, backup_per_plane=2)
    paths.set_ports(0b011, ALL_PORTS, 1.0)
    spares = paths.spares()
    assert [ev.plane for ev in spares] == [0, 1] and not any(ev.active for ev in spares)


def test_skip_timer__does_not_end_what_came_after_the_skip() -> None:
    paths = profile(skip_mode="timer", skip_timer_s=0.01)
    ev = next(ev for ev in paths if ev.active)
    paths.signal(ev, EvSignal.TRIMMED, 0.0)
    paths.signal(ev, EvSignal.LOST, 0.005)
    paths.tick(0.02)
    assert ev.state is EvState.ASSUMED_BAD and not paths.skips


def test_withdraw__a_backup_that_is_skipped_takes_no_slot() -> None:
    paths = profile(planes=1, uplinks=8)
    backups = [ev for ev in paths if not ev.active]
    for ev in backups:
        paths.signal(ev, EvSignal.TRIMMED, 0.0)
    move = paths.signal(next(ev for ev in paths if ev.active), EvSignal.LOST, 0.0)
    assert len(backups) == 2 and move is not None and move.left_rotation and move.substitute is None
    assert not any(ev.active for ev in backups)


def test_observer__is_told_of_every_signal() -> None:
    moves: list[tuple[object, ...]] = []
    paths = EvProfile(make_evs(2, 2), Config(), Random(1), observer=lambda *move: moves.append(move))
    ev = paths.find(0x001)
    assert ev is not None and repr(ev) == "Ev(0x0001, plane 0, GOOD)" and set(paths.planes) == {0, 1}
    paths.signal(ev, EvSignal.SACK_CLEAN, 1.0)
    paths.signal(ev, EvSignal.DENY, 2.0)
    assert moves == [
        (ev, EvState.GOOD, EvSignal.SACK_CLEAN, EvState.GOOD, 1.0),
        (ev, EvState.GOOD, EvSignal.DENY, EvState.DENIED, 2.0),
    ]
