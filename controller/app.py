"""The controller without its northbound API: a provisioner for every switch, the sources, the fault list and its
journal (docs/controller.md).

One asyncio process. Nothing here writes to a switch; that is `provisioner`'s alone. What it does is told by events, to
whoever listens (`on_event`); `controller/__main__.py` puts it together with the API.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from mrc_testbed.controller.config import ControllerConfig
from mrc_testbed.controller.denylist import DenylistPolicy
from mrc_testbed.controller.faults.correlator import PORT_IS_BAD, Fault, FaultCorrelator
from mrc_testbed.controller.faults.diagnosis import FailureMode
from mrc_testbed.controller.faults.journal import Journal
from mrc_testbed.controller.faults.observations import ObservationRecorder
from mrc_testbed.controller.p4runtime.entries import number_text
from mrc_testbed.controller.p4runtime.provisioner import SwitchProvisioner, SwitchState
from mrc_testbed.controller.p4runtime.pruning import Dead, live_entries
from mrc_testbed.controller.problems import AGAIN_S, ControllerProblem, ProblemKind, Problems
from mrc_testbed.controller.reconvergence import ReconvergenceDelay
from mrc_testbed.controller.sources.clustermapper import ClustermapperSource
from mrc_testbed.controller.sources.gnmi_ports import GnmiPortWatch
from mrc_testbed.controller.sources.host_agents import BAD, HostAgentSource
from mrc_testbed.controller.sources.queue_drops import QueueDropSource
from mrc_testbed.ipc.framing import Message, event_of
from mrc_testbed.ipc.patience import LOOK_S, LocalWork, Patience
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.ipc.service import end_tasks
from mrc_testbed.topologies.plan import Link, PlanError

CONFIRM_S = 4.0
"""After a restart: how long a remembered fault stays in the list without anybody seeing it, once all sources answer."""
CONFIRM_MAX_S = 60.0
"""The same when not all sources come to answer."""
ABSENT_S = 2.0
"""After a restart on a fabric that was in line: a switch that does not answer for so long is lost, not late."""

PORTS_FIRST_S = 1.5
"""After a restart: how long the switches wait for the state of the ports."""

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
    """Use `opened()`, and in it `run()`, which ends by stop() or an error.

    The rest is called by its parts and the API.
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
        self.problems = Problems(RunFiles(inputs.run_dir).log("controller"), self._problem_told)
        problems, guarded = self.problems, self.problems.guarded
        self.provisioners = {
            t.name: SwitchProvisioner(
                t,
                inputs.catalog,
                guarded(f"change of {t.name}", self._switch_changed),
                guarded(f"entries of {t.name}", self._live_written),
                problems,
            )
            for t in inputs.targets
        }
        for name, provisioner in self.provisioners.items():
            provisioner.on_digest = guarded(f"digest of {name}", self._digest_told)
        port_status = guarded("state of a port", self._port_status)
        self.watches = [GnmiPortWatch(a, port_status, self._wake) for a in inputs.gnmi_addresses]
        self.agents = HostAgentSource(
            inputs.run_dir, plan, self.faults, self._ev_told, self.faults_moved, problems=problems
        )
        self.mapper = ClustermapperSource(inputs.run_dir, self.faults, self._probe_told, self.faults_moved, problems)
        self.congestion = QueueDropSource(self.provisioners.values(), self.faults, self.faults_moved, problems)
        self.denylist = DenylistPolicy(plan, self.agents, self._denylist_told)
        self.agents.on_back = self.denylist.agent_is_back
        self.reaction = ReconvergenceDelay(react_after_s)
        self.status: dict[str, str] = {}
        """Last oper-status of every interface of the fabric."""
        self._down: dict[int, frozenset[Link]] = {}
        """Links that are down, by plane."""
        self._dead: dict[int, Dead] = {}
        self._up_at: dict[Link, float] = {}
        """Times at which links came up lately."""
        self.began = False
        """Every switch has equalled the plan once, in this life or an earlier one."""
        self._wanted_policy = denylist
        self._seen: set[str] = set()
        """Switches that have been up."""
        self.on_event: Callable[..., None] = lambda _event, _t, **_fields: None
        """Called with (event, t, fields by name) for each of: switch, port, ev, probe, digest, live, denylist, fault,
        problem, ready."""
        self._tell = guarded("change of a fault", self._keep_and_tell)
        self._follow_denylist = guarded("denylist", self.denylist.follow)
        self._follow_silent = guarded("black hole", self._follow_liveness)
        self._run_timers = guarded("timer of the fault list", self.faults.on_timer)
        self._journal: Journal | None = None
        self._stopping = False
        self._woken = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    # ---- life -------------------------------------------------------------------------------------------

    @contextmanager
    def opened(self) -> Iterator[None]:
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
        or of a reaction is a bug; it is told (problems.py), and the rest goes on.
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
        loop.set_exception_handler(self._escaped)
        if self.began:
            loop.call_later(ABSENT_S, self.problems.guarded("absent switches", self._give_up_absent))
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
        """Every switch equals the plan and every port's state is known; one known to be lost is not waited for."""
        provisioners = (
            k.status.verified or (self.began and k.status.state is SwitchState.LOST) for k in self.provisioners.values()
        )
        return all(provisioners) and all(w.synced for w in self.watches)

    def _remember(self, journal: Journal) -> None:
        """Take up what an earlier controller of this run folder knew."""
        remembered = journal.content
        self.began = remembered.was_ready
        for provisioner in self.provisioners.values():
            provisioner.was_provisioned = self.began
        self.faults.restore(remembered.faults, time.monotonic(), CONFIRM_MAX_S)
        self.reaction.restore(self.inputs.plan, journal.content.avoided_names)
        self.denylist.is_owed = remembered.may_hold_denylists
        self.denylist.on_owed = journal.record_denied
        self.denylist.policy = self._wanted_policy or remembered.denylist_policy or self.denylist.policy
        if remembered.faults:
            active = len(self.faults.active())
            log.info("remembered %d faults, %d of them active", len(remembered.faults), active)

    async def _keep_switch(self, provisioner: SwitchProvisioner) -> None:
        """After a restart the ports first: what follows from them is in the switches, and is no difference then."""
        deadline = time.monotonic() + PORTS_FIRST_S
        while self.began and time.monotonic() < deadline and not all(w.synced for w in self.watches):
            await asyncio.sleep(0.02)
        await provisioner.run()

    def _now_ready(self) -> None:
        assert self._journal is not None
        now = time.monotonic()
        if not self.began:
            self.began = True
            self._journal.record_ready(now)
        self.faults.confirm_by(now + CONFIRM_S, now=now)
        self.faults_moved()
        print("ready", flush=True)
        self.publish("ready", now, ready=True)

    def _escaped(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception that reached the event loop: of a callback, or of a task that nobody waits for."""
        error = context.get("exception")
        if isinstance(error, Exception):
            self.problems.internal(str(context.get("message", "event loop")).splitlines()[0], error)
        else:
            loop.default_exception_handler(context)

    async def _until_ready(self, quiet_s: float) -> None:
        patience, reached = Patience(quiet_s), self._reached()
        patience.follow(SWITCHES, LocalWork(RunFiles(self.inputs.run_dir).pid_of(SWITCHES)))
        while not self.ready and not self._stopping:
            if any(k.status.state is SwitchState.FAILED for k in self.provisioners.values()):
                raise NotReady(self._what_is_missing("a switch refuses what it was sent"))
            if (reaches := self._reached()) != reached:
                reached = reaches
                patience.step(SWITCHES)
            await self._next_wake(time.monotonic() + LOOK_S)
            patience.update()
            if patience.is_over(SWITCHES):
                raise NotReady(self._what_is_missing(f"not all switches are ready, and none got on for {quiet_s:g} s"))

    def _reached(self) -> tuple[int, ...]:
        """How far the switches are; another value is progress. A connection that fails and is tried again is none."""
        told = [k.status for k in self.provisioners.values()]
        return (
            sum(w.synced for w in self.watches),
            sum(one.verified for one in told),
            sum(one.pipeline for one in told),
            sum(one.writes for one in told),
            sum(one.entries for one in told),
        )

    def _give_up_absent(self) -> None:
        for provisioner in self.provisioners.values():
            provisioner.give_up_absent()

    def _what_is_missing(self, why: str) -> str:
        lines = [f"{why}:"]
        lines += [f"  {k.describe()}" for k in self.provisioners.values() if not k.status.verified]
        lines += [f"  {w.reason}" for w in self.watches if not w.synced]
        lines.append("see log/switchd.log in the run folder, and whether the addresses in switches.json are right")
        return "\n".join(lines)

    def _wake(self) -> None:
        self._woken.set()

    async def _next_wake(self, deadline: float | None) -> bool:
        """Wait until something has changed. False when `deadline` (monotonic seconds) came first."""
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        try:
            await asyncio.wait_for(self._woken.wait(), left)
        except asyncio.TimeoutError:
            return False
        self._woken.clear()
        return True

    # ---- what the parts tell ----------------------------------------------------------------------------

    def _switch_changed(self, provisioner: SwitchProvisioner) -> None:
        now, name, status = time.monotonic(), provisioner.target.name, provisioner.status
        log.info("%s: %s: %s", name, status.state.value, status.reason)
        self._tell_primary(provisioner)
        self.publish("switch", now, **self._switch_event(provisioner))
        is_up = STREAM_IS_UP[status.state]
        if is_up is not None and (is_up or self.began or name in self._seen):  # never seen is not lost: run() waits
            self._seen.add(name)
            self.faults.stream(name, is_up, says=status.reason, now=now)
            self.faults_moved()
        self._wake()

    def _tell_primary(self, provisioner: SwitchProvisioner) -> None:
        """A switch that another controller has taken is told as what it is: one that we do not write."""
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
        self.faults_moved()

    def _follow_liveness(self, plane: int) -> None:
        """Have the switches of a plane hold what follows from what is alive (pruning.py)."""
        inputs = self.inputs
        down = frozenset(
            link
            for link in inputs.plan.links
            if link.plane == plane
            and any(PORT_IS_BAD.get(self.status.get(p.interface, "UP"), True) for p in (link.lower, link.upper))
        )
        causes = {f.certain_cause for f in self.faults.active() if f.mode is FailureMode.SILENT_DOWN}
        silent = frozenset(cause for cause in causes if cause is not None and cause.plane == plane)
        now, due = time.monotonic(), self.reaction.due
        self._dead[plane] = Dead(down, self._fresh(plane, down), silent)
        self.reaction.update(plane, self._dead[plane], now)
        if due is None and self.reaction.due is not None:
            react = self.problems.guarded("reaction to a failure", self._react)
            asyncio.get_running_loop().call_later(self.reaction.due - now, react)
        self._want_live(plane)

    def _want_live(self, plane: int) -> None:
        inputs, dead, acted_on = self.inputs, self._dead[plane], self.reaction.acted_on(plane)
        for provisioner in self.provisioners.values():
            if (switch := provisioner.target.switch).plane == plane:
                provisioner.want_live(live_entries(inputs.plan, inputs.program, switch, inputs.catalog, dead, acted_on))

    def _react(self) -> None:
        """The control plane has taken its time: switches avoid what is dead, and use again what is back."""
        moved = self.reaction.act()
        if moved and self._journal is not None:  # first what cannot be forgotten
            self._journal.record_reaction(self.reaction.names())
        for plane in moved:
            self._want_live(plane)

    def _fresh(self, plane: int, down: frozenset[Link]) -> frozenset[Link]:
        """Links of a plane that came up within RESTORE_AFTER_S; the plane is looked at again when that is over."""
        now = time.monotonic()
        before = self._down.get(plane, frozenset())
        self._down[plane] = down
        for link in before - down:
            self._up_at[link] = now
            follow = self.problems.guarded("link that came up", self._follow_liveness)
            asyncio.get_running_loop().call_later(RESTORE_AFTER_S + 0.01, follow, plane)
        self._up_at = {link: at for link, at in self._up_at.items() if now - at < RESTORE_AFTER_S}
        return frozenset(link for link in self._up_at if link.plane == plane) - down

    def _live_written(self, provisioner: SwitchProvisioner, reason: str, entries: int, took_s: float) -> None:
        name = provisioner.target.name
        self.publish("live", time.monotonic(), switch=name, reason=reason, entries=entries, took_s=took_s)

    def _digest_told(self, provisioner: SwitchProvisioner, name: str, data: list[Any]) -> None:
        """A switch reports packets that met a dead or unknown next hop."""
        now, switch = time.monotonic(), provisioner.target.switch
        for report in data:
            if name != NEXT_HOP_REPORT or not isinstance(report, dict):
                log.debug("%s: digest %s %r ignored", switch.name, name, report)
                continue
            reason = DROP_REASONS.get(report.get("reason", 0), str(report.get("reason")))
            ports = {p.number: p.interface for p in self.inputs.plan.ports(switch.name)}
            egress, ingress = (ports.get(report.get(key, 0)) for key in ("egress_port", "ingress_port"))
            told = {"switch": switch.name, "reason": reason, "egress": egress, "ingress": ingress}
            self.publish("digest", now, **told, dst_addr=number_text(int(report.get("dst_addr", 0)), 128))
            if egress is not None and reason == "dead next hop":
                self.faults.digest(egress, reason, now=now)
        self.faults_moved()

    def _ev_told(self, event: Message) -> None:
        if event["new"] == BAD:
            self.mapper.look()
            self.congestion.look()
        self.publish("ev", event.pop("t"), **event)

    def _probe_told(self, event: Message) -> None:
        known = ("host", "plane", "target", "kind", "link", "state", "old", "loss", "since", "direction")
        self.publish("probe", event["t"], **{key: event.get(key) for key in known})

    def _denylist_told(self) -> None:
        state = self.denylist.to_json()
        self.publish("denylist", time.monotonic(), policy=state["policy"], entries=state["entries"])

    def set_policy(self, policy: str) -> None:
        """Another denylist policy, from now on and after a restart."""
        self.denylist.policy = policy
        if self._journal is not None:
            self._journal.record_policy(policy)
        self.denylist.follow(self.faults.active())

    # ---- the fault list ---------------------------------------------------------------------------------

    def faults_moved(self) -> None:
        """Keep and tell what has changed in the fault list, and look after its clock."""
        now = time.monotonic()
        changes = self.faults.changes()
        for change, fault in changes:
            self._tell(change, fault, now)
        if changes:
            self._follow_denylist(self.faults.active())
        for plane in {fault.plane for _, fault in changes}:  # one that was silent may be lossy now, or merged
            self._follow_silent(plane)
        self._set_timer(now)

    def _keep_and_tell(self, change: str, fault: Fault, now: float) -> None:
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
        failed = self.problems.count
        self._run_timers(time.monotonic())
        self.faults_moved()
        if self.problems.count > failed:
            self._set_timer(time.monotonic() + AGAIN_S)  # what was due may be due still

    def _problem_told(self, change: str, problem: ControllerProblem) -> None:
        self.publish("problem", time.monotonic(), change=change, problem=problem.to_json())

    # ---- events -----------------------------------------------------------------------------------------

    def publish(self, event: str, t: float, **fields: Any) -> None:
        """Tell whoever listens; `t` is CLOCK_MONOTONIC seconds."""
        self.on_event(event, t, **fields)

    def _switch_event(self, provisioner: SwitchProvisioner) -> dict[str, Any]:
        status = provisioner.status
        return {"switch": provisioner.target.name, "state": status.state.value, "reason": status.reason}

    def snapshot(self) -> list[Message]:
        """First events of a new watcher: the state of all switches, the active faults and problems."""
        now = time.monotonic()
        switches = [event_of("switch", now, self._switch_event(k)) for k in self.provisioners.values()]
        active = [{"change": "raised", "fault": fault.to_json()} for fault in self.faults.active()]
        faults = [event_of("fault", now, fields) for fields in active]
        problems = [{"change": "begun", "problem": problem.to_json()} for problem in self.problems.active()]
        return switches + faults + [event_of("problem", now, fields) for fields in problems]
