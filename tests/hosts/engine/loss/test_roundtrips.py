"""Round trips, timers and the retry budget by themselves (mrc-protocol §5.8, §5.11).

Every time is an argument.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.loss.roundtrips import LATE_HALVES_S, LATE_MARGIN, REST_PART, RetryBudget, RoundTrips
from mrc_testbed.hosts.engine.paths.ev import Ev

RTT_S = 0.010
CONFIG = Config.of(timeout=14)
T = CONFIG.loss.base_timeout_s
"""16.8 ms: less than four round trips."""


def steady_round_trips(config: Config = CONFIG, samples: int = 200) -> RoundTrips:
    """Return round trips with `samples` of RTT_S, in the first 2 s: no deviation is left."""
    rtt = RoundTrips(config)
    for n in range(samples):
        rtt.on_sample(RTT_S, n * RTT_S)
    return rtt


def test_srtt__follows_with_gain_an_eighth_the_deviation_with_a_quarter() -> None:
    rtt = RoundTrips(CONFIG)
    assert rtt.srtt_s is None
    rtt.on_sample(0.008, 1.0)
    assert (rtt.srtt_s, rtt.deviation_s) == (0.008, 0.004)
    rtt.on_sample(0.016, 1.1)
    assert (rtt.srtt_s, rtt.deviation_s) == (pytest.approx(0.009), pytest.approx(0.005))


def test_timer__is_t_and_backs_off_while_nothing_is_known() -> None:
    rtt, config = RoundTrips(CONFIG), CONFIG
    assert [rtt.timer_s(n, 0.0) for n in range(9)] == [config.loss.retry_interval_s(n) for n in range(9)]
    last = config.loss.linear_cnt + config.loss.exp_cnt
    assert rtt.timer_s(last + 100, 0.0) == rtt.timer_s(last, 0.0) > rtt.timer_s(0, 0.0) == T


def test_timer__is_never_shorter_than_four_round_trips_and_four_deviations() -> None:
    rtt = RoundTrips(CONFIG)
    rtt.on_sample(RTT_S, 0.0)
    assert rtt.timer_s(0, 0.0) == pytest.approx(4 * RTT_S + 4 * RTT_S / 2)
    assert steady_round_trips().timer_s(0, 2.0) == pytest.approx(4 * RTT_S)
    assert steady_round_trips().timer_s(8, 2.0) == CONFIG.loss.retry_interval_s(8), "longer anyway"
    assert steady_round_trips(Config.of(timeout=14, timeout_rtts=0)).timer_s(0, 2.0) == T
    assert steady_round_trips(Config.of(timeout=14, timeout_ceiling_s=0.03)).timer_s(0, 2.0) == 0.03


def path(*rtts_s: float) -> Ev:
    """Return a path on which round trips took that long."""
    ev = Ev(1, 0, 3)
    for rtt_s in rtts_s:
        ev.on_sample(rtt_s)
    return ev


def test_timer__goes_by_the_path_where_its_round_trips_are_known() -> None:
    """A path that takes seconds slows down no timer of a path that takes milliseconds, nor the reverse."""
    round_trips = RoundTrips(CONFIG)
    for n in range(200):
        round_trips.on_sample(0.002 if n % 2 else 0.5, n * 0.01)
    assert round_trips.timer_s(0, 2.0) > 1.0
    assert round_trips.timer_s(0, 2.0, path()) > 1.0, "not known"
    assert round_trips.timer_s(0, 2.0, path(*[0.002] * 50)) == T
    assert round_trips.timer_s(0, 2.0, path(*[0.5] * 50)) == pytest.approx(2.0, rel=0.01)


def test_timer__leaves_a_slow_path_one_and_a_half_of_its_round_trips() -> None:
    rtt = steady_round_trips(Config.of(timeout=14, timeout_rtts=0))
    assert rtt.timer_s(0, 2.0, path(0.2)) == pytest.approx(0.3)
    assert rtt.timer_s(0, 2.0, path(100.0)) == CONFIG.loss.timeout_ceiling_s


def test_known__is_what_late_answers_and_the_path_took() -> None:
    rtt = steady_round_trips()
    assert rtt.known_s(5.0, path()) == 0.0
    assert rtt.known_s(5.0, path(0.2)) == pytest.approx(0.3)
    rtt.on_late_answer(0.4, 5.0)
    assert rtt.known_s(5.0, path(0.2)) == pytest.approx(LATE_MARGIN * 0.4)
    assert rtt.known_s(5.0 + LATE_HALVES_S, path()) == pytest.approx(LATE_MARGIN * 0.2)


def test_ordinary__is_an_answer_within_what_reordering_explains() -> None:
    unknown = RoundTrips(CONFIG)
    assert unknown.ordinary(CONFIG.loss.base_timeout_s, path()) and not unknown.ordinary(9.0, path()), (
        "T is all that is known"
    )
    rtt = steady_round_trips()
    assert rtt.ordinary(1.5 * RTT_S, path(RTT_S)) and not rtt.ordinary(1.6 * RTT_S, path(RTT_S))
    assert rtt.ordinary(0.2, path(0.15)), "a slow path"


def test_late_answer__keeps_the_timer_above_its_round_trip_for_a_while() -> None:
    rtt, now, late_rtt_s = steady_round_trips(), 5.0, 0.33
    rtt.on_late_answer(late_rtt_s, now)
    assert rtt.timer_s(0, now) >= LATE_MARGIN * late_rtt_s * 0.99
    for n in range(1, 201):
        rtt.on_sample(RTT_S, now + LATE_HALVES_S * n / 200)
    later = now + LATE_HALVES_S
    assert rtt.timer_s(0, later) == pytest.approx(max(4 * RTT_S, LATE_MARGIN * late_rtt_s / 2), rel=0.01)
    for n in range(200):
        rtt.on_sample(RTT_S, now + 8 * LATE_HALVES_S + n * RTT_S)
    assert rtt.timer_s(0, now + 9 * LATE_HALVES_S) == pytest.approx(4 * RTT_S), "forgotten"


def test_late_answer__a_shorter_one_does_not_hide_a_longer_one() -> None:
    now = 5.0
    floors = []
    for answers in ((0.33,), (0.33, 0.16)):
        rtt = steady_round_trips()
        for answer in answers:
            rtt.on_late_answer(answer, now)
        for n in range(200):
            rtt.on_sample(RTT_S, now + n * 1e-6)
        floors.append(rtt.timer_s(0, now))
    assert floors[0] == pytest.approx(floors[1], rel=1e-3)


def test_one__is_t_until_a_round_trip_is_known() -> None:
    assert RoundTrips(CONFIG).typical_s() == T
    assert steady_round_trips().typical_s() == pytest.approx(RTT_S)


def test_verdict__waits_for_two_of_the_four_round_trips_of_the_timer() -> None:
    assert RoundTrips(CONFIG).verdict_s(0.0) == REST_PART * T
    assert steady_round_trips().verdict_s(2.0) == pytest.approx(2 * RTT_S)
    assert steady_round_trips(Config.of(timeout=14, timeout_rtts=0)).verdict_s(2.0) == pytest.approx(RTT_S)


def charges(config: Config, limit: int = 100) -> list[float]:
    """Return when a QP that charges as soon as it may does so; it ends with the charge that is refused."""
    budget, times = RetryBudget(config, RoundTrips(config)), []
    while len(times) < limit:
        times.append(budget.again_at)
        if not budget.charge(budget.again_at):
            break
    return times


def test_budget__is_spent_after_linear_and_exponential_phase() -> None:
    config = Config.of(timeout=14, linear_cnt=2, exp_cnt=3)
    times = charges(config)
    assert len(times) == 5
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == [pytest.approx(config.loss.retry_interval_s(n)) for n in range(1, 5)]


def test_budget__without_end_and_of_one() -> None:
    assert len(charges(Config.of(timeout=14, exp_cnt=25))) == 100
    assert len(charges(Config.of(timeout=14, timeout_phases="linear", linear_cnt=0))) == 1


def test_budget__is_whole_again_after_progress() -> None:
    config = Config.of(timeout=14, linear_cnt=1, exp_cnt=1)
    budget = RetryBudget(config, RoundTrips(config))
    assert budget.charge(1.0) and budget.again_at > 1.0
    budget.restore()
    assert (budget.charges, budget.again_at) == (0, 0.0)
    assert budget.charge(2.0) and not budget.charge(3.0)


def test_late_answer__is_forgotten_sooner_where_timers_are_short() -> None:
    """Times of a data centre: T is 65 us, and half of a late answer is forgotten after 600 of them."""
    config = Config.of(timeout=6)
    rtt = RoundTrips(config)
    rtt.on_late_answer(1e-3, 0.0)
    half_s = 600 * config.loss.base_timeout_s
    assert half_s < 0.1
    assert rtt.known_s(half_s, path()) == pytest.approx(LATE_MARGIN * 0.5e-3)
