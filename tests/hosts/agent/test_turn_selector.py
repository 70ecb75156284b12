"""asyncio around a TurnSelector: a turn before each wait, timers that are early enough, wake-ups that it keeps."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from hosts.agent.turn_selector import TurnSelector
from ipc.service import run_service


@pytest.fixture
def selector():
    return TurnSelector()


@pytest.fixture
def loop(selector):
    made = asyncio.SelectorEventLoop(selector)
    yield made
    made.close()


def test_turn__comes_before_each_wait_and_sees_what_callbacks_left(loop, selector):
    left, sent = [], []

    def turn():
        sent.extend(left)
        left.clear()

    selector.turn = turn

    async def story():
        loop.call_soon(left.append, "by a callback")
        await asyncio.sleep(0.01)
        left.append("by a task")
        await asyncio.sleep(0.01)

    loop.run_until_complete(story())
    assert sent == ["by a callback", "by a task"]


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
    late = []

    async def story():
        for _ in range(20):
            due = loop.time() + 0.0012
            await asyncio.sleep(0.0012)
            late.append(loop.time() - due)

    loop.run_until_complete(story())
    assert min(late) < 0.0006  # epoll's own timeout would make it 0.0008 at least


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


def test_turn__what_it_raises_ends_the_service_once_that_has_cleaned_up(selector):
    told = []

    def turn():
        raise LookupError("a bug of ours")

    async def serve(stop):
        selector.turn = turn
        try:
            await stop.wait()
        finally:
            await asyncio.sleep(0)
            told.append("closed")

    with pytest.raises(LookupError, match="a bug of ours"):
        run_service(serve, selector)
    assert told == ["closed"]
