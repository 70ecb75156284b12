"""NIC whose ports have a rate: one frame after the other, control first (mrc-protocol §4.2, §5.4).

Wraps either NIC. A port holds the frame whose bits are on the wire, a short queue of data and one of control packets.
A frame is given to the kernel when its last bit has left, as a switch that stores and forwards it would see it, so the
round trip contains what `Plan.base_rtt_s` counts; up to a quarter of a full frame's time earlier when the loop is awake
for another port, which keeps four ports from asking for four wake-ups, and a SACK, which is shorter than that, from
asking for one at all. The next frame begins when the one before has ended, however late or early the loop was: so the
rate is exact as long as the queue is not empty.

    nic.send(plane, peer, packet); nic.flush()          due frames leave
    endpoint.transmit(now, limit, nic.room(), nic.control_room())
    nic.next_at()                                       when to flush again

`room` tells the engine which ports are free: it chooses EVs of those planes only, as late as it can.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mrc_testbed.hosts.engine.rocev2.rc_packets import Cnp, RcAck, RcWrite
from mrc_testbed.hosts.engine.wire.codec import write_size
from mrc_testbed.hosts.engine.wire.headers import CONTROL_HEADERS
from mrc_testbed.hosts.engine.wire.packets import (
    EndpointRequest,
    EndpointResponse,
    Nack,
    Opcode,
    ReliabilityProbe,
    Sack,
    TransportAck,
    Write,
)
from mrc_testbed.hosts.nic.base import (
    ENCAPSULATION_BYTES,
    ETHERNET_BYTES,
    NO_LIMIT,
    AnyPacket,
    Nic,
    Outgoing,
    PortCounters,
    Received,
)
from mrc_testbed.hosts.nic.ip_packet import IP_OVERHEAD, IpPacket
from mrc_testbed.hosts.nic.netlink import LinkState

DATA_RING = 2
"""Data packets that wait behind the one being sent: enough for a loop that wakes up a frame late."""
DATA_MOST = 64
"""Limit of the data queue: beyond the ring only packets bound to this port (probes); more are dropped."""
CONTROL_RING = 256
EARLY_SHARE = 0.25
"""Share of a full frame's time by which a frame may leave early."""
LATE_S = 0.002
"""Delay from which a frame counts as late: the machine is too busy for these rates."""
NEVER_S = float("inf")

_INNER = 40 + 8 + 12 + 4
"""IPv6, UDP, BTH, iCRC."""
_CONTROL_OPCODES = {
    Sack: Opcode.SACK,
    Nack: Opcode.NACK,
    TransportAck: Opcode.ACKNOWLEDGE,
    ReliabilityProbe: Opcode.RELIABILITY_PROBE,
    EndpointRequest: Opcode.ENDPOINT_REQUEST,
    EndpointResponse: Opcode.ENDPOINT_RESPONSE,
}
_CONTROL_BYTES: dict[type, int] = {
    kind: _INNER + sum(layout.size for layout in CONTROL_HEADERS[opcode]) for kind, opcode in _CONTROL_OPCODES.items()
} | {RcAck: _INNER + 4, Cnp: _INNER + 16}

Item = tuple[str, AnyPacket]
"""Queued packet: (peer, record)."""


def inner_bytes(packet: AnyPacket) -> int:
    """Return the bytes of a record from IPv6 header to iCRC, which is a write's nominal size (§6.2)."""
    if type(packet) is Write:
        return write_size(packet.opcode, len(packet.payload), packet.timestamp is not None)
    if type(packet) is RcWrite:
        return packet.size
    if type(packet) is IpPacket:
        return IP_OVERHEAD + len(packet.payload)
    return _CONTROL_BYTES[type(packet)]


