"""Traffic settings that a plan gives to switches, and their gNMI leaves."""

from mrc_testbed.switch.device import traffic_paths
from mrc_testbed.topologies.lab import traffic_control, traffic_control_gnmi
from mrc_testbed.topologies.lab.traffic_control import Setting, plan_settings
from mrc_testbed.topologies.plan import LinkSpeed, Plan

PLAN = Plan(2, 2, 2, 1, host_link=LinkSpeed(10e6, 0.001), fabric_link=LinkSpeed(20e6, 0.0005), pmtu_bytes=1024)


def by_port(settings):
    out = {}
    for setting in settings:
        location = setting.direction or ("port" if setting.priority is None else setting.priority)
        out.setdefault(setting.interface, {})[location, setting.figure] = setting.value
    return out


def test_plan_settings__each_direction_of_each_link_is_delayed_once():
    values = by_port(plan_settings(PLAN))
    assert set(values) == set(traffic_control.switch_ports(PLAN))
    delays = {}
    for link in PLAN.links:
        for end in (link.lower, link.upper):
            interface, way = traffic_control.directions_of(PLAN, link, end.node)
            delays[link.name, end.node] = values[interface].pop((way, "delay-us"))
    assert set(delays.values()) == {1000, 500} and len(delays) == 2 * len(PLAN.links)
    assert not any(figure == "delay-us" for port in values.values() for _, figure in port)
    assert delays["h0 p0-t0-0", "h0"] == 1000 and delays["p0-t0-0 p0-t1-1", "p0-t1-1"] == 500


def test_plan_settings__rates_and_depths_are_those_of_the_plan():
    values = by_port(plan_settings(PLAN))
    last_hop, fabric = PLAN.thresholds("p0-t0-0", 1), PLAN.thresholds("p0-t0-0", 2)
    assert values["p0-t0-0-eth1"] == {
        ("port", "rate-bps"): 10_000_000,
        (0, "max-packets"): last_hop.data_limit,
        (7, "max-packets"): last_hop.control_depth,
        ("output", "delay-us"): 1000,
        ("input", "delay-us"): 1000,
    }
    assert values["p1-t1-1-eth2"] == {
        ("port", "rate-bps"): 20_000_000,
        (0, "max-packets"): fabric.data_limit,
        (7, "max-packets"): fabric.control_depth,
        ("output", "delay-us"): 500,
    }


def test_plan_settings__nothing_for_an_unlimited_plan_but_all_when_complete():
    assert plan_settings(Plan()) == []
    complete = plan_settings(Plan(), Plan().ports("p0-t1-0"), complete=True)
    assert {setting.value for setting in complete} == {0, ""} and {setting.interface for setting in complete} == {
        "p0-t1-0-eth1",
        "p0-t1-0-eth2",
    }
    values = by_port(plan_settings(PLAN, PLAN.ports("p0-t1-0"), complete=True))["p0-t1-0-eth1"]
    assert values["port", "rate-bps"] == 20_000_000 and values["input", "delay-us"] == 0 and values[3, "max-bytes"] == 0


def test_leaves__are_exactly_what_the_switch_serves():
    """Our names of paths against the switch's table of them, which this folder may not import."""
    leaves = {traffic_control_gnmi.leaf_of(default) for default in traffic_control.defaults("x")}
    assert leaves == set(traffic_paths.CONFIG_LEAVES)
    assert set(traffic_paths.QUEUE_STATE) == set(traffic_control_gnmi.QUEUE_STATES)
    assert set(traffic_paths.IMPAIRMENT_STATE) == set(traffic_control_gnmi.CABLE_STATES)
    assert (traffic_paths.PRIORITIES, traffic_paths.DIRECTIONS) == (
        traffic_control.PRIORITIES,
        traffic_control.DIRECTIONS,
    )
    assert traffic_paths.PATTERN_MAX == traffic_control.PATTERN_MAX and traffic_paths.PPM == traffic_control.PPM


def test_paths__there_and_back():
    for default in traffic_control.defaults("p0-t0-0-eth1"):
        leaf = traffic_control_gnmi.leaf_of(default)
        path = traffic_control_gnmi.path_of(default.interface, leaf)
        assert traffic_control_gnmi.leaf_at(traffic_control_gnmi.gnmi.Path(), path) == (default.interface, leaf)
    assert traffic_control_gnmi.leaf_at(traffic_control_gnmi.gnmi.Path(), traffic_control_gnmi.gnmi.Path()) is None


def test_setting__is_data():
    assert Setting("a", "rate-bps", 1) == Setting("a", "rate-bps", 1, None, None)
