"""The plan: names, ports, addresses and EVs of mrc-protocol §8, and what it refuses."""

import json
import re
from ipaddress import IPv6Address

import pytest

from mrc_testbed.topologies.plan import CPU_PORT, INTERFACE_NAME_MAX, Plan, PlanError, carrier, make_ev
from tests.repository import ROOT
from tests.test_imports import CODE

DEFAULT = Plan()


def address(value):
    return str(IPv6Address(value))


def test_worked_example__of_section_8_3():
    """Source under T0 1, destination under T0 2, downlink 0x0b, plane 3, uplink 5."""
    plan = Plan(planes=4, racks=3, spines=6, hosts_per_rack=12)
    source, destination = plan.host("h12"), plan.host("h35")
    assert (source.rack, destination.rack, destination.downlink) == (1, 2, 0x0B)
    ev = make_ev(3, 5)
    assert ev == 0x0305
    template = plan.template(source, destination)
    assert address(template.address(ev)) == "fcbb:bb00:2301:1305:2302:330b::"
    assert address(template.address(ev | 1 << 16)) == "fcbb:bb00:2301:1305:2302:330b::"  # a tag changes nothing
    path = plan.path(source, destination, ev)
    assert path.nodes == ("h12", "p3-t0-1", "p3-t1-5", "p3-t0-2", "h35")
    after_each_hop = [carrier(0x1305, 0x2302, 0x330B), carrier(0x2302, 0x330B), carrier(0x330B)]
    assert [address(carrier_address) for carrier_address in after_each_hop] == [
        "fcbb:bb00:1305:2302:330b::",
        "fcbb:bb00:2302:330b::",
        "fcbb:bb00:330b::",
    ]
    assert plan.nic_address(destination, 3) == after_each_hop[-1]


def test_routes__walk_every_path_of_the_default_fabric():
    """Follow the uN tables hop by hop from every EV's address to the destination, over the path's links."""
    routes = {s.name: DEFAULT.srv6_routes(s) for s in DEFAULT.switches}
    for source in DEFAULT.hosts:
        for destination in DEFAULT.hosts:
            if source == destination:
                continue
            template = DEFAULT.template(source, destination)
            for ev in DEFAULT.evs(source, destination):
                path = DEFAULT.path(source, destination, ev)
                usids = [template.address(ev) >> shift & 0xFFFF for shift in (80, 64, 48, 32, 16)]
                for node, next_node, link in zip(path.nodes[1:], path.nodes[2:], path.links[1:], strict=False):
                    assert usids[0] == routes[node].own_usid
                    usids = [*usids[1:], 0]
                    port = dict(routes[node].next_hops)[usids[0]]
                    assert {p.interface for p in (link.lower, link.upper)} & {f"{node}-eth{port}"}
                    assert next_node in link.ends
                assert usids[0] == DEFAULT.nic_address(destination, ev >> 8) >> 80 & 0xFFFF


def test_probes__come_back_to_their_host():
    host = DEFAULT.host("h3")
    assert address(DEFAULT.t0_probe_template(host).address(make_ev(2, 1))) == "fcbb:bb00:2201:3201::"
    assert address(DEFAULT.t1_probe_template(host).address(make_ev(2, 1))) == "fcbb:bb00:2201:1201:2201:3201::"


def test_default__names_and_counts():
    assert str(DEFAULT) == "4 planes x (2 T0 + 2 T1), 4 hosts (2 a rack)"
    assert [h.name for h in DEFAULT.hosts] == ["h0", "h1", "h2", "h3"]
    assert len(DEFAULT.switches) == 16 and len(DEFAULT.links) == 32
    assert [s.name for s in DEFAULT.switches[:5]] == ["p0-t0-0", "p0-t0-1", "p0-t1-0", "p0-t1-1", "p1-t0-0"]
    assert [s.device_id for s in DEFAULT.switches] == list(range(1, 17))
    assert [p.interface for p in DEFAULT.ports("p1-t0-1")] == [f"p1-t0-1-eth{n}" for n in (1, 2, 3, 4)]
    assert [(p.number, p.interface) for p in DEFAULT.ports("h2")] == [(n + 1, f"h2-eth{n}") for n in range(4)]


@pytest.mark.parametrize("plan", [DEFAULT, Plan(2, 3, 2, 1), Plan(1, 1, 1, 2), Plan(8, 4, 4, 2), Plan(16, 2, 9, 3)])
def test_any_plan__interfaces_and_macs_are_unique_and_fit(plan):
    ports = [p for link in plan.links for p in (link.lower, link.upper)]
    assert len({p.interface for p in ports}) == len(ports)
    assert max(len(p.interface) for p in ports) <= INTERFACE_NAME_MAX
    assert len({plan.mac(p) for p in ports}) == len(ports)
    assert all(int(plan.mac(p)[:2], 16) & 3 == 2 for p in ports)  # locally administered, not multicast
    assert len({s.usid for s in plan.switches}) == len(plan.switches)
    for link in plan.links:
        assert plan.link_of_interface(link.lower.interface) == plan.link_of_interface(link.upper.interface) == link


@pytest.mark.parametrize("plan", [DEFAULT, Plan(1, 1, 1, 2), Plan(2, 90, 2, 90)])
def test_ip_interfaces__are_unique_and_inside_their_networks(plan):
    hosts = plan.hosts if len(plan.hosts) < 500 else (*plan.hosts[:100], *plan.hosts[-100:])
    interfaces = [interface for host in hosts for interface in plan.ip_interfaces(host)]
    assert len({interface.ip for interface in interfaces}) == 2 * len(hosts)
    for interface in interfaces:
        assert interface.ip not in (interface.network.network_address, interface.network.broadcast_address)


