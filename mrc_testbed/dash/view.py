"""State of a running fabric for the page: read as a whole, sent as the changes since the last reading.

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
from mrc_testbed.cli.prompt.commands.inject import injection_text
from mrc_testbed.ipc.controller_client import sources_of
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.fabric import Fabric

State = dict[str, dict[str, Any]]
"""State of the fabric: part -> key -> value.

The parts are `links`, `switches`, `hosts`, `queues`, `faults`, `transfers`, `injected`, `log` and `silent`.
"""
PARTS = ("links", "switches", "hosts", "queues", "faults", "transfers", "injected", "log", "silent")
LOG_MAX = 300
"""Lines of the event log that are kept."""
QUIET_BPS = 50.0
"""Lower rates are shown as 0."""
_TRIMMED_LAST_HOP = 1 << 9
"""Cell of the counter `trimmed` for last hops (p4src/headers.p4)."""


class FabricView:
    """Reader of a fabric's state. Call `look` repeatedly, from one thread."""

    def __init__(self, fabric: Fabric, transfers: BackgroundTransfers) -> None:
        self._fabric, self._transfers = fabric, transfers
        self._ports = [end.interface for switch in fabric.plan.switches for end in fabric.plan.ports(switch.name)]
        self._octets: dict[str, tuple[int, int]] = {}
        self._last_counts: dict[str, tuple[int, int]] = {}
        """(marked, trimmed) by switch, at the last reading."""
        self._read_at: float | None = None
        self._links_read_at: float | None = None
        self._reported_states: dict[int, str] = {}
        """State of each fault of the controller when it was last reported."""
        self._log_position = 0
        """Number of entries of the injector's log that were reported."""
        self._lines: deque[tuple[int, dict[str, Any]]] = deque(maxlen=LOG_MAX)
        self._count = 0
        self._state: State = {part: {} for part in PARTS}

    def read_state(self) -> State:
        """Return the current state, read from all sources."""
        now = time.monotonic()
        silences: dict[str, Any] = {}
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
                silences[name] = str(error)
        nodes_off = self._fabric.nodes_off
        state["hosts"] = {host.name: {"on": host.name not in nodes_off} for host in self._fabric.plan.hosts}
        state |= self._injections()
        state["log"] = {str(number): line for number, line in self._lines}
        state["silent"] = silences
        self._read_at, self._state = now, state
        return state

    # ---- links ------------------------------------------------------------------------------------------

    def _links(self, now: float) -> State:
        ports = self._fabric.link_states()
        # An answer that was late must not count the bytes of its delay as rate: its own time is between its ends.
        read_at = (now + time.monotonic()) / 2
        span_s = read_at - self._links_read_at if self._links_read_at is not None else None
        self._links_read_at = read_at
        links: dict[str, Any] = {}
        for link in self._fabric.plan.links:
            port, previous = ports.get(link.upper.interface), self._octets.get(link.name)
            count = None if port is None else (port.rx_bytes, port.tx_bytes)
            use = [0.0, 0.0]
            if count is not None and previous is not None and span_s:
                use = [8 * max(b - a, 0) / span_s for a, b in zip(previous, count, strict=True)]
            if count is not None:
                self._octets[link.name] = count
            rate = self._fabric.plan.speed(link).rate_bps
            links[link.name] = {
                "up": port is not None and port.is_up,
                "rate": rate,
                "use": [round(bps) if bps >= QUIET_BPS else 0 for bps in use],
            }
        return {"links": links}

    def _switches(self, now: float) -> State:
        counts = self._fabric.target.counts({"marked": [0], "trimmed": [0, _TRIMMED_LAST_HOP]}, depths=self._ports)
        span_s = now - self._read_at if self._read_at is not None else None
        switches: dict[str, Any] = {}
        for name, switch in counts.switches.items():
            cells = [sum(switch.cells.get(key) or [0]) for key in ("marked", "trimmed")]
            previous = self._last_counts.get(name, (0, 0)) if switch.on else (0, 0)
            rates = [round(max(a - b, 0) / span_s) if span_s else 0 for a, b in zip(cells, previous, strict=True)]
            self._last_counts[name] = (cells[0], cells[1])
            switches[name] = {
                "on": switch.on,
                "marked": cells[0],
                "trimmed": cells[1],
                "marks": rates[0],
                "trims": rates[1],
            }
        return {"switches": switches, "queues": {name: depth for name, depth in counts.depths.items() if depth}}

    # ---- what happened ----------------------------------------------------------------------------------

    def _faults(self, _now: float) -> State:
        faults = self._fabric.controller.request("faults")["faults"]
        injections = [injection for _, change, injection in list(self._fabric.inject.log) if change == "begin"]
        active_faults: dict[str, Any] = {}
        for fault in faults:
            number, state = fault["number"], fault["state"]
            if state == "active":
                active_faults[str(number)] = {
                    "text": fault["text"],
                    "kind": fault["kind"],
                    "location": fault["location"],
                    "raised": fault["raised"],
                    "sources": sources_of(fault),
                }
            # The log gets changes alone.
            if self._reported_states.get(number) == state:
                continue
            self._reported_states[number] = state
            if state == "active":
                # The last injection here before the fault was raised is its cause.
                causes = [
                    injection
                    for injection in injections
                    if injection.location == fault["location"] and injection.began_at <= fault["raised"]
                ]
                delay_text = f", {fault['raised'] - causes[-1].began_at:.2f} s after it was made" if causes else ""
                sources = ", ".join(sources_of(fault))
                self._note(fault["raised"], "fault", f"controller: {fault['text']} (by {sources}{delay_text})")
            elif state == "cleared":
                self._note(fault["cleared"] or fault["last_seen"], "healed", f"controller: over: {fault['text']}")
        return {"faults": active_faults}

    def _injections(self) -> State:
        log = list(self._fabric.inject.log)
        for time_s, change, injection in log[self._log_position :]:
            text = injection_text(injection)
            self._note(
                time_s, "made" if change == "begin" else "undone", text if change == "begin" else f"over: {text}"
            )
        self._log_position = len(log)
        active = {
            str(injection.number): {
                "kind": injection.kind,
                "where": injection.location,
                "detail": injection.detail,
                "at": injection.began_at,
            }
            for injection in self._fabric.inject.active
        }
        return {"injected": active}

    def _sends(self, _now: float) -> State:
        return {"transfers": {transfer["label"]: transfer for transfer in self._transfers.progress()}}

    def _note(self, time_s: float, kind: str, text: str) -> None:
        self._count += 1
        self._lines.append((self._count, {"at": round(time_s, 3), "kind": kind, "text": text}))


def difference(previous: Mapping[str, Mapping[str, Any]], current: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the changes: {part: {key: value, or None where it is gone}}; unchanged parts are left out."""
    out: dict[str, Any] = {}
    for part in PARTS:
        earlier, latest = previous.get(part, {}), current.get(part, {})
        news: dict[str, Any] = {
            key: value for key, value in latest.items() if earlier.get(key) != value or key not in earlier
        }
        news |= {key: None for key in earlier if key not in latest}
        if news:
            out[part] = news
    return out
