"""Packets on their way through a virtual fabric, with the fields that switches look at.

A `Frame` carries the engine's record; marks and trims change the record as the wire would. A `WireFrame` carries the
real bytes: switches then read and write only those, and the receiving NIC decodes what arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from mrc_testbed.hosts.engine.rocev2.rc_packets import RcWrite
from mrc_testbed.hosts.engine.wire.packets import ECN_CE, ECN_NOT_ECT, NackReason, PacketRecord, Write


def tally() -> Counter[str]:
    """Return an empty Counter without the call of update(), which takes nearly all the time of Counter()."""
    return Counter.__new__(Counter)


NO_PORT: Final = -1
"""Number of the egress of a frame that no port has sent yet."""


class Frame:
    """One transmission. `size` counts the bytes on the wire, Ethernet header to iCRC."""

    ev: int
    next_frame: Frame | None
    size: int
    port: int
    rack: int
    downlink: int
    plane: int
    control: bool
    is_fresh: bool
    trimmable: bool
    ect: bool
    corrupt: bool
    trimmed: bool

    __slots__ = (
        "control",
        "corrupt",
        "downlink",
        "ect",
        "ev",
        "is_data",
        "is_fresh",
        "marked",
        "next_frame",
        "packet",
        "plane",
        "port",
        "rack",
        "size",
        "source",
        "target",
        "trimmable",
        "trimmed",
    )

    def __init__(
        self,
        packet: PacketRecord,
        size: int,
        source: str,
        target: str,
        rack: int,
        downlink: int,
        plane: int,
        control: bool,
        trimmable: bool,
    ) -> None:
        # What each hop needs comes first, see EgressPort.
        self.size = size
        self.rack, self.downlink = rack, downlink
        """Rack and downlink of the target host."""
        self.ev = packet.ev
        self.control = control
        """Whether the packet is served first, never marked and never trimmed."""
        self.is_fresh = True
        """Whether no switch has sent the frame yet."""
        self.trimmable = trimmable
        self.ect = packet.ecn != ECN_NOT_ECT
        self.corrupt = False
        self.port = NO_PORT
        """Number of the last egress port, an index of VirtualFabric.port_list.

        A reference would be released by one port and taken by the next at each hop, and the CPU would fetch the former
        port for that alone.
        """
        self.next_frame: Frame | None = None
        """Next frame in the same queue; None: last."""
        self.packet = packet
        self.source, self.target = source, target
        """Hosts by name."""
        self.plane = plane
        self.is_data = isinstance(packet, (Write, RcWrite))
        self.marked = self.trimmed = False

    def copy(self) -> Frame:
        """Copy the packet, because receivers may change what they get."""
        twin = Frame(
            replace(self.packet),
            self.size,
            self.source,
            self.target,
            self.rack,
            self.downlink,
            self.plane,
            self.control,
            self.trimmable,
        )
        self._copy_state(twin)
        return twin

    def _copy_state(self, twin: Frame) -> None:
        """Copy to a twin the state that the frame got on its way."""
        twin.ev, twin.ect, twin.is_data, twin.port, twin.is_fresh = (
            self.ev,
            self.ect,
            self.is_data,
            self.port,
            self.is_fresh,
        )
        twin.marked, twin.trimmed, twin.corrupt = self.marked, self.trimmed, self.corrupt

    def mark(self) -> None:
        """Set CE."""
        self.marked = True
        self.packet.ecn = ECN_CE

    def trim(self, length: int, dscp: int, last_hop: bool) -> None:
        """Cut after the transport headers and move to the control class; lengths in the headers stay (§4.3)."""
        packet = self.packet
        assert isinstance(packet, Write), "only data is trimmed"
        packet.payload = b""
        packet.va = packet.rkey = packet.dma_length = 0
        packet.dscp = dscp
        packet.trimmed = NackReason.TRIMMED_LASTHOP if last_hop else NackReason.TRIMMED
        self._cut(length)

    def _cut(self, length: int) -> None:
        self.size = length
        self.control = self.trimmed = True
        self.trimmable = self.ect = False
        self.corrupt = False  # the damage was in what is gone, most likely

    def spoil(self, _position: float) -> None:
        """Flip the bit at a share (0 to 1) of the packet's length."""
        self.corrupt = True


class FrameQueue:
    """Frames that wait at a port, in order, as a linked list.

    A deque is 760 bytes, and a fabric has thousands of ports.
    """

    __slots__ = ("_first", "_last", "count")

    def __init__(self) -> None:
        self.count = 0
        self._first: Frame | None = None
        self._last: Frame | None = None

    def __del__(self) -> None:
        """Free the frames one by one: thousands that are freed nested overflow the stack."""
        while self._first is not None:
            self.take()

    def put(self, frame: Frame) -> None:
        """Put a frame behind all others."""
        last = self._last
        if last is None:
            self._first = frame
        else:
            last.next_frame = frame
        self._last = frame
        self.count += 1

    def take(self) -> Frame:
        """Remove and return the first frame of a queue that is not empty."""
        frame = self._first
        assert frame is not None
        following = self._first = frame.next_frame
        if following is None:
            self._last = None
        else:
            frame.next_frame = None
        self.count -= 1
        return frame

    def take_all(self) -> list[Frame]:
        """Remove and return all frames, in order."""
        return [self.take() for _ in range(self.count)]

    def frames(self) -> list[Frame]:
        """Return the waiting frames, in order."""
        frames: list[Frame] = []
        frame = self._first
        while frame is not None:
            frames.append(frame)
            frame = frame.next_frame
        return frames


PacketHook = Callable[[str, float, str, Frame], None]
"""Observer of packets, called as hook(event, time_s, location, frame); trace.py lists the events."""
