"""The fixed window: what it is, and the crowd in which it is not fixed."""

from __future__ import annotations

from random import Random

from mrc_testbed.hosts.engine.cc.crowd import CUT, PACKETS, WINDOW_MIN
from mrc_testbed.hosts.engine.cc.window import LONG_AGO, FixedWindow

MTU, WHOLE_NUMBER, RTT = 1112, 100_000, 0.01


def crowded_window() -> FixedWindow:
    """Return a fixed window that a packet trimmed three times has brought into a crowd, at 1 s."""
    window = FixedWindow(WHOLE_NUMBER, MTU, RTT, Random(1))
    window.on_trim(0.99, MTU, True, 0.98, 2)
    assert window.cwnd == WHOLE_NUMBER
    window.on_trim(1.0, MTU, True, 0.99, 3)
    return window


def test_fixed__no_trim_of_two_copies_or_in_the_core_changes_it():
    window = FixedWindow(WHOLE_NUMBER, MTU)
    for last_hop, attempt in ((False, 1), (False, 9), (True, 1), (True, 2)):
        window.on_trim(1.0, MTU, last_hop, 0.9, attempt)
    window.on_loss(1.0, MTU, 0.9)
    window.on_ack(1.1, MTU, True, 5.0)
    assert window.cwnd == WHOLE_NUMBER and window.opens_at() == LONG_AGO


def test_fixed__one_smaller_than_a_packet_has_no_pace():
    assert FixedWindow(500, MTU).opens_at() == LONG_AGO


def test_fixed__a_packet_trimmed_three_times_at_the_last_hop_begins_a_crowd():
    window = crowded_window()
    assert window.cwnd == PACKETS * MTU
    window.on_trim(2.0, MTU, True, 1.5, 3)
    window.on_trim(2.0, MTU, True, 1.6, 3)
    assert window.cwnd == PACKETS * MTU * CUT
    window.on_loss(2.1, MTU, 1.5)
    assert window.cwnd == PACKETS * MTU * CUT - MTU, "a loss without delay"
    for second in range(3, 100):
        window.on_trim(float(second), MTU, True, second - 0.5, 3)
    assert window.cwnd == WINDOW_MIN * MTU
    window.took_turn(100.0)
    assert window.opens_at() == 100.0 + RTT / WINDOW_MIN


def test_fixed__a_crowd_ends_and_gives_the_window_back():
    window, now = crowded_window(), 1.0
    for _ in range(40):
        now += RTT
        window.on_ack(now, MTU, False, 3 * RTT)
    assert WINDOW_MIN * MTU < window.cwnd < MTU
    for _ in range(400):
        now += RTT
        window.on_ack(now, MTU, False, RTT, 0, False, 100)
    assert window.cwnd < MTU, "round trips of short packets say nothing"
    while window.cwnd < WHOLE_NUMBER:
        now += RTT
        window.on_ack(now, MTU, False, RTT)
        assert now < 20.0
    assert window.cwnd == WHOLE_NUMBER and window.opens_at() == LONG_AGO


def test_fixed__a_base_that_is_not_configured_is_the_shortest_of_full_packets():
    window = FixedWindow(WHOLE_NUMBER, MTU)
    for rtt in (0.03, RTT, 0.02, 0.0):
        window.on_ack(0.5, MTU, False, rtt)
    window.on_ack(0.5, 100, False, RTT / 4, 0, False, 100)
    window.on_trim(1.0, MTU, True, 0.99, 3)
    for second in range(2, 100):
        window.on_trim(float(second), MTU, True, second - 0.5, 3)
    window.took_turn(100.0)
    assert window.opens_at() == 100.0 + RTT / WINDOW_MIN
