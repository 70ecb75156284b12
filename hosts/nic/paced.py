"""A NIC whose ports have a rate: each serialises one frame after the other, control first (mrc-protocol §4.2, §5.4).

Around either NIC. A port holds the frame whose bits are on the wire, a short queue of data and one of control packets.
A frame is given to the kernel when its last bit has left, as a switch that stores and forwards it would see it, so the
round trip contains what `Plan.base_rtt_s` counts; up to a quarter of its time earlier when the loop is awake for
another port, which keeps four ports from asking for four wake-ups. The next frame begins when the one before has ended,
however late the loop was: so the rate is exact as long as the queue is not empty.

    nic.send(plane, peer, packet); nic.flush()          as ever; what is due leaves
    endpoint.transmit(now, limit, nic.room(), nic.control_room())
    nic.next_at()                                       when to flush again

`room` tells the engine which ports are free: it chooses EVs of those planes only, as late as it can.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from hosts.engine.rocev2.rc_packets import Cnp, RcAck, RcWrite
from hosts.engine.wire.codec import write_size
from hosts.engine.wire.headers import CONTROL_HEADERS
from hosts.engine.wire.packets import (
    EndpointRequest,
    EndpointResponse,
    Nack,
    Opcode,
    PacketRecord,
    ReliabilityProbe,
    Sack,
    TransportAck,
    Write,
)
from hosts.nic.base import ENCAPSULATION_BYTES, ETHERNET_BYTES, Nic, PortCounters, Received
from hosts.nic.netlink import LinkState

DATA_RING = 2
"""Data packets that wait behind the one being sent: enough for a loop that wakes up a frame late."""
DATA_MOST = 64
"""Beyond the ring there are only packets that have to take this port (probes); more are dropped."""
CONTROL_RING = 256
EARLY = 0.25
"""Share of a frame's time by which it may leave early."""
LATE_S = 0.002
"""A frame that leaves so long after its time counts as late: the machine is too busy for these rates."""
NEVER = float("inf")

_INNER = 40 + 8 + 12 + 4
"""IPv6, UDP, BTH, iCRC."""
_CONTROL_OPCODES = {
    Sack: Opcode.SACK, Nack: Opcode.NACK, TransportAck: Opcode.ACKNOWLEDGE, ReliabilityProbe: Opcode.RELIABILITY_PROBE,
    EndpointRequest: Opcode.ENDPOINT_REQUEST, EndpointResponse: Opcode.ENDPOINT_RESPONSE,
}  # fmt: skip
_CONTROL_BYTES: dict[type, int] = {
    kind: _INNER + sum(layout.size for layout in CONTROL_HEADERS[opcode]) for kind, opcode in _CONTROL_OPCODES.items()
} | {RcAck: _INNER + 4, Cnp: _INNER + 16}

Item = tuple[str, PacketRecord]
"""(peer, record)"""


def inner_bytes(packet: PacketRecord) -> int:
    """Bytes of a record from its IPv6 header to its iCRC. A write's nominal size is exactly that (§6.2)."""
    if type(packet) is Write:
        return write_size(packet.opcode, len(packet.payload), packet.timestamp is not None)
    if type(packet) is RcWrite:
        return packet.size
    return _CONTROL_BYTES[type(packet)]


class PacedPort:
    """The transmit side of a port. Times are seconds of the caller's clock."""

    __slots__ = (
        "_control",
        "_data",
        "_done_at",
        "_early_s",
        "_now_sending",
        "frames",
        "late",
        "late_max_s",
        "rate_bps",
    )

    def __init__(self, rate_bps: float) -> None:
        self.rate_bps = rate_bps
        self._data: deque[tuple[Item, int]] = deque()
        self._control: deque[tuple[Item, int]] = deque()
        self._now_sending: Item | None = None
        self._done_at = self._early_s = 0.0
        self.frames = self.late = 0
        """Frames that left, and those of them that left LATE_S late or more."""
        self.late_max_s = 0.0

    def put(self, item: Item, size: int, control: bool, now: float) -> bool:
        """Send a frame of `size` bytes when its turn comes; False when there is no place for it."""
        if self._now_sending is None:
            self._begin(item, size, max(now, self._done_at))  # the one before may have left early
            return True
        queue, most = (self._control, CONTROL_RING) if control else (self._data, DATA_MOST)
        if len(queue) >= most:
            return False
        queue.append((item, size))
        return True

    def _begin(self, item: Item, size: int, at: float) -> None:
        seconds = size * 8 / self.rate_bps
        self._now_sending, self._done_at, self._early_s = item, at + seconds, seconds * EARLY

    def take(self, now: float) -> Iterable[Item]:
        """The frames that have been sent by now."""
        while self._now_sending is not None and self._done_at - self._early_s <= now:
            self.frames += 1
            late_s = now - self._done_at
            if late_s >= LATE_S:
                self.late += 1
                self.late_max_s = max(self.late_max_s, late_s)
            yield self._now_sending
            queue = self._control or self._data
            if queue:
                self._begin(*queue.popleft(), self._done_at)
            else:
                self._now_sending = None

    @property
    def next_at(self) -> float | None:
        """End of the frame on the wire."""
        return None if self._now_sending is None else self._done_at

    @property
    def may_leave_at(self) -> float:
        """Time at which it may be taken; NEVER without one."""
        return NEVER if self._now_sending is None else self._done_at - self._early_s

    @property
    def room(self) -> int:
        """Data packets it takes now."""
        return max(0, DATA_RING - len(self._data)) + (self._now_sending is None)

    @property
    def control_room(self) -> int:
        return CONTROL_RING - len(self._control)

    def clear(self) -> int:
        """Forget what waits: the port is down, or has another rate; how many frames that were."""
        lost = len(self._data) + len(self._control) + (self._now_sending is not None)
        self._data.clear()
        self._control.clear()
        self._now_sending = None
        return lost


