"""The table of an agent's RPC operations: services register their methods, `handle` serves a request by its `op`.

    class MemoryService:
        @rpc("deregister")
        def deregister(self, request: Fields, client: Client) -> Fields: ...

    server = RpcServer(tasks, refusals=(RequestError, OSError), host="h0")
    server.register(MemoryService(regions, sessions, data_dir))

A method gets the request and the connection it came on. It returns the fields of the answer; or a coroutine of them,
which is run in the agent's loop; or None when it answers through the connection itself. It refuses by one of
`refusals`, whose text becomes the answer's error. Requests are hostile: every field is checked (requests.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hosts.agent.requests import Fields
from hosts.agent.tasks import Task, Tasks
from ipc.rpc import JsonlError
from ipc.rpc import ServerConnection as Client

Later = Coroutine[Any, None, Fields]
"""An answer that needs other agents, or many turns of the loop."""
Answer = Fields | Later | None
Method = Callable[[Fields, Client], Answer]
AnyMethod = TypeVar("AnyMethod", bound=Callable[..., Answer])

RESERVED = "watch"
"""Served by the socket server itself (ipc/rpc.py)."""

log = logging.getLogger("hosts.agent")


def rpc(op: str) -> Callable[[AnyMethod], AnyMethod]:
    """Mark a method of a service as the one that serves `op`."""

    def mark(method: AnyMethod) -> AnyMethod:
        method.__rpc__ = op
        return method

    return mark


def operations_of(service: object) -> dict[str, Method]:
    """The marked methods of a service by op. Raises TypeError when there is none."""
    marked = {op: name for name, method in vars(type(service)).items() if (op := getattr(method, "__rpc__", None))}
    if not marked:
        raise TypeError(f"{type(service).__name__} serves no op: mark its methods with @rpc")
    return {op: getattr(service, name) for op, name in marked.items()}


class RpcServer:
    """The operations of one agent. `refusals`: errors whose text is for the client; any other is a bug of ours."""

    def __init__(self, tasks: Tasks, *, refusals: tuple[type[Exception], ...], host: str) -> None:
        self._tasks = tasks
        self._refusals = refusals
        self._host = host
        self._methods: dict[str, Method] = {}

    @property
    def ops(self) -> list[str]:
        """What can be asked, in alphabetical order."""
        return sorted(self._methods)

    def register(self, service: object) -> None:
        """Serve the marked methods of `service`. Raises ValueError when another one serves such an op."""
        methods = operations_of(service)
        twice = sorted(op for op in methods if op in self._methods or op == RESERVED)
        if twice:
            raise ValueError(f"{type(service).__name__}: {', '.join(twice)}: served already")
        self._methods |= methods

    def handle(self, request: Fields, client: Client) -> Fields | None:
        """Handler of a SelectorServer. Raises JsonlError to refuse."""
        method = self._methods.get(request["op"])
        if method is None:
            raise JsonlError(f"no op {request['op']!r} (has: {', '.join((*self.ops, RESERVED))})")
        try:
            answer = method(request, client)
        except self._refusals as error:
            raise JsonlError(str(error)) from error
        if answer is None or isinstance(answer, dict):
            return answer
        self._answer_later(answer, request, client)
        return None

    def _answer_later(self, coroutine: Later, request: Fields, client: Client) -> None:
        def on_done(task: Task) -> None:
            if task.error is None:
                client.answer(request, **task.value)
            else:
                client.refuse(request, self.error_text(request, task.error))

        self._tasks.spawn(coroutine, on_done)

    def error_text(self, request: Fields, error: Exception) -> str:
        """Text for the client of an error that ended an op."""
        return str(error) if isinstance(error, self._refusals) else self.report_bug(f"op {request['op']}", error)

    def report_bug(self, what: str, error: Exception) -> str:
        """Log an exception that should not have happened; the text for whoever asked."""
        log.error("%s failed", what, exc_info=error)
        return f"internal error in {what}: {type(error).__name__}: {error} (traceback in log/{self._host}.log)"
