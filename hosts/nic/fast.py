"""The default NIC: struct codec, one AF_PACKET socket a port, a receive ring, gathered sends. No scapy.

A send gathers outer header, inner header, payload and trailer, so that only the kernel copies the payload; what is
received stays in the ring until the engine has taken it.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator

from hosts.engine.config import Config
from hosts.engine.packets import Packet
from hosts.engine.wire import Codec, WireError
from hosts.links import LinkState
from hosts.nic.base import (
    ENCAPSULATION_BYTES,
    ETHERNET_BYTES,
    INNER_OVERHEAD,
    Nic,
    PortCounters,
    Received,
    drop_reason,
)
from hosts.nic.encapsulation import Decapsulation, Encapsulation
from hosts.nic.port import RETRY, RxRing, bind, clear_error, explain, open_socket
from topologies.plan import Host, Plan

BACKLOG_FRAMES = 1024
"""Frames a port keeps when the kernel takes no more for the moment; beyond that they are dropped and counted."""


class _Port:
    """Socket, ring and backlog of one interface. Closed and opened again when the interface is made anew."""

    def __init__(self, interface: str, frame_bytes: int) -> None:
        self.interface = interface
        self.backlog: deque[tuple[bytes | memoryview, ...]] = deque()
        self.socket: socket.socket = open_socket(interface, frame_bytes - ETHERNET_BYTES)
        try:
            self.ring = RxRing(self.socket, frame_bytes)
            self.index = bind(self.socket, interface)
        except BaseException:
            self.socket.close()
            raise

    def close(self) -> None:
        if self.socket.fileno() >= 0:
            self.ring.close()
            self.socket.close()


class FastNic(Nic):
    """AF_PACKET ports of `host`. Raises NicError when one cannot be opened."""

    kind = "fast"

    def __init__(self, plan: Plan, host: Host, config: Config) -> None:
        super().__init__(plan, host)
        self._codec = Codec(config)
        self._frame_bytes = ENCAPSULATION_BYTES + INNER_OVERHEAD + config.pmtu_bytes
        self._encapsulations: dict[tuple[int, str], Encapsulation] = {}
        self._opened: dict[int, _Port] = {}
        self._decapsulations = {p: Decapsulation(plan, host, p, self._codec) for p in self.ports}
        try:
            for plane, port in self.ports.items():
                self._opened[plane] = _Port(port.interface, self._frame_bytes)
        except BaseException:
            self.close()
            raise

    def filenos(self) -> dict[int, int]:
        return {plane: port.socket.fileno() for plane, port in self._opened.items()}

    @property
    def backlog(self) -> int:
        """Frames that wait because the kernel took no more."""
        return sum(len(port.backlog) for port in self._opened.values())

    # ---- out --------------------------------------------------------------------------------------------

    def send(self, plane: int, peer: str, packet: Packet) -> None:
        encapsulation = self._encapsulations.get((plane, peer))
        if encapsulation is None:
            encapsulation = Encapsulation(self.plan, self.host, self.plan.host(peer), plane)
            self._encapsulations[plane, peer] = encapsulation
        frame = self._codec.encode(packet, encapsulation.addressing)
        header = frame.header
        size = frame.size
        outer = encapsulation.outer(packet.ev, header[:4], size)
        counters, port = self.counters[plane], self._opened[plane]
        if port.backlog:
            self._queue(port, counters, (outer, *frame))
            return
        try:
            port.socket.sendmsg((outer, *frame))
        except OSError as error:
            self._send_failed(port, counters, (outer, *frame), error)
            return
        counters.tx_packets += 1
        counters.tx_bytes += size + ENCAPSULATION_BYTES

    def flush(self) -> None:
        for plane, port in self._opened.items():
            while port.backlog:
                pieces = port.backlog[0]
                try:
                    port.socket.sendmsg(pieces)
                except OSError as error:
                    if error.errno in RETRY:
                        break
                    self.counters[plane].tx_dropped[explain(error.errno)] += 1
                else:
                    self.counters[plane].tx_packets += 1
                    self.counters[plane].tx_bytes += sum(map(len, pieces))
                port.backlog.popleft()

    def _send_failed(self, port: _Port, counters: PortCounters, pieces: tuple, error: OSError) -> None:
        if error.errno in RETRY:
            self._queue(port, counters, pieces)
        else:
            counters.tx_dropped[explain(error.errno)] += 1

    @staticmethod
    def _queue(port: _Port, counters: PortCounters, pieces: tuple) -> None:
        if len(port.backlog) < BACKLOG_FRAMES:
            port.backlog.append(pieces)
        else:
            counters.tx_dropped["no buffer"] += 1

    # ---- in ---------------------------------------------------------------------------------------------

    def receive(self, limit: int) -> Iterator[Received]:
        for plane, port in self._opened.items():
            counters, unwrap = self.counters[plane], self._decapsulations[plane].open
            for frame in port.ring.frames(limit):
                if frame is None:
                    counters.rx_dropped["longer than the path MTU allows"] += 1
                    continue
                try:
                    peer, packet = unwrap(frame)
                except WireError as error:
                    counters.rx_dropped[drop_reason(error)] += 1
                    continue
                counters.rx_packets += 1
                counters.rx_bytes += len(frame)
                yield plane, peer, packet

    # ---- ports ------------------------------------------------------------------------------------------

    def link_changed(self, plane: int, state: LinkState) -> bool:
        port = self._opened[plane]
        clear_error(port.socket)
        if state.index in (0, port.index):
            return False
        self._opened[plane] = _Port(port.interface, self._frame_bytes)
        port.close()
        return True

    def refresh_counters(self) -> None:
        for plane, port in self._opened.items():
            if lost := port.ring.dropped():
                self.counters[plane].rx_dropped["ring full"] += lost

    def close(self) -> None:
        for port in self._opened.values():
            port.close()
