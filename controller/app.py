"""The controller without its northbound API (docs/controller.md).

It has a provisioner for every switch, the sources, the fault list and its journal. One asyncio process. Nothing here
writes to a switch; that is `provisioner`'s alone. What it does is published as events (`on_event`);
`controller/__main__.py` joins it to the API.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from mrc_testbed.controller.config import ControllerConfig, read_inputs
from mrc_testbed.controller.denylist import DenylistPolicy
from mrc_testbed.controller.faults.correlator import PORT_IS_BAD, Fault, FaultCorrelator
from mrc_testbed.controller.faults.diagnosis import FailureMode
from mrc_testbed.controller.faults.journal import Journal
from mrc_testbed.controller.faults.observations import ObservationRecorder
from mrc_testbed.controller.faults.path_segments import NO_PLANE
from mrc_testbed.controller.p4runtime.entries import number_text
from mrc_testbed.controller.p4runtime.provisioner import SwitchProvisioner, SwitchState
from mrc_testbed.controller.p4runtime.pruning import live_entries
from mrc_testbed.controller.problems import AGAIN_S, ControllerProblem, ProblemKind, Problems
from mrc_testbed.controller.reconvergence import PlaneFailures, ReconvergenceDelay
from mrc_testbed.controller.sources.clustermapper import ClustermapperSource
from mrc_testbed.controller.sources.gnmi_ports import GnmiPortWatch
from mrc_testbed.controller.sources.host_agents import BAD_STATE, HostAgentSource
from mrc_testbed.controller.sources.queue_drops import QueueDropSource
from mrc_testbed.ipc.framing import Message, event_of
from mrc_testbed.ipc.patience import LOOK_S, LocalWork, Patience
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.ipc.service import end_tasks
from mrc_testbed.topologies.plan import Link, PlanError, Switch

CONFIRM_S = 4.0
"""Time that a fault of the journal stays listed unseen once all sources answer after a restart, s."""
CONFIRM_MAX_S = 60.0
"""Time that a fault of the journal stays listed unseen while not all sources answer, s."""
ABSENT_S = 2.0
"""Time after which a switch without an answer is lost, not late, seconds.

It counts after a restart on a fabric whose switches equalled the plan.
"""

PORTS_FIRST_S = 1.5
"""Time that the switches wait for the state of the ports after a restart, seconds."""

RESTORE_AFTER_S = 0.2
"""Hold-down of a link that came up before it carries other racks' traffic again; a link down has none."""
NOT_PRIMARY_EFFECT = (
    "its tables are not kept as planned, dead ports and routes around failures are not written there; "
    "its ports and counters are still read"
)
"""Effect of another primary."""
NEXT_HOP_REPORT = "next_hop_report"
DROP_REASONS = {5: "unknown uSID", 6: "no route", 7: "no uplink", 10: "dead next hop"}
"""Reasons of that digest (drop_reason_t of p4src/headers.p4)."""

STREAM_IS_UP = {
    SwitchState.CONNECTING: None,
    SwitchState.SYNCING: None,  # answers, and may still lack its routes: a lost switch is not back before they are
    SwitchState.VERIFIED: True,
    SwitchState.BACKUP: True,
    SwitchState.LOST: False,
    SwitchState.FAILED: None,
}
"""Whether the P4Runtime stream counts as up in each state; None: not known."""

SWITCHES = "switchd"
"""The process that has all embedded switches."""

log = logging.getLogger(__name__)


class NotReady(Exception):  # noqa: N818 - a state of the fabric, which the text explains
    """The fabric did not come into line; the text names every switch that is missing, and why."""


