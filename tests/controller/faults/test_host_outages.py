"""Hosts that are down: all NIC links of a host are one fault, not one in each plane."""

import pytest

from mrc_testbed.controller.faults.correlator import FaultState
from mrc_testbed.controller.faults.fault_model import Fault
from mrc_testbed.controller.faults.host_outages import HostOutages
from mrc_testbed.controller.faults.path_segments import HostLinks
from mrc_testbed.controller.faults.timers import FaultTimers
from mrc_testbed.topologies.plan import Plan
from tests.controller.faults.test_correlator import Story

PLAN = Plan(planes=4)
H0 = HostLinks.from_plan(PLAN, "h0")


def nic_ports(host, planes=range(4)):
    """Return the T0s' ports of a host's links, which are what gNMI tells of."""
    links = PLAN.links_of("nic", host=host)
    return [link.upper.interface for link in links if link.plane in planes]


def outages():
    waits = []
    return HostOutages(PLAN, FaultTimers(), waits.append), waits


def update(hosts, down_count, now=1.0, explained_links=(), apart_s=0.0):
    """Take the first links of h0 as down, one after the other."""
    down_since = {link: now + number * apart_s for number, link in enumerate(H0.links[:down_count])}
    hosts.update(down_since, lambda link: link in explained_links, now)
    return hosts.dead_hosts


@pytest.mark.parametrize("down_count", [0, 1, 3])
def test_update__some_links_are_no_host(down_count):
    assert update(outages()[0], down_count) == frozenset()


def test_update__all_links_are_the_host():
    hosts, _ = outages()
    assert update(hosts, 4) == {H0} and hosts.links == set(H0.links)


def test_update__links_that_went_one_by_one_are_not():
    assert update(outages()[0], 4, apart_s=1.5) == frozenset()


def test_update__links_of_dead_switches_do_not_count():
    assert update(outages()[0], 4, explained_links=H0.links[:2]) == {H0}
    assert update(outages()[0], 4, explained_links=H0.links[:3]) == frozenset()


def test_update__a_host_that_comes_back_is_one_fault_for_a_while():
    hosts, waits = outages()
    update(hosts, 4)
    assert update(hosts, 2, now=2.0) == {H0} and waits == [3.0]
    assert update(hosts, 1, now=2.9) == {H0}
    assert update(hosts, 1, now=3.0) == frozenset()


def test_host__is_one_fault_of_no_plane_until_it_is_back():
    story = Story(planes=4)
    story.report_down(*nic_ports("h0"))
    assert story.active == ["host h0 down (all 4 NIC links down)"]
    (fault,) = story.faults.active()
    record = fault.to_json()
    assert (record["kind"], record["location"], record["plane"]) == ("host", "h0", None)
    assert record["evidence"][0]["count"] == 4
    story.report_up(*nic_ports("h0"))
    assert story.active == [] and fault.state is FaultState.CLEARED
    assert [line.split(" ", 1)[1].split(":")[0] for line in story.log] == ["raised 1", "cleared 1"]


def test_host__takes_up_the_faults_of_links_that_were_told_first():
    story = Story(planes=4)
    story.report_down(*nic_ports("h0", planes=(1,)))
    assert story.active == ["NIC-T0 link h0 p1-t0-0 down"]
    story.report_down(*nic_ports("h0", planes=(0, 2, 3)))
    assert story.active == ["host h0 down (all 4 NIC links down)"]
    assert [fault.kind for fault in story.faults.all_faults()] == ["host"]
    assert any("merged 1 into [" in line for line in story.log)


def test_host__that_comes_back_with_one_cable_cut_leaves_that_link():
    story = Story(planes=4)
    story.report_down(*nic_ports("h0"))
    story.wait()
    story.report_up(*nic_ports("h0", planes=(0, 1, 2)))
    assert story.active == ["host h0 down (all 4 NIC links down)"]
    story.advance_to(story.now + 2.0)
    assert story.active == ["NIC-T0 link h0 p3-t0-0 down"]


def test_host__beside_a_dead_t0_both_are_named():
    story = Story(planes=4)
    story.report_down(*story.all_links_of("p0-t0-0"))
    story.lose_stream("p0-t0-0")
    story.wait()
    story.report_down(*nic_ports("h0", planes=(1, 2, 3)))
    assert sorted(text.split(" (")[0] for text in story.active) == ["T0 p0-t0-0", "host h0 down"]


def test_rack__whose_t0s_are_off_has_no_dead_host():
    story = Story(planes=4)
    for plane in range(4):
        story.lose_stream(f"p{plane}-t0-0")
        story.report_down(*story.all_links_of(f"p{plane}-t0-0"))
    assert sorted(text.split(" (")[0] for text in story.active) == [f"T0 p{plane}-t0-0" for plane in range(4)]


def test_host__its_paths_are_no_faults_of_their_own():
    story = Story(planes=4)
    story.report_down(*nic_ports("h0"))
    story.wait()
    for plane in range(4):
        trace = story.faults.segmenter.t0_probe("h0", plane)
        story.faults.path(f"h0 T0 of {plane}", trace, "down", source="mapper", now=story.now)
    story.advance_to(story.now + 5.0)
    assert story.active == ["host h0 down (all 4 NIC links down)"]


def test_host__takes_no_paths_that_were_bad_before():
    """Check a black hole that is healed as a host that probed it dies, which happened on BMv2."""
    story = Story(planes=4)
    paths = [(f"{host} loop", story.faults.segmenter.t1_probe(host, 0, "p0-t1-0")) for host in ("h0", "h1")]
    for path in paths:
        story.faults.path(*path, "down", source="mapper", now=story.now)
    story.advance_to(10.0)
    assert len(story.active) == 1
    story.report_down(*nic_ports("h0"))
    died_at = story.now
    story.wait()
    story.faults.path(*paths[1], "ok", source="mapper", now=story.now)
    story.advance_to(20.0)
    earlier_fault, host_fault = story.faults.all_faults()
    assert (earlier_fault.state, earlier_fault.merged_into) == (FaultState.CLEARED, [])
    assert (host_fault.kind, host_fault.first_seen) == ("host", died_at)


def test_host__survives_a_restart_of_the_controller():
    story = Story(planes=4)
    story.report_down(*nic_ports("h0"))
    story.wait()
    record = story.faults.active()[0].to_json()
    successor = Story(planes=4)
    fault = Fault.from_json(record, successor.faults.segmenter)
    assert fault is not None and fault.causes == {H0} and fault.to_json() == record
    successor.faults.restore([record], 0.0, 10.0)
    successor.report_down(*nic_ports("h0"))
    assert successor.active == ["host h0 down (all 4 NIC links down)"]
    assert [fault.number for fault in successor.faults.active()] == [1]
