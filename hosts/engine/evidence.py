"""How a requestor learns of losses beyond rules (a) to (c) of §5.9: by asking when all is silent, and by guessing.

`Silence` is design note 3 of requestor.py: halfway to a packet's expiry a probe leaves over another EV, and its answer
tells whether the packet is missing. `Guess` is what the variants `clear_bits` "lost" and `loss_rule` "ooo" add (§12
rows 18 and 23): holes that are taken for losses without any proof.
"""

from __future__ import annotations

from .config import Config
from .flight import BITMAP_BITS, Flight, Sent
from .packets import Sack
from .paths import Paths
from .psn import unwrap

OOO_PACKETS = 5
"""loss_rule "ooo": fewest packets out of order that begin a recovery (§5.9)."""
PROBE_AT = 0.5
"""Part of a packet's timer after which a probe asks whether it is missing."""
PROOF_RESTS = 0.125
"""Part of it by which the answer must come before the timer: a host that was stalled reads its ports in any order."""


class Silence:
    """Of one requestor."""

    __slots__ = ("_paths", "_probed", "shown")

    def __init__(self, paths: Paths):
        self._paths = paths
        self._probed = 0
        """Serial of the last packet for which a probe asked, or was not needed."""
        self.shown = 0
        """PSN of bit 0 in the newest answer to a probe."""

    def due(self, sent: Sent) -> float:
        """When something has to be done about the packet whose timer is the first: ask, or let it expire."""
        if sent.serial <= self._probed:
            return sent.deadline
        return sent.sent_at + PROBE_AT * (sent.deadline - sent.sent_at)

    def ask(self, flight: Flight, now: float) -> None:
        """Queue the probe that is due, unless something younger arrived or no EV can be used."""
        sent = flight.first_timer()
        if sent is None or sent.serial <= self._probed or now < self.due(sent):
            return
        self._probed = sent.serial
        if not flight.outlived(sent) and self._paths.profile.usable:
            self._paths.refresh(sent.ev)

    def on_answer(self, sack: Sack, cack: int, now: float) -> None:
        """A SACK with pr = 1 came."""
        before = self._paths.answered
        self._paths.on_answer(sack, now)
        if self._paths.answered is not before:
            self.shown = unwrap(sack.cack_psn, cack) + sack.sack_offset

    def convicts(self, sent: Sent, rtt_s: float | None, now: float) -> bool:
        """Whether the peer answered a probe that left a round trip after `sent`, and has not got it.

        Not when the answer's bitmap does not show it: then a SACK may have been lost that told of it.
        """
        asked_at, answered_at = self._paths.answered
        timer = sent.deadline - sent.sent_at
        return (
            asked_at >= sent.sent_at + (timer if rtt_s is None else rtt_s)
            and answered_at <= now - PROOF_RESTS * timer
            and self.shown <= sent.psn < self.shown + BITMAP_BITS
        )


class Guess:
    """Of one requestor whose configuration has one of the two variants."""

    __slots__ = ("_clear_is_lost", "_ooo", "_recovery")

    def __init__(self, config: Config):
        self._clear_is_lost = config.clear_bits == "lost"
        self._ooo = config.loss_rule == "ooo"
        self._recovery: int | None = None
        """The PSN whose arrival ends the recovery; None = there is none."""

    @classmethod
    def of(cls, config: Config) -> Guess | None:
        """None for a configuration that guesses nothing."""
        return cls(config) if config.clear_bits == "lost" or config.loss_rule == "ooo" else None

    def suspect(
        self, flight: Flight, sack: Sack, base: int, seen: int, window: float, patience_s: float, now: float
    ) -> int:
        """Make suspects of what is missing and `patience_s` old; returns up to which PSN the SACK counts as proof.

        `window`: in packets.
        """
        if self._clear_is_lost:
            seen = base + BITMAP_BITS - 1
            flight.presume_lost(base, seen, now, patience_s)
        if self._ooo:
            if self._recovery is None and sack.ooo_count >= max(1.5 * window, OOO_PACKETS):
                self._recovery = flight.next_psn - 1
            elif self._recovery is not None and flight.cack >= self._recovery:
                self._recovery = None
            if self._recovery is not None:
                last = min(self._recovery, flight.cack + max(1, int(window)))
                flight.presume_lost(flight.cack + 1, last, now, patience_s)
        return seen
