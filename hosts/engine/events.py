"""Events of an endpoint for its application.

They are records, drained from Endpoint.events() in the order they happened.

`at` is the engine time (seconds) of the call that caused the event.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mrc_testbed.hosts.engine.paths.ev_state import EvState


class Status(Enum):
    """Result of a work request."""

    SUCCESS = "success"
    RETRY_EXCEEDED = "Retry Counter Exceeded"
    REMOTE_ACCESS = "remote access error"
    REMOTE_INVALID_REQUEST = "remote invalid request"
    REMOTE_OPERATION = "remote operation error"
    FLUSHED = "work request flushed"


class LossCause(Enum):
    """Evidence by which a packet lost without trace was detected (§5.9)."""

    OVERTAKEN = "a younger packet of the same EV arrived"
    DISTANCE = "a whole window of younger packets arrived"
    TIMEOUT = "its timer expired"
    PORT_DOWN = "the port it left by went down"


@dataclass(slots=True)
class Completion:
    """A work request ended; in posting order, each exactly once."""

    qpn: int
    wr_id: int
    status: Status
    length: int
    at: float


@dataclass(slots=True)
class EvChanged:
    """An EV went to ASSUMED_BAD or DENIED, or came back to GOOD. No event tells GOOD <-> SKIP (§7)."""

    qpn: int
    peer: str
    ev: int
    plane: int
    old_state: EvState
    new_state: EvState
    cause: str
    """Cause, in the words of the EvSignal."""
    at: float


@dataclass(slots=True)
class EvReplaced:
    """A backup of the same plane joined the rotation; `substitute` None: the slot stays empty."""

    qpn: int
    ev: int
    substitute: int | None
    plane: int
    at: float


@dataclass(slots=True)
class PacketLost:
    """A packet was lost without trace; `sent_at` is when this copy of it left."""

    qpn: int
    psn: int
    ev: int
    plane: int
    cause: LossCause
    sent_at: float
    at: float


@dataclass(slots=True)
class WriteImmReceived:
    """The peer's WriteIMM is here whole, and so is everything before it; it used up one posted receive."""

    qpn: int
    imm: int
    length: int
    at: float
    recv_id: int = 0
    """Number that QueuePair.post_recv returned; 0 when `no_receive` = "deliver" found no posted receive."""
    solicited: bool = False
    """Whether the sender requested an event (BTH.SE)."""


@dataclass(slots=True)
class ReceiveFlushed:
    """A posted receive will not be used: the QP went to ERROR."""

    qpn: int
    recv_id: int
    at: float


@dataclass(slots=True)
class PlaneChanged:
    """Usability of a plane changed: `peer` None = our own port, else the peer announced its port (§5.12)."""

    peer: str | None
    plane: int
    up: bool
    at: float


@dataclass(slots=True)
class QpError:
    """A QP went to ERROR; its work requests are flushed (Completions follow)."""

    qpn: int
    peer: str
    status: Status
    detail: str
    at: float


@dataclass(slots=True)
class EvProbeResult:
    """Outcome of Endpoint.probe_ev.

    One of three: there and back over the EV; out, but not back; not even out.

    Where no answer came back over the EV, the probe was repeated and answered another way, or not at all.
    """

    request_id: int
    peer: str
    ev: int
    plane: int
    rtt_s: float | None
    """Round trip of the asking that was answered; None: none was, the way out is lost."""
    at: float
    back_lost: bool = False
    """Whether only the way back over the EV fails; `rtt_s` is by another way back."""


Event = (
    Completion
    | EvChanged
    | EvReplaced
    | PacketLost
    | WriteImmReceived
    | ReceiveFlushed
    | PlaneChanged
    | QpError
    | EvProbeResult
)
