"""Packets in flight: arrived, lost, or with a timer that is due.

The module knows nothing of messages or windows.

Design notes.

1. One `Sent` per transmission, in four queues at once (by PSN, by age within its plane, by age within its EV, by
   timer), never searched: a packet that arrived or was given up is only marked, and falls out when it reaches the head
   of a queue. Work per acknowledgment is thus proportional to what changed, not to the window. A head that stays keeps
   the others: a queue that has doubled since it was looked through last (timers: tripled) is freed of what is over, so
   each of them is bounded by the window, at a cost per packet that is constant on average. The heap of timers is freed
   as a whole also when its first packet has arrived and its timer is looked at; until then that packet stays, and its
   timer is a bound of the others. The queues by age are chains through the
   transmissions themselves: a QP has hundreds of EVs, and a deque for each is 800 bytes out of the CPU's caches.
2. Loss is decided in two steps. Overtaking (§5.9 a) or distance (b) makes a packet *suspect*; it is *lost* once a fresh
   SACK whose bitmap covers its PSN shows it missing. With windows above 64 packets a bitmap shows a part of the
   window only, and a packet that it does not show may well have arrived. Until one does, round trips may grow: distance
   has to hold at that moment, too.
3. Distance counts transmissions (`serial`), not PSNs: so it works for lost retransmissions too, and a packet is given
   up at most once per round trip because the younger one had to make that trip.
4. Distance and age are no proof while the peer may not have read the packet's port yet: see proof_of_loss.py.
"""

from __future__ import annotations

from typing import Final

from mrc_testbed.hosts.engine.deadlines import NEVER
from mrc_testbed.hosts.engine.events import LossCause
from mrc_testbed.hosts.engine.loss.proof_of_loss import ProofOfLoss
from mrc_testbed.hosts.engine.messages import Message
from mrc_testbed.hosts.engine.paths.ev import UNKNOWN, Ev, Transmission
from mrc_testbed.hosts.engine.wire.packets import Sack

IN_FLIGHT: Final = 0
ARRIVED: Final = 1
GIVEN_UP: Final = 2
"""States of a transmission. GIVEN_UP = lost, trimmed or refused; it waits to be sent again."""

COPIES: Final = 8
"""Earlier copies of a packet that are remembered."""
COMPACT_FROM: Final = 64
"""Entries of a queue below which it is never looked through."""
RING_FROM: Final = 32
"""Packets for which a window has room at first; a power of two."""
BITMAP_BITS: Final = 64


class Copy:
    """An earlier transmission of a packet that was sent again."""

    __slots__ = ("ev", "is_accused", "sent_at", "timestamp")

    def __init__(self, sent: Sent, is_accused: bool) -> None:
        self.ev, self.sent_at, self.timestamp = sent.ev, sent.sent_at, sent.timestamp
        self.is_accused = is_accused
        """Whether it timed out without proof of loss: its EV is put on trial when a later copy arrives."""