class PacedPort:
    """Transmit side of a port, in seconds of the caller's clock. `frame_bytes`: size of a full frame."""

    __slots__ = (
        "_control",
        "_data",
        "_done_at",
        "_early_s",
        "_now_sending",
        "control_room",
        "frames",
        "late_frames",
        "late_max_s",
        "may_leave_at",
        "rate_bps",
        "room",
    )

    def __init__(self, rate_bps: float, frame_bytes: int) -> None:
        self.rate_bps = rate_bps
        self._early_s = frame_bytes * 8 / rate_bps * EARLY_SHARE
        self._data: deque[tuple[Item, int]] = deque()
        self._control: deque[tuple[Item, int]] = deque()
        self._now_sending: Item | None = None
        self._done_at = 0.0
        self.may_leave_at = NEVER_S
        """Time at which the frame on the wire may be taken; NEVER without one."""
        self.room = DATA_RING + 1
        """Data packets that the port takes now: free ring slots, and the wire while idle."""
        self.control_room = CONTROL_RING
        self.frames = self.late_frames = 0
        """Frames that left, and those of them that left LATE_S late or more."""
        self.late_max_s = 0.0

    def put(self, item: Item, size: int, control: bool, now: float) -> bool:
        """Queue a frame of `size` bytes; return False when the queue is full."""
        if self._now_sending is None:
            self._begin(item, size, max(now, self._done_at))  # the one before may have left early
            self.room -= 1
            return True
        if control:
            if not self.control_room:
                return False
            self._control.append((item, size))
            self.control_room -= 1
            return True
        if len(self._data) >= DATA_MOST:
            return False
        self._data.append((item, size))
        if self.room:
            self.room -= 1
        return True

    def _begin(self, item: Item, size: int, time: float) -> None:
        self._now_sending, self._done_at = item, time + size * 8 / self.rate_bps
        self.may_leave_at = self._done_at - self._early_s

    def take(self, now: float) -> list[Item]:
        """Return the frames that have been sent by now."""
        sent_items: list[Item] = []
        while self._now_sending is not None and self.may_leave_at <= now:
            self.frames += 1
            late_s = now - self._done_at
            if late_s >= LATE_S:
                self.late_frames += 1
                self.late_max_s = max(self.late_max_s, late_s)
            sent_items.append(self._now_sending)
            if self._control:
                item, size = self._control.popleft()
                self.control_room += 1
            elif self._data:
                item, size = self._data.popleft()
                if len(self._data) < DATA_RING:
                    self.room += 1
            else:
                self._stop()
                break
            self._begin(item, size, self._done_at)
        return sent_items

    def _stop(self) -> None:
        """Go idle, with all room free."""
        self._now_sending, self.may_leave_at = None, NEVER_S
        self.room, self.control_room = DATA_RING + 1, CONTROL_RING

    @property
    def next_at(self) -> float | None:
        """End of the frame on the wire."""
        return None if self._now_sending is None else self._done_at

    def clear(self) -> int:
        """Drop all queued frames (port down, or new rate); return how many."""
        lost = len(self._data) + len(self._control) + (self._now_sending is not None)
        self._data.clear()
        self._control.clear()
        self._stop()
        return lost


