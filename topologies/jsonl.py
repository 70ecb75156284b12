"""JSON lines over Unix sockets: the one protocol between our processes (docs/architecture.md).

A request is one line, ``{"op": "status", "id": 1, ...}``, and so is its answer: ``{"id": 1, "ok": true, ...}`` or
``{"id": 1, "ok": false, "error": "what, why, what would have worked"}``. ``{"op": "watch"}`` is answered once and
turns the connection into a stream of ``{"event": "...", "t": seconds, ...}`` lines. Each ``t`` is CLOCK_MONOTONIC:
all processes of a machine share it, so times of different processes can be subtracted.

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
import json
import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

MAX_LINE_BYTES = 4 << 20
"""Longest line either side takes, newline included. A table dump of a 64-switch fabric is about 1 MiB."""
MAX_BACKLOG_BYTES = 16 << 20
"""What a server keeps for a peer that does not read; beyond it the connection is closed."""
SOCKET_PATH_MAX = 107
"""sun_path of a Unix socket address, bytes without the final zero."""

Message = dict[str, Any]
Handler = Callable[[Message, "Connection"], "Message | None"]
AsyncHandler = Callable[[Message, "Connection"], "Message | Awaitable[Message | None] | None"]
OnWatch = Callable[[Message], Iterable[Message]]

log = logging.getLogger(__name__)


class JsonlError(Exception):
    """The request could not be carried: nobody listens, the connection broke, no answer in time, a bad line.

    A handler raises it to refuse a request; its text becomes the answer's `error`.
    """


class JsonlPeerError(JsonlError):
    """The other side understood the request and refused it; `reason` is its text, without our context."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class JsonlTimeout(JsonlError):
    """No answer within the time given. The request may still be carried out."""


# ---- lines --------------------------------------------------------------------------------------------------


class LineBuffer:
    """Cuts a byte stream into lines. Raises JsonlError for a line longer than MAX_LINE_BYTES."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines completed by `data`, without newlines and without empty ones."""
        *whole, rest = data.split(b"\n")
        lines = []
        for end in whole:
            lines.append(b"".join((*self._parts, end)))
            self._parts, self._size = [], 0
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
        if self._size >= MAX_LINE_BYTES or any(len(line) >= MAX_LINE_BYTES for line in lines):
            raise JsonlError(f"line longer than {MAX_LINE_BYTES} bytes")
        return [line for line in lines if line.strip()]


def encode(message: Message) -> bytes:
    """One line. Raises JsonlError for what JSON cannot carry (bytes, NaN, cycles)."""
    try:
        return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise JsonlError(f"cannot be sent as JSON: {error}") from error