class PacedNic(Nic):
    """`nic` with ports of `rates` (bits/s by plane, frames without FCS; planes left out have no limit).

    `dscp_control`: packets of that DSCP are of the control class.
    """

    def __init__(
        self, nic: Nic, rates: Mapping[int, float], dscp_control: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.nic = nic
        self.kind = nic.kind
        self.plan, self.host, self.ports = nic.plan, nic.host, nic.ports
        self._clock, self._dscp_control = clock, dscp_control
        self._outside = ENCAPSULATION_BYTES if nic.plan.mode.outer_header else ETHERNET_BYTES
        self._paced = {plane: PacedPort(rate) for plane, rate in rates.items()}
        self._wake_at = NEVER
        """No frame may leave before."""

    @property
    def rates(self) -> dict[int, float]:
        """Bits/s of the ports that have a rate."""
        return {plane: port.rate_bps for plane, port in self._paced.items()}

    def set_rate(self, plane: int, rate_bps: float | None) -> None:
        """From now on; None = no limit. What waited is lost, as in a port that renegotiates its speed."""
        self._lose(plane, "rate changed")
        if rate_bps is None:
            self._paced.pop(plane, None)
        else:
            self._paced[plane] = PacedPort(rate_bps)

    def pacing(self) -> dict[str, dict[str, float]]:
        """By plane: `rate_bps`, `frames` that left, `late` ones and the latest by how many seconds."""
        return {
            str(plane): {
                "rate_bps": port.rate_bps, "frames": port.frames, "late": port.late, "late_max_s": port.late_max_s,
            }
            for plane, port in self._paced.items()
        }  # fmt: skip

    def _lose(self, plane: int, why: str) -> None:
        port = self._paced.get(plane)
        if port is not None and (lost := port.clear()):
            self.nic.counters[plane].tx_dropped[why] += lost

    # ---- out --------------------------------------------------------------------------------------------

    def send(self, plane: int, peer: str, packet: PacketRecord) -> None:
        port = self._paced.get(plane)
        if port is None:
            self.nic.send(plane, peer, packet)
            return
        size = inner_bytes(packet) + self._outside
        if not port.put((peer, packet), size, packet.dscp == self._dscp_control, self._clock()):
            self.nic.counters[plane].tx_dropped["no buffer"] += 1
        elif (soon := port.may_leave_at) < self._wake_at:
            self._wake_at = soon

    def flush(self) -> None:
        now = self._clock()
        if now >= self._wake_at:
            soonest = NEVER
            for plane, port in self._paced.items():
                for peer, packet in port.take(now):
                    self.nic.send(plane, peer, packet)
                if (soon := port.may_leave_at) < soonest:
                    soonest = soon
            self._wake_at = soonest
        self.nic.flush()

    def next_at(self) -> float | None:
        times = [port.next_at for port in self._paced.values() if port.next_at is not None]
        return min(times, default=None)

    def room(self) -> list[int] | None:
        return [self._paced[p].room if p in self._paced else NO_LIMIT for p in self.ports] if self._paced else None

    def control_room(self) -> list[int] | None:
        if not self._paced:
            return None
        return [self._paced[p].control_room if p in self._paced else NO_LIMIT for p in self.ports]

    # ---- the rest is the NIC's ----------------------------------------------------------------------------

    @property
    def counters(self) -> dict[int, PortCounters]:
        return self.nic.counters

    @property
    def backlog(self) -> int:
        return self.nic.backlog

    def filenos(self) -> dict[int, int]:
        return self.nic.filenos()

    def receive(self, limit: int) -> Iterable[Received]:
        return self.nic.receive(limit)

    def link_changed(self, plane: int, state: LinkState) -> bool:
        if not state.up:
            self._lose(plane, "port down")
        return self.nic.link_changed(plane, state)

    def refresh_counters(self) -> None:
        self.nic.refresh_counters()

    def close(self) -> None:
        self.nic.close()


NO_LIMIT = 1 << 30
"""Room of a port without a rate."""
