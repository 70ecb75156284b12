"""IP packets of ordinary programs between two ports of a plane, beside MRC (hosts/ip/gateway.py).

::

    IPv6 40 | UDP 8: source port and flow label = EV (§1.4), destination port 6080, checksum 0 | IPv4 or IPv6 packet

That is Generic UDP Encapsulation, variant 1 (draft-ietf-intarea-gue). A checksum of 0 is allowed for tunnels
(RFC 6935). In srv6 mode the outer header of every packet of the fabric stands before it (encapsulation.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from mrc_testbed.hosts.engine.errors import WireError
from mrc_testbed.hosts.engine.wire.codec import Addressing, EncodedPacket, ev_to_fields

GUE_PORT = 6080
"""UDP destination port."""
IP_OVERHEAD = 48
"""Bytes before the carried packet, after Ethernet and an outer header."""
IP_MTU = 1500
"""Longest carried packet, bytes."""
_HEADER = Struct(">IHBB32sHHHH")  # word, length, next header, hop limit, SA and DA; ports, UDP length, checksum
_LENGTHS = Struct(">4xH38xH")  # IPv6 payload length; UDP length
_UDP, _HOP_LIMIT = 17, 64


@dataclass(slots=True)
class IpPacket:
    """Carried IP packet, the `payload`, with its EV and its class in the fabric (not the packet's own)."""

    ev: int
    payload: bytes
    dscp: int


def encode_ip(packet: IpPacket, addressing: Addressing, layout: str) -> EncodedPacket:
    """Return the packet between two ports as bytes. `layout`: Config.wire.ev_layout."""
    source_port, label = ev_to_fields(packet.ev, layout)
    length = 8 + len(packet.payload)
    # Not ECN-capable in the fabric (RFC 6040, compatibility mode): a full queue drops the packet.
    word = 6 << 28 | packet.dscp << 22 | label
    header = _HEADER.pack(word, length, _UDP, _HOP_LIMIT, addressing.pair, source_port, GUE_PORT, length, 0)
    return EncodedPacket(header, packet.payload, b"")


def carries_ip(inner: bytes | memoryview) -> bool:
    """Return whether a packet, from its inner IPv6 header on, is for GUE_PORT."""
    return len(inner) >= IP_OVERHEAD and inner[6] == _UDP and inner[42:44] == _GUE_PORT_BYTES


_GUE_PORT_BYTES = GUE_PORT.to_bytes(2, "big")


def carried_packet(inner: bytes | memoryview) -> bytes:
    """Return the IP packet in a packet for GUE_PORT. Raises WireError for contradicting lengths."""
    length, udp_length = _LENGTHS.unpack_from(inner)
    if udp_length != length or not 8 < length <= len(inner) - 40:
        raise WireError("IP over the fabric: wrong length")
    return bytes(inner[IP_OVERHEAD : 40 + length])
