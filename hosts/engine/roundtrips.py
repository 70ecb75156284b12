"""Round trips of one QP as its requestor measured them (reference §5.8), and the timers that follow (§5.11).

Knows nothing of packets, paths or queues: every time comes in as an argument, in seconds.

Design notes.

1. A host that has no CPU for a while answers late, which is no loss. The retry timer is therefore never shorter than
   `timeout_rtts` smoothed round trips and four deviations; and when an answer to a copy that was given up comes after
   all, the timer stays above its true round trip (from the mirrored timestamp) for a while, so that a second spurious
   round needs a longer stall.
2. The retry counter is charged once per *expiry round*: after a charge, the next one is possible only when a packet
   that expired then could have expired again. A path that dies takes dozens of packets with it, whose timers run
   out together; charging each would spend the whole budget on one event, while the budget is meant to measure how
   long nothing gets through (§5.11). So a QP fails no sooner than linear_cnt + exp_cnt intervals after progress
   stopped.
"""

from __future__ import annotations

from .config import Config
from .flight import PATIENCE

LATE_HALVES_S = 10.0
"""Time after which a late answer counts half."""
LATE_MARGIN = 1.25
"""The timer's distance from a late answer's round trip."""


class RoundTrips:
    """Of all paths together; what each path needs by itself, its EV knows."""

    __slots__ = (
        "_base_s", "_ceiling_s", "_floor_s", "_intervals", "_late_at", "_late_s", "_rtts", "_unit_s", "deviation_s",
        "srtt_s",
    )  # fmt: skip

    def __init__(self, config: Config):
        self.srtt_s: float | None = None
        """Smoothed RTT (gain 1/8); None before the first sample."""
        self.deviation_s = 0.0
        """Smoothed distance of the samples from it (gain 1/4)."""
        self._floor_s = 0.0
        """Shortest timer that the round trips allow (note 1)."""
        self._late_s = self._late_at = 0.0
        """Longest round trip of an answer that came too late, and when; it counts half after LATE_HALVES_S."""
        self._intervals = [config.retry_interval_s(n) for n in range(config.linear_cnt + config.exp_cnt + 1)]
        self._base_s, self._ceiling_s = config.base_timeout_s, config.timeout_ceiling_s
        self._rtts, self._unit_s = config.timeout_rtts, config.ts_unit_s

    # ---- what was measured ------------------------------------------------------------------------------

    def measured(self, rtt_s: float, now: float) -> None:
        """A round trip took that long."""
        if self.srtt_s is None:
            self.srtt_s, self.deviation_s = rtt_s, rtt_s / 2
        else:
            self.deviation_s += (abs(rtt_s - self.srtt_s) - self.deviation_s) / 4
            self.srtt_s += (rtt_s - self.srtt_s) / 8
        if self._rtts:
            floor = self._rtts * self.srtt_s + 4 * self.deviation_s
            if self._late_s:
                late = self._late_left(now)
                floor = max(floor, LATE_MARGIN * late)
                if late < self.srtt_s:
                    self._late_s = 0.0
            self._floor_s = min(floor, self._ceiling_s)

    def answered_late(self, timestamp: int, now: float) -> None:
        """The answer to a copy that had been given up came after all; `timestamp`: when the copy left (16 bits)."""
        rtt_s = (int(now / self._unit_s) - timestamp & 0xFFFF) * self._unit_s
        if rtt_s > self._late_left(now):
            self._late_s, self._late_at = rtt_s, now
        self.measured(rtt_s, now)

    def _late_left(self, now: float) -> float:
        """What is left of the longest late answer, seconds."""
        return self._late_s * 0.5 ** ((now - self._late_at) / LATE_HALVES_S)

    # ---- what follows -----------------------------------------------------------------------------------

    def timer_s(self, expiries: int, path_rtt_s: float | None = None) -> float:
        """Retry timer of a packet that expired so often: T, or what round trips ask for, if that is longer.

        `path_rtt_s`: of the path it takes; one known to be slow gets the time it needs.
        """
        interval = self._intervals[min(expiries, len(self._intervals) - 1)]
        if interval < self._floor_s:
            interval = self._floor_s
        if path_rtt_s is not None and path_rtt_s * PATIENCE > interval:
            interval = min(path_rtt_s * PATIENCE, self._ceiling_s)
        return interval

    def one_s(self) -> float:
        """A round trip, or T as long as none is known."""
        return self.srtt_s or self._base_s

    def verdict_s(self) -> float:
        """How long after a retransmission arrived an answer to the first copy may still come."""
        return max(self.srtt_s or 0.0, self._floor_s / 2)


class RetryBudget:
    """How long nothing got through, in charges of the retry counter (§5.11)."""

    __slots__ = ("_limit", "_trips", "again_at", "charges")

    def __init__(self, config: Config, trips: RoundTrips):
        self._limit = config.retry_limit
        self._trips = trips
        self.charges = 0
        """Since something got through."""
        self.again_at = 0.0
        """Before this time nothing is charged (note 2)."""

    def charge(self, now: float) -> bool:
        """One more charge, at `again_at` or later; False when that was the last one allowed."""
        self.charges += 1
        if self._limit is not None and self.charges >= self._limit:
            return False
        self.again_at = now + self._trips.timer_s(self.charges)
        return True

    def restore(self) -> None:
        """Something got through: the budget is whole again."""
        self.charges = 0
        self.again_at = 0.0