class Sent(Transmission):
    """One transmission of one packet."""

    __slots__ = (
        "attempt",
        "copies",
        "deadline",
        "ev",
        "expiries",
        "is_accused",
        "message",
        "next_on_plane",
        "next_timer",
        "psn",
        "second_chance",
        "sent_at",
        "size",
        "timestamp",
    )

    def __init__(
        self,
        psn: int,
        message: Message,
        ev: Ev,
        size: int,
        serial: int,
        attempt: int,
        expiries: int,
        now: float,
        deadline: float,
        timestamp: int | None,
        copies: tuple[Copy, ...] = (),
        second_chance: bool = False,
    ) -> None:
        super().__init__(serial)
        self.ev = ev
        self.sent_at = now
        self.next_on_plane: Sent | None = None
        """Next transmission over the same plane that is kept; see ByAge."""
        self.next_timer: Sent | None = None
        """Transmission whose timer is due next after this one's; see TimerChain."""
        self.psn = psn
        """Unwrapped."""
        self.size = size
        """Nominal bytes."""
        self.attempt = attempt
        """1 = first transmission of the PSN."""
        self.timestamp = timestamp
        self.message = message
        self.deadline = deadline
        self.expiries = expiries
        """Number of expiries of this PSN's timer so far; sets the next interval."""
        self.copies = copies
        """Last COPIES transmissions before this one, oldest first."""
        self.second_chance = second_chance
        """Whether its EV was accused before and the peer answered since: its loss is then proof enough."""
        self.is_accused = False
        """Whether it timed out without proof of loss."""

    def triggered(self, sack: Sack) -> bool:
        """Whether it was this very transmission that triggered a SACK which names its PSN (§5.8)."""
        if self.ev.value != sack.entropy:
            return False
        if self.timestamp is not None:
            return self.timestamp == sack.timestamp
        return self.attempt == 1 + sack.rtx and self.attempt <= 2

    def earlier(self, sack: Sack) -> Copy | None:
        """Return the copy, given up before, that triggered the SACK, by its mirrored timestamp (§5.8)."""
        if self.timestamp is None:
            return None
        for copy in reversed(self.copies):
            if copy.timestamp == sack.timestamp and copy.ev.value == sack.entropy:
                return copy
        return None

    def fresh_timestamp(self, timestamp: int | None, ev: Ev) -> int | None:
        """Return a timestamp for a copy that leaves over `ev` after this one.

        It differs from those of earlier copies over `ev`. 16 bits wrap, at the default unit in exactly eight retry
        timers.
        """
        if timestamp is not None:
            used_timestamps = [copy.timestamp for copy in self.as_copies() if copy.ev is ev]
            while timestamp in used_timestamps:
                timestamp = timestamp + 1 & 0xFFFF
        return timestamp

    def as_copies(self) -> tuple[Copy, ...]:
        """Earlier copies, this one included, for the next transmission of the packet."""
        return (*self.copies[1 - COPIES :], Copy(self, self.is_accused))


class ByAge:
    """Transmissions over one plane, oldest first."""

    __slots__ = ("_count", "_limit", "_newest_sent", "oldest_sent", "oldest_sent_at")

    def __init__(self) -> None:
        self.oldest_sent: Sent | None = None
        self._newest_sent: Sent | None = None
        self.oldest_sent_at = NEVER
        """Time of sending of the oldest; NEVER: there is none."""
        self._count = 0
        self._limit = COMPACT_FROM

    def add(self, sent: Sent) -> None:
        """Append the youngest transmission; from time to time finished entries are freed."""
        newest_sent = self._newest_sent
        if newest_sent is None:
            self.oldest_sent, self.oldest_sent_at = sent, sent.sent_at
        else:
            newest_sent.next_on_plane = sent
        self._newest_sent = sent
        self._count += 1
        if self._count > self._limit:
            self._compact()

    def drop_oldest(self, oldest_sent: Sent) -> Sent | None:
        """Take the oldest one out; returns the next one."""
        following = self.oldest_sent = oldest_sent.next_on_plane
        oldest_sent.next_on_plane = None  # it may stay elsewhere, and must not keep all that follow
        self._count -= 1
        if following is None:
            self._newest_sent, self.oldest_sent_at = None, NEVER
        else:
            self.oldest_sent_at = following.sent_at
        return following

    def _compact(self) -> None:
        sent, self.oldest_sent, self._newest_sent = self.oldest_sent, None, None
        self._count, self._limit = 0, 1 << 62
        while sent is not None:
            following, sent.next_on_plane = sent.next_on_plane, None
            if sent.state == IN_FLIGHT:
                self.add(sent)
            sent = following
        self._limit = max(COMPACT_FROM, 2 * self._count)


class TimerChain:
    """Transmissions in order of (deadline, serial), as nearly all of them come."""

    __slots__ = ("_last", "count", "first")

    def __init__(self) -> None:
        self.first: Sent | None = None
        self._last: Sent | None = None
        self.count = 0

    def add(self, sent: Sent) -> bool:
        """Append a transmission; False when its timer is due before the last one's."""
        last = self._last
        if last is None:
            self.first = sent
        elif sent.deadline < last.deadline:
            return False
        else:
            last.next_timer = sent
        self._last = sent
        self.count += 1
        return True

    def drop_first(self) -> Sent | None:
        """Take the first one out; return the next one."""
        first = self.first
        if first is None:
            return None
        following = self.first = first.next_timer
        first.next_timer = None  # it may stay elsewhere, and must not keep all that follow
        self.count -= 1
        if following is None:
            self._last = None
        return following

    def free_finished(self) -> None:
        """Take out what is no longer in flight."""
        sent, self.first, self._last, self.count = self.first, None, None, 0
        while sent is not None:
            following, sent.next_timer = sent.next_timer, None
            if sent.state == IN_FLIGHT:
                self.add(sent)
            sent = following


