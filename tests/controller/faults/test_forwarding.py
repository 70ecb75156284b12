"""Evidence of switches' counters on wires and switches, reading after reading."""

import pytest

from mrc_testbed.controller.faults.forwarding import HISTORY, READINGS_MIN, Forwarding, Reading
from mrc_testbed.controller.faults.path_segments import PathSegmenter
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(1, 2, 2, 1)
T0, T1 = PLAN.switch("p0-t0-0"), PLAN.switch("p0-t1-0")
UPLINK, DOWNLINK = "p0-t0-0-eth2", "p0-t1-0-eth1"
"""Ports at both ends of p0-t0-0 p0-t1-0."""


def verdicts(*rounds):
    """Return {(subject, works): t} after rounds of counters.

    A round: (t, sent by the T0 to the T1, received by the T1, forwarded by the T1 to the T0, dropped by the T1).
    """
    forwarding = Forwarding(PathSegmenter(PLAN))
    for t, sent, received, forwarded, dropped in rounds:
        forwarding.read(T0, Reading(t, {UPLINK: forwarded}, {UPLINK: sent}))
        forwarding.read(T1, Reading(t + 0.05, {DOWNLINK: received}, {DOWNLINK: forwarded}, dropped))
    return {(verdict.subject_name, verdict.works): verdict.t for verdict in forwarding.verdicts(0)}


def test_all_well():
    results = verdicts((1.0, 0, 0, 0, 0), (2.0, 10, 10, 10, 0), (3.0, 20, 20, 20, 0))
    assert results == {
        ("p0-t0-0 -> p0-t1-0", True): 2.05,
        ("p0-t1-0 -> p0-t0-0", True): 2.0,
        ("p0-t0-0", True): 2.0,
        ("p0-t1-0", True): 2.05,
    }


def test_a_wire_that_loses_everything_is_no_black_hole():
    rounds = [(1.0, 50, 50, 50, 0), (2.0, 60, 50, 50, 0), (3.0, 70, 50, 50, 0), (4.0, 80, 50, 50, 0)]
    results = verdicts(*rounds)
    assert results[("p0-t0-0 -> p0-t1-0", False)] == 3.0
    assert ("p0-t1-0", False) not in results
    assert ("p0-t0-0 -> p0-t1-0", False) not in verdicts(*rounds[:3])  # the T1 was first read after the T0


def test_the_end_of_a_transfer_is_no_loss():
    """Count packets that were sent between the readings of both switches as arrived."""
    rounds = [(1.0, 0, 0, 0, 0), (2.0, 50, 90, 90, 0), (3.0, 90, 90, 90, 0), (4.0, 90, 90, 90, 0)]
    assert not any(works is False for _, works in verdicts(*rounds))


@pytest.mark.parametrize(("duration", "is_down"), [(0.4, True), (0.8, False)])
def test_a_reading_that_takes_long_is_no_base_before_its_end(duration, is_down):
    """Compare arrivals with packets that were sent after their reading had ended."""
    forwarding = Forwarding(PathSegmenter(PLAN))
    for n, sent in enumerate((0, 0, 50, 90)):
        forwarding.read(T1, Reading(0.8 + n / 2, {DOWNLINK: 90}, {}, duration=duration if n < 2 else 0.0))
        forwarding.read(T0, Reading(0.8 + n / 2, {}, {UPLINK: sent}))
    assert any(not verdict.works for verdict in forwarding.verdicts(0)) is is_down


def test_a_black_hole_receives():
    results = verdicts((1.0, 50, 50, 50, 0), (2.0, 60, 60, 50, 0), (3.0, 70, 70, 50, 0))
    assert results[("p0-t1-0", False)] == 2.05
    assert ("p0-t0-0 -> p0-t1-0", True) in results


def test_a_switch_that_drops_for_a_reason_is_no_black_hole():
    results = verdicts((1.0, 50, 50, 50, 0), (2.0, 60, 60, 50, 10), (3.0, 70, 70, 50, 20))
    assert ("p0-t1-0", True) in results


def test_a_lossy_wire_delivers():
    results = verdicts((1.0, 0, 0, 0, 0), (2.0, 40, 4, 4, 0), (3.0, 80, 8, 8, 0))
    assert ("p0-t0-0 -> p0-t1-0", True) in results


def test_what_was_sent_a_moment_ago_may_still_come():
    """No packet was sent before the last reading but one."""
    assert verdicts((1.0, 50, 50, 50, 0), (2.0, 50, 50, 50, 0), (3.0, 90, 50, 50, 0)) == {("p0-t0-0", True): 2.0}


def test_a_few_packets_decide_nothing():
    assert verdicts((1.0, 50, 50, 50, 0), (2.0, 54, 50, 50, 0), (3.0, 54, 50, 50, 0)) == {}


