"""One MRC queue pair: attributes that travel out of band, and (next commit) the two halves behind one QPN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any


class QpState(Enum):
    INIT = "init"
    """Made, knows nothing of its peer."""
    RTS = "rts"
    """Connected: sends and receives."""
    ERROR = "error"
    """Work requests were flushed; packets are ignored."""


class PeerError(ValueError):
    """The other side sent something that makes no sense."""


@dataclass(frozen=True, slots=True)
class QpAttributes:
    """What two ends tell each other out of band before they connect (§10.2). Goes through JSON as it is."""

    qpn: int
    """QPN, 3 or above."""
    psn: int
    """First PSN this end will send, 24 bits."""
    pmtu_bytes: int
    mpr_packets: int
    """Window of this end as responder."""
    max_wimm: int
    trim_nack: bool
    """This end answers trimmed packets with a NACK."""
    va: int = 0
    """Registered region the peer may write to, when one is offered: virtual address, R_Key, length in bytes."""
    rkey: int = 0
    length: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> QpAttributes:
        """Inverse of to_json. Raises PeerError naming the key that is missing, unknown or out of range."""
        raise NotImplementedError


class QueuePair:
    """Made by Endpoint.create_qp."""

    qpn: int
    peer: str | None
    state: QpState

    def attributes(self, region: Any = None) -> QpAttributes:
        """What to send to the peer out of band; with the MemoryRegion it may write to, if any."""
        raise NotImplementedError

    def connect(self, peer: str, remote: QpAttributes, evs: Sequence[tuple[int, int]], now: float) -> None:
        """INIT -> RTS. `peer`: the NIC's key of the other host; `evs`: (EV, plane) pairs that name distinct paths."""
        raise NotImplementedError

    def post_write(
        self, local: bytes | bytearray | memoryview, remote_va: int, rkey: int, *, now: float, imm: int | None = None
    ) -> int:
        """Queue an RDMA write (WriteIMM with `imm`); returns its wr_id. `local` must stay unchanged until completion.

        Raises LocalError unless RTS. The end is told by a Completion event.
        """
        raise NotImplementedError

    def outstanding(self) -> int:
        """Work requests not completed yet."""
        raise NotImplementedError

    def ev_states(self) -> list[dict[str, Any]]:
        """One dict per EV: ev, plane, state ("good"...), active, sent, lost, rtt_s (last, or None), probes_ok."""
        raise NotImplementedError

    def counters(self) -> dict[str, Any]:
        """Counters since creation, by name; `plane_bytes` and `plane_packets` are lists by plane (data sent)."""
        raise NotImplementedError
