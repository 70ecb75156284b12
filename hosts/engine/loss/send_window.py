"""Packets in flight: which arrived, which must be lost, whose timer is due. Knows nothing of messages or windows.

Design notes.

1. One `Sent` per transmission, in four queues at once (by PSN, by age within its plane, by age within its EV, by
   timer), never searched: a packet that arrived or was given up is only marked, and falls out when it reaches the head
   of a queue. Work per acknowledgment is thus proportional to what changed, not to the window. A head that stays keeps
   the others: a queue that has doubled since it was looked through last is freed of what is over, so each of them is
   bounded by the window, at a cost per packet that is constant on average.
2. Loss is decided in two steps. Overtaking (§5.9 a) or distance (b) makes a packet *suspect*; it is *lost* once a fresh
   SACK whose bitmap covers its PSN shows it missing. With windows above 64 packets a bitmap shows a part of the
   window only, and a packet that it does not show may well have arrived.
3. Distance counts transmissions (`serial`), not PSNs: so it works for lost retransmissions too, and a packet is given
   up at most once per round trip because the younger one had to make that trip.
4. Distance and age are no proof while the peer may not have read the packet's port yet: see proof_of_loss.py.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final

from hosts.engine.events import LossCause
from hosts.engine.loss.proof_of_loss import ProofOfLoss
from hosts.engine.messages import Message
from hosts.engine.paths.ev import Ev
from hosts.engine.wire.packets import Sack

IN_FLIGHT: Final = 0
ARRIVED: Final = 1
GIVEN_UP: Final = 2
"""States of a transmission. GIVEN_UP = lost, trimmed or refused; it waits to be sent again."""

COPIES: Final = 8
"""Earlier copies of a packet that are remembered."""
COMPACT_FROM: Final = 64
"""Entries of a queue below which it is never looked through."""
BITMAP_BITS: Final = 64
_BITMAP_MASK: Final = (1 << BITMAP_BITS) - 1


class Copy:
    """An earlier transmission of a packet that was sent again."""

    __slots__ = ("accused", "ev", "sent_at", "timestamp")

    def __init__(self, sent: Sent, accused: bool) -> None:
        self.ev, self.sent_at, self.timestamp = sent.ev, sent.sent_at, sent.timestamp
        self.accused = accused
        """It timed out and nothing proves it lost: its EV is put on trial when a later copy arrives."""


class Sent:
    """One transmission of one packet."""

    __slots__ = (
        "accused", "attempt", "copies", "deadline", "ev", "expiries", "message", "psn", "second_chance", "sent_at",
        "serial", "size", "state", "timestamp",
    )  # fmt: skip

    def __init__(
        self, psn: int, message: Message, ev: Ev, size: int, serial: int, attempt: int, expiries: int, now: float,
        deadline: float, timestamp: int | None, copies: tuple[Copy, ...] = (), second_chance: bool = False,
    ) -> None:  # fmt: skip
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
        self.copies = copies
        """The last COPIES transmissions before this one, oldest first."""
        self.second_chance = second_chance
        """Its EV was accused before, and the peer was heard since: if it is lost as well, that is proof enough."""
        self.accused = False
        """It timed out, and whether it is lost is not clear."""
        self.state = IN_FLIGHT

    def triggered(self, sack: Sack) -> bool:
        """Whether it was this very transmission that triggered a SACK which names its PSN (§5.8)."""
        if self.ev.value != sack.entropy:
            return False
        if self.timestamp is not None:
            return self.timestamp == sack.timestamp
        return self.attempt == 1 + sack.rtx and self.attempt <= 2

    def earlier(self, sack: Sack) -> Copy | None:
        """The copy, given up before, that triggered it: its mirrored timestamp says which (§5.8)."""
        if self.timestamp is None:
            return None
        for copy in reversed(self.copies):
            if copy.timestamp == sack.timestamp and copy.ev.value == sack.entropy:
                return copy
        return None

    def fresh_timestamp(self, timestamp: int | None, ev: Ev) -> int | None:
        """For a copy that leaves over `ev` after this one: unlike those of earlier copies there. 16 bits wrap, at the
        default unit in exactly eight retry timers.
        """
        if timestamp is not None:
            taken = [copy.timestamp for copy in self.as_copies() if copy.ev is ev]
            while timestamp in taken:
                timestamp = timestamp + 1 & 0xFFFF
        return timestamp

    def as_copies(self) -> tuple[Copy, ...]:
        """Earlier copies, this one included, for the next transmission of the packet."""
        return (*self.copies[1 - COPIES :], Copy(self, self.accused))


class ByAge:
    """Transmissions, oldest first."""

    __slots__ = ("_limit", "queue")

    def __init__(self) -> None:
        self.queue: deque[Sent] = deque()
        self._limit = COMPACT_FROM

    def add(self, sent: Sent) -> None:
        """The youngest; once in a while the queue is freed of what is over."""
        queue = self.queue
        queue.append(sent)
        if len(queue) > self._limit:
            left = [one for one in queue if one.state == IN_FLIGHT]
            queue.clear()
            queue.extend(left)
            self._limit = max(COMPACT_FROM, 2 * len(left))


class SendWindow:
    """`cack`: nothing is missing at or below this PSN. `next_psn`: first PSN never sent. Both unwrapped."""

    __slots__ = (
        "_above", "_by_age", "_by_ev", "_fifo", "_hearing", "_newest", "_suspects",
        "_timer_limit", "_timers", "bytes", "cack", "next_psn", "outstanding", "serial",
    )  # fmt: skip

    def __init__(self, first_psn: int, ev_fifo: bool, hearing: ProofOfLoss) -> None:
        self._hearing = hearing
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
        self._by_age: list[ByAge] = []
        """By plane."""
        self._by_ev: dict[Ev, ByAge] = {}
        """Those no longer in flight go when one behind them arrives."""
        self._newest = 0
        """Highest serial known to have arrived, of those where the copy is beyond doubt."""
        self._suspects: list[tuple[Sent, LossCause]] = []
        self._timers: list[tuple[float, int, Sent]] = []
        """Heap of (deadline, serial, transmission)."""
        self._timer_limit = COMPACT_FROM

    def add(self, sent: Sent) -> None:
        """A transmission leaves now."""
        psn = sent.psn
        self.outstanding[psn] = sent
        if psn == self.next_psn:
            self.next_psn = psn + 1
        self.bytes += sent.size
        ev = sent.ev
        while len(self._by_age) <= ev.plane:
            self._by_age.append(ByAge())
        mates = self._by_age[ev.plane]
        queue = mates.queue
        while queue and queue[0].state != IN_FLIGHT:
            queue.popleft()
        mates.add(sent)
        found = self._by_ev.get(ev)
        if found is None:
            found = self._by_ev[ev] = ByAge()
        found.add(sent)
        timers = self._timers
        heapq.heappush(timers, (sent.deadline, sent.serial, sent))
        if len(timers) > self._timer_limit:
            timers[:] = [entry for entry in timers if entry[2].state == IN_FLIGHT]
            heapq.heapify(timers)
            self._timer_limit = max(COMPACT_FROM, 2 * len(timers))

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
        if beyond_doubt:
            self._hearing.read(sent.ev.plane, sent.sent_at)
            if sent.serial > self._newest:
                self._newest = sent.serial

    def overtake(self, sent: Sent) -> None:
        """`sent` arrived beyond doubt: older packets of its EV that did not become suspects (rule a)."""
        ev = sent.ev
        queue, serial = self._by_ev[ev].queue, sent.serial
        if serial > ev.newest_arrived:
            ev.newest_arrived = serial
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

    def lost(self, threshold: int | None, base: int, seen: int, now: float) -> list[tuple[Sent, LossCause]]:
        """Losses that a fresh SACK proves; it covered PSNs `base` to `seen` (at most 64). Each is still IN_FLIGHT.

        A packet becomes suspect (rule b; `threshold` None: never) when it is older than `patience_s` of its EV,
        for past a queue of its plane others lap it without any loss, and either the peer has read its plane for
        `skew_s` since, or one arrived that left `threshold` transmissions later while the peer was attentive for
        `rest_s`. The first finds losses of senders that have little to send, the second a plane that is silent.
        """
        if threshold is not None:
            limit, hearing, trips = self._newest - threshold, self._hearing, self._hearing.trips
            rest = trips.rest_s()
            for plane, mates in enumerate(self._by_age):
                queue = mates.queue
                while queue:
                    old = queue[0]
                    if old.state == IN_FLIGHT:
                        known, left = old.ev.rtt_s, old.sent_at
                        patience = trips.patience_s(known)
                        if now - left < patience:
                            break
                        read = known is not None and hearing.span(plane, left) >= trips.skew_s(known)
                        if not read and (old.serial > limit or hearing.attention(left) < max(rest, patience)):
                            break
                        self._suspects.append((old, LossCause.DISTANCE))
                    queue.popleft()
        if not self._suspects:
            return []
        proven: list[tuple[Sent, LossCause]] = []
        waiting: list[tuple[Sent, LossCause]] = []
        last = min(base + BITMAP_BITS - 1, seen)
        listed: set[int] = set()
        for pair in self._suspects:
            sent = pair[0]
            if sent.state != IN_FLIGHT or sent.serial in listed:
                continue
            listed.add(sent.serial)
            (proven if base <= sent.psn <= last else waiting).append(pair)
        self._suspects = waiting
        return proven

    # ---- timers -----------------------------------------------------------------------------------------

    def expired(self, now: float) -> list[Sent]:
        """Packets in flight whose timer is due (rule c), oldest first; their timers are spent.

        A timer that was set before answers turned out to take longer runs on for as long as they take.
        """
        due: list[Sent] = []
        timers, trips = self._timers, self._hearing.trips
        while timers and (timers[0][2].state != IN_FLIGHT or timers[0][0] <= now):
            sent = heapq.heappop(timers)[2]
            if sent.state != IN_FLIGHT:
                continue
            deadline = sent.sent_at + trips.known_s(now, sent.ev)
            if deadline > now:
                sent.deadline = deadline
                heapq.heappush(timers, (deadline, sent.serial, sent))
            else:
                due.append(sent)
        return sorted(due, key=lambda sent: sent.serial)

    def first_timer(self) -> Sent | None:
        """The packet in flight whose timer is due first."""
        timers = self._timers
        while timers and timers[0][2].state != IN_FLIGHT:
            heapq.heappop(timers)
        return timers[0][2] if timers else None
