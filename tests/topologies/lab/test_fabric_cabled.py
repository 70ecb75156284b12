"""A fabric whose links are cables, as BMv2 needs them.

Cut, restored, powered, set down by hand, from the CLI too.
"""

from __future__ import annotations

import os

import pytest

from mrc_testbed.ipc.rundir import interfaces_of_group
from mrc_testbed.topologies.lab.netdev import IFF_UP
from mrc_testbed.topologies.plan import Plan
from tests.cables import wait_until
from tests.topologies.lab.fabric_doubles import bare_fabric, commands

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and interfaces"),
]
PLAN = Plan(2, 2, 2, 1)
UPLINK = PLAN.link("p0-t0-0", "p0-t1-0")
NIC = PLAN.link("h0", "p1-t0-0")


@pytest.fixture(scope="module")
def fabric(tmp_path_factory):
    with bare_fabric(tmp_path_factory.mktemp("cabled") / "run", PLAN, has_cables=True) as fabric:
        yield fabric
        group = fabric.run_dir.state.group
        assert len(interfaces_of_group(group)) == len(fabric.run_dir.state.interfaces)
    assert interfaces_of_group(group) == []


@pytest.fixture(autouse=True)
def heal_after_test(fabric):
    yield
    fabric.inject.heal()
    assert all(fabric.link_is_up(link) for link in PLAN.links)


def admin_up(fabric) -> bool:
    """Return whether no port of a switch is down itself, whatever happened to its link."""
    return all(fabric.switches["p0-t0-0"].devices.flags(p) & IFF_UP for s in PLAN.switches for p in _ports(s.name))


def _ports(switch: str) -> list[str]:
    return [port.interface for port in PLAN.ports(switch)]


@pytest.mark.parametrize("link", [UPLINK, NIC], ids=lambda link: link.name)
def test_cut_and_restored(fabric, link):
    fabric.link(link.upper.node, link.lower.node, is_up=False)
    assert [candidate.name for candidate in PLAN.links if not fabric.link_is_up(candidate)] == [link.name] and admin_up(
        fabric
    )
    fabric.link(link.upper.node, link.lower.node, is_up=True)
    assert fabric.link_is_up(link)
    fabric.link_port(link.upper.node, link.upper.interface, is_up=False)
    assert not fabric.link_is_up(link) and admin_up(fabric)
    fabric.link_port(link.upper.node, link.upper.interface, is_up=True)
    assert fabric.link_is_up(link)


def test_power__takes_the_carrier_of_neighbours_and_leaves_cut_links_cut(fabric):
    fabric.link("p0-t0-0", "p0-t1-0", is_up=False)
    fabric.power("p0-t1-0", False)
    assert [fabric.link_is_up(PLAN.link(t0, "p0-t1-0")) for t0 in ("p0-t0-0", "p0-t0-1")] == [False, False]
    assert admin_up(fabric)
    fabric.power("p0-t1-0", True)
    assert [fabric.link_is_up(PLAN.link(t0, "p0-t1-0")) for t0 in ("p0-t0-0", "p0-t0-1")] == [False, True]


def test_losses__are_settings_of_the_cable(fabric):
    fault = fabric.inject.one_way_cut("p0-t0-0", "p0-t1-0")
    assert fabric.traffic.read("p0-t0-0-eth2").output.loss == 1.0
    fabric.inject.undo(fault)
    assert fabric.traffic.read("p0-t0-0-eth2").output.loss == 0.0
    fabric.inject.loss("p0-t0-0", "p0-t1-0", 0.25)
    assert fabric.traffic.read("p0-t1-0-eth1").output.loss == fabric.traffic.read("p0-t0-0-eth2").output.loss == 0.25


def test_by_hand__in_the_cli_it_says_what_happened_and_how_to_go_on(fabric, tmp_path):
    output, failed = commands(
        fabric,
        tmp_path,
        "p0-t0-0 ip link set p0-t0-0-eth2 down",
        "py __import__('time').sleep(1)",
        "py str(fabric.link_is_up(fabric.plan.link('p0-t0-0', 'p0-t1-0')))",
        "link p0-t0-0 p0-t1-0 up",
        "py str(fabric.link_is_up(fabric.plan.link('p0-t0-0', 'p0-t1-0')))",
    )
    assert not failed
    assert "p0-t0-0-eth2 was set down by hand. BMv2 would hear nothing" in output
    assert "`link p0-t0-0 p0-t1-0 up` joins it" in output
    assert [line for line in output.splitlines() if line in ("True", "False")] == ["False", "True"] and admin_up(fabric)


def test_by_hand__a_nic_set_down_takes_the_carrier_of_its_switch_port(fabric):
    fabric.hosts["h0"].cmd("ip link set h0-eth1 down")
    port = fabric.switches["p1-t0-0"].devices
    wait_until(
        lambda: not port.is_up("p1-t0-0-eth1"), "its switch port down"
    )  # a moment after the link: `Watch` follows
    assert not fabric.link_is_up(NIC) and admin_up(fabric)
    fabric.hosts["h0"].cmd("ip link set h0-eth1 up")
    wait_until(lambda: fabric.link_is_up(NIC), "up")
