"""JSON lines over Unix sockets: the one protocol between our processes (docs/architecture.md).

A request is one line, ``{"op": "status", "id": 1, ...}``, and so is its answer: ``{"id": 1, "ok": true, ...}`` or
``{"id": 1, "ok": false, "error": "what, why, what would have worked"}``. ``{"op": "watch"}`` is answered once and
turns the connection into a stream of ``{"event": "...", "t": seconds, ...}`` lines; with ``"events": ["ev", ...]`` of
those names alone. Each ``t`` is CLOCK_MONOTONIC: all processes of a machine share it, so times of different processes
can be subtracted.

* `RpcServer`, for asyncio (host agents, Clustermapper),
* `RpcClient`, for asyncio (agents among each other, the controller),
* `JsonlClient`, its blocking face with the same framing, and `Watch`, its stream of events (front process, tools).

Whatever arrives, a server answers it or closes that one connection; it never raises into its loop.

Why not HTTP and server-sent events, as the controller serves its users: an agent is started for each host, 16 to 64
of them on one machine, and imports this module before it can answer. aiohttp takes 0.18 s of CPU to import, half
as much again as all that an agent starts with; asyncio takes 0.05 s, and has to be there in either case.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from mrc_testbed.ipc.framing import (
    MAX_LINE_BYTES,
    SOCKET_PATH_MAX,
    EventReader,
    JsonlError,
    JsonlPeerError,
    JsonlTimeoutError,
    LineBuffer,
    Message,
    answer_fields,
    answer_to,
    check_socket_path,
    decode,
    decode_request,
    encode,
    encode_answer,
    event_of,
    listen,
    refusal_for,
    refusal_of,
)
from mrc_testbed.ipc.patience import REST_S, LocalWork, has_worked, peer_gets_on, peer_pid
from mrc_testbed.ipc.service import end_tasks
from mrc_testbed.switch.system.unix_socket import remove_own

__all__ = [
    "MAX_BACKLOG_BYTES",
    "MAX_LINE_BYTES",
    "SOCKET_PATH_MAX",
    "JsonlClient",
    "JsonlError",
    "JsonlPeerError",
    "JsonlTimeoutError",
    "LineBuffer",
    "Message",
    "RpcCall",
    "RpcClient",
    "RpcServer",
    "ServerConnection",
    "Watch",
    "answer_to",
    "decode",
    "decode_request",
    "encode",
    "event_of",
    "listen",
    "refusal_of",
]

ANSWER_TIMEOUT_S = 20.0
"""Time for an answer after which the server must work for it, seconds.

