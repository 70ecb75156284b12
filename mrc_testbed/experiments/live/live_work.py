"""The work of a live run: QPs, memory and ranks at the agents, started at one instant.

The agents' side is hosts/agent/services/traffic.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import msgspec

from mrc_testbed.experiments.backend.outcome import HOST_DIED
from mrc_testbed.experiments.language.model import Transport
from mrc_testbed.experiments.resolve.flows import CollectivePlan, FlowPlan, pinned_evs
from mrc_testbed.experiments.resolve.recipe import engine_settings
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.ipc.rpc import JsonlClient, JsonlError
from mrc_testbed.topologies.lab.fabric import Fabric

LEAD_S = 0.3
"""Seconds between the requests for flows and their start: every agent must have its request by then."""

Answers = dict[str, dict[str, Any]]
"""Answers of agents by host."""


def flow_name(flow: FlowPlan) -> str:
    """Return `WORK:SOURCE-TARGET`, a flow's name in results."""
    return f"{flow.work}:{flow.source}-{flow.target}"


def ended_by_power(answer: dict[str, Any], time_s: float) -> dict[str, Any]:
    """Return an agent's answer to `flow_read` with what was not over yet failed: its host went off."""

    def dead_qps(qps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        death = {"state": "error", "error": HOST_DIED, "died_at": time_s}
        return [qp if qp["state"] == "error" else qp | death for qp in qps]

    sources = {
        name: source
        if source["over"]
        else {
            **source,
            "over": True,
            "failed": source["failed"] + 1,  # at least the message under way
            "latencies_s": [],
            "qps": dead_qps(source["qps"]),
        }
        for name, source in answer["sources"].items()
    }
    ranks = {
        name: rank if rank["done"] or rank["failed"] else {**rank, "failed": 1, "qps": dead_qps(rank["qps"])}
        for name, rank in answer["ranks"].items()
    }
    return {**answer, "sources": sources, "ranks": ranks}


class LiveWork:
    """Flows and collectives of a run, with a connection to each of their agents. Methods raise JsonlError."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan, self.planned_work = plan, plan.work()
        self.flows, self.groups, self.hosts = self.planned_work.flows, self.planned_work.groups, self.planned_work.hosts
        self.start_time = 0.0
        """Common start, CLOCK_MONOTONIC seconds; 0 before the start is set."""
        self.sizes: dict[str, tuple[int, float]] = {}
        """Collective -> bytes as made by its ranks, and bus factor."""
        self.owners: dict[tuple[str, int], str] = {}
        """(host, QPN) -> workload."""
        self.lost_hosts: dict[str, dict[str, Any]] = {}
        """Last answers to `flow_read` of hosts that were switched off, whose work ended there."""
        self._last_answers: Answers = {}
        """Last answers to `flow_read`."""
        self._power_losses: Mapping[str, float] = {}
        """Times at which hosts lost their power, CLOCK_MONOTONIC seconds."""
        self._clients: dict[str, JsonlClient] = {}
        self._pool: ThreadPoolExecutor | None = None

    def open(self, fabric: Fabric, stack: ExitStack) -> None:
        """Connect to the agents, for as long as the stack lasts."""
        self._power_losses = fabric.power_losses
        for host in self.hosts:
            client = JsonlClient(fabric.run_dir.agent_socket(host), name=host, works=fabric.works(host))
            self._clients[host] = client
            stack.callback(client.close)
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(self._clients)), thread_name_prefix="ask")
        stack.callback(self._pool.shutdown)

    def ask_all(self, op: str, fallback: Answers | None = None) -> Answers:
        """Return the answers of all agents, asked in parallel.

        `fallback`: answers to use for agents that do not answer; None: raise JsonlError.
        """
        assert self._pool is not None
        self._note_lost_hosts()
        futures = {
            host: self._pool.submit(client.request, op)
            for host, client in self._clients.items()
            if host not in self.lost_hosts
        }
        answers: Answers = {}
        for host, answer in futures.items():
            try:
                answers[host] = answer.result()
            except JsonlError:
                self._note_lost_hosts()
                if host in self.lost_hosts:
                    continue
                if fallback is None:
                    raise
                if host in fallback:
                    answers[host] = fallback[host]
        if op != "flow_read":
            return answers
        self._last_answers |= answers
        now = time.monotonic()
        return answers | {host: {**answer, "t": now} for host, answer in self.lost_hosts.items()}

    def _note_lost_hosts(self) -> None:
        """End the work of hosts that have been switched off: an agent that starts anew knows none of it."""
        for host, time_s in list(self._power_losses.items()):
            if host in self._last_answers and host not in self.lost_hosts:
                self.lost_hosts[host] = ended_by_power(self._last_answers[host], time_s)

    # ---- progress ---------------------------------------------------------------------------------------

    @property
    def total_bytes(self) -> int:
        """Bytes of all flows and collectives that have an end."""
        total = sum(flow.total_bytes or 0 for flow in self.flows)
        return total + sum(map(self.collective_bytes, self.groups))

    def collective_bytes(self, group: CollectivePlan) -> int:
        """Return the bytes that all ranks of a collective receive; 0 before the ranks are open."""
        size, factor = self.sizes.get(group.work, (0, 0.0))
        return int(size * factor * len(group.ranks) * (group.warm_up + group.iterations))

    def all_over(self, last: Answers) -> bool:
        """Return whether all work has ended or failed, by the last answers to `flow_read`."""
        if not all(last[flow.source]["sources"][flow_name(flow)]["over"] for flow in self.flows):
            return False
        groups = [[last[host]["ranks"][group.work] for host in group.ranks] for group in self.groups]
        return all(any(r["failed"] for r in ranks) or all(r["done"] for r in ranks) for ranks in groups)

    # ---- connecting -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect all flows and ranks, and schedule their start for `start_time`."""
        starts = [self._connect_flow(flow) for flow in self.flows]
        starts += [self._connect_group(group) for group in self.groups]
        self.start_time = time.monotonic() + LEAD_S
        for start in starts:
            start()

    def _qps(
        self, work: str, source: str, target: str, transport: Transport, pin: tuple[str, ...] = ()
    ) -> tuple[list[int], list[int]]:
        """Connect QPs from one host to another; return (QPNs at the source, QPNs at the target)."""
        source_agent, target_agent = self._clients[source], self._clients[target]
        keys = engine_settings(transport)
        settings = transport.config if transport.kind == "rocev2" else {}
        evs = pinned_evs(self.plan.fabric, source, target, pin) if pin else None
        source_qpns, target_qpns = [], []
        for _ in range(transport.qps):
            source_qp = source_agent.request("flow_qp", peer=target, transport=transport.kind, settings=settings)
            target_qp = target_agent.request("flow_qp", peer=source, transport=transport.kind, settings=settings)
            for client, local_qp, remote_qp in (
                (source_agent, source_qp, target_qp),
                (target_agent, target_qp, source_qp),
            ):
                client.request(
                    "flow_connect", qpn=local_qp["qpn"], remote=remote_qp["attributes"], config=keys, evs=evs
                )
            source_qpns.append(source_qp["qpn"])
            target_qpns.append(target_qp["qpn"])
            self.owners[source, source_qp["qpn"]] = self.owners[target, target_qp["qpn"]] = work
        return source_qpns, target_qpns

    def _connect_flow(self, flow: FlowPlan) -> Callable[[], None]:
        """Connect a flow's QPs; return the function that starts the flow."""
        name = flow_name(flow)
        source_qpns, target_qpns = self._qps(flow.work, flow.source, flow.target, flow.transport, flow.pin)
        shape = {
            "message_bytes": flow.message_bytes,
            "messages": flow.messages,
            "depth": max(flow.depth, flow.transport.qps),
            "rate_bps": flow.rate_bps,
            "seed": self.plan.seed,
        }
        memory = self._clients[flow.target].request("flow_sink", flow=name, qpns=target_qpns, shape=shape)

        # The start time is set only when all flows and ranks are connected.
        def start() -> None:
            stop = None if flow.stop_s is None else self.start_time + flow.stop_s
            self._clients[flow.source].request(
                "flow_source",
                flow=name,
                qpns=source_qpns,
                shape=shape,
                va=memory["va"],
                rkey=memory["rkey"],
                start_s=self.start_time + flow.start_s,
                stop_s=stop,
                latencies=self.plan.measure.latency,
            )

        return start

    @staticmethod
    def _rank_of(group: CollectivePlan, number: int) -> dict[str, Any]:
        """Return the arguments of `rank_open` that describe a rank: its script or its collective."""
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
        """Open and connect a collective's ranks; return the function that starts them."""
        name = group.work
        regions = []
        for number, host in enumerate(group.ranks):
            rank = self._clients[host].request(
                "rank_open",
                flow=name,
                seed=self.plan.seed,
                iterations=group.warm_up + group.iterations,
                **self._rank_of(group, number),
            )
            regions.append(rank["regions"])
            self.sizes[name] = (rank["size_bytes"], rank["bus_factor"])
        for number, host in enumerate(group.ranks):
            for peer in group.peers(number):
                peer_host = group.ranks[peer]
                host_qpns, peer_qpns = self._qps(name, host, peer_host, group.transport)
                self._clients[host].request("rank_link", flow=name, peer=peer, qpns=host_qpns, regions=regions[peer])
                sources = [[qpn, number, group.transport.qps] for qpn in peer_qpns]
                self._clients[peer_host].request("rank_link", flow=name, sources=sources)

        def start() -> None:
            for host in group.ranks:
                self._clients[host].request("rank_start", flow=name, start_s=self.start_time + group.start_s)

        return start