class PacedNic(Nic):
    """`nic` with ports of `rates` (bits/s by plane, frames without FCS; planes left out have no limit).

    `dscp_control`: packets of that DSCP are of the control class.
    """

    def __init__(
        self, nic: Nic, rates: Mapping[int, float], dscp_control: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.nic = nic
        self.kind, self.carries_ip = nic.kind, nic.carries_ip
        self.plan, self.host, self.ports = nic.plan, nic.host, nic.ports
        self._clock, self._dscp_control = clock, dscp_control
        self._encapsulation_bytes = ENCAPSULATION_BYTES if nic.plan.mode.outer_header else ETHERNET_BYTES
        self._frame_bytes = nic.plan.frame_bytes()
        self._paced_ports: dict[int, PacedPort] = {}
        self._wake_at = NEVER_S
        """Time before which no frame may leave."""
        self._room = [NO_LIMIT if plane in self.ports else 0 for plane in range(nic.plan.planes)]
        self._control_room = self._room.copy()
        """Copies of the ports' room by plane, kept because each turn reads them."""
        for plane, rate in rates.items():
            self.set_rate(plane, rate)

    @property
    def rates(self) -> dict[int, float]:
        """Bits/s of the ports that have a rate."""
        return {plane: port.rate_bps for plane, port in self._paced_ports.items()}

    def set_rate(self, plane: int, rate_bps: float | None) -> None:
        """Set a port's rate; None = no limit. Queued frames are lost, as when a port renegotiates its speed."""
        self._lose(plane, "rate changed")
        if rate_bps is None:
            self._paced_ports.pop(plane, None)
        else:
            self._paced_ports[plane] = PacedPort(rate_bps, self._frame_bytes)
        self._note_room(plane)

    def _note_room(self, plane: int) -> None:
        port = self._paced_ports.get(plane)
        self._room[plane] = NO_LIMIT if port is None else port.room
        self._control_room[plane] = NO_LIMIT if port is None else port.control_room

    def pacing(self) -> dict[str, dict[str, float]]:
        """Return by plane: `rate_bps`, `frames` sent, `late` ones, and the longest delay `late_max_s`."""
        return {
            str(plane): {
                "rate_bps": port.rate_bps,
                "frames": port.frames,
                "late": port.late_frames,
                "late_max_s": port.late_max_s,
            }
            for plane, port in self._paced_ports.items()
        }

    def _lose(self, plane: int, reason: str) -> None:
        port = self._paced_ports.get(plane)
        if port is not None and (lost := port.clear()):
            self.nic.counters[plane].tx_dropped[reason] += lost
            self._note_room(plane)

    # ---- out --------------------------------------------------------------------------------------------

    def send(self, plane: int, peer: str, packet: AnyPacket) -> None:
        port = self._paced_ports.get(plane)
        if port is None:
            self.nic.send(plane, peer, packet)
            return
        size = inner_bytes(packet) + self._encapsulation_bytes
        if not port.put((peer, packet), size, packet.dscp == self._dscp_control, self._clock()):
            self.nic.counters[plane].tx_dropped["no buffer"] += 1
            return
        self._room[plane], self._control_room[plane] = port.room, port.control_room
        if port.may_leave_at < self._wake_at:
            self._wake_at = port.may_leave_at

    def flush(self) -> None:
        now = self._clock()
        if now >= self._wake_at:
            soonest = NEVER_S
            outgoing: list[Outgoing] = []
            for plane, port in self._paced_ports.items():
                if port.may_leave_at <= now:
                    for peer, packet in port.take(now):
                        outgoing.append((plane, peer, packet))
                    self._room[plane], self._control_room[plane] = port.room, port.control_room
                if port.may_leave_at < soonest:
                    soonest = port.may_leave_at
            self._wake_at = soonest
            if outgoing:
                self.nic.send_many(outgoing)
        self.nic.flush()

    def next_at(self) -> float | None:
        if self._wake_at == NEVER_S:
            return None
        first = NEVER_S
        for port in self._paced_ports.values():
            port_time = port.next_at
            if port_time is not None and port_time < first:
                first = port_time
        return None if first == NEVER_S else first

    def room(self) -> list[int] | None:
        return self._least_room(self._room)

    def control_room(self) -> list[int] | None:
        return self._least_room(self._control_room)

    def _least_room(self, room: list[int]) -> list[int] | None:
        """Return the lesser of a port's room and the wrapped NIC's, by plane."""
        nic_room = self.nic.room()
        if nic_room is None:
            return room if self._paced_ports else None
        return [min(packets) for packets in zip(room, nic_room, strict=True)]

    # ---- delegated to the NIC -----------------------------------------------------------------------------

    @property
    def counters(self) -> dict[int, PortCounters]:
        return self.nic.counters

    def receive_ip(self, receiver: Callable[[str, bytes], None]) -> None:
        self.nic.receive_ip(receiver)

    @property
    def backlog(self) -> int:
        return self.nic.backlog

    def filenos(self) -> dict[int, int]:
        return self.nic.filenos()

    def share(self, path: Path, qpns: range) -> None:
        self.nic.share(path, qpns)

    def wire_filenos(self) -> list[int]:
        return self.nic.wire_filenos()

    def receive(self, limit: int) -> Iterable[Received]:
        return self.nic.receive(limit)

    def link_changed(self, plane: int, state: LinkState) -> bool:
        if not state.up:
            self._lose(plane, "port down")
        return self.nic.link_changed(plane, state)

    def capture_changed(self, plane: int, is_captured: bool) -> None:
        self.nic.capture_changed(plane, is_captured)

    def refresh_counters(self) -> None:
        self.nic.refresh_counters()

    def close(self) -> None:
        self.nic.close()
