"""Table of a server's operations: services register methods, `handle` serves a request by its op.

    class MemoryService:
        @rpc(Deregister)
        def deregister(self, request: Deregister, call: RpcCall) -> Message: ...

    table = RpcTable(refusals=(RequestError, OSError), log_file="log/h0.log")
    table.register(MemoryService(regions, sessions, data_dir))
    server = await RpcServer.start(path, table.handle)

A method gets the request, checked (ipc/requests.py), and the call it came by. It returns the fields of the answer; or
an awaitable of them; or None when it answers by the call itself. It refuses by one of `refusals`, whose text becomes
the answer's error.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mrc_testbed.ipc.requests import AnyRequest, Request, RequestError, op_of, parse
from mrc_testbed.ipc.rpc import Answer, JsonlError, Message, RpcCall

AnyService = TypeVar("AnyService")
Later = Awaitable[Message]
"""An answer that needs other processes, or many turns of the loop."""
AnyAnswer = TypeVar("AnyAnswer", bound=Answer)

WATCH_OP = "watch"
"""Op that the socket server serves itself (ipc/rpc.py)."""

log = logging.getLogger(__name__)

_KINDS: dict[object, type[Request]] = {}
"""The request that a marked method serves."""


def rpc(
    kind: type[AnyRequest],
) -> Callable[
    [Callable[[AnyService, AnyRequest, RpcCall], AnyAnswer]], Callable[[AnyService, AnyRequest, RpcCall], AnyAnswer]
]:
    """Mark a method of a service as the one that serves requests of that kind."""

    def mark(
        method: Callable[[AnyService, AnyRequest, RpcCall], AnyAnswer],
    ) -> Callable[[AnyService, AnyRequest, RpcCall], AnyAnswer]:
        _KINDS[method] = kind
        return method

    return mark


def operations_of(service: object) -> dict[str, tuple[type[Request], Callable[[Any, RpcCall], Answer]]]:
    """Return the marked methods of a service by op, each with its kind of request.

    Raises TypeError when no method is marked.
    """
    operations = {}
    for name, member in vars(type(service)).items():
        kind = _KINDS.get(member) if callable(member) else None
        if kind is not None:
            operations[op_of(kind)] = (kind, getattr(service, name))
    if not operations:
        raise TypeError(f"{type(service).__name__} serves no op: mark its methods with @rpc")
    return operations


class RpcTable:
    """Operations of one server.

    `refusals`: errors whose text is for the client; any other error is a bug of the testbed.

    `log_file` is where a client is sent for the traceback of a bug.
    """

    def __init__(self, *, refusals: tuple[type[Exception], ...], log_file: str) -> None:
        self._refusals: tuple[type[Exception], ...] = (RequestError, *refusals)
        self._log_file = log_file
        self._methods: dict[str, tuple[type[Request], Callable[[Any, RpcCall], Answer]]] = {}

    @property
    def ops(self) -> list[str]:
        """Names of the operations, in alphabetical order."""
        return sorted(self._methods)

    def register(self, service: object) -> None:
        """Serve the marked methods of `service`. Raises ValueError when another one serves such an op."""
        methods = operations_of(service)
        duplicates = sorted(op for op in methods if op in self._methods or op == WATCH_OP)
        if duplicates:
            raise ValueError(f"{type(service).__name__}: {', '.join(duplicates)}: served already")
        self._methods |= methods

    def handle(self, request: Message, call: RpcCall) -> Answer:
        """Handler of an RpcServer. Raises JsonlError to refuse."""
        operation = self._methods.get(request["op"])
        if operation is None:
            raise JsonlError(f"no op {request['op']!r} (has: {', '.join((*self.ops, WATCH_OP))})")
        kind, method = operation
        try:
            answer = method(parse(kind, request), call)
        except self._refusals as error:
            raise JsonlError(str(error)) from error
        return answer if answer is None or isinstance(answer, dict) else self._await_answer(answer, call)

    async def _await_answer(self, answer: Later, call: RpcCall) -> Message:
        try:
            return await answer
        except Exception as error:
            raise JsonlError(self.error_text(call, error)) from error

    def error_text(self, call: RpcCall, error: Exception) -> str:
        """Text for the client of an error that ended an op."""
        known = isinstance(error, (JsonlError, *self._refusals))
        return str(error) if known else self.report_bug(f"op {call.op}", error)

    def report_bug(self, subject: str, error: BaseException) -> str:
        """Log an exception that should not have happened; returns the text for the client."""
        log.error("%s failed", subject, exc_info=error)
        return f"internal error in {subject}: {type(error).__name__}: {error} (traceback in {self._log_file})"
