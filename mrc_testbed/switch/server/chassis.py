"""The switches of a daemon: each a device with its ports, its power, its pipeline and its controllers.

A chassis that is switched off keeps its name, its id and its list of ports, and nothing else: the device with all
tables, the P4Runtime streams and the election ids are gone, and its interfaces are down, as the light of a switch
without power is. Switched on it begins empty.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict
from typing import Any, Protocol

from finsy.proto import p4r, rpc_code

from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.loop import EventLoop, PacketIn, PortError, PortEvent
from mrc_testbed.switch.device.traffic import NO_TRAFFIC, PortSettings, PortTrafficState, traffic_counts
from mrc_testbed.switch.server.p4runtime.arbitration import Arbitration
from mrc_testbed.switch.server.p4runtime.errors import RpcError
from mrc_testbed.switch.server.p4runtime.packetio import packet_in_message
from mrc_testbed.switch.server.p4runtime.pipeline import Pipeline
from mrc_testbed.switch.server.p4runtime.snapshot import Contents
from mrc_testbed.switch.server.wires import DaemonWires
from mrc_testbed.switch.system.rtnetlink import set_admin_state

INTERFACE_NAME_MAX = 15
"""IFNAMSIZ - 1, characters."""

log = logging.getLogger(__name__)


class ChassisError(Exception):
    """A switch cannot be added or operated: what, why, what would have worked."""


class ControllerStream(Protocol):
    """P4Runtime stream as a chassis uses it."""

    def send_packet(self, message: p4r.StreamMessageResponse) -> bool:
        """Queues a packet-in; False when the controller is too far behind and it was dropped."""

    def send_notice(self, message: p4r.StreamMessageResponse) -> None:
        """Queues digests and idle timeouts; they are dropped when the controller is too far behind."""

    def close(self, code: rpc_code.Code.ValueType, text: str) -> None:
        """Ends the stream with that status."""


class Chassis:
    """One switch. Its state is read and changed on the asyncio loop only."""

    def __init__(
        self, name: str, device_id: int, ports: dict[int, str], loop: EventLoop, wires: DaemonWires | None = None
    ) -> None:
        self.name = name
        self.device_id = device_id
        self.ports = ports
        self.device: P4Device | None = None
        """None while switched off."""
        self.running_contents: Contents | None = None
        """The running contents; None without a pipeline."""
        self.saved_contents: Contents | None = None
        """Contents of VERIFY_AND_SAVE, waiting for COMMIT; None: no such contents."""
        self.arbitration = Arbitration(device_id)
        self.streams: dict[object, ControllerStream] = {}
        """Streams that belong to this device, by their Controller."""
        self.writing = asyncio.Lock()
        """Lock for changes of pipeline or entities."""
        self.power_event = asyncio.Event()
        self.traffic: dict[int, PortSettings] = {}
        """Settings of ports and their cables, which outlast the power."""
        self.packets_in = 0
        self.packets_in_dropped = 0
        """Packet-ins without a primary controller, or which it took too slowly."""
        self._loop = loop
        self._wires = wires
        self._power = asyncio.Lock()
        self._to_restore: list[str] = []

    @property
    def on(self) -> bool:
        return self.device is not None

    @property
    def pipeline(self) -> Pipeline | None:
        """The running pipeline; None: there is no pipeline."""
        return None if self.running_contents is None else self.running_contents.pipeline

    async def power_on(self) -> None:
        """Starts empty, with all ports. Raises ChassisError, and stays off, when a port cannot be opened."""
        async with self._power:
            if self.on:
                return
            device = P4Device(self.device_id, self.name)
            for port, settings in self.traffic.items():
                device.traffic.set(port, settings)
            try:
                await asyncio.to_thread(self._open, device)
            except (PortError, ValueError) as error:
                await asyncio.to_thread(self._close, device)
                raise ChassisError(f"{self.name}: {error}") from None
            for interface in self._to_restore:
                self._set_link(interface, True)
            self._to_restore = []
            self.device = device
            self.arbitration = Arbitration(self.device_id)
            self.power_event.set()
            log.info("%s (device %d) on, %d ports", self.name, self.device_id, len(self.ports))

    async def power_off(self, reason: str, *, keep_links: bool = False) -> None:
        """Forgets everything; `keep_links` leaves its interfaces up. Does nothing when it is off."""
        async with self._power:
            device = self.device
            if device is None:
                return
            self._forget()
            self.device = None
            self.power_event.clear()
            self.arbitration = Arbitration(self.device_id)
            for stream in tuple(self.streams.values()):
                stream.close(rpc_code.UNAVAILABLE, reason)
            self.streams = {}
            if not keep_links:
                self._to_restore = [name for name in self.ports.values() if self._set_link(name, False)]
            async with self.writing:
                await asyncio.to_thread(self._close, device)
            log.info("%s (device %d) off", self.name, self.device_id)

    def _open(self, device: P4Device) -> None:
        self._loop.attach(device)
        self._loop.add_ports(device, self.ports)

    def _close(self, device: P4Device) -> None:
        self._loop.detach(device)
        device.close()

    def _set_link(self, interface: str, is_up: bool) -> bool:
        """Returns whether that changed the interface; one that is gone cannot be changed."""
        if self._wires is not None and interface in self._wires.links:
            return self._wires.set_up(interface, is_up)
        try:
            return set_admin_state(interface, is_up)
        except OSError as error:
            if error.errno != errno.ENODEV:
                log.warning("%s: cannot set %s %s: %s", self.name, interface, "up" if is_up else "down", error)
            return False

    def running(self) -> P4Device:
        """The device. Raises RpcError UNAVAILABLE while it is switched off."""
        if self.device is None:
            raise RpcError(rpc_code.UNAVAILABLE, f"device {self.device_id} ({self.name}) is switched off")
        return self.device

    def client_contents(self) -> Contents:
        """Contents for clients: saved, else running. Raises RpcError UNAVAILABLE, FAILED_PRECONDITION."""
        self.running()
        contents = self.saved_contents or self.running_contents
        if contents is None:
            raise RpcError(
                rpc_code.FAILED_PRECONDITION,
                f"No forwarding pipeline config set for device {self.device_id} ({self.name})",
            )
        return contents

    def packet_in(self, frame: bytes) -> None:
        """Hands a frame from the CPU port to the primary of each role whose filter accepts it."""
        self.packets_in += 1
        message = None
        if self.running_contents is not None:
            info, widths = self.running_contents.pipeline.program.p4info, self.running_contents.device.schema.type_bits
            message = packet_in_message(info, widths, frame)
        if message is None:
            self.packets_in_dropped += 1
            return
        streams = [
            self.streams.get(controller)
            for controller, scope in self.arbitration.primaries()
            if scope.wants(message.packet)
        ]
        if not any([stream.send_packet(message) for stream in streams if stream is not None]):
            self.packets_in_dropped += 1

    def start(self, pipeline: Pipeline) -> None:
        """Runs a program, all state as it begins. Raises TableError, and the old one runs on."""
        device = self.running()
        device.load(pipeline.program)
        self._forget()
        self.running_contents = Contents(device, pipeline, self._notify)

    def save(self, pipeline: Pipeline) -> Contents:
        """Return contents on a separate device without packets, for `saved_contents` or for `run`.

        Raises TableError.
        """
        device = P4Device(self.device_id, self.name)
        device.load(pipeline.program)
        return Contents(device, pipeline, self._notify)

    def run(self, contents: Contents) -> None:
        """Runs what `save` made, with all that has been written to it, from one packet to the next."""
        device = self.running()
        shadow, contents.device = contents.device, device
        device.adopt(shadow)
        shadow.close()
        self.saved_contents = None
        self._forget()
        self.running_contents = contents
        contents.watch_idle()

    def _forget(self) -> None:
        for contents in (self.running_contents, self.saved_contents):
            if contents is not None:
                contents.stop()
        self.running_contents = self.saved_contents = None

    def _notify(self, message: p4r.StreamMessageResponse, number: int) -> bool:
        """Send to the primary of each role that has the object of this id; return whether there was any."""
        primaries = self.arbitration.primaries()
        streams = [self.streams.get(controller) for controller, scope in primaries if scope.has_id(number)]
        for stream in streams:
            if stream is not None:
                stream.send_notice(message)
        return any(stream is not None for stream in streams)

    def set_traffic(self, port: int, settings: PortSettings, restart: Collection[str] = ()) -> None:
        """Now, and after every power-on. Raises TrafficError."""
        settings.check()
        if self.device is not None:
            self.device.traffic.set(port, settings, restart=restart)
        self.traffic[port] = settings

    def traffic_state(self, port: int) -> PortTrafficState:
        """Counts of a port's queues and cable; nothing while it is off."""
        return NO_TRAFFIC if self.device is None else self.device.traffic.state(port)

    def stats(self) -> dict[str, Any]:
        """Counts of the device and its ports, for the control socket."""
        out: dict[str, Any] = {
            "device_id": self.device_id,
            "on": self.on,
            "program": self.pipeline.program.name if self.pipeline is not None else None,
            "controllers": len(self.arbitration.controllers),
            "packets_in": self.packets_in,
            "packets_in_dropped": self.packets_in_dropped,
        }
        if self.device is not None:
            out["frames"] = asdict(self.device.stats())
            out["ports"] = {str(n): asdict(port) for n, port in self._loop.ports(self.device).items()}
            out["traffic"] = {str(n): traffic_counts(self.device.traffic.state(n)) for n in self.ports}
            out["buffer_bytes"], out["buffer_bytes_max"] = self.device.traffic.buffers()
        return out


