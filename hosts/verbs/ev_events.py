"""The queue of EV events: it coalesces, so it cannot overrun (mrc-protocol §10.3)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from mrc_testbed.hosts.verbs.context import DeviceContext


@dataclass(slots=True)
class EvEvent:
    """An EV of a profile came to a new state."""

    profile_id: int
    ev: Any
    """EV, an EvEntry: packed value and port."""
    state: Any
    """EvStateMask.GOOD or .ASSUMED_BAD."""
    drop_count: int
    """Exact number of older events this one stands for as well: of the same EV, or crowded out before it."""
    at: float
    """Time of the driver's clock, seconds."""


class EvEventCq:
    """Queue of EV events, made by `Controller.create_ev_event_cq`.

    One entry per EV at most: the newest state wins, the others are counted.

    When more than `cqe` EVs have news, the oldest entry is dropped and counted in the one behind it.
    """

    def __init__(self, context: DeviceContext, cqe: int) -> None:
        self._context = context
        self.cqe = cqe
        self._pending: OrderedDict[tuple[int, Any], EvEvent] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pending)

    def push(self, profile_id: int, ev: Any, state: Any, at: float) -> None:
        """Add the new state of an EV (called by the controller, lock held)."""
        old_event = self._pending.pop((profile_id, ev), None)
        dropped = 0 if old_event is None else old_event.drop_count + 1
        self._pending[profile_id, ev] = EvEvent(profile_id, ev, state, dropped, at)
        while len(self._pending) > self.cqe:
            _, oldest_event = self._pending.popitem(last=False)
            next(iter(self._pending.values())).drop_count += oldest_event.drop_count + 1

    def poll(self, count: int = 16) -> list[EvEvent]:
        """Up to `count` events, oldest first; does not wait."""
        with self._context.lock:
            return [self._pending.popitem(last=False)[1] for _ in range(min(count, len(self._pending)))]

    def wait(self, count: int = 1, timeout_s: float | None = None) -> list[EvEvent]:
        """Work on the device until `count` EVs have news, and take them; fewer when `timeout_s` is over."""
        self._context.wait_for(lambda: len(self._pending) >= count, timeout_s)
        return self.poll(count)
