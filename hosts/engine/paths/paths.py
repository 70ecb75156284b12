"""Paths of a connected QP: its EV profile, and the reliability probes that bring an EV back (§5.12).

Every signal about an EV goes through `QpPaths.signal`, which tells the application and starts probing when one goes
bad. A probe leaves each `probe_interval_s` while an EV is ASSUMED_BAD, over that EV; `needed` answers in a row, each
within `probe_timeout_s`, end it. Planes whose port is down are not probed: the answer is known.

A probe tests the way out; its answer may be lost on the way back. So halfway through its time a probe that was not
answered is asked again, as a retransmission (BTH.rtx, §2.2), which the peer answers another way (ack_paths.py): only
when neither is answered has the EV failed.

A peer that is silent on all paths is stalled or dead, and no path is to blame. So a probe has failed only if the peer
is known to have read on since (proof_of_loss.py); until then it stays open and is asked again each interval, and so is
the peer over another plane. Or all EVs in the rotation are dead: in that silence the backups are asked too.

An EV that the floor keeps in use although packets vanish on it may be the dead one, and those that were withdrawn
before it the good ones: a trim whose NACK was lost looks like a loss. So when all that a plane has in rotation is in
doubt, its bad EVs are probed at once, and one answer is enough.
"""

from __future__ import annotations

import heapq
from collections import deque
from random import Random
from typing import Final

from mrc_testbed.hosts.engine.connection import Context, Counters, TxCredit
from mrc_testbed.hosts.engine.deadlines import NEVER
from mrc_testbed.hosts.engine.events import EvChanged, EvReplaced
from mrc_testbed.hosts.engine.loss.proof_of_loss import ProofOfLoss
from mrc_testbed.hosts.engine.paths.ack_paths import AckPaths
from mrc_testbed.hosts.engine.paths.ev import Ev, EvProfile, Move
from mrc_testbed.hosts.engine.paths.ev_state import EvSignal, EvState
from mrc_testbed.hosts.engine.wire.packets import ECN_ECT0, PacketRecord, ReliabilityProbe, Sack, Verdict

ASKINGS: Final = 2
"""Number of transmissions of a probe before it has failed.

They are evenly spread over probe_timeout_s, each with another way back."""
_REPORTED_STATES: Final = (EvState.ASSUMED_BAD, EvState.DENIED)
_ANSWERS: Final[dict[int, EvSignal]] = {
    Verdict.SKIP_ONCE: EvSignal.PROBE_SKIP_ONCE,
    Verdict.ALWAYS_SKIP: EvSignal.PROBE_FAILED,
}


class _Probe:
    """A reliability probe of an EV: sent once, twice, or as long as the peer is silent."""

    __slots__ = ("ask_count", "asked_at", "began_at", "ev", "ids", "is_over", "newest_at")

    def __init__(self, ev: Ev) -> None:
        self.ev = ev
        self.ask_count = 0
        """Number of transmissions so far."""
        self.ids: deque[int] = deque()
        """Ids of the newest ASKINGS transmissions."""
        self.began_at = self.asked_at = self.newest_at = 0.0
        """Times of the first transmission, of the one that the verdict is about, and of the newest.

        The verdict is about the second, or the first while there is no other."""
        self.is_over = False
        """Whether the probe was answered or has failed."""


