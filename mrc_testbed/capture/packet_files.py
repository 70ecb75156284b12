"""Capture files and packets off a port, without libpcap.

Nanosecond pcap, pcapng, readers of interfaces and wires.

`PcapFile` holds packets of one interface (magic a1b23c4d: nanoseconds), `PcapngFile` those of several, which it names,
with comments. Both write a packet at a time, so what was captured is there whatever ends the capture. By hand because
RawPcapNgWriter of scapy 2.8 has microseconds only and leaves out interfaces without packets.

A `PacketReader` sees what its interface *receives*, and only that: the embedded switch sends past the kernel's taps
(PACKET_QDISC_BYPASS), so what a port sends has to be read where it arrives, at the other end of the cable. A
`WireReader` sees the same at an end of a wire, of which the kernel knows nothing: the daemon tells it.
"""

from __future__ import annotations

import contextlib
import errno
import re
import secrets
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

from mrc_testbed.topologies.lab.wires import WireClient

LINKTYPE_ETHERNET = 1
PCAP_NANOSECONDS = 0xA1B23C4D
SNAP_BYTES = 1 << 18
FILE_NAME = re.compile(r"\.(pcap|pcapng|cap|dmp)(?P<number>\d*)(\.(gz|bz2|xz|zst|lz4))?$", re.IGNORECASE)
"""End of names that are files and no ports; tcpdump -C numbers its files."""
_PCAP_HEADER = struct.Struct("<IHHiIII")
_PCAP_RECORD = struct.Struct("<IIII")
_NG_ENHANCED = struct.Struct("<IIIII")

ETH_P_ALL = 0x0003
SO_TIMESTAMPING = 37
STAMP_RECEIVED, REPORT_SOFTWARE = 1 << 3, 1 << 4
"""Flags of SO_TIMESTAMPING.

Unlike SO_TIMESTAMPNS it gives a frame that the kernel did not stamp no time at all.
"""
PACKET_ADD_MEMBERSHIP, PACKET_STATISTICS, PACKET_IGNORE_OUTGOING = 1, 6, 23
PACKET_MR_PROMISC = 1
SO_RCVBUFFORCE = 33
SOL_PACKET = 263
RECEIVE_BUFFER_BYTES = 1 << 24
NOTES_BYTES = socket.CMSG_SPACE(3 * 16)
"""Room for one message of SO_TIMESTAMPING: three timespecs, software first."""
_TIMESPEC = struct.Struct("@qq")
_STATISTICS = struct.Struct("@II")
_MEMBERSHIP = struct.Struct("@IHH8x")
_TAP_HEAD = struct.Struct("=QII")
"""Header of a frame of a wire: nanoseconds, length, reserved (switch/device/loop.py: tap_wire)."""
ACCEPT_S = 5.0


INBOUND, OUTBOUND = 1, 2
"""Direction as epb_flags of pcapng has it."""


def is_capture_file(name: str) -> bool:
    """Whether a name is that of a file: it ends like one, or has a folder before it."""
    return "/" in name or FILE_NAME.search(name) is not None


class CapturedPacket(NamedTuple):
    """A frame, Ethernet header first, as it passed an interface."""

    at_ns: int
    """CLOCK_REALTIME of the kernel, nanoseconds."""
    frame: bytes
    length: int
    """Bytes it had; more than len(frame) when the reader's limit cut it."""


