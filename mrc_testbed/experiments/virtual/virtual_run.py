"""Run in virtual time: the scenario's fabric, flows, collectives and faults on the simulator.

    outcome = VirtualRunner().run(plan, lambda share, now: ...)

The same seed gives the same outcome to the byte, on any machine: nothing here reads a clock or an unseeded generator.

Two processes may share a run (simulator/halves.py). Each then counts at its own hosts and ports. What decides how the
run goes on, and what is recorded, is gathered from both.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from mrc_testbed.experiments.backend.failures import audit
from mrc_testbed.experiments.backend.outcome import HOST_DIED, LINKS_MAX, Outcome, dead_evs, down_planes
from mrc_testbed.experiments.backend.protocol import Watch, ignore_progress
from mrc_testbed.experiments.resolve.fault_schedule import FaultStep, StepRunner
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.virtual.control_plane import VirtualControl
from mrc_testbed.experiments.virtual.virtual_work import (
    RankFlow,
    VirtualCollective,
    VirtualFlow,
    flow_outcomes,
    held_packets,
)
from mrc_testbed.hosts.engine.events import EvChanged, EvReplaced, PacketLost, PlaneChanged, QpError
from mrc_testbed.hosts.engine.wire.packets import FIRST_QPN
from mrc_testbed.simulator.fabric import VirtualFabric, usual_lookahead
from mrc_testbed.simulator.fault_target import VirtualFaultTarget
from mrc_testbed.simulator.halves import Half, run_in_halves
from mrc_testbed.simulator.pfc import pause_of
from mrc_testbed.topologies.plan import Mode

SETTLE_S, SETTLE_RTTS = 0.05, 5
"""Virtual time before the workload starts, the shorter of both: ports come up, the base RTT is probed."""
EV_FLOWS_MAX = 8
"""Packets by EV are recorded in runs of at most this many flows."""
QUEUE_DROPS = ("queue_full", "not_trimmable", "headroom_full")
"""Reasons of drops that `dropped.queue` counts."""
TICK_SHARE = 0.5
"""Interval between checks for faults at a share of the work, as a part of the sampling interval."""


class VirtualRunner:
    """Runs in virtual time; `halves`: each in two processes."""

    def __init__(self, halves: bool = False) -> None:
        self._halves = halves

    def run(self, plan: RunPlan, watch: Watch = ignore_progress) -> Outcome:
        """Carry out a run.

        Raises FaultError or LocalError for what the fabric or the engines refuse, and with halves ProfileError for a
        fabric that has none, and LostHalfError.
        """
        try:
            return run_in_halves(_carry_out, plan, watch=watch) if self._halves else _carry_out(None, plan, watch)
        finally:
            gc.collect()  # the run's fabric is full of cycles, and may hold gigabytes


def _carry_out(half: Half | None, plan: RunPlan, watch: Watch = ignore_progress) -> Outcome:
    return VirtualRun(plan, half).carry_out(watch)


@contextmanager
def collector_off() -> Iterator[None]:
    """Switch cycle collection off while a fabric is built, which makes no garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class VirtualRun:
    """One run; `carry_out` once."""

    def __init__(self, plan: RunPlan, half: Half | None = None) -> None:
        self.plan, self.work = plan, plan.work()
        # In every mode but ecmp, virtual QPs have an EV for each path: the EVs of srv6.
        paths = replace(plan.fabric, mode=Mode.SRV6)
        self.control = VirtualControl(plan.control, paths)
        # Flow-ECMP hashes QPNs: QPNs count from the first, as on a NIC, so that collisions depend on the seed alone.
        with collector_off():
            self.fabric = VirtualFabric(
                paths,
                seed=plan.seed,
                links=plan.lines,
                queues=plan.queues,
                mode=plan.fabric.mode.value,
                config=plan.engine,
                keep_events=False,
                first_qpn=FIRST_QPN,
                lookahead=usual_lookahead(paths),
                half=half,
            )
        self.control.attach(self.fabric)
        self._slower_tiers()
        self.faults = StepRunner(VirtualFaultTarget(self.fabric, self.control))
        self.start_time = min(SETTLE_S, SETTLE_RTTS * plan.rtt_s)
        self.outcome = Outcome.begin(plan, "virtual", plan.nic_bps * plan.payload_share * len(self.work.senders))
        self.flows: list[VirtualFlow] = []
        self._own_flows: list[VirtualFlow] = []
        """Flows whose senders this half runs."""
        self.collectives: list[VirtualCollective] = []
        self._total_bytes = 0
        self._shares: list[tuple[float, FaultStep]] = []
        self._lost = 0
        self._awaits_loss = False
        """Whether a fault began and no packet was lost since."""
        self._owners: dict[tuple[str, int], tuple[str, Any]] = {}
        """(host, QPN) -> workload and QP."""
        self._timeline: list[FaultStep] = []
        self._last_reading: dict[str, Any] = {}

    # ---- making -----------------------------------------------------------------------------------------

    def _slower_tiers(self) -> None:
        """Set queue thresholds of tiers with a rate of their own from that rate."""
        hosts = {host.name for host in self.plan.fabric.hosts}
        for link in self.plan.fabric.links:
            tier_profile = self.plan.host_queues if link.is_nic else self.plan.fabric_queues
            profile = self.plan.link_queues.get(link.name, tier_profile)
            if profile is None:
                continue
            for a, b in ((link.lower.node, link.upper.node), (link.upper.node, link.lower.node)):
                if a not in hosts:
                    self.fabric.set_queues(a, b, profile)

    # ---- running ----------------------------------------------------------------------------------------

    def carry_out(self, watch: Watch) -> Outcome:
        """Carry out the run: early faults, connections, work, samples, the end."""
        fabric, outcome = self.fabric, self.outcome
        self.begin()
        self._step_through(self.ends, watch)
        outcome.duration_s = fabric.now - self.start_time
        outcome.finished = self.plan.duration_s is not None or self._is_over(fabric.gather(self._ends_here()))
        self._sample(fabric.now)
        self._gather()
        audit(outcome, self.work, self._timeline)
        return outcome

    def begin(self) -> None:
        """Set up the run until the start of the work; `carry_out` calls this."""
        fabric = self.fabric
        for host in fabric.hosts.values():
            host.listen(partial(self._event, host.name))
            host.on_death(partial(self._host_died, host.name))  # before its flows, which are over then
        timeline = self._timeline = self.plan.steps()
        early_steps = [s for s in timeline if s.time.seconds is not None and s.time.seconds <= 0]
        for step in early_steps:
            self._apply(step)
        fabric.run_until(self.start_time)
        with collector_off():
            self._make_work()
        for step in timeline:
            if step.time.seconds is not None and step.time.seconds > 0:
                fabric.schedule(self.start_time + step.time.seconds, partial(self._apply, step))
        self._shares = [(s.time.share or 0.0, s) for s in timeline if s.time.seconds is None and s.undo is None]
        self._undo_of_share = {s.undo: s for s in timeline if s.time.seconds is None and s.undo is not None}
        self._begin_sampling()

    @property
    def ends(self) -> float:
        """Latest virtual time at which the run ends."""
        return self.start_time + self.plan.ends_s

    @property
    def share_done(self) -> float:
        """Share of the work that is done, or of the duration where one is given (0..1)."""
        if self.plan.duration_s is None:
            return min(self._share_done(), 1.0)
        return min((self.fabric.now - self.start_time) / self.plan.duration_s, 1.0)

    def _step_through(self, end: float, watch: Watch) -> None:
        fabric, every = self.fabric, self.plan.measure.every
        ends_by_itself = self.plan.duration_s is None
        stop = self._ends_here if ends_by_itself else (lambda: ())
        while fabric.now < end:
            target = min(fabric.now + every * 10, end)
            if fabric.run_until(stop, limit_s=target - fabric.now, judge=self._is_over):
                return
            fabric.run_until(target)  # with a predicate the clock stays at the last event
            watch(self.share_done, fabric.now - self.start_time)

    def _ends_here(self) -> tuple[tuple[bool, bool], ...]:
        """Return (is over in this half, has failed here) of all flows together, and of each collective."""
        flows_over = all(flow.is_over for flow in self._own_flows)
        return ((flows_over, False), *((work.is_over, work.has_failed) for work in self.collectives))

    @staticmethod
    def _is_over(halves: Sequence[tuple[tuple[bool, bool], ...]]) -> bool:
        """Return whether all work is over; a collective ends with the first rank that fails, in either half."""
        return halves[0] != () and all(
            all(is_over for is_over, _ in work) or any(has_failed for _, has_failed in work)
            for work in zip(*halves, strict=True)
        )

    def _share_done(self) -> float:
        if not self._total_bytes:
            return 0.0
        received = sum(flow.received_bytes for flow in self.flows)
        received += sum(collective.received_bytes for collective in self.collectives)
        return sum(self.fabric.gather(received)) / self._total_bytes

    def _make_work(self) -> None:
        latencies = self.plan.measure.latency
        for flow in self.work.flows:
            config = self.plan.config_for(flow.transport)
            self.flows.append(
                VirtualFlow(self.fabric, flow, self.start_time, config, self.control, latencies=latencies)
            )
            self._total_bytes += flow.total_bytes or 0
        self._own_flows = [flow for flow in self.flows if self.fabric.owns(flow.plan.source)]
        for group in self.work.groups:
            config = self.plan.config_for(group.transport)
            virtual = VirtualCollective(self.fabric, group, self.start_time, config, self.control, self.plan.seed)
            self.collectives.append(virtual)
            self._total_bytes += virtual.total_bytes
        for work, source, target, pairs, _ in self._qp_pairs():
            for sender, receiver in pairs:
                self._owners[source, sender.qpn] = work, sender
                self._owners[target, receiver.qpn] = work, receiver

    def _qp_pairs(self) -> Iterator[tuple[str, str, str, list[tuple[Any, Any]], bool]]:
        """Yield (workload, source, target, QP pairs, whether it is over) of each flow and pair of ranks."""
        for stream in self.flows:
            yield stream.plan.work, stream.plan.source, stream.plan.target, stream.pairs, stream.is_over
        for collective in self.collectives:
            for flow in collective.flows:
                yield collective.plan.work, flow.source, flow.target, flow.pairs, collective.is_over

    # ---- faults -----------------------------------------------------------------------------------------

    def _apply(self, step: FaultStep) -> None:
        now = self.fabric.now - self.start_time
        self.outcome.event(now, "fault", number=step.number, action=step.action, undo=step.undo, text=str(step))
        self.faults.apply(step)
        self._awaits_loss = True
        self.control.fault(step, self.fabric.now, self.start_time, self.outcome)
        self.fabric.kick()

    def _check_shares(self, now: float) -> None:
        share_done = self._share_done()
        due = [step for share, step in self._shares if share <= share_done]
        self._shares = [(share, step) for share, step in self._shares if share > share_done]
        for step in due:
            self._apply(step)
            undo = self._undo_of_share.get(step.number)
            if undo is not None:
                self.fabric.schedule(now + (undo.delay_s or 0.0), partial(self._apply, undo))

    # ---- recording --------------------------------------------------------------------------------------

    def _event(self, host: str, event: Any) -> None:
        t = self.fabric.now - self.start_time
        match event:
            case PacketLost():
                self._lost += 1
                # The first loss after a fault is an event; the others are counted.
                if self._awaits_loss:
                    self._awaits_loss = False
                    self.outcome.event(t, "lost", host=host, qpn=event.qpn, ev=event.ev, cause=event.cause.value)
            case EvChanged():
                self.outcome.event(
                    t,
                    "ev",
                    host=host,
                    qpn=event.qpn,
                    peer=event.peer,
                    ev=event.ev,
                    plane=event.plane,
                    old=event.old_state.name.lower(),
                    new=event.new_state.name.lower(),
                    cause=event.cause,
                )
            case EvReplaced():
                self.outcome.event(
                    t, "replaced", host=host, qpn=event.qpn, ev=event.ev, by=event.substitute, plane=event.plane
                )
            case PlaneChanged():
                self.outcome.event(t, "plane", host=host, peer=event.peer, plane=event.plane, up=event.up)
            case QpError():
                self._qp_died(t, host, event.qpn, event.peer, event.detail)

    def _host_died(self, host: str) -> None:
        """Record the end of the QPs by which a host without power was sending."""
        if not self.fabric.owns(host):
            return
        t = self.fabric.now - self.start_time
        for _, source, target, pairs, is_over in self._qp_pairs():
            if source == host and not is_over:
                for sender, _ in pairs:
                    self._qp_died(t, host, sender.qpn, target, HOST_DIED)

    def _qp_died(self, t: float, host: str, qpn: int, peer: str, text: str) -> None:
        work, qp = self._owners[host, qpn]
        evs = [(state["plane"], state["state"]) for state in qp.ev_states()] if qp.transport == "mrc" else []
        planes_down = down_planes(self.outcome.events, host, peer)
        self.outcome.event(
            t,
            "qp_error",
            host=host,
            qpn=qpn,
            peer=peer,
            text=text,
            work=work,
            evs=len(evs),
            evs_dead=dead_evs(evs, planes_down),
        )

    def _note_paths(self) -> None:
        """Record the current EVs of every QP."""
        for flow in (*self.flows, *self.collectives_as_flows()):
            for sender in self._own_senders(flow):
                if sender.transport == "mrc":
                    evs = [[state["ev"], state["plane"], state["state"]] for state in sender.ev_states()]
                    self.outcome.note_evs(flow.name, sender.qpn, evs)

    def _own_senders(self, flow: VirtualFlow | RankFlow) -> list[Any]:
        """Return the sending QPs of a flow, if this half runs them."""
        return [sender for sender, _ in flow.pairs] if self.fabric.owns(flow.source) else []

    def _begin_sampling(self) -> None:
        self._last_reading = self._reading()
        if self.plan.measure.evs:
            self._note_paths()
        every = self.plan.measure.every
        self.fabric.sample(every, self._sample, self.start_time + self.plan.limit_s)
        if self._shares:
            self.fabric.sample(every * TICK_SHARE, self._check_shares, self.start_time + self.plan.limit_s)

    def _reading(self) -> dict[str, Any]:
        """Return all counters and queues now, over both halves."""
        return {"at": self.fabric.now, **_sum_of(self.fabric.gather(self._own_reading()))}

    def _own_reading(self) -> dict[str, Any]:
        ports = self.fabric.ports.values()
        hosts = self.fabric.hosts.values()
        return {
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
            "planes": [sum(host.ports[p].forwarded_bytes for host in hosts) for p in range(self.plan.fabric.planes)],
            "links": self._link_bytes(),
            "queues": {name: self.fabric.ports[name].data_bytes for name in self._ports_to_record()},
        }

    def _link_bytes(self) -> dict[str, tuple[int, int]]:
        """Return bytes over each link so far (away from the hosts, towards the hosts); {} of large fabrics."""
        if len(self.plan.fabric.links) > LINKS_MAX:
            return {}
        ports = self.fabric.ports
        return {
            link.name: (ports[link.lower.interface].forwarded_bytes, ports[link.upper.interface].forwarded_bytes)
            for link in self.plan.fabric.links
        }

    def _ev_packets(self) -> dict[str, dict[str, int]]:
        """Return packets sent over each EV so far, by flow name; {} unless measured."""
        if not self.plan.measure.evs or len(self.flows) > EV_FLOWS_MAX:
            return {}
        out: dict[str, dict[str, int]] = {}
        for flow in self.flows:
            sent = out.setdefault(flow.name, {})
            for state in (state for sender, _ in flow.pairs for state in sender.ev_states()):
                name = f"{state['ev']:#06x}"
                sent[name] = sent.get(name, 0) + state["sent"]
        return out

    def collectives_as_flows(self) -> list[Any]:
        """Return the flows of all collectives: one per pair of ranks."""
        return [flow for collective in self.collectives for flow in collective.flows]

    def _sample(self, now: float) -> None:
        previous, reading = self._last_reading, self._reading()
        elapsed_s = now - previous["at"]
        # The last sample of a run may fall on one of the interval's: a rate over no time is left out.
        if elapsed_s < self.plan.measure.every * 1e-6:
            return
        self._last_reading = reading
        for flow in (*self.flows, *self.collectives_as_flows()):
            flow.reorder_max = max(flow.reorder_max, held_packets(flow.pairs))
        series = self.outcome.series
        series.times_s.append(round(now - self.start_time, 9))
        for name, value in reading["received"].items():
            series.received_bps.setdefault(name, []).append((value - previous["received"].get(name, 0)) * 8 / elapsed_s)
        for name, sent in reading["evs"].items():
            was = previous["evs"].get(name, {})
            news = {ev: count - was.get(ev, 0) for ev, count in sent.items() if count > was.get(ev, 0)}
            series.ev_packets.setdefault(name, []).append(news)
        for key in ("lost", "retransmitted", "marked", "trimmed", "dropped", "link_lost"):
            getattr(series, key).append(reading[key] - previous[key])
        series.plane_bps.append(
            [(a - b) * 8 / elapsed_s for a, b in zip(reading["planes"], previous["planes"], strict=True)]
        )
        for name, now_bytes in reading["links"].items():
            previous_bytes = previous["links"][name]
            rates = [round((a - b) * 8 / elapsed_s) for a, b in zip(now_bytes, previous_bytes, strict=True)]
            series.link_bps.setdefault(name, []).append(rates)
        for name, queued_bytes in reading["queues"].items():
            series.queues.setdefault(name, []).append(queued_bytes)

    def _ports_to_record(self) -> list[str]:
        out: list[str] = []
        for name in self.plan.measure.queues:
            if name == "last-hop":
                targets = {flow.plan.target for flow in self.flows}
                out += [p.name for p in self.fabric.ports.values() if p.last_hop and p.neighbour in targets]
            else:
                out.append(name)
        return list(dict.fromkeys(out))

    def _gather(self) -> None:
        """Complete the outcome by what was counted until the end, and merge the records of both halves."""
        outcome, fabric = self.outcome, self.fabric
        outcome.flows = flow_outcomes(fabric, self.flows, [flow.outcome() for flow in self.flows])
        for collective in self.collectives:
            collective_outcome, pair_outcomes = collective.outcomes()
            outcome.collectives.append(collective_outcome)
            outcome.flows += pair_outcomes
        outcome.counters = {"table_writes": self.control.table_writes, **_sum_of(fabric.gather(self._port_counters()))}
        self._merge_events()
        outcome.paths = [path for paths in fabric.gather(outcome.paths) for path in paths]
        states = [
            state["state"]
            for flow in (*self.flows, *self.collectives_as_flows())
            for sender in self._own_senders(flow)
            for state in sender.ev_states()
        ]
        counts = sum(state == "assumed_bad" for state in states), sum(state == "denied" for state in states)
        outcome.evs_bad, outcome.evs_denied = map(sum, zip(*fabric.gather(counts), strict=True))

    def _merge_events(self) -> None:
        """Put the events of both halves in order of time; hosts run ahead of one another."""
        events, *more_events = self.fabric.gather(self.outcome.events)
        # Both halves recorded what belongs to no host.
        events += [event for half_events in more_events for event in half_events if "host" in event]
        events.sort(key=lambda event: event["t"])
        if more_events:
            awaits_loss = True
            for event in list(events):
                if event["what"] == "lost" and not awaits_loss:
                    events.remove(event)  # each half has its first loss after a fault
                awaits_loss = event["what"] == "fault" or (awaits_loss and event["what"] != "lost")
        self.outcome.events = events

    def _port_counters(self) -> dict[str, Any]:
        ports, hosts = self.fabric.ports.values(), self.fabric.hosts.values()
        counters: dict[str, Any] = {
            "marked": sum(port.marked for port in ports),
            "trimmed": sum(port.trimmed for port in ports),
            "trimmed_last_hop": sum(port.trimmed for port in ports if port.last_hop),
            "dropped_queue": sum(sum(port.dropped[queue_drop] for queue_drop in QUEUE_DROPS) for port in ports),
            "dropped_control": sum(port.dropped["control_queue_full"] for port in ports),
            "corrupted": sum(host.dropped["iCRC"] for host in hosts),
            "peak_queue_bytes": {port.name: port.peak_bytes for port in ports if port.peak_bytes and port.last_hop},
        }
        # Only fabrics with PFC have counters of pauses.
        pauses = [pause for port in ports if (pause := pause_of(port)) is not None]
        if pauses:
            counters |= {
                "pauses": sum(pause.pauses for pause in pauses),
                "storms": sum(pause.storms for pause in pauses),
                "longest_pause_s": max(pause.longest_s for pause in pauses),
                "pause_frames": sum(pause.frames for pause in pauses),
            }
        return counters


def _sum_of(values: Sequence[Any]) -> Any:
    """Return the sum of numbers, or of dictionaries, lists and tuples of them, entry by entry."""
    first = values[0]
    if len(values) == 1:
        return first
    if isinstance(first, dict):
        names = dict.fromkeys(name for value in values for name in value)
        return {name: _sum_of([value[name] for value in values if name in value]) for name in names}
    if isinstance(first, (list, tuple)):
        return [_sum_of(entries) for entries in zip(*values, strict=True)]
    return sum(values)
