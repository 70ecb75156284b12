"""Packets of a finished capture, pcap or pcapng of any kind, one after the other.

By hand, because scapy ends quietly where a file is cut off, takes any length on trust, gives every section of a pcapng
the clock and the names of the first, and reads simple packet blocks as nothing. What can be left out without harm to
the packets behind it is left out and counted; what cannot is one CaptureFileError.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from mrc_testbed.capture.packet_files import LINKTYPE_ETHERNET, SNAP_BYTES, CapturedPacket

BLOCK_MAX = 1 << 24
"""Bytes of a block: anything longer is no capture."""
PACKET_MAX = SNAP_BYTES
"""Limit of a packet's bytes in tcpdump, dumpcap and Wireshark."""
NAME_MAX = 256
"""Bytes of an interface's name that are kept."""
HEAD_BYTES = 6
"""Bytes at the begin of a file that distinguish captures and what they are compressed with."""
SECTION_HEADER, INTERFACE, OLD_PACKET, SIMPLE_PACKET, ENHANCED_PACKET = 0x0A0D0D0A, 1, 2, 3, 6
BLOCK_NAMES = {
    4: "name resolution",
    5: "interface statistics",
    9: "systemd journal",
    10: "decryption secrets",
    0xBAD: "custom",
    0x40000BAD: "custom",
}
"""Blocks of pcapng without packets of their own."""
OPTION_END, OPTION_COMMENT, OPTION_NAME, OPTION_FLAGS, OPTION_RESOLUTION, OPTION_OFFSET = 0, 1, 2, 2, 9, 14


class _PcapKind(NamedTuple):
    """Variant of pcap: byte order, nanoseconds of a unit of time, bytes of a record's header."""

    order: str
    unit_ns: int
    record_bytes: int


_PCAP_MAGICS = {
    struct.pack(order + "I", magic): _PcapKind(order, unit_ns, record_bytes)
    for order in "<>"
    for magic, unit_ns, record_bytes in (
        (0xA1B2C3D4, 1000, 16),
        (0xA1B23C4D, 1, 16),
        (0xA1B2CD34, 1000, 24),  # Kuznetzov's: interface, protocol and direction behind the lengths
    )
}
_PCAPNG_MAGIC = struct.pack("<I", SECTION_HEADER)
_UNPACKERS: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
_FOREIGN = {
    b"\x28\xb5\x2f\xfd": "compressed; unpack it with unzstd first",
    b"\x04\x22\x4d\x18": "compressed; unpack it with unlz4 first",
    b"PK\x03\x04": "an archive; unpack it with unzip first",
}
_BROKEN_STREAM = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""Errors of compressed files that are cut off or damaged."""


class CaptureFileError(Exception):
    """A file that is no capture, or is cut off or damaged; the message names it."""


@dataclass(slots=True)
class CapturedFrame:
    """A frame with what its file tells of it."""

    packet: CapturedPacket
    link_type: int = LINKTYPE_ETHERNET
    interface: str = ""
    """Name; empty: the file has none."""
    interface_index: int = 0
    """Number of the interface over all sections of the file."""
    direction: int = 0
    """INBOUND, OUTBOUND, or 0: not told."""
    comments: tuple[bytes, ...] = ()
    has_time: bool = True
    """False: the file gives none, or none that a pcapng in nanoseconds can hold; it is 0 then."""


@dataclass(slots=True)
class _Interface:
    """Interface of a section: what its packets need."""

    index: int
    link_type: int
    snap_bytes: int
    """0: unlimited."""
    name: str
    ticks_per_s: int
    offset_s: int

    def time_ns(self, ticks: int) -> int | None:
        """Return a packet's time; None where nanoseconds since 1970 do not fit 64 bits."""
        at_ns = ticks * 10**9 // self.ticks_per_s + self.offset_s * 10**9
        return at_ns if 0 <= at_ns < 1 << 64 else None


