"""Driver of a device: all that the device needs from outside.

Every verb, tool and example runs on a class that implements it.

A driver owns one engine `Endpoint` and moves its packets and its clock. It has to

* hand every event the endpoint gives to `deliver(events)`, in order, while holding `lock`;
* get on with the work in `step`, which is how all waiting verbs wait;
* know addresses: which peer a GID belongs to, and which EVs lead there.

Two are here: `mrc_testbed.hosts.verbs.virtual.VirtualDriver` (devices in one process, virtual time) and
`hosts.verbs.live.LiveDriver` (the NIC ports of a host, real time). Others subclass `Driver`; a simulated fabric needs
`now`, `step`, `evs`, `gids` and `resolve`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from threading import RLock
from typing import Any

from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.events import Event


class Driver(ABC):
    """See the module. `endpoint` is made by the driver; its name is the host's name."""

    max_qps = 4096
    """QPs one device may have."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.lock = RLock()
        """Held around every call of the engine and of `deliver`."""
        self._receivers: list[Callable[[Sequence[Event]], None]] = []

    @property
    def planes(self) -> int:
        return self.endpoint.planes

    def subscribe(self, receiver: Callable[[Sequence[Event]], None]) -> None:
        """Register the device's receiver of the engine's events."""
        self._receivers.append(receiver)

    def deliver(self, events: Sequence[Event]) -> None:
        """Pass the events of `endpoint.events()` to the subscribers (called by the driver)."""
        for receiver in self._receivers:
            receiver(events)

    def collect(self) -> int:
        """Drain the endpoint's events into `deliver`; returns how many there were."""
        events = self.endpoint.events()
        if events:
            self.deliver(events)
        return len(events)

    @abstractmethod
    def now(self) -> float:
        """Return the time of the clock, seconds."""

    @abstractmethod
    def step(self, deadline: float | None) -> bool:
        """Do what there is to do, or wait for it, no longer than until `deadline` (None: no limit).

        False: the deadline has passed, or nothing will ever happen again by itself (virtual time only).
        """

    @abstractmethod
    def evs(self, peer: str) -> Sequence[tuple[int, int]]:
        """Return (EV, plane) of every path to `peer`: the profile of QPs without one (AUTO).

        Raises LocalError.
        """

    @abstractmethod
    def gids(self) -> tuple[str, ...]:
        """Return our addresses, one per port, as text; index = plane = port number - 1."""

    @abstractmethod
    def resolve(self, gid: str) -> str:
        """Return the peer (as the engine calls it) that has this address, or this name.

        Raises LocalError for an unknown one.
        """

    def check_ev(self, _peer: str, _ev: int, _plane: int) -> str | None:
        """Return why an EV of a plane cannot lead to a peer; None when it can, or is not known."""
        return None

    def port_up(self, _plane: int) -> bool:
        """Return whether the port of a plane has a link and is enabled."""
        return True

    def port_enabled(self, plane: int) -> bool:
        """Return whether the port of a plane is enabled administratively, with a link or without."""
        return self.port_up(plane)

    def set_port(self, plane: int, enabled: bool) -> None:
        """Enable or disable a port administratively. Raises LocalError when this driver cannot."""
        with self.lock:
            self.endpoint.on_port(plane, enabled, self.now())
            self.collect()

    def kick(self) -> None:  # noqa: B027 - only a driver with a thread has someone to wake
        """Send soon what was posted; called with the lock held."""

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when `step` has work; None when there is no such descriptor."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return what tools print about the driver."""
        return {"driver": type(self).__name__, "host": self.endpoint.name, "planes": self.planes}

    def close(self) -> None:  # noqa: B027 - a driver without ports has nothing to close
        """Release ports, threads, descriptors. Idempotent."""
