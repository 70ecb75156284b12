"""Requestor half of a QP: segments writes, sprays the packets, makes sure that each arrives (§5).

Sending, acknowledgments, losses and timers all turn on the same few queues, hence one file. Beside it: packets in
flight (send_window.py), round trips, timers and the retry budget (roundtrips.py), paths (paths.py), windows
(window.py), evidence of losses (tail_loss_probe.py). The numbered design notes that comments name are in
docs/design/requestor.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush
from typing import Final

from mrc_testbed.hosts.engine.cc.qpcc import Window
from mrc_testbed.hosts.engine.cc.window import FULL_PACKET, LONG_AGO
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.connection import Context, Counters, TxCredit
from mrc_testbed.hosts.engine.deadlines import NEVER
from mrc_testbed.hosts.engine.events import Completion, LossCause, PacketLost, Status
from mrc_testbed.hosts.engine.loss.proof_of_loss import ProofOfLoss
from mrc_testbed.hosts.engine.loss.roundtrips import RetryBudget, RoundTrips
from mrc_testbed.hosts.engine.loss.send_window import BITMAP_BITS, GIVEN_UP, IN_FLIGHT, Copy, SendWindow, Sent
from mrc_testbed.hosts.engine.loss.tail_loss_probe import HeuristicLoss, TailLossProbe, Trial
from mrc_testbed.hosts.engine.messages import Message
from mrc_testbed.hosts.engine.paths.ev import Ev, Obstacle
from mrc_testbed.hosts.engine.paths.ev_state import EvSignal, EvState
from mrc_testbed.hosts.engine.paths.paths import QpPaths
from mrc_testbed.hosts.engine.wire.codec import nominal_size
from mrc_testbed.hosts.engine.wire.packets import (
    CC_NSCC,
    ECN_ECT0,
    MPR_UNIT,
    RCVD_UNIT,
    Nack,
    NackReason,
    Opcode,
    PacketRecord,
    Sack,
    Syndrome,
    TransportAck,
    Verdict,
    Write,
)
from mrc_testbed.hosts.engine.wire.payload import Data, cut
from mrc_testbed.hosts.engine.wire.psn import PSN_MASK, advance, unwrap

_VERDICTS: Final[dict[int, EvSignal]] = {
    Verdict.SKIP_ONCE: EvSignal.SACK_SKIP_ONCE,
    Verdict.ALWAYS_SKIP: EvSignal.SACK_ALWAYS_SKIP,
}
_NAK_STATUS: Final[dict[int, Status]] = {
    Syndrome.NAK_INVALID_REQUEST: Status.REMOTE_INVALID_REQUEST,
    Syndrome.NAK_REMOTE_ACCESS: Status.REMOTE_ACCESS,
    Syndrome.NAK_REMOTE_OPERATION: Status.REMOTE_OPERATION,
}
_KNOWN_REASONS: Final = frozenset(NackReason)
_TRIMS: Final = frozenset((NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP))
_MIDDLE: Final = Opcode.WRITE_MIDDLE

_SKIP_ONCE: Final[int] = Verdict.SKIP_ONCE.value
"""Number of the verdict, which machine code compares without a call."""

REORDER_MIN: Final = 3
"""Least number of transmissions by which a packet has to be overtaken before it is suspect (§5.9 b)."""
NACK_LOST_RTTS: Final = 4
"""Round trips after the last NACK for a trim in which other such NACKs may have been lost."""


class Feedback:
    """One SACK with its counts unwrapped: what the steps of Requestor.on_sack read."""

    __slots__ = ("advances", "base", "cack", "highest", "is_fresh", "received_bytes", "sack", "trigger")

    def __init__(
        self,
        sack: Sack,
        trigger: Sent | None,
        cack: int,
        base: int,
        highest: int,
        received_bytes: int,
        is_fresh: bool,
        advances: bool,
    ) -> None:
        self.sack = sack
        """SACK, without its congestion part where that is not NSCC's."""
        self.trigger = trigger
        """Transmission that the SACK answers; None: unknown, or a probe."""
        self.cack = cack
        """Unwrapped PSN up to which nothing is missing."""
        self.base = base
        """Unwrapped PSN of bit 0 of the bitmap."""
        self.highest = highest
        """Highest unwrapped PSN up to which this SACK shows what is missing."""
        self.received_bytes = received_bytes
        """Bytes that the responder counted since the newest SACK before."""
        self.is_fresh = is_fresh
        """Neither cack, byte count nor bitmap fall behind what earlier SACKs said; a stale one was overtaken."""
        self.advances = advances
        """Whether the cumulative PSN moved."""


