"""The event loop: interfaces of this machine as ports of devices, forwarded in C by one thread.

    loop = EventLoop()
    loop.start()
    loop.attach(device)
    loop.add_port(device, 1, "p0-t0-0-eth1")
    selectors: register loop.fileno() for reading; when readable, for event in loop.events(): ...

Ports are AF_PACKET sockets in the namespace of the process; needs CAP_NET_RAW. An interface may go down, come up,
be deleted and made again under the same name: the port follows and says so by PortEvent.

A cable between two ports of one loop can be a wire (`add_wire`) instead: its ends have names that `add_port` takes
like those of interfaces, and frames go from port to port in memory, with nothing of the kernel in between.
A process at the other end of a port's interface can have its frames through memory as well (`share`).
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mrc_testbed.switch.device import native
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.port_numbers import CPU_PORT, DROP_PORT


class PortError(Exception):
    """A port cannot be added or used: no such interface, no privilege, number taken."""


@dataclass(frozen=True, slots=True)
class PacketIn:
    """A frame which a device sent to its CPU port, as deparsed (a packet_in header, if any, in front)."""

    device_id: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class PortEvent:
    """A port's state changed, or is being reported for the first time (each add_port gives one).

    `is_up` is the operational state (administratively up and carrier), `admin_up` the administrative one, `ifindex` 0
    while there is no interface of that name. `time_s` is CLOCK_MONOTONIC seconds when the loop learnt it.
    """

    device_id: int
    port: int
    interface: str
    is_up: bool
    admin_up: bool
    ifindex: int
    time_s: float


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
    """Frames sent while the interface was down or gone."""


@dataclass(frozen=True, slots=True)
class WireEnd:
    """An end of a wire: what an interface is to other ports. Counts are since the wire was made."""

    name: str
    far: str
    """The other end."""
    ifindex: int
    """Above all that the kernel gives out."""
    admin_up: bool
    up: bool
    """Whether the end and its peer are both up."""
    mtu: int
    carrier_changes: int
    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    rx_dropped: int
    """Frames received and dropped: as many waited as a port's ring holds."""
    tx_dropped: int
    """Longer than the MTU, or no Ethernet frame."""


@dataclass(frozen=True, slots=True)
class FrameRange:
    """A number in a frame, network order, which lies from `first` to `last`, or outside of them."""

    offset: int
    """Bytes from the frame's begin."""
    size: int
    """Bytes of the number: 1 to 4."""
    first: int
    last: int
    is_outside: bool = False


@dataclass(frozen=True, slots=True)
class SharedCounts:
    """Counts of an interface's shared wires since the loop began; the kernel counts the rest."""

    rx_packets: int
    rx_bytes: int
    tx_packets: int
    tx_bytes: int
    wires: int
    """Processes that share a wire with the port now."""
    open: int
    """Wires of these that carry frames: nobody captures, and the port is up."""


