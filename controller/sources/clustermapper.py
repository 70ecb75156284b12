"""Clustermapper (hosts/clustermapper) as a source: state and lost probes of every probed path."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mrc_testbed.controller.api.rpc_client import Subscription, request
from mrc_testbed.controller.faults.correlator import MAPPER, FaultCorrelator
from mrc_testbed.controller.faults.path_segments import PathSegments
from mrc_testbed.controller.problems import Problems
from mrc_testbed.ipc.rpc import JsonlError, Message
from mrc_testbed.ipc.rundir import RunFiles

PROBE_ALL_S = 60.0
"""Time limit of a round over all links, seconds: the API serves others meanwhile."""
COUNTS_EVERY_S = 2.0
COUNTS_WHEN_BAD_S = 0.35
TOGETHER_S = 0.03
"""Pause before counts are read, seconds: paths die one after the other, and are read together."""
STATES = {"ok": "ok", "lossy": "lossy", "down": "down"}
"""State in the fault list by the mapper's state; the others (unknown) have no meaning there."""

log = logging.getLogger(__name__)


class ClustermapperSource:
    """Source of probe results for the fault list.

    `on_probe(event)` is called for each event, `on_change()` after each that matters.
    """

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
        self._subscription = Subscription(self.path, self._on_event, lambda _connected: None, self._problems)
        self._read_request = asyncio.Event()
        """Set when a path is bad: the counts of all paths are read at once."""
        self.errors = 0

    @property
    def connected(self) -> bool:
        return self._subscription.connected

    def to_json(self) -> dict[str, Any]:
        bad_paths = sum(state != "ok" for state in self.states.values())
        return {
            "connected": self.connected,
            "reason": self._subscription.reason,
            "paths": len(self.states),
            "bad": bad_paths,
        }

    async def run(self) -> None:
        """Follow the mapper and read its counts; until cancelled."""
        keep = self._problems.keep
        await asyncio.gather(
            keep("events of Clustermapper", self._subscription.run), keep("counts of Clustermapper", self._read_counts)
        )

    async def probe_all(self, **fields: Any) -> Message:
        """Run the burst of the pre-job check and return its result. Raises JsonlError."""
        return await request(self.path, "probe_all", timeout_s=PROBE_ALL_S, **fields)

    def request_read(self) -> None:
        """Read the counts of all paths now: a source found one bad."""
        self._read_request.set()

    def _counts(self, path_name: str, trace: PathSegments, row: Message, now: float) -> None:
        sent, lost, back_at = int(row["sent"]), int(row["lost"]), row["back_at"]
        through_at = None if back_at is None else min(float(back_at), now)
        self._faults.counts(path_name, trace, sent, lost, source=MAPPER, now=now, through_at=through_at)

    def _on_event(self, event: Message) -> None:
        if event.get("event") == "probe":
            self.take(event, time.monotonic())
            self._on_probe(event)
            self._on_change()

    def take(self, event: Message, now: float) -> None:
        """Take the new state of a target. Raises KeyError, ValueError for names the fabric does not have."""
        path_name, trace = self._trace(event)
        state = STATES.get(event["state"])
        if state is None:
            self.states.pop(path_name, None)
            self._faults.withdraw(path_name, trace.plane, source=MAPPER, now=now)
        else:
            self.states[path_name] = state
            says = f"{state}, {100 * event['loss']:.2g} % lost" if state == "lossy" else state
            t = min(float(event["since"]), now)
            self._faults.path(path_name, trace, state, source=MAPPER, now=now, t=t, says=says)
            self._counts(path_name, trace, event, now)
            if state != "ok":
                self.request_read()

    def take_counts(self, rows: list[Message], now: float) -> None:
        """Take the counts of all targets and loops, as the answer to `targets` has them."""
        for row in rows:
            if row["state"] in STATES:
                path_name, trace = self._trace(row)
                if self.states.get(path_name) != STATES[row["state"]]:
                    self.take(row, now)  # its event is on its way, or was lost
                else:
                    self._counts(path_name, trace, row, now)

    def _trace(self, row: Message) -> tuple[str, PathSegments]:
        """Return name and trace of a target. Raises KeyError, ValueError for names the fabric does not have.

        Each target has a name of its own: one loop may be sent for two links, up one and down the other, and its
        probes are counted separately.
        """
        key = (row["kind"], row["host"], row["target"], *row.get("walk", ()))
        target = self._segmenter.get(key)
        if target is None:
            target = self._segmenter[key] = self._describe_target(row)
        return target

    def _describe_target(self, row: Message) -> tuple[str, PathSegments]:
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
                await asyncio.wait_for(self._read_request.wait(), COUNTS_WHEN_BAD_S if is_bad else COUNTS_EVERY_S)
                self._read_request.clear()
                await asyncio.sleep(TOGETHER_S)
            if not self.connected:
                continue
            try:
                answer = await request(self.path, "targets")
                self.take_counts([*answer["targets"], *answer["loops"]], time.monotonic())
            except (JsonlError, KeyError, TypeError, ValueError) as error:
                self.errors += 1
                if self.errors == 1:
                    log.warning("mapper: its counts cannot be read: %s", error)
                continue
            if is_bad:
                self._on_change()
