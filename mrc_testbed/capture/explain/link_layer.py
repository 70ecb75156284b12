"""Headers before the IP packet: Ethernet with VLAN tags, Linux cooked, loopback, raw IP."""

from __future__ import annotations

import struct
from typing import NamedTuple

from mrc_testbed.capture.packet_files import INBOUND, LINKTYPE_ETHERNET, OUTBOUND

ETHERTYPE_IPV4, ETHERTYPE_IPV6 = 0x0800, 0x86DD
VLAN_TAGS = frozenset((0x8100, 0x88A8, 0x9100))
"""Ethertypes of 802.1Q, 802.1ad (QinQ) and its older form."""
LINKTYPE_COOKED, LINKTYPE_COOKED_V2 = 113, 276
RAW_IP = {101: 0, 12: 0, 14: 0, 228: 0, 229: 0, 0: 4, 108: 4}
"""Bytes before the IP packet, by link type: raw IP, and loopback with its address family."""
READABLE = "Ethernet, Linux cooked (SLL, SLL2), loopback and raw IP"
LINK_NAMES = {9: "PPP", 105: "802.11", 127: "802.11 radiotap", 192: "PPI", 220: "USB", 247: "InfiniBand"}
"""Names of link types that are met in captures and not read."""
OUTGOING = 4
"""Packet type of a cooked header: sent by this machine. All others were received."""


class PacketLocation(NamedTuple):
    """Location of the packet in its frame, and what a cooked header tells of it."""

    ethertype: int
    offset: int
    direction: int = 0
    """INBOUND, OUTBOUND, or 0: not told."""
    interface_index: int = 0
    """Number that the capturing machine gave the interface; 0: not told."""


def is_readable(link_type: int) -> bool:
    """Whether `ip_packet` knows the link type."""
    return link_type in (LINKTYPE_ETHERNET, LINKTYPE_COOKED, LINKTYPE_COOKED_V2) or link_type in RAW_IP


def link_name(link_type: int) -> str:
    """Name of a link type with its number, `link type 105 (802.11)`."""
    name = LINK_NAMES.get(link_type)
    return f"link type {link_type}" + (f" ({name})" if name else "")


def ip_packet(frame: bytes, link_type: int) -> PacketLocation:
    """Find the packet behind the link layer. Raises ValueError where the frame ends before it."""
    try:
        if link_type == LINKTYPE_ETHERNET:
            (ethertype,) = struct.unpack_from("!H", frame, 12)
            packet = PacketLocation(ethertype, 14)
        elif link_type == LINKTYPE_COOKED:
            packet_type, ethertype = struct.unpack_from("!H12xH", frame)
            packet = PacketLocation(ethertype, 16, _direction(packet_type))
        elif link_type == LINKTYPE_COOKED_V2:
            ethertype, index, packet_type = struct.unpack_from("!HxxI2xB", frame)
            packet = PacketLocation(ethertype, 20, _direction(packet_type), index)
        elif link_type in RAW_IP:
            offset = RAW_IP[link_type]
            version = frame[offset] >> 4
            packet = PacketLocation({4: ETHERTYPE_IPV4, 6: ETHERTYPE_IPV6}.get(version, 0), offset)
        else:
            return PacketLocation(0, 0)
        while packet.ethertype in VLAN_TAGS:
            (ethertype,) = struct.unpack_from("!H", frame, packet.offset + 2)
            packet = packet._replace(ethertype=ethertype, offset=packet.offset + 4)
    except (struct.error, IndexError):
        raise ValueError("the frame ends in its link layer") from None
    return packet


def _direction(packet_type: int) -> int:
    return OUTBOUND if packet_type == OUTGOING else INBOUND
