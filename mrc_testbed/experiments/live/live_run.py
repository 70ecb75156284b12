"""Runs on the live fabric: Mininet, P4 switches, agents and controller; senders and ranks as virtual.

    outcome = LiveRunner(LabOptions()).run(plan, watch)

The fabric is brought up for each run and removed after it, healed or not, whatever ends the run. Agents carry the flows
(live_work.py); this process injects faults on time, one thread reads agents and switches at every interval
(samples.py), others listen to events. Times are CLOCK_MONOTONIC, recorded relative to the workload's start.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

from mrc_testbed.controller.faults import observations
from mrc_testbed.experiments.backend.failures import audit
from mrc_testbed.experiments.backend.outcome import (
    CollectiveOutcome,
    FlowOutcome,
    Outcome,
    dead_evs,
    down_planes,
    iterations_of,
)
from mrc_testbed.experiments.backend.protocol import Watch, ignore_progress
from mrc_testbed.experiments.live.cpu import CpuWatch
from mrc_testbed.experiments.live.live_programs import LivePrograms, check_programs
from mrc_testbed.experiments.live.live_work import Answers, LiveWork, flow_name
from mrc_testbed.experiments.live.samples import LiveSampler
from mrc_testbed.experiments.resolve.fault_schedule import FaultStep, StepRunner
from mrc_testbed.experiments.resolve.flows import CollectivePlan, FlowPlan
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.faults.kinds import LineFault
from mrc_testbed.ipc.controller_client import KnownFaults
from mrc_testbed.ipc.rpc import JsonlClient, JsonlError
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.fault_target import LiveFaultTarget
from mrc_testbed.topologies.lab.options import DEFAULT_LAB, LabOptions
from mrc_testbed.topologies.lab.targets import TARGETS

SETTLE_S = 0.5
"""Seconds between the fabric being up and the first request."""
DENYLIST_STEADY_S, DENYLIST_LIMIT_S = 3.0, 20.0
"""Seconds without a new entry after which the denylist counts as settled, and the longest wait.

Without denied EVs no entry ever comes, and where links flap there is no last one."""
DRAIN_S = 0.3
"""Seconds that stopped flows may take to complete their posted writes."""
NOT_CORRUPT = ("not ours", "no buffer", "ring full")
"""Reasons of a NIC's drops that say nothing about the frame's bytes."""

NOTES_MAX = 20
ROUTE_WRITES = ("prune", "restore")
"""Reasons of a controller's writes of routes that follow live links (controller/p4runtime/pruning.py)."""

RunWatcher = Callable[[Fabric, Callable[[], list[dict[str, Any]]]], AbstractContextManager[object]]
"""Makes the context manager that observes a run, from the fabric and a function that returns progress."""


@dataclass(frozen=True, slots=True)
class LiveRunner:
    """Runs on the live fabric."""

    lab: LabOptions = DEFAULT_LAB
    """Options of every run's fabric; its denylist, reaction and egress discipline are those of the run."""
    watcher: RunWatcher | None = None
    waits: Callable[[str], None] | None = None
    """Callback for the reason of a long wait for a part of the fabric."""

    def check(self, plans: Sequence[RunPlan]) -> None:
        """Raise UsageError for runs with a program that cannot be run here."""
        for plan in plans:
            check_programs(plan.work().programs, several_machines=self.lab.servers is not None)

    def run(self, plan: RunPlan, watch: Watch = ignore_progress) -> Outcome:
        """Carry out a run. Raises FabricError, JsonlError or PlanError when a machine or the fabric refuses.

        Raises UsageError for a program that is not there.
        """
        live_run = LiveRun(plan, self.lab)
        if self.waits is not None:
            live_run.fabric.processes.report = self.waits
        try:
            with live_run.fabric, self.watcher(live_run.fabric, live_run.work_done) if self.watcher else nullcontext():
                return live_run.carry_out(watch)
        except FabricError as error:
            notices = [text for text in live_run.notices if text not in str(error)]
            if not notices:
                raise
            raise FabricError("\n".join([str(error), *notices])) from error


