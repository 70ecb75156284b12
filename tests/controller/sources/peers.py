"""Servers that speak as agents and the Clustermapper do, for tests of the controller's sources."""

import asyncio
import contextlib

from mrc_testbed.ipc.rpc import JsonlError, RpcServer


class Peer:
    """A server whose answers are given; `requests` is what it was asked."""

    def __init__(self, path, answers, snapshot=()):
        self.path, self.answers, self.requests = path, answers, []
        self._snapshot = list(snapshot)
        self.server = None

    async def __aenter__(self):
        self.path.parent.mkdir(exist_ok=True)
        self.server = await RpcServer.start(self.path, self._answer, on_watch=lambda _: self._snapshot)
        return self

    async def __aexit__(self, *exc):
        await self.server.close()

    def _answer(self, request, connection):
        self.requests.append(request)
        answer = self.answers.get(request["op"])
        if answer is None:
            raise JsonlError(f"no op {request['op']!r}")
        return answer(request) if callable(answer) else answer


@contextlib.asynccontextmanager
async def running(*sources):
    tasks = [asyncio.create_task(source.run()) for source in sources]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def wait_until(condition, message="it did not come about"):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(message)
