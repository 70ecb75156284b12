"""Invariant CRC of RoCEv2 (mrc-protocol §3).

CRC-32 of the inner packet, fields that change in flight masked.

The masked copy is short: only the first 60 (IPv6) or 40 (IPv4) bytes hold masked fields, and the rest of the
packet, payload included, is read where it lies. The four bytes go on the wire least significant first.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

LRH: Final = b"\xff" * 8
"""Stand-in for InfiniBand's local route header."""
SIZE: Final = 4

IPV6_PREFIX: Final = 60
"""IPv6 40 + UDP 8 + BTH 12: bytes that contain masked fields."""
IPV4_PREFIX: Final = 40


def icrc_ipv6(packet: bytes | memoryview) -> int:
    """iCRC of an inner IPv6 packet given without its iCRC; at least 60 bytes."""
    # Masked: traffic class, flow label, hop limit; UDP checksum; BTH byte 4.
    head = b"".join(
        (
            LRH,
            b"\x6f\xff\xff\xff",
            packet[4:7],
            b"\xff",
            packet[8:46],
            b"\xff\xff",
            packet[48:52],
            b"\xff",
            packet[53:60],
        )
    )
    return crc32(packet[60:], crc32(head))


def icrc_ipv4(packet: bytes | memoryview) -> int:
    """iCRC of an IPv4 packet without options, given without its iCRC; at least 40 bytes."""
    # Masked: TOS, TTL, header checksum; UDP checksum; BTH byte 4.
    head = b"".join(
        (
            LRH,
            packet[0:1],
            b"\xff",
            packet[2:8],
            b"\xff",
            packet[9:10],
            b"\xff\xff",
            packet[12:26],
            b"\xff\xff",
            packet[28:32],
            b"\xff",
            packet[33:40],
        )
    )
    return crc32(packet[40:], crc32(head))
