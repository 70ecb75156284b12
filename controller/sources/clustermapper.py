"""Clustermapper as a source: the state of every probed path, and how many probes it lost (hosts/clustermapper)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mrc_testbed.controller.api.rpc_client import Subscription, ask
from mrc_testbed.controller.faults.correlator import MAPPER, FaultCorrelator
from mrc_testbed.controller.faults.path_segments import PathSegments
from mrc_testbed.controller.problems import Problems
from mrc_testbed.ipc.rpc import JsonlError, Message
from mrc_testbed.ipc.rundir import RunFiles

PROBE_ALL_S = 60.0
"""A bound for a round over all links, seconds: the API serves others meanwhile, and can be asked again."""
COUNTS_EVERY_S = 2.0
COUNTS_WHEN_BAD_S = 0.35
TOGETHER_S = 0.03
"""Paths die one after the other: their counts are read once for all that have."""
STATES = {"ok": "ok", "lossy": "lossy", "down": "down"}
"""Ours by the mapper's; others (unknown) say nothing."""

log = logging.getLogger(__name__)


class ClustermapperSource:
    """Feeds the fault list. `on_probe(event)` is called for each event, `on_change()` after each that matters."""

    name = MAPPER

    def __init__(
        self,
        run_dir: Path,
        faults: FaultCorrelator,
        on_probe: Callable[[Message], None],
        on_change: Callable[[], None],
        problems: Problems | None = None,
    ) -> None:
        self.path = RunFiles(run_dir).mapper_socket
        self.states: dict[str, str] = {}
        """Last state of every probed path."""
        self._segmenter: dict[tuple[str, ...], tuple[str, PathSegments]] = {}
        """Name and trace of every target and loop seen."""
        self._faults = faults
        self._on_probe = on_probe
        self._on_change = on_change
        self._problems = problems or Problems()
        self._following = Subscription(self.path, self._heard, lambda _connected: None, self._problems)
        self._look = asyncio.Event()
        """Something is bad: what the others know is wanted at once."""
        self.errors = 0

    @property
    def connected(self) -> bool:
        return self._following.connected

    def to_json(self) -> dict[str, Any]:
        bad = sum(state != "ok" for state in self.states.values())
        return {"connected": self.connected, "reason": self._following.reason, "paths": len(self.states), "bad": bad}

    async def run(self) -> None:
        """Follow the mapper and read its counts; until cancelled."""
        keep = self._problems.keep
        await asyncio.gather(
            keep("events of Clustermapper", self._following.run), keep("counts of Clustermapper", self._read_counts)
        )

    async def probe_all(self, **fields: Any) -> Message:
        """The burst of the pre-job check. Raises JsonlError."""
        return await ask(self.path, "probe_all", timeout_s=PROBE_ALL_S, **fields)

    def look(self) -> None:
        """Read the counts of all paths now: somebody found one bad."""
        self._look.set()

    def _counts(self, about: str, trace: PathSegments, row: Message, now: float) -> None:
        sent, lost, back_at = int(row["sent"]), int(row["lost"]), row["back_at"]
        through_at = None if back_at is None else min(float(back_at), now)
        self._faults.counts(about, trace, sent, lost, source=MAPPER, now=now, through_at=through_at)

    def _heard(self, event: Message) -> None:
        if event.get("event") == "probe":
            self.take(event, time.monotonic())
            self._on_probe(event)
            self._on_change()

    def take(self, event: Message, now: float) -> None:
        """A target has another state. Raises KeyError, ValueError for what the fabric does not have."""
        about, trace = self._trace(event)
        state = STATES.get(event["state"])
        if state is None:
            self.states.pop(about, None)
            self._faults.withdraw(about, trace.plane, source=MAPPER, now=now)
        else:
            self.states[about] = state
            says = f"{state}, {100 * event['loss']:.2g} % lost" if state == "lossy" else state
            t = min(float(event["since"]), now)
            self._faults.path(about, trace, state, source=MAPPER, now=now, t=t, says=says)
            self._counts(about, trace, event, now)
            if state != "ok":
                self.look()

    def take_counts(self, rows: list[Message], now: float) -> None:
        """All targets and loops, as `targets` has them."""
        for row in rows:
            if row["state"] in STATES:
                about, trace = self._trace(row)
                if self.states.get(about) != STATES[row["state"]]:
                    self.take(row, now)  # its event is on its way, or was lost
                else:
                    self._counts(about, trace, row, now)

    def _trace(self, row: Message) -> tuple[str, PathSegments]:
        """Name and trace of a target. Raises KeyError, ValueError for what the fabric does not have.

        Each target has a name of its own: one loop may be sent for two links, up one and down the other, and its
        probes are counted apart.
        """
        key = (row["kind"], row["host"], row["target"], *row.get("walk", ()))
        known = self._segmenter.get(key)
        if known is None:
            known = self._segmenter[key] = self._work_out(row)
        return known

    def _work_out(self, row: Message) -> tuple[str, PathSegments]:
        host, plane, target = str(row["host"]), int(row["plane"]), str(row["target"])
        segmenter = self._faults.segmenter
        if row["kind"] == "loop":
            walk = tuple(str(node) for node in row["walk"])
            return f"{' '.join(walk)} for {target}", segmenter.from_nodes(walk)
        is_t0 = row["kind"] == "t0"
        return f"{host} {target}", segmenter.t0_probe(host, plane) if is_t0 else segmenter.t1_probe(host, plane, target)

    async def _read_counts(self) -> None:
        while True:
            is_bad = self._faults.has_path_symptoms
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._look.wait(), COUNTS_WHEN_BAD_S if is_bad else COUNTS_EVERY_S)
                self._look.clear()
                await asyncio.sleep(TOGETHER_S)
            if not self.connected:
                continue
            try:
                answer = await ask(self.path, "targets")
                self.take_counts([*answer["targets"], *answer["loops"]], time.monotonic())
            except (JsonlError, KeyError, TypeError, ValueError) as error:
                self.errors += 1
                if self.errors == 1:
                    log.warning("mapper: its counts cannot be read: %s", error)
                continue
            if is_bad:
                self._on_change()
