"""The fabric with its real processes: embedded switches and host agents (no program, no controller)."""

import os
import signal
import socket

import pytest

from mrc_testbed.ipc import procfs
from mrc_testbed.ipc.processes import ProcessError
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import WIRES, LabOptions, Ports
from mrc_testbed.topologies.plan import Plan
from tests.cables import wait_until
from tests.topologies.lab.fabric_doubles import commands

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets"),
]
PLAN = Plan(2, 2, 1, 1)
PORTS = Ports(p4runtime=29559, gnmi=29339)


def live_fabric(run_dir, *, wires="virtual", ports=PORTS):
    return Fabric(PLAN, LabOptions(wires=wires, ports=ports, controller=False, compile_program=None), run_dir)


@pytest.fixture(scope="module", params=WIRES)
def fabric(request, tmp_path_factory):
    with live_fabric(tmp_path_factory.mktemp("live") / "run", wires=request.param) as running_fabric:
        yield running_fabric
    assert procfs.with_environment(running_fabric.run_dir.state.variable) == []


def test_devices__one_for_each_switch_with_its_ports(fabric):
    devices = {d["name"]: d for d in fabric.target.client.request("devices")["devices"]}
    assert sorted(devices) == sorted(s.name for s in PLAN.switches)
    for switch in PLAN.switches:
        device = devices[switch.name]
        assert device["device_id"] == switch.device_id and device["on"]
        assert device["ports"] == {str(p.number): p.interface for p in PLAN.ports(switch.name)}


def test_agents__answer_for_their_hosts(fabric):
    for host in PLAN.hosts:
        hello = fabric.agent(host.name).request("hello")
        assert hello["host"] == host.name and hello["nic"] == "fast"
        assert os.readlink(f"/proc/{hello['pid']}/ns/net") == os.readlink(f"/proc/{fabric.hosts[host.name].pid}/ns/net")


def test_shared_wires__can_be_had_unless_all_links_are_interfaces(fabric):
    assert fabric.run_dir.shared_wires_socket.exists() == (fabric.wires == "virtual")


def test_status__every_process_is_alive(fabric):
    status = fabric.status()
    assert {p["name"] for p in status["processes"]} == {"switchd", "h0", "h1"}
    assert all(p["alive"] for p in status["processes"]) and all(k["up"] for k in status["links"])
    fabric.check()


def test_power__stops_the_device_itself(fabric):
    def is_on():
        return {d["name"]: d["on"] for d in fabric.target.client.request("devices")["devices"]}["p1-t1-0"]

    fabric.power("p1-t1-0", False)
    assert not is_on()
    fabric.power("p1-t1-0", True)
    assert is_on() and all(fabric.link_is_up(k) for k in PLAN.links)


def test_power__of_a_host_ends_its_agent_and_begins_another(fabric):
    former_pid = fabric.agent("h0").request("hello")["pid"]
    fabric.inject.power("h0")
    assert not os.path.exists(f"/proc/{former_pid}") and "h0" not in fabric.processes
    assert not fabric.run_dir.agent_socket("h0").exists() and list(fabric.power_losses) == ["h0"]
    fabric.check()  # switched off, not dead
    fabric.inject.heal()
    hello = fabric.agent("h0").request("hello")
    assert hello["pid"] != former_pid and all(port["up"] for port in hello["ports"].values())
    assert fabric.agent("h0").request("status")["qps"] == []


def test_power__after_a_death_the_host_is_no_dead_part(fabric):
    os.kill(fabric.agent("h0").request("hello")["pid"], signal.SIGKILL)
    wait_until(lambda: bool(fabric.parts.poll_deaths() or fabric.parts.dead_parts), "the death is seen")
    fabric.power("h0", False)
    fabric.power("h0", True)
    assert fabric.parts.dead_parts == [] and fabric.agent("h0").request("hello")["host"] == "h0"


def test_link__either_end_cuts_it_and_no_interface_is_left_of_a_wire(fabric):
    link = PLAN.link("p0-t0-0", "p0-t1-0")
    other_links = [candidate for candidate in PLAN.links if candidate != link]
    for node in link.ends:
        fabric.link_port(node, link.end(node).interface, is_up=False)
        assert not fabric.link_is_up(link) and all(map(fabric.link_is_up, other_links))
        assert [fabric.mininet[end].intfs[link.end(end).number].status() for end in link.ends] == ["DOWN", "DOWN"]
        status = fabric.mininet[node].intfs[link.end(node).number].ifconfig()
        assert status.startswith(f"{link.end(node).interface}: end of a wire") == (fabric.wires == "virtual")
        fabric.link_port(node, link.end(node).number, is_up=True)
        assert fabric.link_is_up(link)
    assert os.path.exists("/sys/class/net/p0-t0-0-eth1"), "a host is there"
    assert os.path.exists(f"/sys/class/net/{link.lower.interface}") == (fabric.wires == "veth")
    assert fabric.status()["wires"] == fabric.wires


def test_cli__piped_commands(fabric, tmp_path):
    output, failures = commands(
        fabric,
        tmp_path,
        "link p1-t0-0 p1-t1-0 down",
        "links p1-t0-0",
        "link p1-t0-0 p1-t1-0 up",
        "p1-t0-0 echo a command in a node",
        "h0 cat",  # must neither wait for ever nor swallow the commands that follow
        "h0 cd /proc; greeting='it is kept'",
        "h0 pwd; echo $greeting",
        "h0 ip -o link show h0-eth1",
        "evs h0 h1",
        "nodes",
        "xyzzy",
    )
    lines = output.splitlines()
    assert lines[0] == "p1-t0-0 p1-t1-0 is down" and any(
        line.split()[:4] == ["1", "p1-t0-0", "p1-t1-0", "DOWN"] for line in lines
    )
    assert {"a command in a node", "/proc", "it is kept"} <= set(lines)
    assert "h0 h1 p0-t0-0 p0-t0-1 p0-t1-0 p1-t0-0 p1-t0-1 p1-t1-0" in lines
    assert any("h0-eth1@" in line and "mtu 9216" in line for line in lines)
    assert "h0 to h1: 2 paths, mode srv6, no QP now (`send h0 h1 16M` makes one)" in lines
    assert failures == 1 and [line for line in lines if line.startswith("***")] == [
        "*** no command or node 'xyzzy'; `help` lists what there is",
    ]


def test_port_taken__refused_before_anything_is_made(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(FabricError, match=rf"port {port} \(gNMI\) cannot be used: pid {os.getpid()} \("):
            live_fabric(tmp_path / "run", ports=Ports(p4runtime=29558, gnmi=port)).start()
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["lock"]


def test_dead_agent__is_noticed_with_its_log(fabric):
    """Last, for it ends an agent of the shared fabric. Its return: tests/resilience/test_dead_parts.py."""
    fabric.processes["h1"].popen.send_signal(signal.SIGKILL)
    fabric.processes["h1"].popen.wait(10)
    with pytest.raises(ProcessError, match=r"h1 \(pid \d+\) was killed by SIGKILL: (.|\n)*/log/h1.log"):
        fabric.check()
