"""Route handlers of the northbound API, one method a resource (docs/northbound.md)."""

from __future__ import annotations

import asyncio
import math
from difflib import get_close_matches
from itertools import pairwise

from mrc_testbed.controller.api.metrics import exposition, negotiated_format
from mrc_testbed.controller.api.server import AnswerByAccept, Message, Refusal, Route, Text
from mrc_testbed.controller.app import FabricController
from mrc_testbed.controller.denylist import POLICIES
from mrc_testbed.controller.errors import InputError, SwitchError
from mrc_testbed.controller.faults.correlator import PORT_IS_BAD
from mrc_testbed.controller.p4runtime.counters import NO_PORT, counters_by_name, read_ports, read_queues
from mrc_testbed.controller.p4runtime.entries import NamedEntry
from mrc_testbed.controller.p4runtime.entry_text import parse_entry
from mrc_testbed.controller.p4runtime.provisioner import SwitchProvisioner, Verification
from mrc_testbed.controller.reconvergence import REACT_NEVER
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.topologies.plan import CPU_PORT, PlanError

READ_AT_ONCE = 32
"""Switches read side by side by `verify`: keeps a big fabric's answers from piling up in memory."""


class ApiHandlers:
    """HTTP handlers of one controller."""

    def __init__(self, app: FabricController) -> None:
        self._app = app

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/metrics", self._metrics),
            Route("GET", "/v1/status", self._status),
            Route("GET", "/v1/faults", self._faults),
            Route("GET", "/v1/faults/{number}", self._fault),
            Route("GET", "/v1/links", self._links),
            Route("GET", "/v1/switches", lambda _: {"switches": self._switches()}),
            Route("GET", "/v1/evs", self._evs),
            Route("GET", "/v1/counters", self._counters),
            Route("GET", "/v1/queues", self._queues),
            Route("GET", "/v1/denylist", lambda _: self._app.denylist.to_json()),
            Route("POST", "/v1/denylist", self._set_denylist),
            Route("POST", "/v1/verify", lambda fields: self._verify_answer(bool(fields.get("entries")))),
            Route("GET", "/v1/tables", self._tables),
            Route("POST", "/v1/tables", self._set_tables),
            Route("POST", "/v1/check", self._check),
            Route("POST", "/v1/reload", self._reload),
            Route("POST", "/v1/shutdown", self._shutdown),
        ]

    def _shutdown(self, _fields: Message) -> Message:
        asyncio.get_running_loop().call_soon(self._app.stop)
        return {}

    def _reload(self, _fields: Message) -> Message:
        """Take up programs that were swapped in under the controller."""
        try:
            return {"switches": self._app.reload()}
        except InputError as error:
            raise Refusal(409, str(error), "`reload` with a program that has the fabric's tables") from error

    async def _metrics(self, _fields: Message) -> AnswerByAccept:
        samples = await exposition(self._app)

        def choose(accept: str) -> Text:
            form = negotiated_format(accept)
            return Text(form.encode(samples), form.content_type)

        return AnswerByAccept(choose)

    # ---- faults and links -------------------------------------------------------------------------------

    def _faults(self, fields: Message) -> Message:
        state = fields.get("state")
        if state not in (None, "active", "cleared"):
            raise Refusal(400, f"state={state}: no such state of a fault", "state=active or state=cleared")
        faults = [f.to_json() for f in self._app.faults.all_faults() if state in (None, f.state.value)]
        problems = [
            p.to_json()
            for p in self._app.problems.all_problems()
            if state in (None, "active" if p.end_time is None else "cleared")
        ]
        return {"faults": faults, "active": len(self._app.faults.active()), "problems": problems}

    def _fault(self, fields: Message) -> Message:
        faults = self._app.faults.all_faults()
        for fault in faults:
            if str(fault.number) == fields["number"]:
                return fault.to_json()
        has = f"{faults[0].number} to {faults[-1].number}" if faults else "none yet"
        raise Refusal(404, f"no fault {fields['number']}", f"known: {has}; GET /v1/faults lists all")

    def _numbers(self) -> dict[str, list[int]]:
        """Return the numbers of active faults, by each link or switch that may be the cause."""
        out: dict[str, list[int]] = {}
        for fault in self._app.faults.active():
            for cause in fault.causes:
                out.setdefault(cause.name, []).append(fault.number)
        return out

    def _links(self, _fields: Message) -> Message:
        plan, links, numbers = self._app.inputs.plan, [], self._numbers()
        for link in plan.links:
            ends = {p.interface: self._app.status.get(p.interface) for p in (link.lower, link.upper)}
            statuses = [status for status in ends.values() if status is not None]
            links.append(
                {
                    "link": link.name,
                    "plane": link.plane,
                    "kind": link.kind,
                    "up": not any(PORT_IS_BAD.get(status, True) for status in statuses) if statuses else None,
                    "ends": ends,
                    "faults": numbers.get(link.name, []),
                }
            )
        return {"links": links}

    def _switches(self) -> Message:
        numbers = self._numbers()
        return {
            name: {
                "tier": provisioner.target.switch.tier,
                "plane": provisioner.target.switch.plane,
                **provisioner.status.to_json(),
                "faults": numbers.get(name, []),
            }
            for name, provisioner in self._app.provisioners.items()
        }

    def _status(self, _fields: Message) -> Message:
        app, switches = self._app, self._switches()
        return {
            "ready": app.ready,
            "program": app.inputs.program,
            "mode": app.inputs.plan.mode.value,
            "plan": app.inputs.plan.to_json(),
            "switches": switches,
            "ports": [watch.to_json() for watch in app.watches],
            "sources": {source.name: source.to_json() for source in (app.agents, app.mapper, app.congestion)},
            "denylist": app.denylist.to_json()["policy"],
            "react_after": REACT_NEVER if math.isinf(app.reaction.after_s) else app.reaction.after_s,
            "writes_after_start": sum(s["writes_after_start"] for s in switches.values()),
            "active_faults": len(app.faults.active()),
            "problems": [problem.to_json() for problem in app.problems.active()],
        }

    # ---- hosts ------------------------------------------------------------------------------------------

    async def _evs(self, fields: Message) -> Message:
        """Return the EV health of one host towards another, with the faults on each path."""
        plan, numbers = self._app.inputs.plan, self._numbers()
        for key in ("from", "to"):
            if key not in fields:
                raise Refusal(400, f"{key}= is missing", "/v1/evs?from=h0&to=h2")
        try:
            source, destination = plan.host(fields["from"]), plan.host(fields["to"])
        except PlanError as error:
            raise Refusal(404, str(error), "GET /v1/status has the plan") from error
        try:
            peers = await self._app.agents.health(source.name, destination.name)
        except JsonlError as error:
            raise Refusal(
                503, f"{source.name} does not answer: {error}", "is its agent up? `mrc up` starts it"
            ) from error
        rows = [row for of_peer in peers if of_peer["peer"] == destination.name for row in of_peer["evs"]]
        for row in rows:
            row["faults"] = self._faults_of(row.get("path") or [], numbers)
        return {"from": source.name, "to": destination.name, "mode": plan.mode.value, "evs": rows}

    def _faults_of(self, path: list[str], numbers: dict[str, list[int]]) -> list[int]:
        causes = [*path, *(f"{a} {b}" for a, b in pairwise(path))]
        causes += [f"{b} {a}" for a, b in pairwise(path)]
        return sorted({number for cause in causes for number in numbers.get(cause, [])})

    async def _set_denylist(self, fields: Message) -> Message:
        policy = fields.get("policy")
        if policy not in POLICIES:
            raise Refusal(400, f"policy = {policy!r}", f"policy is one of {', '.join(POLICIES)}")
        self._app.set_policy(str(policy))
        await self._app.denylist.wait_settled()
        return self._app.denylist.to_json()

    async def _check(self, fields: Message) -> Message:
        """Run the pre-job check: a burst of probes over every link, and the active faults."""
        options = {key: fields[key] for key in ("count", "classes") if key in fields}
        try:
            burst = await self._app.mapper.probe_all(**options)
        except JsonlError as error:
            raise Refusal(
                503, f"the links cannot be probed: {error}", "is Clustermapper up? see log/mapper.log"
            ) from error
        bad_links = [f"{row['link']}: {row['state']}" for row in burst["links"] if row["state"] in ("down", "lossy")]
        active = [fault.to_json() for fault in self._app.faults.active()]
        return {**burst, "ok": not bad_links and not active, "bad": bad_links, "faults": active}

    # ---- counters ---------------------------------------------------------------------------------------

    def _provisioner(self, fields: Message) -> SwitchProvisioner:
        name = fields.get("switch")
        provisioners = self._app.provisioners
        if name not in provisioners:
            close = get_close_matches(str(name), provisioners, n=3) or list(provisioners)[:3]
            error = "switch= is missing" if name is None else f"no switch {name!r}"
            raise Refusal(400 if name is None else 404, error, f"switch={' or '.join(close)}")
        return provisioners[name]

    async def _counters(self, fields: Message) -> Message:
        """Return the P4 counters of a switch that are not zero, and the counters of its ports."""
        provisioner = self._provisioner(fields)
        target, numbers = provisioner.target, self._interfaces(provisioner)
        try:
            cells = await provisioner.counters([*numbers, NO_PORT, CPU_PORT])
            ports = await read_ports(target.gnmi, list(numbers.values())) if target.gnmi else {}
        except SwitchError as error:
            raise Refusal(503, str(error), "is the switch on? see GET /v1/switches") from error
        rows = [{"port": n, "interface": name, **ports.get(name, {})} for n, name in numbers.items()]
        counters = counters_by_name(provisioner.catalog, cells, numbers)
        return {"switch": target.name, "counters": counters, "ports": rows}

    async def _queues(self, fields: Message) -> Message:
        """Return the queues of the ports of a switch."""
        provisioner = self._provisioner(fields)
        if provisioner.target.gnmi is None:
            raise Refusal(
                404, f"{provisioner.target.name} has no gNMI server", "queues are reported by embedded switches"
            )
        try:
            rows = await read_queues(provisioner.target.gnmi, list(self._interfaces(provisioner).values()))
        except SwitchError as error:
            raise Refusal(503, str(error), "queues are reported by embedded switches that are on") from error
        return {"switch": provisioner.target.name, "queues": rows}

    def _interfaces(self, provisioner: SwitchProvisioner) -> dict[int, str]:
        return {port.number: port.interface for port in self._app.inputs.plan.ports(provisioner.target.name)}

    # ---- switches ---------------------------------------------------------------------------------------

    async def _verify_answer(self, with_entries: bool) -> Message:
        """Read every table of every switch now. `entries: true` in the request adds the lines read."""
        results = await self._verify_all()
        switches, differences = {}, []
        for (name, provisioner), result in zip(self._app.provisioners.items(), results, strict=True):
            own_differences = [f"{name}: {difference}" for difference in result.differences]
            own_differences += [result.error] if result.error else []
            differences += own_differences
            switches[name] = {
                "digest": result.digest,
                "start_digest": provisioner.status.start_digest,
                "entries": len(result.lines),
                "unchanged": result.digest is not None and result.digest == provisioner.status.start_digest,
                "differences": own_differences,
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

    async def _verify_all(self) -> list[Verification]:
        """Read all switches, a limited number at a time; their order is that of the provisioners."""
        turn = asyncio.Semaphore(READ_AT_ONCE)

        async def verify(provisioner: SwitchProvisioner) -> Verification:
            async with turn:
                return await provisioner.verify()

        return await asyncio.gather(*(verify(k) for k in self._app.provisioners.values()))

    async def _tables(self, _fields: Message) -> Message:
        """Return the entries of every switch as lines, without those that follow what is alive."""
        results = dict(zip(self._app.provisioners, await self._verify_all(), strict=True))
        return {
            "tables": {name: list(result.static_lines) for name, result in results.items() if result.error is None},
            "unread": {name: result.error for name, result in results.items() if result.error is not None},
        }

    async def _set_tables(self, fields: Message) -> Message:
        """Give switches the entries of a request, all or none of them, in place of the plan's."""
        tables = fields.get("tables")
        if not isinstance(tables, dict) or not all(isinstance(lines, list) for lines in tables.values()):
            raise Refusal(400, '"tables" must be an object', '{"tables": {"p0-t0-0": [LINE, ...]}}')
        mistakes = []
        entries: dict[str, list[NamedEntry]] = {}
        for name, lines in tables.items():
            catalog = self._provisioner({"switch": name}).catalog
            entries[name] = []
            for number, line in enumerate(lines):
                try:
                    entries[name].append(parse_entry(catalog, str(line)))
                except InputError as error:
                    mistakes.append({"switch": name, "number": number, "text": str(error)})
        if mistakes or fields.get("dry"):
            return {"mistakes": mistakes, "written": {}}
        counts: dict[str, int] = {}
        for name, switch_entries in entries.items():
            try:
                counts[name] = await self._app.provisioners[name].replace_entries(tuple(switch_entries))
            except SwitchError as error:
                earlier_text = f"; written before it: {', '.join(counts)}" if counts else ""
                cure = f"entries that the program takes, on a switch that is on{earlier_text}"
                raise Refusal(503, str(error), cure) from error
        return {"mistakes": [], "written": counts}
