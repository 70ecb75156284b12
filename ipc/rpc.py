"""JSON lines over Unix sockets: the one protocol between our processes (docs/architecture.md).

A request is one line, ``{"op": "status", "id": 1, ...}``, and so is its answer: ``{"id": 1, "ok": true, ...}`` or
``{"id": 1, "ok": false, "error": "what, why, what would have worked"}``. ``{"op": "watch"}`` is answered once and
turns the connection into a stream of ``{"event": "...", "t": seconds, ...}`` lines; with ``"events": ["ev", ...]`` of
those names alone. Each ``t`` is CLOCK_MONOTONIC: all processes of a machine share it, so times of different processes
can be subtracted.

* `SelectorServer` for a loop around `selectors` (host agents),
* `AsyncServer` for asyncio (the controller),
* `JsonlClient`, blocking, and `Watch`, its stream of events (front process, tests).

Whatever arrives, a server answers it or closes that one connection; it never raises into its loop. It imports only
the standard library, so that an agent starts fast.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import logging
import selectors
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ipc.framing import (
    MAX_LINE_BYTES,
    SOCKET_PATH_MAX,
    JsonlError,
    JsonlPeerError,
    JsonlTimeout,
    LineBuffer,
    Message,
    answer_of,
    check_socket_path,
    decode,
    decode_request,
    encode,
    encode_answer,
    event_of,
    listen,
    refusal_for,
    refusal_of,
    remove_own,
)

__all__ = [
    "MAX_BACKLOG_BYTES",
    "MAX_LINE_BYTES",
    "SOCKET_PATH_MAX",
    "AsyncServer",
    "JsonlClient",
    "JsonlError",
    "JsonlPeerError",
    "JsonlTimeout",
    "LineBuffer",
    "Message",
    "SelectorServer",
    "ServerConnection",
    "Watch",
    "answer_of",
    "decode",
    "decode_request",
    "encode",
    "event_of",
    "listen",
    "refusal_of",
]

MAX_BACKLOG_BYTES = 16 << 20
"""Bytes that a server keeps for a peer that does not read; beyond that it closes the connection."""

Handler = Callable[[Message, "ServerConnection"], "Message | None"]
AsyncHandler = Callable[[Message, "ServerConnection"], "Message | Awaitable[Message | None] | None"]
OnWatch = Callable[[Message], Iterable[Message]]

log = logging.getLogger(__name__)


# ---- servers ------------------------------------------------------------------------------------------------


class ServerConnection:
    """The server's end of one client. `answer` and `refuse` serve a request whose handler returned None."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self.watching = False
        self.events: frozenset[str] | None = None
        """Events a watcher asked for; None = all."""
        self._on_close: list[Callable[[], None]] = []

    def watch(self, request: Message) -> None:
        """The client asked to watch. Raises JsonlError when `events` is no list of names."""
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

    def closed(self) -> None:
        """The client has gone (called by its server)."""
        callbacks, self._on_close = self._on_close, []
        for callback in callbacks:
            callback()

    def send(self, message: Message) -> None:
        """Queue one line. Does nothing once the client is gone. Raises JsonlError for what JSON cannot carry."""
        self._send(encode(message))

    def answer(self, request: Message, **fields: Any) -> None:
        """Answer `request` later than its handler returned."""
        self._send(encode_answer(request, answer_of(request, fields)))

    def refuse(self, request: Message, error: str) -> None:
        """Refuse `request` later than its handler returned."""
        self._send(encode_answer(request, refusal_of(request, error)))


class SelectorServer:
    """Serves a Unix socket from a `selectors` loop, whose every key has a callable `data`::

        for key, mask in selector.select(timeout):
            key.data(mask)

    `handler(request, connection)` returns the fields of the answer, or None to answer later through `connection`,
    or raises JsonlError to refuse. `watch` is served here: `on_watch(request)` gives the events a new watcher gets
    first (a snapshot), `publish` sends one to all. Raises JsonlError as `listen` does.
    """

    def __init__(
        self,
        path: Path | str,
        handler: Handler,
        selector: selectors.BaseSelector,
        *,
        on_watch: OnWatch | None = None,
    ) -> None:
        self.path = Path(path)
        self._handler = handler
        self._on_watch = on_watch
        self._selector = selector
        self._socket = listen(path)
        self._inode = self.path.stat().st_ino
        self._peers: set[_SelectorPeer] = set()
        selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def publish(self, event: str, *, t: float | None = None, **fields: Any) -> None:
        """Send an event to every watcher; `t` is CLOCK_MONOTONIC seconds, now when None."""
        watching = [peer for peer in self._peers if peer.connection.wants(event)]
        if watching:
            line = encode(event_of(event, t, fields))
            for peer in watching:
                peer.send(line)

    def close(self) -> None:
        """Close all connections and remove the socket file. Idempotent."""
        for peer in list(self._peers):
            peer.close()
        if self._socket.fileno() >= 0:
            self._selector.unregister(self._socket)
            self._socket.close()
            remove_own(self.path, self._inode)

    def _accept(self, mask: int) -> None:
        try:
            peer_socket, _ = self._socket.accept()
        except BlockingIOError:
            return
        except OSError as error:  # out of descriptors, or the client left already
            log.warning("%s: accept: %s", self.path, error)
            return
        peer_socket.setblocking(False)
        self._peers.add(_SelectorPeer(self, peer_socket))

    def serve_line(self, connection: ServerConnection, line: bytes) -> None:
        """Answer one line of one client (called by its connection)."""
        request: Message = {}
        try:
            request = decode_request(line)
            if request["op"] == "watch":
                first = list(self._on_watch(request)) if self._on_watch else []
                connection.watch(request)
                connection.answer(request)
                for event in first:
                    connection.send(event)
                return
            fields = self._handler(request, connection)
        except Exception as error:
            connection._send(encode_answer(request, refusal_for(request, error)))
            return
        if fields is not None:
            connection.answer(request, **fields)


