"""An MRC endpoint: everything behind the NIC ports of one host. No clock, no socket, no thread, no randomness of its own.

After each call drain `transmit` and `events`, and call `on_timer` when `next_timer` has come. Times are float
seconds of any one clock. `peer` is an opaque key (the other host's name) which the NIC maps to addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .config import Config
from .events import Event
from .packets import Packet
from .qp import QueuePair


class LocalError(ValueError):
    """Our own caller asked for something that cannot be done; the message says what could."""


class Endpoint:
    """`planes`: number of NIC ports, all up at first. `seed`: int or random.Random, the only source of randomness."""

    def __init__(self, name: str, config: Config | None = None, *, planes: int, seed: Any) -> None:
        raise NotImplementedError

    # ---- application ------------------------------------------------------------------------------------

    def register(self, buffer: Any, *, va: int | None = None, remote_write: bool = True) -> Any:
        """Register a writable buffer; returns a MemoryRegion (.va, .length, .rkey, .view)."""
        raise NotImplementedError

    def deregister(self, region: Any) -> None:
        """Writes to the region are refused from now on."""
        raise NotImplementedError

    def create_qp(self) -> QueuePair:
        """A QP in INIT with a fresh QPN (>= 3) and a random first PSN."""
        raise NotImplementedError

    def destroy_qp(self, qpn: int) -> None:
        """Forget a QP; packets for it are dropped from now on."""
        raise NotImplementedError

    def qp(self, qpn: int) -> QueuePair:
        """The QP of that number. Raises LocalError."""
        raise NotImplementedError

    def events(self) -> list[Event]:
        """Events since the last call, in order."""
        raise NotImplementedError

    def probe_ev(self, peer: str, ev: int, plane: int, *, now: float, timeout_s: float = 0.1) -> int:
        """Send an EV probe (ERTH op 1, needs no QP); its EvProbeResult event carries the id returned."""
        raise NotImplementedError

    # ---- network and clock ------------------------------------------------------------------------------

    def receive(self, packet: Packet, plane: int, peer: str, now: float) -> None:
        """A decoded packet from `peer` came in on our port of `plane`. Never raises for what a packet contains."""
        raise NotImplementedError

    def on_port(self, plane: int, up: bool, now: float) -> None:
        """Local link state."""
        raise NotImplementedError

    def next_timer(self) -> float | None:
        """When on_timer wants to be called; None = nothing is pending."""
        raise NotImplementedError

    def on_timer(self, now: float) -> None:
        """Do everything due at `now`. Harmless when early."""
        raise NotImplementedError

    def transmit(
        self, now: float, limit: int = 64, room: Sequence[int] | None = None
    ) -> list[tuple[int, str, Packet]]:
        """Up to `limit` packets as (plane, peer, record), control packets first.

        `room[p]`: packets the port of plane p can take now (None: any number); planes without room are passed over.
        What is returned counts as sent. An empty list: nothing may be sent now.
        """
        raise NotImplementedError