class TimerHeap:
    """Transmissions whose timer is due before that of one that left earlier.

    A binary heap by (deadline, serial). It holds the transmissions themselves: tuples of heapq would be made and
    compared as objects in machine code too. What is added waits behind the heap in no order, for most of it arrives
    before its timer matters; only the first of all is known.
    """

    __slots__ = ("_heap", "_ordered_count", "head_transmission")

    def __init__(self) -> None:
        self._heap: list[Sent] = []
        self._ordered_count = 0
        """Length of the heap; what follows in the list is not in order."""
        self.head_transmission: Sent | None = None
        """Transmission whose timer is due first, in flight or not."""

    def __len__(self) -> int:
        return len(self._heap)

    def first(self) -> Sent | None:
        """Return the first transmission that is in flight."""
        # One by one each would be moved through the heap; and where the first has arrived, many have.
        if self.head_transmission is not None and self.head_transmission.state != IN_FLIGHT:
            self.free_finished()
        return self.head_transmission

    def add(self, sent: Sent) -> None:
        self._heap.append(sent)
        if self.head_transmission is None or is_due_before(sent, self.head_transmission):
            self.head_transmission = sent

    def _move_up(self, sent: Sent, index: int) -> None:
        """Put the transmission at `index`, the end of the heap, where it belongs."""
        heap = self._heap
        while index:
            parent_index = index - 1 >> 1
            parent = heap[parent_index]
            if not is_due_before(sent, parent):
                break
            heap[index] = parent
            index = parent_index
        heap[index] = sent

    def drop_first(self) -> None:
        """Take the first one out."""
        heap = self._heap
        for index in range(self._ordered_count, len(heap)):
            self._move_up(heap[index], index)
        sent = heap.pop()
        count, index = len(heap), 0
        self._ordered_count = count
        if not count:
            self.head_transmission = None
            return
        while (child_index := 2 * index + 1) < count:
            child = heap[child_index]
            if child_index + 1 < count and is_due_before(heap[child_index + 1], child):
                child_index += 1
                child = heap[child_index]
            if not is_due_before(child, sent):
                break
            heap[index] = child
            index = child_index
        heap[index] = sent
        self.head_transmission = heap[0]

    def free_finished(self) -> None:
        """Take out what is no longer in flight."""
        transmissions, self._heap = self._heap, []
        self._ordered_count, self.head_transmission = 0, None
        for sent in transmissions:
            if sent.state == IN_FLIGHT:
                self.add(sent)


def is_due_before(a: Sent, b: Sent) -> bool:
    """Whether the timer of `a` is due before that of `b`; of one moment, that of the older one is."""
    return a.deadline < b.deadline or (a.deadline == b.deadline and a.serial < b.serial)


def keep(ev: Ev, sent: Sent) -> None:
    """Append a transmission, the youngest, to the list of its EV.

    From time to time finished entries are freed.
    """
    newest_sent = ev.newest_kept
    if newest_sent is None:
        ev.oldest_kept = sent
    else:
        newest_sent.next_on_ev = sent
    ev.newest_kept = sent
    ev.kept_count += 1
    if ev.kept_count > max(ev.kept_limit, COMPACT_FROM):
        _free_kept(ev)


def _free_kept(ev: Ev) -> None:
    sent = ev.oldest_kept
    ev.oldest_kept = ev.newest_kept = None
    ev.kept_count = 0
    while sent is not None:
        following, sent.next_on_ev = sent.next_on_ev, None
        if sent.state == IN_FLIGHT:
            if ev.newest_kept is None:
                ev.oldest_kept = sent
            else:
                ev.newest_kept.next_on_ev = sent
            ev.newest_kept = sent
            ev.kept_count += 1
        sent = following
    ev.kept_limit = 2 * ev.kept_count


