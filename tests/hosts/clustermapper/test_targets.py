"""Targets and loops that each Clustermapper probes, by plan."""

from itertools import pairwise

import pytest

from mrc_testbed.hosts.clustermapper.targets import COVER, TargetKind, loops_of, targets_of
from mrc_testbed.topologies.plan import Plan, usid


@pytest.mark.parametrize("dimensions", [(1, 1, 1, 1), (4, 2, 2, 2), (2, 3, 4, 1), (3, 2, 5, 4), (8, 4, 4, 8)])
def test_targets__every_link_is_covered_and_t1s_by_two_hosts_where_there_are_two(dimensions):
    plan = Plan(*dimensions)
    hosts_of = {link: [] for link in plan.links}
    for target in targets_of(plan):
        hosts_of[target.link].append(target.host)
    for link, hosts in hosts_of.items():
        is_nic = link.lower.node.startswith("h")
        assert len(set(hosts)) == (1 if is_nic else min(COVER, plan.hosts_per_rack)), link.name


def test_targets__nobody_has_much_more_to_do_than_another():
    count = {}
    for target in targets_of(Plan(4, 2, 4, 8)):
        count[target.host] = count.get(target.host, 0) + 1
    assert max(count.values()) <= min(count.values()) + 2


def test_targets__without_srv6_only_the_t0s():
    targets = targets_of(Plan(2, 2, 2, 2, mode="ecmp"))
    assert {t.kind for t in targets} == {TargetKind.T0} and all(t.outer is None for t in targets)
    assert len(targets) == 8


def test_targets__addresses_written_by_hand():
    targets = {(t.host, t.switch): t for t in targets_of(Plan(4, 2, 6, 2))}
    assert f"{targets['h3', 'p3-t0-1'].outer:032x}" == "fcbbbb00" + "2301" + "3301" + "0000" * 4
    assert f"{targets['h2', 'p3-t1-5'].outer:032x}" == "fcbbbb00" + "2301" + "1305" + "2301" + "3300" + "0000" * 2


def test_targets__their_addresses_lead_there_and_back():
    """Each switch of the plan takes its uSID off and looks the next one up (§8.1)."""
    plan = Plan(3, 3, 4, 2)
    targets = targets_of(plan)
    for target in (*targets, *loops_of(plan, targets)):
        usids = [target.outer >> 80 - 16 * i & 0xFFFF for i in range(6)]
        node, switches = plan.t0_name(target.plane, plan.host(target.host).rack), []
        while node.startswith("p"):
            switches.append(node)
            routes = plan.srv6_routes(plan.switch(node))
            assert usids[0] == routes.own_usid
            usids = [*usids[1:], 0]
            port = dict(routes.next_hops)[usids[0]]
            interface = f"{node}-eth{port}"
            link = plan.link_of_interface(interface)
            node = next(iter(link.ends - {node}))
        assert node == target.host
        assert usids == [usid(3, target.plane, plan.host(target.host).downlink), 0, 0, 0, 0, 0]
        assert (target.host, *switches, target.host) == target.walk
        expected_switches = {TargetKind.T0: [target.switch], TargetKind.T1: [switches[0], target.switch, switches[0]]}
        assert switches == expected_switches.get(target.kind, switches)
        assert target.kind is not TargetKind.LOOP or len(switches) == 5


def test_loops__each_direction_of_each_link_by_each_host_that_probes_it():
    plan = Plan(2, 3, 3, 2)
    targets = targets_of(plan)
    for target in [target for target in targets if target.kind is TargetKind.T1]:
        loops = [loop for loop in loops_of(plan, targets) if loop.t1_target == target.number]
        t0, t1 = target.walk[1], target.switch
        assert {loop.choice for loop in loops} == {0, 1, 2}
        for choice in range(3):
            pair = [loop for loop in loops if loop.choice == choice]
            assert {loop.direction for loop in pair} == {f"{t0} -> {t1}", f"{t1} -> {t0}"}
            crossings = [list(pairwise(loop.walk)) for loop in pair]
            assert ((t0, t1) in crossings[0]) != ((t1, t0) in crossings[0])
            assert set(crossings[0][1:-1]) == {(b, a) for a, b in crossings[1][1:-1]}  # the same round, the other way


@pytest.mark.parametrize("dimensions", [(1, 1, 2, 2), (1, 2, 1, 2)])
def test_loops__none_where_there_is_no_way_round(dimensions):
    plan = Plan(*dimensions)
    assert loops_of(plan, targets_of(plan)) == ()
    assert loops_of(Plan(mode="ecmp"), targets_of(Plan(mode="ecmp"))) == ()
