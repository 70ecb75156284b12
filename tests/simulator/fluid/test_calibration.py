"""Delays of links by load, and what bursts of an application cost."""

from itertools import pairwise

import numpy as np
import pytest

from mrc_testbed.simulator.fluid.calibration import CALIBRATIONS


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_streams_delay__more_streams_queue_longer_up_to_random_arrivals(calibration):
    loads = np.array([0.3, 0.6, 0.8])
    delays = [calibration.streams_delay(loads, streams) for streams in (2, 8, 16, 256, 100_000)]
    assert all((second > first).all() for first, second in pairwise(delays))
    wire_loads = loads * calibration.wire
    random_arrivals = wire_loads / (2 * (1 - wire_loads)) / calibration.packets
    assert delays[-1] == pytest.approx(random_arrivals, rel=0.01)


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("streams", [2, 8, 256])
def test_tables__busier_links_cost_more(calibration, streams):
    delays, skips, trims, target_prices = calibration.tables(streams)
    assert delays[0] == skips[0] == trims[0] == 0 and target_prices[0] > target_prices[-1] > 0
    assert all((np.diff(table) >= 0).all() for table in (delays, skips, trims))
    assert delays[-1] + trims[-1] > 1.5  # no load beyond a link's rate lasts


def test_bursts__fall_with_the_applications_window():
    calibration = CALIBRATIONS[0]
    smallest_factor, factor, large_factor = calibration.bursts_of(np.array([0.5, 3.0, 12.0]))
    assert factor / large_factor == pytest.approx(4**2.5)
    assert smallest_factor == calibration.bursts_of(np.array([2.0]))[0]
