"""Paces of rings from the rates of their flows."""

import numpy as np
import pytest

from mrc_testbed.simulator.fluid.rings import Rings

RINGS = Rings(0, jobs=1, ranks=4, qps=1, steps=6, chunk_bytes=1e6)
"""A chunk of 8 Mb takes a second at 8 Mb/s."""


def iteration_s(rates_bps, delay_s: float, answer_s: float = 0.0) -> float:
    ends = np.ones(4)
    (pace_bps,) = RINGS.paces(np.array(rates_bps, float), delay_s * ends, answer_s * ends)
    return RINGS.iteration_bytes * 8 / pace_bps


def test_equal_flows__each_step_takes_a_chunk_and_the_delay():
    assert iteration_s([8e6] * 4, 0.1) == pytest.approx(6 * 1.1)
    assert iteration_s([8e6] * 4, 0.1, 0.05) == pytest.approx(6 * 1.1 + 0.05)


def test_slow_flow__sends_all_the_time_where_the_others_wait():
    assert iteration_s([4e6, 8e6, 8e6, 8e6], 0.1) == pytest.approx(5 * 2 + 2.1)


def test_slow_flow__hides_in_the_delays():
    """A chunk of 1.1 s beside three of 1 s: less than the mean of 1.025 s and the delay of 0.2 s."""
    assert iteration_s([8e6 / 1.1, 8e6, 8e6, 8e6], 0.2) == pytest.approx(5 * 1.225 + 1.3)


def test_dead_flow__stops_its_job_alone():
    rings = Rings(0, jobs=2, ranks=2, qps=1, steps=2, chunk_bytes=1e6)
    paces = rings.paces(np.array([0, 8e6, 8e6, 8e6]), np.zeros(4), np.zeros(4))
    assert paces == pytest.approx([0, 8e6])
