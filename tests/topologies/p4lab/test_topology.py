"""The tutorials' topology.json: what is read, and what is refused with its cure."""

import json
from pathlib import Path

import pytest

from mrc_testbed.topologies.p4lab.topology import LabEnd, TopologyError, pair_topology, plan_topology, read_topology
from mrc_testbed.topologies.plan import GridLayout, LinkSpeed, Plan

HOST = {"ip": "10.0.1.1/24", "mac": "08:00:00:00:01:11", "commands": ["true"]}


def write(tmp_path, **changes):
    data = {
        "hosts": {"h1": HOST, "h2": {**HOST, "ip": "10.0.2.2/31"}},
        "switches": {"s1": {"runtime_json": "s1-runtime.json"}, "s2": {"program": "build/other.json"}},
        "links": [["h1", "s1-p1"], ["s2-p3", "s1-p2", "5ms", 0.5], ["s2-p1", "h2", 2]],
    }
    (tmp_path / "s1-runtime.json").write_text("{}")
    (tmp_path / "other.p4").write_text("")
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(data | changes))
    return path


def test_hosts_switches_and_links__are_read(tmp_path):
    topology = read_topology(write(tmp_path))
    assert [(host.name, str(host.address)) for host in topology.hosts] == [("h1", "10.0.1.1/24"), ("h2", "10.0.2.2/31")]
    assert [(switch.name, switch.device_id) for switch in topology.switches] == [("s1", 0), ("s2", 1)]
    assert topology.switches[0].entries == tmp_path / "s1-runtime.json"
    assert topology.switches[1].program == tmp_path / "other.p4"
    assert topology.ports("s2") == {1: "s2-eth1", 3: "s2-eth3"}
    first, second, third = topology.links
    assert first.ends == (LabEnd("h1"), LabEnd("s1", 1))
    assert (second.delay_s, second.rate_bps) == (0.005, 0.5e6)
    assert (third.ends[0], third.delay_s) == (LabEnd("h2"), 0.002)


def test_files__are_found_in_the_folder_above(tmp_path):
    folder = tmp_path / "pod-topo"
    folder.mkdir()
    path = write(folder, switches={"s1": {"runtime_json": "pod-topo/s1-runtime.json"}}, links=[["h1", "s1-p1"]])
    path.write_text(json.dumps(json.loads(path.read_text()) | {"hosts": {"h1": HOST}}))
    assert read_topology(path).switches[0].entries == folder / "s1-runtime.json"


def test_port_0__is_a_port_of_a_switch(tmp_path):
    topology = read_topology(write(tmp_path, links=[["s1-p0", "h1"], ["s1-p3", "s2-p0"], ["s2-p509", "h2"]]))
    assert (topology.ports("s1"), topology.ports("s2")) == (
        {0: "s1-eth0", 3: "s1-eth3"},
        {0: "s2-eth0", 509: "s2-eth509"},
    )
    assert topology.links[0].ends == (LabEnd("h1"), LabEnd("s1", 0))


def test_pair_topology__has_a_switch_and_two_hosts():
    topology = pair_topology()
    assert str(topology) == "1 switch, 2 hosts, 2 links"
    assert topology.ports("s1") == {1: "s1-eth1", 2: "s1-eth2"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"switches": {}}, "switches: there is none"),
        ({"hosts": {"h1": HOST, "h2": {**HOST, "ip": "here"}}}, "hosts.h2.ip = 'here': wants an IPv4 address"),
        ({"hosts": {"h1": HOST, "h2": {**HOST, "mac": 7}}}, "hosts.h2.mac = 7: wants a MAC address"),
        ({"hosts": {"h1": HOST, "h2": {**HOST, "commands": "ls"}}}, "hosts.h2.commands = 'ls': wants a list"),
        ({"hosts": {"h1": HOST, "h 2": HOST}}, "hosts: 'h 2': wants a letter"),
        ({"hosts": []}, "hosts = []: wants an object"),
        ({"switches": {"s1": {"cli_input": "x"}, "s2": {}}}, "simple_switch_CLI have no reader"),
        ({"switches": {"s1": {"runtime_json": "gone.json"}, "s2": {}}}, "no file 'gone.json'"),
        ({"switches": {"s1": {}, "s2": {}, "h1": {}}}, "h1 is a host and a switch"),
        ({"links": [["h1", "h2"]]}, "joins two hosts"),
        ({"links": [["h1", "s1-p511"]]}, "'s1-p511' is no host and no port 0 to 509"),
        ({"links": [["h1", "s1-p1"]]}, "host h2 has none"),
        ({"links": [["h1", "s1-p1"], ["h2", "s1-p1"]]}, "s1-p1 is an end of 2 links"),
        ({"links": [["h1", "s1-p1", "soon"], ["h2", "s2-p1"]]}, "delay 'soon': wants milliseconds"),
        ({"links": [["h1", "s1-p1", 1, -1], ["h2", "s2-p1"]]}, "rate -1: wants Mb/s"),
        ({"links": [7]}, "links[0] = 7: wants"),
    ],
)
def test_mistakes__are_named(tmp_path, changes, message):
    with pytest.raises(TopologyError) as error:
        read_topology(write(tmp_path, **changes))
    assert message in str(error.value)


def test_text_that_is_no_json__has_line_and_column(tmp_path):
    path = tmp_path / "topology.json"
    path.write_text('{"hosts": }')
    with pytest.raises(TopologyError, match=r"topology.json:1:11: not JSON"):
        read_topology(path)
    with pytest.raises(TopologyError, match="No such file"):
        read_topology(tmp_path / "gone.json")


def test_plan_topology__has_the_nodes_of_a_plan_with_one_plane():
    topology = plan_topology(Plan(1, 2, 1, 2))
    assert str(topology) == "3 switches, 4 hosts, 6 links"
    assert topology.ports("p0-t1-0") == {1: "p0-t1-0-eth1", 2: "p0-t1-0-eth2"}
    with pytest.raises(TopologyError, match="Cure: --planes 1"):
        plan_topology(Plan(2, 2, 1, 2))


def test_plan_topology__links_have_rates_and_delays_of_the_plan():
    speeds = (("p0-t0-1 p0-t1-0", LinkSpeed(5e6, 0.003)),)
    layout = GridLayout(names=(("h0", "pod-a"), ("p0-t0-0", "hub")), speeds=speeds)
    plan = Plan(1, 2, 1, 1, host_link=LinkSpeed(40e6, 0.001), fabric_link=LinkSpeed(delay_s=0.002), layout=layout)
    links = {"".join(end.node for end in link.ends): link for link in plan_topology(plan).links}
    assert (links["pod-ahub"].delay_s, links["pod-ahub"].rate_bps) == (0.001, 40e6)
    assert links["pod-ahub"].ends[0] == LabEnd("pod-a")  # a host, whatever its name
    assert (links["hubp0-t1-0"].delay_s, links["hubp0-t1-0"].rate_bps) == (0.002, None)
    assert (links["p0-t0-1p0-t1-0"].delay_s, links["p0-t0-1p0-t1-0"].rate_bps) == (0.003, 5e6)


def test_plan_topology__chosen_switches_have_programs_of_their_own():
    switches = plan_topology(Plan(1, 1, 1, 1), {"p0-t1-0": Path("my.p4")}).switches
    assert {switch.name: switch.program for switch in switches} == {"p0-t0-0": None, "p0-t1-0": Path("my.p4")}
