"""Rates, delays, base RTT and thresholds: §4.4, §11.4 and Annex C, by hand.

And that they agree with the engine.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_testbed.topologies.plan import LinkSpeed, Mode, Plan, PlanError, Thresholds, link_speeds
from tests.refusals import may_raise


def test_scaled__is_annex_c():
    plan = Plan.scaled()
    assert plan.base_rtt_s() == pytest.approx(0.010)
    assert plan.bdp_bytes() == pytest.approx(12_500)
    assert plan.nic_rate_bps == 40e6
    assert plan.frame_bytes() == 1024 + 88 + 14 + 40 and plan.trim_bytes == 138
    assert plan.describe_links().startswith(
        "mode srv6, links 10 Mb/s, 0.722 ms; base RTT 10 ms with a path MTU of 1024"
    )
    # 12,500 bytes are 10.7 frames of 1166 bytes, or 90.6 trimmed ones of 138
    fabric = Thresholds(ecn_min=2, ecn_max=9, trim_at=11, drop_at=32, last_hop=False, control_depth=91)
    assert plan.thresholds("p0-t1-0", 1) == plan.thresholds("p3-t0-1", 3) == fabric
    last = plan.thresholds(plan.switch("p0-t0-0"), 2)
    assert last == Thresholds(ecn_min=2, ecn_max=9, trim_at=16, drop_at=32, last_hop=True, control_depth=91)
    assert last.data_limit == 64


def test_base_rtt__adds_up_each_link_there_and_back():
    plan = Plan(host_link=LinkSpeed(10e6, 0.001), fabric_link=LinkSpeed(20e6, 0.002), pmtu_bytes=1024)
    h0, h1, h2 = (plan.host(n) for n in ("h0", "h1", "h2"))
    on_10, on_20 = (1166 + 154) * 8 / 10e6, (1166 + 154) * 8 / 20e6
    assert plan.base_rtt_s(h0, h1) == pytest.approx(2 * (0.002 + on_10))
    assert plan.base_rtt_s(h0, h2) == pytest.approx(2 * (0.002 + on_10) + 2 * (0.004 + on_20))
    assert plan.base_rtt_s() == plan.base_rtt_s(h0, h2)
    assert plan.bdp_bytes(h0, h2) == pytest.approx(10e6 * plan.base_rtt_s(h0, h2) / 8)
    assert plan.thresholds("p0-t0-0", 3).trim_at == round(20e6 * plan.base_rtt_s() / 8 / 1166)
    assert plan.base_rtt_s(h0, h2, pmtu_bytes=4096) > plan.base_rtt_s(h0, h2)


def test_no_rate__no_thresholds():
    plan = Plan(fabric_link=LinkSpeed(None, 0.001))
    assert not plan.limited and plan.bdp_bytes() is None and plan.nic_rate_bps is None
    assert plan.base_rtt_s() == pytest.approx(0.004)
    assert plan.thresholds("p0-t0-0", 1) is None
    only_fabric = Plan(fabric_link=LinkSpeed(10e6, 0.001))
    assert only_fabric.limited and only_fabric.thresholds("p0-t0-0", 1) is None
    assert only_fabric.thresholds("p0-t0-0", 3) is not None
    assert Plan().describe_links() == "mode srv6, links as fast as the machine"


@settings(max_examples=60, deadline=None)
@given(
    st.floats(1e3, 1e12),
    st.floats(0, 60),
    st.sampled_from(link_speeds.PATH_MTUS),
    st.sampled_from(list(Mode)),
    st.booleans(),
)
def test_thresholds__keep_their_order_whatever_the_speed(rate, delay, pmtu, mode, last_hop):
    speed = LinkSpeed(rate, delay)
    plan = Plan(mode=mode, host_link=speed, fabric_link=speed, pmtu_bytes=pmtu)
    thresholds = plan.thresholds("p0-t0-0", 1 if last_hop else 3)
    assert 0 < thresholds.ecn_min < thresholds.ecn_max < thresholds.trim_at < thresholds.drop_at < thresholds.data_limit
    assert thresholds.control_depth >= 8 and thresholds.last_hop is last_hop
    assert thresholds == plan.thresholds_at(rate, last_hop=last_hop)
    packets = plan.bdp_bytes() / plan.frame_bytes()
    if packets > 20:
        assert thresholds.trim_at / packets == pytest.approx(1.5 if last_hop else 1.0, rel=0.05)
        assert thresholds.drop_at / packets == pytest.approx(3.0, rel=0.05)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e6, 1e11), st.sampled_from(link_speeds.PATH_MTUS), st.sampled_from(list(Mode)), st.integers(1, 3))
def test_scaled__gives_the_round_trip_asked_for_or_says_why_not(rate, pmtu, mode, racks):
    with may_raise(PlanError) as errors:
        plan = Plan.scaled(2, racks, 2, 2, mode=mode, rate_bps=rate, pmtu_bytes=pmtu)
    if errors:
        assert "is not possible: serialising a packet of" in str(errors[0])
        return
    assert plan.base_rtt_s() == pytest.approx(0.010)
    assert plan.host_link == plan.fabric_link


def test_sizes__are_those_of_the_engines_codec():
    from mrc_testbed.hosts.engine.wire.codec import write_size
    from mrc_testbed.hosts.engine.wire.packets import Opcode, Sack
    from mrc_testbed.simulator.host import INNER_BYTES

    for pmtu in link_speeds.PATH_MTUS:
        packet_bytes = write_size(Opcode.WRITE_MIDDLE, pmtu, True)
        assert link_speeds.frame_bytes(pmtu, Mode.ECMP) == packet_bytes + 14
        assert link_speeds.frame_bytes(pmtu, Mode.SRV6) == packet_bytes + 54
    assert INNER_BYTES[Sack] == link_speeds.SACK_BYTES and 14 + packet_bytes - pmtu - 4 == link_speeds.TRIM_BYTES


def test_impossible_speeds__are_refused_by_name():
    with pytest.raises(PlanError, match=r"rate_bps = 0: give 1000 to 1e\+12 bits/s, or None"):
        LinkSpeed(0)
    with pytest.raises(PlanError, match="delay_s = inf: give 0 to 60 seconds"):
        LinkSpeed(None, float("inf"))
    with pytest.raises(PlanError, match=r"10 ms over 4 links of 1 Mb/s is not possible: .* takes 42.24 ms, with"):
        Plan.scaled(rate_bps=1e6)
