"""Loss detection of a requestor beyond rules (a) to (c) of §5.9: by probes in silence, and by guess.

`TailLossProbe` is note 3 of docs/design/requestor.md: halfway to a packet's expiry probes leave over other EVs, and
their answers tell whether the packet is missing. `Trial` is an EV that has a packet overdue. `HeuristicLoss` is what
the variants `clear_bits` "lost" and `loss_rule` "ooo" add (§12 rows 18 and 23): holes that are taken for losses without
any proof.
"""

from __future__ import annotations

from typing import Final

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.deadlines import NEVER
from mrc_testbed.hosts.engine.loss.proof_of_loss import ProofOfLoss
from mrc_testbed.hosts.engine.loss.send_window import BITMAP_BITS, IN_FLIGHT, Copy, SendWindow, Sent, is_due_before
from mrc_testbed.hosts.engine.paths.ev import Ev
from mrc_testbed.hosts.engine.paths.paths import QpPaths
from mrc_testbed.hosts.engine.wire.packets import Sack

OOO_PACKETS: Final = 5
"""loss_rule "ooo": fewest packets out of order that begin a recovery (§5.9)."""
PROBE_AT: Final = 0.5
"""Part of a packet's timer after which probes ask whether it is missing."""


class TailLossProbe:
    """Tail-loss probe timer and state of one requestor."""

    __slots__ = ("_paths", "_probed_serial", "_proof")

    def __init__(self, paths: QpPaths, proof: ProofOfLoss) -> None:
        self._paths, self._proof = paths, proof
        self._probed_serial = 0
        """Serial of the last packet for which probes were queued or not needed."""

    def next_due(self, flight: SendWindow) -> float:
        """Return a time not after that at which the first timer runs out; NEVER without packets in flight."""
        if not flight.outstanding:  # not `bytes`: a packet without payload may count as none
            return NEVER
        sent, sent_apart = flight.first_in_chain(), flight.head_transmission
        due = NEVER if sent is None else self._due(sent)
        if sent_apart is None or (sent is not None and is_due_before(sent, sent_apart)):
            return due
        # The second is first. Where it has arrived the next one is not known, and may be `sent`.
        due_apart = self._due(sent_apart)
        return due_apart if sent_apart.state == IN_FLIGHT or due_apart < due else due

    def _due(self, sent: Sent) -> float:
        """Return when the packet whose timer is first needs an action: ask, or let it expire."""
        if sent.serial <= self._probed_serial:
            return sent.deadline
        return sent.sent_at + PROBE_AT * (sent.deadline - sent.sent_at)

    def queue_probes(self, flight: SendWindow, now: float) -> None:
        """Queue the probes that are due, unless the packet is known to be missing or no EV can be used.

        One leaves over another EV of its plane, for its answer proves that the peer has read that port since; one over
        another plane, for the answer to the packet itself may be what was lost, and that plane's way back is dead.
        """
        sent = flight.first_timer()
        if sent is None or sent.serial <= self._probed_serial or now < self._due(sent):
            return
        self._probed_serial = sent.serial
        if self._paths.profile.usable_planes and not self._proof.missed(sent.ev, sent.sent_at):
            self._paths.queue_probe(self._paths.profile.sibling(sent.ev))
            self._paths.refresh(sent.ev)


class Trial:
    """An EV whose packets are overdue though their retransmissions arrived: judged at `verdict_at`."""

    __slots__ = ("_newest_copy", "ev", "verdict_at")

    def __init__(self, verdict_at: float, copy: Copy) -> None:
        self.verdict_at = verdict_at
        self.ev, self._newest_copy = copy.ev, copy

    def add(self, copy: Copy) -> None:
        """Add an overdue packet of the EV."""
        if copy.sent_at > self._newest_copy.sent_at:
            self._newest_copy = copy

    def acquits(self, ev: Ev, sack: Sack) -> bool:
        """Whether the newest of these packets, or one that followed it on its path, triggered the SACK."""
        if ev is not self.ev:
            return False
        timestamp = self._newest_copy.timestamp
        return timestamp is None or (sack.timestamp - timestamp & 0xFFFF) < 0x8000


class HeuristicLoss:
    """Losses assumed without proof, for a requestor whose configuration has one of the two variants."""

    __slots__ = ("_clear_is_lost", "_ooo", "_recovery")

    def __init__(self, config: Config) -> None:
        self._clear_is_lost = config.loss.clear_bits == "lost"
        self._ooo = config.loss.loss_rule == "ooo"
        self._recovery: int | None = None
        """PSN whose arrival ends the recovery; None: no recovery."""

    @classmethod
    def for_config(cls, config: Config) -> HeuristicLoss | None:
        """Return the heuristic of a configuration; None when it guesses nothing."""
        return cls(config) if config.loss.clear_bits == "lost" or config.loss.loss_rule == "ooo" else None

    def suspect(
        self, flight: SendWindow, sack: Sack, base: int, last_shown: int, window: float, patience_s: float, now: float
    ) -> int:
        """Make suspects of missing packets that are `patience_s` old.

        Returns the PSN up to which the SACK counts as proof. `window`: in packets.
        """
        if self._clear_is_lost:
            last_shown = base + BITMAP_BITS - 1
            flight.presume_lost(base, last_shown, now, patience_s)
        if self._ooo:
            if self._recovery is None and sack.ooo_count >= max(1.5 * window, OOO_PACKETS):
                self._recovery = flight.next_psn - 1
            elif self._recovery is not None and flight.cack >= self._recovery:
                self._recovery = None
            if self._recovery is not None:
                last = min(self._recovery, flight.cack + max(1, int(window)))
                flight.presume_lost(flight.cack + 1, last, now, patience_s)
        return last_shown
