"""MRC endpoint alone: two host agents and nothing else to do: `python -m tools.bench.endpoint`.

The same process, NIC and engine as in a fabric (hosts/agent/agent.py); only the outer destination is what the last
switch would have left of it, so that the peer takes the frame. Memory to memory, nothing is hashed or written to a
file. CPU is user + system time of each agent by data packet (getrusage), SACKs and their reception included.

The agents' ports are joined by veth pairs, or with `--wires virtual` by one of our switches, which gives each port a
shared wire as it does in a fabric (docs/design/wires.md). It runs in a process of its own, which is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mrc_testbed.hosts.agent.agent import Agent
from mrc_testbed.hosts.agent.turn_selector import TurnSelector
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.qp import QpAttributes
from mrc_testbed.hosts.nic.encapsulation import Encapsulation
from mrc_testbed.hosts.nic.fast import FastNic
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.ipc.service import run_service
from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.loop import EventLoop
from mrc_testbed.switch.server.shared_wires import SharedWireServer
from mrc_testbed.topologies.lab.options import VETH, VIRTUAL
from mrc_testbed.topologies.plan import Host, Plan
from tools.bench.cabled_namespaces import join, send_json, serve

WIRES = (VETH, VIRTUAL)
"""Ways in which the two hosts can be joined."""
PLAN = Plan(planes=4, racks=2, spines=2, hosts_per_rack=1)
OUTSTANDING = 8
"""Writes posted and not completed at one time, as in a transfer."""
WRITE_BYTES = 1 << 18
EDGE = 0.05
"""Part of the packets sent before the measurement begins."""
SHARED_WITHIN_S = 20.0
"""Longest wait until each port has its shared wire."""
PATCH_PANEL = """
#include <core.p4>
#include <v1model.p4>
struct headers_t { }
struct metadata_t { }
parser P(packet_in b, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply { s.egress_spec = s.ingress_port ^ HOST_BIT; }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out b, in headers_t h) { apply { } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
SWITCH = "switch"
"""Name of the child that is the switch."""
HOST_BIT = 32
"""Bit of a port's number that names the host; the others are its plane."""


def _cable(host: Host, peer: Host, plane: int) -> Encapsulation:
    """Return an encapsulation to the peer's own uSID, as left when all switches have shifted theirs out."""
    peer_address = PLAN.nic_address(peer, plane)
    return Encapsulation(PLAN, host, peer, plane, lambda _ev: peer_address)


def _switch_interface(host: Host, plane: int) -> str:
    """Return the interface at the other end of a host's port."""
    return PLAN.link_of_interface(PLAN.host_port(host, plane).interface).upper.interface


def _usage() -> tuple[float, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime, usage.ru_stime


class _Host(Agent):
    """An agent whose application posts writes as long as there is something to send."""

    nic: FastNic

    queue: Any = None
    """The QP to post on; None = this host only receives."""

    turns = 0
    """Turns of the loop, with packets or without."""

    packets: Callable[[], float] = staticmethod(lambda: 0.0)
    """Data packets so far."""

    goal = math.inf
    """`goal_event` is set when `packets` is that many."""

    goal_event: asyncio.Event

    def turn(self) -> float | None:
        """Post writes, run one turn as an agent does, and stop at the goal."""
        self.turns += 1
        qp = self.queue
        if qp is not None:
            remote = qp.connected.remote
            while qp.outstanding() < OUTSTANDING:
                qp.post_write(self.data, remote.va, remote.rkey, now=time.monotonic())
        due = super().turn()
        if self.packets() >= self.goal:
            self.goal = math.inf
            self.goal_event.set()
            return 0.0
        # A completion in there makes room for the next write; nothing else would wake the loop for it.
        return 0.0 if qp is not None and qp.outstanding() < OUTSTANDING else due

    async def wait_for(self, goal: float) -> None:
        """Return when that many data packets have come or gone."""
        self.goal_event, self.goal = asyncio.Event(), goal
        await self.goal_event.wait()

    def begin(self, qp: Any) -> None:
        """Write for ever."""
        self.data, self.queue = bytes(WRITE_BYTES), qp


def _child(name: str, arguments: argparse.Namespace) -> None:
    """One host: h0 writes, h1 receives; each answers with its CPU seconds and counters."""
    serve()
    host, peer = (PLAN.host(name), PLAN.hosts[1 - PLAN.hosts.index(PLAN.host(name))])
    config = Config.of(pmtu_bytes=arguments.pmtu)
    run_dir, selector = Path(arguments.folder), TurnSelector()

    async def serve_host(stop: asyncio.Event) -> None:
        agent = _Host(PLAN, name, run_dir, selector, stop.set, nic_kind="fast", hooks=[], config=config, seed=1)
        try:
            await agent.start()
            for plane in agent.nic.ports:
                agent.nic.add_route(plane, peer.name, _cable(host, peer, plane))
            if arguments.wires == VIRTUAL:
                await _until_shared(agent)
            await _run(agent, peer.name, arguments)
            # The peer still waits for its answers; the parent closes our standard input when it has them.
            asyncio.get_running_loop().add_reader(sys.stdin, stop.set)
            await stop.wait()
        finally:
            await agent.close()

    run_service(serve_host, selector)


async def _until_shared(agent: _Host) -> None:
    """Return when each port has its shared wire. Raises TimeoutError."""
    ends_at = time.monotonic() + SHARED_WITHIN_S
    while len(agent.nic.shared_planes) < PLAN.planes:
        if time.monotonic() > ends_at:
            raise TimeoutError(
                f"{agent.host.name}: no shared wires within {SHARED_WITHIN_S:g} s: install gcc, unset MRC_NATIVE"
            )
        await asyncio.sleep(0.01)


def _serve_patch_panel(arguments: argparse.Namespace) -> None:
    """One switch that joins both hosts' ports of each plane, and gives them shared wires."""
    serve()
    interfaces = {
        number * HOST_BIT | plane: _switch_interface(host, plane)
        for number, host in enumerate(PLAN.hosts)
        for plane in range(PLAN.planes)
    }
    device, loop = P4Device(1, "patch-panel"), EventLoop()
    device.load(compile_program(PATCH_PANEL, defines=[f"HOST_BIT={HOST_BIT}"]))
    loop.start()
    loop.attach(device)
    loop.add_ports(device, interfaces)

    async def serve_wires(stop: asyncio.Event) -> None:
        server = SharedWireServer(RunFiles(Path(arguments.folder)).shared_wires_socket, loop)
        server.start()
        send_json("serving")
        asyncio.get_running_loop().add_reader(sys.stdin, stop.set)
        await stop.wait()
        server.close()

    try:
        run_service(serve_wires)
    finally:
        loop.close()
        device.close()


async def _run(agent: _Host, peer: str, arguments: argparse.Namespace) -> None:
    endpoint = agent.endpoint
    qp = endpoint.create_qp()
    region = endpoint.register(bytearray(WRITE_BYTES))
    send_json(qp.attributes(region).to_json())
    remote = QpAttributes.from_json(json.loads(sys.stdin.readline()))
    evs = [(ev, plane) for plane in range(PLAN.planes) for ev in (plane << 8, plane << 8 | 1)]
    qp.connect(peer, remote, evs, time.monotonic())
    send_json("connected")
    writes = json.loads(sys.stdin.readline())
    if writes:
        agent.begin(qp)
    counters = qp.counters

    def data_packets() -> int:
        return counters.packets_sent if writes else counters.packets_received

    agent.packets = data_packets
    # The first packets start with cold caches and a small window: they are not measured.
    await agent.wait_for(arguments.packets * EDGE)
    usage_before, began, packets_before = _usage(), time.monotonic(), data_packets()
    turns = agent.turns
    sacks = counters.sacks_received + counters.sacks_sent
    await agent.wait_for(packets_before + arguments.packets)
    usage_after, seconds, packets = _usage(), time.monotonic() - began, data_packets() - packets_before
    send_json(
        {
            "user_us": (usage_after[0] - usage_before[0]) / packets * 1e6,
            "system_us": (usage_after[1] - usage_before[1]) / packets * 1e6,
            "packets": packets,
            "packets_per_turn": packets / max(1, agent.turns - turns),
            "seconds": seconds,
            "retransmitted": counters.retransmitted,
            "losses": {cause.name.lower(): count for cause, count in counters.losses.items()},
            "compiled": agent.nic.is_compiled,
            "sacks_per_packet": (counters.sacks_received + counters.sacks_sent - sacks) / packets,
        }
    )


def measure(packets: int, pmtu: int, wires: str = VETH) -> dict[str, Any]:
    """CPU microseconds per data packet by side, user and system apart. Needs root."""
    with tempfile.TemporaryDirectory(prefix="mrc-bench-") as folder:
        (Path(folder) / "agents").mkdir()
        options = ("--packets", str(packets), "--pmtu", str(pmtu), "--wires", wires, "--folder", folder)
        children = [("--child", host.name, *options) for host in PLAN.hosts]
        ports = [
            [(number, PLAN.host_port(host, plane).interface) for plane in range(PLAN.planes)]
            for number, host in enumerate(PLAN.hosts)
        ]
        cables = list(zip(*ports, strict=True))
        if wires == VIRTUAL:
            children.append(("--child", SWITCH, *options))
            switch = len(PLAN.hosts)
            cables = [
                (end, (switch, _switch_interface(host, plane)))
                for host, ends in zip(PLAN.hosts, ports, strict=True)
                for plane, end in enumerate(ends)
            ]
        with join("tools.bench.endpoint", children, cables) as processes:
            hosts = processes[: len(PLAN.hosts)]
            for process in reversed(processes):  # the switch first: hosts ask it for their wires at once
                process.send("joined")
                if process not in hosts:
                    process.answer()
            attributes = [host.answer() for host in hosts]
            for host, attribute in zip(hosts, reversed(attributes), strict=True):
                host.send(attribute)
            for host in hosts:
                host.answer()
            hosts[1].send(False)
            hosts[0].send(True)
            return {"requestor": hosts[0].answer(), "responder": hosts[1].answer()}


def main() -> int:
    """Command line: CPU per packet of two endpoints, as JSON."""
    parser = argparse.ArgumentParser(description="CPU per data packet of two MRC endpoints back to back")
    parser.add_argument("--packets", type=int, default=100_000)
    parser.add_argument("--pmtu", type=int, default=4096)
    parser.add_argument("--wires", choices=WIRES, default=WIRES[0], help="veth pairs, or memory shared with a switch")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child == SWITCH:
        _serve_patch_panel(arguments)
    elif arguments.child:
        _child(arguments.child, arguments)
    else:
        print(json.dumps(measure(arguments.packets, arguments.pmtu, arguments.wires), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
