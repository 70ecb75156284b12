"""Switch counters as a source: which ports dropped packets because a queue was full.

Such a packet is lost without trace for its sender, who suspects the path; but nothing is broken. With trimming on there
is hardly any of it (§4.3). So while a source finds a path bad, the switches of that plane are asked for the cells of
`drops` that count full queues, and bad EVs through such a port are no evidence of a fault.

At the same time they are asked what arrived at their ports and what they forwarded: a T1 that swallows everything looks
to probes like a T1 that nothing reaches, and these numbers distinguish the two (forwarding.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from mrc_testbed.controller.errors import SwitchError
from mrc_testbed.controller.faults.correlator import COUNTERS, FaultCorrelator
from mrc_testbed.controller.faults.forwarding import Forwarding, Reading
from mrc_testbed.controller.p4runtime.counters import CELL_BITS, DEAD_NEXT_HOP, FULL_QUEUE, read_ports
from mrc_testbed.controller.p4runtime.provisioner import SwitchProvisioner, SwitchState
from mrc_testbed.controller.problems import ProblemKind, Problems

COUNTER = "drops"
ASK_EVERY_S = 0.5
"""Interval of requests while a path is bad, seconds."""
ASK_IDLE_S = 10.0
"""Interval of requests while no path is bad, seconds: keeps old drops from counting as new ones."""

LATE_S = 1.0
"""Time that a switch without an answer delays the comparison of the others, seconds."""
FAILED_MIN = 2
"""Requests in a row without an answer that are a problem: one may be of a switch that is about to go."""
READABLE = (SwitchState.VERIFIED, SwitchState.BACKUP)
"""States of a switch whose counters may be read: that needs no primary."""
UNREAD_EFFECT = "a black hole or a one-way cut there may not be told from its neighbours, nor a full queue from a loss"
"""Effect of counters that are not read."""

log = logging.getLogger(__name__)


class QueueDropSource:
    """Source of ports that drop, for the fault list; `on_change()` is called after each round."""

    name = "counters"

    def __init__(
        self,
        provisioners: Iterable[SwitchProvisioner],
        faults: FaultCorrelator,
        on_change: Callable[[], None],
        problems: Problems | None = None,
    ) -> None:
        self._problems = problems or Problems()
        self._provisioners = list(provisioners)
        self._faults = faults
        self._on_change = on_change
        self._last: dict[tuple[str, int], int] = {}
        """Packets dropped so far, by switch and cell."""
        self._read_request = asyncio.Event()
        self._forwarding = Forwarding(faults.segmenter)
        self.ports: dict[str, float] = {}
        """Ports that dropped packets for want of room, and the time of the last such reading."""
        self._requests: dict[str, asyncio.Task[None]] = {}
        """Requests on their way, by switch."""
        self._failed: Counter[str] = Counter()
        """Requests without an answer in a row, by switch."""
        self.errors = 0

    @property
    def connected(self) -> bool:
        return any(provisioner.status.connected for provisioner in self._provisioners)

    def to_json(self) -> dict[str, Any]:
        recent = sorted(name for name, asked_at in self.ports.items() if time.monotonic() - asked_at < ASK_IDLE_S)
        return {"connected": self.connected, "reason": f"{self.errors} reads failed", "full_queues": recent}

    def request_read(self) -> None:
        """Ask now: a source found a path bad."""
        self._read_request.set()

    async def run(self) -> None:
        """Ask the switches at intervals; until cancelled."""
        if any(provisioner.target.gnmi is not None for provisioner in self._provisioners):
            self._faults.attend(COUNTERS, now=time.monotonic())
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(
                    self._read_request.wait(), ASK_EVERY_S if self._faults.has_path_symptoms else ASK_IDLE_S
                )
                self._read_request.clear()
            planes = self._faults.planes_with_symptoms
            await self._read_switches(
                provisioner
                for provisioner in self._provisioners
                if not planes or provisioner.target.switch.plane in planes or self._failed[provisioner.target.name]
            )  # a switch that did not answer is asked until it does, or its problem would never be over
            for plane in planes:
                self._compare(plane)
            self._on_change()

    async def _read_switches(self, provisioners: Iterable[SwitchProvisioner]) -> None:
        """Ask these switches; a late one delays the others for LATE_S, and is not asked again meanwhile."""
        for provisioner in provisioners:
            name = provisioner.target.name
            if name not in self._requests:
                request = asyncio.create_task(self._read_switch(provisioner), name=f"counters of {name}")
                request.add_done_callback(partial(self._on_request_end, name))
                self._requests[name] = request
        if self._requests:
            await asyncio.wait(self._requests.values(), timeout=LATE_S)

    def _on_request_end(self, name: str, request: asyncio.Task[None]) -> None:
        self._requests.pop(name, None)
        if not request.cancelled() and (error := request.exception()) is not None:
            self._problems.internal(f"counters of {name}", error)

    def _compare(self, plane: int) -> None:
        now = time.monotonic()
        for verdict in self._forwarding.verdicts(plane):
            state = "ok" if verdict.works else "down"
            self._faults.path(
                verdict.subject_name,
                verdict.trace,
                state,
                source=COUNTERS,
                now=now,
                t=min(verdict.t, now),
                says=verdict.says,
            )

    async def _read_switch(self, provisioner: SwitchProvisioner) -> None:
        name = provisioner.target.name
        if provisioner.status.state not in READABLE:
            self._readable(name)  # the switch is gone, which is reported as a fault
            return
        ports = {port.number: port.interface for port in self._faults.plan.ports(name)}
        try:
            await self._read_drops(provisioner, ports)
            if self._faults.has_path_symptoms:
                await self._read_forwarded(provisioner, ports)
        except SwitchError as error:
            self.errors += 1
            log.debug("%s", error)
            self._failed[name] += 1
            if self._failed[name] >= FAILED_MIN and provisioner.status.state in READABLE:
                self._problems.begin(ProblemKind.UNREAD, name, str(error), UNREAD_EFFECT)
        else:
            self._readable(name)

    def _readable(self, name: str) -> None:
        del self._failed[name]
        self._problems.end(ProblemKind.UNREAD, name)

    async def _read_forwarded(self, provisioner: SwitchProvisioner, ports: dict[int, str]) -> None:
        """Read the packets that arrived and those that left, at about the same time. Raises SwitchError."""
        if provisioner.target.gnmi is None:
            return
        dead_hop_cells = [DEAD_NEXT_HOP << CELL_BITS | number for number in ports]
        read_at = time.monotonic()
        forwarded = await provisioner.cells("forwarded", list(ports))
        dropped = await provisioner.cells(COUNTER, dead_hop_cells)
        received = await read_ports(provisioner.target.gnmi, list(ports.values()))
        reading = Reading(
            read_at,
            {name: row["in_pkts"] for name, row in received.items() if isinstance(row.get("in_pkts"), int)},
            {ports[number]: packets for number, packets in forwarded.items() if number in ports},
            sum(dropped.values()),
            time.monotonic() - read_at,
        )
        self._forwarding.read(provisioner.target.switch, reading)

    async def _read_drops(self, provisioner: SwitchProvisioner, ports: dict[int, str]) -> None:
        """Read the packets that full queues dropped. Raises SwitchError."""
        cells = [reason << CELL_BITS | number for reason in FULL_QUEUE for number in ports]
        counts = await provisioner.cells(COUNTER, cells)
        now = time.monotonic()
        for cell, packets in counts.items():
            key = (provisioner.target.name, cell)
            previous, self._last[key] = self._last.get(key, packets), packets
            interface = ports.get(cell & (1 << CELL_BITS) - 1)
            if packets > previous and interface is not None:
                self.ports[interface] = now
                self._faults.full_queue(interface, now=now)
