"""When silence about a packet proves that it is lost: the peer is known to have read on since (proof_of_loss.py)."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.loss.proof_of_loss import ProofOfLoss
from mrc_testbed.hosts.engine.loss.roundtrips import REST, RoundTrips
from mrc_testbed.hosts.engine.paths.ev import Ev

RTT_S = 0.010
REST_S = REST * Config().base_timeout_s
"""16.8 ms: more than one round trip and a half."""


@pytest.fixture
def hearing() -> ProofOfLoss:
    """After 200 round trips of RTT_S, the last of a packet that left at 0."""
    trips = RoundTrips(Config())
    for n in range(200):
        trips.measured(RTT_S, n * RTT_S)
    hearing = ProofOfLoss(trips)
    hearing.answered(0, 0.0, True, RTT_S)
    return hearing


@pytest.fixture
def ev() -> Ev:
    """A path of plane 0."""
    ev = Ev(0x0001, 0, 3)
    ev.sampled(RTT_S)
    return ev


def answer(hearing: ProofOfLoss, plane: int, *left: float, ordinary: bool = True) -> None:
    for at in left:
        hearing.answered(plane, at, ordinary, at + RTT_S)


def test_missed__once_its_own_plane_was_read_on_for_a_queue_that_trims(hearing: ProofOfLoss, ev: Ev) -> None:
    answer(hearing, 0, 1.0, 1.0124)
    assert not hearing.missed(ev, 1.0), "another path of the plane may be that much faster"
    answer(hearing, 0, 1.0126)
    assert hearing.missed(ev, 1.0)


def test_missed__other_planes_prove_it_after_a_rest_only(hearing: ProofOfLoss, ev: Ev) -> None:
    """A host that was held up may have read them and not yet this one."""
    answer(hearing, 1, 1.0, 1.0 + REST_S - 1e-6)
    assert not hearing.missed(ev, 1.0)
    answer(hearing, 2, 1.0 + REST_S + 1e-6)
    assert hearing.missed(ev, 1.0)


def test_first_answer__proves_nothing_of_what_left_before_it(ev: Ev) -> None:
    """A peer that wakes up may read the newest packet of a ring first: what it says of the time before is nothing."""
    config = Config()
    hearing = ProofOfLoss(RoundTrips(config))
    hearing.answered(1, 1.0, True, 1.0 + RTT_S)
    assert not hearing.missed(ev, 1.0 - 2 * config.base_timeout_s)
    hearing.answered(1, 1.0 + 2 * config.base_timeout_s, True, 1.2)
    assert hearing.missed(ev, 1.0 - 2 * config.base_timeout_s)


def test_late_answer__begins_the_proof_anew(hearing: ProofOfLoss, ev: Ev) -> None:
    answer(hearing, 0, 1.0, 1.1)
    answer(hearing, 1, 1.05, ordinary=False)
    assert not hearing.missed(ev, 1.0), "something waited: others may wait yet"
    answer(hearing, 0, 1.2)
    assert not hearing.missed(ev, 1.0), "one ordinary answer spans no time"
    answer(hearing, 0, 1.2126)
    assert hearing.missed(ev, 1.0)


def test_missed__what_left_after_all_that_was_answered_is_not(hearing: ProofOfLoss, ev: Ev) -> None:
    answer(hearing, 0, 0.5, 0.9)
    assert not hearing.missed(ev, 1.0) and hearing.attention(1.0) < 0 and hearing.span(0, 1.0) < 0


def test_newest__is_of_what_left_not_of_when_it_was_answered(hearing: ProofOfLoss) -> None:
    answer(hearing, 1, 2.0)
    answer(hearing, 0, 1.0)
    hearing.read(3, 1.5)
    assert hearing.newest == 2.0