The caller serves others meanwhile, and must report at last that a peer is stopped: hence the bound.
"""
MAX_BACKLOG_BYTES = 16 << 20
"""Bytes that a server keeps for a peer that does not read; beyond that it closes the connection."""

Answer = Message | Awaitable[Message] | None
"""Answer to a request: now, later, or None when its handler answers through the RpcCall itself."""
OnWatch = Callable[[Message], Iterable[Message]]

log = logging.getLogger(__name__)


# ---- server -------------------------------------------------------------------------------------------------


class ServerConnection:
    """The server's end of one client."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self.send_line = send
        self.watching = False
        self.events: frozenset[str] | None = None
        """Names of the events that a watcher subscribed to; None = all."""
        self._on_close: list[Callable[[], None]] = []

    def watch(self, request: Message) -> None:
        """Subscribe the client to events. Raises JsonlError when `events` is no list of names."""
        names = request.get("events")
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise JsonlError(f"events = {names!r}: must be a list of event names, or left out for all events")
        self.events = None if names is None else frozenset(names)
        self.watching = True

    def wants(self, event: str) -> bool:
        """Whether a published event goes to this client."""
        return self.watching and (self.events is None or event in self.events)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the client has gone: what was made for it can go too."""
        self._on_close.append(callback)

    def handle_close(self) -> None:
        """The client has gone (called by its server)."""
        callbacks, self._on_close = self._on_close, []
        for callback in callbacks:
            callback()

    def send(self, message: Message) -> None:
        """Queue one line. Does nothing once the client is gone. Raises JsonlError for what JSON cannot carry."""
        self.send_line(encode(message))


class RpcCall:
    """One request of one client. `answer` and `refuse` serve it when its handler returned None."""

    __slots__ = ("_request", "client")

    def __init__(self, client: ServerConnection, request: Message) -> None:
        self.client = client
        self._request = {"op": request.get("op"), "id": request.get("id")}

    @property
    def op(self) -> str:
        """The requested operation."""
        return str(self._request["op"])

    def answer(self, fields: Message) -> None:
        """Answer with these fields."""
        self.client.send_line(encode_answer(self._request, answer_to(self._request, fields)))

    def refuse(self, error: str) -> None:
        """Refuse in these words."""
        self.client.send_line(encode_answer(self._request, refusal_of(self._request, error)))

    def failed(self, error: Exception) -> None:
        """Refuse for whatever the handler raised; what is no JsonlError is a bug of ours and goes to the log."""
        self.client.send_line(encode_answer(self._request, refusal_for(self._request, error)))


Handler = Callable[[Message, RpcCall], Answer]


class RpcServer:
    """Serves a Unix socket from asyncio.

        server = await RpcServer.start(path, handler)
        server.publish("fault", link="p1-t0-0 p1-t1-1")
        await server.close()

    `handler(request, call)` returns the fields of the answer, or an awaitable of them, or None to answer later through
    `call`; it raises JsonlError to refuse. Requests of a client are begun in the order in which they came; one whose
    answer is awaited holds up no other. `watch` is served here: `on_watch(request)` gives the events a new watcher
    gets first (a snapshot), `publish` sends one to all.
    """

    def __init__(self, path: Path, handler: Handler, on_watch: OnWatch | None) -> None:
        self.path = path
        self._handler = handler
        self._on_watch = on_watch
        self._peers: set[_ServerProtocol] = set()
        self._answer_tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.AbstractServer | None = None
        self._inode = 0

    @classmethod
    async def start(cls, path: Path | str, handler: Handler, *, on_watch: OnWatch | None = None) -> RpcServer:
        """Listen on `path`. Raises JsonlError as `listen` does."""
        self = cls(Path(path), handler, on_watch)
        listening = listen(path)
        self._inode = self.path.stat().st_ino
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: _ServerProtocol(self), sock=listening
        )
        return self

    def watched(self, event: str) -> bool:
        """Return whether a watcher wants events of that name; else an expensive event need not be computed."""
        return any(peer.connection.wants(event) for peer in self._peers)

    def publish(self, event: str, *, t: float | None = None, **fields: Any) -> None:
        """Send an event to every watcher; `t` is CLOCK_MONOTONIC seconds, now when None."""
        watching = [peer.connection for peer in self._peers if peer.connection.wants(event)]
        if watching:
            line = encode(event_of(event, t, fields))
            for connection in watching:
                connection.send_line(line)

    async def close(self) -> None:
        """Close all connections, cancel what they wait for and remove the socket file. Idempotent."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        for peer in list(self._peers):
            peer.abort()
        await end_tasks(self._answer_tasks)
        await asyncio.sleep(0)  # lets connections learn that they are closed
        remove_own(self.path, self._inode)

    def serve_line(self, connection: ServerConnection, line: bytes) -> None:
        """Serve one line of one client (called by its connection)."""
        call = RpcCall(connection, {})
        try:
            request = decode_request(line)
            call = RpcCall(connection, request)
            if request["op"] == "watch":
                self._watch(request, call)
                return
            answer = self._handler(request, call)
            if answer is None:
                return
            if isinstance(answer, dict):
                call.answer(answer)
                return
        except Exception as error:
            call.failed(error)
            return
        task = asyncio.get_running_loop().create_task(self._answer_later(answer, call))
        self._answer_tasks.add(task)
        task.add_done_callback(self._answer_tasks.discard)

    def _watch(self, request: Message, call: RpcCall) -> None:
        first = list(self._on_watch(request)) if self._on_watch else []
        call.client.watch(request)
        call.answer({})
        for event in first:
            call.client.send(event)

    @staticmethod
    async def _answer_later(answer: Awaitable[Message], call: RpcCall) -> None:
        try:
            call.answer(await answer)
        except Exception as error:
            call.failed(error)


