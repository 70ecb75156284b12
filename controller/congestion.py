"""Switch counters as a source: which ports dropped packets because a queue was full.

Such a packet is lost without trace for its sender, who suspects the path; but nothing is broken. With trimming on there
is hardly any of it (§4.3). So while somebody finds a path bad, the switches of that plane are asked for the cells of
`drops` that count full queues, and what EVs say of paths through such a port accuses nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from controller.errors import SwitchError
from controller.faults import FaultList
from controller.keeper import Keeper, SwitchState
from controller.readings import CELL_BITS, FULL_QUEUE

COUNTER = "drops"
ASK_EVERY_S = 0.5
"""While a path is bad."""
ASK_IDLE_S = 10.0
"""Else: so that what was dropped long ago is not taken for news."""

log = logging.getLogger(__name__)


class CongestionSource:
    """Feeds the fault list with ports that drop; `on_change()` is called after each round of news."""

    name = "counters"

    def __init__(self, keepers: Iterable[Keeper], faults: FaultList, on_change: Callable[[], None]) -> None:
        self._keepers = list(keepers)
        self._faults = faults
        self._on_change = on_change
        self._last: dict[tuple[str, int], int] = {}
        """Packets dropped so far, by switch and cell."""
        self._look = asyncio.Event()
        self.ports: dict[str, float] = {}
        """Ports that dropped packets for want of room, and when we heard of it last."""
        self.errors = 0

    @property
    def connected(self) -> bool:
        return any(keeper.status.connected for keeper in self._keepers)

    def to_json(self) -> dict[str, Any]:
        recent = sorted(name for name, at in self.ports.items() if time.monotonic() - at < ASK_IDLE_S)
        return {"connected": self.connected, "reason": f"{self.errors} reads failed", "full_queues": recent}

    def look(self) -> None:
        """Ask now: somebody found a path bad."""
        self._look.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._look.wait(), ASK_EVERY_S if self._faults.is_puzzled else ASK_IDLE_S)
                self._look.clear()
            planes = self._faults.puzzled_planes
            await asyncio.gather(
                *(self._ask(k) for k in self._keepers if k.target.switch.plane in planes or not planes)
            )
            self._on_change()

    async def _ask(self, keeper: Keeper) -> None:
        if keeper.status.state is not SwitchState.VERIFIED:
            return
        ports = {port.number: port.interface for port in self._faults.plan.ports(keeper.target.name)}
        cells = [reason << CELL_BITS | number for reason in FULL_QUEUE for number in ports]
        try:
            counts = await keeper.cells(COUNTER, cells)
        except SwitchError as error:
            self.errors += 1
            log.debug("%s", error)
            return
        now = time.monotonic()
        for cell, packets in counts.items():
            key = (keeper.target.name, cell)
            before, self._last[key] = self._last.get(key, packets), packets
            interface = ports.get(cell & (1 << CELL_BITS) - 1)
            if packets > before and interface is not None:
                self.ports[interface] = now
                self._faults.full_queue(interface, now=now)
