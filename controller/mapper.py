"""Clustermapper as a source: the state of every probed path, and how many probes it lost (hosts/clustermapper)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controller.faults import MAPPER, FaultList
from controller.lines import Following, ask
from controller.traces import Trace
from topologies.jsonl import JsonlError, Message

SOCKET = "mapper.sock"
COUNTS_EVERY_S = 2.0
COUNTS_WHEN_LOSSY_S = 0.5
STATES = {"ok": "ok", "lossy": "lossy", "down": "down"}
"""Ours by the mapper's; others (unknown) say nothing."""

log = logging.getLogger(__name__)


class MapperSource:
    """Feeds the fault list. `on_probe(event)` is called for each event, `on_change()` after each that matters."""

    name = MAPPER

    def __init__(
        self, run_dir: Path, faults: FaultList, on_probe: Callable[[Message], None], on_change: Callable[[], None]
    ) -> None:
        self.path = run_dir / SOCKET
        self.states: dict[str, str] = {}
        """Last state of every probed path."""
        self._faults = faults
        self._on_probe = on_probe
        self._on_change = on_change
        self._following = Following(self.path, self._take, self._link)
        self.errors = 0

    @property
    def connected(self) -> bool:
        return self._following.connected

    def to_json(self) -> dict[str, Any]:
        bad = sum(state != "ok" for state in self.states.values())
        return {"connected": self.connected, "reason": self._following.reason, "paths": len(self.states), "bad": bad}

    async def run(self) -> None:
        """Follow the mapper and read its counts; until cancelled."""
        await asyncio.gather(self._following.run(), self._read_counts())

    async def probe_all(self, **fields: Any) -> Message:
        """The burst of the pre-job check. Raises JsonlError."""
        return await ask(self.path, "probe_all", timeout_s=60.0, **fields)

    def _link(self, connected: bool) -> None:
        if not connected:
            self._faults.gone(MAPPER)

    def _take(self, event: Message) -> None:
        if event.get("event") != "probe":
            return
        about, trace = self._trace(event)
        state = STATES.get(event["state"])
        now = time.monotonic()
        if state is None:
            self._faults.withdraw(about, trace.plane, source=MAPPER, now=now)
        else:
            self.states[about] = state
            says = f"{state}, {100 * event['loss']:.2g} % lost" if state == "lossy" else state
            t = min(float(event["since"]), now)
            self._faults.path(about, trace, state, source=MAPPER, now=now, t=t, says=says, live=True)
        self._on_probe(event)
        self._on_change()

    def _trace(self, row: Message) -> tuple[str, Trace]:
        """Name and trace of a target. Raises KeyError, ValueError for what the fabric does not have."""
        host, plane, target = str(row["host"]), int(row["plane"]), str(row["target"])
        traces = self._faults.traces
        is_t0 = row["kind"] == "t0"
        return f"{host} {target}", traces.t0_probe(host, plane) if is_t0 else traces.t1_probe(host, plane, target)

    async def _read_counts(self) -> None:
        while True:
            is_lossy = any(state == "lossy" for state in self.states.values())
            await asyncio.sleep(COUNTS_WHEN_LOSSY_S if is_lossy else COUNTS_EVERY_S)
            if not self.connected:
                continue
            try:
                rows = (await ask(self.path, "targets"))["targets"]
                now = time.monotonic()
                for row in rows:
                    about, trace = self._trace(row)
                    self._faults.counts(about, trace, int(row["sent"]), int(row["lost"]), source=MAPPER, now=now)
            except (JsonlError, KeyError, TypeError, ValueError) as error:
                self.errors += 1
                if self.errors == 1:
                    log.warning("mapper: its counts cannot be read: %s", error)
                continue
            if is_lossy:
                self._on_change()
