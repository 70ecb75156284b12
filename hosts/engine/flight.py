"""Packets in flight: which arrived, which must be lost, whose timer is due. Knows nothing of messages or windows.

Design notes.

1. One `Sent` per transmission, in four queues at once (by PSN, by age, by age within its EV, by timer), never searched:
   a packet that arrived or was given up is only marked, and falls out when it reaches the head of a queue. Work per
   acknowledgment is thus proportional to what changed, not to the window.
2. Loss is decided in two steps. Overtaking (§5.9 a) or distance (b) makes a packet *suspect*; it is *lost* once a fresh
   SACK whose bitmap covers its PSN shows it missing. With windows above 64 packets a bitmap shows a part of the
   window only, and a packet that it does not show may well have arrived.
3. Distance counts transmissions (`serial`), not PSNs: so it works for lost retransmissions too, and a packet is given
   up at most once per round trip because the younger one had to make that trip.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from .events import LossCause

if TYPE_CHECKING:
    from .ev import Ev
    from .messages import Message
    from .packets import Sack

IN_FLIGHT, ARRIVED, GIVEN_UP = 0, 1, 2
"""States of a transmission. GIVEN_UP = lost, trimmed or refused; it waits to be sent again."""

PATIENCE = 1.5
"""Round trips before distance alone makes a packet suspect."""
BITMAP_BITS = 64
_BITMAP_MASK = (1 << BITMAP_BITS) - 1


class Sent:
    """One transmission of one packet."""

    __slots__ = (
        "accused", "attempt", "deadline", "ev", "expiries", "message", "psn", "sent_at", "serial", "size", "state",
        "timestamp",
    )  # fmt: skip

    def __init__(
        self, psn: int, message: Message, ev: Ev, size: int, serial: int, attempt: int, expiries: int, now: float,
        deadline: float, timestamp: int | None, accused: tuple[tuple[Ev, int | None], ...] = (),
    ):  # fmt: skip
        self.psn = psn
        """Unwrapped."""
        self.message = message
        self.ev = ev
        self.size = size
        """Nominal bytes."""
        self.serial = serial
        """Number of this transmission among all of the QP; grows by one each."""
        self.attempt = attempt
        """1 = first transmission of the PSN."""
        self.expiries = expiries
        """How often the timer of this PSN has expired so far; sets the next interval."""
        self.sent_at = now
        self.deadline = deadline
        self.timestamp = timestamp
        self.accused = accused
        """EV and timestamp of earlier copies that timed out while there was no sign of life: put on trial when this
        one arrives."""
        self.state = IN_FLIGHT

    @property
    def given_up(self) -> bool:
        """Lost, trimmed or refused."""
        return self.state == GIVEN_UP

    def triggered(self, sack: Sack) -> bool:
        """Whether it was this very transmission that triggered a SACK which names its PSN (§5.8)."""
        if self.ev.value != sack.entropy:
            return False
        if self.timestamp is not None:
            return self.timestamp == sack.timestamp
        return self.attempt == 1 + sack.rtx and self.attempt <= 2

    def earlier_triggered(self, sack: Sack) -> bool:
        """Whether the first copy, which had been given up, triggered it beyond doubt; the timestamp is that copy's."""
        again = self.attempt > 1 and self.timestamp is not None
        return again and not sack.rtx and sack.entropy != self.ev.value


