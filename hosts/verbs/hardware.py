"""Hardware behind the open contexts of a device: driver, QPs, profiles, and its controller."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from mrc_testbed.hosts.engine.events import (
    Completion,
    EvChanged,
    Event,
    EvProbeResult,
    PlaneChanged,
    QpError,
    WriteImmReceived,
)
from mrc_testbed.hosts.verbs.context import DeviceContext
from mrc_testbed.hosts.verbs.control import Controller
from mrc_testbed.hosts.verbs.driver import Driver
from mrc_testbed.hosts.verbs.enums import EventType
from mrc_testbed.hosts.verbs.errors import VerbsError
from mrc_testbed.hosts.verbs.profiles import ProfileStore
from mrc_testbed.hosts.verbs.qp import QueuePair


class Hardware:
    """State that all contexts of one driver share; made by the first `Device` on it.

    The engine's events go to the QP they are of, and so to its context; those of ports go to every context.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver, self.lock = driver, driver.lock
        self.profiles = ProfileStore(DeviceContext(driver))
        self.qps: dict[int, QueuePair] = {}
        """QPs of all contexts, by number."""
        self.observers: list[Callable[[Event], None]] = []
        """Observers called with every event of the engine, lock held.

        For tools that print losses and EV changes."""
        self.on_failure: Callable[[DeviceContext], None] | None = None
        """Callback, in the handler of an exception, for the context whose QP raised it on an event.

        Later events go on to their QPs. None: the exception goes up, and these events are lost."""
        self._contexts: dict[DeviceContext, Callable[[], None]] = {}
        """Open contexts, each with the call that closes it."""
        self._controller: Controller | None = None
        driver.subscribe(self._on_events)

    # ---- contexts -----------------------------------------------------------------------------------------

    def open_context(self, close: Callable[[], None]) -> DeviceContext:
        """Return a new context, which `close` will close."""
        context = DeviceContext(self.driver)
        with self.lock:
            self._contexts[context] = close
        return context

    def close_context(self, context: DeviceContext) -> None:
        """Forget a context and its controller, if it has the device's."""
        with self.lock:
            self._contexts.pop(context, None)
            if self._controller is not None and self._controller.context is context:
                self._controller.close()

    def close(self) -> None:
        """Close all contexts, then the driver. Idempotent."""
        for close in list(self._contexts.values()):
            close()
        self.driver.close()

    def open_controller(self, context: DeviceContext) -> Controller:
        """Return the device's one controller; raises VerbsError (EBUSY) while another is open."""
        with self.lock:
            if self._controller is not None:
                raise VerbsError(
                    f"{context.name}: the device has a controller in another context, and room for one only. "
                    "Cure: close that controller, or its context",
                    errno.EBUSY,
                )
            self._controller = Controller(context, self.profiles, self._controller_closed)
            return self._controller

    def _controller_closed(self) -> None:
        self._controller = None

    # ---- from the engine (lock held) ----------------------------------------------------------------------

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            try:
                self._on_event(event)
            except Exception:
                qp = self.qps.get(getattr(event, "qpn", -1))
                if qp is None or self.on_failure is None:
                    raise
                self.on_failure(qp.context)
            for observer in self.observers:
                observer(event)

    def _on_event(self, event: Event) -> None:
        match event:
            case Completion():
                if qp := self.qps.get(event.qpn):
                    qp.on_completion(event)
            case WriteImmReceived():
                if qp := self.qps.get(event.qpn):
                    qp.on_write_imm(event)
            case QpError():
                if qp := self.qps.get(event.qpn):
                    qp.on_error(event.detail)
            case PlaneChanged(peer=None):
                event_type = EventType.IBV_EVENT_PORT_ACTIVE if event.up else EventType.IBV_EVENT_PORT_ERR
                for context in self._contexts:
                    context.report_async(event_type, event.plane + 1, "link up" if event.up else "link down")
            case EvChanged():
                self.profiles.ev.ev_changed(event)
            case EvProbeResult():
                if self._controller is not None:
                    self._controller.on_probe_result(event)
