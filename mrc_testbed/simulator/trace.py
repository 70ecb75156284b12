"""Observer of every packet of a virtual fabric, and the digest that proves two runs equal.

A hook is a callable `(event, time_s, location, frame)`; `location` is the interface, switch or host of the event::

    send      the first bit leaves a port          deliver   it reached a host
    mark      CE was set as it left                drop      a port or switch refused it, see the counters for why
    trim      it was cut                           lose      it left and will not arrive

A fabric is traced from its making: the Tracer is the observer of its ports and switches. (`sample` needs none of this:
it is an event like any other.)
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from mrc_testbed.simulator.events import Handler
from mrc_testbed.simulator.frames import Frame, PacketHook


class Tracer:
    """Observer of packet events: calls the hook, if any, and keeps the digest."""

    def __init__(self, hook: PacketHook | None = None) -> None:
        self.hook = hook
        self.count = 0
        self._digest = blake2b(digest_size=16)

    def __call__(self, event: str, now: float, location: str, frame: Frame) -> None:
        self.count += 1
        self._digest.update(f"{event} {now!r} {location} {describe(frame)}\n".encode())
        if self.hook is not None:
            self.hook(event, now, location, frame)

    def delivery(self, host: str, take: Handler) -> Handler:
        """Return `take` with a `deliver` event before each call."""

        def deliver(frame: Frame, now: float) -> None:
            self("deliver", now, host, frame)
            take(frame, now)

        return deliver

    def digest(self) -> str:
        """Return 32 hexadecimal digits over all events so far."""
        return self._digest.hexdigest()


def describe(frame: Frame) -> str:
    """Return one line about a frame: source, target, kind, path, state."""
    packet: Any = frame.packet
    parts = [f"{frame.source}>{frame.target}", type(packet).__name__, f"ev {frame.ev:#06x}", f"{frame.size} B"]
    psn = getattr(packet, "psn", getattr(packet, "cack_psn", None))
    if psn is not None:
        parts.append(f"psn {psn}")
    parts += [word for word in ("marked", "trimmed", "corrupt") if getattr(frame, word)]
    return " ".join(parts)