def test_evs__one_a_path_between_racks_and_one_a_plane_inside():
    h0, h1, h2 = (DEFAULT.host(n) for n in ("h0", "h1", "h2"))
    assert DEFAULT.evs(h0, h2) == (0x000, 0x001, 0x100, 0x101, 0x200, 0x201, 0x300, 0x301)
    assert DEFAULT.evs(h0, h1) == (0x000, 0x100, 0x200, 0x300)
    assert DEFAULT.path(h0, h1, 0x200).nodes == ("h0", "p2-t0-0", "h1")
    assert DEFAULT.evs_through(h0, h2, DEFAULT.link("p1-t1-1", "p1-t0-0")) == (0x101,)
    assert DEFAULT.evs_through(h0, h2, DEFAULT.link("h2", "p3-t0-1")) == (0x300, 0x301)
    assert DEFAULT.evs_through(h0, h2, "p2-t1-0") == (0x200,)


def test_spray_routes__cover_every_host_once():
    t0 = DEFAULT.spray_routes(DEFAULT.switch("p2-t0-1"))
    assert [(str(a), n, port) for a, n, port in t0.down_routes] == [("fd00:2:1::1", 128, 1), ("fd00:2:1:1::1", 128, 2)]
    assert t0.uplinks == (3, 4) and [(str(a), n) for a, n in t0.up_routes] == [("fd00:2::", 32)]
    t1 = DEFAULT.spray_routes(DEFAULT.switch("p2-t1-0"))
    assert [(str(a), n, port) for a, n, port in t1.down_routes] == [("fd00:2::", 48, 1), ("fd00:2:1::", 48, 2)]


@pytest.mark.parametrize(
    "dimensions, error",
    [
        ({"planes": 0}, "planes = 0: must be 1 to 16, because"),
        ({"planes": 17}, "planes = 17: must be 1 to 16"),
        ({"racks": 257}, "racks = 257: must be 1 to 256"),
        ({"spines": -1}, "spines = -1"),
        ({"hosts_per_rack": 2.5}, "hosts_per_rack = 2.5"),
        ({"planes": True}, "planes = True"),
        ({"planes": "4"}, "planes = '4'"),
        ({"planes": 16, "racks": 200, "spines": 100}, "characters and Linux takes 15: use fewer"),
        ({"hosts_per_rack": 256, "spines": 256}, "a T0 has at most 509 ports"),
    ],
)
def test_bad_dimensions__refused_by_name(dimensions, error):
    with pytest.raises(PlanError) as caught:
        Plan(**dimensions)
    assert error in str(caught.value)


def test_longest_names__are_named_when_they_do_not_fit():
    with pytest.raises(PlanError, match=r"interface 'p10-t0-100-eth10\d?' would have 16 characters"):
        Plan(planes=11, racks=101, spines=2, hosts_per_rack=8)


@pytest.mark.parametrize(
    "attempt, error",
    [
        (lambda p: p.host("h4"), "no host 'h4' (has: h0, h1, h2, h3)"),
        (lambda p: p.switch("h0"), "no switch 'h0' (has: p0-t0-0 ... p3-t1-1)"),
        (lambda p: p.link("p0-t0-0", "p1-t1-0"), "p0-t0-0 is linked to: h0, h1, p0-t1-0, p0-t1-1"),
        (lambda p: p.link("h0", "nobody"), "no node 'nobody'"),
        (lambda p: p.path(p.host("h0"), p.host("h2"), 0x402), "EV 0x0402 names no path from h0 to h2"),
        (lambda p: p.link_of_interface("eth0"), "no interface 'eth0'"),
        (lambda p: p.ports("nobody"), "no node 'nobody'"),
        (lambda p: Plan.from_json({"planets": 4}), "a plan has the keys planes, racks"),
        (lambda p: Plan.from_json([4]), "a plan has the keys"),
        (lambda p: carrier(1, 2, 3, 4, 5, 6, 7), "7 uSIDs do not fit"),
        (lambda p: Plan(racks=1, hosts_per_rack=1).first_remote_host("h0"), "only one host"),
    ],
)
def test_what_does_not_exist__is_answered_with_what_does(attempt, error):
    with pytest.raises(PlanError) as caught:
        attempt(DEFAULT)
    assert error in str(caught.value)


def test_json__there_and_back():
    assert Plan.from_json(json.loads(json.dumps(Plan(3, 2, 5, 1).to_json()))) == Plan(3, 2, 5, 1)
    assert DEFAULT.first_remote_host("h0").name == "h2"
    assert Plan(racks=1).first_remote_host("h0").name == "h1"
    assert DEFAULT.host_of_address(DEFAULT.address(DEFAULT.host("h3"), 2).packed) == (DEFAULT.host("h3"), 2)
    assert DEFAULT.host_of_address(bytes(16)) is None


def test_cpu_port__is_written_once_outside_the_switch():
    files = [path for folder in CODE for path in (ROOT / folder).rglob("*.py") if "switch" not in path.parts]
    assert [path.name for path in files if re.search(rf"= {CPU_PORT}\b", path.read_text())] == ["plan.py"]


def test_link_named__is_the_one_of_that_name():
    plan = Plan(2, 2, 2, 1)
    assert all(plan.link_named(link.name) is link for link in plan.links)
    with pytest.raises(PlanError):
        plan.link_named("p0-t0-0")
    assert plan.node_names[0] == "h0" and "p1-t1-1" in plan.node_names
