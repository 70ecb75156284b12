"""gRPC streams that end with the server's status, also when a write saw the end first.

Design note. grpc.aio answers a write to a stream that the server has just ended with INTERNAL "Internal error from
Core", and puts that in the place of the status which came with the end (grpc/grpc#36066; 85 of 100 streams refused
at once). INTERNAL is no code that passes, so a switch that restarts at such a moment would be given up. We keep the
status when it comes first, and wait for it when the write fails first. grpc's blocking API, its unary calls and its
calls with one request are not concerned: they read the status with the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import grpc
from finsy import GNMIClient, P4Client

from mrc_testbed.ipc.patience import AnswerLimit

PLACEHOLDER = (grpc.StatusCode.INTERNAL, "Internal error from Core")
"""Code and details of a failed write, until the server's status is known."""
REQUEST_LIMITS = 2
"""Limit of a request in limits of an answer: it may load a program."""
LOOK_S = 0.001
LOOKS_MAX = 5000
"""Largest number of looks for the status: gRPC's core has it soon after a failed write."""

T = TypeVar("T")


class StatusKeepingStream:
    """A call of a bidirectional stream, with the part of its interface that finsy uses."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._ended_with: grpc.aio.AioRpcError | None = None
        self.done: Callable[[], bool] = call.done
        self.cancel: Callable[[], bool] = call.cancel
        call.add_done_callback(self._keep)

    async def write(self, message: Any) -> None:
        """Send a message. Raises AioRpcError; a stream that ended with OK takes it without a word, as in grpc."""
        await self._with_status(self._call.write(message))

    async def read(self) -> Any:
        """Return the next message, grpc.aio.EOF after an end with OK. Raises AioRpcError."""
        return await self._with_status(self._call.read(), grpc.aio.EOF)

    async def _with_status(self, exchange: Awaitable[Any], at_end: Any = None) -> Any:
        """Carry out a read or write; `at_end` when the stream ended with OK."""
        try:
            return await exchange
        except grpc.aio.AioRpcError as error:
            if not _is_placeholder(error):
                raise
            status = await self._status()
            if status.code() is grpc.StatusCode.OK:
                return at_end
            raise status from None

    async def _status(self) -> grpc.aio.AioRpcError:
        for _ in range(LOOKS_MAX):
            status = self._ended_with or await _status_of(self._call)
            if not _is_placeholder(status):
                break
            await asyncio.sleep(LOOK_S)
        return status

    def _keep(self, call: Any) -> None:
        """Take note of the first status of a call that is done, before another can take its place."""
        status = _at_once(_status_of(call))
        if not _is_placeholder(status):
            self._ended_with = status


class StatusKeepingP4Client(P4Client):
    """P4Runtime client: its stream ends with the switch's status, its requests have our limit."""

    limit: AnswerLimit | None = None
    """Requests have REQUEST_LIMITS times this limit; None: finsy's."""

    async def open(self, **options: Any) -> None:
        await super().open(**options)
        assert self._stub is not None
        self._stub.StreamChannel = _keep_status(self._stub.StreamChannel)
        for name in ("Write", "Read", "SetForwardingPipelineConfig", "GetForwardingPipelineConfig"):
            setattr(self._stub, name, self._with_limit(getattr(self._stub, name)))

    def _with_limit(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a stub's method, which finsy calls with a limit of its own."""

        def call(request: Any, timeout: float) -> Any:
            return method(request, timeout=timeout if self.limit is None else REQUEST_LIMITS * self.limit.limit_s)

        return call


class StatusKeepingGNMIClient(GNMIClient):
    """gNMI client whose subscriptions end with the server's status."""

    async def open(self, **options: Any) -> None:
        await super().open(**options)
        assert self._stub is not None
        self._stub.Subscribe = _keep_status(self._stub.Subscribe)


def _keep_status(open_stream: Callable[..., Any]) -> Any:
    """Wrap a stub's method; finsy uses what it returns as if it were grpc's own."""
    return lambda **options: StatusKeepingStream(open_stream(**options))


async def _status_of(call: Any) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        await call.code(),
        await call.initial_metadata(),
        await call.trailing_metadata(),
        details=await call.details(),
        debug_error_string=await call.debug_error_string(),
    )


def _is_placeholder(error: grpc.aio.AioRpcError) -> bool:
    return (error.code(), error.details()) == PLACEHOLDER


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a call that is done has a status")