class _SelectorPeer:
    """One client of a SelectorServer: its socket, the line being read, the bytes it has not taken yet."""

    def __init__(self, server: SelectorServer, peer_socket: socket.socket) -> None:
        self.server = server
        self.socket = peer_socket
        self.lines = LineBuffer()
        self.unsent = bytearray()
        self.connection = ServerConnection(self.send)
        server._selector.register(peer_socket, selectors.EVENT_READ, self.on_ready)

    def on_ready(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if mask & selectors.EVENT_READ and self.socket.fileno() >= 0:
            self._read()

    def send(self, line: bytes) -> None:
        if self.socket.fileno() < 0:
            return
        self.unsent += line
        self._flush()
        if len(self.unsent) > MAX_BACKLOG_BYTES:
            log.warning("%s: a client does not read; connection closed", self.server.path)
            self.close()

    def close(self) -> None:
        self.server._peers.discard(self)
        if self.socket.fileno() >= 0:
            self.server._selector.unregister(self.socket)
            self.socket.close()
            self.connection.closed()

    def _flush(self) -> None:
        try:
            while self.unsent:
                del self.unsent[: self.socket.send(self.unsent)]
        except BlockingIOError:
            pass  # the selector calls again when there is room
        except OSError:
            self.close()
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.unsent else 0)
        self.server._selector.modify(self.socket, wanted, self.on_ready)

    def _read(self) -> None:
        try:
            data = self.socket.recv(1 << 16)
            lines = self.lines.feed(data)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        except JsonlError as error:  # where the next line starts is unknown: say so and end
            self.connection.refuse({}, str(error))
            self.close()
            return
        if not data:
            self.close()
            return
        for line in lines:
            self.server.serve_line(self.connection, line)


