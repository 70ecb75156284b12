"""Window law of one sender in a crowd: a port has hardly a packet of room for each of its senders.

NSCC keeps a packet of each sender in the pipe, and a fixed window many. N packets do not fit a pipe that holds fewer:
all are trimmed, all leave again at once, and their headers starve the data. The reference is silent about that; what
is decided here stands in docs/congestion.md. The windows are those of Nscc and FixedWindow, which say when a crowd
begins.

1. The window follows the delay alone, and has no floor of a packet: below one, a packet leaves every base RTT / share
   of a packet. Each delay has a window at which increase (with its root) and decrease (with the delay's fifth power)
   cancel. All senders of a port see one delay, so they meet at one window, and the queue neither empties nor trims.
2. Acknowledged bytes beyond the window left while it was larger, and say nothing of this one. A trim, a loss or the
   delay of a packet that left before the last cut says nothing new either: one flight is cut for once, and its delays
   together take at most what one of them may.
3. Who was trimmed waits a random part of its interval, or those who collided once would for ever.
4. A crowd is over for a sender that had a whole window, as large as one at target, without any queue: it is alone.
   A smaller one would not do. Who leaves while others stay gets less than they do, for NSCC steers to the target.
5. A loss without delay is no word of a queue: it costs one packet of a window that has more, as everywhere.
"""

from __future__ import annotations

from math import sqrt
from random import Random
from typing import Final

PACKETS: Final = 8
"""Window in packets that neither grows nor shrinks at a delay of the target, in short pipes."""
BDPS: Final = 0.8
"""Share of the pipe that is this window in pipes of more than ten packets, as "shape" scaling has it."""
DRAIN: Final = 0.0212
"""Share of the window that a round trip takes at a delay of the target.

The increase at the target follows from it."""
POWER: Final = 5
"""Power of the delay with which the taken share grows.

At twice the target, increase and decrease cancel at a 1024th of the window."""
DRAIN_MAX: Final = 0.5
"""Largest share that one packet's delay takes, or those of all packets of a flight."""
SPEED_MAX: Final = 4.0
"""Largest factor by which windows above PACKETS grow and shrink faster.

The factor is proportional to the window; increase and decrease cancel where they did without it."""
CALM_INCREASE: Final = 0.2
"""Increase while there is no queue, in MTU a packet at a window of one or more."""
IDLE_INCREASE: Final = 0.8
"""Increase of a sender whose whole window met no queue, as at the end of an exchange."""
CUT: Final = 0.7
"""Share of the window that a trim or a loss leaves."""
WINDOW_MIN: Final = 1 / 128
"""Least window, in packets: 512 senders share the shortest pipe of four hops (five packets) with it."""
LOSS_WINDOW_MIN: Final = 1 / 8
"""Least window that losses leave, in packets.

A path that loses every packet is no crowd, and its QP has to find that out soon."""


def share_at_target(pipe_packets: float) -> float:
    """Return the window in packets that neither grows nor shrinks at a delay of the target."""
    return max(float(PACKETS), BDPS * pipe_packets)


class Crowd:
    """Crowd state of one sender; `joined` is True while the sender is in a crowd.

    Windows and sizes are nominal bytes; times are of any one unit.
    """

    __slots__ = ("_calm_bytes", "_cut_at", "_flight_at", "_flight_window", "_mtu", "_rng", "is_joined", "turn_at")

    def __init__(self, mtu: float, rng: Random, now: float) -> None:
        self._mtu, self._rng = mtu, rng
        self.is_joined = False
        self.turn_at = now
        """Time at which the last packet left that waited for `opens_at`."""
        self._calm_bytes = 0
        """Bytes acknowledged in a row without a queue."""
        self._cut_at = now
        self._flight_at = now
        """Time of the first answer to the flight that is answered now."""
        self._flight_window = mtu
        """Window at the time `_flight_at`."""

    def join(self) -> None:
        """Enter the crowd."""
        self.is_joined = True
        self._calm_bytes = 0

    def opens_at(self, window: float, base: float) -> float:
        """Return when the next packet may leave by a window below one packet.

        `base`: round trip of the idle path.
        """
        return self.turn_at + base * self._mtu / window

    def after_ack(
        self, window: float, now: float, size: int, left_at: float, is_calm: bool, pressure: float, goal: float
    ) -> float:
        """Return the window after `size` bytes arrived; the packet that tells left at `left_at`.

        `pressure`: its delay in targets; `goal`: share_at_target(). Ends the crowd (note 4) where it is over.
        """
        mtu = self._mtu
        share = window / mtu
        if left_at >= self._flight_at:
            self._flight_at, self._flight_window = now, window
        if is_calm:
            gain = IDLE_INCREASE if self._calm_bytes > window else CALM_INCREASE
            window += gain * size * sqrt(min(1.0, share))
            self._calm_bytes += size
            if self._calm_bytes > window >= goal * mtu:
                self.is_joined = False
            return window
        self._calm_bytes = 0
        if left_at < self._cut_at:  # note 2
            return window
        speed = min(max(1.0, share / PACKETS), SPEED_MAX)
        drain = min(speed * DRAIN * pressure**POWER, DRAIN_MAX)
        part = min(1.0, size / max(window, mtu))  # note 2
        minimum = max(min(window, self._flight_window * (1.0 - DRAIN_MAX)), WINDOW_MIN * mtu)  # note 2
        return max(window * (1.0 + part * (speed * DRAIN * sqrt(goal / share) - drain)), minimum)

    def after_trim(self, window: float, now: float, left_at: float, base: float) -> float:
        """Return the window after a packet that left at `left_at` was trimmed."""
        return self._cut(window, now, left_at, base, WINDOW_MIN)

    def after_loss(self, window: float, now: float, left_at: float, base: float, size: int, is_late: bool) -> float:
        """Return the window after a packet of `size` was lost; `is_late`: the delay is at the target (note 5)."""
        if not is_late:
            return max(window - size, min(window, self._mtu))
        return self._cut(window, now, left_at, base, LOSS_WINDOW_MIN)

    def _cut(self, window: float, now: float, left_at: float, base: float, minimum: float) -> float:
        if left_at < self._cut_at:  # note 2
            return window
        self._cut_at = now
        window = min(window, max(window * CUT, minimum * self._mtu))
        if window < self._mtu:  # note 3
            self.turn_at = now - self._rng.random() * base * self._mtu / window
        return window
