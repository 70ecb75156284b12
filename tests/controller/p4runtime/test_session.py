"""A session that is closed while requests of other tasks are under way."""

import asyncio

import pytest

from mrc_testbed.controller.config import SwitchAddress
from mrc_testbed.controller.errors import SwitchError
from mrc_testbed.controller.p4runtime.session import P4RuntimeSession
from mrc_testbed.topologies.plan import Plan


class ClosingClient:
    """Client like finsy's over gRPC: a request that is on its way when the channel closes is cancelled."""

    def __init__(self):
        self.closing = asyncio.Event()

    async def request_iter(self, request):
        await self.closing.wait()
        raise asyncio.CancelledError
        yield

    async def close(self):
        self.closing.set()


def session_of(catalog):
    plan = Plan()
    session = P4RuntimeSession(SwitchAddress(plan.switches[0], "127.0.0.1:1", 1, None, ()), catalog)
    session._client = ClosingClient()
    return session


@pytest.mark.parametrize("method", ["read", "read_counters", "read_cells"])
def test_close__a_request_on_its_way_is_an_error_that_passes_and_no_cancellation(srv6, method):
    async def story():
        session = session_of(srv6)
        arguments = {"read_cells": ("drops", [1]), "read_counters": ([1],)}.get(method, ())
        request = asyncio.create_task(getattr(session, method)(*arguments))
        await asyncio.sleep(0)
        await session.close()
        with pytest.raises(SwitchError, match="the connection was closed meanwhile") as caught:
            await request
        assert caught.value.retry

    asyncio.run(story())


def test_close__a_task_that_is_meant_ends(srv6):
    async def story():
        session = session_of(srv6)
        request = asyncio.create_task(session.read())
        await asyncio.sleep(0)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    asyncio.run(story())
