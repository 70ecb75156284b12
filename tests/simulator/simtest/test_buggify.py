"""Rare and legal behaviour by order: each point is reached, and nothing is lost of what was written."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from mrc_testbed.hosts.engine.events import Completion
from mrc_testbed.hosts.engine.wire.packets import EndpointOp, EndpointRequest
from mrc_testbed.simulator.simtest.buggify import AGAIN_S, LATE_S, POINTS, Chance, RareEngine
from mrc_testbed.simulator.simtest.run import simulate
from mrc_testbed.simulator.simtest.schedule import BUGGIFY_KINDS, draw
from tests.hosts.engine.engine_pair import MTU, Pair


class CountedChance(Chance):
    """Chance that notes which points were reached, and with which decision."""

    def __init__(self, seed: int, share: float, counts: Counter[tuple[str, bool]]) -> None:
        super().__init__(seed, share)
        self._counts = counts

    def happens(self, point: str) -> bool:
        answer = super().happens(point)
        self._counts[point, answer] += 1
        return answer


def test_points__are_all_reached_and_the_invariants_hold() -> None:
    """Each point acts at some times and not at others."""
    counts: Counter[tuple[str, bool]] = Counter()
    for seed in range(60):
        schedule = draw(seed)
        if schedule.kind in BUGGIFY_KINDS:
            result = simulate(replace(schedule, buggify=0.0), chance=CountedChance(seed, 0.3, counts))
            assert result.violation is None, seed
    assert set(counts) == {(point, answer) for point in POINTS for answer in (True, False)}


class Always(Chance):
    """Chance of one point that always acts, of the others never."""

    def __init__(self, point: str) -> None:
        super().__init__(1, 0.0)
        self._point = point

    def happens(self, point: str) -> bool:
        return point == self._point


def rare(pair: Pair, point: str, side: str = "a") -> RareEngine:
    endpoint = pair.a.endpoint if side == "a" else pair.b.endpoint
    return RareEngine(endpoint, endpoint, Always(point))


def test_timer_late() -> None:
    pair = Pair()
    pair.write(pair.bytes(MTU))
    engine = rare(pair, "timer late")
    engine.transmit(0.0)
    due, late_timer = pair.a.endpoint.next_deadline(0.0), engine.next_deadline(0.0)
    assert due < late_timer <= due + LATE_S
    assert engine.next_deadline(0.0) == late_timer, "it is drawn once"
    engine.on_timer(due)
    assert engine.is_late and pair.a.endpoint.next_deadline(0.0) == due, "the engine was not called"
    engine.on_timer(late_timer)
    assert not engine.is_late and pair.a.endpoint.next_deadline(due) != due


def test_backup_early() -> None:
    pair = Pair(uplinks=8)
    active_before = {row["ev"] for row in pair.a.qp.ev_states() if row["active"]}
    rare(pair, "backup EV early").on_timer(0.0)
    states = pair.a.qp.ev_states()
    active_after = {row["ev"] for row in states if row["active"]}
    assert len(active_after) == len(active_before) and len(active_after - active_before) == 1
    ((former_ev, backup_ev),) = [
        (former_ev, backup_ev)
        for former_ev in active_before - active_after
        for backup_ev in active_after - active_before
    ]
    assert former_ev >> 8 == backup_ev >> 8 and {row["state"] for row in states} == {"good"}


def test_completion_late() -> None:
    pair = Pair()
    for _ in range(2):
        pair.write(b"x")
    pair.run(0.1)
    completions = [event for event in pair.a.events if isinstance(event, Completion)]
    pair.a.endpoint._events += completions
    engine = rare(pair, "completion late")
    assert len(completions) == 2 and engine.events() == []
    due = engine.next_deadline(pair.now)
    assert 0 < due <= LATE_S
    engine.on_timer(due)
    assert engine.events() == completions and engine.events() == []


def test_ports_full() -> None:
    pair = Pair(planes=8, config={"cwnd_bytes": 100_000})
    pair.write(pair.bytes(64 * MTU))
    engine = rare(pair, "ports seem full")
    planes = {plane for plane, _, _ in engine.transmit(0.0)}
    assert 0 < len(planes) < 8
    due = engine.next_deadline(pair.now)
    assert due <= AGAIN_S


def test_bursts() -> None:
    pair = Pair(config={"cwnd_bytes": 100_000})
    second_qp = pair.a.endpoint.create_qp()
    far = pair.b.endpoint.create_qp()
    second_qp.connect("b", far.attributes(pair.region), pair.evs, 0.0)
    far.connect("a", second_qp.attributes(), pair.evs, 0.0)
    for qp in (pair.a.qp, second_qp):
        qp.post_write(pair.bytes(4 * MTU), pair.region.va, pair.region.rkey, now=0.0)
    sent = rare(pair, "bursts of one").transmit(0.0)
    targets = [packet.dest_qp for _, _, packet in sent if packet.dest_qp > 2]
    assert targets == [pair.b.qp.qpn, far.qpn] * 4


@pytest.mark.parametrize("point, gone", [("request unanswered", True), ("NACK lost", False)])
def test_answers_lost(point: str, gone: bool) -> None:
    pair = Pair()
    pair.run(0.1)
    engine = rare(pair, point, "b")
    ev, plane = pair.evs[0]
    engine.receive(EndpointRequest(2, ev, plane, 46, 0, 7, EndpointOp.EV_PROBE, 0), plane, "a", pair.now)
    assert (engine.transmit(pair.now) == []) is gone
    assert (engine.next_deadline(pair.now) == pair.now) is gone, "the host asks for more at once"