class CaptureReader:
    """Iterate over it. Raises CaptureFileError, also in the middle: what came before is good."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.frames = 0
        """Frames so far."""
        self.skipped: Counter[str] = Counter()
        """Counts of blocks and packets left out so far, by their name in the plural."""
        self._files: list[IO[bytes]] = []
        try:
            self._stream = self._open(path)
            self._frames = self._start()
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path) -> IO[bytes]:
        """Open the file, and unpack it where it is compressed."""
        try:
            stream = path.open("rb")
            self._files.append(stream)
            head = stream.peek(HEAD_BYTES)
        except OSError as error:
            raise CaptureFileError(f"{path}: {error.strerror}") from None
        for magic, cure in _FOREIGN.items():
            if head.startswith(magic):
                raise CaptureFileError(f"{path}: {cure}")
        for magic, unpacker in _UNPACKERS.items():
            if head.startswith(magic):
                plain_stream: IO[bytes] = unpacker(stream)
                self._files.append(plain_stream)
                return plain_stream
        return stream

    def _start(self) -> Iterator[CapturedFrame]:
        """Read the file's header. Returns an iterator over its frames."""
        try:
            magic = self._stream.read(4)
            if magic == _PCAPNG_MAGIC:
                section = _Section(self._section_header())
                return self._pcapng(section)
            header = self._stream.read(20)
        except (_DamageError, *_BROKEN_STREAM):
            magic = header = b""
        if magic not in _PCAP_MAGICS or len(header) < 20:
            raise CaptureFileError(
                f"{self._path}: no capture file (pcap and pcapng are; `editcap -F pcapng` converts others)"
            )
        kind = _PCAP_MAGICS[magic]
        # Bits above the number of the link type tell of frame check sequences.
        return self._pcap(kind, struct.unpack_from(kind.order + "I", header, 16)[0] & 0xFFFF)

    def __iter__(self) -> Iterator[CapturedFrame]:
        try:
            for frame in self._frames:
                self.frames += 1
                yield frame
        except (_DamageError, *_BROKEN_STREAM) as error:
            reason = f" ({error})" if str(error) else ""
            raise CaptureFileError(f"{self._path}: cut off or damaged after packet {self.frames}{reason}") from None

    def close(self) -> None:
        for file in reversed(self._files):
            file.close()

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise _DamageError
        return data

    # ---- pcap -----------------------------------------------------------------------------------------------------

    def _pcap(self, kind: _PcapKind, link_type: int) -> Iterator[CapturedFrame]:
        while head := self._stream.read(kind.record_bytes):
            if len(head) < kind.record_bytes:
                raise _DamageError
            seconds, units, size, length = struct.unpack_from(kind.order + "4I", head)
            if size > PACKET_MAX:
                raise _DamageError(f"a packet of {size} bytes")
            at_ns = seconds * 10**9 + units * kind.unit_ns
            yield CapturedFrame(CapturedPacket(at_ns, self._read(size), length), link_type)

    # ---- pcapng ---------------------------------------------------------------------------------------------------

    def _section_header(self) -> str:
        """Read a section header behind its type. Returns the byte order of the section."""
        size_bytes, magic = self._read(4), self._read(4)
        for order in "<>":
            if struct.unpack(order + "I", magic)[0] == 0x1A2B3C4D:
                body = self._body(order, struct.unpack(order + "I", size_bytes)[0], already=4)
                if len(body) < 12 or struct.unpack_from(order + "H", body)[0] != 1:
                    raise _DamageError("a section header of no known version")
                return order
        raise _DamageError("a section header without byte order")

    def _body(self, order: str, size: int, already: int = 0) -> bytes:
        """Read what is left of a block of `size` bytes, whose first 8 + `already` bytes have been read."""
        if size < 12 + already or size > BLOCK_MAX:
            raise _DamageError(f"a block of {size} bytes")
        # Writers that do not pad exist; readers take the next multiple of four.
        body = self._read(-(-size // 4) * 4 - 12 - already)
        if struct.unpack(order + "I", self._read(4))[0] != size:
            raise _DamageError("a block whose two lengths differ")
        return body

    def _pcapng(self, section: _Section) -> Iterator[CapturedFrame]:
        interface_count = 0
        while head := self._stream.read(4):
            if head == _PCAPNG_MAGIC:
                section = _Section(self._section_header())
                continue
            if len(head) < 4:
                raise _DamageError
            kind, size = struct.unpack(section.order + "II", head + self._read(4))
            body = self._body(section.order, size)
            if kind == INTERFACE:
                section.add_interface(body, interface_count)
                interface_count += 1
            elif kind in (ENHANCED_PACKET, OLD_PACKET, SIMPLE_PACKET):
                frame = section.packet(kind, body)
                if isinstance(frame, str):
                    self.skipped[frame] += 1
                else:
                    if not frame.has_time:
                        self.skipped["packet times (missing, or outside 1970 to 2554)"] += 1
                    yield frame
            else:
                self.skipped[f"blocks of {BLOCK_NAMES.get(kind, f'type {kind:#x}')}"] += 1


class _Section:
    """Section of a pcapng: its byte order and the interfaces it has described so far."""

    def __init__(self, order: str) -> None:
        self.order = order
        self._interfaces: list[_Interface] = []
        self._enhanced_head = struct.Struct(order + "IIIII")
        self._old_head = struct.Struct(order + "HHIIII")

    def add_interface(self, body: bytes, index: int) -> None:
        if len(body) < 8:
            raise _DamageError("a description of an interface that is too short")
        link_type, _, snap_bytes = struct.unpack_from(self.order + "HHI", body)
        interface = _Interface(index, link_type, snap_bytes, "", 10**6, 0)
        for code, value in self._options(body, 8):
            if code == OPTION_NAME:
                # Some writers end the name with a zero byte.
                interface.name = value[:NAME_MAX].partition(b"\0")[0].decode("utf-8", "replace")
            elif code == OPTION_RESOLUTION and len(value) == 1:
                exponent = value[0] & 0x7F
                interface.ticks_per_s = 2**exponent if value[0] & 0x80 else 10**exponent
            elif code == OPTION_OFFSET and len(value) == 8:
                (interface.offset_s,) = struct.unpack(self.order + "q", value)
        self._interfaces.append(interface)

    def packet(self, kind: int, body: bytes) -> CapturedFrame | str:
        """Return the packet of a block, or what to count it as when it has to be left out."""
        fixed_bytes = {ENHANCED_PACKET: 20, OLD_PACKET: 20, SIMPLE_PACKET: 4}[kind]
        if len(body) < fixed_bytes:
            return "packets in damaged blocks"
        if kind == ENHANCED_PACKET:
            number, high, low, size, length = self._enhanced_head.unpack_from(body)
        elif kind == OLD_PACKET:
            number, _, high, low, size, length = self._old_head.unpack_from(body)
        else:
            number = high = low = 0
            (length,) = struct.unpack_from(self.order + "I", body)
            size = min(length, len(body) - fixed_bytes)
        if number >= len(self._interfaces):
            return "packets of interfaces that the file does not describe"
        interface = self._interfaces[number]
        # The block does not say how much of it is packet: what the interface's limit has left of it.
        if kind == SIMPLE_PACKET and interface.snap_bytes:
            size = min(size, interface.snap_bytes)
        if size > len(body) - fixed_bytes:
            return "packets in damaged blocks"
        if size > PACKET_MAX:
            return f"packets of more than {PACKET_MAX} bytes"
        end = fixed_bytes + size
        comments, direction = [], 0
        if kind != SIMPLE_PACKET:
            for code, value in self._options(body, end + (-size & 3)):
                if code == OPTION_COMMENT:
                    comments.append(value)
                elif code == OPTION_FLAGS and len(value) == 4:
                    direction = struct.unpack(self.order + "I", value)[0] & 3
        at_ns = None if kind == SIMPLE_PACKET else interface.time_ns(high << 32 | low)
        return CapturedFrame(
            CapturedPacket(at_ns or 0, body[fixed_bytes:end], length),
            interface.link_type,
            interface.name,
            interface.index,
            direction,
            tuple(comments),
            at_ns is not None,
        )

    def _options(self, body: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
        """Yield code and value of each option, up to the first that does not fit."""
        while offset + 4 <= len(body):
            code, size = struct.unpack_from(self.order + "HH", body, offset)
            value = body[offset + 4 : offset + 4 + size]
            if code == OPTION_END or len(value) < size:
                return
            yield code, value
            offset += 4 + -(-size // 4) * 4


class _DamageError(Exception):
    """The file cannot be read on from here."""
