"""Daemon: registry, forwarding loop, netlink, gRPC servers and control socket in one asyncio loop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import gnmi_grpc, p4r_grpc

from mrc_testbed.switch.device.loop import EventLoop
from mrc_testbed.switch.server import counts
from mrc_testbed.switch.server.chassis import ChassisError, Registry
from mrc_testbed.switch.server.control import ControlError, ControlServer, Fields, Operation, field
from mrc_testbed.switch.server.gnmi.interface_traffic import ChassisTraffic
from mrc_testbed.switch.server.gnmi.server import GnmiService
from mrc_testbed.switch.server.gnmi.traffic_tree import all_values
from mrc_testbed.switch.server.grpc_server import (
    STOP_GRACE_S,
    parse_address,
    read_credentials,
    read_token,
    start_server,
)
from mrc_testbed.switch.server.interfaces import Interfaces
from mrc_testbed.switch.server.netlink import InterfaceWatcher
from mrc_testbed.switch.server.p4runtime.pipeline import Compiler
from mrc_testbed.switch.server.p4runtime.service import P4RuntimeService
from mrc_testbed.switch.server.shared_wires import SharedWireServer
from mrc_testbed.switch.server.wires import DaemonWires

ADD_EXAMPLE = '{"op": "add_device", "name": "s1", "device_id": 1, "ports": {"1": "veth0"}}'

log = logging.getLogger(__name__)


class ServerConfigError(Exception):
    """The file of devices cannot be used; the text says which and why."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of the daemon.

    Addresses are HOST:PORT, unix:PATH, or both; port 0 takes any free one (Daemon.p4runtime_port, .gnmi_port).
    """

    p4runtime: str = "127.0.0.1:9559"
    gnmi: str = "127.0.0.1:9339"
    control: Path | None = None
    config: Path | None = None
    cpu_port: int = 510
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    """PEM files: TLS on both TCP addresses; with a CA clients must show a certificate too."""
    token_file: Path | None = None
    """File with the token that is wanted of clients by TCP; None: any user of the machine may ask there."""
    shared_wires: Path | None = None
    """Unix socket at which processes ask for shared wires; None: there are none."""


class Daemon:
    """All devices of a fabric and the servers in front of them: `async with Daemon(settings) as daemon`."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self.loop = EventLoop(cpu_port=settings.cpu_port)
        self.watcher = InterfaceWatcher()
        self.wires = DaemonWires(self.loop)
        self.interfaces = Interfaces(self.watcher, wires=self.wires)
        self.traffic = ChassisTraffic()
        self.registry = Registry(self.loop, settings.cpu_port, self._publish, self.wires)
        self.p4runtime_port = 0
        self.gnmi_port = 0
        self.stopping = asyncio.Event()
        """Set by the op `shutdown` and by signals."""
        self._servers: list[grpc.aio.Server] = []
        self._control: ControlServer | None = None
        self._shared_wires: SharedWireServer | None = None
        self._reading: int | None = None

    async def __aenter__(self) -> Daemon:
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _start(self) -> None:
        """Raises AddressError, SocketError, ServerConfigError, ChassisError or OSError."""
        settings = self._settings
        devices = read_config(settings.config) if settings.config is not None else []
        p4runtime = parse_address(settings.p4runtime, "--p4runtime")
        gnmi_address = parse_address(settings.gnmi, "--gnmi")
        credentials = read_credentials(settings.tls_cert, settings.tls_key, settings.tls_ca)
        token = read_token(settings.token_file)
        self.watcher.start()
        self.loop.start()
        self._reading = self.loop.fileno()
        asyncio.get_running_loop().add_reader(self._reading, self.registry.drain_events)
        service = P4RuntimeService(self.registry, Compiler())
        gnmi_service = GnmiService(self.interfaces, self.traffic)

        def add_p4runtime(server: grpc.aio.Server) -> None:
            p4r_grpc.add_P4RuntimeServicer_to_server(service, server)

        def add_gnmi(server: grpc.aio.Server) -> None:
            gnmi_grpc.add_gNMIServicer_to_server(gnmi_service, server)

        # gNMI is served on the P4Runtime address as well: finsy looks for the ports of a switch there.
        server, self.p4runtime_port = await start_server(
            p4runtime.host,
            p4runtime.port,
            "P4Runtime",
            [add_p4runtime, add_gnmi],
            credentials,
            unix=p4runtime.socket,
            token=token,
            last_port=p4runtime.last_port,
        )
        self._servers.append(server)
        server, self.gnmi_port = await start_server(
            gnmi_address.host,
            gnmi_address.port,
            "gNMI",
            [add_gnmi],
            credentials,
            unix=gnmi_address.socket,
            token=token,
        )
        self._servers.append(server)
        for device in devices:
            await self.add_device(**device)
        if settings.shared_wires is not None:
            self._shared_wires = SharedWireServer(settings.shared_wires, self.loop)
            self._shared_wires.start()
        if settings.control is not None:
            operations: dict[str, Operation] = {
                "devices": self._op_devices,
                "add_device": self._op_add_device,
                "remove_device": self._op_remove_device,
                "power": self._op_power,
                "stats": self._op_stats,
                "counts": self._op_counts,
                "shutdown": self._op_shutdown,
                **self.wires.operations(),
            }
            control = ControlServer(settings.control, operations)
            await control.start()
            self._control = control

    async def close(self) -> None:
        """Stops everything; may be called twice."""
        if self._control is not None:
            await self._control.close()
            self._control = None
        if self._shared_wires is not None:
            self._shared_wires.close()
        await asyncio.gather(*(server.stop(STOP_GRACE_S) for server in self._servers))
        self._servers = []
        self.watcher.close()
        if self._reading is not None:
            asyncio.get_running_loop().remove_reader(self._reading)
            self._reading = None
        await asyncio.to_thread(self.loop.close)

    def _publish(self, event: str, **fields: Any) -> None:
        if self._control is not None:
            self._control.publish(event, **fields)

    async def add_device(self, name: str, device_id: int, ports: dict[int, str]) -> None:
        """Adds a device and switches it on. Raises ChassisError."""
        self.traffic.add(await self.registry.add(name, device_id, ports))
        self.interfaces.add_device(name, list(ports.values()))
        for interface in ports.values():
            self.interfaces.publish_values(interface, all_values(interface, self.traffic.get(interface)))
        self._publish("device", name=name, device_id=device_id, state="on")

    # ---- control socket ---------------------------------------------------------------------------------

    async def _op_devices(self, _request: Fields) -> Fields:
        return {
            "devices": [
                {
                    "name": chassis.name,
                    "device_id": chassis.device_id,
                    "on": chassis.on,
                    "program": chassis.pipeline.program.name if chassis.pipeline is not None else None,
                    "primary": chassis.arbitration.primary_election_id(),
                    "ports": {str(number): interface for number, interface in chassis.ports.items()},
                }
                for chassis in self.registry
            ],
            "p4runtime_port": self.p4runtime_port,
            "gnmi_port": self.gnmi_port,
            "pid": os.getpid(),
        }

    async def _op_add_device(self, request: Fields) -> Fields:
        try:
            await self.add_device(**_device(request))
        except (ChassisError, ServerConfigError) as error:
            raise ControlError(str(error)) from None
        return {}

    async def _op_remove_device(self, request: Fields) -> Fields:
        name = field(request, "name", str, "a device's name")
        try:
            chassis = await self.registry.remove(name)
        except ChassisError as error:
            raise ControlError(str(error)) from None
        self.traffic.remove(chassis)
        self.interfaces.remove_device(name)
        self._publish("device", name=name, device_id=chassis.device_id, state="removed")
        return {}

    async def _op_power(self, request: Fields) -> Fields:
        name = field(request, "name", str, "a device's name")
        on = field(request, "on", bool, "true or false")
        keep_links = request.get("keep_links", False)
        if not isinstance(keep_links, bool):
            raise ControlError(f"power: keep_links = {keep_links!r} (want true or false)")
        try:
            chassis = self.registry.with_name(name)
            if on:
                await chassis.power_on()
            else:
                reason = f"device {chassis.device_id} ({name}) was switched off"
                await chassis.power_off(reason, keep_links=keep_links)
        except ChassisError as error:
            raise ControlError(str(error)) from None
        self._publish("device", name=name, device_id=chassis.device_id, state="on" if on else "off")
        return {}

    async def _op_stats(self, request: Fields) -> Fields:
        devices = list(self.registry)
        if "name" in request:
            try:
                devices = [self.registry.with_name(field(request, "name", str, "a device's name"))]
            except ChassisError as error:
                raise ControlError(str(error)) from None
        return {
            "devices": {chassis.name: chassis.stats() for chassis in devices},
            "late": [{"under_us": limit, "count": count} for limit, count in self.loop.lateness()],
        }

    async def _op_counts(self, request: Fields) -> Fields:
        cells, interfaces = counts.parse(request)
        port_owners = {name: (chassis, port) for chassis in self.registry for port, name in chassis.ports.items()}
        if unknown_names := [name for name in interfaces if name not in port_owners]:
            raise ControlError(
                f"counts: no interface {unknown_names[0]!r} (has: {', '.join(list(port_owners)[:4])} ...)"
            )
        return {
            "devices": {chassis.name: counts.counts_of(chassis, cells) for chassis in self.registry},
            "depths": {name: counts.depth_of(*port_owners[name]) for name in interfaces},
        }

    async def _op_shutdown(self, _request: Fields) -> Fields:
        asyncio.get_running_loop().call_soon(self.stopping.set)
        return {}


