"""The verbs on real NIC ports.

Namespaces, usid_wire.py between them instead of switches, with and without agents.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts.agent.test_agent_network import ROOT, Wire, ip

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and packet sockets"),
]
EXAMPLE = str(ROOT / "examples" / "live_write.py")


@pytest.fixture
def wire(tmp_path):
    network = Wire(tmp_path)
    try:
        yield network
    finally:
        network.close()


def run(wire: Wire, host: str, *command: str) -> str:
    """Run Python in a host until it ends; its output."""
    process = subprocess.run(
        ["ip", "netns", "exec", f"{wire.prefix}-{host}", sys.executable, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MRC_RUN_DIR": str(wire.run_dir)},
    )
    assert process.returncode == 0, process.stderr + process.stdout
    return process.stdout


def serve(wire: Wire, *options: str) -> subprocess.Popen:
    return wire.start("h1", EXAMPLE, "serve", "--run-dir", str(wire.run_dir), *options, ready_text="serving")


@pytest.mark.parametrize(
    "options", [(), *(pytest.param((word,), marks=pytest.mark.thorough) for word in ("--thread", "--rocev2"))]
)
def test_live__bytes_arrive_beside_the_agents(wire, options):
    wire.switches()
    agents = [wire.agent("h0"), wire.agent("h1")]
    server = serve(wire, *options)
    out = run(wire, "h0", EXAMPLE, "write", "h1", "--megabytes", "2", *options)
    assert "2.0 MiB to h1" in out and "SHA-256 equal" in out
    if "--rocev2" not in options:
        assert "over 2 planes" in out
    assert server.wait(timeout=30) == 0
    for agent in agents:  # the kernel kept the packets of the programs from them
        status = agent.status()
        assert status["qps"] == [] and status["unclaimed"] == 0
        assert sum(port["rx_packets"] for port in status["ports"].values()) < 100


def test_live__without_agents(wire):
    wire.switches()
    server = serve(wire)
    assert "SHA-256 equal" in run(wire, "h0", EXAMPLE, "write", "h1", "--megabytes", "1")
    assert server.wait(timeout=30) == 0


TWO_DEVICES = """
from mrc_testbed.hosts.verbs.live import open_device
from mrc_testbed.hosts.verbs import EpRequest, QpInitAttr, IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE, IBV_PORT_DOWN
import os
run_dir = os.environ["MRC_RUN_DIR"]
with open_device(run_dir=run_dir) as one, open_device("h0", run_dir=run_dir) as two:
    numbers = [d.create_qp(QpInitAttr(d.create_cq(4))).qp_num for d in (one, two)]
    assert len({n >> 16 for n in numbers}) == 2 and all(n >> 16 for n in numbers), numbers
    requests = [EpRequest(ev, "h1", ev, (ev >> 8) + 1) for ev in (0x000, 0x001, 0x100, 0x101)]
    answers = one.controller.ep_op(requests, timeout_ns=2 * 10**9)
    assert all(a.ok for a in answers), answers
    gid = str(one.driver.plan.address(one.driver.plan.host("h1"), 0))
    assert one.controller.ep_op([EpRequest(1, gid, 0x0, 1)], timeout_ns=2 * 10**9)[0].ok
    one.controller.modify_port(2, False)
    event = one.get_async_event(timeout_s=10)
    assert (event.event_type, event.element) == (IBV_EVENT_PORT_ERR, 2), event
    assert one.query_port(2).state is IBV_PORT_DOWN and not one.controller.query_port(2)
    assert two.get_async_event(timeout_s=10).event_type is IBV_EVENT_PORT_ERR
    one.controller.modify_port(2, True)
    assert one.get_async_event(timeout_s=10).event_type is IBV_EVENT_PORT_ACTIVE
    assert one.controller.query_port(2)
print("fine")
"""


def test_live__two_devices_of_one_host_probe_and_set_ports(wire):
    """QPNs of their own; the agent of the peer answers the probes; a port disabled by one is seen by both."""
    wire.switches()
    wire.agent("h1")
    script = Path(wire.run_dir) / "two.py"
    script.write_text(TWO_DEVICES)
    assert run(wire, "h0", str(script)) == "fine\n"


PORT_WITHOUT_LINK = """
from mrc_testbed.hosts.verbs.live import open_device
from mrc_testbed.hosts.verbs import IBV_PORT_DOWN
import os
with open_device(run_dir=os.environ["MRC_RUN_DIR"]) as device:
    assert device.query_port(2).state is IBV_PORT_DOWN and device.controller.query_port(2)
    device.controller.modify_port(2, False)
    device.wait_for(lambda: not device.controller.query_port(2), 10)
    assert not device.controller.query_port(2)