def decode(line: bytes) -> Message:
    """The object in a line. Raises JsonlError for anything that is not one JSON object."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise JsonlError(f"not JSON: {error or type(error).__name__} in {_shown(line)}") from error
    if not isinstance(message, dict):
        raise JsonlError(f"a message is one JSON object, not {_shown(line)}")
    return message


def decode_request(line: bytes) -> Message:
    """A request: an object with a string `op`. Raises JsonlError."""
    message = decode(line)
    if not isinstance(message.get("op"), str):
        raise JsonlError('a request needs "op", a string, as in {"op": "status", "id": 1}')
    return message


def answer_of(request: Message, fields: Message) -> Message:
    """The good answer to `request`."""
    return {"id": request.get("id"), "ok": True, **fields}


def refusal_of(request: Message, error: str) -> Message:
    """The bad answer to `request`."""
    return {"id": request.get("id"), "ok": False, "error": error}


def event_of(event: str, t: float | None, fields: Message) -> Message:
    """An event line; `t` is CLOCK_MONOTONIC seconds, now when None."""
    return {"event": event, "t": time.monotonic() if t is None else t, **fields}


def _shown(line: bytes) -> str:
    text = line[:60].decode(errors="replace")
    return repr(text + "..." if len(line) > 60 else text)


def _refusal_for(request: Message, error: Exception) -> Message:
    """The answer for whatever a handler raised; what is not a JsonlError is a bug of ours and goes to the log."""
    if isinstance(error, JsonlError):
        return refusal_of(request, str(error))
    op = request.get("op")
    log.error("op %r failed", op, exc_info=error)
    what = f"internal error in op {op!r}: {type(error).__name__}: {error}"
    return refusal_of(request, f"{what} (traceback in the log)")


def _encode_answer(request: Message, answer: Message) -> bytes:
    try:
        return encode(answer)
    except JsonlError as error:
        return encode(_refusal_for({"op": request.get("op"), "id": _plain_id(request)}, error))


def _plain_id(request: Message) -> Any:
    value = request.get("id")
    return value if isinstance(value, (int, str)) else None


# ---- sockets ------------------------------------------------------------------------------------------------


def listen(path: Path | str) -> socket.socket:
    """A listening Unix socket at `path`, mode 0600, non-blocking; the file of a dead server is replaced.

    Raises JsonlError when someone listens there, the folder is missing or the path is too long for a socket.
    """
    path = Path(path)
    _check_path(path)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        if path.exists():
            _remove_stale(path)
        old_mask = os.umask(0o177)
        try:
            server.bind(str(path))
        finally:
            os.umask(old_mask)
        server.listen(64)
        server.setblocking(False)
    except OSError as error:
        server.close()
        raise JsonlError(f"cannot listen on {path}: {error.strerror or error}") from error
    except JsonlError:
        server.close()
        raise
    return server


def _check_path(path: Path) -> None:
    if len(os.fsencode(path)) > SOCKET_PATH_MAX:
        raise JsonlError(
            f"socket path {path} has {len(os.fsencode(path))} bytes and the kernel takes {SOCKET_PATH_MAX}: "
            "use a shorter run folder (MRC_RUN_DIR)"
        )


def _remove_stale(path: Path) -> None:
    if not path.is_socket():
        raise JsonlError(f"cannot listen on {path}: the file there is no socket; remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except FileNotFoundError:
            return
    raise JsonlError(f"cannot listen on {path}: another process answers there; stop it first")


def _remove_own(path: Path, inode: int) -> None:
    """Remove the socket file at close, unless a successor has put its own there."""
    try:
        if path.stat().st_ino == inode:
            path.unlink()
    except FileNotFoundError:
        return


# ---- servers ------------------------------------------------------------------------------------------------


class Connection:
    """The server's end of one client. `answer` and `refuse` serve a request whose handler returned None."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self.watching = False

    def send(self, message: Message) -> None:
        """Queue one line. Does nothing once the client is gone. Raises JsonlError for what JSON cannot carry."""
        self._send(encode(message))

    def answer(self, request: Message, **fields: Any) -> None:
        """Answer `request` later than its handler returned."""
        self._send(_encode_answer(request, answer_of(request, fields)))

    def refuse(self, request: Message, error: str) -> None:
        """Refuse `request` later than its handler returned."""
        self._send(_encode_answer(request, refusal_of(request, error)))


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
        line = encode(event_of(event, t, fields))
        for peer in [p for p in self._peers if p.connection.watching]:
            peer.send(line)

    def close(self) -> None:
        """Close all connections and remove the socket file. Idempotent."""
        for peer in list(self._peers):
            peer.close()
        if self._socket.fileno() >= 0:
            self._selector.unregister(self._socket)
            self._socket.close()
            _remove_own(self.path, self._inode)

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

    def serve_line(self, connection: Connection, line: bytes) -> None:
        """Answer one line of one client (called by its connection)."""
        request: Message = {}
        try:
            request = decode_request(line)
            if request["op"] == "watch":
                first = list(self._on_watch(request)) if self._on_watch else []
                connection.watching = True
                connection.answer(request)
                for event in first:
                    connection.send(event)
                return
            fields = self._handler(request, connection)
        except Exception as error:
            connection._send(_encode_answer(request, _refusal_for(request, error)))
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
        self.connection = Connection(self.send)
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
        if self.socket.fileno() >= 0:
            self.server._selector.unregister(self.socket)
            self.socket.close()
        self.server._peers.discard(self)

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
        self._peers: dict[asyncio.StreamWriter, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.AbstractServer | None = None
        self._inode = 0

    @classmethod
    async def start(
        cls, path: Path | str, handler: AsyncHandler, *, on_watch: OnWatch | None = None
    ) -> AsyncServer:
        """Listen on `path`. Raises JsonlError as `listen` does."""
        self = cls(path, handler, on_watch)
        self._server = await asyncio.start_unix_server(self._serve, sock=listen(path))
        self._inode = self.path.stat().st_ino
        return self

    def publish(self, event: str, *, t: float | None = None, **fields: Any) -> None:
        """Send an event to every watcher; `t` is CLOCK_MONOTONIC seconds, now when None."""
        line = encode(event_of(event, t, fields))
        for connection in [c for c in self._peers.values() if c.watching]:
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
        _remove_own(self.path, self._inode)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = Connection(lambda line: self._write(writer, line))
        self._peers[writer] = connection
        try:
            await self._serve_lines(reader, writer, connection)
        except (OSError, asyncio.CancelledError):
            pass  # the client left, or we close: either way this connection is over
        finally:
            self._peers.pop(writer, None)
            self._tasks.discard(task)
            writer.close()

    async def _serve_lines(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection
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

    async def _serve_line(self, connection: Connection, line: bytes) -> None:
        request: Message = {}
        try:
            request = decode_request(line)
            if request["op"] == "watch":
                first = list(self._on_watch(request)) if self._on_watch else []
                connection.watching = True
                connection.answer(request)
                for event in first:
                    connection.send(event)
                return
            fields = self._handler(request, connection)
            if inspect.isawaitable(fields):
                fields = await fields
        except Exception as error:
            connection._send(_encode_answer(request, _refusal_for(request, error)))
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
            _check_path(self.path)
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
