"""Capture files made block by block, also of kinds that our own writers do not make."""

from __future__ import annotations

import struct

SIMPLE = 3


class PcapngBytes:
    """pcapng in the making; `order` is that of its next blocks."""

    def __init__(self) -> None:
        self.content = b""
        self.order = "<"

    def block(self, kind: int, body: bytes) -> PcapngBytes:
        size = struct.pack(self.order + "I", 12 + len(body) + (-len(body) & 3))
        self.content += struct.pack(self.order + "I", kind) + size + body + bytes(-len(body) & 3) + size
        return self

    def section(self, order: str = "<") -> PcapngBytes:
        self.order = order
        return self.block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))

    def interface(self, name: str = "", link_type: int = 1, snap: int = 0, options: bytes = b"") -> PcapngBytes:
        name_option = self.option(2, name.encode()) if name else b""
        return self.block(1, struct.pack(self.order + "HHI", link_type, 0, snap) + name_option + options)

    def option(self, code: int, value: bytes) -> bytes:
        return struct.pack(self.order + "HH", code, len(value)) + value + bytes(-len(value) & 3)

    def packet(self, frame: bytes, ticks: int = 0, number: int = 0, options: bytes = b"") -> PcapngBytes:
        head = struct.pack(self.order + "5I", number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
        return self.block(6, head + frame + bytes(-len(frame) & 3) + options)

    def old_packet(self, frame: bytes, ticks: int = 0, number: int = 0) -> PcapngBytes:
        head = struct.pack(self.order + "HH4I", number, 0, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
        return self.block(2, head + frame)

    def simple_packet(self, frame: bytes, length: int) -> PcapngBytes:
        return self.block(SIMPLE, struct.pack(self.order + "I", length) + frame)


def pcap_bytes(frames: list[bytes], link_type: int = 1, magic: int = 0xA1B2C3D4, order: str = "<") -> bytes:
    """Return a pcap whose packets are a second apart, from 1 on."""
    extra = bytes(8) if magic == 0xA1B2CD34 else b""
    records = (
        struct.pack(order + "4I", second, 5, len(frame), len(frame)) + extra + frame
        for second, frame in enumerate(frames, 1)
    )
    return struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, link_type) + b"".join(records)
