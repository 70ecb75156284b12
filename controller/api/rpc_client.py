"""JSON lines from asyncio: one request to a Unix socket, and a watch that reconnects.

The servers are the hosts' agents and the Clustermapper (ipc/rpc.py has the protocol).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mrc_testbed.controller.problems import Problems
from mrc_testbed.ipc.rpc import JsonlError, Message, RpcClient

BACKOFF_S = (0.1, 0.2, 0.4, 0.8, 1.0)
"""Pauses between attempts to connect, seconds; the last one repeats.

A rebooted switch has its routes within a second of answering, and an absent one costs one refused connection a second.
"""
JITTER = 0.25
"""Share of a pause by which it is shortened or lengthened, so that not all clients connect at once."""
REQUEST_TIMEOUT_S = 5.0
"""Time for an answer after which the server must work for it, seconds (ipc/rpc.py)."""

log = logging.getLogger(__name__)


def pause_s(attempt: int, pauses: tuple[float, ...] = BACKOFF_S) -> float:
    """Return the seconds to wait before attempt number `attempt` + 1."""
    return pauses[min(attempt, len(pauses) - 1)] * random.uniform(1 - JITTER, 1 + JITTER)


async def request(path: Path, op: str, *, timeout_s: float = REQUEST_TIMEOUT_S, **fields: Any) -> Message:
    """Return the answer to one request, without `id` and `ok`.

    Raises JsonlError with the reason of the server or of the connection.
    """
    client = None
    try:
        client = await RpcClient.connect(path)
        return await client.request(op, timeout_s=timeout_s, **fields)
    except OSError as error:
        raise JsonlError(f"{path.stem}: {op}: {error.strerror or error} ({path})") from error
    finally:
        if client is not None:
            client.close()


class Subscription:
    """Watch on one server, for as long as the controller lives. `run()` is its task.

    on_event(message)   each event
    on_link(connected)  the stream was opened (before its first event) or has ended
    """

    def __init__(
        self,
        path: Path,
        on_event: Callable[[Message], None],
        on_link: Callable[[bool], None],
        problems: Problems | None = None,
        **watch: Any,
    ) -> None:
        self._problems = problems or Problems()
        self.path = path
        self.connected = False
        self.reason = "not tried yet"
        self._on_event = on_event
        self._on_link = on_link
        self._watch = watch

    async def run(self) -> None:
        """Connect, follow, and reconnect with pauses; until cancelled."""
        attempt = 0
        while True:
            try:
                await self._follow()
                self.reason = "the server ended the stream"
            except (OSError, JsonlError) as error:
                self.reason = f"{error.strerror or error}" if isinstance(error, OSError) else str(error)
            finally:
                if self.connected:
                    attempt, self.connected = 0, False
                    self._on_link(False)
            await asyncio.sleep(pause_s(attempt))
            attempt += 1

    async def _follow(self) -> None:
        client = await RpcClient.connect(self.path)
        try:
            async with contextlib.aclosing(client.watch(timeout_s=REQUEST_TIMEOUT_S, **self._watch)) as events:
                await anext(events)
                self.connected, self.reason = True, "following"
                self._on_link(True)
                async for event in events:
                    self._take(event)
        finally:
            client.close()

    def _take(self, message: Message) -> None:
        try:
            self._on_event(message)
        except (KeyError, TypeError, ValueError) as error:  # PlanError too: not an event of this fabric, or no event
            log.warning("%s: passed over %.200r: %r", self.path.name, message, error)
        except Exception as error:
            self._problems.internal(f"event of {self.path.stem}", error)
