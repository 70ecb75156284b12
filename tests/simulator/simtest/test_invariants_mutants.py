"""The checks can fail: engines broken on purpose, each of which has to be caught within a few seeds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Any

import pytest

from mrc_testbed.hosts.engine.cc.qpcc import Share
from mrc_testbed.hosts.engine.cc.window import FixedWindow
from mrc_testbed.hosts.engine.deadlines import NEVER
from mrc_testbed.hosts.engine.loss import send_window
from mrc_testbed.hosts.engine.loss.roundtrips import RetryBudget, RoundTrips
from mrc_testbed.hosts.engine.loss.send_window import SendWindow, Sent
from mrc_testbed.hosts.engine.memory import Memory
from mrc_testbed.hosts.engine.paths.ev import EvProfile
from mrc_testbed.hosts.engine.paths.ev_state import EvSignal, EvState
from mrc_testbed.hosts.engine.paths.paths import QpPaths
from mrc_testbed.hosts.engine.paths.peer_table import ALL_PORTS, PeerTable
from mrc_testbed.hosts.engine.qp import EngineQueuePair
from mrc_testbed.hosts.engine.requestor import Requestor
from mrc_testbed.hosts.engine.responder import Responder
from mrc_testbed.simulator.simtest.run import simulate
from mrc_testbed.simulator.simtest.schedule import Schedule, draw, draw_long

Patch = Callable[[pytest.MonkeyPatch], None]
SEEDS, TRIES = 150, 150
"""More than any of them needs; schedules of one kind."""


def wrap(owner: Any, name: str, make: Callable[[Any], Any]) -> Patch:
    """Replace a function of a class by `make(the function)`."""
    return lambda monkeypatch: monkeypatch.setattr(owner, name, make(getattr(owner, name)))


def _ignore_deadline_change(receive: Any) -> Any:
    """The deadline believed before a packet came in is believed after it."""

    def mutant(self: EngineQueuePair, packet: Any, now: float) -> None:
        chain, was_changed = self._touched_qps, self._changed
        first, last = chain.first, chain._last
        receive(self, packet, now)
        if not was_changed:
            self._changed = False
            chain.first, chain._last = first, last
            if last is not None:
                last.next_touched = None

    return mutant


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda original: lambda self, *arguments: value


_return_none, _return_true, _return_soon, _return_never = _always(None), _always(True), _always(1e-4), _always(NEVER)


def _one_too_many(transport_ack: Any) -> Any:
    def mutant(self: Responder) -> Any:
        ack = transport_ack(self)
        if ack is not None:
            ack.psn = ack.psn + 1 & 0xFFFFFF
        return ack

    return mutant


def _sack_ahead(sack: Any) -> Any:
    def mutant(self: Responder, *arguments: Any) -> None:
        self._arrived_bits, arrived_bits = self._arrived_bits | 1 << 3, self._arrived_bits
        sack(self, *arguments)
        self._arrived_bits = arrived_bits

    return mutant


def _no_mpr(transmit: Any) -> Any:
    def mutant(self: Requestor, *arguments: Any) -> None:
        self._mpr = 1 << 20
        transmit(self, *arguments)

    return mutant


def _place_too_much(write: Any) -> Any:
    def mutant(region: Any, va: int, data: Any) -> None:
        start = va - region.va
        payload = bytes(data) + b"\x01"
        region.view[start : start + len(payload)] = payload[: len(region.view) - start]

    return staticmethod(mutant)


def _place_elsewhere(write: Any) -> Any:
    def mutant(region: Any, va: int, data: Any) -> None:
        write(region, min(va + 1, region.va + region.length - len(data)), data)

    return staticmethod(mutant)


def _count_twice(accept: Any) -> Any:
    def mutant(self: Responder, packet: Any, *arguments: Any) -> Any:
        self._rcvd_bytes += packet.size
        return accept(self, packet, *arguments)

    return mutant


def _complete_early(on_transport_ack: Any) -> Any:
    def mutant(self: Requestor, ack: Any, now: float) -> None:
        if self._messages and self.flight.next_psn > self._messages[0].last_psn:
            ack.psn = self._messages[0].last_psn & 0xFFFFFF
        on_transport_ack(self, ack, now)

    return mutant


def _impatient(charge: Any) -> Any:
    def broken(self: Requestor, *arguments: Any) -> bool:
        self._budget.again_at = 0.0
        return charge(self, *arguments)

    return broken


def _bad_is_good(signal: Any) -> Any:
    def mutant(self: EvProfile, ev: Any, event: EvSignal, now: float) -> Any:
        move = signal(self, ev, event, now)
        if event is EvSignal.LOST and ev.state is EvState.ASSUMED_BAD:
            ev.state = EvState.GOOD
        return move

    return mutant


def _keep_bad(withdraw: Any) -> Any:
    def mutant(self: EvProfile, plane: Any, ev: Any) -> None:
        return None

    return mutant


def _one_probe(on_answer: Any) -> Any:
    def mutant(self: QpPaths, sack: Any, now: float) -> None:
        for ev in self.profile:
            ev.streak = ev.needed_streak
        on_answer(self, sack, now)

    return mutant


def _same_plane_twice(choose: Any) -> Any:
    def mutant(self: EvProfile, free_ports: int, avoid: Any = None) -> Any:
        turns_left = len(self._turns) - self._next_turn
        ev = choose(self, free_ports, avoid)
        if turns_left % 2:
            self._next_turn -= 1
        return ev

    return mutant


MUTANTS: dict[str, tuple[Patch, set[str]]] = {
    "a responder that acks one PSN too many": (wrap(Responder, "transport_ack", _one_too_many), {"claims"}),
    "a responder that sacks what is not there": (wrap(Responder, "_sack", _sack_ahead), {"claims"}),
    "a responder that counts bytes twice": (wrap(Responder, "_accept", _count_twice), {"claims"}),
    "a responder that writes a byte too many": (wrap(Memory, "write", _place_too_much), {"bounds", "placed"}),
    "a responder that writes one byte off": (wrap(Memory, "write", _place_elsewhere), {"bounds", "placed"}),
    "a requestor that ignores its window": (wrap(FixedWindow, "may_send", _return_true), {"window"}),
    "a requestor that completes the next write too": (
        wrap(Requestor, "on_transport_ack", _complete_early),
        {"placed", "window"},
    ),
    "a requestor that never sends again": (wrap(Requestor, "_next_lost", _return_none), {"ends"}),
    "a requestor whose timers never run": (
        wrap(Requestor, "next_deadline", _return_never),
        {"ends", "timers", "congestion"},
    ),
    "a QP that does not notice acknowledgments": (
        wrap(EngineQueuePair, "receive", _ignore_deadline_change),
        {"forgotten", "timers", "ends", "crash"},
    ),
    "a requestor that gives up at once": (wrap(Requestor, "_charge", _impatient), {"budget"}),
    "a requestor that cries loss": (wrap(RoundTrips, "timer_s", _return_soon), {"calm", "budget"}),
    "a profile that uses a plane that is down": (
        wrap(EvProfile, "set_ports", _return_none),
        {"paths"},
    ),
    "a profile that keeps a bad EV in rotation": (wrap(EvProfile, "_withdraw", _keep_bad), {"paths", "crash"}),
    "a profile that forgives without a probe": (
        wrap(EvProfile, "signal", _bad_is_good),
        {"states", "balance", "paths"},
    ),
    "a prober that believes one answer": (wrap(QpPaths, "on_answer", _one_probe), {"states"}),
    "a rotation that prefers a plane": (wrap(EvProfile, "choose", _same_plane_twice), {"balance"}),
    "a QP that never flushes a failure": (
        wrap(Requestor, "flush", _return_none),
        {"ends", "order", "timers"},
    ),
    "a QP that receives in ERROR": (
        wrap(EngineQueuePair, "_fail", _return_none),
        {"ends", "crash", "timers"},
    ),
}


def _convict(lost: Any) -> Any:
    def mutant(self: Requestor, sent: Any, cause: Any, now: float) -> None:
        lost(self, sent, cause, now)
        self._paths.signal(sent.ev, EvSignal.LOST, now)

    return mutant


def _hoard(on_sack: Any) -> Any:
    def mutant(self: Requestor, *arguments: Any) -> None:
        self._deferred_psns.append((float("inf"), 0))
        on_sack(self, *arguments)

    return mutant


def _chain_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all packets sent over an EV in its chain, without an end."""

    def mutant(self: SendWindow, sent: Sent) -> None:
        sent.ev.newest_arrived = max(sent.ev.newest_arrived, sent.serial)

    monkeypatch.setattr(SendWindow, "overtake", mutant)
    monkeypatch.setattr(send_window, "_free_kept", lambda _ev: None)