def test_two_readings_are_not_enough_and_a_third_at_once_is_none():
    assert verdicts((1.0, 50, 50, 50, 0), (2.0, 60, 50, 50, 0), (2.1, 60, 50, 50, 0)) == {}


def test_a_switch_that_counts_anew_has_no_past():
    results = verdicts((1.0, 50, 50, 50, 0), (2.0, 60, 60, 3, 0), (3.0, 70, 70, 3, 0))
    assert not any(subject == "p0-t1-0" for subject, _ in results)


def test_a_switch_that_answers_no_more_accuses_nobody():
    """The sender's last reading is old; what it sent then arrived before the receiver's first one."""
    forwarding = Forwarding(PathSegmenter(PLAN))
    for t, sent in ((1.0, 10), (2.0, 20), (3.0, 30)):
        forwarding.read(T0, Reading(t, {}, {UPLINK: sent}))
    for t in (2.0, 3.0, 4.0):
        forwarding.read(T1, Reading(t, {DOWNLINK: 30}, {}))
    assert not any(
        subject == "p0-t0-0 -> p0-t1-0" for subject in (verdict.subject_name for verdict in forwarding.verdicts(0))
    )


def test_a_slow_trickle_decides_over_more_readings():
    """One loop's probes, five between two readings: too few for two of them, enough for three."""
    rounds = [(1.0 + n / 2, 50 + 5 * n, 50 + 5 * n, 50, 0) for n in range(4)]
    assert ("p0-t1-0", False) not in verdicts(*rounds[:3])
    assert verdicts(*rounds)[("p0-t1-0", False)] == 2.05
    cut = [(1.0 + n / 2, 50 + 5 * n, 50, 50, 0) for n in range(5)]
    assert verdicts(*cut)[("p0-t0-0 -> p0-t1-0", False)] == 2.5


def read_alone(*readings):
    """Readings of the T0; nobody else was read."""
    forwarding = Forwarding(PathSegmenter(PLAN))
    for reading in readings:
        forwarding.read(T0, reading)
    return {(verdict.subject_name, verdict.works) for verdict in forwarding.verdicts(0)}


def test_a_neighbour_that_was_never_read_has_no_verdict():
    """`sender[-0:]` was the whole list: the comparison of 3 readings with none ended the controller."""
    results = read_alone(*(Reading(t, {}, {UPLINK: 10 * n}) for n, t in enumerate((1.0, 2.0, 3.0))))
    assert results == {("p0-t0-0", True)}


@pytest.mark.parametrize("often", range(READINGS_MIN))
def test_a_neighbour_that_was_read_less_often_is_compared_as_far_as_it_was(often):
    forwarding = Forwarding(PathSegmenter(PLAN))
    for n in range(HISTORY):
        forwarding.read(T0, Reading(1.0 + n, {}, {UPLINK: 10 * n}))
        if n < often:
            forwarding.read(T1, Reading(1.05 + n, {DOWNLINK: 0}, {DOWNLINK: 0}))
    assert not any(verdict.subject_name != "p0-t0-0" for verdict in forwarding.verdicts(0))


def test_a_port_that_was_not_counted_has_not_received_nothing():
    forwarding = Forwarding(PathSegmenter(PLAN))
    for t, packets in ((1.0, 50), (2.0, 60), (3.0, 70)):
        forwarding.read(T0, Reading(t, {UPLINK: 0}, {UPLINK: packets}))
        forwarding.read(T1, Reading(t + 0.05, {}, {DOWNLINK: 0}))
    assert {(verdict.subject_name, verdict.works) for verdict in forwarding.verdicts(0)} == {("p0-t0-0", True)}


def test_a_program_that_counts_nothing_is_no_black_hole():
    assert read_alone(*(Reading(t, {UPLINK: 100 * t}, {}) for t in (1, 2, 3))) == set()


def test_a_port_that_is_counted_only_now_has_not_received_all_at_once():
    results = read_alone(
        Reading(1.0, {}, {UPLINK: 5}),
        Reading(2.0, {UPLINK: 1000}, {UPLINK: 5}),
        Reading(3.0, {UPLINK: 1000}, {UPLINK: 5}),
    )
    assert results == set()


def test_a_port_that_was_made_again_has_no_past():
    forwarding = Forwarding(PathSegmenter(PLAN))
    for t, sent, received in ((1.0, 50, 60), (2.0, 56, 0), (3.0, 59, 58), (4.0, 62, 60)):
        forwarding.read(T0, Reading(t, {UPLINK: 0}, {UPLINK: sent}))
        forwarding.read(T1, Reading(t + 0.05, {DOWNLINK: received}, {DOWNLINK: 0}))
    assert not any("->" in verdict.subject_name for verdict in forwarding.verdicts(0))