class SendWindow:
    """`cack`: nothing is missing at or below this PSN. `next_psn`: first PSN never sent. Both unwrapped."""

    __slots__ = (
        "_arrived_bits",
        "_by_age",
        "_fifo",
        "_laggards",
        "_newest_arrived",
        "_proof",
        "_ring",
        "_ring_mask",
        "_suspects",
        "_timer_limit",
        "_timers",
        "_timers_apart",
        "bytes",
        "cack",
        "next_psn",
        "outstanding",
        "serial",
    )

    def __init__(self, first_psn: int, ev_fifo: bool, proof: ProofOfLoss) -> None:
        self._proof = proof
        self.cack = first_psn - 1
        self.next_psn = first_psn
        self._ring: list[Sent | None] = [None] * RING_FROM
        """Latest transmission of every PSN sent and not known to have arrived, at the PSN's lowest bits.

        Wide enough for all from cack to next_psn. A dict's entries would be all over the CPU's caches."""
        self._ring_mask = RING_FROM - 1
        self.outstanding = 0
        """Number of PSNs sent and not known to have arrived."""
        self.bytes = 0
        """Nominal bytes of the packets IN_FLIGHT."""
        self.serial = 0
        self._fifo = ev_fifo
        self._arrived_bits = 0
        """Bit i: PSN cack + 1 + i is known to have arrived."""
        self._by_age: list[ByAge] = []
        """Transmissions by plane."""
        self._newest_arrived = 0
        """Highest serial known to have arrived, of those where the copy is beyond doubt."""
        # Packets that are lost once a SACK shows them missing.
        self._suspects: list[tuple[Sent, LossCause]] = []
        """Packets that a younger one of their EV overtook, or that a guess takes for lost, with the cause."""
        self._laggards: list[Sent] = []
        """Packets that were lapped, and that no SACK has shown since."""
        self._timers = TimerChain()
        self._timers_apart = TimerHeap()
        self._timer_limit = COMPACT_FROM

    def add(self, sent: Sent) -> None:
        """Add a transmission that leaves now."""
        psn = sent.psn
        if psn == self.next_psn:
            self.next_psn = psn + 1
            self.outstanding += 1
            if psn - self.cack > self._ring_mask + 1:
                self._widen()
        self._ring[psn & self._ring_mask] = sent
        self.bytes += sent.size
        ev = sent.ev
        while len(self._by_age) <= ev.plane:
            self._by_age.append(ByAge())
        mates = self._by_age[ev.plane]
        oldest_sent = mates.oldest_sent
        while oldest_sent is not None and oldest_sent.state != IN_FLIGHT:
            oldest_sent = mates.drop_oldest(oldest_sent)
        mates.add(sent)
        keep(ev, sent)
        timers = self._timers
        if not timers.add(sent):
            self._timers_apart.add(sent)
        if timers.count + len(self._timers_apart) > self._timer_limit:
            self._free_timers()

    def _widen(self) -> None:
        """Make the ring wide enough for the PSN that was sent last."""
        first, last, old_mask = self.cack + 1, self.next_psn - 1, self._ring_mask
        mask = (1 << (last - first).bit_length()) - 1
        ring: list[Sent | None] = [None] * (mask + 1)
        for psn in range(first, last):
            ring[psn & mask] = self._ring[psn & old_mask]
        self._ring, self._ring_mask = ring, mask

    def latest(self, psn: int) -> Sent | None:
        """Latest transmission of a PSN; None: it was never sent, or is known to have arrived."""
        return self._ring[psn & self._ring_mask] if self.cack < psn < self.next_psn else None

    def outstanding_sent(self) -> list[Sent]:
        """Return the latest transmission of each PSN not known to have arrived, in order of PSN."""
        transmissions = [self.latest(psn) for psn in range(self.cack + 1, self.next_psn)]
        return [sent for sent in transmissions if sent is not None]

    def give_up_all(self) -> None:
        """Forget all that is outstanding; its timers no longer matter."""
        for sent in self.outstanding_sent():
            sent.state = ARRIVED
            self._ring[sent.psn & self._ring_mask] = None
        self.outstanding = self.bytes = 0

    def _free_timers(self) -> None:
        """Free the timers of what is over."""
        self._timers.free_finished()
        self._timers_apart.free_finished()
        self._timer_limit = max(COMPACT_FROM, 3 * (self._timers.count + len(self._timers_apart)))

    # ---- arrivals ---------------------------------------------------------------------------------------

    def acknowledge(self, cack: int) -> list[Sent]:
        """Mark all up to `cack` (below next_psn) as arrived; return the newly arrived, in order of PSN."""
        news: list[Sent] = []
        old_cack = self.cack
        if cack <= old_cack:
            return news
        ring, mask = self._ring, self._ring_mask
        for psn in range(old_cack + 1, cack + 1):
            sent = ring[psn & mask]
            if sent is not None:
                ring[psn & mask] = None
                news.append(sent)
        self.outstanding -= len(news)
        self._arrived_bits >>= cack - old_cack
        self.cack = cack
        return news

    def contradicts(self, base: int, bitmap: int) -> bool:
        """Whether a bitmap from PSN `base` on lacks a packet known to have arrived: the SACK is an old one."""
        shift = base - self.cack - 1
        if shift >= 0:
            width, missing_bits = BITMAP_BITS, self._arrived_bits >> shift & ~bitmap
        else:
            width, missing_bits = BITMAP_BITS + shift, self._arrived_bits & ~(bitmap >> -shift)
        # The lowest bit alone tells: a mask of 64 bits is no small number in machine code.
        return missing_bits != 0 and (missing_bits & -missing_bits).bit_length() <= width

    def acknowledge_bitmap(self, base: int, bitmap: int, news: list[Sent]) -> None:
        """Note the arrivals that a bitmap shows, and append those that are new to `news`.

        Bit i: PSN base + i arrived. Bits of PSNs never sent are ignored.
        """
        shift = base - self.cack - 1
        if not bitmap or shift <= -BITMAP_BITS:
            return
        bits = bitmap << shift if shift >= 0 else bitmap >> -shift
        bits &= (1 << (self.next_psn - 1 - self.cack)) - 1
        new_bits = bits & ~self._arrived_bits
        if not new_bits:
            return
        self._arrived_bits |= new_bits
        ring, mask = self._ring, self._ring_mask
        while new_bits:
            low = new_bits & -new_bits
            index = self.cack + low.bit_length() & mask
            sent = ring[index]
            assert sent is not None
            ring[index] = None
            news.append(sent)
            self.outstanding -= 1
            new_bits ^= low

    # ---- loss -------------------------------------------------------------------------------------------

    def give_up(self, sent: Sent) -> None:
        """Mark an IN_FLIGHT packet as no longer expected to arrive."""
        sent.state = GIVEN_UP
        self.bytes -= sent.size

    def mark_arrived(self, sent: Sent, beyond_doubt: bool) -> None:
        """Mark news; `beyond_doubt`: it was this transmission that arrived, not an earlier copy.

        Call for all news of a SACK before `overtake`.
        """
        if sent.state == IN_FLIGHT:
            self.bytes -= sent.size
        sent.state = ARRIVED
        if beyond_doubt:
            self._proof.on_read(sent.ev.plane, sent.sent_at)
            if sent.serial > self._newest_arrived:
                self._newest_arrived = sent.serial

    def overtake(self, sent: Sent) -> None:
        """Make suspects of older packets of the EV over which `sent` arrived beyond doubt (rule a)."""
        ev, serial = sent.ev, sent.serial
        if serial > ev.newest_arrived:
            ev.newest_arrived = serial
        transmission = ev.oldest_kept
        while transmission is not None and transmission.serial <= serial:
            following, transmission.next_on_ev = transmission.next_on_ev, None
            ev.kept_count -= 1
            if transmission.state == IN_FLIGHT and self._fifo:
                assert isinstance(transmission, Sent)
                self._suspects.append((transmission, LossCause.OVERTAKEN))
            transmission = ev.oldest_kept = following
        if transmission is None:
            ev.newest_kept = None

    def presume_lost(self, first: int, last: int, now: float, patience_s: float) -> None:
        """Make suspects of PSNs `first` to `last` in flight for `patience_s`, whatever their EV.

        For Config's `clear_bits` "lost" and `loss_rule` "ooo".
        """
        for psn in range(max(first, self.cack + 1), min(last, self.next_psn - 1) + 1):
            sent = self.latest(psn)
            if sent is not None and sent.state == IN_FLIGHT and now - sent.sent_at >= patience_s:
                self._suspects.append((sent, LossCause.DISTANCE))

    def lost(
        self, threshold: int | None, base: int, last_shown: int, now: float
    ) -> list[tuple[Sent, LossCause]] | None:
        """Return the losses that a fresh SACK proves, if any; each is still IN_FLIGHT.

        The SACK covered PSNs `base` to `last_shown` (at most 64).

        A packet is lapped (rule b; `threshold` None: never) when it is older than `patience_s` of its EV, for past
        a queue of its plane others lap it without any loss, and either the peer has read its plane for `skew_s` since,
        or one arrived that left `threshold` transmissions later while the peer was attentive for `silence_s`. The first
        finds losses of senders that have little to send, the second a plane that is silent. See note 2.
        """
        if threshold is None:
            if not self._suspects:
                return None
            limit = 0
        else:
            limit = self._newest_arrived - threshold
            self._find_laggards(limit, now)
            if not self._suspects and not self._laggards:
                return None
        last = min(base + BITMAP_BITS - 1, last_shown)
        proven: list[tuple[Sent, LossCause]] = []
        waiting: list[tuple[Sent, LossCause]] = []
        serials: set[int] = set()
        for pair in self._suspects:
            sent = pair[0]
            # The packet arrived or was given up since, or is listed twice.
            if sent.state != IN_FLIGHT or sent.serial in serials:
                continue
            serials.add(sent.serial)
            (proven if base <= sent.psn <= last else waiting).append(pair)
        self._suspects = waiting
        if self._laggards:
            laggards, self._laggards = self._laggards, []
            for sent in laggards:
                if sent.state != IN_FLIGHT or sent.serial in serials:
                    continue
                if base <= sent.psn <= last and self._is_lapped(sent, limit, now):
                    proven.append((sent, LossCause.DISTANCE))
                else:
                    self._laggards.append(sent)
        return proven

    def _find_laggards(self, limit: int, now: float) -> None:
        """Move packets that are lapped from the queues by age to `_laggards`."""
        patience_min_s = self._proof.rtt.patience_s(UNKNOWN)
        for mates in self._by_age:
            # Even the oldest packet of this plane is too young to suspect.
            if now - mates.oldest_sent_at < patience_min_s:
                continue
            candidate = mates.oldest_sent
            while candidate is not None:
                if candidate.state == IN_FLIGHT:
                    # Younger packets of this plane wait behind the first without proof.
                    if not self._is_lapped(candidate, limit, now):
                        break
                    self._laggards.append(candidate)
                candidate = mates.drop_oldest(candidate)

    def _is_lapped(self, sent: Sent, limit: int, now: float) -> bool:
        """Whether a packet is lapped, see `lost`; `limit`: newest serial that others may have lapped."""
        proof, ev, sent_at = self._proof, sent.ev, sent.sent_at
        rtt, plane, path_rtt_s = proof.rtt, ev.plane, ev.rtt_s
        if now - sent_at < rtt.patience_s(path_rtt_s):
            return False
        if path_rtt_s >= 0 and proof.span(plane, sent_at) >= rtt.skew_s(path_rtt_s, now):
            return True
        return sent.serial <= limit and proof.attention(sent_at) >= rtt.silence_s(path_rtt_s, now)

    # ---- timers -----------------------------------------------------------------------------------------

    def take_expired(self, now: float) -> list[Sent]:
        """Return packets in flight whose timer is due (rule c), oldest first; their timers are spent.

        A timer that was set before answers turned out to take longer runs on for as long as they take.
        """
        due: list[Sent] = []
        timers, timers_apart, rtt = self._timers, self._timers_apart, self._proof.rtt
        while (sent := self.first_timer()) is not None and sent.deadline <= now:
            if timers.first is sent:
                timers.drop_first()
            else:
                timers_apart.drop_first()
            deadline = sent.sent_at + rtt.known_s(now, sent.ev)
            if deadline > now:
                sent.deadline = deadline
                timers_apart.add(sent)
            else:
                due.append(sent)
        if len(due) > 1:
            due.sort(key=lambda sent: sent.serial)
        return due

    def first_timer(self) -> Sent | None:
        """Return the packet in flight whose timer is due first."""
        first_apart, sent = self._timers_apart.first(), self.first_in_chain()
        if sent is None or (first_apart is not None and is_due_before(first_apart, sent)):
            return first_apart
        return sent

    @property
    def head_transmission(self) -> Sent | None:
        """Transmission such that no timer of a packet in flight is due before its or that of first_in_chain().

        It may have arrived: taking it out of its heap for every answer would cost more than all else here.
        """
        return self._timers_apart.head_transmission

    def first_in_chain(self) -> Sent | None:
        """Return the first transmission of the chain that is in flight; those before it are taken out."""
        timers = self._timers
        sent = timers.first
        while sent is not None and sent.state != IN_FLIGHT:
            sent = timers.drop_first()
        return sent
