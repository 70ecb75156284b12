"""Live and virtual fabrics take rates, delays and thresholds from the same plan."""

import pytest

from mrc_testbed.simulator import scaled_profiles
from mrc_testbed.simulator.planned_fabric import fabric_of, link_profile, queue_profile
from mrc_testbed.simulator.profiles import UNLIMITED_QUEUES
from mrc_testbed.topologies.lab.traffic_control import plan_settings
from mrc_testbed.topologies.plan import LinkSpeed, Mode, Plan

SLOW = Plan(2, 2, 2, 1, host_link=LinkSpeed(10e6, 0.0005), fabric_link=LinkSpeed(5e6, 0.001), pmtu_bytes=1024)


def test_every_port__has_what_the_live_switch_is_told():
    fabric = fabric_of(SLOW)
    planned_values = {
        (plan_setting.interface, plan_setting.figure): plan_setting.value
        for plan_setting in plan_settings(SLOW)
        if plan_setting.priority is None
    }
    for switch in SLOW.switches:
        for port in SLOW.ports(switch.name):
            (far,) = SLOW.link_of_interface(port.interface).ends - {switch.name}
            virtual_port = fabric.port_towards(switch.name, far)
            assert virtual_port.line.rate_bps == planned_values[port.interface, "rate-bps"]
            assert virtual_port.line.delay_s * 1e6 == pytest.approx(planned_values[port.interface, "delay-us"])
            limits = SLOW.thresholds(switch, port.number)
            profile = queue_profile(SLOW, limits)
            assert profile.trim_bytes // SLOW.frame_bytes() == limits.trim_at
            assert profile.data_bytes > profile.trim_bytes > profile.ecn_max_bytes > profile.ecn_min_bytes


def test_scaled__both_ways_to_annex_c_agree():
    """The recipe for experiments (bytes) and the plan (packets): within half a packet of each other."""
    plan, recipe = Plan.scaled(), scaled_profiles(4)
    frame = plan.frame_bytes()
    assert link_profile(plan) == recipe.links or link_profile(plan).nic.delay_s == pytest.approx(
        recipe.links.nic.delay_s
    )
    last_hop = queue_profile(plan, plan.thresholds("p0-t0-0", 1))
    fabric_queue = queue_profile(plan, plan.thresholds("p0-t0-0", 3))
    for planned_value, recipe_value in [
        (fabric_queue.trim_bytes, recipe.queues.trim_bytes),
        (last_hop.trim_bytes, recipe.queues.trim_lasthop_bytes),
        (fabric_queue.ecn_min_bytes, recipe.queues.ecn_min_bytes),
        (fabric_queue.ecn_max_bytes, recipe.queues.ecn_max_bytes),
        (fabric_queue.data_bytes, recipe.queues.data_bytes),
    ]:
        assert abs(planned_value - recipe_value) <= frame / 2
    assert abs(fabric_queue.control_bytes - recipe.queues.control_bytes) <= plan.trim_bytes / 2
    assert plan.base_rtt_s() == pytest.approx(recipe.rtt_s) and plan.bdp_bytes() == pytest.approx(recipe.bdp_bytes)


def test_no_rate__no_thresholds():
    assert queue_profile(Plan(), Plan().thresholds("p0-t0-0", 1)) is UNLIMITED_QUEUES


@pytest.mark.parametrize("mode", list(Mode))
def test_a_write__arrives_in_every_mode_and_takes_what_the_links_take(mode):
    fabric = fabric_of(Plan.scaled(2, 2, 2, 1, mode=mode), seed=3)
    sender, _ = fabric.connect("h0", "h1")
    target_buffer = bytearray(100_000)
    region = fabric.host("h1").endpoint.register(target_buffer)
    data = bytes(range(250)) * 400
    sender.post_write(data, region.va, region.rkey, now=fabric.now)
    assert fabric.run_until(lambda: not sender.outstanding(), limit_s=20)
    assert target_buffer == data
    assert fabric.now > len(data) * 8 / (2 * 10e6)
