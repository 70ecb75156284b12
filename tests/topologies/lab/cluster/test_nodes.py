"""Nodes on other machines, without a machine: interfaces, and the links that are tunnels."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mrc_testbed.topologies.lab.cluster.nodes import RemoteInterfaces, VxlanLink
from mrc_testbed.topologies.lab.netdev import IFF_NOARP, IFF_UP


@pytest.mark.parametrize(
    ("flags", "calls"),
    [({"on": IFF_UP}, [("eth0", True)]), ({"clear": IFF_UP}, [("eth0", False)]), ({"on": IFF_NOARP}, [])],
)
def test_remote_interfaces__only_up_and_down_go_to_the_machine(flags, calls):
    requests = []
    RemoteInterfaces(lambda name, is_up: requests.append((name, is_up)), lambda name: True).set_flags("eth0", **flags)
    assert requests == calls


@pytest.mark.parametrize(("servers", "tunnels"), [(("m1", "m2"), [("a", "b")]), (("m1", "m1"), [])])
def test_vxlan_link__is_a_tunnel_between_machines_alone(servers, tunnels):
    requests = []
    link = object.__new__(VxlanLink)
    link._tunnel_between = lambda first, second: requests.append((first, second))
    link.node1, link.node2 = (SimpleNamespace(server=server) for server in servers)
    link.makeIntfPair("a", "b")
    assert requests == tunnels
