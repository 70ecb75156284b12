"""Tests of ordinary programs on a live fabric: names, TCP both ways, flows that move."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from mrc_testbed.hosts.ip.tun import INTERFACE
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.netdev import in_namespace
from mrc_testbed.topologies.lab.options import LabOptions, Ports
from mrc_testbed.topologies.plan import Plan

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets"),
]
PORT = 5001


@pytest.fixture(scope="module", params=["srv6", "ecmp"])
def fabric(request, tmp_path_factory) -> Iterator[Fabric]:
    ports = Ports(p4runtime=29657, gnmi=29437)
    run_dir = tmp_path_factory.mktemp("ip") / "run"
    with Fabric(Plan.scaled(2, 2, 2, 1, mode=request.param), LabOptions(ports=ports), run_dir) as running:
        yield running


def ip_state(fabric: Fabric, host: str) -> dict:
    return fabric.agent(host).request("status")["ip"]


def address(fabric: Fabric, host: str, version: int) -> str:
    return str(fabric.plan.ip_interfaces(fabric.plan.host(host))[version == 6].ip)


@pytest.mark.parametrize("version", [4, 6])
def test_tcp__bytes_arrive_in_both_directions(fabric, version):
    family = socket.AF_INET6 if version == 6 else socket.AF_INET
    server = in_namespace(fabric.hosts["h1"].pid, lambda: socket.socket(family))
    server.bind((address(fabric, "h1", version), PORT + version))
    server.listen(1)
    client = in_namespace(fabric.hosts["h0"].pid, lambda: socket.socket(family))
    question, answer = os.urandom(200_000), os.urandom(100_000)

    def serve() -> None:
        peer, _ = server.accept()
        with peer:
            received = b"".join(iter(lambda: peer.recv(1 << 16), b""))
            peer.sendall(answer if received == question else b"wrong")

    thread = threading.Thread(target=serve)
    thread.start()
    with server, client:
        client.settimeout(120)
        client.connect((address(fabric, "h1", version), PORT + version))
        client.sendall(question)
        client.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: client.recv(1 << 16), b"")) == answer
    thread.join()


def test_names__are_those_of_the_fabric_in_its_hosts_and_nowhere_else(fabric):
    h0 = fabric.hosts["h0"]
    assert h0.cmd("getent ahostsv4 h1").split()[0] == address(fabric, "h1", 4) == fabric.hosts["h1"].IP()
    assert h0.cmd("getent ahostsv6 h1-ip6").split()[0] == address(fabric, "h1", 6)
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("h1-ip6", 80)
    assert INTERFACE in h0.cmd("ip -o link") and not os.path.exists(f"/sys/class/net/{INTERFACE}")


def echo(fabric: Fabric, count: int, change_after: int, change: Callable[[], object]) -> list[int]:
    """Send `count` datagrams to h1 and back; call `change` after some; return the numbers that came."""
    is_over = threading.Event()
    server = in_namespace(fabric.hosts["h1"].pid, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    client = in_namespace(fabric.hosts["h0"].pid, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    server.bind((address(fabric, "h1", 4), PORT))
    client.connect((address(fabric, "h1", 4), PORT))

    # The server's time limit ends its thread, whatever was lost on the way.
    def serve() -> None:
        while not is_over.is_set():
            try:
                data, peer = server.recvfrom(100)
                server.sendto(data, peer)
            except TimeoutError:
                continue

    server.settimeout(0.2)
    client.settimeout(0.05)
    thread = threading.Thread(target=serve)
    thread.start()
    answers = []
    try:
        for number in range(count):
            if number == change_after:
                change()
            client.send(number.to_bytes(4, "big"))
            try:
                answers.append(int.from_bytes(client.recv(100), "big"))
            except TimeoutError:
                continue
    finally:
        is_over.set()
        thread.join()
        server.close()
        client.close()
    return answers


@pytest.mark.parametrize("plane", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_flow__goes_on_over_another_path_when_a_port_or_a_switch_of_its_own_dies(fabric, plane):
    """Test a break in each plane: the flow that used it moves, the other one stays."""
    t0 = f"p{plane}-t0-0"
    for set_state in (lambda up: fabric.link("h0", t0, up), lambda up: fabric.power(t0, up)):
        try:
            answers = echo(fabric, 200, 50, lambda: set_state(False))  # noqa: B023 - called in this round
        finally:
            set_state(True)
        assert len([number for number in answers if number >= 150]) >= 40, answers


@pytest.mark.skipif(shutil.which("ping") is None, reason="needs ping (apt-get install iputils-ping)")
def test_ping__answers_by_name(fabric):
    assert f"bytes from h1 ({address(fabric, 'h1', 4)})" in fabric.hosts["h0"].cmd("ping -c 5 -i 0.2 -W 5 h1")


def test_state__counts_packets_and_flows_and_foreign_addresses(fabric):
    before = ip_state(fabric, "h0")
    client = in_namespace(fabric.hosts["h0"].pid, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with client:
        client.sendto(b"x", ("10.100.0.1", 9))
        client.sendto(b"x", (address(fabric, "h1", 4), 9))
    state = ip_state(fabric, "h0")
    assert state["interface"] == INTERFACE and state["flows"] >= 1
    assert state["dropped"]["no host has the address"] == before["dropped"].get("no host has the address", 0) + 1
    assert state["sent"] > before["sent"]


def test_interface_deleted__by_a_user_ends_ip_and_nothing_else(fabric):
    """Test what would keep an agent busy: a descriptor without an interface is readable for ever."""
    assert ip_state(fabric, "h1")["interface"] == INTERFACE
    fabric.hosts["h1"].cmd(f"ip link delete {INTERFACE}")
    cpu_s = fabric.agent("h1").request("status")["cpu_s"]
    for _ in range(20):
        fabric.agent("h1").request("hello")
        fabric.hosts["h1"].cmd("sleep 0.05")
    assert ip_state(fabric, "h1")["interface"] is None
    assert fabric.agent("h1").request("status")["cpu_s"] - cpu_s < 0.5, "busy with a descriptor without an interface"
