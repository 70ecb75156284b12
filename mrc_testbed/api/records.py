"""Records that the Python API returns, and its errors.

Times end in `_s`: seconds since the fabric was up, on its own clock.

pandas makes a frame of a list of them, such as `fabric.evs("h0", "h2")`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from mrc_testbed.errors import UsageError

EventKind = Literal["fault", "ev", "plane", "transfer", "finding", "qp_error"]


class ApiError(UsageError):
    """A call that cannot be; the message says why and what would do."""


class RootNeededError(ApiError):
    """A live fabric was asked for without root."""


class VirtualTimeError(ApiError):
    """Virtual time has no such thing."""


class NotInTimeError(ApiError, TimeoutError):
    """Timeout of a wait; the transfer goes on."""


class TransferFailedError(ApiError):
    """A transfer ended without its bytes at the receiver, or with other ones."""


@dataclass(frozen=True, slots=True)
class PathState:
    """One path between two hosts, as the QPs of the first one know it."""

    ev: int
    plane: int
    uplink: int | None
    """T0 uplink; None inside a rack, and where EVs name no path."""
    address: str | None
    """Outer IPv6 address, the list of uSIDs; None in modes without one."""
    path: tuple[str, ...]
    """Nodes from host to host."""
    state: str
    """`good`, `skip`, `assumed_bad`, `denied`: the worst that a QP holds of it; `unknown` without a QP.

    `port_down`: a NIC port of its plane is down at either end.
    """
    active: bool
    """Whether the path is in the rotation of a QP."""
    rtt_s: float | None
    sent: int
    """Packets; `lost`: without trace, `marked`: SACKs that told of a mark, `trimmed`: before the last hop."""
    lost: int
    marked: int
    trimmed: int

    @classmethod
    def of_health(cls, row: dict[str, Any]) -> PathState:
        """Return the record of a row of hosts/agent/path_health.py."""
        return cls(
            row["ev"],
            row["plane"],
            row["uplink"],
            row["address"],
            tuple(row["path"]),
            row["state"],
            row["active"],
            row["rtt_s"],
            row["sent"],
            row["lost"],
            row["marked"],
            row["trimmed"],
        )


@dataclass(frozen=True, slots=True)
class EvMove:
    """Change of state of an EV of a transfer's QP.

    GOOD and SKIP alternate with every mark: such changes are not reported.
    """

    at_s: float
    ev: int
    plane: int
    old_state: str
    new_state: str
    cause: str


@dataclass(frozen=True, slots=True)
class FabricEvent:
    """Something that happened, in words."""

    at_s: float
    kind: EventKind
    """Kind of the event.

    `fault`: begun or ended by this program; `finding`: named or cleared by the controller; others: by hosts.
    """
    location: str
    """Host, link or switch."""
    text: str

    def __str__(self) -> str:
        return f"{self.at_s:8.3f} s  {self.text}"


@dataclass(frozen=True, slots=True)
class NamedFault:
    """A fault that the controller has named (docs/controller.md)."""

    number: int
    state: str
    """`active`, `cleared` or `merged`."""
    kind: str
    location: str
    text: str
    raised_s: float
    cleared_s: float | None
    sources: tuple[str, ...]
    """Sources that reported the fault, in order of their reports."""
    found_after_s: float | None
    """Seconds since the injection at its place; None: no fault was injected there."""


@dataclass(frozen=True, slots=True)
class PortCount:
    """Packets of one switch port since the fabric is up: forwarded, marked, trimmed, dropped.

    Live, a drop stands at the port the packet came in by; in virtual time at the one it was to leave by. In virtual
    time `neighbour` is empty in the row of what a switch itself dropped (`blackhole`, `no_route`).
    """

    switch: str
    port: str
    neighbour: str
    forwarded: int
    marked: int
    trimmed: int
    """All trimmed packets; `trimmed_last_hop` counts those towards a host."""
    trimmed_last_hop: int
    dropped: int
    drops_by_reason: dict[str, int]
    """Drops by reason."""


@dataclass(frozen=True, slots=True)
class PacketWay:
    """Way of one packet of an EV as switches and links are now; nothing is sent."""

    source: str
    destination: str
    ev: int
    plane: int
    nodes: tuple[str, ...]
    """Nodes that the packet reaches, the source first."""
    arrived: bool
    end: str
    """End of the packet's way, in words."""


@dataclass(frozen=True, slots=True)
class TransferResult:
    """Outcome of a transfer whose bytes arrived, and were compared (SHA-256 of both ends)."""

    source: str
    destination: str
    size_bytes: int
    duration_s: float
    """Seconds from the first write posted to the last one completed."""
    rate_bps: float
    """Payload, bits/s."""
    sha256: str
    packets: int
    """Data packets sent, retransmissions included."""
    retransmitted: int
    lost: int
    """Packets lost without trace."""
    marked: int
    trimmed: int
    plane_bytes: tuple[int, ...]
    """Payload bytes sent by plane, retransmissions included."""
    ev_moves: tuple[EvMove, ...]
    """EVs withdrawn and brought back so far."""
    transport: str
