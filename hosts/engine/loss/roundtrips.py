"""Round trips of one QP as its requestor measured them (§5.8), and the timers that follow (§5.11).

Sections (§) are those of mrc-protocol.

Knows nothing of packets, paths or queues: every time comes in as an argument, in seconds.

Design notes.

1. A host that has no CPU for a while answers late, which is no loss. The retry timer is therefore never shorter than
   `timeout_rtts` smoothed round trips and four deviations; and when an answer to a copy that was given up comes after
   all, the timer stays above its true round trip for a while, so that a second spurious round needs a longer stall.
   The round trips are those of the packet's own path where they are known: a path that takes seconds does not slow
   down the timers of the others.
2. One rule charges the retry counter (`RetryBudget.charge`), whatever made it necessary to send or to ask again: an
   expired timer, a loss that any rule inferred, a refusal by NACK, a Transport ACK that does not come, a wait for a
   path. It is charged once per *expiry round*: after a charge, the next one is possible only when a packet that
   expired then could have expired again. A path that dies takes dozens of packets with it, whose timers run out
   together; charging each would spend the whole budget on one event, while the budget is meant to measure how long
   nothing gets through (§5.11). So a QP fails no sooner than linear_cnt + exp_cnt intervals after progress stopped.
   Progress alone, an advance of cack, makes the budget whole again. Answers to probes do not, for what loses every
   data packet may let them pass (a hole for long frames).
3. Congestion is no failure. A NACK for a trim charges nothing: the packet reached a queue, and its header the
   responder. And a round in which one came is free, whatever else was lost in it: where headers crowd a port out, they,
   their NACKs and SACKs are lost as well.
"""

from __future__ import annotations

from typing import Final

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.paths.ev import UNKNOWN, Ev

PATIENCE: Final = 1.5
"""Round trips before distance alone makes a packet suspect."""
SKEW: Final = 1.25
"""Round trips by which one path of a plane may be behind another: switches trim beyond a queue of one."""
QUEUES: Final = 2
"""Such queues that a path passes between racks; while packets are trimmed both may be full."""
TRIM_RTTS: Final = 4
"""Round trips after a trim in which the queues count as full."""
REST_PART: Final = 0.25
"""Part of the retry timer that a host which was held up may take from one of its ports to the next."""

LATE_HALVES_S: Final = 10.0
"""Time after which a late answer counts half, seconds.

LATE_HALVES_TIMERS base timeouts where these are shorter."""
LATE_HALVES_TIMERS: Final = 600
LATE_MARGIN: Final = 1.25
"""Ratio of the timer to a late answer's round trip."""