def _device(data: Any) -> dict[str, Any]:
    """Return name, device_id and ports of an add_device request or of an entry of the file.

    Raises ServerConfigError.
    """
    if not isinstance(data, dict):
        raise ServerConfigError(f"a device is an object, not {data!r} (want {ADD_EXAMPLE})")
    name, device_id, ports = data.get("name"), data.get("device_id"), data.get("ports", {})
    if not isinstance(name, str):
        raise ServerConfigError(f"name = {name!r} is no string (want {ADD_EXAMPLE})")
    if not isinstance(device_id, int) or isinstance(device_id, bool):
        raise ServerConfigError(f"{name}: device_id = {device_id!r} is no number (want {ADD_EXAMPLE})")
    if not isinstance(ports, dict):
        raise ServerConfigError(f"{name}: ports = {ports!r} is no object (want {ADD_EXAMPLE})")
    port_names = {}
    for number, interface in ports.items():
        if not number.isascii() or not number.isdigit() or len(number) > 5 or not isinstance(interface, str):
            raise ServerConfigError(f"{name}: port {number!r}: {interface!r} (want {ADD_EXAMPLE})")
        port_names[int(number)] = interface
    return {"name": name, "device_id": device_id, "ports": port_names}


def read_config(path: Path) -> list[dict[str, Any]]:
    """A file of devices: a JSON list of {name, device_id, ports}. Raises ServerConfigError."""
    try:
        data = json.loads(path.read_bytes())
        if not isinstance(data, list):
            raise ServerConfigError(f"want a list of devices like {ADD_EXAMPLE}")
        return [_device(entry) for entry in data]
    except OSError as error:
        raise ServerConfigError(f"{path}: {error.strerror}") from None
    except ServerConfigError as error:
        raise ServerConfigError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ServerConfigError(f"{path}: not JSON: {error or type(error).__name__}") from None


async def run(settings: ServerSettings) -> None:
    """Serves until SIGTERM, SIGINT or `shutdown`. Prints one line `ready ...` when everything answers."""
    daemon = Daemon(settings)
    running = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, daemon.stopping.set)
    async with daemon:
        devices = len(list(daemon.registry))
        print(
            f"ready p4runtime={daemon.p4runtime_port} gnmi={daemon.gnmi_port} devices={devices} pid={os.getpid()}",
            flush=True,
        )
        await daemon.stopping.wait()
