"""Context of one device: state that its queues, regions and profiles share, and no part of them.

It stands below all of them, as `ibv_context` does: they hold it, the device makes them.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.verbs.checks import short_repr
from mrc_testbed.hosts.verbs.driver import Driver
from mrc_testbed.hosts.verbs.enums import EventType
from mrc_testbed.hosts.verbs.errors import VerbsError


@dataclass(slots=True)
class AsyncEvent:
    """`mrc_async_event`. `element`: the QueuePair, the CompletionQueue, or the port number (from 1)."""

    event_type: EventType
    element: Any
    detail: str = ""
    acknowledged: bool = False


class Closable(Protocol):
    """A queue or channel of a context, as the context's end sees it."""

    def close(self) -> None:
        """Give back what it holds of the system."""


class DeviceContext:
    """One opening of a device: its lock, clock and driver, and asynchronous events of its own."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.config: Config = driver.endpoint.config
        self.lock = driver.lock
        self._async: deque[AsyncEvent] = deque()
        self.parts: list[Closable] = []
        """Queues and channels, in the order in which they were made."""
        self.hints: set[Any] = set()
        """QP hints that are not destroyed (QpHint)."""
        self.closed = False

    def require_open(self) -> None:
        """Raises VerbsError (EBADF) once the context is closed."""
        if self.closed:
            raise VerbsError(f"{self.name}: this context of the device was closed", errno.EBADF)

    def close(self) -> None:
        """Close its queues and channels; nothing can be made in it any more. Idempotent."""
        self.closed = True
        for part in reversed(list(self.parts)):
            part.close()

    @property
    def name(self) -> str:
        """Name of the host."""
        return self.driver.endpoint.name

    def now(self) -> float:
        """Return the time of the driver's clock, seconds."""
        return self.driver.now()

    def plane_of(self, port_num: int) -> int:
        """Plane of a port number. Raises VerbsError for one that does not exist."""
        if not isinstance(port_num, int) or isinstance(port_num, bool) or not 1 <= port_num <= self.driver.planes:
            raise VerbsError(f"no port {short_repr(port_num)}: ports are 1 to {self.driver.planes}")
        return port_num - 1

    def after_call(self) -> None:
        """Take the engine's events after a verb changed it, and have the driver look (lock held)."""
        self.driver.collect()
        self.driver.kick()

    def wait_for(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Work until `condition()`; False when `timeout_s` is over first (None: no limit)."""
        deadline = None if timeout_s is None else self.driver.now() + timeout_s
        while not condition():
            if not self.driver.step(deadline):
                return condition()
        return True

    def report_async(self, event_type: EventType, element: Any, detail: str = "") -> None:
        """Queue an asynchronous event, in place of an older one that says the same (lock held).

        So a program that never takes its events holds a few for each QP, CQ and port.
        """
        self._async = deque(e for e in self._async if e.event_type is not event_type or e.element != element)
        self._async.append(AsyncEvent(event_type, element, detail))

    def next_async(self, timeout_s: float | None) -> AsyncEvent | None:
        """Return the next asynchronous event; None when `timeout_s` is over.

        `timeout_s` None: wait without limit.
        """
        self.wait_for(lambda: bool(self._async), timeout_s)
        return self.poll_async()

    def poll_async(self) -> AsyncEvent | None:
        """Return the next asynchronous event; None when there is none by now."""
        with self.lock:
            if not self._async:
                return None
            event = self._async.popleft()
            if not isinstance(event.element, int):
                event.element.events_to_ack += 1
            return event

    def ack_async(self, event: AsyncEvent) -> None:
        """Acknowledge an event, so that its QP or CQ can be destroyed; raises VerbsError the second time."""
        with self.lock:
            if event.acknowledged:
                raise VerbsError(f"this {event.event_type.name} was acknowledged before")
            event.acknowledged = True
            if not isinstance(event.element, int):
                event.element.events_to_ack -= 1

    def forget(self, element: Any) -> None:
        """Drop the events of a QP or CQ that is destroyed (lock held)."""
        self._async = deque(event for event in self._async if event.element is not element)
