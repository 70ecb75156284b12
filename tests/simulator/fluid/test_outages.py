"""Outages of faults: the verbs of a FaultTarget as intervals."""

import pytest

from mrc_testbed.faults.target import FaultError
from mrc_testbed.simulator.fluid.outages import DOWNLINK, PORT, RACK, SILENT_PORT, UPLINK, FluidFaultTarget
from mrc_testbed.simulator.fluid.shape import FabricShape
from mrc_testbed.topologies.plan import Outline, Plan, PlanError
from tests.topologies.renamed_plan import renamed_plan

SHAPE = FabricShape(2, 2, 3, 2, 10e6, 0.01, 1166, 1024)
INF = float("inf")


@pytest.fixture
def target() -> FluidFaultTarget:
    return FluidFaultTarget(Plan(2, 2, 3, 2), SHAPE)


def target_at(target: FluidFaultTarget, time_s: float) -> FluidFaultTarget:
    target.advance(time_s)
    return target


def test_cut_and_undo__both_ways_between_them(target):
    holds = target_at(target, 1.0).cut("p1-t0-0", "p1-t1-2")
    target_at(target, 3.0).undo(holds)
    outages = target.finish(9.0)
    assert outages.intervals_of(UPLINK, 1, 0, 2) == outages.intervals_of(DOWNLINK, 1, 0, 2) == [(1.0, 3.0)]
    assert outages.of_path(1, 0, 1, 2) == [(1.0, 3.0)] == outages.of_path(1, 1, 0, 2)
    assert outages.of_path(1, 0, 1, 1) == []


def test_faults_that_overlap__until_the_last_of_them_ends(target):
    first = target_at(target, 1.0).cut("p0-t0-0", "p0-t1-0")
    second = target_at(target, 2.0).swallow("p0-t0-0", "p0-t1-0", both_ways=True)
    target_at(target, 3.0).undo(first)
    target_at(target, 5.0).undo(second)
    assert target.finish(9.0).intervals_of(UPLINK, 0, 0, 0) == [(1.0, 5.0)]


def test_one_way__only_those_that_go_that_way(target):
    target_at(target, 1.0).swallow("p0-t1-0", "p0-t0-1", both_ways=False)
    outages = target.finish(9.0)
    assert outages.of_path(0, 0, 1, 0) == [(1.0, INF)]
    assert outages.of_path(0, 1, 0, 0) == []


def test_t1_off__every_path_over_it(target):
    holds = target_at(target, 1.0).power_off("p0-t1-1")
    target_at(target, 2.0).undo(holds)
    outages = target.finish(9.0)
    assert outages.of_path(0, 0, 1, 1) == outages.of_path(0, 1, 0, 1) == [(1.0, 2.0)]
    up_dead, down_dead = outages.ever_dead()
    assert up_dead.sum() == 2 and down_dead.sum() == 0


def test_t0_off__ports_of_its_hosts_and_its_links(target):
    target_at(target, 1.0).power_off("p1-t0-1")
    outages = target.finish(9.0)
    assert outages.intervals_of(PORT, 1, 2) == outages.intervals_of(PORT, 1, 3) == [(1.0, INF)]
    assert outages.of_ports(1, 0, 3) == [(1.0, INF)] and outages.of_ports(1, 0, 1) == []
    assert outages.hosts_at_fault()[1].tolist() == [False, False, True, True]


def test_blackhole_of_a_t0__nobody_knows(target):
    target_at(target, 1.0).blackhole("p0-t0-0")
    outages = target.finish(9.0)
    assert outages.intervals_of(RACK, 0, 0) == [(1.0, INF)]
    assert outages.of_ends(0, 1, 2) == [(1.0, INF)] and outages.of_ports(0, 1, 2) == []


def test_nic_links__with_and_without_a_port_that_tells(target):
    target_at(target, 1.0).cut("h1", "p0-t0-0")
    target_at(target, 2.0).swallow("h2", "p1-t0-1", both_ways=True)
    outages = target.finish(9.0)
    assert outages.intervals_of(PORT, 0, 1) == [(1.0, INF)] and outages.intervals_of(SILENT_PORT, 1, 2) == [(2.0, INF)]


def test_links__of_names_of_ones_own() -> None:
    plan = renamed_plan(Plan(2, 2, 3, 2))
    target = FluidFaultTarget(plan, SHAPE)
    target_at(target, 1.0).cut("p-gpu1", "hub1")
    target_at(target, 2.0).cut("hub2", "hub4")
    outages = target.finish(9.0)
    assert outages.intervals_of(PORT, 0, 1) == [(1.0, INF)]
    assert outages.intervals_of(UPLINK, 0, 1, 1) == [(2.0, INF)]


def test_flaps_reboot_and_restore(target):
    target_at(target, 1.0).flap([("p0-t0-0", "p0-t1-0")], down_s=0.5, up_s=0.5, times=3)
    target_at(target, 1.0).reboot("p1-t1-0", 0.25)
    target_at(target, 1.0).cut("p1-t0-0", "p1-t1-1")
    target_at(target, 1.75).restore("p1-t0-0", "p1-t1-1")
    outages = target.finish(9.0)
    assert outages.intervals_of(UPLINK, 0, 0, 0) == [(1.0, 1.5), (2.0, 2.5), (3.0, 3.5)]
    assert outages.of_path(1, 0, 1, 0) == [(1.0, 1.25)]
    assert outages.intervals_of(UPLINK, 1, 0, 1) == [(1.0, 1.75)]


def test_heal__ends_everything(target):
    target_at(target, 1.0).power_off("p0-t1-0")
    target_at(target, 1.0).cut("p1-t0-0", "p1-t1-1")
    target_at(target, 2.0).heal()
    outages = target.finish(9.0)
    assert outages.of_path(0, 0, 1, 0) == outages.of_path(1, 0, 1, 1) == [(1.0, 2.0)]


def test_what_a_fluid_has_not__is_refused_by_name(target):
    with pytest.raises(FaultError, match="one way"):
        target.swallow("h0", "p0-t0-0", both_ways=False)
    with pytest.raises(FaultError, match="rate or delay"):
        target.set_line("p0-t0-0", "p0-t1-0", rate_bps=1e6)
    with pytest.raises(PlanError, match="no link"):
        target.cut("p0-t0-0", "p1-t1-0")


def test_outline__places_of_a_million_links():
    shape = FabricShape(8, 512, 256, 256, 100e9, 1e-5, 4238, 4096)
    target = FluidFaultTarget(Outline(8, 512, 256, 256), shape)
    target_at(target, 1.0).cut("p7-t0-511", "p7-t1-255")
    assert target.finish(2.0).intervals_of(UPLINK, 7, 511, 255) == [(1.0, INF)]
