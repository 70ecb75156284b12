"""Placement of switches and hosts on machines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.topologies.plan import Plan
from mrc_testbed.topologies.servers import Machine, Servers, ServersError, place_nodes


def servers_of(count, **planes):
    names = [chr(ord("a") + number) for number in range(count)]
    return Servers(machines=[Machine(name=name, address=f"{name}.example", planes=planes.get(name)) for name in names])


def test_place__planes_whole_hosts_in_runs_and_only_nic_links_cross():
    plan = Plan()
    placement = place_nodes(plan, servers_of(3))
    assert placement.planes == {"a": (0, 1), "b": (2,), "c": (3,)}
    assert placement.hosts == {"a": ("h0", "h1"), "b": ("h2",), "c": ("h3",)}
    assert placement.describe("a") == "planes 0, 1 (8 switches), hosts h0 to h1"
    assert placement.describe("b") == "plane 2 (4 switches), host h2"
    hosts = {host.name for host in plan.hosts}
    assert all(crossing.link.lower.node in hosts for crossing in placement.crossings)
    assert len(placement.crossings) == 2 * 2 + 3 + 3  # h0 and h1 to planes 2 and 3, h2 and h3 to those not theirs


def test_place__planes_of_the_file_and_what_cannot_be():
    assert place_nodes(Plan(), servers_of(2, a=[3], b=[0, 1, 2])).planes == {"a": (3,), "b": (0, 1, 2)}
    assert place_nodes(Plan(), servers_of(2, a=[])).describe("a") == "hosts h0 to h1"
    with pytest.raises(ServersError, match="plane 4 of the machines' file: this fabric has planes 0 to 3"):
        place_nodes(Plan(), servers_of(1, a=[4]))
    with pytest.raises(ServersError, match="plane 3 is on no machine"):
        place_nodes(Plan(), servers_of(1, a=[0, 1, 2]))


@given(st.integers(1, 16), st.integers(1, 8), st.integers(1, 4), st.integers(1, 8))
def test_place__every_node_is_on_one_machine_and_loads_are_even(planes, racks, hosts, machines):
    plan = Plan(planes, racks, 2, hosts)
    placement = place_nodes(plan, servers_of(machines))
    names = [node for shares in (placement.hosts, placement.switches) for nodes in shares.values() for node in nodes]
    assert sorted(names) == sorted([*(h.name for h in plan.hosts), *(s.name for s in plan.switches)])
    for shares in (placement.planes, placement.hosts):
        counts = [len(share) for share in shares.values()]
        assert max(counts) - min(counts) <= 1
    assert all(
        placement.machine_of(link.lower.node) is placement.machine_of(link.upper.node)
        for link in plan.links
        if link not in [crossing.link for crossing in placement.crossings]
    )
