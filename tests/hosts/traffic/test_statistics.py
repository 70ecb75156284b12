"""Latencies and peak rates by perftest's names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.hosts.traffic.statistics import LATENCY_KEYS, PeakMeter, latency_summary, percentile


def test_latency_summary__microseconds_by_perftests_names():
    samples = [n * 1e-6 for n in range(1000, 0, -1)]
    assert latency_summary(samples) == {
        "t_min_us": 1.0,
        "t_max_us": 1000.0,
        "t_typical_us": 500.0,
        "t_avg_us": 500.5,
        "t_stdev_us": 288.675,
        "p99_us": 990.0,
        "p99_9_us": 999.0,
    }
    assert latency_summary([]) == dict.fromkeys(LATENCY_KEYS)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_percentile__is_a_sample_that_enough_are_not_above(samples, share):
    sorted_samples = sorted(samples)
    value = percentile(sorted_samples, share)
    assert value in sorted_samples
    assert sum(sample <= value for sample in sorted_samples) >= share * len(sorted_samples)


def test_peak__is_over_a_tenth_of_a_second_at_least():
    meter = PeakMeter(10.0)
    meter.add(10.001, 1_000_000)  # a burst of its own says nothing yet
    assert meter.peak_bps == 0.0
    for n in range(1, 11):
        meter.add(10.0 + n * 0.0501, 1000)
    assert meter.peak_bps == pytest.approx((1_000_000 + 2000) * 8 / 0.1002)


def test_peak__of_an_even_flow_is_its_rate():
    meter = PeakMeter(0.0)
    for n in range(1, 1000):
        meter.add(n * 0.01, 1250)
    assert meter.peak_bps == pytest.approx(1e6)
