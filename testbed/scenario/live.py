"""A run on the live fabric: Mininet, P4 switches, agents and controller; the same steps, senders and ranks as virtual.

    outcome = run_live(run, progress, target="embedded")

The fabric is brought up for each run and removed after it, healed or not, whatever ends the run. Agents carry the flows
(hosts/flows.py); this process injects faults on time, reads counters at every interval and listens to the agents' and
the controller's events. Times are CLOCK_MONOTONIC, told from the start of the workload.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import fmean
from typing import Any

from hosts.collectives import peers_of
from testbed.program import compile_program
from testbed.scenario.expand import Run
from testbed.scenario.flows import CollectivePlan, FlowPlan, collective_plans, flow_plans
from testbed.scenario.live_faults import LiveFaults
from testbed.scenario.model import Scenario, Transport
from testbed.scenario.outcome import CollectiveOutcome, FlowOutcome, Outcome, Series, iterations_of
from testbed.scenario.steps import Step, steps
from testbed.scenario.virtual_work import pinned
from topologies.jsonl import JsonlClient, JsonlError
from topologies.net import Fabric
from topologies.plan import Plan
from topologies.rundir import FabricError
from topologies.speeds import LinkSpeed, scaled_speed

LEAD_S = 0.3
"""Between asking for flows and their start: all agents have to be told."""
SETTLE_S = 0.5
"""Between the fabric being up and the first request."""
DRAIN_S = 0.3
"""How long flows that were stopped may take for what they have posted."""
NOT_CORRUPT = ("not ours", "no buffer", "ring full")
"""Reasons of a NIC's drops that say nothing about the frame's bytes."""

Progress = Callable[[float, float], None]


def run_live(run: Run, progress: Progress, *, target: str = "embedded", nic: str = "fast") -> Outcome:
    """Carry out a run. Raises FabricError, JsonlError, PlanError for what the machine or the fabric refuses."""
    live = LiveRun(run, target, nic)
    with live.fabric:
        return live.carry_out(progress)


def plan_of(scenario: Scenario) -> Plan:
    """The plan with the scenario's mode, rates and delays. Raises PlanError."""
    part, links, pmtu = scenario.fabric, scenario.links, scenario.transport.pmtu
    base = scaled_speed(links.rate, links.rtt, pmtu, Plan(mode=scenario.mode).mode)

    def speed(tier: Any) -> LinkSpeed:
        return LinkSpeed(
            tier.rate if tier.rate is not None else base.rate_bps,
            tier.delay if tier.delay is not None else base.delay_s,
        )

    return Plan(
        part.planes, part.racks, part.spines, part.hosts_per_rack, mode=scenario.mode,
        host_link=speed(links.host), fabric_link=speed(links.fabric), pmtu_bytes=pmtu,
    )  # fmt: skip


def discipline_of(scenario: Scenario) -> dict[str, Any]:
    """What the controller is told of the egress discipline (controller/discipline.py)."""
    queues = scenario.queues
    return {
        "ecn": queues.ecn, "trimming": queues.trim, "last_hop_ecn": queues.last_hop_ecn,
        "ecn_min": queues.ecn_min, "ecn_max": queues.ecn_max, "trim_at": queues.trim_at,
        "trim_last_hop": queues.trim_last_hop,
    }  # fmt: skip


def unlike(scenario: Scenario) -> list[str]:
    """What the scenario asks for and the live fabric does otherwise: a reader of the results has to know."""
    out = []
    if scenario.links.jitter:
        out.append("links.jitter is for virtual runs: live, delays are constant")
    if scenario.queues.limit is not None:
        out.append("queues.limit is for virtual runs: live, the hard limit is the plan's (docs/traffic.md)")
    return out