def _delay_deadline(next_deadline: Any) -> Any:
    def mutant(self: Requestor) -> float:
        return next_deadline(self) + 0.02

    return mutant


def _once_more(on_ack: Any) -> Any:
    def mutant(self: FixedWindow, now: float, size: int, *arguments: Any, **options: Any) -> None:
        on_ack(self, now, size + 512, *arguments, **options)

    return mutant


def _once(on_update: Any) -> Any:
    def mutant(self: PeerTable, peer: Any, request: Any, now: float) -> None:
        if peer.ports == ALL_PORTS:
            on_update(self, peer, request, now)
            peer.lease_ends = float("inf")

    return mutant


def _two_at_a_time(may_send: Any) -> Any:
    def broken(self: Share) -> bool:
        return self.inflight < 2 * self._mtu if self.parked else may_send(self)

    return broken


def _free_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses that a SACK shows charge nothing, as before the budget had one rule.

    With data lost for ever the answers to probes keep a QP going.
    """
    charge, on_sack = Requestor._charge, Requestor.on_sack

    def mutant(self: Requestor, sack: Any, now: float) -> None:
        monkeypatch.setattr(Requestor, "_charge", _return_true(charge))
        try:
            on_sack(self, sack, now)
        finally:
            monkeypatch.setattr(Requestor, "_charge", charge)

    monkeypatch.setattr(Requestor, "on_sack", mutant)


def _restored_by_any(on_sack: Any) -> Any:
    def mutant(self: Requestor, sack: Any, now: float) -> None:
        self._budget.restore()
        on_sack(self, sack, now)

    return mutant


def _charged_trims(on_nack: Any) -> Any:
    def mutant(self: Requestor, nack: Any, now: float) -> None:
        on_nack(self, nack, now)
        self._budget._trimmed = False
        self._charge(now)

    return mutant


LATER: dict[str, tuple[Patch, set[str], str]] = {
    "a requestor whose trims spend the budget": (wrap(Requestor, "on_nack", _charged_trims), {"congestion"}, "incast"),
    "a requestor that ignores MPR": (wrap(Requestor, "transmit", _no_mpr), {"window"}, "window"),
    "a requestor whose inferred losses cost nothing": (_free_guesses, {"ends"}, "data or control"),
    "a requestor that takes answers to probes for progress": (
        wrap(Requestor, "on_sack", _restored_by_any),
        {"ends"},
        "data or control",
    ),
    "a requestor that waits for ports for ever": (wrap(Requestor, "watch_paths", _return_none), {"ends"}, "for ever"),
    "a requestor that never gives up": (wrap(RetryBudget, "charge", _return_true), {"ends"}, "for ever"),
    "a requestor that blames the path of whatever expires": (wrap(Requestor, "_lost", _convict), {"blame"}, "stalled"),
    "a requestor that forgets nothing": (wrap(Requestor, "on_sack", _hoard), {"memory"}, "long"),
    "a send window that frees no chain": (_chain_all, {"memory"}, "long"),
    "a requestor whose timers are late": (wrap(Requestor, "next_deadline", _delay_deadline), {"timers"}, "faults"),
    "a window that counts what did not arrive": (wrap(FixedWindow, "on_ack", _once_more), {"account"}, "faults"),
    "an end that believes one port update for ever": (
        wrap(PeerTable, "_on_update", _once),
        {"ports", "paths"},
        "restart",
    ),
    "a QP that keeps its share of the window in silence": (
        wrap(Share, "on_silence", _return_none),
        {"neighbours"},
        "neighbours",
    ),
    "a QP that is not heard and sends more than a packet": (
        wrap(Share, "may_send", _two_at_a_time),
        {"window"},
        "neighbours",
    ),
    "a QP that does not see that others open its window": (
        lambda monkeypatch: monkeypatch.setattr(Share, "is_alone", True),
        {"forgotten", "ends"},
        "neighbours",
    ),
    "round trips that are never measured": (wrap(RoundTrips, "on_sample", _return_none), {"learns"}, "slow"),
}
"""Broken in ways that show only in schedules of one kind."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", LATER)
def test_broken_engine__is_caught_by_schedules_of_a_kind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, invariants, kind = LATER[name]
    schedules = (schedule for seed in range(20_000) if (schedule := drawn_as(seed, kind)) is not None)
    patch(monkeypatch)
    for schedule in islice(schedules, TRIES):
        violation = simulate(schedule).violation
        if violation is not None:
            assert violation.invariant in invariants, violation
            return
    pytest.fail(f"not caught in {TRIES} schedules of the kind {kind}: {name}")


def drawn_as(seed: int, kind: str) -> Schedule | None:
    """Return the schedule of a seed when it is of that kind; a long one is drawn as such, since few are."""
    if kind == "long":
        return draw_long(seed, Random(seed))
    schedule = draw(seed)
    return schedule if schedule.kind == kind else None


@pytest.mark.parametrize("name", MUTANTS)
def test_broken_engine__is_caught_within_a_few_seeds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, invariants = MUTANTS[name]
    patch(monkeypatch)
    for seed in range(SEEDS):
        violation = simulate(draw(seed)).violation
        if violation is not None:
            assert violation.invariant in invariants, violation
            return
    pytest.fail(f"not caught in {SEEDS} seeds: {name}")
