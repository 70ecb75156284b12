"""asyncio around a TurnSelector.

A turn before each wait, timers that are early enough, wake-ups that it keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
import time

import pytest

from mrc_testbed.hosts.agent import turn_selector
from mrc_testbed.hosts.agent.turn_selector import DUE_REST, TurnSelector
from mrc_testbed.ipc.service import run_service


@pytest.fixture
def selector():
    return TurnSelector()


@pytest.fixture
def loop(selector):
    event_loop = asyncio.SelectorEventLoop(selector)
    yield event_loop
    event_loop.close()


def test_turn__comes_before_each_wait_and_sees_what_callbacks_left(loop, selector):
    waiting_words, sent_words = [], []

    def turn():
        sent_words.extend(waiting_words)
        waiting_words.clear()

    selector.turn = turn

    async def story():
        loop.call_soon(waiting_words.append, "by a callback")
        await asyncio.sleep(0.01)
        waiting_words.append("by a task")
        await asyncio.sleep(0.01)

    loop.run_until_complete(story())
    assert sent_words == ["by a callback", "by a task"]


def test_turn__what_it_sets_is_seen_at_once_when_it_says_so(loop, selector):
    news = asyncio.Event()

    def turn():
        if news.is_set():
            return None
        news.set()
        return 0.0

    async def story():
        selector.turn = turn
        await news.wait()

    loop.run_until_complete(asyncio.wait_for(story(), 5))


def test_turn__its_time_ends_a_wait(loop, selector):
    began = time.monotonic()
    turns = []

    def turn():
        turns.append(time.monotonic())
        if len(turns) > 1 and turns[-1] >= began + 0.05:
            loop.stop()
            return 0.0
        return began + 0.05

    selector.turn = turn
    loop.run_forever()
    assert 0.05 <= turns[-1] - began < 0.5
    assert len(turns) < 6


def test_call_at__is_not_rounded_to_milliseconds(loop, selector):
    delays_s = []

    async def story():
        for _ in range(20):
            due = loop.time() + 0.0012
            await asyncio.sleep(0.0012)
            delays_s.append(loop.time() - due)

    loop.run_until_complete(story())
    assert min(delays_s) < 0.0006  # epoll's own timeout would make it 0.0008 at least


def test_wake_for__a_descriptor_that_only_the_turn_reads(loop, selector):
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    read = []

    def turn():
        try:
            read.append(os.read(reader, 10))
        except BlockingIOError:
            return None
        loop.stop()
        return 0.0

    selector.turn = turn
    selector.wake_for([reader])
    loop.call_later(0.02, os.write, writer, b"frame")
    loop.run_forever()
    assert read == [b"frame"]
    selector.wake_for(())
    os.close(reader), os.close(writer)


def test_wake_for__takes_a_number_that_was_closed_and_opened_anew(loop, selector):
    reader, writer = os.pipe()
    selector.wake_for([reader])
    os.close(reader), os.close(writer)
    second_reader, writer = os.pipe()
    assert second_reader == reader
    selector.wake_for([second_reader])
    os.write(writer, b"frame")
    turns = []

    def turn():
        turns.append(1)
        if len(turns) == 2:
            os.read(second_reader, 10)
            loop.stop()
            return 0.0
        return None

    selector.turn = turn
    loop.run_forever()
    selector.wake_for(())
    os.close(second_reader), os.close(writer)


def test_rest__puts_turns_off_that_frames_ask_for(loop, selector):
    reader, writer = os.pipe()
    os.write(writer, b"frame")  # nobody reads it: without a rest each wait would end at once
    began = []

    def turn():
        began.append(time.monotonic())
        if len(began) == 5:
            loop.stop()
            return 0.0
        return None

    selector.turn, selector.rest_s = turn, 0.02
    selector.wake_for([reader])
    loop.run_forever()
    selector.wake_for(())
    os.close(reader), os.close(writer)
    assert min(b - a for a, b in itertools.pairwise(began)) >= 0.02


def test_rest__puts_turns_off_whose_time_has_come(loop, selector):
    began = []

    def turn():
        began.append(time.monotonic())
        if len(began) == 5:
            loop.stop()
            return 0.0
        return began[-1] + 0.001

    selector.turn, selector.rest_s = turn, 0.02
    loop.run_forever()
    assert min(b - a for a, b in itertools.pairwise(began)) >= DUE_REST * 0.02


@pytest.mark.parametrize(
    ("due_in_s", "ends_in_s", "sleeps"),
    [
        (None, None, [100.0, None]),
        (101.0, None, [100.0, 1.0]),
        (90.0, None, [90.0]),
        (75.0, None, [75.0]),
        (10.0, None, [75.0]),
        (-5.0, None, [75.0]),
        (90.0, 80.0, [80.0]),
        (None, 50.0, [50.0]),
        (None, 130.0, [100.0, 30.0]),
    ],
)
def test_rest__how_long_it_sleeps(selector, monkeypatch, due_in_s, ends_in_s, sleeps):
    """Frames wait for the whole rest, a turn's due time for at most three quarters, asyncio for none."""
    now, slept = 1000.0, []

    def sleep(_read, _write, _exceptional, timeout):
        nonlocal now
        slept.append(timeout)
        now += timeout or 0.0
        return [], [], []

    monkeypatch.setattr(turn_selector.select, "select", sleep)
    monkeypatch.setattr(turn_selector.time, "monotonic", lambda: now)
    selector.rest_s = 100.0
    due, ends = (None if offset_s is None else now + offset_s for offset_s in (due_in_s, ends_in_s))
    is_asyncio_due = selector._sleep(now, due, ends)
    assert slept == pytest.approx(sleeps)
    assert is_asyncio_due is (ends is None)
    selector.close()


def test_rest__is_none_for_asyncio(loop, selector):
    """A callback from another thread and a timer of the loop both end a rest that would last for ever."""
    selector.turn, selector.rest_s = lambda: time.monotonic() + 0.001, 3600.0
    steps = []

    async def story():
        callback_event = asyncio.Event()
        threading.Timer(0.01, lambda: loop.call_soon_threadsafe(callback_event.set)).start()
        await callback_event.wait()
        steps.append("called")
        await asyncio.sleep(0.01)
        steps.append("slept")

    loop.run_until_complete(asyncio.wait_for(story(), 60))
    assert steps == ["called", "slept"]


def test_turn__a_frame_alone_does_not_wake_asyncio(loop, selector):
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    rounds, frames = [], []

    def turn():
        with contextlib.suppress(BlockingIOError):
            frames.append(os.read(reader, 1))
            os.write(writer, b"x")
        if len(frames) == 10:
            loop.stop()
            return 0.0
        return None

    selector.turn = turn
    selector.wake_for([reader])
    os.write(writer, b"x")
    select_once = selector.select
    selector.select = lambda timeout=None: (rounds.append(timeout), select_once(timeout))[1]
    loop.run_forever()
    selector.wake_for(())
    os.close(reader), os.close(writer)
    assert len(rounds) < 3


def test_turn__what_it_raises_ends_the_service_once_that_has_cleaned_up(selector):
    steps = []

    def turn():
        raise LookupError("a bug of ours")

    async def serve(stop):
        selector.turn = turn
        try:
            await stop.wait()
        finally:
            await asyncio.sleep(0)
            steps.append("closed")

    with pytest.raises(LookupError, match="a bug of ours"):
        run_service(serve, selector)
    assert steps == ["closed"]
