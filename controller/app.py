"""The controller as a whole: a keeper for every switch, a port watch for every gNMI server, the fault list, and
the northbound socket where others ask (docs/architecture.md).

One asyncio process. Nothing here writes to a switch; that is `keeper`'s alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from controller.faults import PORT_IS_BAD, FaultList
from controller.inputs import Inputs
from controller.journal import Journal
from controller.keeper import Keeper, SwitchState, Verification
from controller.northbound import Message, NorthboundServer, Refusal, Route
from controller.ports import PortWatch
from topologies.jsonl import event_of
from topologies.plan import PlanError

READ_AT_ONCE = 32
"""Switches read side by side by `verify`: keeps a big fabric's answers from piling up in memory."""

STREAM_IS_UP = {
    SwitchState.CONNECTING: None,
    SwitchState.SYNCING: None,  # answers, and may still lack its routes: a lost switch is not back before they are
    SwitchState.VERIFIED: True,
    SwitchState.BACKUP: True,
    SwitchState.LOST: False,
    SwitchState.FAILED: None,
}
"""What a switch's state tells the fault list; None: nothing."""

log = logging.getLogger(__name__)


class NotReady(Exception):
    """The fabric did not come into line; the text names every switch that is missing, and why."""


class FabricController:
    """Runs until stop() or an error. Use `run()`; everything else is called by its parts."""

    def __init__(self, inputs: Inputs, http_port: int | None = None) -> None:
        self.inputs = inputs
        self.faults = FaultList(inputs.plan)
        self.keepers = {t.name: Keeper(t, inputs.catalog, self._switch_changed) for t in inputs.targets}
        self.watches = [PortWatch(a, self._port_status, self._wake) for a in inputs.gnmi_addresses]
        self._status: dict[str, str] = {}
        """Last oper-status of every interface of the fabric."""
        self._seen: set[str] = set()
        """Switches that have been up."""
        self._http_port = http_port
        self._server = NorthboundServer(self._routes(), self._snapshot)
        self._stopping = False
        self._woken = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    # ---- life -------------------------------------------------------------------------------------------

    async def run(self, deadline_s: float) -> None:
        """Bring all switches into line, print `ready`, keep them so until stop().

        Raises NotReady when that takes longer than `deadline_s` or a switch refuses; JsonlError when another
        controller has the run folder; whatever a task of ours died of, because that is a bug.
        """
        self._journal = Journal.open(self.inputs.run_dir)
        try:
            await self._server.start(self.inputs.run_dir, self._http_port)
            await self._keep(deadline_s)
        finally:
            await self._server.close()
            self._journal.close()

    async def _keep(self, deadline_s: float) -> None:
        tasks = [asyncio.create_task(k.run(), name=f"keep {name}") for name, k in self.keepers.items()]
        tasks += [asyncio.create_task(w.run(), name=f"watch {w.address}") for w in self.watches]
        for task in tasks:
            task.add_done_callback(lambda _: self._wake())
        try:
            await self._until_ready(tasks, deadline_s)
            if self._stopping:
                return
            print("ready", flush=True)
            while not self._stopping:
                self._raise_for(tasks)
                await self._next_wake(None)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def stop(self) -> None:
        """End run(). Switches keep their tables."""
        self._stopping = True
        self._wake()

    @property
    def ready(self) -> bool:
        """Every switch equals the plan and every port's state is known."""
        return all(k.status.verified for k in self.keepers.values()) and all(w.synced for w in self.watches)

    async def _until_ready(self, tasks: list[asyncio.Task[None]], deadline_s: float) -> None:
        deadline = time.monotonic() + deadline_s
        while not self.ready and not self._stopping:
            self._raise_for(tasks)
            if any(k.status.state is SwitchState.FAILED for k in self.keepers.values()):
                raise NotReady(self._what_is_missing("a switch refuses what it was sent"))
            if not await self._next_wake(deadline):
                raise NotReady(self._what_is_missing(f"not all switches are ready after {deadline_s:g} s"))

    def _what_is_missing(self, why: str) -> str:
        lines = [f"{why}:"]
        lines += [f"  {k.describe()}" for k in self.keepers.values() if not k.status.verified]
        lines += [f"  {w.reason}" for w in self.watches if not w.synced]
        lines.append("see log/switchd.log in the run folder, and whether the addresses in switches.json are right")
        return "\n".join(lines)

    def _raise_for(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            if task.done() and (error := task.exception()) is not None:
                raise error

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

    def _switch_changed(self, keeper: Keeper) -> None:
        now, name, status = time.monotonic(), keeper.target.name, keeper.status
        log.info("%s: %s: %s", name, status.state.value, status.reason)
        self._publish("switch", now, **self._switch_event(keeper))
        is_up = STREAM_IS_UP[status.state]
        if is_up is not None and (is_up or name in self._seen):  # never seen is not lost: run() waits for those
            self._seen.add(name)
            self.faults.stream(name, is_up, says=status.reason, now=now)
            self._publish_faults(now)
        self._wake()

    def _port_status(self, interface: str, status: str, source: str) -> None:
        now = time.monotonic()
        try:
            link = self.inputs.plan.link_of_interface(interface)
        except PlanError:
            log.debug("%s: interface %s is not of this fabric", source, interface)
            return
        self.faults.port(interface, status, source=source, now=now)
        if self._status.get(interface) != status:
            self._status[interface] = status
            self._publish("port", now, interface=interface, status=status, link=link.name, source=source)
        self._publish_faults(now)

    def _publish_faults(self, now: float) -> None:
        for change, fault in self.faults.changes():
            log.info("fault %d %s: %s", fault.number, change, fault.text)
            self._publish("fault", now, change=change, fault=fault.to_json())
        if self._timer is not None:
            self._timer.cancel()
        due = self.faults.next_timer()
        self._timer = None
        if due is not None:
            self._timer = asyncio.get_running_loop().call_later(max(due - now, 0.0), self._fault_timer)

    def _fault_timer(self) -> None:
        now = time.monotonic()
        self.faults.on_timer(now)
        self._publish_faults(now)

    # ---- northbound -------------------------------------------------------------------------------------

    def _publish(self, event: str, t: float, **fields: Any) -> None:
        self._server.publish(event, t=t, **fields)

    def _switch_event(self, keeper: Keeper) -> dict[str, Any]:
        status = keeper.status
        return {"switch": keeper.target.name, "state": status.state.value, "reason": status.reason}

    def _snapshot(self) -> list[Message]:
        """What a new watcher gets first: the state of all switches, the active faults."""
        now = time.monotonic()
        switches = [event_of("switch", now, self._switch_event(k)) for k in self.keepers.values()]
        active = [{"change": "raised", "fault": fault.to_json()} for fault in self.faults.active()]
        return switches + [event_of("fault", now, fields) for fields in active]

    def _routes(self) -> list[Route]:
        return [
            Route("GET", "/v1/status", lambda _: self._status_answer()),
            Route("GET", "/v1/faults", self._faults_answer),
            Route("GET", "/v1/faults/{number}", self._fault_answer),
            Route("GET", "/v1/links", lambda _: self._links_answer()),
            Route("GET", "/v1/switches", lambda _: {"switches": self._switches_answer()}),
            Route("POST", "/v1/verify", lambda fields: self._verify_answer(bool(fields.get("entries")))),
            Route("POST", "/v1/shutdown", self._shutdown_answer),
        ]

    def _shutdown_answer(self, _fields: Message) -> Message:
        asyncio.get_running_loop().call_soon(self.stop)
        return {}

    def _faults_answer(self, fields: Message) -> Message:
        state = fields.get("state")
        if state not in (None, "active", "cleared"):
            raise Refusal(400, f"state={state}: no such state of a fault", "state=active or state=cleared")
        faults = [f.to_json() for f in self.faults.all() if state in (None, f.state.value)]
        return {"faults": faults, "active": len(self.faults.active())}

    def _fault_answer(self, fields: Message) -> Message:
        known = self.faults.all()
        for fault in known:
            if str(fault.number) == fields["number"]:
                return fault.to_json()
        has = f"{known[0].number} to {known[-1].number}" if known else "none yet"
        raise Refusal(404, f"no fault {fields['number']}", f"there is: {has}; GET /v1/faults lists them")

    def _links_answer(self) -> Message:
        plan, links = self.inputs.plan, []
        numbers: dict[str, list[int]] = {}
        for fault in self.faults.active():
            numbers.setdefault(fault.location, []).append(fault.number)
        hosts = {host.name for host in plan.hosts}
        for link in plan.links:
            ends = {p.interface: self._status.get(p.interface) for p in (link.lower, link.upper)}
            known = [status for status in ends.values() if status is not None]
            links.append(
                {
                    "link": link.name,
                    "plane": link.plane,
                    "kind": "NIC-T0" if link.lower.node in hosts else "T0-T1",
                    "up": not any(PORT_IS_BAD.get(status, True) for status in known) if known else None,
                    "ends": ends,
                    "faults": numbers.get(link.name, []),
                }
            )
        return {"links": links}

    def _switches_answer(self) -> Message:
        numbers: dict[str, list[int]] = {}
        for fault in self.faults.active():
            numbers.setdefault(fault.location, []).append(fault.number)
        return {
            name: {
                "tier": keeper.target.switch.tier,
                "plane": keeper.target.switch.plane,
                **keeper.status.to_json(),
                "faults": numbers.get(name, []),
            }
            for name, keeper in self.keepers.items()
        }

    def _status_answer(self) -> Message:
        switches = self._switches_answer()
        return {
            "ready": self.ready,
            "program": self.inputs.program,
            "plan": self.inputs.plan.to_json(),
            "switches": switches,
            "ports": [watch.to_json() for watch in self.watches],
            "writes_after_start": sum(s["writes_after_start"] for s in switches.values()),
            "active_faults": len(self.faults.active()),
        }

    async def _verify_answer(self, with_entries: bool) -> Message:
        """Read every table of every switch now. `entries: true` in the request adds the lines read."""
        turn = asyncio.Semaphore(READ_AT_ONCE)

        async def verify(keeper: Keeper) -> Verification:
            async with turn:
                return await keeper.verify()

        results = await asyncio.gather(*(verify(k) for k in self.keepers.values()))
        switches, differences = {}, []
        for (name, keeper), result in zip(self.keepers.items(), results, strict=True):
            mine = [f"{name}: {difference}" for difference in result.differences]
            mine += [result.error] if result.error else []
            differences += mine
            switches[name] = {
                "digest": result.digest,
                "start_digest": keeper.status.start_digest,
                "entries": len(result.lines),
                "unchanged": result.digest is not None and result.digest == keeper.status.start_digest,
                "differences": mine,
                "error": result.error,
            }
            if with_entries:
                switches[name]["lines"] = list(result.lines)
        return {
            "unchanged_since_start": all(s["unchanged"] for s in switches.values()),
            "digests": {name: s["digest"] for name, s in switches.items()},
            "differences": differences,
            "switches": switches,
        }
