"""Decides when silence about a packet proves its loss, given that the peer may read its ports late.

A host that has no CPU for a while keeps all its packets in the rings of its ports. When it wakes up it reads them one
port after the other, in any order, and answers what it has read. So one plane may be acknowledged long before another,
and a sender that goes by the time between two packets takes what was not read yet for lost. A stalled switch does the
same to its ports. Nothing in an answer tells a stall; its round trip does: whatever waited through one answers *late*.

So time counts as evidence only while the peer is *attentive*: an unbroken run of answers with an ordinary round trip,
measured by when their packets left. A late answer ends the run. It also stretches the estimate of round trips, and with
it what is ordinary: another that waited through the same stall would begin a run there, and once the estimate is down
again that run would look long. So packets that left before a late answer came are measured by the limit before the
stall. One SACK answers a whole batch, and its round trip is that of the newest packet alone; so a run begins anew, too,
after packets that were first reported late. For a packet of which nothing is heard,

    span      is how long later packets of its own plane were read, the peer being attentive: one port is one queue, so
              what was read of it proves that the packet did not arrive before it. A trimmed packet proves nothing: its
              header passed the queues in front of the port
    attention is how long later packets of any plane were read. It has to last longer (`RoundTrips.rest_s`): as long as
              a host may take from one of its ports to the next
"""

from __future__ import annotations

from typing import Final

from mrc_testbed.hosts.engine.deadlines import NEVER
from mrc_testbed.hosts.engine.loss.roundtrips import RoundTrips
from mrc_testbed.hosts.engine.paths.ev import UNKNOWN, Ev

LONG_AGO: Final = float("-inf")


class PlaneReading:
    """Progress of the peer in reading one plane, an object of its own: a list would make objects of times."""

    __slots__ = ("sent_at",)

    def __init__(self) -> None:
        self.sent_at = LONG_AGO
        """Time of sending of the newest packet that the peer is known to have read on the plane."""


class ProofOfLoss:
    """Evidence of one requestor. Times are seconds; `sent_at` is when a packet of ours left."""

    __slots__ = (
        "_attentive_from",
        "_attentive_to",
        "_late_at",
        "_limit_s",
        "_readings",
        "heard_at",
        "newest_read",
        "rtt",
    )

    def __init__(self, rtt: RoundTrips) -> None:
        self.rtt = rtt
        self._readings: list[PlaneReading] = []
        """Progress of the peer by plane."""
        self._attentive_from = NEVER
        """Time of sending of the first packet answered in ordinary time since the last late answer.

        NEVER: no packet was."""
        self._attentive_to = LONG_AGO
        """Time of sending of the newest of those packets."""
        self._late_at = LONG_AGO
        """Time of the last late answer; what left before it may have waited through the same stall."""
        self._limit_s = 0.0
        """Limit of an ordinary round trip before the late answers of that stall, seconds."""
        self.newest_read = LONG_AGO
        """Time of sending of the newest packet that the peer is known to have read."""
        self.heard_at = LONG_AGO
        """Time of the peer's last answer of any kind."""

    def on_read(self, plane: int, sent_at: float) -> None:
        """Note that the peer has read a packet on that plane."""
        reading = self._reading(plane)
        if sent_at > reading.sent_at:
            reading.sent_at = sent_at
            if sent_at > self.newest_read:
                self.newest_read = sent_at

    def _reading(self, plane: int) -> PlaneReading:
        readings = self._readings
        while len(readings) <= plane:
            readings.append(PlaneReading())
        return readings[plane]

    def on_answer(self, plane: int, sent_at: float, ordinary: bool, now: float) -> None:
        """Note an answer whose round trip is known: `ordinary`, or late.

        Call it before the round trip counts in `rtt`.
        """
        self.heard_at = now
        self.on_read(plane, sent_at)
        if not ordinary:
            self._on_late(sent_at, now)
        elif sent_at < self._late_at and now - sent_at > self._limit_s:
            return  # ordinary only by limits that the stall itself has stretched
        elif self._attentive_from == NEVER:
            self._attentive_from = self._attentive_to = sent_at
        elif sent_at > self._attentive_to:
            self._attentive_to = sent_at

    def on_trim(self, sent_at: float, ordinary: bool, now: float) -> None:
        """Note the NACK of a trimmed packet, which proves nothing about others.

        Headers pass the queues where packets that left before may wait. A late one ends the run all the same.
        """
        self.heard_at = now
        if not ordinary:
            self._on_late(sent_at, now)

    def _on_late(self, sent_at: float, now: float) -> None:
        """End the run; the first late answer of a stall notes what was ordinary before it."""
        self._attentive_from = NEVER
        if sent_at >= self._late_at:
            self._limit_s = self.rtt.patience_s(UNKNOWN)
        self._late_at = now

    def on_late_report(self, sent_at: float) -> None:
        """Begin the run of ordinary answers no earlier than `sent_at`: what left before it was reported late."""
        if self._attentive_from < sent_at:
            self._attentive_from = sent_at if sent_at <= self._attentive_to else NEVER

    def attention(self, sent_at: float) -> float:
        """Return how long packets sent after `sent_at` were answered in ordinary time.

        0 or less: not at all.
        """
        start = self._attentive_from
        return self._attentive_to - (start if start > sent_at else sent_at)

    def span(self, plane: int, sent_at: float) -> float:
        """Return the attention of the peer to one plane."""
        start, read = self._attentive_from, self._reading(plane).sent_at
        return (read if read < self._attentive_to else self._attentive_to) - (start if start > sent_at else sent_at)

    def missed(self, ev: Ev, sent_at: float) -> bool:
        """Return whether an unanswered packet sent over `ev` at `sent_at` must be lost.

        The proof: the peer read on since.
        """
        rtt, path_rtt_s, now = self.rtt, ev.rtt_s, self.heard_at
        return self.span(ev.plane, sent_at) >= rtt.skew_s(path_rtt_s, now) or self.attention(sent_at) >= rtt.silence_s(
            path_rtt_s, now
        )
