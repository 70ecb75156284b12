"""The work of a live run: QPs, memory and ranks at the agents (hosts/agent/services/traffic.py), started at one
instant.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import msgspec

from mrc_testbed.experiments.language.model import Transport
from mrc_testbed.experiments.resolve.flows import CollectivePlan, FlowPlan, pinned_evs
from mrc_testbed.experiments.resolve.recipe import engine_settings
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.ipc.rpc import JsonlClient, JsonlError
from mrc_testbed.topologies.lab.fabric import Fabric

LEAD_S = 0.3
"""Seconds between the requests for flows and their start: every agent has to have its request."""

Answers = dict[str, dict[str, Any]]
"""By host."""


def flow_name(flow: FlowPlan) -> str:
    """`WORK:SOURCE-TARGET`, a flow's name in results."""
    return f"{flow.work}:{flow.source}-{flow.target}"


class LiveWork:
    """Flows and collectives of a run, and a connection to each agent that carries one. Methods raise JsonlError."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan, self.planned = plan, plan.work()
        self.flows, self.groups, self.hosts = self.planned.flows, self.planned.groups, self.planned.hosts
        self.begins = 0.0
        """Common start, CLOCK_MONOTONIC seconds."""
        self.sizes: dict[str, tuple[int, float]] = {}
        """Bytes of a collective as made, and its bus factor."""
        self.owners: dict[tuple[str, int], str] = {}
        """(host, QPN) -> workload."""
        self._clients: dict[str, JsonlClient] = {}
        self._pool: ThreadPoolExecutor | None = None

    def open(self, fabric: Fabric, stack: ExitStack) -> None:
        """Connect to the agents, for as long as the stack lasts."""
        for host in self.hosts:
            client = JsonlClient(fabric.run_dir.agent_socket(host), name=host, works=fabric.works(host))
            self._clients[host] = client
            stack.callback(client.close)
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(self._clients)), thread_name_prefix="ask")
        stack.callback(self._pool.shutdown)

    def ask_all(self, op: str, known: Answers | None = None) -> Answers:
        """Answers of all agents to requests made in parallel; with `known` those of it for agents that are silent."""
        assert self._pool is not None
        asked = {host: self._pool.submit(client.request, op) for host, client in self._clients.items()}
        answers: Answers = {}
        for host, answer in asked.items():
            try:
                answers[host] = answer.result()
            except JsonlError:
                if known is None:
                    raise
                if host in known:
                    answers[host] = known[host]
        return answers

    # ---- how far it is ----------------------------------------------------------------------------------

    @property
    def total_bytes(self) -> int:
        """Of all that has an end."""
        total = sum(flow.total_bytes or 0 for flow in self.flows)
        return total + sum(map(self.collective_bytes, self.groups))

    def collective_bytes(self, group: CollectivePlan) -> int:
        """Bytes that all ranks of a collective receive; 0 before it is open."""
        size, factor = self.sizes.get(group.work, (0, 0.0))
        return int(size * factor * len(group.ranks) * (group.warm_up + group.iterations))

    def all_over(self, last: Answers) -> bool:
        """Whether nothing more will happen, well or not, by the last answers to `flow_read`."""
        if not all(last[flow.source]["sources"][flow_name(flow)]["over"] for flow in self.flows):
            return False
        groups = [[last[host]["ranks"][group.work] for host in group.ranks] for group in self.groups]
        return all(any(r["failed"] for r in ranks) or all(r["done"] for r in ranks) for ranks in groups)

    # ---- making it --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect everything; it all starts at `begins`."""
        starts = [self._connect_flow(flow) for flow in self.flows]
        starts += [self._connect_group(group) for group in self.groups]
        self.begins = time.monotonic() + LEAD_S
        for start in starts:
            start()

    def _qps(
        self, work: str, source: str, target: str, transport: Transport, pin: tuple[str, ...] = ()
    ) -> tuple[list[int], list[int]]:
        """Connected QPs from one host to another: (QPNs at the source, QPNs at the target)."""
        a, b = self._clients[source], self._clients[target]
        keys = engine_settings(transport)
        settings = transport.config if transport.kind == "rocev2" else {}
        evs = pinned_evs(self.plan.fabric, source, target, pin) if pin else None
        here, there = [], []
        for _ in range(transport.qps):
            mine = a.request("flow_qp", peer=target, transport=transport.kind, settings=settings)
            theirs = b.request("flow_qp", peer=source, transport=transport.kind, settings=settings)
            for client, one, other in ((a, mine, theirs), (b, theirs, mine)):
                client.request("flow_connect", qpn=one["qpn"], remote=other["attributes"], config=keys, evs=evs)
            here.append(mine["qpn"])
            there.append(theirs["qpn"])
            self.owners[source, mine["qpn"]] = self.owners[target, theirs["qpn"]] = work
        return here, there

    def _connect_flow(self, flow: FlowPlan) -> Callable[[], None]:
        name = flow_name(flow)
        here, there = self._qps(flow.work, flow.source, flow.target, flow.transport, flow.pin)
        shape = {
            "message_bytes": flow.message_bytes,
            "messages": flow.messages,
            "depth": max(flow.depth, flow.transport.qps),
            "rate_bps": flow.rate_bps,
            "seed": self.plan.seed,
        }
        memory = self._clients[flow.target].request("flow_sink", flow=name, qpns=there, shape=shape)

        def start() -> None:
            stop = None if flow.stop_s is None else self.begins + flow.stop_s
            self._clients[flow.source].request(
                "flow_source",
                flow=name,
                qpns=here,
                shape=shape,
                va=memory["va"],
                rkey=memory["rkey"],
                start_s=self.begins + flow.start_s,
                stop_s=stop,
                latencies=self.plan.measure.latency,
            )

        return start

    @staticmethod
    def _rank_of(group: CollectivePlan, number: int) -> dict[str, Any]:
        """What `rank_open` needs to know of a rank."""
        if group.scripts:
            return {"script": msgspec.to_builtins(group.scripts[number])}
        return {
            "collective": {
                "kind": group.kind,
                "rank": number,
                "ranks": len(group.ranks),
                "size_bytes": group.size_bytes,
                "options": msgspec.to_builtins(group.options),
            }
        }

    def _connect_group(self, group: CollectivePlan) -> Callable[[], None]:
        name = group.work
        regions = []
        for number, host in enumerate(group.ranks):
            made = self._clients[host].request(
                "rank_open",
                flow=name,
                seed=self.plan.seed,
                iterations=group.warm_up + group.iterations,
                **self._rank_of(group, number),
            )
            regions.append(made["regions"])
            self.sizes[name] = (made["size_bytes"], made["bus_factor"])
        for number, host in enumerate(group.ranks):
            for peer in group.peers(number):
                other = group.ranks[peer]
                here, there = self._qps(name, host, other, group.transport)
                self._clients[host].request("rank_link", flow=name, peer=peer, qpns=here, regions=regions[peer])
                sources = [[qpn, number, group.transport.qps] for qpn in there]
                self._clients[other].request("rank_link", flow=name, sources=sources)

        def start() -> None:
            for host in group.ranks:
                self._clients[host].request("rank_start", flow=name, start_s=self.begins + group.start_s)

        return start