class RoundTrips:
    """RTT estimate over all paths. The RTT of one path is in its `Ev`."""

    __slots__ = (
        "_base_s",
        "_ceiling_s",
        "_first_interval_s",
        "_full_until",
        "_intervals",
        "_is_measured",
        "_late_at",
        "_late_halves_s",
        "_late_s",
        "_loss",
        "_rtts",
        "_shortest_s",
        "_smoothed_s",
        "deviation_s",
    )

    def __init__(self, config: Config) -> None:
        self._smoothed_s = UNKNOWN
        """Smoothed RTT (gain 1/8); UNKNOWN before the first sample."""
        self.deviation_s = 0.0
        """Smoothed distance of the samples from it (gain 1/4)."""
        self._late_s = self._late_at = 0.0
        """Longest round trip of an answer that came too late, and when; it counts half after `_late_halves_s`."""
        loss = self._loss = config.loss
        self._late_halves_s = min(LATE_HALVES_S, LATE_HALVES_TIMERS * loss.base_timeout_s)
        self._first_interval_s: float = loss.retry_interval_s(0)
        """Retry interval of a packet that never expired, which most packets are."""
        self._intervals = [self._first_interval_s]
        """Retry intervals by number of expiries, computed on demand."""
        self._base_s, self._ceiling_s = loss.base_timeout_s, loss.timeout_ceiling_s
        self._rtts = loss.timeout_rtts
        self._shortest_s = config.congestion.base_rtt_s
        """Round trip of an idle fabric; 0: not known yet."""
        self._is_measured = not self._shortest_s
        self._full_until = 0.0
        """Time until which queues count as full."""

    # ---- what was measured ------------------------------------------------------------------------------

    @property
    def srtt_s(self) -> float | None:
        """Smoothed RTT, seconds; None before the first sample."""
        return None if self._smoothed_s < 0 else self._smoothed_s

    def on_sample(self, rtt_s: float, now: float) -> None:
        """Update the estimate with a measured round trip."""
        smoothed_s = self._smoothed_s
        if smoothed_s < 0:
            self._smoothed_s, self.deviation_s = rtt_s, rtt_s / 2
        else:
            self.deviation_s += (abs(rtt_s - smoothed_s) - self.deviation_s) / 4
            self._smoothed_s = smoothed_s + (rtt_s - smoothed_s) / 8
        if self._is_measured and not 0 < self._shortest_s <= rtt_s:
            self._shortest_s = rtt_s
        if self._late_s and self._decayed_late_s(now) < self._smoothed_s:
            self._late_s = 0.0

    @property
    def mean_s(self) -> float:
        """Smoothed RTT, seconds; 0 before the first sample."""
        return max(0.0, self._smoothed_s)

    def on_late_answer(self, rtt_s: float, now: float) -> None:
        """Note a late answer to a copy that had been given up; `rtt_s`: time since the copy left."""
        if rtt_s > self._decayed_late_s(now):
            self._late_s, self._late_at = rtt_s, now
        self.on_sample(rtt_s, now)

    def on_trim(self, now: float) -> None:
        """Note that a queue was full."""
        self._full_until = now + TRIM_RTTS * self.mean_s

    def _decayed_late_s(self, now: float) -> float:
        """Decayed delay of the longest late answer, seconds."""
        delay_s: float = self._late_s * 0.5 ** ((now - self._late_at) / self._late_halves_s)
        return delay_s

    # ---- what follows -----------------------------------------------------------------------------------

    def _floor_s(self, ev: Ev | None, now: float) -> float:
        """Shortest timer that the round trips allow (note 1)."""
        if not self._rtts or self._smoothed_s < 0:
            return 0.0
        if ev is not None and ev.srtt_s >= 0:
            floor = self._rtts * ev.srtt_s + 4 * ev.deviation_s
        else:
            floor = self._rtts * self._smoothed_s + 4 * self.deviation_s
        if self._late_s:
            floor = max(floor, LATE_MARGIN * self._decayed_late_s(now))
        return min(floor, self._ceiling_s)

    def timer_s(self, expiries: int, now: float, ev: Ev | None = None) -> float:
        """Return the retransmission timeout after `expiries` expiries, seconds.

        The larger of T and the RTT-based estimate. `ev`: path of the packet; a path known to be slow gets the time it
        needs. None: over all paths.
        """
        interval, floor_s = self._interval_s(expiries) if expiries else self._first_interval_s, self._floor_s(ev, now)
        if floor_s > interval:
            interval = floor_s
        if ev is not None and ev.rtt_s * PATIENCE > interval:
            interval = min(ev.rtt_s * PATIENCE, self._ceiling_s)
        return interval

    def _interval_s(self, expiries: int) -> float:
        """Return the retry interval after `expiries` expiries, seconds."""
        intervals = self._intervals
        while len(intervals) <= expiries and len(intervals) <= self._loss.linear_cnt + self._loss.exp_cnt:
            intervals.append(self._loss.retry_interval_s(len(intervals)))
        return intervals[min(expiries, len(intervals) - 1)]

    def known_s(self, now: float, ev: Ev) -> float:
        """Longest delay known of answers over that path, late ones of any path included; seconds."""
        return min(max(LATE_MARGIN * self._decayed_late_s(now), PATIENCE * ev.rtt_s), self._ceiling_s)

    def ordinary(self, rtt_s: float, ev: Ev) -> bool:
        """Return whether an answer over that path came in the usual time.

        While nothing is measured, T is the limit.
        """
        return rtt_s <= self.patience_s(ev.rtt_s)

    def typical_s(self) -> float:
        """Return the smoothed round trip, or T while none is known."""
        return self._smoothed_s if self._smoothed_s > 0 else self._base_s

    def patience_s(self, path_rtt_s: float) -> float:
        """Return the age below which no packet of a path with that round trip is suspect, whatever passed it.

        `path_rtt_s` may be UNKNOWN.
        """
        return PATIENCE * max(self.typical_s(), path_rtt_s) + 4 * self.deviation_s

    def skew_s(self, path_rtt_s: float, now: float) -> float:
        """Return how long a plane must be read on before a packet of such a path must have been read, seconds."""
        return SKEW * max(self.typical_s(), path_rtt_s, self._queues_s(now)) + 4 * self.deviation_s

    def silence_s(self, path_rtt_s: float, now: float) -> float:
        """Return how long any planes must be read before a packet of such a path counts as lost, seconds."""
        queues_s = SKEW * self._queues_s(now) + 4 * self.deviation_s
        return max(self.rest_s(), self.patience_s(path_rtt_s), queues_s)

    def _queues_s(self, now: float) -> float:
        """Delay of the full queues of a path, seconds; 0 while none is known to be full."""
        return QUEUES * self._shortest_s if now < self._full_until else 0.0

    def usual_s(self, ev: Ev) -> float:
        """Usual limit of the delay of an answer over that path, seconds; 0 while no round trip is known."""
        rtt_s = max(self.mean_s, ev.rtt_s)
        return 0.0 if self._smoothed_s < 0 and ev.rtt_s < 0 else PATIENCE * rtt_s + 4 * self.deviation_s

    def rest_s(self) -> float:
        """Time that a delayed peer may need from one of its ports to the next, seconds (proof_of_loss.py)."""
        return max(REST_PART * self._base_s, self.mean_s)

    def verdict_s(self, now: float) -> float:
        """Return how long after a retransmission arrived an answer to the first copy may still come."""
        return max(self.mean_s, self._floor_s(None, now) / 2, self.rest_s())


class RetryBudget:
    """Time without progress, in charges of the retry counter (§5.11; notes 2 and 3)."""

    __slots__ = ("_limit", "_rtt", "_trimmed", "again_at", "charges")

    def __init__(self, config: Config, rtt: RoundTrips) -> None:
        self._limit = config.loss.retry_limit
        self._rtt = rtt
        self.charges = 0
        """Charges since the last progress."""
        self.again_at = 0.0
        """Time before which nothing is charged: the round is paid."""
        self._trimmed = False
        """Whether a NACK for a trim came in this round, which is free then."""

    def charge(self, now: float) -> bool:
        """Charge a packet sent or asked for again; False when the budget is spent with that."""
        if now < self.again_at:
            return True
        if self._trimmed:
            self._trimmed = False
        else:
            self.charges += 1
            if self._limit is not None and self.charges >= self._limit:
                return False
        self.again_at = now + self._rtt.timer_s(self.charges, now)
        return True

    def trimmed(self) -> None:
        """Note a trim: path and responder work."""
        self._trimmed = True

    def restore(self) -> None:
        """Refill the budget after progress."""
        self.charges = 0
        self.again_at = 0.0
        self._trimmed = False
