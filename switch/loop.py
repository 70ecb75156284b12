"""The event loop: interfaces of this machine as ports of devices, forwarded in C by one thread.

    loop = EventLoop()
    loop.start()
    loop.attach(device)
    loop.add_port(device, 1, "p0-t0-0-eth1")
    selectors: register loop.fileno() for reading; when readable, for event in loop.events(): ...

Ports are AF_PACKET sockets in the namespace of the process; needs CAP_NET_RAW. An interface may go down, come up,
be deleted and made again under the same name: the port follows and says so by PortEvent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from switch.device import Device


class PortError(Exception):
    """A port that cannot be added or used: no such interface, no privilege, number taken. Says which and why."""


@dataclass(frozen=True, slots=True)
class PacketIn:
    """A frame which a device sent to its CPU port, as deparsed (a packet_in header, if any, in front)."""

    device_id: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class PortEvent:
    """A port's state changed, or is being reported for the first time (each add_port gives one).

    `up` is the operational state (administratively up and carrier), `admin_up` the administrative one, `ifindex` 0
    while there is no interface of that name. `at` is CLOCK_MONOTONIC seconds when the loop learnt it.
    """

    device_id: int
    port: int
    interface: str
    up: bool
    admin_up: bool
    ifindex: int
    at: float


@dataclass(frozen=True, slots=True)
class PortStats:
    """Frames of one port since it was added."""

    interface: str
    up: bool
    rx_packets: int
    rx_bytes: int
    tx_packets: int
    tx_bytes: int
    rx_dropped: int
    """The receive ring was full."""
    tx_dropped: int
    """The kernel refused to send: out of buffers, or longer than the interface's MTU."""
    tx_down: int
    """Sent while the interface was down or gone."""


class EventLoop:
    """Owns the forwarding thread. All methods may be called from any thread."""

    def __init__(self, *, cpu_port: int = 510, ring_kib: int = 1024):
        """`ring_kib`: receive ring of each port, KiB of unswappable memory."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the thread."""

    def close(self) -> None:
        """Stop the thread, close all ports, detach all devices. May be called twice."""

    def attach(self, device: Device) -> None:
        """Make a device known. Raises ValueError when its id is taken."""

    def detach(self, device: Device) -> None:
        """Close the device's ports and forget it: power off. Does nothing for a device not attached."""

    def add_port(self, device: Device, number: int, interface: str) -> None:
        """Bind `interface` as port `number`. Raises PortError.

        The interface must exist; if it goes away later the port stays and waits for it.
        """

    def remove_port(self, device: Device, number: int) -> None: ...

    def ports(self, device: Device) -> dict[int, PortStats]:
        """Ports of a device with their counts."""

    def inject(self, device: Device, frame: bytes, port: int | None = None) -> None:
        """Packet-out: push a frame through the device's pipeline as received on `port` (default: the CPU port)."""

    def send(self, device: Device, port: int, frame: bytes) -> None:
        """Send a frame out of a port, past the pipeline. Raises PortError."""

    def fileno(self) -> int:
        """A descriptor that is readable while events wait."""

    def events(self) -> list[PacketIn | PortEvent]:
        """The waiting events, oldest first; never blocks. At most 1024 frames wait, later ones are dropped."""
