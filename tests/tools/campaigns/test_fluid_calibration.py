"""Tables of the fluid model from what links and QPs of packet runs show."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from mrc_testbed.simulator.fluid.calibration import BURST_POWER, CALIBRATIONS, Calibration
from tools.campaigns.fluid_calibration import (
    KEPT,
    DrawnRun,
    LinkPoint,
    MeasuredRun,
    PacketRun,
    QpPoint,
    balanced,
    bins,
    costs_of,
    fluid_rate,
    scenario_run,
    tables_of,
    wander_of,
)


def test_bins__means_of_those_with_enough():
    positions, values = bins((0.0, 1.0, 2.0), [0.1, 0.2, 0.6, 1.5], [1.0, 2.0, 6.0, 9.0])
    assert positions == (0.3,) and values == (3.0,)


def test_tables__what_links_and_qps_show():
    links = [LinkPoint(0.8, 0.88, 0.35, 0.1, 0.02, 8, 6, 0.8, 0.7)] * 4
    qps = [QpPoint(0.6, 0.4, 0.001, 3.0, 0.1)] * 3 + [QpPoint(0.95, 0.05, 0.0, 1e9, 0.2)] * 3
    out = tables_of(CALIBRATIONS[0], links, qps)
    assert out.wire == pytest.approx(1.1) and out.top == pytest.approx(0.95)
    assert (out.loads, out.delays) == ((0.0, 0.8), (0.0, 0.35))
    assert (out.marks, out.trims) == ((0.0, 0.1), (0.0, 0.02))
    delay = (1 - 0.7 * out.steady) * out.wander[1] + float(out.streams_delay(np.array([0.8]), 6)[0])
    assert delay * (1 - 1 / 6) == pytest.approx(0.35, abs=1e-3)
    cost = 0.001 * out.trim_price + out.bursts * 0.2**BURST_POWER
    assert out.rates == (0.0, 0.6, 0.95)
    assert out.price == pytest.approx((0.5 + 0.001 * out.trim_price, 0.4 + cost, 0.05), abs=1e-4)


def test_wander__relief_is_what_makes_links_alike():
    """Queues follow 0.7 of a link's own load and 0.3 of its neighbours', and what rates lack of the line."""
    calibration = CALIBRATIONS[0]
    links = []
    for load in np.linspace(0.7, 0.9, 21).tolist():
        for mean, rate in ((0.5, 0.9), (0.7, 0.5), (0.85, 0.7)):
            regular = float(calibration.streams_delay(np.array([load]), 6)[0])
            delay = (1 - 1 / 6) * (regular + 2 * (0.7 * load + 0.3 * mean - 0.5) * (1 - rate))
            links.append(LinkPoint(load, load, delay, 0.0, 0.0, 8, 6, mean, rate))
    steady, relief, loads, wander = wander_of(calibration, links)
    assert steady == 1.0
    assert relief == pytest.approx(0.3, abs=0.051)
    assert wander == pytest.approx([2 * (load - 0.5) for load in loads], abs=0.02)


def test_costs__from_windows_and_trims_that_differ():
    """Who holds 0.5 in all but for trims, and less between T0s for bursts, which stand in the ring."""
    qps = []
    for rate in np.linspace(0.5, 0.9, 30).tolist():
        for window, trims in ((3.0, 0.001), (6.0, 0.0), (6.0, 0.002)):
            ends = 0.2 * rate + 1.7 * (rate / window) ** BURST_POWER
            qps.append(QpPoint(rate, 0.5 - 7 * trims - ends, trims, window, ends))
    assert costs_of(qps, CALIBRATIONS[0]) == pytest.approx((0.5, 1.7, 7), rel=0.03)
    same_windows = [replace(qp, window=6.0, trims=0.0) for qp in qps]
    assert costs_of(same_windows, CALIBRATIONS[0])[1:] == (CALIBRATIONS[0].bursts, CALIBRATIONS[0].trim_price)


def test_balanced__moves_prices_until_the_model_is_as_fast_as_packets():
    plan = scenario_run("own", (2, 4, 4, 4), 5, 1, 4)
    evs = DrawnRun(plan)
    evs.begin()
    fast = fluid_rate(PacketRun(plan, evs.evs, 0.0), CALIBRATIONS[0])
    slow = balanced(CALIBRATIONS[0], [PacketRun(plan, evs.evs, 0.98 * fast)])
    assert fluid_rate(PacketRun(plan, evs.evs, 0.0), slow) == pytest.approx(0.98 * fast, rel=0.005)
    assert slow.price[0] < CALIBRATIONS[0].price[0]


def test_kept__names_of_a_calibration_and_no_others_stay():
    """What is not measured is named."""
    links = [LinkPoint(0.8, 0.88, 0.35, 0.1, 0.02, 8, 6, 0.8, 0.7)] * 4
    qps = [
        QpPoint(0.6, 0.4 - 2 * trims, trims, window, 0.1) for trims, window in ((0.001, 3.0), (0.002, 6.0), (0.0, 6.0))
    ] * 3
    former = asdict(CALIBRATIONS[0]) | {"packets": 5.0, "relief": 0.9, "steady": 0.55}
    out = asdict(tables_of(Calibration(**former), links, qps))
    assert {name for name, value in out.items() if value == former[name]} == {*KEPT, "packets"}


def test_measured_run__loads_are_rates_and_idle_links_have_no_queue():
    run = scenario_run("own", (2, 2, 2, 1), 0, 1, 4)
    links, qps = MeasuredRun(run).points()
    assert len(qps) == 2 and all(qp.rate == pytest.approx(0.95, abs=0.02) for qp in qps)
    assert all(link.feeders == link.users == 1 and link.delay < 0.01 and not link.trimmed for link in links)
    assert sum(link.load for link in links) == pytest.approx(2 * 2 * sum(qp.rate for qp in qps), rel=0.01)
    assert all(link.wire > link.load for link in links)