class EventLoop:
    """Owns the forwarding thread. All methods may be called from any thread."""

    def __init__(self, *, cpu_port: int = CPU_PORT, ring_kib: int = 1024) -> None:
        """`ring_kib`: receive ring of each port, KiB of unswappable memory."""
        self._lib = native.runtime()
        self.cpu_port = cpu_port
        reason_buffer = ctypes.create_string_buffer(256)
        self._handle = self._lib.rt_loop_create(cpu_port, ring_kib * 1024, reason_buffer, len(reason_buffer))
        if not self._handle:
            raise PortError(f"cannot make an event loop: {reason_buffer.value.decode(errors='replace')}")
        self._lock = threading.RLock()
        """Guards the fields below, for short calls.

        Ports come and go under their device's `ports_lock` (taken before): the kernel takes some 15 ms to open a packet
        socket, waiting; callers that need events or counts must not wait for that, and devices start in parallel.
        """
        self._devices: dict[int, P4Device] = {}
        self._closing = False

    def start(self) -> None:
        """Start the thread; nothing happens when it runs already."""
        with self._lock:
            error = self._lib.rt_loop_start(self._open_handle())
        if error:
            raise PortError(f"cannot start the forwarding thread: {os.strerror(error)}")

    def close(self) -> None:
        """Stop the thread, close all ports, detach all devices. May be called twice."""
        with self._lock:
            self._closing = True
            devices = list(self._devices.values())
        for device in devices:
            self.detach(device)
        with self._lock:
            handle, self._handle = self._handle, None
            if handle:
                self._lib.rt_loop_destroy(handle)

    def attach(self, device: P4Device) -> None:
        """Make a device known. Raises ValueError when its id is taken."""
        with self._lock:
            self._open_handle()
            if device.virtual:
                raise ValueError(f"{device.name} lives under a virtual clock")
            if device.loop not in (None, self):
                raise ValueError(f"{device.name} is attached to another event loop")
            if self._devices.setdefault(device.device_id, device) is not device:
                raise ValueError(f"device id {device.device_id} is taken by {self._devices[device.device_id].name}")
            device.loop = self
            self._lib.rt_device_wake(device.handle, self._lib.rt_loop_fd(self._handle))

    def detach(self, device: P4Device) -> None:
        """Close the device's ports and forget it: power off. Does nothing for a device not attached."""
        with device.ports_lock:
            with self._lock:
                if self._devices.get(device.device_id) is not device:
                    return
                del self._devices[device.device_id]
                handle = self._handle
            self._lib.rt_loop_detach(handle, device.handle)
            self._lib.rt_device_wake(device.handle, -1)
            device.loop = None

    def add_port(self, device: P4Device, number: int, interface: str) -> None:
        """Bind `interface`, or an end of a wire, as port `number`. Raises PortError.

        The interface must exist; if it goes away later the port stays and waits for it.
        """
        with device.ports_lock:
            self._add_port(self._owner(device), device, number, interface)

    def add_ports(self, device: P4Device, interfaces: Mapping[int, str]) -> None:
        """Bind several interfaces in parallel, which takes hardly longer than one.

        Raises PortError of the first that failed; the others stay bound then.
        """
        if not interfaces:
            return
        with device.ports_lock, ThreadPoolExecutor(min(len(interfaces), 32)) as pool:
            handle = self._owner(device)
            tasks = [
                pool.submit(self._add_port, handle, device, *interface) for interface in sorted(interfaces.items())
            ]
        for task in tasks:
            task.result()

    def _add_port(self, handle: int, device: P4Device, number: int, interface: str) -> None:
        subject = f"{device.name}: port {number}"
        if not 0 <= number < DROP_PORT or number == self.cpu_port:
            raise PortError(f"{subject}: ports are numbered 0..{DROP_PORT - 1} without the CPU port {self.cpu_port}")
        if not 0 < len(interface.encode()) <= 15:
            raise PortError(f"{subject}: {interface!r} is no interface name (1 to 15 characters)")
        reason_buffer = ctypes.create_string_buffer(256)
        error = self._lib.rt_port_add(
            handle, device.handle, number, interface.encode(), reason_buffer, len(reason_buffer)
        )
        if error == native.EXISTS:
            raise PortError(f"{subject}: the number is taken already")
        if error:
            raise PortError(f"{subject}: {reason_buffer.value.decode(errors='replace')}")

    def remove_port(self, device: P4Device, number: int) -> None:
        """Close one port. Raises PortError when there is none of that number."""
        with device.ports_lock:
            if self._lib.rt_port_remove(self._owner(device), device.handle, number):
                raise PortError(f"{device.name}: no port {number} (has: {self._numbers(device)})")

    def ports(self, device: P4Device) -> dict[int, PortStats]:
        """Ports of a device with their counts. Raises PortError without memory for them."""
        with self._lock:
            count, block = native.take_block(self._lib.rt_ports_read, self._owner(device), device.handle)
        if count < 0:
            raise PortError(f"{device.name}: its ports cannot be read: out of memory")
        size = ctypes.sizeof(native.PortCounts)
        out = {}
        for position in range(count):
            raw = native.PortCounts.from_buffer_copy(block, position * size)
            out[raw.number] = PortStats(
                raw.interface.decode(errors="replace"),
                bool(raw.up),
                raw.rx_packets,
                raw.rx_bytes,
                raw.tx_packets,
                raw.tx_bytes,
                raw.rx_dropped,
                raw.tx_dropped,
                raw.tx_down,
            )
        return out

    def inject(self, device: P4Device, frame: bytes, port: int | None = None) -> None:
        """Push a packet-out through the pipeline as received on `port` (default: the CPU port)."""
        if port is not None and not 0 <= port < DROP_PORT:
            raise PortError(f"{device.name}: port {port} is not in 0..{DROP_PORT - 1}")
        if len(frame) > native.MAX_FRAME:
            raise PortError(f"{device.name}: a frame of {len(frame)} bytes (at most {native.MAX_FRAME})")
        in_port = self.cpu_port if port is None else port
        with self._lock:
            self._lib.rt_loop_inject(self._owner(device), device.handle, in_port, bytes(frame), len(frame))

    def send(self, device: P4Device, port: int, frame: bytes) -> None:
        """Send a frame out of a port, past the pipeline. Raises PortError."""
        with self._lock:
            error = self._lib.rt_port_send(self._owner(device), device.handle, port, bytes(frame), len(frame))
            if error:
                raise PortError(f"{device.name}: no port {port} (has: {self._numbers(device)})")

    def notice_settings(self, device: P4Device) -> None:
        """Re-arm a device's timers after its traffic settings changed; ignored when it is not attached."""
        with self._lock:
            if self._handle and self._devices.get(device.device_id) is device:
                self._lib.rt_loop_look(self._handle, device.handle)

    # ---- wires --------------------------------------------------------------------------------------------------

    def add_wire(self, name: str, far: str, mtu: int = 9216) -> None:
        """A wire between two new ends, both up. Raises PortError."""
        for end_name in (name, far):
            if not 0 < len(end_name.encode()) <= 15:
                raise PortError(f"{end_name!r} is no interface name (1 to 15 characters)")
        if not 68 <= mtu <= native.MAX_FRAME - 18:
            raise PortError(f"wire {name} - {far}: mtu {mtu}: give 68 to {native.MAX_FRAME - 18} bytes")
        with self._lock:
            error = self._lib.rt_wire_add(self._open_handle(), name.encode(), far.encode(), mtu)
        if error == native.EXISTS:
            raise PortError(f"wire {name} - {far}: one of these is an end of a wire already, or they are the same")
        if error:
            raise PortError(f"wire {name} - {far}: out of memory")

    def remove_wire(self, name: str) -> None:
        """Remove the wire with an end of that name. Raises PortError when there is none, or a port at it."""
        with self._lock:
            error = self._lib.rt_wire_remove(self._open_handle(), name.encode())
        if error == native.IN_USE:
            raise PortError(f"wire {name}: a port is at one of its ends: remove that first")
        if error:
            raise PortError(f"no wire has an end {name!r}")

    def set_wire(self, name: str, is_up: bool) -> bool:
        """Set an end up or down; returns whether that changed it. Raises PortError when no wire has that end."""
        with self._lock:
            change = int(self._lib.rt_wire_set(self._open_handle(), name.encode(), is_up))
        if change < 0:
            raise PortError(f"no wire has an end {name!r}")
        return bool(change)

    def wires(self) -> dict[str, WireEnd]:
        """All ends of wires by name. Raises PortError without memory for them."""
        with self._lock:
            count, block = native.take_block(self._lib.rt_wires_read, self._open_handle())
        if count < 0:
            raise PortError("wires cannot be read: out of memory")
        size = ctypes.sizeof(native.EndState)
        out = {}
        for position in range(count):
            raw = native.EndState.from_buffer_copy(block, position * size)
            name = raw.name.decode(errors="replace")
            out[name] = WireEnd(
                name,
                raw.far.decode(errors="replace"),
                raw.index,
                bool(raw.admin_up),
                bool(raw.up),
                raw.mtu,
                raw.carrier_changes,
                raw.rx_packets,
                raw.tx_packets,
                raw.rx_bytes,
                raw.tx_bytes,
                raw.rx_dropped,
                raw.tx_dropped,
            )
        return out

    def tap_wire(self, name: str, tap_socket: socket.socket, snap_bytes: int) -> int:
        """Copy each frame that comes to an end, cut to `snap_bytes`, to a connected SOCK_SEQPACKET socket.

        Each message begins with 16 bytes: CLOCK_REALTIME in nanoseconds (8), the frame's length (4), nothing (4). The
        tap ends by `untap_wire`, or when the other side of the socket is closed. Takes `tap_socket` over. Returns the
        tap's number. Raises PortError when no wire has that end.
        """
        with self._lock:
            number = int(self._lib.rt_wire_tap(self._open_handle(), name.encode(), tap_socket.fileno(), snap_bytes))
        if number < 0:
            raise PortError(f"no wire has an end {name!r}" if number == native.NOT_FOUND else "out of memory")
        tap_socket.detach()
        return number

    def untap_wire(self, number: int) -> int:
        """End a tap; returns how many frames its socket had no room for. Raises PortError when it has ended."""
        lost = ctypes.c_uint64()
        with self._lock:
            if self._lib.rt_wire_untap(self._open_handle(), number, ctypes.byref(lost)):
                raise PortError(f"no tap {number}")
        return lost.value

    # ---- shared wires -------------------------------------------------------------------------------------------

    def share(self, interface: str, wake: socket.socket, frame_bytes: int, match: Sequence[FrameRange]) -> int:
        """Make a shared wire of the port on `interface` with the process at the far end of `wake`.

        Frames for which all of `match` hold go to the process, if they have `frame_bytes` at most. Takes the descriptor
        of `wake` over: detach it. Returns a descriptor of the memory, which the caller sends there and closes. Raises
        PortError.
        """
        if len(match) > native.MOST_RANGES:
            raise PortError(f"{interface}: {len(match)} ranges (at most {native.MOST_RANGES})")
        raw = native.FrameMatch(len(match))
        for position, entry in enumerate(match):
            raw.ranges[position] = (entry.offset, entry.size, entry.first, entry.last, entry.is_outside)
        with self._lock:
            memory = int(
                self._lib.rt_shared_add(
                    self._open_handle(), interface.encode(), wake.fileno(), frame_bytes, ctypes.byref(raw)
                )
            )
        if memory == native.NOT_FOUND:
            raise PortError(f"no port is on interface {interface!r}")
        if memory == native.INVALID:
            raise PortError(
                f"{interface}: {frame_bytes} bytes a frame (want 64 to {native.MAX_FRAME}), or a range that is not "
                "1 to 4 bytes of a frame"
            )
        if memory < 0:
            raise PortError(f"{interface}: no memory or descriptor for a shared wire")
        return memory

    def shared_counts(self) -> dict[str, SharedCounts]:
        """Return counts by interface. Raises PortError without memory for them."""
        with self._lock:
            count, block = native.take_block(self._lib.rt_shared_read, self._open_handle())
        if count < 0:
            raise PortError("shared wires cannot be read: out of memory")
        size = ctypes.sizeof(native.WireCounts)
        entries = [native.WireCounts.from_buffer_copy(block, position * size) for position in range(count)]
        return {
            raw.interface.decode(errors="replace"): SharedCounts(
                raw.rx_packets, raw.rx_bytes, raw.tx_packets, raw.tx_bytes, raw.wires, raw.open
            )
            for raw in entries
        }

    def fileno(self) -> int:
        """A descriptor that is readable while events wait."""
        return int(self._lib.rt_loop_fd(self._open_handle()))

    def events(self) -> list[PacketIn | PortEvent]:
        """The waiting events, oldest first; never blocks. At most 1024 frames wait, later ones are dropped."""
        with self._lock:
            count, block = native.take_block(self._lib.rt_loop_events, self._open_handle())
        out: list[PacketIn | PortEvent] = []
        offset, size = 0, ctypes.sizeof(native.DeviceEvent)
        for _ in range(count):
            raw = native.DeviceEvent.from_buffer_copy(block, offset)
            offset += size
            if raw.kind == native.EVENT_FRAME:
                out.append(PacketIn(raw.device, block[offset : offset + raw.len]))
                offset += raw.len
            else:
                name = raw.interface.decode(errors="replace")
                is_up, admin_up = bool(raw.up), bool(raw.admin_up)
                out.append(PortEvent(raw.device, raw.port, name, is_up, admin_up, raw.ifindex, raw.at_ns / 1e9))
        return out

    def lateness(self) -> list[tuple[int, int]]:
        """Return a histogram of how late the loop did its devices' due work (dequeue, deliver).

        Pairs of (upper bound in microseconds, count) over all devices since the loop was made. Empty buckets are left
        out; the last one holds everything later.
        """
        counts = (ctypes.c_uint64 * native.LATENESS_BUCKETS)()
        self._lib.rt_loop_late(self._open_handle(), counts)
        return [(1 << bucket, count) for bucket, count in enumerate(counts) if count]

    @property
    def frames_lost(self) -> int:
        """Frames for the CPU port that found the queue full, of all devices."""
        return int(self._lib.rt_loop_frames_lost(self._open_handle()))

    def _open_handle(self) -> int:
        if self._closing or not self._handle:
            raise PortError("the event loop is closed")
        return int(self._handle)

    def _owner(self, device: P4Device) -> int:
        """The loop's handle, after a check that `device` is attached to it."""
        with self._lock:
            handle = self._open_handle()
            if self._devices.get(device.device_id) is not device:
                raise PortError(f"{device.name}: is not attached to this event loop")
            return handle

    def _numbers(self, device: P4Device) -> str:
        return ", ".join(map(str, self.ports(device))) or "none"
