"""State of a running fabric as the page shows it: read whole, and told as what changed since the last look.

Everything is read from what serves it already: wires and switch counters from the daemon, faults from the controller,
transfers and injected faults from the front process, which this runs in. A source that does not answer leaves its part
as it was and is named in `silent`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from mrc_testbed.cli.prompt.commands.base import BackgroundTransfers
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.fabric import Fabric

State = dict[str, dict[str, Any]]
"""Part (`links`, `switches`, `queues`, `faults`, `transfers`, `injected`, `log`, `silent`) -> key -> what is so."""
PARTS = ("links", "switches", "queues", "faults", "transfers", "injected", "log", "silent")
LOG_MAX = 300
"""Lines of the event log that are kept."""
QUIET_BPS = 50.0
"""Less than this is told as nothing."""
_TRIMMED_LAST_HOP = 1 << 9
"""Cell of the counter `trimmed` for last hops (p4src/headers.p4)."""


class FabricView:
    """Use `look` again and again, from one thread."""

    def __init__(self, fabric: Fabric, transfers: BackgroundTransfers) -> None:
        self._fabric, self._transfers = fabric, transfers
        self._ports = [end.interface for switch in fabric.plan.switches for end in fabric.plan.ports(switch.name)]
        self._octets: dict[str, tuple[int, int]] = {}
        self._counted: dict[str, tuple[int, int]] = {}
        """(marked, trimmed) by switch, at the last look."""
        self._at: float | None = None
        self._told: dict[int, str] = {}
        """State of each fault of the controller when it was last told."""
        self._seen = 0
        """Entries of the injector's log that were told."""
        self._lines: deque[tuple[int, dict[str, Any]]] = deque(maxlen=LOG_MAX)
        self._count = 0
        self._state: State = {part: {} for part in PARTS}

    def look(self) -> State:
        """The state now."""
        now = time.monotonic()
        silent: dict[str, Any] = {}
        state = dict(self._state)
        sources: list[tuple[str, Callable[[float], State]]] = [
            ("wires", self._links),
            ("switches", self._switches),
            ("controller", self._faults),
            ("transfers", self._sends),
        ]
        for name, read in sources:
            try:
                state |= read(now)
            except (FabricError, JsonlError) as error:
                silent[name] = str(error)
        state |= self._injections()
        state["log"] = {str(number): line for number, line in self._lines}
        state["silent"] = silent
        self._at, self._state = now, state
        return state

    # ---- links ------------------------------------------------------------------------------------------

    def _links(self, now: float) -> State:
        ports = self._fabric.link_states()
        passed = now - self._at if self._at is not None else None
        found: dict[str, Any] = {}
        for link in self._fabric.plan.links:
            port, before = ports.get(link.upper.interface), self._octets.get(link.name)
            count = None if port is None else (port.rx_bytes, port.tx_bytes)
            use = [0.0, 0.0]
            if count is not None and before is not None and passed:
                use = [8 * max(b - a, 0) / passed for a, b in zip(before, count, strict=True)]
            if count is not None:
                self._octets[link.name] = count
            rate = self._fabric.plan.speed(link).rate_bps
            found[link.name] = {
                "up": port is not None and port.up,
                "rate": rate,
                "use": [round(bps) if bps >= QUIET_BPS else 0 for bps in use],
            }
        return {"links": found}

    def _switches(self, now: float) -> State:
        counts = self._fabric.target.counts({"marked": [0], "trimmed": [0, _TRIMMED_LAST_HOP]}, depths=self._ports)
        passed = now - self._at if self._at is not None else None
        found: dict[str, Any] = {}
        for name, switch in counts.switches.items():
            cells = [sum(switch.cells.get(key) or [0]) for key in ("marked", "trimmed")]
            before = self._counted.get(name, (0, 0)) if switch.on else (0, 0)
            rates = [round(max(a - b, 0) / passed) if passed else 0 for a, b in zip(cells, before, strict=True)]
            self._counted[name] = (cells[0], cells[1])
            found[name] = {
                "on": switch.on,
                "marked": cells[0],
                "trimmed": cells[1],
                "marks": rates[0],
                "trims": rates[1],
            }
        return {"switches": found, "queues": {name: depth for name, depth in counts.depths.items() if depth}}

    # ---- what happened ----------------------------------------------------------------------------------

    def _faults(self, _now: float) -> State:
        known = self._fabric.controller.request("faults")["faults"]
        begun = [one for _, what, one in list(self._fabric.inject.log) if what == "begin"]
        found: dict[str, Any] = {}
        for fault in known:
            number, state = fault["number"], fault["state"]
            if state == "active":
                found[str(number)] = {
                    "text": fault["text"],
                    "kind": fault["kind"],
                    "location": fault["location"],
                    "raised": fault["raised"],
                    "sources": [one["source"] for one in fault["evidence"]],
                }
            if self._told.get(number) == state:
                continue
            self._told[number] = state
            if state == "active":
                places = [one for one in begun if one.location == fault["location"] and one.began_at <= fault["raised"]]
                soon = f", {fault['raised'] - places[-1].began_at:.2f} s after it was made" if places else ""
                by = ", ".join(one["source"] for one in fault["evidence"])
                self._note(fault["raised"], "fault", f"controller: {fault['text']} (by {by}{soon})")
            elif state == "cleared":
                self._note(fault["cleared"] or fault["last_seen"], "healed", f"controller: over: {fault['text']}")
        return {"faults": found}

    def _injections(self) -> State:
        log = list(self._fabric.inject.log)
        for at, what, one in log[self._seen :]:
            kind = one.kind.replace("_", " ")
            said = f"{kind} on {one.location}" + (f": {one.detail}" if one.detail else "")
            self._note(at, "made" if what == "begin" else "undone", said if what == "begin" else f"over: {said}")
        self._seen = len(log)
        active = {
            str(one.number): {"kind": one.kind, "where": one.location, "detail": one.detail, "at": one.began_at}
            for one in self._fabric.inject.active
        }
        return {"injected": active}

    def _sends(self, _now: float) -> State:
        return {"transfers": {one["label"]: one for one in self._transfers.progress()}}

    def _note(self, at: float, kind: str, text: str) -> None:
        self._count += 1
        self._lines.append((self._count, {"at": round(at, 3), "kind": kind, "text": text}))


def difference(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What changed: {part: {key: value, or null where it is gone}}; parts without a change are left out."""
    out: dict[str, Any] = {}
    for part in PARTS:
        old, new = before.get(part, {}), after.get(part, {})
        news: dict[str, Any] = {key: value for key, value in new.items() if old.get(key) != value or key not in old}
        news |= {key: None for key in old if key not in new}
        if news:
            out[part] = news
    return out
