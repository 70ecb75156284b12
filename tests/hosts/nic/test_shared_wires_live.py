"""Shared wires of a live fabric, with captures, a cut link and switches that start again."""

import contextlib
import ctypes
import os
import signal
import socket
import struct

import pytest

from mrc_testbed.ipc.agent_client import AgentClient
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import LabOptions, Ports
from mrc_testbed.topologies.lab.wires import WireClient
from mrc_testbed.topologies.plan import Plan
from tests.cables import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets"),
]
PLAN = Plan.scaled(2, 2, 1, 1)
H0_PORTS = [f"p{plane}-t0-0-eth1" for plane in range(PLAN.planes)]
BYTES = 1 << 20
PACKETS = BYTES // 4096 // PLAN.planes
"""Packets of a message on each plane, about: EVs are drawn by chance."""
CLONE_NEWNET, ETH_P_ALL = 0x40000000, 3
SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC = 263, 1, 1


@pytest.fixture(scope="module")
def fabric(tmp_path_factory):
    lab = LabOptions(ports=Ports(p4runtime=29859, gnmi=29639))
    with Fabric(PLAN, lab, tmp_path_factory.mktemp("shared") / "run") as running_fabric:
        yield running_fabric


@pytest.fixture(autouse=True)
def _whole_fabric(fabric):
    yield
    fabric.inject.heal()


def shared_counts(fabric):
    with contextlib.closing(WireClient(fabric.run_dir.switchd_socket)) as wires:
        return wires.states([]).shared_wires


def has_wires(fabric):
    counts = shared_counts(fabric)
    return all(counts.get(port, {"open": 0})["open"] for port in H0_PORTS)


def sent_by_wire(fabric, tmp_path):
    """Return the packets that h0 sends over the wire of each plane, while it sends a file to h1."""
    payload = os.urandom(BYTES)
    (tmp_path / "payload").write_bytes(payload)
    counts_before = shared_counts(fabric)
    with AgentClient(fabric.run_dir.agent_socket("h0")) as agent:
        transfer = agent.send_file(tmp_path / "payload", "h1", dest_path=str(fabric.path_for("h1", "payload")))
        agent.wait(transfer["transfer"], timeout_s=60.0)
    assert fabric.path_for("h1", "payload").read_bytes() == payload
    counts_after = shared_counts(fabric)
    return [
        counts_after[port]["rx_packets"] - counts_before[port]["rx_packets"] if port in counts_before else 0
        for port in H0_PORTS
    ]


def test_a_transfer__goes_over_shared_wires_and_is_counted_at_the_port(fabric, tmp_path):
    wait_until(lambda: has_wires(fabric), "each port of h0 has its wire")
    bytes_before = {name: port.rx_bytes for name, port in fabric.link_states().items()}
    assert sum(sent_by_wire(fabric, tmp_path)) >= 2 * PACKETS
    bytes_after = {name: port.rx_bytes for name, port in fabric.link_states().items()}
    assert sum(bytes_after[port] - bytes_before[port] for port in H0_PORTS) > BYTES


@pytest.mark.parametrize("end", ["switch", "host"])
def test_a_capture__at_either_end_sees_the_frames(fabric, tmp_path, end):
    wait_until(lambda: has_wires(fabric), "each port of h0 has its wire")
    host_pid = fabric.hosts["h0"].pid
    with contextlib.ExitStack() as stack:
        if end == "host":
            home = stack.enter_context(open("/proc/thread-self/ns/net"))
            host_namespace = stack.enter_context(open(f"/proc/{host_pid}/ns/net"))
            stack.callback(setns, home.fileno())
            setns(host_namespace.fileno())
        interface = "h0-eth0" if end == "host" else H0_PORTS[0]
        capture = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)))
        capture.bind((interface, ETH_P_ALL))
        membership = struct.pack("@iHH8x", socket.if_nametoindex(interface), PACKET_MR_PROMISC, 0)
        capture.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, membership)
        wait_until(lambda: not shared_counts(fabric)[H0_PORTS[0]]["open"], "the wire of plane 0 is closed")
        first, second = sent_by_wire(fabric, tmp_path)
        assert first == 0 and second > PACKETS // 4
        capture.settimeout(10.0)
        while len(capture.recv(1 << 16)) < 1000:  # SACKs and probes before the first data packet
            pass
    wait_until(lambda: has_wires(fabric), "the wire of plane 0 is open again")


def setns(descriptor):
    """Move this thread into a network namespace."""
    assert not ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET)


def test_a_cut_link__closes_its_wire(fabric, tmp_path):
    wait_until(lambda: has_wires(fabric), "each port of h0 has its wire")
    fabric.link("h0", "p1-t0-0", False)
    wait_until(lambda: not shared_counts(fabric)[H0_PORTS[1]]["open"], "the wire of plane 1 is closed")
    assert sent_by_wire(fabric, tmp_path)[1] == 0
    fabric.link("h0", "p1-t0-0", True)
    wait_until(lambda: has_wires(fabric), "the wire of plane 1 is open again")


def test_switchd__killed_and_started_again_gives_new_wires(fabric, tmp_path):
    wait_until(lambda: has_wires(fabric), "each port of h0 has its wire")
    fabric.parts.cures = True
    fabric.parts.start()
    os.kill(fabric.processes["switchd"].pid, signal.SIGKILL)
    wait_until(lambda: [part.is_back for part in fabric.parts.deaths] == [True], "switchd runs again")

    def sends_by_wire():
        return all(sent_by_wire(fabric, tmp_path))

    wait_until(sends_by_wire, "frames go over new wires")
