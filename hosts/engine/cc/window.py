"""Interface of congestion control to a requestor, in its simplest form: a window per QP that never changes.

The other one is qpcc.Share: a share of the window that all QPs to one destination have together. Which methods there
are, and what they are told, is described here.

All sizes are nominal bytes (UDP length + 40). `inflight` is signed: it is drained by the responder's byte counter,
which rounds up to 256 bytes, and may dip below zero by that much.
"""

from __future__ import annotations

from typing import Any, Final

from hosts.engine.wire.packets import RCVD_UNIT

LONG_AGO: Final = float("-inf")


def plausible_inflight(inflight: int, outstanding: int) -> int:
    """See FixedWindow.cap."""
    return max(min(inflight, outstanding), -RCVD_UNIT)


class FixedWindow:
    """`cwnd` bytes may be in flight; `mtu` is the nominal size of a full packet."""

    __slots__ = ("alone", "cwnd", "inflight", "mtu")

    def __init__(self, cwnd: int, mtu: int) -> None:
        self.cwnd = float(cwnd)
        self.mtu = mtu
        self.inflight = 0
        self.alone = True
        """No other QP sends by it."""

    def may_send(self) -> bool:
        """MRC's rule (§5.3): one packet may always leave an empty pipe, whatever the window."""
        return self.inflight < self.cwnd

    def about_to_stall(self) -> bool:
        """Less than a full packet of window is left: the sender requests an acknowledgment now (§5.2)."""
        return self.cwnd - self.inflight < self.mtu

    def opens_at(self) -> float:
        """When the next packet may leave that the window lets go; any number of them where it is in the past."""
        return LONG_AGO

    def took_turn(self, now: float) -> None:
        """A packet left that had to wait for opens_at()."""

    def on_send(self, size: int) -> None:
        self.inflight += size

    def on_ack(
        self, now: float, size: int, marked: bool, rtt_s: float | None, penalty: int = 0, restore: bool = False,
        sampled: int | None = None,
    ) -> None:  # fmt: skip
        """`size` bytes newly reported by rcvd_bytes; mark and RTT are those of the SACK's trigger, which had `sampled`
        bytes (None: a full packet's).
        """
        self.inflight -= size

    def on_trim(self, now: float, size: int, last_hop: bool = False) -> None:
        """A packet was trimmed on its way, `last_hop`: at the port to its receiver."""
        self.inflight -= size

    def on_other_nack(self, size: int) -> None:
        """A packet was refused for want of resources at the responder."""
        self.inflight -= size

    def on_loss(self, now: float, size: int) -> None:
        """A packet was given up as lost."""
        self.inflight -= size

    def on_unlost(self, size: int) -> None:
        """A packet given up, and not sent again yet, turns out to have arrived: rcvd_bytes counts it once more."""
        self.inflight += size

    def on_silence(self) -> None:
        """A timer expired, and nothing was heard since its packet left: the peer's QP may be gone."""

    def on_life(self) -> None:
        """Something was heard again."""

    def cap(self, outstanding: int) -> None:
        """Keep inflight plausible for peers that count otherwise (§12 row 15), or lie.

        No more is in flight than is not known to have arrived; and never less than nothing, but for the rounding. That
        must stay even when nothing is outstanding: the counter is absolute, and what it ran ahead it will lag behind.
        """
        self.inflight = plausible_inflight(self.inflight, outstanding)

    def leave(self) -> None:
        """The QP is gone or in ERROR: none of its packets is in flight."""
        self.inflight = 0

    def report(self) -> dict[str, Any]:
        """State for tools; bytes."""
        return {"algorithm": "fixed", "cwnd_bytes": self.cwnd, "inflight_bytes": max(0, self.inflight)}
