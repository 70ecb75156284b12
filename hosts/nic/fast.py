"""Default NIC: struct codec, an AF_PACKET socket and receive ring per port, gathered sends, no scapy.

A send gathers outer header, inner header, payload and trailer, so that only the kernel copies the payload; a received
frame stays in the ring until the engine has taken it.

Writes, SACKs and Transport ACKs are built, sent, checked and taken by C where a compiler is installed (native.py). All
other packets, every frame that C finds wrong, and all packets without a compiler go through the Python code here. Both
do the same.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.errors import WireError
from mrc_testbed.hosts.engine.wire.codec import UDP_PORTS, Codec
from mrc_testbed.hosts.engine.wire.wire_variants import in_dialect, outer_words, speaks_dialect
from mrc_testbed.hosts.nic.base import (
    ENCAPSULATION_BYTES,
    ETHERNET_BYTES,
    INNER_OVERHEAD,
    NO_LIMIT,
    SRH_ROOM,
    AnyPacket,
    Nic,
    Outgoing,
    PortCounters,
    Received,
    check_config,
    drop_reason,
)
from mrc_testbed.hosts.nic.encapsulation import Decapsulation, Encapsulation, InnerPacket
from mrc_testbed.hosts.nic.ip_packet import IP_MTU, IP_OVERHEAD, IpPacket, carried_packet, carries_ip, encode_ip
from mrc_testbed.hosts.nic.native import native
from mrc_testbed.hosts.nic.netlink import LinkState
from mrc_testbed.hosts.nic.port import RETRY, RxRing, bind, clear_error, explain, open_socket
from mrc_testbed.hosts.nic.shared_wires import SharedWires, match_of
from mrc_testbed.topologies.plan import Host, Plan

BACKLOG_FRAMES = 1024
"""Frames a port keeps while the kernel takes no more; further ones are dropped and counted."""


class _Port:
    """Socket, ring and backlog of one interface. Closed and opened again when the interface is made anew.

    `c_port`: the port's half in C, attached while the socket is open; None = Python does everything.
    """

    def __init__(self, interface: str, frame_bytes: int, c_port: Any) -> None:
        self.interface = interface
        self.c_port = c_port
        self.backlog: deque[tuple[bytes | memoryview, ...]] = deque()
        self.socket: socket.socket = open_socket(interface, frame_bytes - ETHERNET_BYTES)
        try:
            self.ring = RxRing(self.socket, frame_bytes)
            self.index = bind(self.socket, interface)
            if c_port is not None:
                c_port.attach(self.socket.fileno(), self.ring.memory, *self.ring.shape)
        except BaseException:
            self.socket.close()
            raise

    def send_by_wire(self, pieces: tuple[bytes | memoryview, ...]) -> bool:
        """Put a frame on the shared wire; return False without one for it. Raises OSError when full."""
        error_code = -1 if self.c_port is None else self.c_port.put(b"".join(pieces))
        if error_code > 0:
            raise OSError(error_code, os.strerror(error_code))
        return bool(error_code == 0)

    def close(self) -> None:
        if self.socket.fileno() >= 0:
            if self.c_port is not None:
                self.c_port.detach()
            self.ring.close()
            self.socket.close()


class FastNic(Nic):
    """AF_PACKET ports of `host`. Raises NicError when one cannot be opened.

    `module`: the compiled half, None to do without; by default as native.py finds it.
    """

    kind = "fast"
    carries_ip = True

    def __init__(self, plan: Plan, host: Host, config: Config, module: ModuleType | str | None = "auto") -> None:
        super().__init__(plan, host)
        self._module: Any = native() if module == "auto" else module
        check_config(config)
        self._codec = in_dialect(Codec(config), config, plan.mode.outer_header)
        self._outer_word = outer_words(self._codec)
        if speaks_dialect(config):
            self._module = None  # the compiled half writes and reads the default bytes alone
        self._frame_bytes = (
            ENCAPSULATION_BYTES + SRH_ROOM + max(INNER_OVERHEAD + config.qp.pmtu_bytes, IP_OVERHEAD + IP_MTU)
        )
        self._encapsulations: dict[tuple[int, str], Encapsulation] = {}
        self._routes: dict[tuple[int, str], Any] = {}
        """Encapsulations of the compiled half, by plane and peer."""
        self._open_ports: dict[int, _Port] = {}
        self._compiled_ports: tuple[Any, ...] = ()
        """C halves of the ports by plane."""
        self._waiting = 0
        """Frames in all backlogs."""
        self._decapsulations = {p: Decapsulation(plan, host, p, self._codec) for p in self.ports}
        self._take = {p: partial(self._take_in_python, p) for p in self.ports}
        self._config = config
        self._wires: SharedWires | None = None
        try:
            for plane in self.ports:
                self._open(plane)
        except BaseException:
            self.close()
            raise

    def _c_port(self, plane: int) -> Any:
        """Return the C half of a port, or None."""
        if self._module is None:
            return None
        decapsulation, config = self._decapsulations[plane], self._config
        return self._module.Port(
            plane=plane,
            own_usid=decapsulation.own_usid,
            own_address=decapsulation.own_address,
            peers=decapsulation.peers,
            ports=tuple(UDP_PORTS | {config.wire.udp_dport}),
            dport=config.wire.udp_dport,
            pkey=config.wire.pkey,
            low=config.wire.ev_layout == "L",
            trimmed=(config.dscp.trimmed, config.dscp.trimmed_lasthop),
        )

    def _open(self, plane: int) -> None:
        port = _Port(self.ports[plane].interface, self._frame_bytes, self._c_port(plane))
        self._open_ports[plane] = port
        if port.c_port is not None:
            for (route_plane, peer), route in self._routes.items():
                if route_plane == plane:
                    port.c_port.add_route(peer, route)
        self._compiled_ports = tuple(
            self._open_ports[p].c_port if p in self._open_ports else None for p in range(self.plan.planes)
        )

    def filenos(self) -> dict[int, int]:
        return {plane: port.socket.fileno() for plane, port in self._open_ports.items()}

    def share(self, path: Path, qpns: range) -> None:
        if self._module is None:
            return  # Python alone takes no shared wire
        interfaces = {
            plane: self.plan.link_of_interface(port.interface).upper.interface for plane, port in self.ports.items()
        }
        match = match_of(qpns, outer=self.plan.mode.outer_header)
        self._wires = SharedWires(
            path, interfaces, self._frame_bytes, match, lambda plane: self._open_ports[plane].c_port
        )

    def wire_filenos(self) -> list[int]:
        return [] if self._wires is None else [self._wires.fileno()]

    @property
    def shared_planes(self) -> frozenset[int]:
        """Planes whose frames go over memory shared with the switch."""
        return frozenset() if self._wires is None else self._wires.planes

    @property
    def backlog(self) -> int:
        """Frames that wait because the kernel took no more."""
        return self._waiting

    def room(self) -> list[int] | None:
        if not self._waiting:
            return None
        free_planes = {plane for plane, port in self._open_ports.items() if not port.backlog}
        return [NO_LIMIT if plane in free_planes else 0 for plane in range(self.plan.planes)]

    @property
    def is_compiled(self) -> bool:
        """Whether the compiled half is in use."""
        return self._module is not None

    # ---- out --------------------------------------------------------------------------------------------

    def add_route(self, plane: int, peer: str, encapsulation: Encapsulation) -> None:
        """Set the encapsulation towards `peer` on a plane, in place of the plan's.

        tools/bench/ has no switch between two hosts.
        """
        self._encapsulations[plane, peer] = encapsulation
        if self._module is not None:
            route = self._routes[plane, peer] = self._module.Route(
                encapsulation.ethernet, encapsulation.source, encapsulation.addressing.pair, encapsulation.destination
            )
            self._open_ports[plane].c_port.add_route(peer, route)

    def _route(self, plane: int, peer: str) -> Any:
        if (plane, peer) not in self._encapsulations:
            self.add_route(plane, peer, Encapsulation(self.plan, self.host, self.plan.host(peer), plane))
        return self._routes.get((plane, peer))

    def send_many(self, packets: Sequence[Outgoing]) -> None:
        if self._module is None or len(packets) == 1:
            super().send_many(packets)
            return
        ports, index = self._compiled_ports, 0
        while True:
            refusals: list[tuple[int, int]] = []
            index = self._module.send_many(ports, packets, index, self._blocked_planes(), refusals)
            for packet_index, code in refusals:
                plane, peer, packet = packets[packet_index]
                frame = self._open_ports[plane].c_port.build(self._routes[plane, peer], packet)
                self._send_failed(self._open_ports[plane], self._counters[plane], (frame,), OSError(code, ""))
            if index == len(packets):
                return
            if not refusals:
                self.send(*packets[index])
                index += 1

    def _blocked_planes(self) -> int:
        """Return the planes whose ports have a backlog that nothing may overtake, one bit each."""
        if not self._waiting:
            return 0
        return sum(1 << plane for plane, port in self._open_ports.items() if port.backlog)

    def send(self, plane: int, peer: str, packet: AnyPacket) -> None:
        route = self._routes.get((plane, peer)) or self._route(plane, peer)
        port = self._open_ports[plane]
        if route is not None and not port.backlog:
            error_code = port.c_port.send(route, packet)
            if error_code == 0:
                return
            if error_code > 0:
                frame = port.c_port.build(route, packet)
                self._send_failed(port, self._counters[plane], (frame,), OSError(error_code, ""))
                return
        self._send_in_python(port, plane, peer, packet)

    def _send_in_python(self, port: _Port, plane: int, peer: str, packet: AnyPacket) -> None:
        encapsulation = self._encapsulations[plane, peer]
        if type(packet) is IpPacket:
            frame = encode_ip(packet, encapsulation.addressing, self._config.wire.ev_layout)
        else:
            frame = self._codec.encode(packet, encapsulation.addressing)
        header = frame.header
        size = frame.size
        first_word = header[:4] if self._outer_word is None else self._outer_word(header, packet.ev)
        outer = encapsulation.outer(packet.ev, first_word, size)
        counters = self._counters[plane]
        if port.backlog:
            self._queue(port, counters, (outer, *frame))
            return
        try:
            port.socket.sendmsg((outer, *frame))
        except OSError as error:
            self._send_failed(port, counters, (outer, *frame), error)
            return
        counters.tx_packets += 1
        counters.tx_bytes += size + len(outer)

    def flush(self) -> None:
        if self._wires is not None and self._wires.is_incomplete:
            self._wires.advance()
        if not self._waiting:
            return
        for plane, port in self._open_ports.items():
            while port.backlog:
                pieces = port.backlog[0]
                try:
                    if port.send_by_wire(pieces):
                        port.backlog.popleft()
                        self._waiting -= 1
                        continue
                    port.socket.sendmsg(pieces)
                except OSError as error:
                    if error.errno in RETRY:
                        break
                    self._counters[plane].tx_dropped[explain(error.errno)] += 1
                else:
                    self._counters[plane].tx_packets += 1
                    self._counters[plane].tx_bytes += sum(map(len, pieces))
                port.backlog.popleft()
                self._waiting -= 1

    def _send_failed(
        self, port: _Port, counters: PortCounters, pieces: tuple[bytes | memoryview, ...], error: OSError
    ) -> None:
        if error.errno in RETRY:
            self._queue(port, counters, pieces)
        else:
            counters.tx_dropped[explain(error.errno)] += 1

    def _queue(self, port: _Port, counters: PortCounters, pieces: tuple[bytes | memoryview, ...]) -> None:
        if len(port.backlog) < BACKLOG_FRAMES:
            port.backlog.append(pieces)
            self._waiting += 1
        else:
            counters.tx_dropped["no buffer"] += 1

    # ---- in ---------------------------------------------------------------------------------------------

    def receive(self, limit: int) -> Iterable[Received]:
        if self._module is None:
            return self._receive_in_python(limit)
        received: list[Received] = []
        for plane, port in self._open_ports.items():
            is_wire_ended = port.c_port.receive(limit, received, self._take[plane])
            if is_wire_ended and self._wires is not None:
                self._wires.end(plane)
        return received

    def _receive_in_python(self, limit: int) -> Iterator[Received]:
        for plane, port in self._open_ports.items():
            for frame in port.ring.frames(limit):
                received = self._take[plane](frame)
                if received is not None:
                    yield received

    def _take_in_python(self, plane: int, frame: bytes | memoryview | None) -> Received | None:
        """Return the record of a frame, or None when the frame was counted as dropped.

        A `frame` of None was longer than a slot.
        """
        counters, decapsulation = self._counters[plane], self._decapsulations[plane]
        if frame is None:
            counters.rx_dropped["longer than the path MTU allows"] += 1
            return None
        try:
            inner = decapsulation.unwrap(frame)
            if carries_ip(inner.data):
                self._take_ip(inner)
                packet = None
            else:
                packet = decapsulation.decode(inner)
        except WireError as error:
            counters.rx_dropped[drop_reason(error)] += 1
            return None
        counters.rx_packets += 1
        counters.rx_bytes += len(frame)
        return None if packet is None else (plane, inner.peer, packet)

    def _take_ip(self, inner: InnerPacket) -> None:
        """Hand a carried IP packet to its receiver. Raises WireError."""
        if self._ip_receiver is None:
            raise WireError("not ours: IP, and no interface for it")
        self._ip_receiver(inner.peer, carried_packet(inner.data))

    # ---- ports ------------------------------------------------------------------------------------------

    def link_changed(self, plane: int, state: LinkState) -> bool:
        port = self._open_ports[plane]
        clear_error(port.socket)
        if self._wires is not None:
            self._wires.set_closed(plane, "down", not state.up)
        if state.index in (0, port.index):
            return False
        if self._wires is not None:
            self._wires.end(plane)
        self._open(plane)
        self._collect(plane, port)
        self._waiting -= len(port.backlog)
        port.close()
        return True

    def capture_changed(self, plane: int, is_captured: bool) -> None:
        if self._wires is not None:
            self._wires.set_closed(plane, "captured", is_captured)

    @property
    def counters(self) -> dict[int, PortCounters]:
        for plane, port in self._open_ports.items():
            self._collect(plane, port)
        return self._counters

    def _collect(self, plane: int, port: _Port) -> None:
        """Add the counts of the compiled half since the last call."""
        if port.c_port is not None:
            counters = self._counters[plane]
            tx_packets, tx_bytes, rx_packets, rx_bytes = port.c_port.take_counts()
            counters.tx_packets += tx_packets
            counters.tx_bytes += tx_bytes
            counters.rx_packets += rx_packets
            counters.rx_bytes += rx_bytes

    def refresh_counters(self) -> None:
        for plane, port in self._open_ports.items():
            lost = port.ring.dropped() + (0 if self._wires is None else self._wires.take_lost(plane))
            if lost:
                self._counters[plane].rx_dropped["ring full"] += lost

    def close(self) -> None:
        if self._wires is not None:
            self._wires.close()
        for port in self._open_ports.values():
            port.close()