class Requestor:
    """`fail(status, detail, psn)` is called once when the QP has to go to ERROR; `psn` as in `flush`."""

    def __init__(
        self,
        context: Context,
        counters: Counters,
        paths: QpPaths,
        window: Window,
        proof: ProofOfLoss,
        first_psn: int,
        fail: Callable[[Status, str, int | None, float], None],
    ) -> None:
        self._context, self._counters, self._paths, self._window = context, counters, paths, window
        self._proof = proof
        self._fail = fail
        self._pmtu = context.pmtu_bytes
        self._messages: deque[Message] = deque()
        """Messages not completed, in posting order."""
        self._oldest_message: Message | None = None
        """Message posted first of those not complete; kept, since each acknowledgment needs it."""
        self._unsent: deque[Message] = deque()
        """Messages with packets that were never sent, without `_first_unsent`."""
        self._first_unsent: Message | None = None
        """First of them, beside the others since each packet needs it."""
        self.wimm_outstanding = 0
        """WriteIMM posted and not completed; the peer allows max_wimm."""
        self._completed = 0
        self._retransmit_psns: list[int] = []
        """Heap of PSNs to retransmit; valid while their latest transmission is GIVEN_UP."""
        self._deferred_psns: list[tuple[float, int]] = []
        """Heap of (when, PSN) refused by the responder: they wait a round trip (§5.14)."""
        # Times are kept beside queues that are empty for most QPs: a look at a queue is one more miss of the caches.
        self._deferred_due = NEVER
        """Time of the first of them."""
        self._last_ack_request: Sent | None = None
        """Last packet that left with the A bit."""
        self._rcvd_units = 0
        """Newest rcvd_bytes of the responder, in its unit."""
        self._settled_bytes = 0
        """Bytes that left the window although no SACK had counted them yet."""
        self._charged_completion = 0
        """Expiries in a row of the wait for a Transport ACK."""
        self._trials: deque[Trial] = deque()
        """EVs whose packet is overdue, by the time of the verdict."""
        self._trial_due = NEVER
        """Time of the first verdict."""
        self._ack_due_at = NEVER
        """Time at which the Transport ACK of a message all of whose packets arrived is asked for.

        NEVER: none is owed."""
        self._stranded_due = NEVER
        """Time at which the wait is charged with no usable EV and nothing in flight (note 4)."""
        self._opens_at = NEVER
        """Time at which a window below one packet lets the next packet leave.

        NEVER: no packet waits for that."""
        self._tail_probe = TailLossProbe(paths, proof)
        self._bitmap_psn = first_psn
        """PSN of bit 0 in the newest bitmap."""
        # restart() sets the other fields; a set-up in two steps calls it again (begin_sending).
        self.restart(first_psn, context.remote_mpr, context.config)

    def restart(self, first_psn: int, remote_mpr: int, config: Config) -> None:
        """Start at a PSN with these settings; possible again as long as nothing was posted."""
        self._context.config = config
        self._context.remote_mpr = remote_mpr
        loss = self._loss = config.loss
        self.flight = SendWindow(first_psn, loss.ev_fifo and loss.loss_rule in ("all", "time"), self._proof)
        self.rtt = self._proof.rtt = RoundTrips(config)
        self._budget = RetryBudget(config, self.rtt)
        self._silent = False
        """Whether a timer expired without any answer since its packet left."""
        self._end_psn = first_psn
        """First PSN no message has."""
        self._msn: int = config.wire.first_msn
        """Number of the next message (§2.3, §12 row 11)."""
        self._rqmsn = config.wire.first_rqmsn - 1 & 0xFFFF
        """Number of the last WriteIMM."""
        # An exclusive window ends one PSN earlier (§12 row 14).
        self._less = int(config.qp.window_end == "exclusive")
        self._mpr = remote_mpr - self._less
        """Current window of the peer, packets; moves only with dynamic MPR."""
        self._size_of = nominal_size(config)
        self._remainder = config.wire.dma_length == "remainder"
        self._overflow = config.qp.wimm_overflow if config.qp.wimm_overflow != Syndrome.NAK_INVALID_REQUEST else None
        """Reason of the NACK that refuses a WriteIMM too many; None = a Transport NAK does."""
        self._distance = loss.loss_rule in ("all", "distance")
        self._reorder = loss.reorder_threshold
        self._stamp_s = config.wire.ts_unit_s if config.wire.timestamps else 0.0
        """Unit of the timestamps in our packets, seconds; 0 = there are none."""
        self._full_size = self._size_of(Opcode.WRITE_MIDDLE, self._pmtu, self._stamp_s > 0)
        """Nominal bytes of a full packet from the middle of a message."""
        trims = self._context.remote_trim_nack
        self._dscp_first = config.dscp.trimmable if trims else config.dscp.no_trim
        self._dscp_again = config.dscp.trimmable_retx if trims else config.dscp.no_trim
        """DSCPs of the first transmission of a packet and of the others."""
        self._heuristic = HeuristicLoss.for_config(config)

    # ---- application ------------------------------------------------------------------------------------

    def post(self, wr_id: int, data: Data, va: int, rkey: int, imm: int | None, solicited: bool = False) -> None:
        """Queue a write behind all others."""
        rqmsn = 0
        if imm is not None:
            rqmsn = self._rqmsn = self._rqmsn + 1 & 0xFFFF
            self.wimm_outstanding += 1
        message = Message(
            wr_id, data, va, rkey, self._end_psn, self._pmtu, self._msn, rqmsn, imm, solicited and imm is not None
        )
        self._msn = self._msn + 1 & 0xFFFF
        self._end_psn = message.last_psn + 1
        self._messages.append(message)
        if self._oldest_message is None:
            self._oldest_message = message
        if self._first_unsent is None:
            self._first_unsent = message
        else:
            self._unsent.append(message)

    def pending(self) -> int:
        """Messages not completed."""
        return len(self._messages)

    def wants_to_send(self) -> bool:
        """Whether only windows or ports hold packets back."""
        return self.flight.next_psn < self._end_psn or bool(self._retransmit_psns)

    def can_send(self) -> bool:
        """Whether there is something to send and the window is open, or may open without a call to this QP."""
        flight, window = self.flight, self._window
        if flight.next_psn >= self._end_psn and not self._retransmit_psns:
            return False
        # A packet waits for its turn by a window below one packet, as at the last transmit(): on_timer() ends the wait.
        if (
            self._opens_at != NEVER
            and self._opens_at == window.opens_at()
            and (flight.bytes or window.inflight <= 0)
            and window.is_alone
            and not self._paths.profile.skips
        ):
            return False
        return bool(not flight.bytes or window.may_send() or not window.is_alone or self._paths.profile.skips)

    def in_flight(self) -> bool:
        """Return whether a packet was sent that is not known to have arrived."""
        return bool(self.flight.bytes)

    def window_open(self) -> bool:
        """Return whether both windows let the next packet go (§5.3)."""
        is_beyond = not self._retransmit_psns and self.flight.next_psn > self.flight.cack + self._mpr
        return self._window.may_send() and not is_beyond

    # ---- sending ----------------------------------------------------------------------------------------

    def transmit(self, now: float, out: list[tuple[int, str, PacketRecord]], limit: int, credit: TxCredit) -> None:
        """Append up to `limit` packets: retransmissions first, then new data (§5.10)."""
        flight, window = self.flight, self._window
        if not flight.bytes:
            self._settle()
        profile = self._paths.profile
        if profile.skips:
            profile.tick(now)
        opens_at = window.opens_at()
        paced = opens_at != LONG_AGO
        # The window is below one packet: one packet at a time, and not before its turn.
        if paced:
            self._opens_at = opens_at if opens_at > now else NEVER
            limit = int(opens_at <= now)
        last_psn = flight.cack + self._mpr
        while limit > 0 and credit.free_ports and window.may_send():
            lost = self._next_lost() if self._retransmit_psns else None
            # Retransmissions first; new data only inside the peer's window (§5.3).
            if lost is None:
                message, psn = self._first_unsent, flight.next_psn
                if message is None or psn > last_psn:
                    return
                ev = profile.choose(credit.free_ports)
                if ev is None:
                    return
                if psn == message.last_psn:
                    self._first_unsent = self._unsent.popleft() if self._unsent else None
                packet = self._send(psn, message, ev, None, now, psn == last_psn)
            else:
                if lost.psn > last_psn:
                    return  # the window shrank (§5.3)
                ev = profile.choose(credit.free_ports, lost.ev)
                if ev is None:
                    return
                heappop(self._retransmit_psns)
                packet = self._send(lost.psn, lost.message, ev, lost, now, False)
            credit.take(ev.plane)
            out.append((ev.plane, self._context.peer, packet))
            limit -= 1
            if paced:
                window.took_turn(now)

    def _next_lost(self) -> Sent | None:
        """Return the lowest PSN's packet that has to be sent again; its PSN stays in the heap."""
        psns, flight = self._retransmit_psns, self.flight
        while psns:
            sent = flight.latest(psns[0])
            if sent is not None and sent.state == GIVEN_UP:
                return sent
            heappop(psns)  # it arrived after all
        return None

    def _send(self, psn: int, message: Message, ev: Ev, previous: Sent | None, now: float, window_ends: bool) -> Write:
        """Send one packet; `previous`: the transmission given up, None for the first.

        `window_ends`: MPR allows no further packet.
        """
        context, flight, window, counters = self._context, self.flight, self._window, self._counters
        start = (psn - message.first_psn) * self._pmtu
        payload_size = min(self._pmtu, message.length - start)
        payload = cut(message.data, start, payload_size)
        opcode = message.opcode(psn)
        timestamp = int(now / self._stamp_s) & 0xFFFF if self._stamp_s else None
        if previous is not None:
            timestamp = previous.fresh_timestamp(timestamp, ev)
        if opcode is _MIDDLE and payload_size == self._pmtu:
            # A full packet from the middle of a message, the usual one: its size was computed once.
            size = self._full_size
        else:
            size = self._size_of(opcode, payload_size, timestamp is not None)
        flight.serial += 1
        second_chance = ev.in_doubt and self._proof.newest_read > ev.accused_at
        if previous is None:
            deadline = now + self.rtt.timer_s(0, now, ev)
            sent = Sent(psn, message, ev, size, flight.serial, 1, 0, now, deadline, timestamp, (), second_chance)
            counters.packets_sent += 1
            counters.bytes_sent += payload_size
            dscp = self._dscp_first
        else:
            deadline = now + self.rtt.timer_s(previous.expiries, now, ev)
            sent = Sent(
                psn,
                message,
                ev,
                size,
                flight.serial,
                previous.attempt + 1,
                previous.expiries,
                now,
                deadline,
                timestamp,
                previous.as_copies(),
                second_chance,
            )
            counters.retransmitted += 1
            dscp = self._dscp_again
        flight.add(sent)
        window.on_send(size)
        ev.sent += 1
        counters.planes[ev.plane].count(payload_size)
        ack_request = psn == message.last_psn
        imm = (message.imm or 0) if ack_request else 0
        if not ack_request and (window_ends or window.about_to_stall()):
            # The sender is about to stall: one outstanding request is enough.
            last_request = self._last_ack_request
            ack_request = last_request is None or last_request.state != IN_FLIGHT
        if ack_request:
            self._last_ack_request = sent
        return Write(
            context.remote_qpn,
            ev.value,
            ev.plane,
            dscp,
            ECN_ECT0,
            opcode,
            psn & 0xFFFFFF,
            message.msn,
            message.va + start,
            message.rkey,
            message.length - start if self._remainder else message.length,
            payload,
            size,
            message.rqmsn,
            imm,
            timestamp,
            1 if timestamp is not None else 0,
            ack_request,
            previous is not None,
            message.solicited and psn == message.last_psn,
        )

    # ---- acknowledgments --------------------------------------------------------------------------------

    def on_sack(self, sack: Sack, now: float) -> None:
        """Act on one SACK in five steps (§5.7).

        Never raises; feedback about PSNs never sent is only counted.
        """
        feedback = self._read_feedback(sack, now)
        if feedback is None:
            return
        acked = self._acknowledge(feedback)
        self._update_window(feedback, acked, now)
        if feedback.advances:
            self._progress(now)
        if feedback.is_fresh:
            if not self._declare_losses(feedback, now):
                return  # the QP failed: there are no paths left to judge
        elif not self.flight.bytes:
            self._settle()  # a stale SACK proves nothing about what is missing
        self._update_path(feedback, now)

    def _read_feedback(self, sack: Sack, now: float) -> Feedback | None:
        """Validate a SACK and unwrap its counts; None when it is about PSNs never sent."""
        flight, counters = self.flight, self._counters
        cack = unwrap(sack.cack_psn, flight.cack)
        if cack >= flight.next_psn:
            counters.bad_feedback += 1
            return None
        counters.sacks_received += 1
        self._on_answer(now)
        trigger_psn = cack + sack.ack_psn_offset
        trigger = self._find_trigger(sack, trigger_psn, now)
        if sack.cc_type != CC_NSCC:
            counters.foreign_cc += 1
            sack = self._without_congestion(sack, trigger)
        base = cack + sack.sack_offset
        units = advance(self._rcvd_units, sack.rcvd_units)
        counts_on = units > 0 or sack.rcvd_units == self._rcvd_units
        is_fresh = cack >= flight.cack and counts_on and not flight.contradicts(base, sack.bitmap)
        if not is_fresh:
            counters.stale_sacks += 1
        elif sack.mpr and self._context.dynamic_mpr:
            self._mpr = sack.mpr * MPR_UNIT - self._less
        self._rcvd_units = self._rcvd_units + units & 0xFFFFFF
        # A probe's answer is triggered by no packet, so that beyond the bitmap it proves no more than cack.
        highest = max(base + sack.bitmap.bit_length() - 1, trigger_psn if sack.probe_id is None else cack)
        return Feedback(sack, trigger, cack, base, highest, units * RCVD_UNIT, is_fresh, cack > flight.cack)

    def _find_trigger(self, sack: Sack, psn: int, now: float) -> Sent | None:
        """Return the transmission that the SACK answers, None where that is not certain.

        An earlier copy, which we gave up too early, counts as spurious and gives a round trip; it is no trigger.
        """
        if sack.probe_id is not None:
            return None
        sent = self.flight.latest(psn)
        if sent is None:
            return None
        if sack.cc_type != CC_NSCC:
            # No mirrored timestamp tells one copy from another: the packet must have been sent once (§5.8).
            return sent if sent.attempt == 1 and sent.ev.value == sack.entropy else None
        if sent.triggered(sack):
            return sent
        copy = sent.earlier(sack)
        if copy is not None:
            self._counters.spurious += 1
            self._proof.on_answer(copy.ev.plane, copy.sent_at, False, now)
            self.rtt.on_late_answer(now - copy.sent_at, now)
            copy.ev.on_sample(now - copy.sent_at)
        return None

    def _without_congestion(self, sack: Sack, trigger: Sent | None) -> Sack:
        """Reduce a SACK whose cc_type is not NSCC's to its part for reliability.

        No bytes, no penalty, no mirrored timestamp.
        """
        timestamp = 0 if trigger is None else trigger.timestamp or 0
        return replace(
            sack, timestamp=timestamp, rcvd_units=self._rcvd_units, ooo_count=0, penalty=0, restore_cwnd=False
        )

    def _acknowledge(self, feedback: Feedback) -> list[Sent]:
        """Remove arrived packets from the flight and return them.

        First by the cumulative PSN, then by the bitmap.
        """
        acked = self.flight.acknowledge(feedback.cack)
        self.flight.acknowledge_bitmap(feedback.base, feedback.sack.bitmap, acked)
        return acked

    def _update_window(self, feedback: Feedback, acked: list[Sent], now: float) -> None:
        """Report bytes, marks and the round trip to congestion control, and the packets to their EVs."""
        sack, trigger = feedback.sack, feedback.trigger
        rtt_s = self._sample(trigger, now)
        self._window.on_ack(
            now,
            feedback.received_bytes,
            sack.verdict == _SKIP_ONCE,
            rtt_s,
            sack.penalty,
            sack.restore_cwnd,
            FULL_PACKET if trigger is None else trigger.size,
        )
        if self._settled_bytes:  # bytes that left the window before a SACK counted them must not leave it twice
            counted_bytes = min(self._settled_bytes, feedback.received_bytes)
            self._settled_bytes -= counted_bytes
            self._window.on_unlost(counted_bytes)
        self._on_arrivals(acked, trigger, now)

    def _declare_losses(self, feedback: Feedback, now: float) -> bool:
        """Give up packets that a fresh SACK shows to be missing (§5.9 a and b).

        False when the retry budget was spent on them.
        """
        flight = self.flight
        self._bitmap_psn = feedback.base
        if flight.outstanding:
            highest = feedback.highest
            if self._heuristic is not None:
                patience_s = self.rtt.typical_s() + 4 * self.rtt.deviation_s
                window_packets = self._window.cwnd / self._full_size
                highest = self._heuristic.suspect(
                    flight, feedback.sack, feedback.base, highest, window_packets, patience_s, now
                )
            threshold = self._reorder_threshold() if self._distance else None
            losses = flight.lost(threshold, feedback.base, highest, now)
            if losses:
                if not self._charge(now):
                    return False
                for sent, cause in losses:
                    self._lost(sent, cause, now)
        self._window.cap(flight.bytes)
        return True

    def _update_path(self, feedback: Feedback, now: float) -> None:
        """Apply the verdict on the path, and watch for a wait that starts when no path is left."""
        self._verdict(feedback.sack, feedback.trigger, now)
        if not self._paths.profile.usable_planes:
            self.watch_paths(now)

    def _sample(self, trigger: Sent | None, now: float) -> float | None:
        """RTT in seconds of the SACK's trigger; None when it is unknown or was sampled before."""
        if trigger is None:
            return None
        ev, sent_at = trigger.ev, trigger.sent_at
        self._proof.on_answer(ev.plane, sent_at, self.rtt.ordinary(now - sent_at, ev), now)
        return self._measure(trigger, now)

    def _measure(self, sent: Sent, now: float) -> float:
        """Update the round trips with that of a packet that is answered now; return it in seconds."""
        rtt_s = now - sent.sent_at
        sent.ev.on_sample(rtt_s)
        self.rtt.on_sample(rtt_s, now)
        return rtt_s

    def _on_answer(self, now: float) -> None:
        """Note that the peer answered."""
        self._proof.heard_at = now
        if self._silent:
            self._silent = False
            self._window.on_life()

    def _on_arrivals(self, news: list[Sent], trigger: Sent | None, now: float) -> None:
        flight = self.flight
        for sent in news:  # first copies leave in the order of PSNs: the first of them is the oldest
            if sent.attempt == 1:
                if not self.rtt.ordinary(now - sent.sent_at, sent.ev):
                    self._proof.on_late_report(now - self.rtt.patience_s(sent.ev.rtt_s))
                break
        for sent in news:
            if sent.state == GIVEN_UP:
                self._counters.not_lost += 1
                self._window.on_unlost(sent.size)
            flight.mark_arrived(sent, sent.attempt == 1 or sent is trigger)
        for sent in news:
            # A PSN sent more than once: which copy arrived is known of the trigger only.
            if sent.attempt == 1 or sent is trigger:
                sent.ev.acked += 1
                flight.overtake(sent)
            if sent.attempt > 1:
                self._put_on_trial(sent.copies if sent is trigger else sent.as_copies(), now)

    def _put_on_trial(self, copies: tuple[Copy, ...], now: float) -> None:
        """Put the EVs of accused copies of a packet that arrived on trial.

        A SACK for a batch does not tell which copy arrived, so all are tried; a probe acquits those that work.
        """
        trials = {trial.ev: trial for trial in self._trials}
        for copy in copies:
            if not copy.is_accused:
                continue
            if copy.ev in trials:
                trials[copy.ev].add(copy)
            else:
                trials[copy.ev] = Trial(now + self.rtt.verdict_s(now), copy)
                self._trials.append(trials[copy.ev])
        self._trial_due = self._trials[0].verdict_at if self._trials else NEVER

    def _reorder_threshold(self) -> int:
        """Rule (b) of §5.9, in transmissions."""
        if self._reorder:
            return self._reorder
        window_packets, outstanding = int(self._window.cwnd) // self._pmtu, self.flight.outstanding
        threshold = window_packets if window_packets > outstanding else outstanding
        return threshold if threshold > REORDER_MIN else REORDER_MIN

    def _verdict(self, sack: Sack, trigger: Sent | None, now: float) -> None:
        """Apply the verdict of a SACK on the path of its EV; probes are judged where they are counted (Paths).

        `trigger`: the transmission that triggered it, which knows the EV.
        """
        if sack.probe_id is not None:
            self._paths.on_answer(sack, now)
            return
        ev = self._paths.find(sack.entropy) if trigger is None else trigger.ev
        if ev is None:
            return
        # A late SACK of a packet from before the suspicion does not answer it.
        if trigger is not None and trigger.sent_at >= ev.accused_at:
            ev.failures = 0
        self._paths.on_proof(ev, now)
        if self._trial_due != NEVER:
            self._trials = deque(trial for trial in self._trials if not trial.acquits(ev, sack))
            self._trial_due = self._trials[0].verdict_at if self._trials else NEVER
        if sack.verdict == _SKIP_ONCE:
            ev.marked += 1
            self._counters.marked += 1
        if sack.verdict or ev.state is not EvState.GOOD:
            self._paths.signal(ev, _VERDICTS.get(sack.verdict, EvSignal.SACK_CLEAN), now)

    def _progress(self, now: float) -> None:
        """cack advanced: the retry budget is whole again; perhaps a Transport ACK is owed to us."""
        self._budget.restore()
        self._expect_ack(now)

    def _expect_ack(self, now: float) -> None:
        message = self._oldest_message
        owed = message is not None and message.last_psn <= self.flight.cack
        self._charged_completion = 0
        self._ack_due_at = now + self.rtt.timer_s(0, now) if owed else NEVER

    def on_transport_ack(self, ack: TransportAck, now: float) -> None:
        """Complete messages in posting order, or end the QP, by a Transport ACK (§2.7)."""
        self._on_answer(now)
        flight = self.flight
        psn = unwrap(ack.psn, flight.cack)
        if psn > flight.next_psn or (psn == flight.next_psn and ack.syndrome == Syndrome.ACK):
            self._counters.bad_feedback += 1
            return
        if ack.syndrome != Syndrome.ACK:  # a NAK may name the PSN expected next, when it answers a probe
            status = _NAK_STATUS.get(ack.syndrome)
            if status is None:
                self._counters.bad_feedback += 1
            elif psn > flight.cack or (self._messages and psn >= self._messages[0].first_psn):
                self._complete(psn - 1, ack.msn - self._completed & PSN_MASK, now)
                self._fail(status, f"the responder answered PSN {ack.psn:#x} with {status.value}", psn, now)
            return
        progress = psn > flight.cack
        self._on_arrivals(flight.acknowledge(psn), None, now)
        if not flight.bytes:
            self._settle()  # should the SACK be lost, nothing else would report it
        completed_count = self._complete(psn, len(self._messages), now)
        if progress:
            self._progress(now)
        elif completed_count:
            self._expect_ack(now)

    def _complete(self, psn: int, limit: int, now: float) -> int:
        """End up to `most` messages whose packets are all at or below `psn`; returns how many those were.

        A Transport NAK completes what its MSN counts: the responder got so far before it failed.
        """
        count = 0
        while count < limit and self._messages and self._messages[0].last_psn <= psn:
            message = self._messages.popleft()
            message.release()
            self.wimm_outstanding -= message.imm is not None
            count += 1
            self._context.events.append(
                Completion(self._context.qpn, message.wr_id, Status.SUCCESS, message.length, now)
            )
        self._oldest_message = self._messages[0] if self._messages else None
        self._completed += count
        return count

    def _settle(self) -> None:
        """Correct the window's inflight after packets left the flight without a report by a SACK.

        What had arrived was counted before it expired or a copy of it was refused; that must not count twice. And
        with nothing left in flight, what lost SACKs left over would hold us for ever, for ACKs and timers carry no
        byte counts: it is taken off now, and not once more when a SACK counts it after all.
        """
        if self.flight.bytes:
            self._window.cap(self.flight.bytes)
            return
        inflight = self._window.inflight
        self._window.cap(0)
        if inflight > 0:
            self._settled_bytes += inflight

    # ---- loss and refusal -------------------------------------------------------------------------------

    def _lost(self, sent: Sent, cause: LossCause, now: float) -> None:
        """Give up a packet lost without trace: report, blame its EV, queue it again."""
        counters, context, ev = self._counters, self._context, sent.ev
        counters.lost += 1
        counters.losses[cause] += 1
        ev.lost += 1
        ev.newest_lost = max(ev.newest_lost, sent.serial)
        self.flight.give_up(sent)
        self._window.on_loss(now, sent.size, sent.sent_at)
        heappush(self._retransmit_psns, sent.psn)
        context.events.append(
            PacketLost(context.qpn, sent.psn & 0xFFFFFF, ev.value, ev.plane, cause, sent.sent_at, now)
        )
        profile = self._paths.profile
        if not profile.plane_up(ev.plane) or sent.sent_at < profile.up_since[ev.plane]:
            return  # note 2
        trims = sent.sent_at < ev.trimmed_at + NACK_LOST_RTTS * self.rtt.mean_s
        if trims and ev.carries():
            self._paths.signal(ev, EvSignal.TRIMMED, now)  # note 5
            return
        if cause is not LossCause.TIMEOUT or self._proven(sent, trims):
            self._paths.signal(ev, EvSignal.LOST, now)
        else:
            sent.is_accused = True  # note 3
            self._paths.accuse(ev, now)

    def _proven(self, sent: Sent, trims: bool) -> bool:
        """Whether a packet whose timer expired is the fault of its path beyond doubt (notes 3 and 5)."""
        if sent.second_chance and sent.ev.in_doubt and self._proof.attention(sent.sent_at) > 0:
            return True
        shown = (
            self._bitmap_psn <= sent.psn < self._bitmap_psn + BITMAP_BITS
        )  # else the SACK that reported it may be lost
        return shown and not trims and self._proof.missed(sent.ev, sent.sent_at)

    def on_nack(self, nack: Nack, now: float) -> None:
        """Act on a NACK (§2.10, §5.14); the EV is judged even when the PSN is no longer of interest."""
        flight, counters = self.flight, self._counters
        self._on_answer(now)
        psn = unwrap(nack.psn, flight.cack)
        if psn >= flight.next_psn:
            counters.bad_feedback += 1
            return
        if nack.reason == NackReason.UNEXP_EVENT:
            if psn <= flight.cack and (not self._messages or psn < self._messages[0].first_psn):
                return  # about something completed: an old one
            self._fail(Status.REMOTE_OPERATION, f"the responder met an unexpected event at PSN {nack.psn:#x}", psn, now)
            return
        if nack.reason not in _KNOWN_REASONS and self._unknown_nack(nack, psn, now):
            return
        # Congestion is no failure: a round in which a trim came charges no retry.
        if nack.reason in _TRIMS:
            self._budget.trimmed()
        ev = self._paths.find(nack.entropy)
        if ev is not None:
            trimmed = nack.reason == NackReason.TRIMMED
            if trimmed:
                ev.trimmed += 1
                ev.trimmed_at = now
            self._paths.signal(ev, EvSignal.TRIMMED if trimmed else EvSignal.REFUSED, now)
        sent = flight.latest(psn)
        if sent is None or sent.state != IN_FLIGHT or sent.ev is not ev:
            return
        is_certain = sent.timestamp is None or sent.timestamp == nack.timestamp
        if not is_certain and nack.timestamp:
            return  # an earlier copy, over the same EV; 0 is a packet cut in front of its TSETH, which may be any copy
        if sent.sent_at >= sent.ev.accused_at:
            sent.ev.failures = 0
        flight.give_up(sent)
        self._on_refusal(nack, sent, psn, is_certain, now)
        self._settle()

    def _on_refusal(self, nack: Nack, sent: Sent, psn: int, is_certain: bool, now: float) -> None:
        """Queue a refused packet: trimmed, it goes again at once; refused for want of resources, later.

        `is_certain`: the NACK names the copy beyond doubt.
        """
        counters = self._counters
        if nack.reason in _TRIMS:
            counters.trimmed += 1
            counters.trimmed_lasthop += nack.reason == NackReason.TRIMMED_LASTHOP
            # A NACK without timestamp may be about any copy of a packet sent again.
            if is_certain or sent.attempt == 1:
                self.rtt.on_trim(now)
                self._proof.on_trim(sent.sent_at, self.rtt.ordinary(now - sent.sent_at, sent.ev), now)
                self._measure(sent, now)
            is_last_hop = nack.reason == NackReason.TRIMMED_LASTHOP
            self._window.on_trim(now, sent.size, is_last_hop, sent.sent_at, sent.attempt)
            heappush(self._retransmit_psns, psn)
            return
        counters.refused += 1
        counters.refusals[nack.reason if nack.reason in counters.refusals else NackReason.NO_RESOURCE] += 1
        self._window.on_other_nack(sent.size)
        heappush(self._deferred_psns, (now + self.rtt.typical_s(), psn))
        self._deferred_due = self._deferred_psns[0][0]
        self._charge(now)

    def _unknown_nack(self, nack: Nack, psn: int, now: float) -> bool:
        """Act on a reason that §2.10 does not have (§12 rows 30 and 31); True when the NACK is done with."""
        detail = f"the responder refused PSN {nack.psn:#x} for reason {nack.reason:#x}"
        if nack.reason == self._overflow:
            if psn > self.flight.cack or (self._messages and psn >= self._messages[0].first_psn):
                self._fail(Status.REMOTE_INVALID_REQUEST, detail, psn, now)
            return True
        self._counters.unknown_nacks += 1
        if self._loss.unknown_nack == "fail":
            self._fail(Status.REMOTE_OPERATION, detail, psn, now)
        return self._loss.unknown_nack != "no_resource"

    def _charge(self, now: float) -> bool:
        """Charge the retry budget for a packet sent or asked for again; False when the QP failed of it.

        While the controller denies all EVs, nothing is charged (note 4).
        """
        budget = self._budget
        if self._stranded():
            return True
        charges_before = budget.charges
        has_budget = budget.charge(now)
        self._counters.retry_charges += budget.charges - charges_before
        if has_budget:
            return True
        detail = (
            f"nothing got through in {self._budget.charges} retries (linear_cnt {self._loss.linear_cnt} + "
            f"exp_cnt {self._loss.exp_cnt})"
        )
        self._fail(Status.RETRY_EXCEEDED, detail, None, now)
        return False

    # ---- clock ------------------------------------------------------------------------------------------

    def on_timer(self, now: float) -> None:
        """Expired packets (§5.9 c), refused ones that waited, and a Transport ACK that does not come."""
        if self._opens_at <= now:
            self._opens_at = NEVER
        while self._deferred_due <= now:
            psn = heappop(self._deferred_psns)[1]
            heappush(self._retransmit_psns, psn)
            self._deferred_due = self._deferred_psns[0][0] if self._deferred_psns else NEVER
        # No answer so far: a probe of the EV decides.
        while self._trial_due <= now:
            self._paths.put_on_trial(self._trials.popleft().ev)
            self._trial_due = self._trials[0].verdict_at if self._trials else NEVER
        due = self.flight.take_expired(now)
        if due:
            if not self._charge(now):
                return
            # No answer since the oldest expired packet left: its flight must not hold the window of other QPs.
            if self._proof.heard_at < due[0].sent_at and not self._silent:
                self._silent = True
                self._window.on_silence()
            for sent in due:
                sent.expiries += 1
                self._lost(sent, LossCause.TIMEOUT, now)
            self._settle()
            self._paths.refresh(due[0].ev)
            # No EV in rotation is answered: another may still lead to the peer.
            if self._silent:
                self._paths.ask_spares()
        else:
            self._tail_probe.queue_probes(self.flight, now)
        self.watch_paths(now)
        # No EV can be used and nothing is in flight: no packet's timer charges this wait (note 4).
        if self._stranded_due <= now:
            if not self._charge(now):
                return
            self._stranded_due = NEVER
            self.watch_paths(now)
        # All packets arrived, and the Transport ACK that completes the message did not.
        if self._ack_due_at <= now:
            if self._stranded():
                self._ack_due_at = now + self.rtt.timer_s(0, now)
                return
            self._charged_completion += 1
            if not self._charge(now):
                return
            self._ack_due_at = now + self.rtt.timer_s(self._charged_completion, now)
            self._paths.refresh(None)

    def _stranded(self) -> bool:
        """Return whether no EV can be used, and the wait is not charged (note 4)."""
        return not self._paths.profile.usable_planes and not self._waits_charged()

    def _waits_charged(self) -> bool:
        """Return whether the wait for a usable EV is charged (note 4)."""
        obstacle = self._paths.profile.obstacle
        return obstacle is Obstacle.PATHS or (obstacle is Obstacle.PORTS and self._loss.all_ports_down == "charge")

    def watch_paths(self, now: float) -> None:
        """Start or end a charged wait after a change of ports, EVs or messages."""
        if self._paths.profile.usable_planes or not self._messages or not self._waits_charged():
            self._stranded_due = NEVER
        elif self._stranded_due == NEVER:
            self._stranded_due = max(now + self.rtt.timer_s(0, now), self._budget.again_at)

    def next_deadline(self) -> float:
        """Return a time not after that of the next on_timer call; NEVER when nothing is pending."""
        first, timers_due = self._stranded_due, self._tail_probe.next_due(self.flight)
        if timers_due < first:
            first = timers_due
        if self._trial_due < first:
            first = self._trial_due
        if self._deferred_due < first:
            first = self._deferred_due
        if self._ack_due_at < first:
            first = self._ack_due_at
        if self._opens_at < first:
            first = self._opens_at
        return first

    def flush(self, status: Status, psn: int | None, now: float) -> None:
        """End all work requests of a failed QP in posting order.

        The one that holds `psn` (None: the oldest) ends with `status`, the others as FLUSHED.
        """
        guilty = self._messages[0] if self._messages else None
        if psn is not None:
            guilty = next((m for m in self._messages if m.first_psn <= psn <= m.last_psn), guilty)
        for message in self._messages:
            message.release()
            message_status = status if message is guilty else Status.FLUSHED
            self._context.events.append(
                Completion(self._context.qpn, message.wr_id, message_status, message.length, now)
            )
        self._messages.clear()
        self._oldest_message = None
        self._unsent.clear()
        self._first_unsent = None
        self._retransmit_psns.clear()
        self._deferred_psns.clear()
        self._trials.clear()
        self._deferred_due = self._trial_due = NEVER
        self._ack_due_at = self._stranded_due = self._opens_at = NEVER
        self._end_psn = self.flight.next_psn
        self.flight.give_up_all()
        self._window.leave()