class LiveRun:
    """One run; use `fabric` as a context manager around `carry_out`."""

    def __init__(self, run: Run, target: str, nic: str) -> None:
        self.run, self.scenario = run, run.scenario
        self.plan = plan_of(run.scenario)
        control = run.scenario.control_plane
        self.fabric = Fabric(
            self.plan, target=target, nic=nic, compile_program=compile_program, discipline=discipline_of(run.scenario),
            denylist=control.denylist, react_after_s=math.inf if control.react_after is None else control.react_after,
        )  # fmt: skip
        self.faults = LiveFaults(self.fabric, self.plan)
        self.flows = flow_plans(run.scenario, self.plan, run.seed)
        self.groups = collective_plans(run.scenario, self.plan)
        senders = {f.source for f in self.flows} | {host for group in self.groups for host in group.ranks}
        pmtu = run.scenario.transport.pmtu
        share = pmtu / self.plan.frame_bytes()
        rate = self.plan.nic_rate_bps or 0.0
        self.outcome = Outcome(
            scenario=run.scenario.name, name=run.name, label=dict(run.label), where="live", seed=run.seed,
            repeat=run.repeat, mode=run.scenario.mode, capacity_bps=rate * share * len(senders),
            series=Series(run.scenario.measure.every),
        )  # fmt: skip
        self.outcome.notes += unlike(run.scenario)
        self.begins = 0.0
        self._clients: dict[str, JsonlClient] = {}
        self._sizes: dict[str, tuple[int, float]] = {}
        self._last: dict[str, Any] = {}
        self._before: dict[str, Any] = {}
        self._held: dict[str, int] = {}
        """Most packets a receiver held above a hole, by flow, or by collective and host."""
        self._latencies: dict[str, list[float]] = {}
        self._events_lock = threading.Lock()
        self._stop = threading.Event()

    # ---- running ----------------------------------------------------------------------------------------

    def carry_out(self, progress: Progress) -> Outcome:
        """Everything: early faults, connections, work, faults on time, samples, the end."""
        scenario, outcome = self.scenario, self.outcome
        with ExitStack() as stack:
            time.sleep(SETTLE_S)
            hosts = sorted(
                {n for f in self.flows for n in (f.source, f.target)} | {h for g in self.groups for h in g.ranks}
            )
            for host in hosts:
                client = JsonlClient(self.fabric.run_dir.agent_socket(host), name=host)
                self._clients[host] = client
                stack.callback(client.close)
            stack.callback(self._heal)
            watchers = [threading.Thread(target=self._watch, args=(host,), daemon=True) for host in hosts]
            watchers.append(threading.Thread(target=self._watch_controller, daemon=True))
            stack.callback(self._stop.set)
            timeline = steps(scenario, self.plan, self.run.seed)
            for step in timeline:
                if step.when.seconds is not None and step.when.seconds <= 0:
                    self._apply(step)
            for watcher in watchers:
                watcher.start()
            self._connect_all()
            self._loop(timeline, progress)
            self._stop.set()
            self._gather()
        return outcome

    def _loop(self, timeline: list[Step], progress: Progress) -> None:
        scenario, every = self.scenario, self.scenario.measure.every
        due = [step for step in timeline if step.when.seconds is not None and step.when.seconds > 0]
        shares = [step for step in timeline if step.when.seconds is None and step.undo is None]
        undo_of = {step.undo: step for step in timeline if step.when.seconds is None and step.undo is not None}
        end = scenario.duration if scenario.duration is not None else scenario.limit
        self._wait(self.begins)
        self._before = self._reading()
        if self.scenario.measure.evs:
            self._note_paths()
        tick = every
        late: list[tuple[float, Step]] = [(step.when.seconds or 0.0, step) for step in due]
        while True:
            now = self._now()
            late.sort(key=lambda one: (one[0], one[1].number))
            if late and late[0][0] <= now:
                self._apply(late.pop(0)[1])
                continue
            if now >= tick or now >= end:
                self._sample()
                tick = max(tick + every, self._now() + every * 0.2)
                done = self._share_done()
                for step in [step for step in shares if (step.when.share or 0.0) <= done]:
                    shares.remove(step)
                    self._apply(step)
                    if (undo := undo_of.get(step.number)) is not None:
                        late.append((self._now() + (undo.after or 0.0), undo))
                progress(min(now / end if scenario.duration is not None else done, 1.0), now)
                finished = scenario.duration is None and self._all_done()
                if finished or now >= end:
                    self.outcome.duration_s = self._now()
                    self.outcome.finished = finished or scenario.duration is not None
                    return
                self.fabric.check()
            following = min([tick, end, *(at for at, _ in late[:1])])
            self._wait(self.begins + following)

    @staticmethod
    def _wait(until: float) -> None:
        time.sleep(max(0.0, until - time.monotonic()))

    def _now(self) -> float:
        return time.monotonic() - self.begins

    def _apply(self, step: Step) -> None:
        note = self.faults.apply(step)
        t = self._now() if self.begins else 0.0
        with self._events_lock:
            self.outcome.event(t, "fault", number=step.number, action=step.action, undo=step.undo, text=str(step))
            if note:
                self.outcome.notes.append(note)

    def _heal(self) -> None:
        self.faults.close()
        self.fabric.inject.heal()

    # ---- work -------------------------------------------------------------------------------------------

    def _connect_all(self) -> None:
        """QPs, memory and ranks of everything; it all starts at one instant, `begins`."""
        starts: list[Callable[[], None]] = []
        for flow in self.flows:
            starts.append(self._connect_flow(flow))
        for group in self.groups:
            starts.append(self._connect_group(group))
        self.begins = time.monotonic() + LEAD_S
        for start in starts:
            start()

    def _qps(
        self, source: str, target: str, transport: Transport, pin: tuple[str, ...] = ()
    ) -> tuple[list[int], list[int]]:
        """Connected QPs from one host to another: (QPNs at the source, QPNs at the target)."""
        a, b = self._clients[source], self._clients[target]
        keys = {"pmtu_bytes": transport.pmtu, "no_receive": "deliver"}
        keys |= transport.config if transport.kind == "mrc" else {}
        settings = transport.config if transport.kind == "rocev2" else {}
        evs = pinned(self.plan, source, target, pin) if pin else None
        here, there = [], []
        for _ in range(transport.qps):
            mine = a.request("flow_qp", peer=target, transport=transport.kind, settings=settings)
            theirs = b.request("flow_qp", peer=source, transport=transport.kind, settings=settings)
            for client, one, other in ((a, mine, theirs), (b, theirs, mine)):
                client.request("flow_connect", qpn=one["qpn"], remote=other["attributes"], config=keys, evs=evs)
            here.append(mine["qpn"])
            there.append(theirs["qpn"])
        return here, there

    def _connect_flow(self, flow: FlowPlan) -> Callable[[], None]:
        name = f"{flow.work}:{flow.source}-{flow.target}"
        here, there = self._qps(flow.source, flow.target, flow.transport, flow.pin)
        shape = {
            "message_bytes": flow.message_bytes, "messages": flow.messages,
            "depth": max(flow.depth, flow.transport.qps), "rate_bps": flow.rate_bps, "seed": self.run.seed,
        }  # fmt: skip
        memory = self._clients[flow.target].request("flow_sink", flow=name, qpns=there, shape=shape)

        def start() -> None:
            stop = None if flow.stop_s is None else self.begins + flow.stop_s
            self._clients[flow.source].request(
                "flow_source", flow=name, qpns=here, shape=shape, va=memory["va"], rkey=memory["rkey"],
                start_s=self.begins + flow.start_s, stop_s=stop, latencies=self.scenario.measure.latency,
            )  # fmt: skip

        return start

    def _connect_group(self, group: CollectivePlan) -> Callable[[], None]:
        count, name = len(group.ranks), group.work
        regions = []
        for number, host in enumerate(group.ranks):
            made = self._clients[host].request(
                "rank_open", flow=name, kind=group.kind, rank=number, ranks=count, size_bytes=group.size_bytes,
                seed=self.run.seed, iterations=group.warm_up + group.iterations,
            )  # fmt: skip
            regions.append(made["regions"])
            self._sizes[name] = (made["size_bytes"], made["bus_factor"])
        for number, host in enumerate(group.ranks):
            for peer in peers_of(group.kind, number, count):
                other = group.ranks[peer]
                here, there = self._qps(host, other, group.transport)
                self._clients[host].request("rank_link", flow=name, peer=peer, qpns=here, regions=regions[peer])
                sources = [[qpn, number, group.transport.qps] for qpn in there]
                self._clients[other].request("rank_link", flow=name, sources=sources)

        def start() -> None:
            for host in group.ranks:
                self._clients[host].request("rank_start", flow=name, start_s=self.begins + group.start_s)

        return start

    # ---- looking ----------------------------------------------------------------------------------------

    def _reading(self) -> dict[str, Any]:
        """What all agents say now; the totals of flows and planes."""
        read = self._ask_all("flow_read")
        self._last = read
        received: dict[str, int] = {}
        at: dict[str, float] = {}
        """When each flow's receiver was read, by its own account: a busy host answers late."""
        packets: dict[str, dict[str, int]] = {}
        planes, lost, again = [0] * self.plan.planes, 0, 0
        for host, one in read.items():
            for name, sink in one["sinks"].items():
                received[name], at[name] = sink["received_bytes"], one["t"]
                self._held[name] = max(self._held.get(name, 0), sink["held"])
            for name, rank in one["ranks"].items():
                self._held[f"{name}@{host}"] = max(self._held.get(f"{name}@{host}", 0), rank["held"])
                for peer, amount in rank["received"].items():
                    received[f"{name}:{peer}-{host}"], at[f"{name}:{peer}-{host}"] = amount, one["t"]
            qps = [(name, qp) for name, source in one["sources"].items() for qp in source["qps"]]
            qps += [(name, qp) for name, rank in one["ranks"].items() for qp in rank["qps"]]
            for name, qp in qps:
                lost, again = lost + qp["lost"], again + qp["retransmitted"]
                mine = packets.setdefault(name, {})
                for ev, plane, _, sent in qp["evs"]:
                    key = f"{ev:#06x}"
                    mine[key] = mine.get(key, 0) + sent
                    planes[plane] += sent
            for name, source in one["sources"].items():
                self._latencies.setdefault(name, []).extend(source["latencies_s"])
        frame = self.plan.frame_bytes()
        return {
            "at": fmean(one["t"] for one in read.values()) - self.begins, "received": received, "times": at,
            "lost": lost, "retransmitted": again, "evs": packets,
            "planes": [count * frame for count in planes],
        }  # fmt: skip

    def _note_paths(self) -> None:
        """The EVs of every QP as they were read last."""
        for flow in self.flows:
            name = f"{flow.work}:{flow.source}-{flow.target}"
            if flow.transport.kind == "mrc":
                for qp in self._last[flow.source]["sources"][name]["qps"]:
                    self.outcome.note_evs(name, qp["qpn"], [ev[:3] for ev in qp["evs"]])
        for group in self.groups:
            if group.transport.kind == "mrc":
                for host in group.ranks:
                    for qp in self._last[host]["ranks"][group.work]["qps"]:
                        name = f"{group.work}:{host}-{qp['peer']}"
                        self.outcome.note_evs(name, qp["qpn"], [ev[:3] for ev in qp["evs"]])

    def _ask_all(self, op: str) -> dict[str, Any]:
        """The answers of all agents, asked at once."""
        with ThreadPoolExecutor(max_workers=len(self._clients)) as pool:
            asked = {host: pool.submit(client.request, op) for host, client in self._clients.items()}
            return {host: one.result() for host, one in asked.items()}

    def _sample(self) -> None:
        before, after = self._before, self._reading()
        passed = after["at"] - before["at"]
        if passed <= 0:
            return
        self._before = after
        series = self.outcome.series
        series.times_s.append(round(after["at"], 6))
        for name, value in after["received"].items():
            rates = series.received_bps.setdefault(name, [0.0] * (len(series.times_s) - 1))
            span = after["times"][name] - before["times"].get(name, self.begins)
            rates.append((value - before["received"].get(name, 0)) * 8 / span if span > 0 else 0.0)
        series.lost.append(after["lost"] - before["lost"])
        series.retransmitted.append(after["retransmitted"] - before["retransmitted"])
        series.plane_bps.append([(a - b) * 8 / passed for a, b in zip(after["planes"], before["planes"], strict=True)])
        if self.scenario.measure.evs and len(self.flows) <= 8:
            for name, sent in after["evs"].items():
                was = before["evs"].get(name, {})
                news = {ev: count - was.get(ev, 0) for ev, count in sent.items() if count > was.get(ev, 0)}
                series.ev_packets.setdefault(name, []).append(news)
        for port in self._recorded():
            depth = None
            try:
                depth = sum(queue.depth_bytes for queue in self.fabric.traffic.queues(port) if queue.priority == 0)
            except FabricError as error:  # a switch without power, or a target that cannot tell
                self._note(f"queue depths of {port} are missing: {error}")
            series.queues.setdefault(port, []).append(depth)

    def _recorded(self) -> list[str]:
        out: list[str] = []
        for name in self.scenario.measure.queues:
            if name == "last-hop":
                targets = {flow.target for flow in self.flows}
                out += [k.upper.interface for k in self.plan.links if k.lower.node in targets]
            else:
                out.append(name)
        return list(dict.fromkeys(out))

    def _note(self, text: str) -> None:
        if text not in self.outcome.notes and len(self.outcome.notes) < 20:
            self.outcome.notes.append(text)

    def _all_done(self) -> bool:
        for flow in self.flows:
            if not self._last[flow.source]["sources"][f"{flow.work}:{flow.source}-{flow.target}"]["done"]:
                return False
        ranks = [self._last[host]["ranks"][group.work] for group in self.groups for host in group.ranks]
        return any(rank["failed"] for rank in ranks) or all(rank["done"] for rank in ranks)

    def _share_done(self) -> float:
        total = sum(flow.total_bytes or 0 for flow in self.flows)
        for group in self.groups:
            size, factor = self._sizes[group.work]
            total += int(size * factor * len(group.ranks) * (group.warm_up + group.iterations))
        return sum(self._before["received"].values()) / total if total else 0.0

    def _watch(self, host: str) -> None:
        """EV, plane and QP events of one agent, until the end."""
        try:
            client = JsonlClient(self.fabric.run_dir.agent_socket(host), name=host)
            with client, client.watch(events=["ev", "ev_replaced", "plane", "qp_error"]) as watch:
                while not self._stop.is_set():
                    event = watch.get(timeout_s=0.2)
                    if event is not None and self.begins:
                        self._agent_event(host, event)
        except JsonlError as error:
            if not self._stop.is_set():
                self._note(f"{host}'s events: {error}")

    def _agent_event(self, host: str, event: dict[str, Any]) -> None:
        t = event.get("t", time.monotonic()) - self.begins
        with self._events_lock:
            match event["event"]:
                case "ev":
                    keys = ("qpn", "peer", "ev", "plane", "cause")
                    self.outcome.event(
                        t, "ev", host=host, old=event["from"], new=event["to"], **{key: event[key] for key in keys}
                    )
                case "ev_replaced":
                    self.outcome.event(
                        t, "replaced", host=host, qpn=event["qpn"], ev=event["ev"], by=event["by"], plane=event["plane"]
                    )
                case "plane":
                    self.outcome.event(t, "plane", host=host, peer=event["peer"], plane=event["plane"], up=event["up"])
                case "qp_error":
                    text = f"{event['status']}: {event['detail']}"
                    self.outcome.event(t, "qp_error", host=host, qpn=event["qpn"], peer=event["peer"], text=text)

    def _watch_controller(self) -> None:
        """Faults the controller names, and what it changes in switches. Starts anew when it was killed and is back."""
        while not self._stop.is_set():
            try:
                with self.fabric.controller.watch(timeout_s=2.0, events="fault,live,denylist") as watch:
                    while not self._stop.is_set():
                        event = watch.get(timeout_s=0.2)
                        if event is not None and self.begins:
                            self._controller_event(event)
            except JsonlError:
                self._stop.wait(0.3)

    def _controller_event(self, event: dict[str, Any]) -> None:
        t = event.get("t", time.monotonic()) - self.begins
        with self._events_lock:
            match event["event"]:
                case "fault" if t >= 0:
                    self.outcome.event(t, "detected", text=f"{event['change']}: {event['fault']['text']}")
                case "live" if event.get("reason") in ("prune", "restore"):
                    self.outcome.event(t, "control", text="tables changed")
                case "denylist":
                    self.outcome.event(t, "control", text=f"denylist: {len(event['entries'])} entries")

    # ---- the end ----------------------------------------------------------------------------------------

    def _gather(self) -> None:
        self._ask_all("flow_stop")
        self._wait(time.monotonic() + DRAIN_S)
        last = self._ask_all("flow_read")
        self.outcome.events.sort(key=lambda event: event["t"])
        for flow in self.flows:
            self.outcome.flows.append(self._flow_outcome(flow, last))
        for group in self.groups:
            self._group_outcome(group, last)
        self._count()
        states = [ev[2] for one in last.values() for qps in self._all_qps(one) for qp in qps for ev in qp["evs"]]
        self.outcome.evs_bad = sum(state == "assumed_bad" for state in states)
        self.outcome.evs_denied = sum(state == "denied" for state in states)

    @staticmethod
    def _all_qps(one: dict[str, Any]) -> list[list[dict[str, Any]]]:
        return [source["qps"] for source in one["sources"].values()] + [rank["qps"] for rank in one["ranks"].values()]

    def _flow_outcome(self, flow: FlowPlan, last: dict[str, Any]) -> FlowOutcome:
        name = f"{flow.work}:{flow.source}-{flow.target}"
        source, sink = last[flow.source]["sources"][name], last[flow.target]["sinks"][name]
        ended = source["finished_at"]
        result = FlowOutcome(
            flow.work, flow.source, flow.target, flow.transport.qps, flow.message_bytes, completed=source["completed"],
            failed=source["failed"], damaged=sink["damaged"], received_bytes=sink["received_bytes"],
            started_s=flow.start_s, finished_s=None if ended is None else ended - self.begins,
            latencies_s=self._latencies.get(name, []) + source["latencies_s"],
        )  # fmt: skip
        add_qps(result, source["qps"])
        result.reorder_max = self._held.get(name, 0)
        return result

    def _group_outcome(self, group: CollectivePlan, last: dict[str, Any]) -> None:
        ranks = [last[host]["ranks"][group.work] for host in group.ranks]
        size, factor = self._sizes[group.work]
        made = CollectiveOutcome(group.work, group.kind, list(group.ranks), size, factor)
        ended = [[(at - self.begins, wrong) for at, wrong in rank["ended"]] for rank in ranks]
        made.iterations = iterations_of(group.start_s, list(group.ranks), ended, group.warm_up)
        self.outcome.collectives.append(made)
        for host, rank in zip(group.ranks, ranks, strict=True):
            for peer in sorted({qp["peer"] for qp in rank["qps"]}):
                qps = [qp for qp in rank["qps"] if qp["peer"] == peer]
                result = FlowOutcome(group.work, host, peer, len(qps), 0, started_s=group.start_s)
                result.received_bytes = last[peer]["ranks"][group.work]["received"].get(host, 0)
                result.failed = rank["failed"]
                if rank["done"] and rank["ended"]:
                    result.finished_s = rank["ended"][-1][0] - self.begins
                add_qps(result, qps)
                result.reorder_max = self._held.get(f"{group.work}@{peer}", 0)
                self.outcome.flows.append(result)

    def _count(self) -> None:
        """Marks, trims and drops of all switches, and what the controller wrote."""
        totals = {"marked": 0, "trimmed": 0, "trimmed_last_hop": 0, "dropped_queue": 0, "dropped_control": 0}
        for switch in self.plan.switches:
            try:
                counted = self.fabric.controller.request("counters", switch=switch.name)["counters"]
                for kind in ("marked", "trimmed", "drops"):
                    for row in counted.get(kind, []):
                        self._add_counter(totals, kind, row)
                for port in self.plan.ports(switch.name):
                    for queue in self.fabric.traffic.queues(port.interface):
                        key = "dropped_queue" if queue.priority == 0 else "dropped_control"
                        totals[key] += queue.dropped_pkts
            except (FabricError, JsonlError) as error:
                self._note(f"what {switch.name} counted is missing: {error}")
        self.outcome.counters = {**totals, "corrupted": self._corrupted()}
        try:
            self.outcome.counters["table_writes"] = self.fabric.controller.request("status")["writes_after_start"]
        except JsonlError as error:
            self._note(f"table_writes is missing: {error}")
        last_hop = {k.upper.interface for k in self.plan.links if k.lower.node.startswith("h")}
        seen = {port: [d for d in depths if d is not None] for port, depths in self.outcome.series.queues.items()}
        deepest = {port: max(depths) for port, depths in seen.items() if port in last_hop and depths}
        if deepest:  # as seen at the intervals, of the ports that measure.queues names
            self.outcome.counters["peak_queue_bytes"] = deepest

    def _corrupted(self) -> int:
        """Frames that NICs refused for what was in them: a flipped bit breaks the iCRC, or the header it hits."""
        answers = self._ask_all("status")
        drops = [port["rx_dropped"] for one in answers.values() for port in one["ports"].values()]
        return sum(count for one in drops for reason, count in one.items() if reason not in NOT_CORRUPT)

    @staticmethod
    def _add_counter(totals: dict[str, int], kind: str, row: dict[str, Any]) -> None:
        reason = str(row.get("reason") or "").lower()
        if kind == "marked":
            totals["marked"] += row["packets"]
        elif kind == "trimmed":
            totals["trimmed"] += row["packets"]
            if "last" in reason:
                totals["trimmed_last_hop"] += row["packets"]
        elif reason in ("queue", "not_trimmable"):
            totals["dropped_queue"] += row["packets"]


def add_qps(result: FlowOutcome, qps: list[dict[str, Any]]) -> None:
    """Counters of a flow's QPs at its source."""
    for qp in qps:
        result.lost += qp["lost"]
        result.lost_worst_qp = max(result.lost_worst_qp, qp["lost"])
        result.sent += qp["sent"]
        result.retransmitted += qp["retransmitted"]
        result.timeouts += qp["timeouts"]
