"""`--rate`, `--delay` and their like: which plan they make."""

import pytest

from mrc_testbed.cli.link_options import LinkOptions
from mrc_testbed.errors import UsageError
from mrc_testbed.topologies.plan import LinkSpeed, Mode, Plan, PlanError


def plan(racks=2, **options):
    return LinkOptions(**options).plan(4, racks, 2, 2)


def test_nothing_said__is_annex_c():
    assert plan() == Plan.scaled()
    assert plan(racks=1) == Plan.scaled(racks=1) and plan(racks=1).base_rtt_s() == pytest.approx(0.01)
    assert plan(mode="ecmp") == Plan.scaled(mode=Mode.ECMP)


def test_no_rate__is_as_fast_as_the_machine():
    assert plan(rate="none") == Plan()
    assert plan(rate="None", delay="2ms").host_link == LinkSpeed(None, 0.002)
    assert plan(rate="none", pmtu=1024).pmtu_bytes == 1024


def test_what_is_said__holds_and_the_rest_makes_10_ms():
    link_plan = plan(rate="100M", delay="250us")
    assert link_plan.host_link == link_plan.fabric_link == LinkSpeed(100e6, 0.00025) and link_plan.pmtu_bytes == 1024
    link_plan = plan(fabric_rate="20M", host_delay="0.5ms")
    assert link_plan.host_link == LinkSpeed(10e6, 0.0005) and link_plan.fabric_link.rate_bps == 20e6
    assert link_plan.base_rtt_s() == pytest.approx(0.01)
    link_plan = plan(rate="none", fabric_rate="10M")
    assert link_plan.host_link.rate_bps is None and link_plan.fabric_link.rate_bps == 10e6
    assert link_plan.base_rtt_s() == pytest.approx(0.01)
    assert plan(rate="100M", delay="0").base_rtt_s() == pytest.approx(4 * 1320 * 8 / 100e6)


def slow_plan(**options):
    return LinkOptions(**options).plan(4, 2, 2, 2, slowdown=20)


def test_slow_machine__scales_what_nobody_said():
    assert slow_plan().host_link.rate_bps == 10e6 / 20 and slow_plan().base_rtt_s() == pytest.approx(0.2)
    for options in ({"rate": "10M"}, {"fabric_rate": "20M"}, {"delay": "1ms"}, {"rate": "none"}):
        assert slow_plan(**options) == plan(**options) and not LinkOptions(**options).are_usual


@pytest.mark.parametrize(
    "options, kind, error",
    [
        ({"rate": "fast"}, UsageError, "rate 'fast': give bits/s, such as 500K, 10M or 1G, or `none` for no limit"),
        ({"host_rate": "10Q"}, UsageError, "no unit 'Q'"),
        ({"delay": "1 parsec"}, UsageError, "no unit 'parsec'; give seconds"),
        ({"mode": "srv66"}, PlanError, "no mode 'srv66' (did you mean srv6?"),
        ({"pmtu": 1500}, PlanError, "pmtu_bytes = 1500: must be one of 256"),
        ({"rate": "1M"}, PlanError, "give a higher rate, a smaller path MTU, or all delays yourself"),
        ({"host_delay": "3ms"}, PlanError, "with the delays given"),
        ({"rate": "1"}, PlanError, "rate_bps = 1.0: give 1000 to"),
        ({"delay": "2min"}, PlanError, "delay_s = 120.0"),
    ],
)
def test_what_cannot_be__is_said(options, kind, error):
    with pytest.raises(kind) as caught:
        plan(**options)
    assert error in str(caught.value)
