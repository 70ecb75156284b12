"""Context shared by the parts of one connected QP.

Names, configuration, event queue, transmit credit of the ports.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
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
    plane_packets: list[int] = field(default_factory=list)
    """Data packets sent by plane, retransmissions included; `plane_bytes` their payload."""
    plane_bytes: list[int] = field(default_factory=list)

    @property
    def timeouts(self) -> int:
        """Number of packets whose timer expired, rule (c) of §5.9."""
        return self.losses[LossCause.TIMEOUT]

    def by_name(self) -> dict[str, Any]:
        """List every counter under the name that users see; losses and refusals have one for each cause."""
        counters: dict[str, Any] = {}
        for name, value in asdict(self).items():
            if name == "losses":
                counters.update({LOSSES[cause]: count for cause, count in self.losses.items()})
            elif name == "refusals":
                counters.update({REFUSALS[reason]: count for reason, count in self.refusals.items()})
            else:
                counters[name] = value
        return counters


class TxCredit:
    """Packets each port can take now. `free` has bit p set while plane p has room."""

    __slots__ = ("_credits", "free_ports")

    def __init__(self, planes: int, room: list[int] | None, ports_up: int) -> None:
        self.free_ports = 0
        self._credits: list[int] | None = None
        self.fill(planes, room, ports_up)

    def fill(self, planes: int, room: list[int] | None, ports_up: int) -> None:
        """Begin anew with the room that ports have now; `room` itself stays as it is."""
        free_ports = ports_up & (1 << planes) - 1
        self._credits = None
        if room is not None:
            self._credits = room[:]
            for plane in range(planes):
                if plane >= len(room) or room[plane] <= 0:
                    free_ports &= ~(1 << plane)
        self.free_ports = free_ports

    def take(self, plane: int) -> None:
        """Take one packet's room at the port of `plane`."""
        credits = self._credits
        if credits is not None:
            room_left = credits[plane] - 1
            credits[plane] = room_left
            if room_left <= 0:
                self.free_ports &= ~(1 << plane)