class QpPaths:
    """See the module."""

    # Read for each packet, so that they come first and side by side: the queues of most QPs are empty for ever.
    has_probes: bool
    _is_timed: bool
    profile: EvProfile

    __slots__ = (
        "_ack_paths",
        "_context",
        "_counters",
        "_due",
        "_expect",
        "_is_timed",
        "_next_id",
        "_order",
        "_pending",
        "_proof",
        "_queue",
        "_seek_again_at",
        "has_probes",
        "profile",
    )

    def __init__(
        self,
        profile: EvProfile,
        context: Context,
        counters: Counters,
        rng: Random,
        ack_paths: AckPaths,
        proof: ProofOfLoss,
    ) -> None:
        self.has_probes = False
        """Whether probes wait for a port."""
        self._is_timed = False
        """Whether a probe is to come or awaited."""
        self.profile, self._proof = profile, proof
        self._ack_paths = ack_paths
        self._context, self._counters = context, counters
        self._due: list[tuple[float, int, Ev]] = []
        """Heap: (when, tie-breaker, EV) of probes to come."""
        self._order = 0
        self._queue: deque[_Probe] = deque()
        """Probes to send (again) as soon as their port has room."""
        self._pending: dict[int, tuple[_Probe, float]] = {}
        """Probes in flight by id: of whom, and when this asking left."""
        self._expect: list[tuple[float, int, _Probe]] = []
        """Heap: (when patience with the newest asking ends, tie-breaker, probe)."""
        self._seek_again_at = float("-inf")
        self._next_id = rng.getrandbits(16)

    def find(self, value: int) -> Ev | None:
        """Return the EV of that value, or None."""
        return self.profile.find(value)

    def on_proof(self, ev: Ev, now: float) -> None:
        """Pass on that a SACK names a packet of ours that went over this EV."""
        self._ack_paths.on_proof(ev, now)

    # ---- states -----------------------------------------------------------------------------------------

    def signal(self, ev: Ev, signal: EvSignal, now: float) -> None:
        """Apply a signal to an EV; all moves but GOOD <-> SKIP are reported as events."""
        move = self.profile.signal(ev, signal, now)
        if move is None:
            if ev.in_doubt:
                self._seek(ev.plane, now)
            return
        self._report_move(ev, move, signal, now)
        if not self.profile.usable_planes:
            self.recall(now)

    def recall(self, now: float) -> None:
        """Put the least bad EV back in use, if any, as no usable one is left (ev_min_active)."""
        ev = self.profile.least_bad()
        if ev is None:
            return
        move = self.profile.signal(ev, EvSignal.RECALLED, now)
        if move is not None:  # pragma: no branch - the table moves every ASSUMED_BAD EV that is recalled
            self._report_move(ev, move, EvSignal.RECALLED, now)
        self.accuse(ev, now)

    def _report_move(self, ev: Ev, move: Move, signal: EvSignal, now: float) -> None:
        context = self._context
        if move.new_state in _REPORTED_STATES or move.old_state in _REPORTED_STATES:
            context.events.append(
                EvChanged(
                    context.qpn, context.peer, ev.value, ev.plane, move.old_state, move.new_state, signal.value, now
                )
            )
        if move.left_rotation:
            substitute = None if move.substitute is None else move.substitute.value
            context.events.append(EvReplaced(context.qpn, ev.value, substitute, ev.plane, now))
        if move.new_state is EvState.ASSUMED_BAD:
            self._schedule(ev, now + context.config.probes.interval_s)
        elif move.old_state is EvState.ASSUMED_BAD:
            self._try_doubted()

    def _try_doubted(self) -> None:
        """Put the EVs in doubt on trial, now that another one carries packets.

        The floor may have kept a dead one in use.
        """
        for ev in self.profile:
            if ev.active and ev.in_doubt:
                self.put_on_trial(ev)

    def accuse(self, ev: Ev, now: float) -> None:
        """Note that a packet over the EV expired without proof that it is lost.

        The peer may not have read it yet, or may be dead.
        """
        ev.acked_at_doubt, ev.accused_at = ev.acked, now
        self._seek(ev.plane, now)

    def put_on_trial(self, ev: Ev) -> None:
        """Probe an EV that has a packet overdue without proof that it is lost; no answer is the EV's failure."""
        if ev.state in (EvState.GOOD, EvState.SKIP):
            ev.failures = max(ev.failures, self._context.config.probes.fail_count - 1)
            self.queue_probe(ev)

    def _schedule(self, ev: Ev, time: float) -> None:
        if not ev.probing:
            ev.probing = True
            self._order += 1
            self._is_timed = True
            heapq.heappush(self._due, (time, self._order, ev))

    def on_ports(self, now: float) -> None:
        """Probe at once the bad EVs of planes that came up just now."""
        for plane, up_at in self.profile.up_since.items():
            if up_at == now:
                self._hurry(plane, now)
        if not self.profile.usable_planes:
            self.recall(now)

    def _hurry(self, plane: int, now: float) -> None:
        """Probe at once what waits on a plane."""
        self._due = [(now if ev.plane == plane else time, order, ev) for time, order, ev in self._due]
        heapq.heapify(self._due)

    def _seek(self, plane: int, now: float) -> None:
        """Probe the bad EVs of a plane that is at a loss, once in the time that an answer may take."""
        if self.profile.at_a_loss(plane) and now >= self._seek_again_at:
            self._seek_again_at = now + self._context.config.probes.timeout_s
            self._hurry(plane, now)

    # ---- probes -----------------------------------------------------------------------------------------

    def refresh(self, avoid: Ev | None) -> None:
        """Ask for the state of the responder over another EV than `avoid` (§5.11: on an expiry)."""
        self.queue_probe(self.profile.other_ev(avoid))

    def ask_spares(self) -> None:
        """Probe the EVs outside the rotation, when nothing is heard over any EV in it.

        One of them may lead to the peer, and show that it lives.
        """
        for ev in self.profile.spares():
            self.queue_probe(ev)

    def queue_probe(self, ev: Ev | None) -> None:
        """Queue a probe over an EV, unless it is None or has one."""
        if ev is not None and not ev.probing:
            ev.probing = True
            self._enqueue(_Probe(ev))

    def _enqueue(self, probe: _Probe) -> None:
        self._queue.append(probe)
        self.has_probes = True

    def transmit(self, now: float, out: list[tuple[int, str, PacketRecord]], credit: TxCredit) -> None:
        """Send the probes that are due, where ports have room."""
        context = self._context
        for _ in range(len(self._queue)):
            probe = self._queue.popleft()
            ev = probe.ev
            if probe.is_over:
                continue
            # Without ports at both ends no probe can be answered: end it, and wait an interval.
            if not self.profile.plane_up(ev.plane):
                self._end(probe)
                self._schedule_next(ev, now)
                continue
            if not credit.free_ports >> ev.plane & 1:
                self._queue.append(probe)
                continue
            credit.take(ev.plane)
            probe_id = self._next_id = self._next_id + 1 & 0xFFFF
            is_repeat = probe.ask_count > 0
            if not is_repeat:
                probe.began_at = now
            probe.ask_count += 1
            if probe.ask_count <= ASKINGS:
                probe.asked_at = now
                patience = context.config.probes.timeout_s / ASKINGS
            else:
                # The peer is silent: forget the oldest asking, and ask again each interval.
                self._pending.pop(probe.ids.popleft(), None)
                patience = context.config.probes.interval_s
            probe.ids.append(probe_id)
            probe.newest_at = now
            self._pending[probe_id] = (probe, now)
            self._wait(probe, now + patience)
            self._counters.probes_sent += 1
            wire, dscps = context.config.wire, context.config.dscp
            timestamp = int(now / wire.ts_unit_s) & 0xFFFF if wire.timestamps else None
            dscp = dscps.trimmable if context.remote_trim_nack else dscps.no_trim
            out.append(
                (
                    ev.plane,
                    context.peer,
                    ReliabilityProbe(
                        context.remote_qpn,
                        ev.value,
                        ev.plane,
                        dscp,
                        ECN_ECT0,
                        probe_id,
                        timestamp,
                        int(wire.timestamps),
                        context.request_ids[0],
                        context.request_ids[1],
                        is_repeat,
                    ),
                )
            )
        self.has_probes = bool(self._queue)

    def _wait(self, probe: _Probe, deadline: float) -> None:
        self._order += 1
        self._is_timed = True
        heapq.heappush(self._expect, (deadline, self._order, probe))

    def _end(self, probe: _Probe) -> None:
        """Stop waiting for it."""
        probe.is_over = True
        for probe_id in probe.ids:
            self._pending.pop(probe_id, None)

    def on_answer(self, sack: Sack, now: float) -> None:
        """Take the answer of a probe, a SACK with pr = 1; unknown ids and ids of another EV are ignored."""
        pending = None if sack.probe_id is None else self._pending.get(sack.probe_id)
        if pending is None or sack.entropy != pending[0].ev.value:
            return
        probe, sent_at = pending
        ev, began_at = probe.ev, probe.began_at
        self._end(probe)
        self.on_proof(ev, now)
        proof, rtt_s = self._proof, now - sent_at
        proof.on_answer(ev.plane, sent_at, proof.rtt.ordinary(rtt_s, ev), now)
        ev.on_sample(rtt_s)
        proof.rtt.on_sample(rtt_s, now)
        ev.probes_answered += 1
        self._counters.probes_answered += 1
        signal = _ANSWERS.get(sack.verdict, EvSignal.PROBE_CLEAN)
        if signal is EvSignal.PROBE_FAILED:
            self._failed(ev, now, began_at)
            return
        ev.failures, ev.acked_at_doubt = 0, -1
        ev.streak += 1
        if ev.state is EvState.ASSUMED_BAD and (ev.streak >= ev.needed_streak or self.profile.at_a_loss(ev.plane)):
            self.signal(ev, signal, now)
        self._schedule_next(ev, began_at)

    def _failed(self, ev: Ev, now: float, began_at: float) -> None:
        """Count a probe that was not answered in time, or badly.

        A GOOD EV needs several in a row to fall (§5.12).
        """
        ev.streak = 0
        ev.failures += 1
        if ev.failures >= self._context.config.probes.fail_count:
            ev.failures = 0
            self.signal(ev, EvSignal.PROBE_FAILED, now)
        self._schedule_next(ev, began_at)

    def _schedule_next(self, ev: Ev, began_at: float) -> None:
        """Schedule the next probe, one interval after the last, as long as the EV is ASSUMED_BAD."""
        ev.probing = False
        if ev.state is EvState.ASSUMED_BAD:
            self._schedule(ev, began_at + self._context.config.probes.interval_s)

    # ---- clock ------------------------------------------------------------------------------------------

    def on_timer(self, now: float) -> None:
        """Queue probes that are due, ask again and fail those not answered."""
        while self._expect and (self._expect[0][0] <= now or self._expect[0][2].is_over):
            probe = heapq.heappop(self._expect)[2]
            if not probe.is_over:
                self._on_overdue(probe, now)
        while self._due and self._due[0][0] <= now:
            ev = heapq.heappop(self._due)[2]
            ev.probing = False
            if ev.state is not EvState.ASSUMED_BAD:
                continue
            if self.profile.plane_up(ev.plane):
                ev.probing = True
                self._enqueue(_Probe(ev))
            else:
                self._schedule(ev, now + self._context.config.probes.interval_s)

    def _on_overdue(self, probe: _Probe, now: float) -> None:
        """Patience with a probe has ended."""
        ev, proof = probe.ev, self._proof
        # A slow path has its usual time. Round trips that a stall stretched must not set it: other probes measure anew.
        answer_due_at = probe.newest_at + proof.rtt.usual_s(ev)
        if now < answer_due_at:
            interval_s = self._context.config.probes.interval_s
            if proof.heard_at <= now - interval_s:
                self.refresh(ev)
            self._wait(probe, min(answer_due_at, now + interval_s / ASKINGS))
        elif probe.ask_count < ASKINGS:
            self._enqueue(probe)
        elif probe.began_at < self.profile.up_since[ev.plane]:
            self._end(probe)  # a port was down meanwhile
            self._schedule_next(ev, now)
        elif proof.missed(ev, probe.asked_at):
            self._end(probe)
            self._failed(ev, now, probe.began_at)
        else:
            self._enqueue(probe)
            self.refresh(ev)

    def next_deadline(self) -> float:
        """Return the time at which on_timer is due; NEVER when nothing is pending."""
        if not self._is_timed:
            return NEVER
        while self._expect and self._expect[0][2].is_over:
            heapq.heappop(self._expect)
        due = self._due[0][0] if self._due else NEVER
        expect = self._expect[0][0] if self._expect else NEVER
        self._is_timed = bool(self._due or self._expect)
        return due if due < expect else expect