class Flight:
    """`cack`: nothing is missing at or below this PSN. `next_psn`: first PSN never sent. Both unwrapped."""

    __slots__ = (
        "_above", "_by_age", "_fifo", "_newest", "_newest_at", "_suspects", "_timers", "bytes", "cack", "next_psn",
        "outstanding", "serial",
    )  # fmt: skip

    def __init__(self, first_psn: int, ev_fifo: bool):
        self.cack = first_psn - 1
        self.next_psn = first_psn
        self.outstanding: dict[int, Sent] = {}
        """Latest transmission of every PSN sent and not known to have arrived."""
        self.bytes = 0
        """Nominal bytes of those IN_FLIGHT."""
        self.serial = 0
        self._fifo = ev_fifo
        self._above = 0
        """Bit i: PSN cack + 1 + i is known to have arrived."""
        self._by_age: deque[Sent] = deque()
        self._newest = 0
        """Highest serial known to have arrived, of those where the copy is beyond doubt; `_newest_at`: when it left."""
        self._newest_at = 0.0
        self._suspects: list[tuple[Sent, LossCause]] = []
        self._timers: dict[int, deque[Sent]] = {}
        """By number of expiries, for those share an interval: each queue is in order of deadlines."""

    def add(self, sent: Sent) -> None:
        """A transmission leaves now."""
        psn = sent.psn
        self.outstanding[psn] = sent
        if psn == self.next_psn:
            self.next_psn = psn + 1
        self.bytes += sent.size
        self._by_age.append(sent)
        sent.ev.flight.append(sent)
        queue = self._timers.get(sent.expiries)
        if queue is None:
            queue = self._timers[sent.expiries] = deque()
        queue.append(sent)

    # ---- arrivals ---------------------------------------------------------------------------------------

    def acknowledge(self, cack: int) -> list[Sent]:
        """Everything up to `cack` (below next_psn) arrived. Returns what is news, in order of PSN."""
        news: list[Sent] = []
        old = self.cack
        if cack <= old:
            return news
        pop = self.outstanding.pop
        for psn in range(old + 1, cack + 1):
            sent = pop(psn, None)
            if sent is not None:
                news.append(sent)
        self._above >>= cack - old
        self.cack = cack
        return news

    def contradicts(self, base: int, bitmap: int) -> bool:
        """Whether a bitmap from PSN `base` on lacks a packet known to have arrived: the SACK is an old one."""
        shift = base - self.cack - 1
        if shift <= -BITMAP_BITS:
            return False
        if shift >= 0:
            return bool(self._above >> shift & _BITMAP_MASK & ~bitmap)
        return bool(self._above & _BITMAP_MASK >> -shift & ~(bitmap >> -shift))

    def acknowledge_bitmap(self, base: int, bitmap: int) -> list[Sent]:
        """Bit i: PSN base + i arrived. Bits of PSNs never sent are ignored. Returns what is news."""
        news: list[Sent] = []
        shift = base - self.cack - 1
        if not bitmap or shift <= -BITMAP_BITS:
            return news
        bits = bitmap << shift if shift >= 0 else bitmap >> -shift
        bits &= (1 << (self.next_psn - 1 - self.cack)) - 1
        fresh = bits & ~self._above
        if not fresh:
            return news
        self._above |= fresh
        while fresh:
            low = fresh & -fresh
            news.append(self.outstanding.pop(self.cack + low.bit_length()))
            fresh ^= low
        return news

    # ---- loss -------------------------------------------------------------------------------------------

    def give_up(self, sent: Sent) -> None:
        """An IN_FLIGHT packet is no longer expected to arrive."""
        sent.state = GIVEN_UP
        self.bytes -= sent.size

    def arrived(self, sent: Sent, beyond_doubt: bool) -> None:
        """Mark news; `beyond_doubt`: it was this transmission that arrived, not an earlier copy.

        Call for all news of a SACK before `overtake`.
        """
        if sent.state == IN_FLIGHT:
            self.bytes -= sent.size
        sent.state = ARRIVED
        if beyond_doubt and sent.serial > self._newest:
            self._newest, self._newest_at = sent.serial, sent.sent_at

    def outlived(self, sent: Sent) -> bool:
        """Whether something that left after `sent` is known to have arrived."""
        return self._newest > sent.serial

    def overtake(self, sent: Sent) -> None:
        """`sent` arrived beyond doubt: older packets of its EV that did not become suspects (rule a)."""
        queue = sent.ev.flight
        serial = sent.serial
        while queue and queue[0].serial <= serial:
            old = queue.popleft()
            if old.state == IN_FLIGHT and self._fifo:
                self._suspects.append((old, LossCause.OVERTAKEN))

    def presume_lost(self, first: int, last: int, now: float, patience_s: float) -> None:
        """PSNs `first` to `last` in flight for so long become suspects, whatever their EV (Config: clear_bits, ooo)."""
        for psn in range(max(first, self.cack + 1), min(last, self.next_psn - 1) + 1):
            sent = self.outstanding.get(psn)
            if sent is not None and sent.state == IN_FLIGHT and now - sent.sent_at >= patience_s:
                self._suspects.append((sent, LossCause.DISTANCE))

    def lost(
        self, threshold: int | None, base: int, seen: int, now: float, srtt_s: float, deviation_s: float = 0.0
    ) -> list[tuple[Sent, LossCause]]:
        """Losses that a fresh SACK proves; it covered PSNs `base` to `seen` (at most 64). Each is still IN_FLIGHT.

        `threshold`: transmissions after which a packet that has not arrived becomes suspect (rule b; None: never);
        not before it is PATIENCE round trips (of its EV or on average) and four deviations of them old, for past a
        queue of its plane others lap it without any loss. A sender with little to send never gets so far ahead: there
        a packet is suspect when one arrived that left so much later, if the EV's own round trip is known.
        """
        queue, limit = self._by_age, self._newest - (threshold or 0)
        while queue:
            old = queue[0]
            if old.state == IN_FLIGHT:
                if threshold is None:
                    break
                known = old.ev.rtt_s
                patience = PATIENCE * max(srtt_s, known or 0.0) + 4 * deviation_s
                lapped = old.serial <= limit or (known is not None and self._newest_at - old.sent_at >= patience)
                if not lapped or now - old.sent_at < patience:
                    break
                self._suspects.append((old, LossCause.DISTANCE))
            queue.popleft()
        if not self._suspects:
            return []
        proven: list[tuple[Sent, LossCause]] = []
        waiting: list[tuple[Sent, LossCause]] = []
        last = min(base + BITMAP_BITS - 1, seen)
        known: set[int] = set()
        for pair in self._suspects:
            sent = pair[0]
            if sent.state != IN_FLIGHT or sent.serial in known:
                continue
            known.add(sent.serial)
            (proven if base <= sent.psn <= last else waiting).append(pair)
        self._suspects = waiting
        return proven

    # ---- timers -----------------------------------------------------------------------------------------

    def expired(self, now: float) -> list[Sent]:
        """Packets in flight whose timer is due (rule c), oldest first; their timers are spent."""
        due: list[Sent] = []
        for queue in self._timers.values():
            while queue and (queue[0].state != IN_FLIGHT or queue[0].deadline <= now):
                sent = queue.popleft()
                if sent.state == IN_FLIGHT:
                    due.append(sent)
        return sorted(due, key=lambda sent: sent.serial)

    def first_timer(self) -> Sent | None:
        """The packet in flight whose timer is due first."""
        first = None
        for queue in self._timers.values():
            while queue and queue[0].state != IN_FLIGHT:
                queue.popleft()
            if queue and (first is None or queue[0].deadline < first.deadline):
                first = queue[0]
        return first
