"""The life of a serving process: signals, errors and tasks that are left; waiting with a limit."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from mrc_testbed.ipc.service import end_tasks, run_service, wait_until
from tests.jumping_loop import JumpingLoop


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_service__ends_by_a_signal_and_cancels_what_is_left(number):
    steps = []

    async def for_ever():
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("cancelled")

    async def serve(stop):
        task = asyncio.ensure_future(for_ever())
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), number)
        await stop.wait()
        steps.append("stopped")
        assert not task.done()

    run_service(serve)
    assert steps == ["stopped", "cancelled"]


def test_end_tasks__ends_a_task_that_lost_a_cancellation_and_drops_what_others_ended_with():
    cancellations = []

    async def stubborn():
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancellations.append("once more")
                if len(cancellations) == 3:
                    raise

    async def failing():
        raise LookupError("no plan")

    async def scenario():
        tasks = [asyncio.ensure_future(stubborn()), asyncio.ensure_future(failing())]
        await asyncio.sleep(0)
        await end_tasks(tasks)
        assert all(task.done() for task in tasks)

    loop = JumpingLoop()
    loop.run_until_complete(scenario())
    loop.close()
    assert len(cancellations) == 3


def test_run_service__raises_what_the_service_raises():
    async def serve(stop):
        raise LookupError("no plan")

    with pytest.raises(LookupError, match="no plan"):
        run_service(serve)


def test_wait_until__news_or_the_time_and_clear_again():
    loop = JumpingLoop()

    async def story():
        news, times = asyncio.Event(), []
        await wait_until(news, 2.0)
        times.append(loop.time())
        loop.call_at(3.0, news.set)
        await wait_until(news, 9.0)
        times.append(loop.time())
        news.set()
        await wait_until(news, None)
        assert not news.is_set()
        return times

    assert loop.run_until_complete(story()) == [2.0, 3.0]
    loop.close()
