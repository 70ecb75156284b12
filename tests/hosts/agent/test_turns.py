"""Order inside an agent's turn, over an engine and a NIC that only note what is asked of them."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from mrc_testbed.hosts.agent.agent import Agent
from mrc_testbed.hosts.agent.turns import PATIENCE, RECEIVE_BATCH, ROUNDS, Turns
from mrc_testbed.hosts.engine.deadlines import NEVER


class Engine:
    """Engine with a timer at `due`, which moves by `every` seconds when it has gone off."""

    def __init__(self, due: float | None, every: float = 3600.0) -> None:
        self.due, self.every = due, every
        self.timer_reads = self.went_off = self.received = 0
        self.to_send: list[tuple[int, str, str]] = []

    def next_deadline(self, _now: float) -> float:
        self.timer_reads += 1
        return NEVER if self.due is None else self.due

    def on_timer(self, now: float) -> None:
        assert self.due is not None and self.due <= now
        self.due, self.went_off = now + self.every, self.went_off + 1

    def receive(self, packet, plane, peer, now) -> None:
        self.received += 1

    def transmit(self, now, limit, room, control_room):
        packets, self.to_send = self.to_send, []
        return packets

    def events(self):
        return []


class Port:
    """Gives `waiting` frames, at most so many a call."""

    backlog = 0

    def __init__(self, waiting: int = 0, frame_at: float | None = None) -> None:
        self.waiting, self.frame_at = waiting, frame_at
        self.sent: list[tuple[int, str, str]] = []

    def receive(self, limit):
        count = min(limit, self.waiting)
        self.waiting -= count
        return [(0, "h1", "packet")] * count

    def send_many(self, packets) -> None:
        self.sent += packets

    def flush(self) -> None:
        pass

    def room(self):
        return None

    control_room = room

    def next_at(self):
        return self.frame_at


class Agenda:
    """Turns of one engine and one NIC, and the events that they told."""

    def __init__(self, engine: Engine, port: Port) -> None:
        self.reported_events: list[object] = []
        self._turns, self._port = Turns(engine, self.reported_events.extend), port

    def turn(self) -> float | None:
        return self._turns.turn(self._port)


def test_turn__the_engine_is_asked_for_its_timer_once_when_nothing_is_due():
    engine = Engine(time.monotonic() + 1000)
    agenda = Agenda(engine, Port())
    assert agenda.turn() == engine.due
    engine.timer_reads = 0
    for _ in range(5):
        assert agenda.turn() == engine.due
    assert (engine.timer_reads, engine.went_off) == (5, 0)


def test_turn__what_is_due_goes_off_and_what_was_set_since_is_told():
    engine = Engine(None)
    agenda = Agenda(engine, Port())
    assert agenda.turn() is None
    engine.due = 1.0  # by a request, between two turns
    assert agenda.turn() == 1.0 and engine.went_off == 0  # a time in the past: at once
    agenda.turn()
    assert engine.went_off == 1


def test_turn__under_full_load_timers_are_looked_at_in_each_round_that_took_all():
    engine = Engine(time.monotonic() + 1000)
    port = Port()
    agenda = Agenda(engine, port)
    agenda.turn()
    rounds = []

    def arrives(limit):
        rounds.append(limit)
        engine.to_send = [(0, "h1", "packet")] * 64  # so there is a next round
        if len(rounds) == 3:
            engine.due = 0.5  # set by what came, and due at once
        return [(0, "h1", "packet")]

    port.receive = arrives
    assert agenda.turn() == 0.0
    assert len(rounds) == ROUNDS and engine.went_off == 1
    engine.due = 0.5
    assert agenda.turn() == 0.0  # there was no wait: nothing is known of timers
    assert engine.went_off == 2


def test_turn__a_flood_holds_timers_up_for_some_turns_only():
    engine = Engine(time.monotonic() + 1000)
    port = Port()
    agenda = Agenda(engine, port)
    agenda.turn()
    port.waiting = 10 * ROUNDS * RECEIVE_BATCH
    engine.due = 0.5
    turns = 0
    while not engine.went_off:
        assert agenda.turn() == 0.0
        turns += 1
    assert turns == PATIENCE


@pytest.mark.parametrize(
    ("timer", "frame", "due"),
    [(None, None, None), (7e9, None, 7e9), (7e9, 6e9, 6e9), (5e9, 6e9, 5e9), (None, 6e9, 6e9)],
)
def test_turn__is_due_for_the_first_of_timer_and_frame(timer, frame, due):
    assert Agenda(Engine(timer), Port(frame_at=frame)).turn() == due


def test_turn__a_backlog_is_tried_again_soon():
    port = Port(frame_at=7e9)
    port.backlog = 3
    start_s = time.monotonic()
    assert start_s < Agenda(Engine(None), port).turn() < 7e9


def test_turn__a_backlog_does_not_hold_up_packets_for_other_ports():
    """The engine hears of it by the room of that port, and was not asked at all."""
    engine, port = Engine(None), Port()
    port.backlog = 3
    engine.to_send = [(1, "h1", "a")]
    Agenda(engine, port).turn()
    assert port.sent == [(1, "h1", "a")]


def test_turn__all_that_the_engine_sends_goes_in_one_piece():
    engine, port = Engine(None), Port(waiting=3)
    engine.to_send = [(0, "h1", "a"), (1, "h1", "b")]
    assert Agenda(engine, port).turn() is None
    assert (port.sent, engine.received) == ([(0, "h1", "a"), (1, "h1", "b")], 3)


def test_turn__events_are_told_in_order_and_what_they_cause_is_sent():
    engine, port = Engine(None), Port()
    waiting = ["first", "second"]
    engine.events = lambda: [waiting.pop(0)] if waiting else []
    agenda = Agenda(engine, port)
    assert agenda.turn() == 0.0  # somebody else may have something to do now
    assert agenda.reported_events == ["first", "second"]
    assert agenda.turn() is None


@pytest.mark.parametrize("news", [False, True])
def test_agent__link_news_come_first_and_ask_for_another_turn(news):
    changes = []
    agent = Agent.__new__(Agent)
    links = SimpleNamespace(poll=lambda: [("h0-eth1", "down")], captures=lambda: {"h0-eth1": True})
    nic = Port()
    nic.capture_changed = lambda *change: changes.append(change)
    agent.ports = SimpleNamespace(nic=nic, rest_s=0.001, links=links, planes={"h0-eth1": 1})
    agent._selector, agent.ip = SimpleNamespace(rest_s=0.0), None
    agent._turns = Turns(Engine(None), print)
    agent._link_news, agent._on_link = news, lambda *change: changes.append(change)
    assert agent.turn() == (0.0 if news else None)
    assert changes == ([("h0-eth1", "down"), (1, True)] if news else [])
    assert agent._selector.rest_s == 0.001 and not agent._link_news