class PcapFile:
    """Nanosecond pcap of one Ethernet interface."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        out.write(_PCAP_HEADER.pack(PCAP_NANOSECONDS, 2, 4, 0, 0, SNAP_BYTES, LINKTYPE_ETHERNET))

    def write(self, packet: CapturedPacket, _interface: int = 0, _direction: int = 0) -> None:
        """Append a packet; the format has no place for interface and direction."""
        seconds, nanoseconds = divmod(packet.at_ns, 10**9)
        self._out.write(_PCAP_RECORD.pack(seconds, nanoseconds, len(packet.frame), packet.length) + packet.frame)


class PcapngFile:
    """pcapng of several Ethernet interfaces, in nanoseconds; `names` are theirs."""

    def __init__(self, out: BinaryIO, names: list[str]) -> None:
        self._out = out
        self._interfaces = 0
        self._block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
        for name in names:
            self.add_interface(name)

    def add_interface(self, name: str, link_type: int = LINKTYPE_ETHERNET) -> int:
        """Describe one more interface, without a name when it is empty; returns its index."""
        options = (_option(2, name.encode()) if name else b"") + _option(9, b"\x09") + _option(0, b"")
        self._block(1, struct.pack("<HHI", link_type, 0, SNAP_BYTES) + options)
        self._interfaces += 1
        return self._interfaces - 1

    def write(
        self, packet: CapturedPacket, interface: int = 0, direction: int = 0, comments: Sequence[bytes] = ()
    ) -> None:
        """Append a packet of the interface with that index, INBOUND or OUTBOUND there; `comments` are UTF-8."""
        high, low = packet.at_ns >> 32, packet.at_ns & 0xFFFFFFFF
        head = _NG_ENHANCED.pack(interface, high, low, len(packet.frame), packet.length)
        options = b"".join(_option(1, comment) for comment in comments)
        options += _option(2, struct.pack("<I", direction)) if direction else b""
        options += _option(0, b"") if options else b""
        self._block(6, head + packet.frame + bytes(-len(packet.frame) & 3) + options)

    def _block(self, kind: int, body: bytes) -> None:
        size = struct.pack("<I", len(body) + 12)
        self._out.write(struct.pack("<I", kind) + size + body + size)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) & 3)


def _stamp_ns(notes: Sequence[tuple[int, int, bytes]]) -> int | None:
    """Return the kernel's time of a frame's arrival, CLOCK_REALTIME; None when it has none."""
    for level, kind, value in notes:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPING and len(value) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(value)
            return int(seconds * 10**9 + nanoseconds)
    return None


def arrival_times(stamps_ns: Sequence[int | None], read_ns: int) -> list[int]:
    """Return the times of frames in order.

    A time is the frame's stamp, else that of the next stamped frame, else the time of reading.

    A work queue of the kernel switches stamps on, a moment after the first socket asks for them.
    """
    times, next_ns = [], read_ns
    for stamp_ns in reversed(stamps_ns):
        next_ns = next_ns if stamp_ns is None else stamp_ns
        times.append(next_ns)
    return times[::-1]


class PacketReader:
    """Reader of frames received on one interface of the namespace it is opened in.

    Raises OSError when the interface does not exist.
    """

    def __init__(self, interface: str, limit_bytes: int = SNAP_BYTES) -> None:
        self.interface = interface
        self._buffer = bytearray(limit_bytes)
        self._view = memoryview(self._buffer)
        # Protocol 0 until it is bound: nothing of other interfaces gets in between.
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            self._socket.setblocking(False)
            with contextlib.suppress(OSError):  # needs a privilege we may lack: then the default stays
                self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
            self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, STAMP_RECEIVED | REPORT_SOFTWARE)
            self._socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
            self._socket.bind((interface, ETH_P_ALL))
            # As tcpdump does: NICs and switches that share memory see it, and send through the kernel as long.
            membership = _MEMBERSHIP.pack(socket.if_nametoindex(interface), PACKET_MR_PROMISC, 0)
            self._socket.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, membership)
        except BaseException:
            self._socket.close()
            raise
        self.lost = 0
        """Frames the kernel had no room for, as of the last `count_lost`."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self, limit: int = 64) -> list[CapturedPacket]:
        """Return what waits, up to `most` frames. An interface that is down has none; see `gone`.

        A frame from before the kernel stamped has the time that `arrival_times` gives it.
        """
        frames: list[tuple[bytes, int, int | None]] = []
        while len(frames) < limit:
            try:
                length, notes, _, _ = self._socket.recvmsg_into([self._buffer], NOTES_BYTES, socket.MSG_TRUNC)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.ENETDOWN:
                    continue  # told once, when it goes down
                raise
            frames.append((bytes(self._view[:length]), length, _stamp_ns(notes)))
        times = arrival_times([stamp_ns for *_, stamp_ns in frames], time.time_ns())
        return [CapturedPacket(at_ns, frame, length) for at_ns, (frame, length, _) in zip(times, frames, strict=True)]

    def gone(self) -> bool:
        """The interface has gone."""
        return not self._socket.getsockname()[0]

    def count_lost(self) -> int:
        """Frames lost so far because the socket's buffer was full."""
        _, lost = _STATISTICS.unpack(self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, _STATISTICS.size))
        self.lost += lost
        return self.lost

    def close(self) -> None:
        self._socket.close()


class WireReader:
    """Frames that come to an end of a wire: what PacketReader is for an interface.

    Raises FabricError when there is no such end.
    """

    def __init__(self, wires: WireClient, interface: str, limit_bytes: int = SNAP_BYTES) -> None:
        self.interface = interface
        self.lost = 0
        """Frames there was no room for, as of the last `count_lost`."""
        self._wires = wires
        self._gone = False
        name = f"mrc-tap-{secrets.token_hex(16)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(f"\0{name}")
            listening.listen(1)
            listening.settimeout(ACCEPT_S)
            self._tap: int | None = wires.tap(interface, name, limit_bytes)
            self._socket, _ = listening.accept()
        self._socket.setblocking(False)
        self._room = _TAP_HEAD.size + limit_bytes

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self, limit: int = 64) -> Iterator[CapturedPacket]:
        """Yield the waiting frames, up to `most`."""
        for _ in range(limit):
            try:
                message = self._socket.recv(self._room)
            except BlockingIOError:
                return
            except ConnectionError:
                message = b""
            if len(message) < _TAP_HEAD.size:
                self._gone = True
                return
            at_ns, length, _ = _TAP_HEAD.unpack_from(message)
            yield CapturedPacket(at_ns, message[_TAP_HEAD.size :], length)

    def gone(self) -> bool:
        """The wire has gone."""
        return self._gone

    def count_lost(self) -> int:
        """Frames lost so far because the socket was full. Ends the capture."""
        if self._tap is not None and not self._gone:
            self.lost = self._wires.untap(self._tap)
        self._tap = None
        return self.lost

    def close(self) -> None:
        self._socket.close()