class FabricController:
    """Controller of one fabric.

    Use `open_run_folder()`, and in it `run()`, which ends by stop() or an error. The other methods are called by its
    parts and the API.
    """

    def __init__(
        self,
        inputs: ControllerConfig,
        denylist: str | None = None,
        react_after_s: float = 0.0,
    ) -> None:
        self.inputs = inputs
        plan = inputs.plan
        self.faults = FaultCorrelator(plan)
        self.problems = Problems(RunFiles(inputs.run_dir).log("controller"), self._on_problem_change)
        problems, guard = self.problems, self.problems.guard
        self.provisioners = {
            t.name: SwitchProvisioner(
                t,
                inputs.program_of(t).catalog,
                guard(f"change of {t.name}", self._on_switch_change),
                guard(f"entries of {t.name}", self._on_live_written),
                problems,
            )
            for t in inputs.targets
        }
        for name, provisioner in self.provisioners.items():
            provisioner.on_digest = guard(f"digest of {name}", self._on_digest)
        port_status = guard("state of a port", self._port_status)
        self.watches = [GnmiPortWatch(a, port_status, self._wake) for a in inputs.gnmi_addresses]
        self.agents = HostAgentSource(
            inputs.run_dir, plan, self.faults, self._on_ev_event, self.publish_fault_changes, problems=problems
        )
        self.mapper = ClustermapperSource(
            inputs.run_dir, self.faults, self._on_probe_event, self.publish_fault_changes, problems
        )
        self.congestion = QueueDropSource(self.provisioners.values(), self.faults, self.publish_fault_changes, problems)
        self.denylist = DenylistPolicy(plan, self.agents, self._on_denylist_change)
        self.agents.on_back = self.denylist.agent_is_back
        self.reaction = ReconvergenceDelay(react_after_s)
        self.status: dict[str, str] = {}
        """Last oper-status of every interface of the fabric."""
        self._down_links: dict[int, frozenset[Link]] = {}
        """Links that are down, by plane."""
        self._failures: dict[int, PlaneFailures] = {}
        self._up_at: dict[Link, float] = {}
        """Times at which links came up lately."""
        self.began = False
        """Every switch has equalled the plan once, in this life or an earlier one."""
        self._wanted_policy = denylist
        self._seen_switches: set[str] = set()
        """Switches that have been up."""
        self.on_event: Callable[..., None] = lambda _event, _t, **_fields: None
        """Callback with (event, t, fields by name).

        Events: switch, port, ev, probe, digest, live, denylist, fault, problem, ready.
        """
        # An exception in one of these reactions is reported as a problem and does not stop the others.
        self._report_change = guard("change of a fault", self._record_and_publish)
        self._follow_denylist = guard("denylist", self.denylist.follow)
        self._follow_black_holes = guard("black hole", self._follow_liveness)
        self._run_timers = guard("timer of the fault list", self.faults.on_timer)
        self._journal: Journal | None = None
        self._stopping = False
        self._woken = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    # ---- life -------------------------------------------------------------------------------------------

    @contextmanager
    def open_run_folder(self) -> Iterator[None]:
        """Hold the run folder: its journal is read and written by us alone.

        Raises JsonlError when another controller has the folder.
        """
        self._journal = Journal.open(self.inputs.run_dir)
        recorder = self.faults.tap = ObservationRecorder(RunFiles(self.inputs.run_dir).logs, self.inputs.plan)
        try:
            self._remember(self._journal)
            yield
        finally:
            recorder.close()
            self._journal.close()

    async def run(self, deadline_s: float) -> None:
        """Bring all switches into line, print `ready`, keep them so until stop().

        Raises NotReady when none gets on for `deadline_s` (ipc/patience.py) or a switch refuses. An exception of a task
        or of a reaction is a bug; it is reported (problems.py), and the other tasks continue.
        """
        running: dict[str, Callable[[], Awaitable[None]]] = {f"ports at {w.address}": w.run for w in self.watches}
        running |= {f"care for {name}": partial(self._keep_switch, k) for name, k in self.provisioners.items()}
        running |= {
            "events of agents": self.agents.run,
            "events of Clustermapper": self.mapper.run,
            "counters of switches": self.congestion.run,
            "denylist": self.denylist.run,
        }
        tasks = [asyncio.create_task(self.problems.keep(name, run), name=name) for name, run in running.items()]
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loop_exception)
        if self.began:
            loop.call_later(ABSENT_S, self.problems.guard("absent switches", self._give_up_absent))
        try:
            await self._until_ready(deadline_s)
            if self._stopping:
                return
            self._now_ready()
            while not self._stopping:
                await self._next_wake(None)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await end_tasks(tasks)

    def stop(self) -> None:
        """End run(). Switches keep their tables."""
        self._stopping = True
        self._wake()

    @property
    def ready(self) -> bool:
        """Whether every switch equals the plan and every port's state is known.

        A switch that is known to be lost after a restart is not waited for.
        """
        provisioners = (
            k.status.verified or (self.began and k.status.state is SwitchState.LOST) for k in self.provisioners.values()
        )
        return all(provisioners) and all(w.is_synced for w in self.watches)

    def _remember(self, journal: Journal) -> None:
        """Take up what an earlier controller of this run folder knew."""
        content = journal.content
        self.began = content.was_ready
        for provisioner in self.provisioners.values():
            provisioner.was_provisioned = self.began
        self.faults.restore(content.faults, time.monotonic(), CONFIRM_MAX_S)
        self.reaction.restore(self.inputs.plan, journal.content.avoided_names)
        self.denylist.is_owed = content.may_hold_denylists
        self.denylist.on_owed = journal.record_denied
        self.denylist.policy = self._wanted_policy or content.denylist_policy or self.denylist.policy
        if content.faults:
            active = len(self.faults.active())
            log.info("remembered %d faults, %d of them active", len(content.faults), active)

    async def _keep_switch(self, provisioner: SwitchProvisioner) -> None:
        """Run a provisioner; after a restart it waits for the state of the ports.

        Entries that follow from the ports are in the switches already, and are no difference once ports are known.
        """
        deadline = time.monotonic() + PORTS_FIRST_S
        while self.began and time.monotonic() < deadline and not all(w.is_synced for w in self.watches):
            await asyncio.sleep(0.02)
        await provisioner.run()

    def _now_ready(self) -> None:
        assert self._journal is not None
        now = time.monotonic()
        if not self.began:
            self.began = True
            self._journal.record_ready(now)
        self.faults.confirm_by(now + CONFIRM_S, now=now)
        self.publish_fault_changes()
        print("ready", flush=True)
        self.publish("ready", now, ready=True)

    def _on_loop_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report an exception that reached the event loop: of a callback, or of a task that no task awaits."""
        error = context.get("exception")
        if isinstance(error, Exception):
            self.problems.internal(str(context.get("message", "event loop")).splitlines()[0], error)
        else:
            loop.default_exception_handler(context)

    async def _until_ready(self, quiet_s: float) -> None:
        patience, progress = Patience(quiet_s), self._progress()
        patience.follow(SWITCHES, LocalWork(RunFiles(self.inputs.run_dir).pid_of(SWITCHES)))
        while not self.ready and not self._stopping:
            if any(k.status.state is SwitchState.FAILED for k in self.provisioners.values()):
                raise NotReady(self._missing_report("a switch refuses what it was sent"))
            if (latest_progress := self._progress()) != progress:
                progress = latest_progress
                patience.step(SWITCHES)
            await self._next_wake(time.monotonic() + LOOK_S)
            patience.update()
            if patience.is_over(SWITCHES):
                raise NotReady(self._missing_report(f"not all switches are ready, and none got on for {quiet_s:g} s"))

    def _progress(self) -> tuple[int, ...]:
        """Return counts that change with every progress of the switches.

        A connection that fails and is tried again is no progress.
        """
        statuses = [k.status for k in self.provisioners.values()]
        return (
            sum(w.is_synced for w in self.watches),
            sum(status.verified for status in statuses),
            sum(status.pipeline for status in statuses),
            sum(status.writes for status in statuses),
            sum(status.entries for status in statuses),
        )

    def _give_up_absent(self) -> None:
        for provisioner in self.provisioners.values():
            provisioner.give_up_absent()

    def _missing_report(self, reason: str) -> str:
        lines = [f"{reason}:"]
        lines += [f"  {k.describe()}" for k in self.provisioners.values() if not k.status.verified]
        lines += [f"  {w.reason}" for w in self.watches if not w.is_synced]
        lines.append("see log/switchd.log in the run folder, and whether the addresses in switches.json are right")
        return "\n".join(lines)

    def _wake(self) -> None:
        self._woken.set()

    async def _next_wake(self, deadline: float | None) -> bool:
        """Wait until something has changed. False when `deadline` (monotonic seconds) came first."""
        remaining_s = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        try:
            await asyncio.wait_for(self._woken.wait(), remaining_s)
        except asyncio.TimeoutError:
            return False
        self._woken.clear()
        return True

    # ---- events of the parts ----------------------------------------------------------------------------

    def _on_switch_change(self, provisioner: SwitchProvisioner) -> None:
        now, name, status = time.monotonic(), provisioner.target.name, provisioner.status
        log.info("%s: %s: %s", name, status.state.value, status.reason)
        self._report_primary(provisioner)
        self.publish("switch", now, **self._switch_event(provisioner))
        is_up = STREAM_IS_UP[status.state]
        # A switch that was never seen is not lost: run() still waits for it.
        if is_up is not None and (is_up or self.began or name in self._seen_switches):
            self._seen_switches.add(name)
            self.faults.stream(name, is_up, says=status.reason, now=now)
            self.publish_fault_changes()
        self._wake()

    def _report_primary(self, provisioner: SwitchProvisioner) -> None:
        """Report a switch whose primary is another controller as a problem: it is not written."""
        name, status = provisioner.target.name, provisioner.status
        if status.state is SwitchState.BACKUP:
            self.problems.begin(ProblemKind.NOT_PRIMARY, name, status.reason, NOT_PRIMARY_EFFECT)
        else:
            self.problems.end(ProblemKind.NOT_PRIMARY, name)

    def _port_status(self, interface: str, status: str, source: str) -> None:
        now = time.monotonic()
        try:
            link = self.inputs.plan.link_of_interface(interface)
        except PlanError:
            log.debug("%s: interface %s is not of this fabric", source, interface)
            return
        self.faults.port(interface, status, source=source, now=now)
        if self.status.get(interface) != status:
            self.status[interface] = status
            self.publish("port", now, interface=interface, status=status, link=link.name, source=source)
            self._follow_liveness(link.plane)
        self.publish_fault_changes()

    def _follow_liveness(self, plane: int) -> None:
        """Set the entries that follow from live links and switches in a plane (pruning.py)."""
        inputs = self.inputs
        down_links = frozenset(
            link
            for link in inputs.plan.links
            if link.plane == plane
            and any(PORT_IS_BAD.get(self.status.get(p.interface, "UP"), True) for p in (link.lower, link.upper))
        )
        causes = {f.certain_cause for f in self.faults.active() if f.mode is FailureMode.SILENT_DOWN}
        silent_causes = frozenset(
            cause for cause in causes if isinstance(cause, (Link, Switch)) and cause.plane == plane
        )
        now, due = time.monotonic(), self.reaction.due
        self._failures[plane] = PlaneFailures(down_links, self._fresh_links(plane, down_links), silent_causes)
        self.reaction.update(plane, self._failures[plane], now)
        if due is None and self.reaction.due is not None:
            react = self.problems.guard("reaction to a failure", self._react)
            asyncio.get_running_loop().call_later(self.reaction.due - now, react)
        self._want_live(plane)

    def _want_live(self, plane: int) -> None:
        inputs, failures, acted_on = self.inputs, self._failures[plane], self.reaction.acted_on(plane)
        for provisioner in self.provisioners.values():
            if (switch := provisioner.target.switch).plane == plane:
                program = inputs.program_of(provisioner.target)
                provisioner.want_live(
                    live_entries(inputs.plan, program.kind, switch, program.catalog, failures, acted_on)
                )

    def reload(self) -> list[str]:
        """Take up the programs that the run folder names now and the switches run already; return their names.

        Raises InputError, and leaves all as it was.
        """
        inputs = read_inputs(self.inputs.run_dir, self.inputs.program)
        changed_names = []
        for target in inputs.targets:
            provisioner, catalog = self.provisioners[target.name], inputs.program_of(target).catalog
            if provisioner.catalog.cookie != catalog.cookie:
                provisioner.take_program(target, catalog)
                changed_names.append(target.name)
        self.inputs = inputs
        for plane in self._failures:
            self._want_live(plane)
        return changed_names

    def _react(self) -> None:
        """Act when the reaction delay is over: switches avoid dead parts, and use recovered ones again."""
        planes = self.reaction.act()
        if planes and self._journal is not None:  # first what cannot be forgotten
            self._journal.record_reaction(self.reaction.names())
        for plane in planes:
            self._want_live(plane)

    def _fresh_links(self, plane: int, down_links: frozenset[Link]) -> frozenset[Link]:
        """Return links of a plane that came up within RESTORE_AFTER_S.

        The plane is evaluated again when that time is over.
        """
        now = time.monotonic()
        previous = self._down_links.get(plane, frozenset())
        self._down_links[plane] = down_links
        for link in previous - down_links:
            self._up_at[link] = now
            follow = self.problems.guard("link that came up", self._follow_liveness)
            asyncio.get_running_loop().call_later(RESTORE_AFTER_S + 0.01, follow, plane)
        self._up_at = {link: up_at for link, up_at in self._up_at.items() if now - up_at < RESTORE_AFTER_S}
        return frozenset(link for link in self._up_at if link.plane == plane) - down_links

    def _on_live_written(self, provisioner: SwitchProvisioner, reason: str, entries: int, took_s: float) -> None:
        name = provisioner.target.name
        self.publish("live", time.monotonic(), switch=name, reason=reason, entries=entries, took_s=took_s)

    def _on_digest(self, provisioner: SwitchProvisioner, name: str, data: list[Any]) -> None:
        """Publish a switch's report of packets that met a dead or unknown next hop."""
        now, switch = time.monotonic(), provisioner.target.switch
        for report in data:
            if name != NEXT_HOP_REPORT or not isinstance(report, dict):
                log.debug("%s: digest %s %r ignored", switch.name, name, report)
                continue
            reason = DROP_REASONS.get(report.get("reason", 0), str(report.get("reason")))
            ports = {p.number: p.interface for p in self.inputs.plan.ports(switch.name)}
            egress, ingress = (ports.get(report.get(key, 0)) for key in ("egress_port", "ingress_port"))
            event = {"switch": switch.name, "reason": reason, "egress": egress, "ingress": ingress}
            self.publish("digest", now, **event, dst_addr=number_text(int(report.get("dst_addr", 0)), 128))
            if egress is not None and reason == "dead next hop":
                self.faults.digest(egress, reason, now=now)
        self.publish_fault_changes()

    def _on_ev_event(self, event: Message) -> None:
        if event["new"] == BAD_STATE:
            self.mapper.request_read()
            self.congestion.request_read()
        self.publish("ev", event.pop("t"), **event)

    def _on_probe_event(self, event: Message) -> None:
        keys = ("host", "plane", "target", "kind", "link", "state", "old", "loss", "since", "direction")
        self.publish("probe", event["t"], **{key: event.get(key) for key in keys})

    def _on_denylist_change(self) -> None:
        state = self.denylist.to_json()
        self.publish("denylist", time.monotonic(), policy=state["policy"], entries=state["entries"])

    def set_policy(self, policy: str) -> None:
        """Set the denylist policy, from now on and after a restart."""
        self.denylist.policy = policy
        if self._journal is not None:
            self._journal.record_policy(policy)
        self.denylist.follow(self.faults.active())

    # ---- the fault list ---------------------------------------------------------------------------------

    def publish_fault_changes(self) -> None:
        """Record and publish what has changed in the fault list, and set its timer."""
        now = time.monotonic()
        changes = self.faults.changes()
        for change, fault in changes:
            self._report_change(change, fault, now)
        if changes:
            self._follow_denylist(self.faults.active())
        # One that was silent may be lossy now, or merged.
        for plane in {fault.plane for _, fault in changes} - {NO_PLANE}:
            self._follow_black_holes(plane)
        self._set_timer(now)

    def _record_and_publish(self, change: str, fault: Fault, now: float) -> None:
        record = fault.to_json()
        if self._journal is not None:  # first what cannot be forgotten, then what can be heard
            self._journal.record_fault(change, record, now)
        log.info("fault %d %s: %s", fault.number, change, fault.text)
        self.publish("fault", now, change=change, fault=record)

    def _set_timer(self, not_before: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = self.faults.next_timer()
        self._timer = None
        if due is not None:
            delay_s = max(due, not_before) - time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(max(delay_s, 0.0), self._fault_timer)

    def _fault_timer(self) -> None:
        problem_count = self.problems.count
        self._run_timers(time.monotonic())
        self.publish_fault_changes()
        if self.problems.count > problem_count:
            self._set_timer(time.monotonic() + AGAIN_S)  # what was due may be due still

    def _on_problem_change(self, change: str, problem: ControllerProblem) -> None:
        self.publish("problem", time.monotonic(), change=change, problem=problem.to_json())

    # ---- events -----------------------------------------------------------------------------------------

    def publish(self, event: str, t: float, **fields: Any) -> None:
        """Pass an event to `on_event`; `t` is CLOCK_MONOTONIC seconds."""
        self.on_event(event, t, **fields)

    def _switch_event(self, provisioner: SwitchProvisioner) -> dict[str, Any]:
        status = provisioner.status
        return {"switch": provisioner.target.name, "state": status.state.value, "reason": status.reason}

    def snapshot(self) -> list[Message]:
        """Return the first events of a new watcher: the state of all switches, active faults and problems."""
        now = time.monotonic()
        switches = [event_of("switch", now, self._switch_event(k)) for k in self.provisioners.values()]
        active = [{"change": "raised", "fault": fault.to_json()} for fault in self.faults.active()]
        faults = [event_of("fault", now, fields) for fields in active]
        problems = [{"change": "begun", "problem": problem.to_json()} for problem in self.problems.active()]
        return switches + faults + [event_of("problem", now, fields) for fields in problems]
