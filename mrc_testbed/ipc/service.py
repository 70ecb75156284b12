"""The life of a process that serves a socket: one asyncio loop, ended by SIGTERM, SIGINT or itself.

    def main():
        run_service(serve)                     # returns when serve(stop) has

    async def serve(stop: asyncio.Event):
        server = await RpcServer.start(path, handler)
        await stop.wait()
        await server.close()

Host agents and Clustermapper live this way.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterable
from selectors import BaseSelector
from typing import Any

ENDING = (signal.SIGTERM, signal.SIGINT)
CANCEL_AGAIN_S = 0.1


def run_service(
    serve: Callable[[asyncio.Event], Coroutine[object, None, None]], selector: BaseSelector | None = None
) -> None:
    """Run `serve(stop)` to its end in a loop around `selector` (None: the default); a signal sets `stop`.

    Raises what `serve` or the selector raises, after `serve` has cleaned up. Main thread only.
    """
    loop = asyncio.SelectorEventLoop(selector)
    serving: asyncio.Task[None] | None = None
    try:
        stop = asyncio.Event()
        for number in ENDING:
            loop.add_signal_handler(number, stop.set)
        serving = loop.create_task(_and_cancel_rest(serve(stop)))
        loop.run_until_complete(serving)
    except BaseException:
        if serving is not None and not serving.done():  # the selector raised: clean up all the same
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(serving)
        raise
    finally:
        loop.close()


async def _and_cancel_rest(serving: Coroutine[object, None, None]) -> None:
    try:
        await serving
    finally:
        await cancel_others()


async def cancel_others() -> None:
    """Cancel every other task of this loop and wait until their `finally` blocks have run."""
    await end_tasks(task for task in asyncio.all_tasks() if task is not asyncio.current_task())


async def end_tasks(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks until all have ended, whatever with.

    One cancellation can be lost: before Python 3.12, asyncio.wait_for() drops it when its answer comes at that moment.
    """
    ending = set(tasks)
    running = {task for task in ending if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=CANCEL_AGAIN_S)
    await asyncio.gather(*ending, return_exceptions=True)  # retrieves exceptions, which asyncio would log


async def wait_until(news: asyncio.Event, deadline: float | None) -> None:
    """Wait until `news` is set, or until loop time `when`; leaves it clear. None: for as long as it takes."""
    timer = None if deadline is None else asyncio.get_running_loop().call_at(deadline, news.set)
    try:
        await news.wait()
    finally:
        if timer is not None:
            timer.cancel()
    news.clear()
