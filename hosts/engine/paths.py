"""The paths of a connected QP: its EV profile, and the reliability probes that bring an EV back (§5.12).

Every signal about an EV goes through `Paths.signal`, which tells the application and starts probing when one goes
bad. A probe leaves each `probe_interval_s` while an EV is ASSUMED_BAD, over that EV; `needed` answers in a row, each
within `probe_timeout_s`, end it. Planes whose port is down are not probed: the answer is known.

An EV that the floor keeps in use although packets vanish on it may be the dead one, and those that were withdrawn
before it the good ones: a trim whose NACK was lost looks like a loss. So when all that a plane has in rotation is in
doubt, its bad EVs are probed at once, and one answer is enough.
"""

from __future__ import annotations

import heapq
from collections import deque
from random import Random

from .context import Context, Counters, Room
from .ev import Ev, EvProfile, EvSignal, EvState
from .events import EvChanged, EvReplaced
from .packets import ECN_ECT0, Packet, ReliabilityProbe, Sack, Verdict
from .reverse import ReverseSet

_SHOWN = (EvState.ASSUMED_BAD, EvState.DENIED)
_ANSWERS = {
    Verdict.SKIP_ONCE: EvSignal.PROBE_SKIP_ONCE,
    Verdict.ALWAYS_SKIP: EvSignal.PROBE_FAILED,
}


