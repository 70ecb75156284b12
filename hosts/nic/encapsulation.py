"""What lies around an MRC packet: Ethernet and the outer SRv6 header, put on and taken off (reference §1.1, §1.2, §8).

Ethernet 14, outer IPv6 40, then what a codec made. The outer header repeats the first four bytes of the inner one
(version, DSCP, ECN, flow label; §1.2) and has hop limit 64; only its length and its destination change per packet, the
latter by two shifts from the template of the peer (§8.2).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct
from typing import Protocol

from hosts.engine.packets import Packet
from hosts.engine.wire import Addressing, WireError
from hosts.nic.base import ENCAPSULATION_BYTES, HOP_LIMIT
from topologies.plan import Host, Plan

_OUTER_TAIL = Struct(">HBB16s16s")  # payload length, next header 41, hop limit, source, destination
_FRAME = Struct(">12xHIHB17x16s8x16s16s")  # ethertype, outer word, length, next header; outer DA; inner SA, DA
_MAC_BYTE = re.compile(r"[0-9a-f]{2}")


class Decoder(Protocol):
    """Either codec."""

    def decode(self, packet: bytes | memoryview, plane: int, outer_traffic_class: int | None) -> Packet: ...


class Encapsulation:
    """Ethernet and outer header of one direction: from a port of ours to a peer's port of the same plane."""

    __slots__ = ("_address", "addressing", "ethernet", "source")

    def __init__(self, plan: Plan, here: Host, peer: Host, plane: int) -> None:
        port = plan.host_port(here, plane)
        above = plan.link_of_interface(port.interface).upper
        macs = "".join(_MAC_BYTE.findall(plan.mac(above) + plan.mac(port)))
        self.ethernet = bytes.fromhex(macs) + b"\x86\xdd"
        self.source = plan.address(here, plane).packed
        self._address: Callable[[int], int] = plan.template(here, peer).address
        self.addressing = Addressing(self.source, plan.address(peer, plane).packed)

    def destination(self, ev: int) -> bytes:
        """Outer destination address of packets with that EV."""
        return self._address(ev).to_bytes(16, "big")

    def outer(self, ev: int, first_word: bytes, inner_bytes: int) -> bytes:
        """The 54 bytes before an inner packet of `inner_bytes` whose first four bytes are `first_word`."""
        tail = _OUTER_TAIL.pack(inner_bytes, 41, HOP_LIMIT, self.source, self.destination(ev))
        return self.ethernet + first_word + tail


class Decapsulation:
    """What a port of ours takes off an arriving frame, and what it refuses (§8.1, last line)."""

    __slots__ = ("_codec", "_plane", "own_address", "own_usid", "peers")

    def __init__(self, plan: Plan, here: Host, plane: int, codec: Decoder) -> None:
        self.own_usid = plan.nic_address(here, plane).to_bytes(16, "big")
        self.own_address = plan.address(here, plane).packed
        self.peers = {plan.address(h, plane).packed: h.name for h in plan.hosts}
        self._plane = plane
        self._codec = codec

    def open(self, frame: bytes | memoryview) -> tuple[str, Packet]:
        """(sending host, record). Raises WireError for every frame that is not ours, whole and valid."""
        if len(frame) < _FRAME.size:
            raise WireError("shorter than its headers")
        ethertype, word, length, next_header, outer_da, inner_sa, inner_da = _FRAME.unpack_from(frame)
        if ethertype != 0x86DD or word >> 28 != 6 or next_header != 41:
            raise WireError("not ours: no IPv6 in IPv6")
        if outer_da != self.own_usid:
            raise WireError("not ours: outer address")
        if inner_da != self.own_address:
            raise WireError("not ours: inner address")
        peer = self.peers.get(inner_sa)
        if peer is None:
            raise WireError("not ours: unknown sender")
        inner = frame[ENCAPSULATION_BYTES : ENCAPSULATION_BYTES + length]
        return peer, self._codec.decode(inner, self._plane, word >> 20 & 0xFF)
