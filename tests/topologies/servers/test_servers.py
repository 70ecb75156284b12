"""The machines' file, its mistakes, and which machine holds what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.topologies.plan import Plan
from mrc_testbed.topologies.servers import Machine, Servers, ServersError, place, read

GOOD = """
user: root
port: 2222
machines:
  - {name: a, address: 192.0.2.11}
  - name: b
    address: b.example
    port: 22
    planes: [3]
  - {name: here, address: local, underlay: 192.0.2.10}
"""

ONE = "machines:\n  - {name: a, address: b}\n"
TWO = "machines:\n  - {name: a, address: b"


def read_text(tmp_path, text):
    path = tmp_path / "servers.yaml"
    path.write_text(text)
    return read(path)


def test_read__keys_of_all_machines_and_each_ones_own(tmp_path):
    servers = read_text(tmp_path, GOOD)
    assert [(one.name, one.user, one.port, one.is_local) for one in servers.machines] == [
        ("a", "root", 2222, False),
        ("b", "root", 22, False),
        ("here", "root", 2222, True),
    ]
    assert servers.machine("b").planes == [3]
    with pytest.raises(ServersError, match=r"no machine 'x' \(has: a, b, here"):
        servers.machine("x")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "a mapping with `machines:`"),
        ("- a\n", "a mapping with `machines:`"),
        ("user: root\n", "has no `machines:`"),
        ("machines: []\n", "line 1: machines: list should have at least 1 item"),
        ("machines:\n  - {name: a}\n", r"line 2: machines.0.address: field required"),
        (f"{ONE}  - {{name: c, address: d, adress: e}}\n", r"line 3: .* no such key \(has: name"),
        ("machnes:\n  - {name: a, address: b}\n", r"no such key \(has: machines, user, port"),
        ("machines:\n  - {name: a, address: '-oProxyCommand=x'}\n", "line 2: machines.0.address"),
        ("machines:\n  - {name: a, address: b, planes: [-1]}\n", "line 2: machines.0.planes.0: .*or equal to 0"),
        ("machines:\n  - {name: a, address: b, underlay: nowhere}\n", "machines.0.underlay: .*IPv4 or IPv6"),
        ("machines:\n  - {name: a, address: b, python: bin/python}\n", "machines.0.python"),
        ("machines:\n  - {name: a, address: b}\n  - {name: a, address: c}\n", "name a stands twice"),
        ("planes: [1]\n" + ONE, r"planes: no such key"),
        (f"{TWO}, planes: [1]}}\n  - {{name: c, address: c, planes: [1]}}\n", "plane 1 stands twice"),
        ("machines:\n  - {name: a, address: local}\n  - {name: c, address: local}\n", "more than one machine has"),
        ("machines: [{name: a, address: b}\n", "line 2: "),
        ("machines: \x00\n", "not YAML"),
    ],
)  # fmt: skip
def test_read__mistakes_are_told_with_file_and_line(tmp_path, text, what):
    with pytest.raises(ServersError, match=what) as told:
        read_text(tmp_path, text)
    assert "servers.yaml" in str(told.value)


def test_read__no_file_and_no_text(tmp_path):
    with pytest.raises(ServersError, match=r"No such file or directory: give a file of machines"):
        read(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ServersError, match="not UTF-8 text"):
        read(tmp_path / "bytes.yaml")


def servers_of(count, **planes):
    names = [chr(ord("a") + number) for number in range(count)]
    return Servers(machines=[Machine(name=name, address=f"{name}.example", planes=planes.get(name)) for name in names])


def test_place__planes_whole_hosts_in_runs_and_only_nic_links_cross():
    plan = Plan()
    placement = place(plan, servers_of(3))
    assert placement.planes == {"a": (0, 1), "b": (2,), "c": (3,)}
    assert placement.hosts == {"a": ("h0", "h1"), "b": ("h2",), "c": ("h3",)}
    assert placement.describe("a") == "planes 0, 1 (8 switches), hosts h0 to h1"
    assert placement.describe("b") == "plane 2 (4 switches), host h2"
    hosts = {host.name for host in plan.hosts}
    assert all(one.link.lower.node in hosts for one in placement.crossings)
    assert len(placement.crossings) == 2 * 2 + 3 + 3  # h0 and h1 to planes 2 and 3, h2 and h3 to those not theirs


def test_place__planes_of_the_file_and_what_cannot_be():
    assert place(Plan(), servers_of(2, a=[3], b=[0, 1, 2])).planes == {"a": (3,), "b": (0, 1, 2)}
    assert place(Plan(), servers_of(2, a=[])).describe("a") == "hosts h0 to h1"
    with pytest.raises(ServersError, match="plane 4 of the machines' file: this fabric has planes 0 to 3"):
        place(Plan(), servers_of(1, a=[4]))
    with pytest.raises(ServersError, match="plane 3 is on no machine"):
        place(Plan(), servers_of(1, a=[0, 1, 2]))


@given(st.integers(1, 16), st.integers(1, 8), st.integers(1, 4), st.integers(1, 8))
def test_place__every_node_is_on_one_machine_and_loads_are_even(planes, racks, hosts, machines):
    plan = Plan(planes, racks, 2, hosts)
    placement = place(plan, servers_of(machines))
    names = [node for held in (placement.hosts, placement.switches) for nodes in held.values() for node in nodes]
    assert sorted(names) == sorted([*(h.name for h in plan.hosts), *(s.name for s in plan.switches)])
    for held in (placement.planes, placement.hosts):
        counts = [len(one) for one in held.values()]
        assert max(counts) - min(counts) <= 1
    assert all(placement.of(link.lower.node) is placement.of(link.upper.node) for link in plan.links
               if link not in [one.link for one in placement.crossings])  # fmt: skip