class Registry:
    """All switches of this daemon by name and by device id, and the events of their forwarding loop."""

    def __init__(
        self, loop: EventLoop, cpu_port: int, publish: Callable[..., None], wires: DaemonWires | None = None
    ) -> None:
        self.loop = loop
        self._wires = wires
        self.cpu_port = cpu_port
        self._publish = publish
        self._by_name: dict[str, Chassis] = {}
        self._by_id: dict[int, Chassis] = {}

    def __iter__(self) -> Iterator[Chassis]:
        return iter(self._by_name.values())

    async def add(self, name: str, device_id: int, ports: dict[int, str]) -> Chassis:
        """Adds a switch and switches it on. Raises ChassisError; nothing is left of it then."""
        self._check_new(name, device_id, ports)
        chassis = Chassis(name, device_id, dict(ports), self.loop, self._wires)
        self._by_name[name] = self._by_id[device_id] = chassis
        try:
            await chassis.power_on()
        except ChassisError:
            del self._by_name[name], self._by_id[device_id]
            raise
        return chassis

    def _check_new(self, name: str, device_id: int, ports: dict[int, str]) -> None:
        if not name or len(name) > 64 or not name.isprintable():
            raise ChassisError(f"name {name!r}: want 1 to 64 printable characters")
        if not 0 <= device_id < 1 << 32:
            raise ChassisError(f"{name}: device_id {device_id}: want 0 to 2**32 - 1")
        if name in self._by_name:
            raise ChassisError(f"{name}: the name is taken by another device (remove_device removes that)")
        if device_id in self._by_id:
            raise ChassisError(f"{name}: device_id {device_id} is that of {self._by_id[device_id].name}")
        port_owners = {interface: chassis.name for chassis in self for interface in chassis.ports.values()}
        for number, interface in ports.items():
            if not 0 <= number < self.cpu_port:
                raise ChassisError(
                    f"{name}: port {number}: want 0 to {self.cpu_port - 1} ({self.cpu_port} is the CPU port)"
                )
            if not 1 <= len(interface) <= INTERFACE_NAME_MAX:
                raise ChassisError(f"{name}: port {number}: {interface!r}: want a name of 1 to 15 characters")
            if interface in port_owners:
                raise ChassisError(f"{name}: port {number}: {interface} is already a port of {port_owners[interface]}")
            port_owners[interface] = name

    async def remove(self, name: str) -> Chassis:
        """Switches it off and forgets it; its interfaces stay as they are. Raises ChassisError."""
        chassis = self.with_name(name)
        await chassis.power_off(f"device {chassis.device_id} ({name}) was removed", keep_links=True)
        self._by_name.pop(name, None)
        self._by_id.pop(chassis.device_id, None)
        chassis.power_event.set()  # streams that wait for it look again and find it gone
        return chassis

    def with_name(self, name: str) -> Chassis:
        """Raises ChassisError listing the devices."""
        chassis = self._by_name.get(name)
        if chassis is None:
            raise ChassisError(f"no device {name!r} (has: {', '.join(self._by_name) or 'none'})")
        return chassis

    def with_id(self, device_id: int) -> Chassis:
        """Raises RpcError NOT_FOUND listing the device ids."""
        chassis = self._by_id.get(device_id)
        if chassis is None:
            ids = sorted(self._by_id)
            id_text = ", ".join(map(str, ids[:16])) + (" ..." if len(ids) > 16 else "")
            raise RpcError(rpc_code.NOT_FOUND, f"no device {device_id} (has: {id_text or 'none'})")
        return chassis

    def drain_events(self) -> None:
        """Takes what the forwarding loop reports; called when its descriptor is readable."""
        events = self.loop.events()
        for chassis in self:
            if chassis.running_contents is not None:
                chassis.running_contents.take_digests()
        for event in events:
            owner = self._by_id.get(event.device_id)
            if owner is None:
                continue
            if isinstance(event, PacketIn):
                owner.packet_in(event.frame)
            elif isinstance(event, PortEvent):
                self._publish(
                    "port",
                    device=owner.name,
                    port=event.port,
                    interface=event.interface,
                    up=event.is_up,
                    admin_up=event.admin_up,
                    at=event.time_s,
                )