class _ServerProtocol(asyncio.Protocol):
    """One client of an RpcServer: its socket, and the line being read."""

    def __init__(self, server: RpcServer) -> None:
        self._server = server
        self._lines = LineBuffer()
        self._transport: asyncio.Transport | None = None
        self.connection = ServerConnection(self._send)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server._peers.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            lines = self._lines.feed(data)
        except JsonlError as error:  # where the next line starts is unknown: say so and end
            RpcCall(self.connection, {}).refuse(str(error))
            if self._transport is not None:
                self._transport.close()
            return
        for line in lines:
            self._server.serve_line(self.connection, line)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._server._peers.discard(self)
        self.connection.handle_close()

    def _send(self, line: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(line)
        if transport.get_write_buffer_size() > MAX_BACKLOG_BYTES:
            log.warning("%s: a client does not read; connection closed", self._server.path)
            transport.abort()

    def abort(self) -> None:
        """Close, whatever has not been sent."""
        if self._transport is not None:
            self._transport.abort()


# ---- client for asyncio ---------------------------------------------------------------------------------------


class RpcClient(asyncio.Protocol):
    """One connection to a server; any number of requests may wait for their answers.

        client = await RpcClient.connect(path)
        answer = await client.ask("create_qp", peer="h0")
        async for event in client.watch(events=["ev"]): ...
        client.close()

    A failed call raises JsonlPeerError when the server refused, else JsonlError. `peer` and `hint` say in errors who
    is gone and where to look: "h2: send: its agent closed the connection (see log/h2.log)".
    """

    def __init__(self, name: str, peer: str, hint: str) -> None:
        self.name = name
        self._peer, self._hint = peer, hint
        self.on_lost: Callable[[str], None] | None = None
        """Callback with the reason when the server ends the connection or dies."""
        self._transport: asyncio.Transport | None = None
        self._lines = LineBuffer()
        self._waiting: dict[int, tuple[str, asyncio.Future[Message]]] = {}
        self._events: asyncio.Queue[Message | JsonlError | None] = asyncio.Queue()
        """Queue that `watch` reads; an error or None in the queue is the end."""
        self._last_id = 0

    @classmethod
    async def connect(cls, path: Path | str, *, name: str | None = None, peer: str = "it", hint: str = "") -> RpcClient:
        """A connection to the server on `path`; `name` goes before errors. Raises OSError without a listener."""
        client = cls(name or Path(path).stem, peer, hint)
        await asyncio.get_running_loop().create_unix_connection(lambda: client, str(path))
        return client

    def call(self, op: str, **fields: Any) -> asyncio.Future[Message]:
        """Ask for `op` now; await the future for the fields of the answer."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self._transport is None:
            _fail(future, JsonlError(f"{self.name}: {op}: {self._peer} has closed the connection"))
            return future
        self._last_id += 1
        self._waiting[self._last_id] = (op, future)
        self._transport.write(encode({"op": op, "id": self._last_id, **fields}))
        return future

    async def request(self, op: str, *, timeout_s: float = ANSWER_TIMEOUT_S, **fields: Any) -> Message:
        """Ask for `op` and wait for the fields of the answer, beyond the limit as long as the server works.

        Raises JsonlTimeoutError when none comes: a server that is stopped keeps its connections.
        """
        future = self.call(op, **fields)
        limit_s, work, used_s = timeout_s, self._server_work(), 0.0
        while True:
            try:
                return await asyncio.wait_for(asyncio.shield(future), limit_s)
            except asyncio.TimeoutError:
                # The first look at the server is after the limit; the next ones tell whether it has worked since.
                if work is None or (limit_s == REST_S and not has_worked(work, used_s)):
                    break
            limit_s, used_s = REST_S, work.cpu_seconds()
        future.cancel()
        raise JsonlTimeoutError(f"{self.name}: {op}: no answer in {timeout_s:g} s: is {self._peer} stopped?")

    def _server_work(self) -> LocalWork | None:
        """The work of the process at the other end; None when it is this one or cannot be told."""
        connected = None if self._transport is None else self._transport.get_extra_info("socket")
        pid = 0 if connected is None else peer_pid(connected)
        return LocalWork(pid) if pid > 0 else None

    def notify(self, op: str, **fields: Any) -> None:
        """Ask for `op`; what becomes of it does not matter."""
        self.call(op, **fields)

    async def watch(self, *, timeout_s: float = ANSWER_TIMEOUT_S, **fields: Any) -> AsyncGenerator[Message, None]:
        """Events, from the moment the server has agreed to it: that comes first, as an event without a name.

        Ends with the connection. Raises JsonlError when the server refuses or talks nonsense.
        """
        yield await self.request("watch", timeout_s=timeout_s, **fields)
        while (event := await self._events.get()) is not None:
            if isinstance(event, JsonlError):
                raise event
            yield event

    def close(self, reason: str = "the connection was closed here") -> None:
        """Close the connection; calls that wait fail with `reason`. Idempotent."""
        self.on_lost = None
        self._end(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            messages = [decode(line) for line in self._lines.feed(data)]
        except JsonlError as error:
            self._events.put_nowait(error)
            self._end(f"{self._peer} answers nonsense ({error})")
            return
        for message in messages:
            if "event" in message:
                self._events.put_nowait(message)
            else:
                self._settle(message)

    def connection_lost(self, exc: Exception | None) -> None:
        cause = f"{self._peer} closed the connection" if exc is None else f"{self._peer} is gone ({exc})"
        self._end(cause + self._hint)

    def _end(self, reason: str) -> None:
        if self._transport is None:
            return
        self._transport.close()
        self._transport = None
        self._events.put_nowait(None)
        waiting, self._waiting = self._waiting, {}
        for op, future in waiting.values():
            if not future.done():
                _fail(future, JsonlError(f"{self.name}: {op}: {reason}"))
        if self.on_lost is not None:
            self.on_lost(f"{self.name}: {reason}")

    def _settle(self, answer: Message) -> None:
        number = answer.get("id")
        op, future = self._waiting.pop(number, ("", None)) if isinstance(number, int) else ("", None)
        if future is None or future.done():
            return
        try:
            future.set_result(answer_fields(answer, f"{self.name}: {op}"))
        except JsonlError as error:
            _fail(future, error)


def _fail(future: asyncio.Future[Message], error: JsonlError) -> None:
    """Fail a call whose caller may have given up, without asyncio's log of an unretrieved error."""
    future.set_exception(error)
    future.exception()


# ---- blocking client -----------------------------------------------------------------------------------------


class JsonlClient:
    """Blocking client of one socket; connects at the first request, and again after a server restart.

    `name` goes before every error (`h0: send: no host 'h9'`). One request at a time; threads may share a client.
    `works`: whether the server gets on, where the process at the other end is not it (ssh). Requests without a limit
    of their own are patient.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        name: str | None = None,
        timeout_s: float = 10.0,
        works: Callable[[], bool] | None = None,
    ) -> None:
        self.path = Path(path)
        self.name = name or self.path.stem
        self.timeout_s = timeout_s
        self._works = works
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._lines = LineBuffer()
        self._pending: list[bytes] = []
        self._last_id = 0

    def request(
        self, op: str, *, timeout_s: float | None = None, patient: bool | None = None, **fields: Any
    ) -> Message:
        """The answer to one request, without `id` and `ok`.

        `patient`: beyond the limit it is waited for as long as the server works (default: see the class).
        Raises JsonlPeerError when refused, JsonlTimeoutError, and JsonlError when it could not be carried.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        if patient is None:
            patient = timeout_s is None
        with self._lock:
            self._last_id += 1
            request = {"op": op, "id": self._last_id, **fields}
            try:
                self._send(encode(request), time.monotonic() + limit_s)
                answer = self._answer_in(request, limit_s)
                while answer is None:
                    works = patient and self.server_gets_on()
                    answer = self._answer_in(request, limit_s if works else 0.0)  # it may just have come
                    if answer is None and not works:
                        raise TimeoutError
            except TimeoutError:
                raise JsonlTimeoutError(f"{self.name}: {op}: no answer in time ({self.path})") from None
            except (OSError, JsonlError) as error:
                self._disconnect()
                raise JsonlError(f"{self.name}: {op}: {_reason(error, self.path)}") from error
        return answer_fields(answer, f"{self.name}: {op}")

    def watch(self, *, timeout_s: float | None = None, **fields: Any) -> Watch:
        """Open a stream of events on a connection of its own; returns when the server has agreed to it.

        Events published after that are all in the stream. `timeout_s` is for agreeing, not for events.
        """
        connection = JsonlClient(self.path, name=self.name, timeout_s=self.timeout_s, works=self._works)
        try:
            connection.request("watch", timeout_s=timeout_s, **fields)
        except BaseException:
            connection.close()
            raise
        return Watch(connection)

    def close(self) -> None:
        """Close the connection, if there is one. Idempotent; the next request opens another."""
        with self._lock:
            self._disconnect()

    def __enter__(self) -> JsonlClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._lines, self._pending = None, LineBuffer(), []

    def _connected(self, deadline: float) -> socket.socket:
        if self._socket is not None and self._is_gone(self._socket):
            self._disconnect()
        if self._socket is None:
            check_socket_path(self.path)
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            self._socket.settimeout(_remaining_s(deadline))
            self._socket.connect(str(self.path))
        return self._socket

    @staticmethod
    def _is_gone(connected: socket.socket) -> bool:
        """The server has closed: it got no request yet, so a request to its successor is safe."""
        connected.setblocking(False)  # MSG_DONTWAIT alone is not enough: Python waits for a socket with a timeout
        try:
            return connected.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _send(self, line: bytes, deadline: float) -> None:
        connected = self._connected(deadline)
        connected.settimeout(_remaining_s(deadline))
        connected.sendall(line)

    def _answer_in(self, request: Message, limit_s: float) -> Message | None:
        """The answer; None when it does not come in `limit_s`."""
        try:
            return self._answer_to(request, time.monotonic() + limit_s)
        except TimeoutError:
            return None

    def server_gets_on(self) -> bool:
        """Whether the process at the other end works."""
        if self._works is not None:
            return self._works()
        return self._socket is not None and peer_gets_on(self._socket)

    def _answer_to(self, request: Message, deadline: float) -> Message:
        """Answers of requests that timed out earlier are passed over by their id."""
        while True:
            answer = decode(self._line(deadline))
            if answer.get("id") == request["id"] or (answer.get("id") is None and "ok" in answer):
                return answer

    def _line(self, deadline: float | None) -> bytes:
        while not self._pending:
            if self._socket is None:
                raise JsonlError("the connection is closed")
            self._socket.settimeout(None if deadline is None else _remaining_s(deadline))
            data = self._socket.recv(1 << 16)
            if not data:
                raise JsonlError("the other side closed the connection (did it die? see its log)")
            self._pending = self._lines.feed(data)
        return self._pending.pop(0)


class Watch(EventReader):
    """Event stream over a client's connection."""

    def __init__(self, client: JsonlClient) -> None:
        self._client = client

    def get(self, timeout_s: float | None = None) -> Message | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            return decode(self._client._line(deadline))
        except TimeoutError:
            return None
        except OSError as error:
            raise JsonlError(f"{self._client.name}: watch: {_reason(error, self._client.path)}") from error

    def fileno(self) -> int:
        """Return the descriptor for `select`.

        Call `get(0)` until it returns None after each wake-up: lines arrive in batches.
        """
        return -1 if self._client._socket is None else self._client._socket.fileno()

    def close(self) -> None:
        """End the stream, also under a thread that waits in `get`. Idempotent."""
        if self._client._socket is not None and self._client._socket.fileno() >= 0:
            try:
                self._client._socket.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                if error.errno != errno.ENOTCONN:
                    raise
        self._client.close()


def _remaining_s(deadline: float) -> float:
    """Seconds until `deadline`, at least one millisecond: 0 would make a socket non-blocking."""
    return max(deadline - time.monotonic(), 0.001)


def _reason(error: Exception, path: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return f"nobody listens on {path} (is the fabric up? `mrc up`)"
    if isinstance(error, ConnectionRefusedError):
        return f"{path} is left from a process that ended (see its log in {path.parent})"
    if isinstance(error, OSError):
        return f"{error.strerror or error} ({path})"
    return f"{error} ({path})"