def unlike(plan: RunPlan, target: str = "embedded") -> list[str]:
    """Return notes on the settings of the run that the live fabric does not follow."""
    out = []
    if not TARGETS[target].can_delay:
        fabric = plan.fabric
        if fabric.delayed:
            out.append(
                f"{target} cannot delay packets, nor does it serialise a lone one: an idle round trip takes a few ms; "
                f"hosts and queues are set for the {fabric.base_rtt_s() * 1e3:.3g} ms of a full pipe"
            )
        if any(isinstance(step.fault, LineFault) and step.fault.delay is not None for step in plan.steps()):
            out.append(f"{target} cannot delay packets: faults that set a link's delay leave it as it is")
    if plan.lines.nic.jitter_s:
        out.append("links.jitter is for virtual runs: live, delays are constant")
    if plan.discipline.limit is not None:
        out.append("queues.limit is for virtual runs: live, the hard limit is the plan's (docs/traffic.md)")
    if plan.discipline.pfc is not None:
        out.append("queues.pfc is for virtual runs: live, a queue that is full drops (LIMITATIONS.md)")
    return out


class LiveRun:
    """One run; use `fabric` as a context manager around `carry_out`.

    Raises UsageError for a program that cannot be run here.
    """

    def __init__(self, plan: RunPlan, lab: LabOptions) -> None:
        self.plan, control, queues = plan, plan.control, plan.discipline
        lab = replace(
            lab,
            discipline={
                "ecn": queues.ecn,
                "trimming": queues.trim,
                "last_hop_ecn": queues.last_hop_ecn,
                "ecn_min": queues.ecn_min,
                "ecn_max": queues.ecn_max,
                "trim_at": queues.trim_at,
                "trim_last_hop": queues.trim_last_hop,
            },
            denylist=control.denylist,
            react_after_s=math.inf if control.react_after is None else control.react_after,
        )
        # The run's own settings override those of the machine's lab options.
        self.fabric = Fabric(plan.fabric, lab)
        self.notices: list[str] = []
        """Notices of unexpected changes of the fabric, such as a part that died."""
        self.fabric.notice = self.notices.append
        self._fault_target = LiveFaultTarget(self.fabric, delays=TARGETS[lab.target].can_delay, note=self._note)
        self.faults = StepRunner(self._fault_target)
        self.work = LiveWork(plan)
        share = plan.transport.pmtu / plan.fabric.frame_bytes()
        self.outcome = Outcome.begin(plan, "live", plan.nic_bps * share * len(self.work.planned_work.senders))
        self.outcome.notes += unlike(plan, lab.target)
        check_programs(self.work.planned_work.programs, several_machines=lab.servers is not None)
        self.programs = LivePrograms(self.work.planned_work.programs)
        self.sampler = LiveSampler(self.fabric, self.work, self.programs, self.outcome, self._note)
        self._timeline: list[FaultStep] = []
        self._known_faults = KnownFaults("text")
        self._events_lock = threading.Lock()
        self._stop = threading.Event()

    # ---- running ----------------------------------------------------------------------------------------

    def work_done(self) -> list[dict[str, Any]]:
        """Return the progress of each flow, collective and program at the last sample.

        Keys: label, bytes (0: no end), bytes_done, state (`running` or `done`).
        """
        received = self.sampler.received
        progress = [
            (flow_name(flow), flow.total_bytes or 0, received.get(flow_name(flow), 0)) for flow in self.work.flows
        ]
        for group in self.work.groups:
            starts = tuple(f"{group.work}:{host}-" for host in group.ranks)
            bytes_done = sum(amount for name, amount in received.items() if name.startswith(starts))
            progress.append((f"{group.kind} {group.work}", self.work.collective_bytes(group), bytes_done))
        programs = [
            {"label": label, "bytes": 0, "bytes_done": 0, "state": "done" if is_over else "running"}
            for label, is_over in self.programs.progress()
        ]
        return [
            {
                "label": label,
                "bytes": total,
                "bytes_done": min(bytes_done, total) if total else bytes_done,
                "state": "done" if total and bytes_done >= total else "running",
            }
            for label, total, bytes_done in progress
        ] + programs

    def carry_out(self, watch: Watch) -> Outcome:
        """Carry out the run: early faults, connections, work, faults on time, samples, the end."""
        if leftovers := self.fabric.removed_leftovers:
            self._note(f"removed {len(leftovers)} processes and interfaces that a killed run had left")
        with ExitStack() as stack:
            time.sleep(SETTLE_S)
            self.work.open(self.fabric, stack)
            stack.push(self._heal)
            stack.callback(self.programs.end)
            watchers = [threading.Thread(target=self._watch, args=(host,), daemon=True) for host in self.work.hosts]
            watchers.append(threading.Thread(target=self._watch_controller, daemon=True))
            stack.callback(self._stop.set)
            stack.callback(self.sampler.stop)
            timeline = self._timeline = self.plan.steps()
            for step in timeline:
                if step.time.seconds is not None and step.time.seconds <= 0:
                    self._apply(step)
            for watcher in watchers:
                watcher.start()
            # A job starts on a fabric whose early faults the controller has found.
            if self.plan.control.denylist != "off" and timeline and (timeline[0].time.seconds or 0) <= 0:
                self._await_denylist()
            cpu = CpuWatch(self.fabric.thread_seconds, self.fabric.processors)
            cpu.start()
            self.work.start()
            self._wait(self.work.start_time)
            self.programs.start(self.fabric, self.work.start_time)
            self.sampler.start()
            try:
                self._loop(timeline, watch)
            except (FabricError, JsonlError):
                # A part that died explains the error: the run ends here, with what was measured so far.
                if (part := self.fabric.parts.first_cause()) is None:
                    raise
                now = self.outcome.duration_s = self._now()
                self.outcome.fail("unfinished", now, f"the run was over after {now:.4g} s, when {part.cause}")
                self.sampler.stop()
            self.programs.end()
            self._report_dead_parts()
            for note in (*cpu.notes(), *self.fabric.network.notes()):
                self._note(note)
            self._stop.set()
            self._gather()
            self._keep_observations()
        return self.outcome

    def _report_dead_parts(self) -> None:
        """Record the processes of the fabric that died, which end the run."""
        self.fabric.parts.poll_deaths()
        for part in self.fabric.parts.deaths:
            fields = part.to_json()
            t = round(fields.pop("at") - self.work.start_time, 6)
            self.outcome.dead_parts.append({"t": t, **fields})
            self.outcome.fail("process", t, f"{part.cause} at {t:.4g} s: {part.loses}")

    def _keep_observations(self) -> None:
        """Keep the whole lines of the controller's observations, which it goes on writing.

        The file is missing where a full disk ended the recording; the controller's log says so.
        """
        with suppress(OSError):
            data = (self.fabric.run_dir.path / "log" / observations.FILE).read_bytes()
            self.outcome.observations = data[: data.rfind(b"\n") + 1]

    def _await_denylist(self) -> None:
        """Wait until the denylist has the faults made so far, or DENYLIST_LIMIT_S."""
        denylist, changed_at, limit = None, time.monotonic(), time.monotonic() + DENYLIST_LIMIT_S
        while (now := time.monotonic()) < limit and (not denylist or now - changed_at < DENYLIST_STEADY_S):
            entries = self.fabric.controller.request("denylist")["entries"]
            if entries != denylist:
                denylist, changed_at = entries, now
            time.sleep(0.1)
        if not denylist:
            self._note(f"the controller denied nothing in {DENYLIST_LIMIT_S:g} s")

    def _loop(self, timeline: list[FaultStep], watch: Watch) -> None:
        """Apply faults on time, until the end of the work or of its time."""
        endless, end = self.plan.duration_s is None, self.plan.ends_s
        shares = [step for step in timeline if step.time.seconds is None and step.undo is None]
        undo_of = {step.undo: step for step in timeline if step.time.seconds is None and step.undo is not None}
        due = [(time_s, step) for step in timeline if (time_s := step.time.seconds) is not None and time_s > 0]
        samples = 0
        while True:
            due.sort(key=lambda entry: (entry[0], entry[1].number))
            while due and due[0][0] <= self._now():
                self._apply(due.pop(0)[1])
            if (
                count := self.sampler.wait(samples, min([end, *(time_s for time_s, _ in due[:1])]) - self._now())
            ) > samples:
                samples, share_done = count, self._share_done()
                # The undo of a fault at a share of the work is due at a time that is known only now.
                for step in [step for step in shares if (step.time.share or 0.0) <= share_done]:
                    shares.remove(step)
                    self._apply(step)
                    if (undo := undo_of.get(step.number)) is not None:
                        due.append((self._now() + (undo.delay_s or 0.0), undo))
                watch(min(share_done if endless else self._now() / end, 1.0), self._now())
                self.fabric.check()
            finished = endless and samples > 0 and self.work.all_over(self.sampler.last) and self.programs.all_over
            if finished or self._now() >= end:
                self.outcome.duration_s = self._now()
                self.outcome.finished = finished or not endless
                self.sampler.finish()
                return

    def _share_done(self) -> float:
        """Return the share of the bytes or of the programs' steps that is done, the smaller of both."""
        share_of_steps = self.programs.share_done
        if share_of_steps is None:
            return self.sampler.share_done
        return min(share_of_steps, self.sampler.share_done) if self.work.total_bytes else share_of_steps

    @staticmethod
    def _wait(deadline: float) -> None:
        time.sleep(max(0.0, deadline - time.monotonic()))

    def _now(self) -> float:
        return time.monotonic() - self.work.start_time

    def _apply(self, step: FaultStep) -> None:
        t = self._now() if self.work.start_time else 0.0
        self.faults.apply(step)
        with self._events_lock:
            self.outcome.event(t, "fault", number=step.number, action=step.action, undo=step.undo, text=str(step))

    def _heal(self, failed: type[BaseException] | None, *_: object) -> None:
        """Undo the remaining faults. Raises FabricError, unless an error or a dead part ended the run."""
        self._fault_target.close()
        try:
            self.fabric.inject.heal()
        except FabricError:
            if failed is None and not self.outcome.dead_parts:
                raise

    def _note(self, text: str) -> None:
        with self._events_lock:
            if text not in self.outcome.notes and len(self.outcome.notes) < NOTES_MAX:
                self.outcome.notes.append(text)

    # ---- listening --------------------------------------------------------------------------------------

    def _watch(self, host: str) -> None:
        """Record the EV, plane and QP events of one agent until the run ends."""
        try:
            client = JsonlClient(self.fabric.run_dir.agent_socket(host), name=host, works=self.fabric.works(host))
            with client, client.watch(events=["ev", "ev_replaced", "plane", "qp_error"]) as watch:
                while not self._stop.is_set():
                    event = watch.get(timeout_s=0.2)
                    if event is not None and self.work.start_time:
                        self._agent_event(host, event)
        except JsonlError as error:
            if not self._stop.is_set():
                self._note(f"{host}'s events: {error}")

    def _agent_event(self, host: str, event: dict[str, Any]) -> None:
        t = event.get("t", time.monotonic()) - self.work.start_time
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
                    self._qp_died(t, host, event["qpn"], event["peer"], text)

    def _qp_died(self, t: float, host: str, qpn: int, peer: str, text: str, evs: Sequence[list[Any]] = ()) -> None:
        states = [(plane, state) for _ev, plane, state, _sent in evs]
        self.outcome.event(
            t,
            "qp_error",
            host=host,
            qpn=qpn,
            peer=peer,
            text=text,
            work=self.work.owners.get((host, qpn), ""),
            evs=len(states),
            evs_dead=dead_evs(states, down_planes(self.outcome.events, host, peer)),
        )

    def _watch_controller(self) -> None:
        """Record the controller's faults and table writes; subscribe again to a restarted controller."""
        while not self._stop.is_set():
            try:
                with self.fabric.controller.watch(timeout_s=2.0, events="fault,live,denylist") as watch:
                    faults = self.fabric.controller.request("faults")["faults"]
                    for change, fault in self._known_faults.reconcile(faults):
                        self._note_detection(change, fault, time.monotonic())
                    while not self._stop.is_set():
                        if (event := watch.get(timeout_s=0.2)) is not None:
                            self._controller_event(event)
            except JsonlError:
                self._stop.wait(0.3)

    def _controller_event(self, event: dict[str, Any]) -> None:
        if event["event"] == "fault":
            if (change := self._known_faults.change(event["fault"])) is not None:
                self._note_detection(change, event["fault"], event["t"])
            return
        text = ""
        if event["event"] == "live" and event.get("reason") in ROUTE_WRITES:
            text = "tables changed"
        elif event["event"] == "denylist":
            text = f"denylist: {len(event['entries'])} entries"
        if text and self.work.start_time:
            with self._events_lock:
                self.outcome.event(event["t"] - self.work.start_time, "control", text=text)

    def _note_detection(self, change: str, fault: dict[str, Any], received_at: float) -> None:
        """Record a change of a fault at its own time: after a broken stream it is received late."""
        changed_at = {"raised": fault["raised"], "updated": received_at}.get(change, fault["cleared"])
        if self.work.start_time and changed_at >= self.work.start_time:
            with self._events_lock:
                self.outcome.event(changed_at - self.work.start_time, "detected", text=f"{change}: {fault['text']}")

    # ---- the end ----------------------------------------------------------------------------------------

    def _gather(self) -> None:
        fallback = self.sampler.last if self.outcome.dead_parts else None  # for dead agents: their last answers
        self.work.ask_all("flow_stop", fallback)
        self._wait(time.monotonic() + DRAIN_S)
        last = self.work.ask_all("flow_read", fallback)
        self._add_unreported_errors(last)
        self.outcome.events.sort(key=lambda event: event["t"])
        for flow in self.work.flows:
            self.outcome.flows.append(self._flow_outcome(flow, last))
        for group in self.work.groups:
            self._group_outcome(group, last)
        self.programs.report(self.outcome)
        self._count()
        self._count_lost_inside()
        self._count_evs(last)
        audit(self.outcome, self.work.planned_work, self._timeline)

    def _add_unreported_errors(self, last: Answers) -> None:
        """Add QPs in error whose event never came, and EV states to the events that came: an event has none."""
        with self._events_lock:
            reported_events = {(e["host"], e["qpn"]): e for e in self.outcome.events if e["what"] == "qp_error"}
            for host, answer in last.items():
                peers = {flow_name(flow): flow.target for flow in self.work.flows}
                qps = [(peers[name], qp) for name, source in answer["sources"].items() for qp in source["qps"]]
                qps += [(qp["peer"], qp) for rank in answer["ranks"].values() for qp in rank["qps"]]
                for peer, qp in qps:
                    if qp["state"] != "error":
                        continue
                    event = reported_events.get((host, qp["qpn"]))
                    if event is None:
                        died_at = qp.get("died_at")  # of a host without power
                        t = self.outcome.duration_s if died_at is None else died_at - self.work.start_time
                        self._qp_died(t, host, qp["qpn"], peer, str(qp["error"]), qp["evs"])
                        continue
                    states = [(plane, state) for _ev, plane, state, _sent in qp["evs"]]
                    earlier_events = [e for e in self.outcome.events if e["t"] <= event["t"]]
                    event |= {"evs": len(states), "evs_dead": dead_evs(states, down_planes(earlier_events, host, peer))}

    @staticmethod
    def _all_qps(answer: dict[str, Any]) -> list[list[dict[str, Any]]]:
        return [source["qps"] for source in answer["sources"].values()] + [
            rank["qps"] for rank in answer["ranks"].values()
        ]

    def _flow_outcome(self, flow: FlowPlan, last: dict[str, Any]) -> FlowOutcome:
        name = flow_name(flow)
        source, sink = last[flow.source]["sources"][name], last[flow.target]["sinks"][name]
        finished_at = source["finished_at"]
        result = FlowOutcome(
            flow.work,
            flow.source,
            flow.target,
            flow.transport.qps,
            flow.message_bytes,
            completed=source["completed"],
            failed=source["failed"],
            damaged=sink["damaged"],
            received_bytes=sink["received_bytes"],
            started_s=flow.start_s,
            finished_s=None if finished_at is None else finished_at - self.work.start_time,
            latencies_s=self.sampler.latencies.get(name, []) + source["latencies_s"],
        )
        add_qps(result, source["qps"])
        result.reorder_max = self.sampler.reorder_max.get(name, 0)
        return result

    def _group_outcome(self, group: CollectivePlan, last: dict[str, Any]) -> None:
        ranks = [last[host]["ranks"][group.work] for host in group.ranks]
        size, factor = self.work.sizes[group.work]
        collective = CollectiveOutcome(group.work, group.kind, list(group.ranks), size, factor)
        collective.largest_write_bytes = group.largest_write_bytes()
        endings = [
            [
                (time_s - self.work.start_time, wrong_values, computing)
                for time_s, wrong_values, computing in rank["ended"]
            ]
            for rank in ranks
        ]
        collective.iterations = iterations_of(group.start_s, list(group.ranks), endings, group.warm_up)
        self.outcome.collectives.append(collective)
        for host, rank in zip(group.ranks, ranks, strict=True):
            flows: list[FlowOutcome] = []
            for peer in sorted({qp["peer"] for qp in rank["qps"]}):
                qps = [qp for qp in rank["qps"] if qp["peer"] == peer]
                result = FlowOutcome(group.work, host, peer, len(qps), 0, started_s=group.start_s)
                result.received_bytes = last[peer]["ranks"][group.work]["received"].get(host, 0)
                if rank["done"] and rank["ended"]:
                    result.finished_s = rank["ended"][-1][0] - self.work.start_time
                add_qps(result, qps)
                result.reorder_max = self.sampler.reorder_max.get(f"{group.work}@{peer}", 0)
                flows.append(result)
            if flows:  # a rank's writes wait in one queue: failed ones count at the first of its flows
                flows[0].failed = rank["failed"]
            self.outcome.flows += flows

    def _count(self) -> None:
        """Fill in marks, trims and drops of all switches, and the controller's table writes."""
        totals = {key: value for key, value in self.sampler.switch_totals.totals.items() if value is not None}
        self.outcome.counters = {**totals, "corrupted": self._corrupted()}
        try:
            status = self.fabric.controller.request("status")
            routes = [
                switch["live_writes"].get(route_write, 0)
                for switch in status["switches"].values()
                for route_write in ROUTE_WRITES
            ]
            self.outcome.counters["table_writes"] = status["writes_after_start"] + sum(routes)
        except JsonlError as error:
            self._note(f"table_writes is missing: {error}")
        last_hop = {k.upper.interface for k in self.plan.fabric.links_of("nic")}
        known_depths = {
            port: [d for d in depths if d is not None] for port, depths in self.outcome.series.queues.items()
        }
        deepest = {port: max(depths) for port, depths in known_depths.items() if port in last_hop and depths}
        if deepest:  # sampled at the intervals, for the ports that measure.queues names
            self.outcome.counters["peak_queue_bytes"] = deepest

    def _count_evs(self, last: Answers) -> None:
        """Count the EVs of all QPs that are bad or denied at the end."""
        states = [ev[2] for answer in last.values() for qps in self._all_qps(answer) for qp in qps for ev in qp["evs"]]
        self.outcome.evs_bad = sum(state == "assumed_bad" for state in states)
        self.outcome.evs_denied = sum(state == "denied" for state in states)

    def _count_lost_inside(self) -> None:
        """Count the packets lost inside switches, outside their program."""
        try:
            lost = self.fabric.target.lost_inside()
        except FabricError as error:
            self._note(f"the switches' own losses are missing: {error}")
            return
        if lost is not None:
            total = sum(lost.values())
            self.outcome.counters["lost_inside"] = total
            if total:
                worst_switch = max(lost, key=lost.__getitem__)
                self._note(
                    f"switches lost {total} packets that their program did not drop, {lost[worst_switch]} of them "
                    f"{worst_switch}: a queue was full, or the machine too busy to read a port in time"
                )

    def _corrupted(self) -> int:
        """Return the frames that NICs refused as invalid: a flipped bit breaks the iCRC or a header."""
        answers = self.work.ask_all("status", {} if self.outcome.dead_parts else None)
        drops = [port["rx_dropped"] for answer in answers.values() for port in answer["ports"].values()]
        return sum(count for drop in drops for reason, count in drop.items() if reason not in NOT_CORRUPT)


def add_qps(result: FlowOutcome, qps: list[dict[str, Any]]) -> None:
    """Add the counters of a flow's QPs at its source."""
    for qp in qps:
        result.lost += qp["lost"]
        result.lost_worst_qp = max(result.lost_worst_qp, qp["lost"])
        result.sent += qp["sent"]
        result.retransmitted += qp["retransmitted"]
        result.timeouts += qp["timeouts"]
