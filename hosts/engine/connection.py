"""Context shared by the parts of one connected QP.

Names, configuration, event queue, transmit credit of the ports.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

from mrc_testbed.hosts.engine.cc.incast import IncastSignal
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.events import Event, LossCause
from mrc_testbed.hosts.engine.wire.packets import NackReason

LOSSES: Final = {LossCause.OVERTAKEN: "overtaken", LossCause.DISTANCE: "distant", LossCause.TIMEOUT: "timeouts"}
"""Causes of a loss (§5.9 a, b, c) with the name that each has in `Counters.by_name`."""
REFUSALS: Final[dict[int, str]] = {
    NackReason.NO_BITMAP: "refused_bitmap",
    NackReason.NO_PKT_BUFFER: "refused_buffer",
    NackReason.NO_RESOURCE: "refused_resource",
    NackReason.PSN_OOR_WINDOW: "refused_window",
}
"""Reasons of the responder, likewise."""


@dataclass(slots=True)
class Context:
    """Properties of a connection, fixed for its life."""

    qpn: int
    remote_qpn: int
    peer: str
    config: Config
    events: list[Event]
    """Outbox of the endpoint, to which the parts append."""
    pmtu_bytes: int
    """Payload of a full packet: the smaller of both ends' configurations."""
    remote_mpr: int
    """Window of the peer's responder, packets."""
    remote_trim_nack: bool
    """Whether the peer answers trimmed packets with NACKs; else our data must not be trimmed (§6.6)."""
    dynamic_mpr: bool = False
    """Both ends can change their windows: Sack.mpr means something (§5.3)."""
    incast: IncastSignal = field(default_factory=IncastSignal)
    """Incast signal of the endpoint: what its SACKs say about trims at the last hop."""
    request_ids: tuple[int, int] = field(init=False)
    """spdcid and dpdcid of what we send as requestor (Config.wire.dcids); `answer_ids`: as responder."""
    answer_ids: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        own_id, peer_id = self.qpn & 0xFFFF, self.remote_qpn & 0xFFFF
        self.request_ids = self.answer_ids = (own_id, peer_id)
        if self.config.wire.dcids == "roles":
            self.answer_ids = (peer_id, own_id)
        elif self.config.wire.dcids == "connection":
            self.request_ids = self.answer_ids = (min(own_id, peer_id),) * 2


class PlaneCounters:
    """Data packets that a QP sent over one plane, retransmissions included, and their payload."""

    __slots__ = ("packets", "payload_bytes")

    def __init__(self) -> None:
        self.packets = self.payload_bytes = 0

    def count(self, payload_bytes: int) -> None:
        """Count one packet."""
        self.packets += 1
        self.payload_bytes += payload_bytes


@dataclass(slots=True)
class Counters:
    """Counters of one QP since its creation. `packets` are data packets; sizes are payload bytes."""

    packets_sent: int = 0
    bytes_sent: int = 0
    """Payload sent for the first time."""
    retransmitted: int = 0
    lost: int = 0
    """Packets declared lost without trace, whatever the rule."""
    losses: dict[LossCause, int] = field(default_factory=lambda: dict.fromkeys(LOSSES, 0))
    """Lost packets by cause."""
    not_lost: int = 0
    """Declared lost, but arrived before it was sent again."""
    spurious: int = 0
    """Answers to copies that had been given up: sent twice for nothing."""
    marked: int = 0
    """SACKs whose verdict was SKIP_ONCE: packets of ours that were CE-marked."""
    trimmed: int = 0
    trimmed_lasthop: int = 0
    """Packets trimmed at the last hop; included in `trimmed`."""
    refused: int = 0
    """NACKs for reasons of the responder."""
    refusals: dict[int, int] = field(default_factory=lambda: dict.fromkeys(REFUSALS, 0))
    """Refusals by NackReason; a reason that §2.10 does not have counts as NO_RESOURCE."""
    unknown_nacks: int = 0
    """NACKs of a reason that is none of §2.10's (Config.loss.unknown_nack)."""
    retry_charges: int = 0
    probes_sent: int = 0
    probes_answered: int = 0
    sacks_received: int = 0
    stale_sacks: int = 0
    foreign_cc: int = 0
    """SACKs whose congestion part was not NSCC's, and not read."""
    bad_feedback: int = 0
    """SACKs, NACKs and ACKs for PSNs never sent."""
    packets_received: int = 0
    bytes_received: int = 0
    """Payload placed, each byte once."""
    duplicates: int = 0
    out_of_order: int = 0
    out_of_window: int = 0
    trims_received: int = 0
    marks_received: int = 0
    sacks_sent: int = 0
    acks_sent: int = 0
    nacks_sent: int = 0
    planes: list[PlaneCounters] = field(default_factory=list)

    @property
    def plane_packets(self) -> list[int]:
        """Return the data packets sent by plane."""
        return [plane.packets for plane in self.planes]

    @property
    def plane_bytes(self) -> list[int]:
        """Return the payload sent by plane, bytes."""
        return [plane.payload_bytes for plane in self.planes]

    @property
    def timeouts(self) -> int:
        """Number of packets whose timer expired, rule (c) of §5.9."""
        return self.losses[LossCause.TIMEOUT]

    def by_name(self) -> dict[str, Any]:
        """List every counter under the name that users see; losses and refusals have one for each cause."""
        counters: dict[str, Any] = {}
        for name in (counter.name for counter in fields(self)):
            if name == "losses":
                counters.update({LOSSES[cause]: count for cause, count in self.losses.items()})
            elif name == "refusals":
                counters.update({REFUSALS[reason]: count for reason, count in self.refusals.items()})
            elif name == "planes":
                counters.update(plane_packets=self.plane_packets, plane_bytes=self.plane_bytes)
            else:
                counters[name] = getattr(self, name)
        return counters


class PortRoom:
    """Packets that one port can take, an object of its own: a list would make objects of numbers."""

    __slots__ = ("bit", "packets")

    def __init__(self, plane: int) -> None:
        self.packets = 0
        self.bit = 1 << plane
        """Bit of the port in a mask of ports."""


class TxCredit:
    """Packets each port can take now. `free_ports` has bit p set while plane p has room.

    `room`: as of Endpoint.transmit; None: any number everywhere.
    """

    __slots__ = ("_has_limits", "_rooms", "free_ports")

    def __init__(self, planes: int, room: list[int] | None = None) -> None:
        self._has_limits = room is not None
        self._rooms = [PortRoom(plane) for plane in range(planes)]
        self.free_ports = (1 << planes) - 1
        if room is not None:
            self.free_ports = 0
            for plane, packets in enumerate(room[:planes]):
                self.offer(plane, packets)

    def begin(self) -> None:
        """Begin anew with ports that have no room yet."""
        self._has_limits = True
        self.free_ports = 0

    def offer(self, plane: int, packets: int) -> None:
        """Set the room of a port that had none."""
        if packets > 0:
            room = self._rooms[plane]
            room.packets = packets
            self.free_ports |= room.bit

    def take(self, plane: int) -> None:
        """Take one packet's room at the port of `plane`."""
        if self._has_limits:
            room = self._rooms[plane]
            room.packets -= 1
            if room.packets <= 0:
                self.free_ports &= ~room.bit
