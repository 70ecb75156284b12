"""A run in virtual time: the scenario's fabric, flows, collectives and faults on simulator, into an Outcome.

    outcome = run_virtual(run, progress=lambda share, now: ...)

The same seed gives the same outcome to the byte, on any machine: nothing here reads a clock or an unseeded die.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from mrc_testbed.experiments.backend.failures import audit
from mrc_testbed.experiments.backend.outcome import LINKS_MAX, FlowOutcome, Outcome, Series, dead_evs, down_planes
from mrc_testbed.experiments.language.expand import Run
from mrc_testbed.experiments.language.model import Transport
from mrc_testbed.experiments.resolve.fault_schedule import FaultStep, StepRunner, steps
from mrc_testbed.experiments.resolve.flows import collective_plans, flow_plans
from mrc_testbed.experiments.resolve.recipe import engine_settings, queue_settings, tier_queues
from mrc_testbed.experiments.resolve.validate import plan_of
from mrc_testbed.experiments.virtual.control_plane import VirtualControl
from mrc_testbed.experiments.virtual.virtual_work import VirtualCollective, VirtualFlow, held_packets
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.events import EvChanged, EvReplaced, PacketLost, PlaneChanged, QpError
from mrc_testbed.hosts.engine.wire.packets import FIRST_QPN
from mrc_testbed.simulator import scaled
from mrc_testbed.simulator.fabric import VirtualFabric, usual_lookahead
from mrc_testbed.simulator.fault_target import VirtualFaultTarget
from mrc_testbed.simulator.pfc import pause_of
from mrc_testbed.simulator.profiles import Line, LinkProfile

SETTLE_S, SETTLE_RTTS = 0.05, 5
"""Virtual time before the workload starts, the shorter of both: ports come up, probes of the base RTT go out."""
EV_FLOWS_MAX = 8
"""Packets by EV are recorded in runs of at most this many flows."""
QUEUE_DROPS = ("queue_full", "not_trimmable", "headroom_full")
"""Reasons of drops that `dropped.queue` counts."""
TICK_SHARE = 0.5
"""Faults at a share of the work are looked for this often, as a part of the sampling interval."""

Progress = Callable[[float, float], None]
"""Called with (share done 0..1, virtual seconds) now and then."""


def run_virtual(run: Run, progress: Progress | None = None) -> Outcome:
    """Carry out a run. Raises FaultError or LocalError for what the fabric or the engines refuse."""
    try:
        return VirtualRun(run).carry_out(progress or (lambda _share, _now: None))
    finally:
        gc.collect()  # its fabric is full of cycles, and may hold gigabytes


@contextmanager
def collector_off() -> Iterator[None]:
    """Let Python not look for cycles while a fabric is made, which is all objects that stay and no garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class VirtualRun:
    """One run; `carry_out` once."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.scenario = scenario = run.scenario
        self.plan = plan_of(scenario)
        self.scale = self._scale(scenario.transport)
        self.control = VirtualControl(scenario, self.plan)
        # Flow-ECMP hashes QPNs: they count from the first, as on a NIC, and what collides is the seed's draw alone.
        with collector_off():
            self.fabric = VirtualFabric(
                self.plan, seed=run.seed, links=self._links(), queues=self.scale.queues,
                mode=scenario.mode, config=self.scale.config, keep_events=False, first_qpn=FIRST_QPN,
                lookahead=usual_lookahead(self.plan),
            )  # fmt: skip
        self.control.attach(self.fabric)
        self._slower_tiers()
        self.faults = StepRunner(VirtualFaultTarget(self.fabric, self.control))
        self.begins = min(SETTLE_S, SETTLE_RTTS * scenario.links.rtt)
        senders = {f.source for f in flow_plans(scenario, self.plan, run.seed)}
        senders |= {host for c in collective_plans(scenario, self.plan, run.seed) for host in c.ranks}
        per_nic = self.plan.planes * self._nic_rate() * self.scale.payload_share
        self.outcome = Outcome(
            scenario=scenario.name, name=run.name, label=dict(run.label), where="virtual", seed=run.seed,
            repeat=run.repeat, mode=scenario.mode, capacity_bps=per_nic * len(senders),
            series=Series(scenario.measure.every),
        )  # fmt: skip
        self.flows: list[VirtualFlow] = []
        self.collectives: list[VirtualCollective] = []
        self._total_bytes = 0
        self._shares: list[tuple[float, FaultStep]] = []
        self._lost = 0
        self._owners: dict[tuple[str, int], tuple[str, Any]] = {}
        """(host, QPN) -> workload and QP."""
        self._timeline: list[FaultStep] = []
        self._before: dict[str, Any] = {}

    # ---- making -----------------------------------------------------------------------------------------

    def _scale(self, transport: Transport) -> Any:
        links, queues = self.scenario.links, self.scenario.queues
        return scaled(
            self.plan.planes, rate_bps=links.rate, rtt_s=links.rtt, pmtu_bytes=transport.pmtu,
            ecn=queues.ecn, trim=queues.trim, config=engine_settings(transport),
            queues=queue_settings(queues, links.rate * links.rtt / 8, links.rtt),
        )  # fmt: skip

    def _links(self) -> LinkProfile:
        links = self.scenario.links
        base = self.scale.links.nic
        return LinkProfile(
            nic=_line(base, links.host, links.jitter),
            fabric=_line(base, links.fabric, links.jitter),
        )

    def _nic_rate(self) -> float:
        return self.scenario.links.host.rate or self.scenario.links.rate

    def _slower_tiers(self) -> None:
        """Ports of a tier with a rate of its own get thresholds from that rate."""
        links = self.scenario.links
        hosts = {host.name for host in self.plan.hosts}
        for link in self.plan.links:
            tier = links.host if link.lower.node in hosts else links.fabric
            if tier.rate is None or tier.rate == links.rate:
                continue
            profile = tier_queues(self.scenario, tier.rate)
            for a, b in ((link.lower.node, link.upper.node), (link.upper.node, link.lower.node)):
                if a not in hosts:
                    self.fabric.set_queues(a, b, profile)

    def config_for(self, transport: Transport) -> Config | None:
        """Configuration of a QP whose transport is not the scenario's; None: the fabric's."""
        if transport == self.scenario.transport:
            return None
        config: Config = self.scale.config
        return replace(config, **engine_settings(transport))

    # ---- running ----------------------------------------------------------------------------------------

    def carry_out(self, progress: Progress) -> Outcome:
        """Everything, in order: early faults, connections, work, samples, the end."""
        fabric, scenario, outcome = self.fabric, self.scenario, self.outcome
        self.begin()
        self._step_through(self.ends, progress)
        outcome.duration_s = fabric.now - self.begins
        outcome.finished = scenario.duration is not None or self._all_over()
        self._sample(fabric.now)
        self._gather()
        outcome.events.sort(key=lambda event: event["t"])  # hosts run ahead of one another
        plans = [flow.plan for flow in self.flows], [one.plan for one in self.collectives]
        audit(outcome, *plans, self._timeline)
        return outcome

    def begin(self) -> None:
        """Take everything up to the start of the work; carry_out does."""
        fabric, scenario = self.fabric, self.scenario
        for host in fabric.hosts.values():
            host.listen(partial(self._event, host.name))
        timeline = self._timeline = steps(scenario, self.plan, self.run.seed)
        early = [s for s in timeline if s.when.seconds is not None and s.when.seconds <= 0]
        for step in early:
            self._apply(step)
        fabric.run_until(self.begins)
        with collector_off():
            self._make_work()
        for step in timeline:
            if step.when.seconds is not None and step.when.seconds > 0:
                fabric.at(self.begins + step.when.seconds, partial(self._apply, step))
        self._shares = [(s.when.share or 0.0, s) for s in timeline if s.when.seconds is None and s.undo is None]
        self._undo_of_share = {s.undo: s for s in timeline if s.when.seconds is None and s.undo is not None}
        self._begin_sampling()

    @property
    def ends(self) -> float:
        """Virtual time at which it is over at the latest."""
        given = self.scenario.duration if self.scenario.duration is not None else self.scenario.limit
        return self.begins + given

    @property
    def share_done(self) -> float:
        """Part of the work, or of the time where that is given, that lies behind (0..1)."""
        if self.scenario.duration is None:
            return min(self._share_done(), 1.0)
        return min((self.fabric.now - self.begins) / self.scenario.duration, 1.0)

    def _step_through(self, end: float, progress: Progress) -> None:
        fabric, every = self.fabric, self.scenario.measure.every
        ends_by_itself = self.scenario.duration is None
        stop = self._all_over if ends_by_itself else (lambda: False)
        while fabric.now < end:
            target = min(fabric.now + every * 10, end)
            if fabric.run_until(stop, limit_s=target - fabric.now):
                return
            fabric.run_until(target)  # with a predicate the clock stays at the last event
            progress(self.share_done, fabric.now - self.begins)

    def _all_over(self) -> bool:
        return all(flow.over for flow in self.flows) and all(one.over for one in self.collectives)

    def _share_done(self) -> float:
        if not self._total_bytes:
            return 0.0
        received = sum(flow.received_bytes for flow in self.flows)
        return (received + sum(one.received_bytes for one in self.collectives)) / self._total_bytes

    def _make_work(self) -> None:
        scenario, seed = self.scenario, self.run.seed
        for plan in flow_plans(scenario, self.plan, seed):
            config = self.config_for(plan.transport)
            self.flows.append(VirtualFlow(self.fabric, plan, self.begins, config, self.control, scenario))
            self._total_bytes += plan.total_bytes or 0
        for group in collective_plans(scenario, self.plan, seed):
            config = self.config_for(group.transport)
            made = VirtualCollective(self.fabric, group, self.begins, config, self.control, seed)
            self.collectives.append(made)
            self._total_bytes += made.total_bytes
        for work, source, target, pairs in [
            *((flow.plan.work, flow.plan.source, flow.plan.target, flow.pairs) for flow in self.flows),
            *((one.plan.work, flow.source, flow.target, flow.pairs) for one in self.collectives for flow in one.flows),
        ]:
            for sender, receiver in pairs:
                self._owners[source, sender.qpn] = work, sender
                self._owners[target, receiver.qpn] = work, receiver

    # ---- faults -----------------------------------------------------------------------------------------

    def _apply(self, step: FaultStep) -> None:
        now = self.fabric.now - self.begins
        self.outcome.event(now, "fault", number=step.number, action=step.action, undo=step.undo, text=str(step))
        self.faults.apply(step)
        self.control.fault(step, self.fabric.now, self.begins, self.outcome)
        self.fabric.kick()

    def _check_shares(self, now: float) -> None:
        done = self._share_done()
        due = [step for share, step in self._shares if share <= done]
        self._shares = [(share, step) for share, step in self._shares if share > done]
        for step in due:
            self._apply(step)
            undo = self._undo_of_share.get(step.number)
            if undo is not None:
                self.fabric.at(now + (undo.after or 0.0), partial(self._apply, undo))

    # ---- looking ----------------------------------------------------------------------------------------

    def _event(self, host: str, event: Any) -> None:
        t = self.fabric.now - self.begins
        match event:
            case PacketLost():
                self._lost += 1
            case EvChanged():
                self.outcome.event(
                    t, "ev", host=host, qpn=event.qpn, peer=event.peer, ev=event.ev, plane=event.plane,
                    old=event.old.name.lower(), new=event.new.name.lower(), cause=event.cause,
                )  # fmt: skip
            case EvReplaced():
                self.outcome.event(t, "replaced", host=host, qpn=event.qpn, ev=event.ev, by=event.by, plane=event.plane)
            case PlaneChanged():
                self.outcome.event(t, "plane", host=host, peer=event.peer, plane=event.plane, up=event.up)
            case QpError():
                self._qp_died(t, host, event)

    def _qp_died(self, t: float, host: str, event: QpError) -> None:
        work, qp = self._owners[host, event.qpn]
        evs = [(state["plane"], state["state"]) for state in qp.ev_states()] if qp.transport == "mrc" else []
        down = down_planes(self.outcome.events, host, event.peer)
        self.outcome.event(
            t, "qp_error", host=host, qpn=event.qpn, peer=event.peer, text=event.detail, work=work,
            evs=len(evs), evs_dead=dead_evs(evs, down),
        )  # fmt: skip

    def _note_paths(self) -> None:
        """The EVs of every QP as they are now."""
        for flow in (*self.flows, *self.collectives_as_flows()):
            for sender, _ in flow.pairs:
                if sender.transport == "mrc":
                    evs = [[state["ev"], state["plane"], state["state"]] for state in sender.ev_states()]
                    self.outcome.note_evs(flow.name, sender.qpn, evs)

    def _begin_sampling(self) -> None:
        self._before = self._reading()
        if self.scenario.measure.evs:
            self._note_paths()
        every = self.scenario.measure.every
        self.fabric.sample(every, self._sample, self.begins + self.scenario.limit)
        if self._shares:
            self.fabric.sample(every * TICK_SHARE, self._check_shares, self.begins + self.scenario.limit)

    def _reading(self) -> dict[str, Any]:
        ports = self.fabric.ports.values()
        hosts = self.fabric.hosts.values()
        return {
            "at": self.fabric.now,
            "received": {flow.name: flow.received_bytes for flow in (*self.flows, *self.collectives_as_flows())},
            "lost": self._lost,
            "retransmitted": sum(
                sender.counters.retransmitted
                for flow in (*self.flows, *self.collectives_as_flows())
                for sender, _ in flow.pairs
            ),
            "marked": sum(port.marked for port in ports),
            "trimmed": sum(port.trimmed for port in ports),
            "dropped": sum(sum(port.dropped.values()) for port in ports),
            "link_lost": sum(port.lost.total() - port.lost["corrupt"] for port in ports),
            "evs": self._ev_packets(),
            "planes": [sum(host.ports[p].forwarded_bytes for host in hosts) for p in range(self.plan.planes)],
            "links": self._link_bytes(),
        }

    def _link_bytes(self) -> dict[str, tuple[int, int]]:
        """Bytes over each link so far, away from the hosts and towards them; of small fabrics."""
        if len(self.plan.links) > LINKS_MAX:
            return {}
        ports = self.fabric.ports
        return {
            link.name: (ports[link.lower.interface].forwarded_bytes, ports[link.upper.interface].forwarded_bytes)
            for link in self.plan.links
        }

    def _ev_packets(self) -> dict[str, dict[str, int]]:
        """Flow name -> packets sent over each EV so far."""
        if not self.scenario.measure.evs or len(self.flows) > EV_FLOWS_MAX:
            return {}
        out: dict[str, dict[str, int]] = {}
        for flow in self.flows:
            sent = out.setdefault(flow.name, {})
            for state in (state for sender, _ in flow.pairs for state in sender.ev_states()):
                name = f"{state['ev']:#06x}"
                sent[name] = sent.get(name, 0) + state["sent"]
        return out

    def collectives_as_flows(self) -> list[Any]:
        """The flows of all collectives: one a pair of ranks."""
        return [flow for one in self.collectives for flow in one.flows]

    def _sample(self, now: float) -> None:
        before, after = self._before, self._reading()
        passed = now - before["at"]
        if passed < self.scenario.measure.every * 1e-6:
            return
        self._before = after
        for flow in (*self.flows, *self.collectives_as_flows()):
            flow.reorder_max = max(flow.reorder_max, held_packets(flow.pairs))
        series = self.outcome.series
        series.times_s.append(round(now - self.begins, 9))
        for name, value in after["received"].items():
            series.received_bps.setdefault(name, []).append((value - before["received"].get(name, 0)) * 8 / passed)
        for name, sent in after["evs"].items():
            was = before["evs"].get(name, {})
            news = {ev: count - was.get(ev, 0) for ev, count in sent.items() if count > was.get(ev, 0)}
            series.ev_packets.setdefault(name, []).append(news)
        for key in ("lost", "retransmitted", "marked", "trimmed", "dropped", "link_lost"):
            getattr(series, key).append(after[key] - before[key])
        series.plane_bps.append([(a - b) * 8 / passed for a, b in zip(after["planes"], before["planes"], strict=True)])
        for name, now_bytes in after["links"].items():
            then = before["links"][name]
            rates = [round((a - b) * 8 / passed) for a, b in zip(now_bytes, then, strict=True)]
            series.link_bps.setdefault(name, []).append(rates)
        for name in self._recorded():
            series.queues.setdefault(name, []).append(self.fabric.ports[name].data_bytes)

    def _recorded(self) -> list[str]:
        out: list[str] = []
        for name in self.scenario.measure.queues:
            if name == "last-hop":
                targets = {flow.plan.target for flow in self.flows}
                out += [p.name for p in self.fabric.ports.values() if p.last_hop and p.neighbour in targets]
            else:
                out.append(name)
        return list(dict.fromkeys(out))

    def _gather(self) -> None:
        outcome, fabric = self.outcome, self.fabric
        outcome.flows = [flow.outcome() for flow in self.flows]
        for one in self.collectives:
            outcome.collectives.append(one.outcome())
            outcome.flows += one.flow_outcomes()
        ports = fabric.ports.values()
        outcome.counters = {
            "marked": sum(port.marked for port in ports),
            "trimmed": sum(port.trimmed for port in ports),
            "trimmed_last_hop": sum(port.trimmed for port in ports if port.last_hop),
            "dropped_queue": sum(sum(port.dropped[why] for why in QUEUE_DROPS) for port in ports),
            "dropped_control": sum(port.dropped["control_queue_full"] for port in ports),
            "corrupted": sum(host.dropped["iCRC"] for host in fabric.hosts.values()),
            "table_writes": self.control.table_writes,
            "peak_queue_bytes": {port.name: port.peak_bytes for port in ports if port.peak_bytes and port.last_hop},
        }
        pauses = [pause for port in ports if (pause := pause_of(port)) is not None]
        if pauses:
            outcome.counters |= {
                "pauses": sum(pause.pauses for pause in pauses), "storms": sum(pause.storms for pause in pauses),
                "longest_pause_s": max(pause.longest_s for pause in pauses),
                "pause_frames": sum(pause.frames for pause in pauses),
            }  # fmt: skip
        pairs = [pair for flow in (*self.flows, *self.collectives_as_flows()) for pair in flow.pairs]
        states = [state["state"] for sender, _ in pairs for state in sender.ev_states()]
        outcome.evs_bad = sum(state == "assumed_bad" for state in states)
        outcome.evs_denied = sum(state == "denied" for state in states)


def _line(base: Line, tier: Any, jitter: float) -> Line:
    return replace(
        base,
        rate_bps=tier.rate if tier.rate is not None else base.rate_bps,
        delay_s=tier.delay if tier.delay is not None else base.delay_s,
        jitter_s=jitter,
    )


__all__ = ["FlowOutcome", "VirtualRun", "run_virtual"]
