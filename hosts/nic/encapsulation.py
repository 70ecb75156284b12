"""Encapsulation and decapsulation: Ethernet, in srv6 mode also the outer header (§1.1, §1.2, §8).

srv6: Ethernet 14, outer IPv6 40, then the codec's bytes. The outer header repeats the first four bytes of the inner one
(version, DSCP, ECN, flow label; §1.2) and has hop limit 64; only its length and its destination change per packet, the
latter by two shifts from the template of the peer (§8.2). On the way in a segment routing header may stand between the
two, used up (Segments Left 0): for paths that do not fit one address, or with a copy of the original one (RFC 8754).

The other modes (stev, ecmp, switch-spray, flow-ecmp): Ethernet 14, then the codec's bytes. The EV is in the UDP source
port and the flow label (§1.4).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from mrc_testbed.hosts.engine.errors import WireError
from mrc_testbed.hosts.engine.wire.codec import Addressing
from mrc_testbed.hosts.engine.wire.packets import PacketRecord
from mrc_testbed.hosts.engine.wire.wire_variants import AnyCodec
from mrc_testbed.hosts.nic.base import ENCAPSULATION_BYTES, ETHERNET_BYTES, HOP_LIMIT
from mrc_testbed.topologies.plan import Host, Plan

_OUTER_TAIL = Struct(">HBB16s16s")  # payload length, next header 41, hop limit, source, destination
_OUTER = Struct(">12xHIHB17x16s")  # ethertype, outer word, length, next header; outer DA
_PLAIN = Struct(">12xHIHx1x16s16s")  # ethertype, word, length; SA, DA
_ENDS = Struct(">8x16s16s")  # inner SA, DA
_SRH = Struct(">BBBB")  # next header, length in 8 bytes without the first 8, routing type, segments left
_MAC_BYTE = re.compile(r"[0-9a-f]{2}")
IPV6_IN_IPV6, ROUTING_HEADER, SEGMENT_ROUTING = 41, 43, 4
IPV6_BYTES = 40


class Encapsulation:
    """Bytes before the inner packet, from a local port to a peer's port of the same plane.

    `address(ev)`: outer destination as a number; by default as the plan has it, through the switches.
    """

    __slots__ = ("_address", "addressing", "ethernet", "outer_header", "source")

    def __init__(
        self, plan: Plan, host: Host, peer: Host, plane: int, address: Callable[[int], int] | None = None
    ) -> None:
        port = plan.host_port(host, plane)
        uplink_port = plan.link_of_interface(port.interface).upper
        macs = "".join(_MAC_BYTE.findall(plan.mac(uplink_port) + plan.mac(port)))
        self.ethernet = bytes.fromhex(macs) + b"\x86\xdd"
        self.source = plan.address(host, plane).packed
        self.outer_header = plan.mode.outer_header
        """Whether there is more than Ethernet."""
        self._address: Callable[[int], int] = plan.template(host, peer).address if address is None else address
        self.addressing = Addressing(self.source, plan.address(peer, plane).packed)

    @property
    def size(self) -> int:
        """Number of bytes before the inner packet."""
        return ENCAPSULATION_BYTES if self.outer_header else ETHERNET_BYTES

    def destination(self, ev: int) -> bytes:
        """Return the outer destination address of packets with that EV (srv6 mode)."""
        return self._address(ev).to_bytes(16, "big")

    def outer(self, ev: int, first_word: bytes, inner_bytes: int) -> bytes:
        """Return the `size` bytes before an inner packet of `inner_bytes` that begins with `first_word`."""
        if not self.outer_header:
            return self.ethernet
        tail = _OUTER_TAIL.pack(inner_bytes, IPV6_IN_IPV6, HOP_LIMIT, self.source, self.destination(ev))
        return self.ethernet + first_word + tail


class InnerPacket(NamedTuple):
    """Packet of a frame from its inner IPv6 header on, with fields of the outer header.

    None: the mode has no outer header.
    """

    peer: str
    """Sending host."""
    data: bytes | memoryview
    traffic_class: int | None
    label: int | None


class Decapsulation:
    """Decapsulation of frames that arrive at a local port, and its refusals (§8.1, last line)."""

    __slots__ = ("_codec", "_plane", "own_address", "own_usid", "peers", "unwrap")

    def __init__(self, plan: Plan, host: Host, plane: int, codec: AnyCodec) -> None:
        outer = plan.mode.outer_header
        self.own_usid = plan.nic_address(host, plane).to_bytes(16, "big") if outer else b""
        """Outer destination of frames for this port; empty in modes without an outer header."""
        self.own_address = plan.address(host, plane).packed
        self.peers = {plan.address(h, plane).packed: h.name for h in plan.hosts}
        self._plane = plane
        self._codec = codec
        self.unwrap: Callable[[bytes | memoryview], InnerPacket] = self._unwrap_outer if outer else self._unwrap_plain
        """Function from a frame to its packet. Raises WireError for a frame that is not for this port."""

    def open(self, frame: bytes | memoryview) -> tuple[str, PacketRecord]:
        """Return (sending host, record) of a frame; WireError unless it is for this port, whole and valid."""
        packet = self.unwrap(frame)
        return packet.peer, self.decode(packet)

    def decode(self, packet: InnerPacket) -> PacketRecord:
        """Return the record of an MRC packet. Raises WireError."""
        record: PacketRecord = self._codec.decode(packet.data, self._plane, packet.traffic_class, packet.label)
        return record

    def _unwrap_outer(self, frame: bytes | memoryview) -> InnerPacket:
        if len(frame) < ENCAPSULATION_BYTES + IPV6_BYTES:
            raise WireError("shorter than its headers")
        ethertype, word, length, next_header, outer_da = _OUTER.unpack_from(frame)
        if ethertype != 0x86DD or word >> 28 != 6:
            raise WireError("not ours: no IPv6 in IPv6")
        if outer_da != self.own_usid:
            raise WireError("not ours: outer address")
        inner = frame[ENCAPSULATION_BYTES : ENCAPSULATION_BYTES + length]
        if next_header == ROUTING_HEADER:
            inner = _after_srh(inner)
        elif next_header != IPV6_IN_IPV6:
            raise WireError("not ours: no IPv6 in IPv6")
        if len(inner) < IPV6_BYTES:
            raise WireError("shorter than its headers")
        peer = self._peer(*_ENDS.unpack_from(inner))
        return InnerPacket(peer, inner, word >> 20 & 0xFF, word & 0xFFFFF)

    def _unwrap_plain(self, frame: bytes | memoryview) -> InnerPacket:
        if len(frame) < ETHERNET_BYTES + IPV6_BYTES:
            raise WireError("shorter than its headers")
        ethertype, word, length, source, destination = _PLAIN.unpack_from(frame)
        if ethertype != 0x86DD or word >> 28 != 6:
            raise WireError("not ours: no IPv6")
        peer = self._peer(source, destination)
        # What follows the announced length is padding that Ethernet asks for.
        return InnerPacket(peer, frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV6_BYTES + length], None, None)

    def _peer(self, source: bytes, destination: bytes) -> str:
        if destination != self.own_address:
            raise WireError("not ours: inner address")
        peer = self.peers.get(source)
        if peer is None:
            raise WireError("not ours: unknown sender")
        return peer


def _after_srh(packet: bytes | memoryview) -> bytes | memoryview:
    """Return the packet behind a used-up segment routing header. Raises WireError for any other header."""
    if len(packet) < 8:
        raise WireError("shorter than its headers")
    next_header, units, kind, segments_left = _SRH.unpack_from(packet)
    if kind != SEGMENT_ROUTING or next_header != IPV6_IN_IPV6:
        raise WireError("not ours: no IPv6 behind a segment routing header")
    if segments_left:
        raise WireError("not ours: segments left")
    return packet[8 + 8 * units :]
