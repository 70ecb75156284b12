"""The default NIC: struct codec, one AF_PACKET socket a port, a receive ring, gathered sends. No scapy.

Frame on the wire (reference §1.1): Ethernet 14, outer IPv6 40, then what the codec made. The outer header
repeats the first four bytes of the inner one (version, DSCP, ECN, flow label; §1.2) and has hop limit 64; only
its length and its destination change per packet, the latter by two shifts from the template of the peer (§8.2).
"""

from __future__ import annotations

import re
import socket
from collections import deque
from collections.abc import Callable, Iterator
from struct import Struct

from hosts.engine.config import Config
from hosts.engine.packets import Packet
from hosts.engine.wire import Addressing, Codec, WireError
from hosts.links import LinkState
from hosts.nic.base import (
    ENCAPSULATION_BYTES,
    ETHERNET_BYTES,
    HOP_LIMIT,
    INNER_OVERHEAD,
    Nic,
    PortCounters,
    Received,
    drop_reason,
)
from hosts.nic.port import RETRY, RxRing, bind, clear_error, explain, open_socket
from topologies.plan import Host, Plan

_OUTER_TAIL = Struct(">HBB16s16s")  # payload length, next header 41, hop limit, source, destination
_FRAME = Struct(">12xHIHB17x16s8x16s16s")  # ethertype, outer word, length, next header; outer DA; inner SA, DA
_MAC = re.compile(r"[0-9a-f]{2}")

BACKLOG_FRAMES = 1024
"""Frames a port keeps when the kernel takes no more for the moment; beyond that they are dropped and counted."""


class Encapsulation:
    """Ethernet and outer header of one direction: from a port of ours to a peer's port of the same plane."""

    __slots__ = ("_address", "_ethernet", "_source", "addressing")

    def __init__(self, plan: Plan, here: Host, peer: Host, plane: int) -> None:
        port = plan.host_port(here, plane)
        above = plan.link_of_interface(port.interface).upper
        macs = "".join(_MAC.findall(plan.mac(above) + plan.mac(port)))
        self._ethernet = bytes.fromhex(macs) + b"\x86\xdd"
        self._source = plan.address(here, plane).packed
        self._address: Callable[[int], int] = plan.template(here, peer).address
        self.addressing = Addressing(self._source, plan.address(peer, plane).packed)

    def outer(self, ev: int, first_word: bytes, inner_bytes: int) -> bytes:
        """The 54 bytes before an inner packet of `inner_bytes` whose first four bytes are `first_word`."""
        destination = self._address(ev).to_bytes(16, "big")
        tail = _OUTER_TAIL.pack(inner_bytes, 41, HOP_LIMIT, self._source, destination)
        return self._ethernet + first_word + tail


class Decapsulation:
    """What a port of ours takes off an arriving frame, and what it refuses (§8.1, last line)."""

    __slots__ = ("_codec", "_own_address", "_own_usid", "_peers", "_plane")

    def __init__(self, plan: Plan, here: Host, plane: int, codec: Codec) -> None:
        self._own_usid = plan.nic_address(here, plane).to_bytes(16, "big")
        self._own_address = plan.address(here, plane).packed
        self._peers = {plan.address(h, plane).packed: h.name for h in plan.hosts}
        self._plane = plane
        self._codec = codec

    def open(self, frame: bytes | memoryview) -> tuple[str, Packet]:
        """(sending host, record). Raises WireError for every frame that is not ours, whole and valid."""
        if len(frame) < _FRAME.size:
            raise WireError("shorter than its headers")
        ethertype, word, length, next_header, outer_da, inner_sa, inner_da = _FRAME.unpack_from(frame)
        if ethertype != 0x86DD or word >> 28 != 6 or next_header != 41:
            raise WireError("not ours: no IPv6 in IPv6")
        if outer_da != self._own_usid:
            raise WireError("not ours: outer address")
        if inner_da != self._own_address:
            raise WireError("not ours: inner address")
        peer = self._peers.get(inner_sa)
        if peer is None:
            raise WireError("not ours: unknown sender")
        inner = frame[ENCAPSULATION_BYTES : ENCAPSULATION_BYTES + length]
        return peer, self._codec.decode(inner, self._plane, word >> 20 & 0xFF)


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
