"""Frames of a finished capture, pcap or pcapng of Ethernet, one after the other; read by scapy.

scapy ends quietly where a file is cut off, warns of what it cannot read, and takes any length on trust: `CaptureReader`
makes one CaptureFileError of each.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from scapy.error import Scapy_Exception, log_runtime
from scapy.utils import RawPcapNgReader, RawPcapReader

from mrc_testbed.capture.packet_files import LINKTYPE_ETHERNET, CapturedPacket

BLOCK_MAX = 1 << 24
"""Bytes of a block or packet: anything longer is no capture (dumpcap's own limit is 256 KiB a packet)."""
NAME_MAX = 256
"""Bytes of an interface's name that are kept."""
GZIP = b"\x1f\x8b"
_TIME_MAX = (1 << 64) - 1


class CaptureFileError(Exception):
    """A file that is no capture, is cut off or damaged, or is of no Ethernet; the message names it."""


@dataclass(slots=True)
class CapturedFrame:
    """A frame with what its file tells of it."""

    packet: CapturedPacket
    interface: str = ""
    direction: int = 0
    """INBOUND, OUTBOUND, or 0: not told."""
    comments: tuple[bytes, ...] = ()


class CaptureReader:
    """Iterate over it. Raises CaptureFileError, also in the middle: what came before is good."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.frames = 0
        """Frames so far."""
        self._warnings = _Warnings()
        try:
            stream = path.open("rb")
        except OSError as error:
            raise CaptureFileError(f"{path}: {error.strerror}") from None
        self._file = _BoundedFile(stream)
        try:
            self._reader = self._open_reader(stream)
        except BaseException:
            stream.close()
            raise

    def _open_reader(self, stream: BinaryIO) -> Any:
        if stream.read(2) == GZIP:
            raise CaptureFileError(f"{self._path}: compressed; unpack it with gunzip first")
        stream.seek(0)
        with self._warnings:
            try:
                return RawPcapReader(cast(Any, self._file))
            except (Scapy_Exception, EOFError, _OversizeError):
                raise CaptureFileError(f"{self._path}: no capture file (pcap and pcapng are)") from None

    def __iter__(self) -> Iterator[CapturedFrame]:
        while (frame := self._next()) is not None:
            self.frames += 1
            yield frame

    def _next(self) -> CapturedFrame | None:
        reader = self._reader
        self._file.is_cut_off = False
        with self._warnings:
            try:
                data, metadata = reader._read_packet()
            except EOFError as end:
                self._check(str(end))
                return None
            except (Scapy_Exception, _OversizeError, ValueError, IndexError) as error:
                raise self._damage_error(str(error)) from None
        self._check("")
        if isinstance(reader, RawPcapNgReader):
            return self._from_pcapng(data, metadata)
        assert isinstance(reader, RawPcapReader)
        self._check_link(reader.linktype)
        at_ns = metadata.sec * 10**9 + metadata.usec * (1 if reader.nano else 1000)
        return CapturedFrame(CapturedPacket(at_ns, data, metadata.wirelen))

    def _from_pcapng(self, data: bytes, metadata: Any) -> CapturedFrame:
        self._check_link(metadata.linktype)
        ticks = (metadata.tshigh or 0) << 32 | (metadata.tslow or 0)
        return CapturedFrame(
            CapturedPacket(min(ticks * 10**9 // metadata.tsresol, _TIME_MAX), data, metadata.wirelen),
            (metadata.ifname or b"")[:NAME_MAX].decode("utf-8", "replace"),
            metadata.direction or 0,
            tuple(metadata.comments or ()),
        )

    def _check(self, cause: str) -> None:
        """Raise for what scapy has warned of, or where the file ended too soon."""
        if self._warnings.first or cause or self._file.is_cut_off:
            raise self._damage_error(self._warnings.first or cause)

    def _check_link(self, kind: int) -> None:
        if kind != LINKTYPE_ETHERNET:
            raise CaptureFileError(f"{self._path}: packets of link type {kind}, not of Ethernet ({LINKTYPE_ETHERNET})")

    def _damage_error(self, cause: str) -> CaptureFileError:
        reason = f" ({cause.strip()})" if cause else ""
        return CaptureFileError(f"{self._path}: cut off or damaged after packet {self.frames}{reason}")

    def close(self) -> None:
        self._file.close()


class _OversizeError(Exception):
    """A length beyond BLOCK_MAX."""


class _BoundedFile:
    """A file that refuses huge reads, and knows whether it has ended in the middle of one."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.name = stream.name
        self.is_cut_off = False

    def read(self, size: int) -> bytes:
        if size > BLOCK_MAX:
            raise _OversizeError(f"a block of {size} bytes")
        data = self._stream.read(size)
        self.is_cut_off |= 0 < len(data) < size
        return data

    def close(self) -> None:
        self._stream.close()


class _Warnings(logging.Handler):
    """Within `with`: scapy's warnings, which do not reach the terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.first = ""

    def __enter__(self) -> _Warnings:
        self.first = ""
        # Its filter lets a warning through once in five seconds: a second damaged file would pass for a good one.
        self._old_logging = log_runtime.propagate, log_runtime.handlers[:], log_runtime.filters[:]
        log_runtime.propagate, log_runtime.handlers[:], log_runtime.filters[:] = False, [self], []
        return self

    def __exit__(self, *_: object) -> None:
        log_runtime.propagate, log_runtime.handlers[:], log_runtime.filters[:] = self._old_logging

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()
