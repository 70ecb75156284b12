"""JSON lines: messages in a byte stream, requests and answers, and the socket file.

No connection lives here; `mrc_testbed.ipc.rpc` has the servers and the client and exports all of this.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from mrc_testbed.switch.system import unix_socket

MAX_LINE_BYTES = 4 << 20
"""Longest line either side takes, newline included. A table dump of a 64-switch fabric is about 1 MiB."""
SOCKET_PATH_MAX = 107 - len(unix_socket.UNHEARD)
"""sun_path of a Unix socket address, bytes without the final zero and the suffix."""

Message = dict[str, Any]

log = logging.getLogger(__name__)


class JsonlError(Exception):
    """The request could not be carried: no listener, the connection broke, no answer in time, a bad line.

    A handler raises it to refuse a request; its text becomes the answer's `error`.
    """


class JsonlPeerError(JsonlError):
    """The other side understood the request and refused it; `reason` is its text, without our context."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class JsonlTimeoutError(JsonlError):
    """No answer within the time given. The request may still be carried out."""


class EventReader(ABC):
    """Stream of events: an iterator that ends when the server goes, and a context manager that closes it."""

    @abstractmethod
    def get(self, timeout_s: float | None = None) -> Message | None:
        """The next event; None when no event came in time. Raises JsonlError when the stream has ended."""

    @abstractmethod
    def close(self) -> None:
        """End the stream, also under a thread that waits in `get`. Idempotent."""

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        try:
            event = self.get()
        except JsonlError:
            raise StopIteration from None
        assert event is not None
        return event

    def __enter__(self: _Reader) -> _Reader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


_Reader = TypeVar("_Reader", bound=EventReader)


class LineBuffer:
    """Cuts a byte stream into lines. Raises JsonlError for a line longer than MAX_LINE_BYTES."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines completed by `data`, without newlines and without empty ones."""
        *line_ends, remainder = data.split(b"\n")
        lines = []
        for end in line_ends:
            lines.append(b"".join((*self._parts, end)))
            self._parts, self._size = [], 0
        if remainder:
            self._parts.append(remainder)
            self._size += len(remainder)
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
        raise JsonlError(f"not JSON: {error or type(error).__name__} in {_excerpt(line)}") from error
    if not isinstance(message, dict):
        raise JsonlError(f"a message is one JSON object, not {_excerpt(line)}")
    return message


def decode_request(line: bytes) -> Message:
    """A request: an object with a string `op`. Raises JsonlError."""
    message = decode(line)
    if not isinstance(message.get("op"), str):
        raise JsonlError('a request needs "op", a string, as in {"op": "status", "id": 1}')
    return message


def answer_to(request: Message, fields: Message) -> Message:
    """The good answer to `request`."""
    return {"id": request.get("id"), "ok": True, **fields}


def refusal_of(request: Message, error: str) -> Message:
    """The bad answer to `request`."""
    return {"id": request.get("id"), "ok": False, "error": error}


def answer_fields(answer: Message, request_name: str) -> Message:
    """Return the fields of an answer, without `id` and `ok`.

    Raises JsonlPeerError, whose text starts with `where`, when the answer is a refusal.
    """
    if answer.pop("ok", None) is not True:
        reason = str(answer.get("error", "refused without a reason"))
        raise JsonlPeerError(f"{request_name}: {reason}", reason)
    answer.pop("id", None)
    return answer


def event_of(event: str, t: float | None, fields: Message) -> Message:
    """An event line; `t` is CLOCK_MONOTONIC seconds, now when None."""
    return {"event": event, "t": time.monotonic() if t is None else t, **fields}


def _excerpt(line: bytes) -> str:
    text = line[:60].decode(errors="replace")
    return repr(text + "..." if len(line) > 60 else text)


def refusal_for(request: Message, error: Exception) -> Message:
    """Return the answer for an exception of a handler.

    An exception that is no JsonlError is a bug of the testbed and goes to the log.
    """
    if isinstance(error, JsonlError):
        return refusal_of(request, str(error))
    op = request.get("op")
    log.error("op %r failed", op, exc_info=error)
    description = f"internal error in op {op!r}: {type(error).__name__}: {error}"
    return refusal_of(request, f"{description} (traceback in the log)")


def encode_answer(request: Message, answer: Message) -> bytes:
    """One line; a refusal when JSON cannot carry the answer."""
    try:
        return encode(answer)
    except JsonlError as error:
        return encode(refusal_for({"op": request.get("op"), "id": _plain_id(request)}, error))


def _plain_id(request: Message) -> Any:
    value = request.get("id")
    return value if isinstance(value, (int, str)) else None


# ---- sockets ------------------------------------------------------------------------------------------------


def listen(path: Path | str) -> socket.socket:
    """Return a non-blocking listening Unix socket at `path`, mode 0600; replace the file of a dead server.

    Raises JsonlError when another process listens there, the folder is missing or the path is too long for a socket.
    """
    path = Path(path)
    check_socket_path(path)
    try:
        return unix_socket.listen(path)
    except unix_socket.SocketError as error:
        raise JsonlError(str(error)) from error


def check_socket_path(path: Path) -> None:
    """Raises JsonlError for a path that is too long for a socket."""
    if len(os.fsencode(path)) > SOCKET_PATH_MAX:
        raise JsonlError(
            f"socket path {path} has {len(os.fsencode(path))} bytes and at most {SOCKET_PATH_MAX} will do: "
            "use a shorter run folder (MRC_RUN_DIR)"
        )
