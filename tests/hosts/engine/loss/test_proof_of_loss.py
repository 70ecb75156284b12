"""Proof of loss by silence.

The peer is known to have read on since the packet left (proof_of_loss.py).
"""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.loss.proof_of_loss import ProofOfLoss
from mrc_testbed.hosts.engine.loss.roundtrips import QUEUES, REST_PART, SKEW, TRIM_RTTS, RoundTrips
from mrc_testbed.hosts.engine.paths.ev import Ev

RTT_S = 0.010
REST_S = REST_PART * Config().loss.base_timeout_s
"""16.8 ms: more than one round trip and a half."""


@pytest.fixture
def proof() -> ProofOfLoss:
    """Return a proof after 200 round trips of RTT_S, the last of a packet that left at 0."""
    rtt = RoundTrips(Config())
    for n in range(200):
        rtt.on_sample(RTT_S, n * RTT_S)
    proof = ProofOfLoss(rtt)
    proof.on_answer(0, 0.0, True, RTT_S)
    return proof


@pytest.fixture
def ev() -> Ev:
    """A path of plane 0."""
    ev = Ev(0x0001, 0, 3)
    ev.on_sample(RTT_S)
    return ev


def answer(proof: ProofOfLoss, plane: int, *departures: float, ordinary: bool = True) -> None:
    for departure in departures:
        proof.on_answer(plane, departure, ordinary, departure + RTT_S)


def test_missed__once_its_own_plane_was_read_on_for_a_queue_that_trims(proof: ProofOfLoss, ev: Ev) -> None:
    answer(proof, 0, 1.0, 1.0124)
    assert not proof.missed(ev, 1.0), "another path of the plane may be that much faster"
    answer(proof, 0, 1.0126)
    assert proof.missed(ev, 1.0)


def test_missed__other_planes_prove_it_after_a_rest_only(proof: ProofOfLoss, ev: Ev) -> None:
    """A host that was held up may have read them and not yet this one."""
    answer(proof, 1, 1.0, 1.0 + REST_S - 1e-6)
    assert not proof.missed(ev, 1.0)
    answer(proof, 2, 1.0 + REST_S + 1e-6)
    assert proof.missed(ev, 1.0)


def test_first_answer__proves_nothing_of_what_left_before_it(ev: Ev) -> None:
    """A peer that wakes up may read the newest packet of a ring first.

    What it says of the time before is nothing.
    """
    config = Config()
    proof = ProofOfLoss(RoundTrips(config))
    proof.on_answer(1, 1.0, True, 1.0 + RTT_S)
    assert not proof.missed(ev, 1.0 - 2 * config.loss.base_timeout_s)
    proof.on_answer(1, 1.0 + 2 * config.loss.base_timeout_s, True, 1.2)
    assert proof.missed(ev, 1.0 - 2 * config.loss.base_timeout_s)


def test_late_answer__begins_the_proof_anew(proof: ProofOfLoss, ev: Ev) -> None:
    answer(proof, 0, 1.0, 1.1)
    answer(proof, 1, 1.05, ordinary=False)
    assert not proof.missed(ev, 1.0), "something waited: others may wait yet"
    answer(proof, 0, 1.2)
    assert not proof.missed(ev, 1.0), "one ordinary answer spans no time"
    answer(proof, 0, 1.2126)
    assert proof.missed(ev, 1.0)


def test_late_answer__stretches_no_limit_for_what_left_before_it(proof: ProofOfLoss, ev: Ev) -> None:
    """All that waited through a stall is late, though its first answer makes the next ones look ordinary."""
    proof.on_answer(1, 1.00, False, 1.10)
    proof.rtt.on_sample(0.10, 1.10)
    assert proof.rtt.ordinary(0.07, ev)
    proof.on_answer(1, 1.03, True, 1.10)
    assert proof.attention(1.0) < 0, "it waited, too"
    proof.on_answer(1, 1.09, True, 1.10)
    assert proof.attention(1.0) == 0, "the run begins with what the stall did not hold up"
    proof.on_answer(1, 1.02, False, 1.10)
    proof.on_answer(1, 1.03, True, 1.10)
    assert proof.attention(1.0) < 0, "a second late answer of the stall keeps the limit before it"
    proof.on_answer(1, 1.11, True, 1.18)
    assert proof.attention(1.0) == 0, "what left after the late answer is measured by what is ordinary now"


def test_missed__what_left_after_all_that_was_answered_is_not(proof: ProofOfLoss, ev: Ev) -> None:
    answer(proof, 0, 0.5, 0.9)
    assert not proof.missed(ev, 1.0) and proof.attention(1.0) < 0 and proof.span(0, 1.0) < 0


def test_newest__is_of_what_left_not_of_when_it_was_answered(proof: ProofOfLoss) -> None:
    answer(proof, 1, 2.0)
    answer(proof, 0, 1.0)
    proof.on_read(3, 1.5)
    assert proof.newest_read == 2.0


def test_late_report__ends_the_run_before_it(proof: ProofOfLoss, ev: Ev) -> None:
    answer(proof, 0, 1.0, 1.1)
    assert proof.missed(ev, 1.0)
    proof.on_late_report(1.095)
    assert not proof.missed(ev, 1.0) and proof.span(0, 1.0) == pytest.approx(0.005)
    proof.on_late_report(1.05)
    assert proof.span(0, 1.0) == pytest.approx(0.005), "an older limit says nothing new"
    proof.on_late_report(1.11)
    assert proof.span(0, 1.0) < 0, "nothing was reported in time"


def test_trim__is_no_proof_that_anything_before_it_was_read(proof: ProofOfLoss, ev: Ev) -> None:
    """A header has priority in every queue that other packets may still wait in."""
    answer(proof, 0, 1.0)
    proof.on_trim(1.195, ordinary=True, now=1.2)
    assert not proof.missed(ev, 1.0) and proof.heard_at == 1.2 and proof.newest_read == 1.0


def test_trim__that_is_late_begins_the_proof_anew(proof: ProofOfLoss, ev: Ev) -> None:
    answer(proof, 0, 1.0, 1.1)
    assert proof.missed(ev, 1.0)
    proof.on_trim(1.15, ordinary=False, now=1.2)
    assert not proof.missed(ev, 1.0)


@pytest.mark.parametrize("plane", [pytest.param(0, id="its own plane"), pytest.param(1, id="another plane")])
def test_missed__while_packets_are_trimmed_two_full_queues_may_hold_one_back(
    proof: ProofOfLoss, ev: Ev, plane: int
) -> None:
    proof.rtt.on_trim(1.0 + 2 * RTT_S)
    queues_s = SKEW * QUEUES * RTT_S
    answer(proof, plane, 1.0, 1.0 + queues_s - 1e-6)
    assert not proof.missed(ev, 1.0)
    answer(proof, plane, 1.0 + queues_s + 1e-6)
    assert proof.missed(ev, 1.0)


def test_missed__a_few_round_trips_after_a_trim_the_queues_have_drained(proof: ProofOfLoss, ev: Ev) -> None:
    proof.rtt.on_trim(1.0 - TRIM_RTTS * RTT_S)
    answer(proof, 0, 1.0, 1.0126)
    assert proof.missed(ev, 1.0)