print("fine")
"""


def test_live__a_port_without_a_link_is_enabled_still(wire):
    ip("-n", f"{wire.prefix}-w", "link", "set", "h0-eth1", "down")
    script = Path(wire.run_dir) / "port.py"
    script.write_text(PORT_WITHOUT_LINK)
    assert run(wire, "h0", str(script)) == "fine\n"


def test_live__errors_name_cause_and_cure(wire):
    process = subprocess.run(
        [sys.executable, EXAMPLE, "serve", "--run-dir", str(wire.run_dir / "nothing")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.returncode == 1 and "bring the fabric up first (`mrc up`)" in process.stderr
    process = subprocess.run(
        [sys.executable, EXAMPLE, "serve", "--run-dir", str(wire.run_dir)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (
        process.returncode == 1
        and "this network namespace has the ports of no host. Cure: run inside a host" in process.stderr
    )


PORTS_SERVER = """
import pathlib
from mrc_testbed.hosts.engine.events import PlaneChanged
from mrc_testbed.hosts.verbs import QpInitAttr, RecvWR, establish
from mrc_testbed.hosts.verbs.live import open_device
run_dir = pathlib.Path(__file__).parent
with open_device(run_dir=run_dir) as device:
    told = []
    device.observers.append(lambda e: told.append((e.peer, e.plane, e.up)) if type(e) is PlaneChanged else None)
    cq = device.create_cq(16)
    qp = device.create_qp(QpInitAttr(cq))
    mr = device.reg_mr(bytearray(1 << 20))
    print("serving", flush=True)
    establish(qp, run_dir / "ports.sock", listen=True, mr=mr)
    qp.post_recv(RecvWR(i) for i in range(3))
    print("got", [wc.imm_data for wc in cq.wait(3, timeout_s=60)], "heard", told, flush=True)
    device.run(0.3)
"""
PORTS_CLIENT = """
import pathlib
from mrc_testbed.hosts.verbs import QpInitAttr, SendWR, establish
from mrc_testbed.hosts.verbs.live import open_device
run_dir = pathlib.Path(__file__).parent
with open_device(run_dir=run_dir) as device:
    cq = device.create_cq(64)
    qp = device.create_qp(QpInitAttr(cq))
    source = device.reg_mr(bytearray(1 << 20), 0)
    theirs = establish(qp, run_dir / "ports.sock", listen=False)
    used = []
    for number, enabled in enumerate((True, False, True)):
        if number:
            device.controller.modify_port(2, enabled)
            assert device.get_async_event(timeout_s=10).element == 2
            device.run(0.5)  # the peer hears of it too, and paths that were lost meanwhile are probed
        before = list(qp.counters.plane_packets)
        for _ in range(4):
            qp.post_send(SendWR(1, sg_list=[source.sge()], remote_addr=theirs.addr, rkey=theirs.rkey))
        qp.post_send(SendWR(2, opcode=1, imm_data=number))
        done = cq.wait(5, timeout_s=60)
        assert len(done) == 5 and all(wc.ok for wc in done), done
        used.append([now > then + 1 for now, then in zip(qp.counters.plane_packets, before)])
    print(used)
    device.run(0.3)
"""


def test_live__a_port_goes_and_returns_and_the_peer_hears_of_it(wire):
    """Port status updates between two programs, acknowledged by the agents beside them."""
    wire.switches()
    for host in ("h0", "h1"):
        wire.agent(host)
    for name, text in (("server.py", PORTS_SERVER), ("client.py", PORTS_CLIENT)):
        (wire.run_dir / name).write_text(text)
    server = wire.start("h1", str(wire.run_dir / "server.py"), ready_text="serving")
    out = run(wire, "h0", str(wire.run_dir / "client.py"))
    assert out == "[[True, True], [True, False], [True, True]]\n"
    server_output = server.communicate(timeout=60)[0]
    assert "got [0, 1, 2]" in server_output and "('h0', 1, False), ('h0', 1, True)" in server_output
