"""MRC endpoint back to back: two host agents joined by cables: `python -m tools.bench.endpoint`.

The same process, NIC and engine as in a fabric (hosts/agent/agent.py); only the outer destination is what the last
switch would have left of it, so that the peer takes the frame. Memory to memory, nothing is hashed or written to a
file. CPU is user + system time of each agent by data packet (getrusage), SACKs and their reception included.
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
from mrc_testbed.ipc.service import run_service
from mrc_testbed.topologies.plan import Host, Plan
from tools.bench.cabled_namespaces import join, send_json, serve

SCHEMA = "mrc-bench-endpoint/1"
PLAN = Plan(planes=4, racks=2, spines=2, hosts_per_rack=1)
OUTSTANDING = 8
"""Writes posted and not completed at one time, as in a transfer."""
WRITE_BYTES = 1 << 18
EDGE = 0.05
"""Part of the packets sent before the measurement begins."""


def _cable(host: Host, peer: Host, plane: int) -> Encapsulation:
    """Return an encapsulation to the peer's own uSID, as left when all switches have shifted theirs out."""
    peer_address = PLAN.nic_address(peer, plane)
    return Encapsulation(PLAN, host, peer, plane, lambda _ev: peer_address)


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
    selector = TurnSelector()

    async def serve_host(stop: asyncio.Event) -> None:
        agent = _Host(PLAN, name, Path(folder), selector, stop.set, nic_kind="fast", hooks=[], config=config, seed=1)
        try:
            await agent.start()
            for plane in agent.nic.ports:
                agent.nic.add_route(plane, peer.name, _cable(host, peer, plane))
            await _run(agent, peer.name, arguments)
            # The peer still waits for its answers; the parent closes our standard input when it has them.
            asyncio.get_running_loop().add_reader(sys.stdin, stop.set)
            await stop.wait()
        finally:
            await agent.close()

    with tempfile.TemporaryDirectory(prefix="mrc-bench-") as folder:
        (Path(folder) / "agents").mkdir()
        run_service(serve_host, selector)


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
            "compiled": agent.nic.is_compiled,
            "sacks_per_packet": (counters.sacks_received + counters.sacks_sent - sacks) / packets,
        }
    )


def measure(packets: int, pmtu: int) -> dict[str, Any]:
    """CPU microseconds per data packet by side, user and system apart. Needs root."""
    cables = [
        (PLAN.host_port(PLAN.hosts[0], plane).interface, PLAN.host_port(PLAN.hosts[1], plane).interface)
        for plane in range(PLAN.planes)
    ]
    common_options = ("--packets", str(packets), "--pmtu", str(pmtu))
    with join(
        "tools.bench.endpoint", [("--child", "h0", *common_options), ("--child", "h1", *common_options)], cables
    ) as ends:
        for end in ends:
            end.send("joined")
        attributes = [end.answer() for end in ends]
        for end, attribute in zip(ends, reversed(attributes), strict=True):
            end.send(attribute)
        for end in ends:
            end.answer()
        ends[1].send(False)
        ends[0].send(True)
        return {"requestor": ends[0].answer(), "responder": ends[1].answer()}


def main() -> int:
    """Command line: CPU per packet of two endpoints, as JSON."""
    parser = argparse.ArgumentParser(description="CPU per data packet of two MRC endpoints back to back")
    parser.add_argument("--packets", type=int, default=100_000)
    parser.add_argument("--pmtu", type=int, default=4096)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        _child(arguments.child, arguments)
        return 0
    print(json.dumps(measure(arguments.packets, arguments.pmtu), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