class Paths:
    """See the module. `choose` and `find` are the profile's."""

    __slots__ = (
        "_context", "_counters", "_due", "_expect", "_next_id", "_order", "_pending", "_queue", "_seek_again_at",
        "answered", "choose", "find", "profile", "proved",
    )  # fmt: skip

    def __init__(self, profile: EvProfile, context: Context, counters: Counters, rng: Random, reverse: ReverseSet):
        self.profile = profile
        self.choose, self.find = profile.choose, profile.find
        self.proved = reverse.proved
        self._context, self._counters = context, counters
        self._due: list[tuple[float, int, Ev]] = []
        """Heap: (when, tie-breaker, EV) of probes to come."""
        self._order = 0
        self._queue: deque[Ev] = deque()
        """EVs to be probed as soon as their port has room."""
        self._pending: dict[int, tuple[Ev, float]] = {}
        """Probes in flight by id: EV and time sent."""
        self._expect: deque[tuple[float, int]] = deque()
        """(deadline, id) of the probes sent, in order, since all wait equally long."""
        self._seek_again_at = float("-inf")
        self._next_id = rng.getrandbits(16)
        self.answered = (float("-inf"), float("-inf"))
        """When the newest probe that was answered left, and when its answer came."""

    # ---- states -----------------------------------------------------------------------------------------

    def signal(self, ev: Ev, signal: EvSignal, now: float) -> None:
        """Something happened to an EV. GOOD <-> SKIP stays between us; the rest is told."""
        move = self.profile.signal(ev, signal, now)
        if move is None:
            if ev.in_doubt:
                self._seek(ev.plane, now)
            return
        context = self._context
        if move.new in _SHOWN or move.old in _SHOWN:
            context.events.append(
                EvChanged(context.qpn, context.peer, ev.value, ev.plane, move.old, move.new, signal.value, now)
            )
        if move.left:
            by = None if move.by is None else move.by.value
            context.events.append(EvReplaced(context.qpn, ev.value, by, ev.plane, now))
        if move.new is EvState.ASSUMED_BAD:
            self._schedule(ev, now + context.config.probe_interval_s)

    def accuse(self, ev: Ev, now: float) -> None:
        """A packet over it expired, while nothing at all was heard: its fault, or that of the answers' way."""
        ev.doubted = ev.acked
        self._seek(ev.plane, now)

    def _schedule(self, ev: Ev, at: float) -> None:
        if not ev.probing:
            ev.probing = True
            self._order += 1
            heapq.heappush(self._due, (at, self._order, ev))

    def on_ports(self, now: float) -> None:
        """Ports changed: what waits for a plane that came up just now is probed at once."""
        for plane, since in self.profile.up_since.items():
            if since == now:
                self._hurry(plane, now)

    def _hurry(self, plane: int, now: float) -> None:
        """Probe at once what waits on a plane."""
        self._due = [(now if ev.plane == plane else at, order, ev) for at, order, ev in self._due]
        heapq.heapify(self._due)

    def _seek(self, plane: int, now: float) -> None:
        """A plane is at a loss: ask its bad EVs, once in the time that an answer may take."""
        if self.profile.at_a_loss(plane) and now >= self._seek_again_at:
            self._seek_again_at = now + self._context.config.probe_timeout_s
            self._hurry(plane, now)

    # ---- probes -----------------------------------------------------------------------------------------

    def refresh(self, avoid: Ev | None) -> None:
        """Ask for the state of the responder over another EV than `avoid` (§5.11: on an expiry)."""
        ev = self.profile.another(avoid)
        if ev is not None and not ev.probing:
            ev.probing = True
            self._queue.append(ev)

    def transmit(self, now: float, out: list[tuple[int, str, Packet]], room: Room) -> None:
        """Send the probes that are due, where ports have room."""
        context = self._context
        for _ in range(len(self._queue)):
            ev = self._queue.popleft()
            if not self.profile.plane_up(ev.plane):
                self._rest(ev, now)
                continue
            if not room.free >> ev.plane & 1:
                self._queue.append(ev)
                continue
            room.take(ev.plane)
            probe_id = self._next_id = self._next_id + 1 & 0xFFFF
            self._pending[probe_id] = (ev, now)
            self._expect.append((now + context.config.probe_timeout_s, probe_id))
            self._counters.probes_sent += 1
            stamped = context.config.timestamps
            timestamp = int(now / context.config.ts_unit_s) & 0xFFFF if stamped else None
            dscp = context.config.dscp_trimmable if context.remote_trim_nack else context.config.dscp_no_trim
            out.append((ev.plane, context.peer, ReliabilityProbe(
                context.remote_qpn, ev.value, ev.plane, dscp, ECN_ECT0, probe_id, timestamp, int(stamped),
                *context.request_ids,
            )))  # fmt: skip

    def on_answer(self, sack: Sack, now: float) -> None:
        """A SACK with pr = 1. Unknown ids and ids of another EV are ignored."""
        ev, sent_at = self._pending.get(sack.probe_id, (None, 0.0))  # type: ignore[arg-type]
        if ev is None or sack.entropy != ev.value:
            return
        del self._pending[sack.probe_id]  # type: ignore[arg-type]
        self.proved(ev, now)
        if sent_at > self.answered[0]:
            self.answered = (sent_at, now)
        ev.sampled(now - sent_at)
        ev.probes_answered += 1
        self._counters.probes_answered += 1
        signal = _ANSWERS.get(sack.verdict, EvSignal.PROBE_CLEAN)
        if signal is EvSignal.PROBE_FAILED:
            self._failed(ev, now, sent_at)
            return
        ev.failures, ev.doubted = 0, -1
        ev.streak += 1
        if ev.state is EvState.ASSUMED_BAD and (ev.streak >= ev.needed or self.profile.at_a_loss(ev.plane)):
            self.signal(ev, signal, now)
        self._rest(ev, sent_at)

    def _failed(self, ev: Ev, now: float, sent_at: float) -> None:
        """A probe was not answered in time, or badly. A GOOD EV needs several in a row to fall (§5.12)."""
        ev.streak = 0
        ev.failures += 1
        if ev.failures >= self._context.config.probe_fail_count:
            ev.failures = 0
            self.signal(ev, EvSignal.PROBE_FAILED, now)
        self._rest(ev, sent_at)

    def _rest(self, ev: Ev, since: float) -> None:
        """The probe is over; another follows one interval after it, as long as the EV is ASSUMED_BAD."""
        ev.probing = False
        if ev.state is EvState.ASSUMED_BAD:
            self._schedule(ev, since + self._context.config.probe_interval_s)

    # ---- clock ------------------------------------------------------------------------------------------

    def on_timer(self, now: float) -> None:
        """Queue probes that are due, fail those not answered."""
        while self._expect and (self._expect[0][0] <= now or self._expect[0][1] not in self._pending):
            found = self._pending.pop(self._expect.popleft()[1], None)
            if found is not None:
                self._failed(found[0], now, found[1])
        while self._due and self._due[0][0] <= now:
            ev = heapq.heappop(self._due)[2]
            ev.probing = False
            if ev.state is not EvState.ASSUMED_BAD:
                continue
            if self.profile.plane_up(ev.plane):
                ev.probing = True
                self._queue.append(ev)
            else:
                self._schedule(ev, now + self._context.config.probe_interval_s)

    def next_deadline(self) -> float | None:
        """When on_timer has something to do."""
        while self._expect and self._expect[0][1] not in self._pending:
            self._expect.popleft()
        due = self._due[0][0] if self._due else None
        expect = self._expect[0][0] if self._expect else None
        if due is None or expect is None:
            return expect if due is None else due
        return min(due, expect)

    @property
    def has_probes(self) -> bool:
        """Probes wait for a port."""
        return bool(self._queue)
