"""Tables of the fluid model from what links and QPs of packet runs show."""

import numpy as np
import pytest

from mrc_testbed.simulator.fluid.calibration import BURST_POWER, CALIBRATIONS
from tools.campaigns.fluid_calibration import LinkPoint, MeasuredRun, QpPoint, bins, scenario_run, tables_of


def test_bins__means_of_those_with_enough():
    positions, values = bins((0.0, 1.0, 2.0), [0.1, 0.2, 0.6, 1.5], [1.0, 2.0, 6.0, 9.0])
    assert positions == (0.3,) and values == (3.0,)


def test_tables__what_links_and_qps_show():
    links = [LinkPoint(0.8, 0.88, 0.35, 0.1, 0.02, 8, 8, 0.88)] * 4
    qps = [QpPoint(0.6, 0.4, 3.0)] * 3 + [QpPoint(0.95, 0.05, 1e9)] * 3
    out = tables_of(CALIBRATIONS[0], links, qps)
    assert out.wire == pytest.approx(1.1) and out.top == pytest.approx(0.95)
    assert (out.loads, out.delays) == ((0.0, 0.8), (0.0, 0.35))
    assert (out.marks, out.trims) == ((0.0, 0.1), (0.0, 0.02))
    delay = out.wander[1] + float(out.streams_delay(np.array([0.8]), 8)[0])
    assert delay * (1 - 1 / 8) == pytest.approx(0.35, abs=1e-3)
    assert out.price == pytest.approx((0.4 + out.bursts * 0.2**BURST_POWER, 0.05), abs=1e-4)


def test_measured_run__loads_are_rates_and_idle_links_have_no_queue():
    run = scenario_run("own", (2, 2, 2, 1), 0, 1)
    links, qps = MeasuredRun(run).points()
    assert len(qps) == 2 and all(qp.rate == pytest.approx(0.95, abs=0.02) for qp in qps)
    assert all(link.feeders == link.streams == 1 and link.delay < 0.01 and not link.trimmed for link in links)
    assert sum(link.load for link in links) == pytest.approx(2 * 2 * sum(qp.rate for qp in qps), rel=0.01)
    assert all(link.wire > link.load for link in links)
