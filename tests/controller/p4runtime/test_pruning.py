"""Entries pruned by liveness: dead ports in every mode, groups by rack in spray modes."""

from mrc_testbed.controller.p4runtime.pruning import live_entries, reach
from mrc_testbed.controller.reconvergence import PlaneFailures
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(planes=2, racks=3, spines=3, hosts_per_rack=1)


def lines(program, catalog, switch, failures):
    return [str(entry) for entry in live_entries(PLAN, program, PLAN.switch(switch), catalog, failures)]


def cut(*links):
    return PlaneFailures(down_links=frozenset(PLAN.link(*link) for link in links))


def test_alive__nothing(spray, srv6):
    for switch in PLAN.switches:
        assert live_entries(PLAN, "spray", switch, spray, PlaneFailures()) == ()
        assert live_entries(PLAN, "srv6", switch, srv6, PlaneFailures()) == ()


def test_srv6__both_ends_of_a_dead_link_and_no_route(srv6):
    failures = cut(("p1-t0-2", "p1-t1-0"))
    assert lines("srv6", srv6, "p1-t0-2", failures) == ["dead_ports egress_port=2 dead()"]
    assert lines("srv6", srv6, "p1-t1-0", failures) == ["dead_ports egress_port=3 dead()"]
    assert lines("srv6", srv6, "p1-t0-1", failures) == []


def test_spray__other_racks_avoid_the_t1_that_lost_a_rack(spray):
    failures = cut(("p1-t0-2", "p1-t1-0"))
    for t0 in ("p1-t0-0", "p1-t0-1"):
        assert lines("spray", spray, t0, failures) == [
            "uplink_selector group 4: member 3 weight 1 watch 3, member 4 weight 1 watch 4",
            "uplinks uplink_group=4 group(4)",
            "route dst_addr=fd00:1:2::/48 spray(uplink_group=4)",
        ]
    assert lines("spray", spray, "p1-t0-2", failures) == ["dead_ports egress_port=2 dead()"]
    assert lines("spray", spray, "p0-t0-0", failures) == []


def test_spray__a_link_that_just_came_up_is_no_dead_port_and_not_in_the_groups_yet(spray):
    failures = PlaneFailures(fresh_links=frozenset({PLAN.link("p1-t0-2", "p1-t1-0")}))
    assert lines("spray", spray, "p1-t0-2", failures) == []
    assert len(lines("spray", spray, "p1-t0-0", failures)) == 3


def test_spray__a_rack_nobody_reaches_keeps_all(spray):
    failures = cut(*(("p1-t0-2", f"p1-t1-{k}") for k in range(3)))
    assert reach(PLAN, 1, 2, failures) == ()
    assert lines("spray", spray, "p1-t0-0", failures) == []


def test_spray__a_silent_t1_is_avoided_towards_every_rack(spray):
    failures = PlaneFailures(silent_causes=frozenset({PLAN.switch("p0-t1-1")}))
    assert [reach(PLAN, 0, rack, failures) for rack in range(3)] == [(0, 2)] * 3
    assert sum("route" in line for line in lines("spray", spray, "p0-t0-0", failures)) == 2
