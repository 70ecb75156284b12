"""Tests of the probes under IP flows, with times given."""

from __future__ import annotations

from mrc_testbed.hosts.ip.path_probes import MISSES_MAX, RETRY_INTERVALS, PathProbes

A, B = (1, 0), (257, 1)


def test_path_in_use__is_probed_once_an_interval_and_no_longer_than_it_is_used():
    sent_probes = []
    probes = PathProbes(lambda peer, path: sent_probes.append((peer, path)), interval_s=1.0)
    for time in (0.0, 0.5, 1.0, 1.5, 2.0):
        assert probes.on_timer({("h2", A)}, time)
        probes.on_result("h2", A, answered=True)
    assert sent_probes == [("h2", A)] * 3
    assert not probes.on_timer(set(), 3.0) and len(sent_probes) == 3


def test_path_without_answers__is_withdrawn_and_probed_until_it_answers():
    sent_times = []
    probes = PathProbes(lambda _peer, _path: sent_times.append(now), interval_s=1.0)
    for number in range(MISSES_MAX):
        now = float(number)
        assert not probes.withdrawn("h2")
        probes.on_timer({("h2", A), ("h2", B)}, now)
        probes.on_result("h2", A, answered=False)
        probes.on_result("h2", B, answered=True)
    assert probes.withdrawn("h2") == {A} and probes.withdrawn("h3") == set()
    sent_times.clear()
    for number in range(MISSES_MAX, MISSES_MAX + 2 * RETRY_INTERVALS):
        now = float(number)
        assert probes.on_timer(set(), now)  # the flow has moved, and the path is watched all the same
    assert len(sent_times) == 2
    probes.on_result("h2", A, answered=True)
    assert not probes.withdrawn("h2") and not probes.on_timer(set(), now + 1)


def test_late_result__of_a_path_that_is_no_longer_probed_changes_nothing():
    probes = PathProbes(lambda _peer, _path: None, interval_s=1.0)
    for _ in range(MISSES_MAX):
        probes.on_result("h2", A, answered=False)
    assert not probes.withdrawn("h2")
