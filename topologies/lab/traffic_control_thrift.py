"""TrafficControl of BMv2: what simple_switch offers over Thrift, and a clear refusal of the rest.

simple_switch counts packets, not bits: a rate in bits/s becomes packets/s of full frames of the plan's path MTU, so
small data packets leave slower than on a real link (a link of 10 Mb/s carries 1,072 frames of 1,166 bytes a second). A
rate of a port limits each of its priorities by itself (docs/design/bmv2.md), so it is set for each: the control
priority gets packets/s of trimmed frames, and has the link's rate again beside the data. simple_switch tells no depths
and no counters of its queues: the depth of a data queue is what our program keeps of it in a register. Nothing in
simple_switch delays, loses or corrupts packets; the cables between switches lose and corrupt
(topologies/lab/cables.py).
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from thriftpy2 import load_fp
from thriftpy2.protocol import TBinaryProtocol, TMultiplexedProtocol
from thriftpy2.thrift import TClient, TException
from thriftpy2.transport import TBufferedTransport, TSocket

from mrc_testbed.topologies.lab.cables import FIGURES, Cables
from mrc_testbed.topologies.lab.traffic_control import (
    CABLE_FIGURES,
    CONTROL,
    DATA,
    DIRECTIONS,
    PortTraffic,
    Queue,
    Setting,
    TrafficControl,
    TrafficError,
)
from mrc_testbed.topologies.plan import Plan

SERVICE, STANDARD_SERVICE = "simple_switch", "standard"
"""Names under which simple_switch registers the two services in its multiplexed server."""
IDL = """
service SimpleSwitch {
    i32 set_egress_priority_queue_depth(1: i32 port_num, 2: i32 priority, 3: i32 depth_pkts)
    i32 set_egress_priority_queue_rate(1: i32 port_num, 2: i32 priority, 3: i64 rate_pps)
}
service Standard {
    i64 bm_register_read(1: i32 cxt_id, 2: string register_array_name, 3: i32 idx)
}
"""
DEPTH_REGISTER = "queue_depth"
"""Packets in the data queue of each port, as the egress discipline last saw it (p4src/egress.p4)."""
TIMEOUT_MS = 5000
"""A bound for an answer of a BMv2 switch, milliseconds."""
DEFAULT_DEPTH = 64
"""Packets that simple_switch queues when nothing is set; it has no "no limit"."""
SWALLOW = "swallow"
"""Figure of a port that only this target has: it loses all that would leave by it."""
CANNOT = {
    "delay-us": "delay packets",
    "max-bytes": "limit a queue in bytes (give packets)",
}

_idl = load_fp(io.StringIO(IDL), "mrc_simple_switch_thrift")


class ThriftTraffic(TrafficControl):
    """`address(device_id)` -> (host, TCP port) of a switch's Thrift server."""

    def __init__(self, plan: Plan, address: Callable[[int], tuple[str, int]], cables: Cables) -> None:
        super().__init__(plan)
        self._cables = cables
        self._address = address
        self._lock = threading.Lock()
        self._clients: dict[str, tuple[dict[str, TClient], Any]] = {}
        """Clients of each switch's services with the connection that they share, by switch."""
        self._swallowing: set[str] = set()
        """Ports whose queues have no room at all: a black hole."""
        self._set: dict[str, PortTraffic] = {}
        """Settings made, for simple_switch does not report them."""

    # ---- what can be done -------------------------------------------------------------------------------

    def pps(self, rate_bps: float, priority: int = DATA) -> int:
        """Return the packets/s nearest to a rate, at least one.

        Counted in full frames, or in trimmed frames for the control priority.
        """
        size = self.plan.trim_bytes if priority == CONTROL else self.plan.frame_bytes()
        return max(1, round(rate_bps / 8 / size))

    def rate_note(self, rate_bps: float) -> str:
        return f"as {self.pps(rate_bps):,} packets/s of {self.plan.frame_bytes()} bytes, for BMv2 counts packets"

    def cannot(self, setting: Setting) -> str | None:
        if setting.figure not in CANNOT or not setting.value:
            return None
        return (
            f"BMv2 cannot {CANNOT[setting.figure]}; it can limit rates in packets/s and queue depths in packets, its "
            "cables can lose and corrupt packets, and --target embedded can do all of it"
        )

    def _apply(self, settings: list[Setting]) -> None:
        self._cables.apply(setting for setting in settings if setting.figure in FIGURES)
        with self._lock:
            for interface in dict.fromkeys(setting.interface for setting in settings):
                self._apply_port(interface, [setting for setting in settings if setting.interface == interface])

    def _apply_port(self, interface: str, settings: list[Setting]) -> None:
        """Change the stored settings, and send the queues that differ.

        A port's rate is the rate of each of its queues.
        """
        old_traffic = self._set.get(interface, PortTraffic(interface))
        new_traffic = old_traffic
        for setting in settings:
            if setting.figure == SWALLOW:
                self._swallow(interface, bool(setting.value))
                continue
            if setting.figure in CABLE_FIGURES or setting.figure == "max-bytes":
                continue  # 0, as it is anyway
            change: dict[str, Any] = {setting.figure.replace("-", "_"): int(setting.value) or None}
            if setting.priority is None:
                new_traffic = replace(new_traffic, **change)
            else:
                queues = list(new_traffic.queues)
                queues[setting.priority] = replace(queues[setting.priority], **change)
                new_traffic = replace(new_traffic, queues=tuple(queues))
        self._send(interface, old_traffic, new_traffic)

    def _send(self, interface: str, old_traffic: PortTraffic, new_traffic: PortTraffic) -> None:
        """Make the switch go from `old` to `new`, and remember it."""
        port = self.port(interface)
        for old_queue, queue in zip(old_traffic.queues, new_traffic.queues, strict=True):
            if (rate := self._queue_pps(new_traffic, queue)) != self._queue_pps(old_traffic, old_queue):
                self._call(port.node, "set_egress_priority_queue_rate", port.number, queue.priority, rate)
            if queue.max_packets != old_queue.max_packets and interface not in self._swallowing:
                depth = queue.max_packets or DEFAULT_DEPTH
                self._call(port.node, "set_egress_priority_queue_depth", port.number, queue.priority, depth)
        self._set[interface] = new_traffic

    def black_hole(self, interfaces: Iterable[str]) -> list[Setting]:
        return [Setting(interface, SWALLOW, 1) for interface in interfaces]

    def _swallow(self, interface: str, swallows: bool) -> None:
        """Queues without room lose packets inside the switch and tell nobody, as a broken one does."""
        port = self.port(interface)
        (self._swallowing.add if swallows else self._swallowing.discard)(interface)
        for queue in self._set.get(interface, PortTraffic(interface)).queues:
            depth = 0 if swallows else queue.max_packets or DEFAULT_DEPTH
            self._call(port.node, "set_egress_priority_queue_depth", port.number, queue.priority, depth)

    def _queue_pps(self, port: PortTraffic, queue: Queue) -> int:
        """Packets/s of a priority: the lowest of all that limits it; 0: no limit."""
        rates = [source.rate_pps for source in (port, queue) if source.rate_pps]
        rates += [self.pps(source.rate_bps, queue.priority) for source in (port, queue) if source.rate_bps]
        return min(rates, default=0)

    def read(self, interface: str) -> PortTraffic:
        """Settings made through this object, and the depth of the data queue; other counters of queues are 0."""
        settings = self._set.get(interface, PortTraffic(interface))
        depth = self.depth_packets(interface)
        data = replace(settings.queues[DATA], depth_packets=depth, depth_bytes=depth * self.plan.frame_bytes())
        ways: dict[str, Any] = {way: self._cables.read(interface, way) for way in DIRECTIONS}
        return replace(
            settings, queues=tuple(data if queue.priority == DATA else queue for queue in settings.queues), **ways
        )

    def depth_packets(self, interface: str) -> int:
        """Packets in the data queue of a port. Raises TrafficError."""
        port = self.port(interface)
        with self._lock:
            return int(
                self._service_call(port.node, STANDARD_SERVICE, "bm_register_read", 0, DEPTH_REGISTER, port.number)
            )

    def on_switch_restart(self, switch: str) -> None:
        """Apply the stored settings again, because simple_switch restarts with default queues."""
        with self._lock:
            self._hang_up(switch)
            for port in self.plan.ports(switch):
                settings = self._set.pop(port.interface, None)
                if settings is not None:
                    self._send(port.interface, PortTraffic(port.interface), settings)
                if port.interface in self._swallowing:
                    self._swallow(port.interface, True)

    # ---- the connections --------------------------------------------------------------------------------

    def _call(self, switch: str, method: str, *arguments: int) -> None:
        if code := self._service_call(switch, SERVICE, method, *arguments):
            raise TrafficError(f"{switch}: simple_switch refused {method}{arguments} with code {code}")

    def _service_call(self, switch: str, service: str, method: str, *arguments: int | str) -> int:
        try:
            result: int = getattr(self._client(switch)[service], method)(*arguments)
            return result
        except (OSError, TException, EOFError) as error:
            self._hang_up(switch)
            host, port = self._address(self.plan.switch(switch).device_id)
            raise TrafficError(
                f"{switch}: its Thrift server at {host}:{port} does not answer {method}: "
                f"{getattr(error, 'message', None) or error}: does simple_switch_grpc run, built with Thrift?"
            ) from None

    def _client(self, switch: str) -> dict[str, TClient]:
        if switch not in self._clients:
            host, port = self._address(self.plan.switch(switch).device_id)
            transport = TBufferedTransport(TSocket(host, port, socket_timeout=TIMEOUT_MS))
            transport.open()
            services = {SERVICE: _idl.SimpleSwitch, STANDARD_SERVICE: _idl.Standard}
            protocols: dict[str, Any] = {
                name: TMultiplexedProtocol(TBinaryProtocol(transport), name) for name in services
            }
            clients = {name: TClient(service, protocols[name]) for name, service in services.items()}
            self._clients[switch] = clients, transport
        return self._clients[switch][0]

    def _hang_up(self, switch: str) -> None:
        client = self._clients.pop(switch, None)
        if client is not None:
            client[1].close()

    def close(self) -> None:
        with self._lock:
            for switch in list(self._clients):
                self._hang_up(switch)


__all__ = ["DEFAULT_DEPTH", "IDL", "SERVICE", "ThriftTraffic"]
