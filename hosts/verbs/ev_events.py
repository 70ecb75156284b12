"""The queue of EV events: it coalesces, so it cannot overrun (mrc-protocol §10.3)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from mrc_testbed.hosts.verbs.context import DeviceContext
from mrc_testbed.hosts.verbs.cq import CompletionChannel, NotifyingQueue


@dataclass(slots=True)
class EvEvent:
    """An EV of a profile came to a new state."""

    profile_id: int
    ev: Any
    """EV, an EvEntry: packed value and port."""
    state: Any
    """EvStateMask.GOOD or .ASSUMED_BAD."""
    drop_count: int
    """Exact number of events dropped between the one polled before and this."""
    at: float
    """Time of the driver's clock, seconds."""


@dataclass(slots=True)
class _Pending:
    """Newest event of one EV. `number` counts all events of the queue, dropped ones too."""

    number: int
    state: Any
    time_s: float


class EvEventCq(NotifyingQueue):
    """Queue of EV events, made by `Controller.create_ev_event_cq`.

    One entry per EV at most: the newest state wins, older ones are dropped.

    When more than `cqe` EVs have news, the oldest entry is dropped.
    """

    def __init__(
        self,
        context: DeviceContext,
        cqe: int,
        cq_context: Any,
        channel: CompletionChannel | None,
        listeners: list[EvEventCq],
    ) -> None:
        super().__init__(context, cqe, cq_context, channel)
        self._listeners = listeners
        """Queues that the device pushes events to; this one is among them until it is destroyed."""
        listeners.append(self)
        self._pending: OrderedDict[tuple[int, Any], _Pending] = OrderedDict()
        self._event_count = self._last_number = 0
        """Number of the newest event, and of the last that was polled."""

    def __len__(self) -> int:
        return len(self._pending)

    def push(self, profile_id: int, ev: Any, state: Any, time_s: float) -> None:
        """Add the new state of an EV (called by the device, lock held)."""
        self._event_count += 1
        self._pending.pop((profile_id, ev), None)
        self._pending[profile_id, ev] = _Pending(self._event_count, state, time_s)
        if len(self._pending) > self.cqe:
            self._pending.popitem(last=False)
        self._announce(solicited=True)

    def close(self) -> None:
        """End the queue (called by the context and the controller when they end)."""
        if not self.destroyed:
            self._listeners.remove(self)
        super().close()

    def poll(self, count: int = 16) -> list[EvEvent]:
        """Up to `count` events, oldest first; does not wait."""
        with self._context.lock:
            return [self._take() for _ in range(min(count, len(self._pending)))]

    def _take(self) -> EvEvent:
        (profile_id, ev), pending = self._pending.popitem(last=False)
        # What lies between two numbers was dropped: of an EV with newer news, or crowded out.
        drop_count = pending.number - self._last_number - 1
        self._last_number = pending.number
        return EvEvent(profile_id, ev, pending.state, drop_count, pending.time_s)

    def wait(self, count: int = 1, timeout_s: float | None = None) -> list[EvEvent]:
        """Work on the device until `count` EVs have news, and take them; fewer when `timeout_s` is over."""
        self._context.wait_for(lambda: len(self._pending) >= count, timeout_s)
        return self.poll(count)
