"""Traffic settings of a fabric on several machines, each by the traffic control of its own machine."""

import pytest

from mrc_testbed.topologies.lab.cluster.switches import ClusterTraffic
from mrc_testbed.topologies.lab.traffic_control import Setting, TrafficError
from mrc_testbed.topologies.plan import Plan
from mrc_testbed.topologies.servers import Machine, Servers, place_nodes
from tests.cli.prompt.session_doubles import Traffic

PLAN = Plan(2, 2, 1, 1)
PLACEMENT = place_nodes(PLAN, Servers(machines=[Machine(name=name, address=f"{name}.example") for name in "ab"]))


def traffic_of(lost=()):
    def require(name):
        if name in lost:
            raise TrafficError(f"machine {name} is lost: its ssh connection has ended")

    parts = {name: Traffic(PLAN) for name in "ab"}
    return ClusterTraffic(PLAN, PLACEMENT, parts, require, {"switchd of a": "a", "switchd of b": "b"}), parts


RATE_BPS = 5_000_000


def rate(interface):
    return Setting(interface, "rate-bps", RATE_BPS)


def test_apply__goes_to_the_machine_of_each_port():
    traffic, parts = traffic_of()
    traffic.apply([rate("p0-t0-0-eth1"), rate("p1-t0-0-eth1")])
    assert parts["a"].read("p0-t0-0-eth1").rate_bps == parts["b"].read("p1-t0-0-eth1").rate_bps == RATE_BPS
    assert parts["a"].read("p1-t0-0-eth1").rate_bps is None
    assert traffic.read("p1-t0-0-eth1").rate_bps == RATE_BPS


def test_apply__a_machine_that_is_lost_is_named_and_the_others_are_set():
    traffic, parts = traffic_of(lost="a")
    with pytest.raises(TrafficError, match="machine a is lost"):
        traffic.apply([rate("p0-t0-0-eth1"), rate("p1-t0-0-eth1")])
    assert parts["b"].read("p1-t0-0-eth1").rate_bps == RATE_BPS
    with pytest.raises(TrafficError, match="machine a is lost"):
        traffic.read("p0-t0-0-eth1")


def test_lost__a_daemon_that_died_is_told_for_its_machine_alone():
    traffic, parts = traffic_of()
    traffic.lost("switchd of b", "switchd of b was killed by SIGKILL")
    assert parts["b"].death_reason == "switchd of b was killed by SIGKILL" and parts["a"].death_reason is None
    traffic.on_restarted_part("switchd of b")
    assert parts["b"].death_reason is None