class AsyncServer:
    """Serves a Unix socket from asyncio. The handler is as SelectorServer's and may be a coroutine function.

    Requests of one client are handled one after the other, clients side by side::

        server = await AsyncServer.start(path, handler)
        server.publish("fault", link="p1-t0-0 p1-t1-1")
        await server.close()
    """

    def __init__(self, path: Path | str, handler: AsyncHandler, on_watch: OnWatch | None) -> None:
        self.path = Path(path)
        self._handler = handler
        self._on_watch = on_watch
        self._peers: dict[asyncio.StreamWriter, ServerConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.AbstractServer | None = None
        self._inode = 0

    @classmethod
    async def start(cls, path: Path | str, handler: AsyncHandler, *, on_watch: OnWatch | None = None) -> AsyncServer:
        """Listen on `path`. Raises JsonlError as `listen` does."""
        self = cls(path, handler, on_watch)
        self._server = await asyncio.start_unix_server(self._serve, sock=listen(path))
        self._inode = self.path.stat().st_ino
        return self

    def publish(self, event: str, *, t: float | None = None, **fields: Any) -> None:
        """Send an event to every watcher; `t` is CLOCK_MONOTONIC seconds, now when None."""
        line = encode(event_of(event, t, fields))
        for connection in [c for c in self._peers.values() if c.wants(event)]:
            connection._send(line)

    async def close(self) -> None:
        """Close all connections and remove the socket file. Idempotent."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        remove_own(self.path, self._inode)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = ServerConnection(lambda line: self._write(writer, line))
        self._peers[writer] = connection
        try:
            await self._serve_lines(reader, writer, connection)
        except (OSError, asyncio.CancelledError):
            pass  # the client left, or we close: either way this connection is over
        finally:
            self._peers.pop(writer, None)
            self._tasks.discard(task)
            writer.close()
            connection.closed()

    async def _serve_lines(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: ServerConnection
    ) -> None:
        lines = LineBuffer()
        while data := await reader.read(1 << 16):
            try:
                whole = lines.feed(data)
            except JsonlError as error:
                connection.refuse({}, str(error))
                await writer.drain()
                return
            for line in whole:
                await self._serve_line(connection, line)
                await writer.drain()

    async def _serve_line(self, connection: ServerConnection, line: bytes) -> None:
        request: Message = {}
        try:
            request = decode_request(line)
            if request["op"] == "watch":
                first = list(self._on_watch(request)) if self._on_watch else []
                connection.watch(request)
                connection.answer(request)
                for event in first:
                    connection.send(event)
                return
            fields = self._handler(request, connection)
            if inspect.isawaitable(fields):
                fields = await fields
        except Exception as error:
            connection._send(encode_answer(request, refusal_for(request, error)))
            return
        if fields is not None:
            connection.answer(request, **fields)

    def _write(self, writer: asyncio.StreamWriter, line: bytes) -> None:
        if writer.is_closing():
            return
        writer.write(line)
        if writer.transport.get_write_buffer_size() > MAX_BACKLOG_BYTES:
            log.warning("%s: a client does not read; connection closed", self.path)
            writer.transport.abort()


# ---- client -------------------------------------------------------------------------------------------------


class JsonlClient:
    """Blocking client of one socket; connects at the first request and again when the server was restarted.

    `name` goes before every error (`h0: send: no host 'h9'`). One request at a time; threads may share a client.
    """

    def __init__(self, path: Path | str, *, name: str | None = None, timeout_s: float = 10.0) -> None:
        self.path = Path(path)
        self.name = name or self.path.stem
        self.timeout_s = timeout_s
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._lines = LineBuffer()
        self._pending: list[bytes] = []
        self._last_id = 0

    def request(self, op: str, *, timeout_s: float | None = None, **fields: Any) -> Message:
        """The answer to one request, without `id` and `ok`.

        Raises JsonlPeerError when refused, JsonlTimeout, and JsonlError when it could not be carried.
        """
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        with self._lock:
            self._last_id += 1
            request = {"op": op, "id": self._last_id, **fields}
            try:
                self._send(encode(request), deadline)
                answer = self._answer_to(request, deadline)
            except TimeoutError:
                raise JsonlTimeout(f"{self.name}: {op}: no answer in time ({self.path})") from None
            except (OSError, JsonlError) as error:
                self._disconnect()
                raise JsonlError(f"{self.name}: {op}: {_reason(error, self.path)}") from error
        if answer.pop("ok", None) is not True:
            reason = str(answer.get("error", "refused without a reason"))
            raise JsonlPeerError(f"{self.name}: {op}: {reason}", reason)
        answer.pop("id", None)
        return answer

    def watch(self, *, timeout_s: float | None = None, **fields: Any) -> Watch:
        """Open a stream of events on a connection of its own; returns when the server has agreed to it.

        Events published after that are all in the stream. `timeout_s` is for agreeing, not for events.
        """
        own = JsonlClient(self.path, name=self.name, timeout_s=self.timeout_s)
        try:
            own.request("watch", timeout_s=timeout_s, **fields)
        except BaseException:
            own.close()
            raise
        return Watch(own)

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
            self._socket.settimeout(_left(deadline))
            self._socket.connect(str(self.path))
        return self._socket

    @staticmethod
    def _is_gone(connected: socket.socket) -> bool:
        """The server has closed: nothing was asked of it yet, so asking its successor is safe."""
        connected.setblocking(False)  # MSG_DONTWAIT alone is not enough: Python waits for a socket with a timeout
        try:
            return connected.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _send(self, line: bytes, deadline: float) -> None:
        connected = self._connected(deadline)
        connected.settimeout(_left(deadline))
        connected.sendall(line)

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
            self._socket.settimeout(None if deadline is None else _left(deadline))
            data = self._socket.recv(1 << 16)
            if not data:
                raise JsonlError("the other side closed the connection (did it die? see its log)")
            self._pending = self._lines.feed(data)
        return self._pending.pop(0)


class Watch:
    """Stream of events: an iterator that ends when the server goes, and a context manager that closes it."""

    def __init__(self, client: JsonlClient) -> None:
        self._client = client

    def get(self, timeout_s: float | None = None) -> Message | None:
        """The next event; None when none came in time. Raises JsonlError when the stream has ended."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            return decode(self._client._line(deadline))
        except TimeoutError:
            return None
        except OSError as error:
            raise JsonlError(f"{self._client.name}: watch: {_reason(error, self._client.path)}") from error

    def fileno(self) -> int:
        """For `select`. Call `get(0)` until it returns None after each wake-up: lines arrive in batches."""
        return -1 if self._client._socket is None else self._client._socket.fileno()

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        try:
            event = self.get()
        except JsonlError:
            raise StopIteration from None
        assert event is not None
        return event

    def close(self) -> None:
        """End the stream, also under a thread that waits in `get`. Idempotent."""
        if self._client._socket is not None and self._client._socket.fileno() >= 0:
            try:
                self._client._socket.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                if error.errno != errno.ENOTCONN:
                    raise
        self._client.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _left(deadline: float) -> float:
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
