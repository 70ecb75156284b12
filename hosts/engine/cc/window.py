"""Interface of congestion control to a requestor, in its simplest form: a window per QP that is fixed.

It changes in one case, for there it would end in nothing: in a crowd (crowd.py), which begins for it when a packet is
trimmed at the last hop for the third time, it follows the crowd's law until that is over.

The other one is qpcc.Share: a share of the window that all QPs to one destination have together. Which methods there
are, and what they are told, is described here.

All sizes are nominal bytes (UDP length + 40). `inflight` is signed: it is drained by the responder's byte counter,
which rounds up to 256 bytes, and may dip below zero by that much.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from mrc_testbed.hosts.engine.cc.crowd import PACKETS, Crowd
from mrc_testbed.hosts.engine.wire.packets import RCVD_UNIT

LONG_AGO: Final = float("-inf")
FULL_PACKET: Final = 1 << 30
"""Size of a packet that counts as a full one, whatever the MTU."""


def plausible_inflight(inflight: int, outstanding: int) -> int:
    """See FixedWindow.cap."""
    return max(min(inflight, outstanding), -RCVD_UNIT)


CROWDED_ATTEMPT: Final = 3
"""Transmission of a packet whose trim at the last hop begins a crowd: two are what a burst costs."""
TARGET: Final = 0.75
"""Delay in base RTTs that a crowd steers to; as for NSCC in fabrics that trim."""
CALM_DELAY: Final = 1 / 12
"""Delay in base RTTs below which there is no queue; as for NSCC in fabrics that trim."""


class FixedWindow:
    """`whole` bytes may be in flight; `mtu` is the nominal size of a full packet.

    `base_rtt_s`: the round trip of an idle fabric; 0: the shortest of a full packet so far.
    """

    __slots__ = ("_base_s", "_crowd", "_delay", "_full_window", "cwnd", "inflight", "is_alone", "mtu")

    def __init__(
        self, window_bytes: int, mtu: int, base_rtt_s: float = 0.0, rng: Random | None = None, now: float = 0.0
    ) -> None:
        self.cwnd = self._full_window = float(window_bytes)
        self.mtu = mtu
        self.inflight = 0
        self.is_alone = True
        """Whether no other QP sends by this window."""
        self._base_s = base_rtt_s
        self._crowd = Crowd(float(mtu), rng or Random(0), now)
        self._delay = 0.0
        """Queueing delay of the last full packet that arrived, in base RTTs."""

    def may_send(self) -> bool:
        """MRC's rule (§5.3): one packet may always leave an empty pipe, whatever the window."""
        return self.inflight < self.cwnd

    def about_to_stall(self) -> bool:
        """Less than a full packet of window is left: the sender requests an acknowledgment now (§5.2)."""
        return self.cwnd - self.inflight < self.mtu

    def opens_at(self) -> float:
        """Return when the window lets the next packet leave; a time in the past allows any number of packets."""
        crowd = self._crowd
        return crowd.opens_at(self.cwnd, self._base_s) if crowd.is_joined and self.cwnd < self.mtu else LONG_AGO

    def took_turn(self, now: float) -> None:
        """Note that a packet left that had to wait for opens_at()."""
        self._crowd.turn_at = now

    def on_send(self, size: int) -> None:
        self.inflight += size

    def on_ack(
        self,
        now: float,
        size: int,
        marked: bool,
        rtt_s: float | None,
        penalty: int = 0,
        restore: bool = False,
        sample_size: int = FULL_PACKET,
    ) -> None:
        """Count `size` bytes that rcvd_bytes newly reports.

        `marked` and `rtt_s` are those of the SACK's trigger, which had `sample_size` bytes.
        """
        self.inflight -= size
        if not rtt_s or sample_size < self.mtu:  # 0.0: the clock did not move
            return
        if not 0.0 < self._base_s <= rtt_s:
            self._base_s = rtt_s
        delay = self._delay = rtt_s / self._base_s - 1.0
        if self._crowd.is_joined:  # nothing is known of the pipe, so the share at target is that of a short one
            self.cwnd = self._crowd.after_ack(
                self.cwnd, now, size, now - rtt_s, delay < CALM_DELAY, delay / TARGET, float(PACKETS)
            )
            self.cwnd = min(self.cwnd, self._full_window) if self._crowd.is_joined else self._full_window

    def on_trim(self, now: float, size: int, last_hop: bool, left_at: float, attempt: int) -> None:
        """Take a packet off that left at `left_at` and was trimmed; `last_hop`: at the receiver's port.

        `attempt`: 1 for the first transmission of the packet.
        """
        self.inflight -= size
        if self._crowd.is_joined:
            self.cwnd = self._crowd.after_trim(self.cwnd, now, left_at, self._base_s)
        elif last_hop and attempt >= CROWDED_ATTEMPT:
            self._crowd.join()
            self.cwnd = min(self._full_window, PACKETS * float(self.mtu))

    def on_other_nack(self, size: int) -> None:
        """Take a packet off that was refused for want of resources at the responder."""
        self.inflight -= size

    def on_loss(self, now: float, size: int, left_at: float) -> None:
        """Take a packet off that left at `left_at` and was given up as lost."""
        self.inflight -= size
        if self._crowd.is_joined:
            self.cwnd = self._crowd.after_loss(self.cwnd, now, left_at, self._base_s, size, self._delay >= TARGET)

    def on_unlost(self, size: int) -> None:
        """Add a packet that was given up, not sent again yet, and has arrived: rcvd_bytes counts it once more."""
        self.inflight += size

    def on_silence(self) -> None:
        """Note that a timer expired without an answer since its packet left: the peer's QP may be gone."""

    def on_life(self) -> None:
        """Note an answer after a silence."""

    def cap(self, outstanding: int) -> None:
        """Keep inflight plausible for peers that count otherwise (§12 row 15), or lie.

        No more is in flight than is not known to have arrived; and never less than nothing, but for the rounding. That
        must stay even when nothing is outstanding: the counter is absolute, and what it ran ahead it will lag behind.
        """
        self.inflight = plausible_inflight(self.inflight, outstanding)

    def leave(self) -> None:
        """Remove all packets in flight of a QP that is gone or in ERROR."""
        self.inflight = 0

    def report(self) -> dict[str, Any]:
        """Return the state for tools, in bytes."""
        return {"algorithm": "fixed", "cwnd_bytes": self.cwnd, "inflight_bytes": max(0, self.inflight)}
