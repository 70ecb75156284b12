"""Control socket of the daemon: JSON lines, one request and one answer a line (docs/architecture.md).

The switch imports nothing of ours, hence not ipc/rpc.py but this small server of the same protocol::

    {"op": "power", "id": 7, "name": "p0-t1-0", "on": false}   ->   {"id": 7, "ok": true, ...}
                                                               or   {"id": 7, "ok": false, "error": "..."}
    {"op": "watch"}   ->   {"id": null, "ok": true}, then {"event": "device", "t": 12.5, ...} for ever

Whatever arrives, a client gets an answer or loses its own connection; one connection is served in order.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from mrc_testbed.switch.system.unix_socket import listen, remove_own

MAX_LINE_BYTES = 4 << 20
"""Longest request, newline included: an add_device of 65,000 ports."""
MAX_BACKLOG_BYTES = 16 << 20
"""Bytes that a watcher may be behind before it loses its connection."""

Fields = dict[str, Any]
Operation = Callable[[Fields], Awaitable[Fields]]

log = logging.getLogger(__name__)


class ControlError(Exception):
    """A request that is refused; the text becomes the answer's `error`."""


class ControlServer:
    """Serves `operations` (by their `op`) on a Unix socket that only its owner can open (mode 0600)."""

    def __init__(self, path: Path, operations: dict[str, Operation]) -> None:
        self.path = path
        self._operations = operations
        self._server: asyncio.AbstractServer | None = None
        self._inode = 0
        self._watchers: set[asyncio.StreamWriter] = set()
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Raises SocketError when another process answers there or the file cannot be made."""
        sock = listen(self.path)
        self._inode = self.path.stat().st_ino
        self._server = await asyncio.start_unix_server(self._accept_client, sock=sock, limit=MAX_LINE_BYTES)

    async def close(self) -> None:
        """Ends all connections and removes the socket file, unless a successor has put its own there."""
        if self._server is None:
            return
        self._server.close()
        for task in tuple(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        remove_own(self.path, self._inode)
        self._server = None

    def publish(self, event: str, **fields: Any) -> None:
        """Sends an event to every watcher; `t` is CLOCK_MONOTONIC seconds."""
        line = _line({"event": event, "t": time.monotonic(), **fields})
        for writer in tuple(self._watchers):
            if writer.transport.get_write_buffer_size() > MAX_BACKLOG_BYTES:
                self._watchers.discard(writer)
                writer.transport.abort()
            else:
                writer.write(line)

    def _accept_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                try:
                    line = await reader.readline()
                except ValueError:
                    writer.write(_line(_refusal({}, f"line longer than {MAX_LINE_BYTES} bytes")))
                    await writer.drain()
                    return
                if not line.endswith(b"\n"):
                    return
                if line.strip():
                    writer.write(_line(await self._answer(line, writer)))
                    await writer.drain()
        except ConnectionError:
            return
        finally:
            self._watchers.discard(writer)
            writer.close()

    async def _answer(self, line: bytes, writer: asyncio.StreamWriter) -> Fields:
        request: Fields = {}
        try:
            request = _parse(line)
            op = request["op"]
            if op == "watch":
                self._watchers.add(writer)
                return {"id": request.get("id"), "ok": True}
            if op not in self._operations:
                raise ControlError(f"no op {op!r} (has: {', '.join(sorted([*self._operations, 'watch']))})")
            return {"id": request.get("id"), "ok": True, **await self._operations[op](request)}
        except ControlError as error:
            return _refusal(request, str(error))
        except Exception as error:
            log.exception("op %r failed", request.get("op"))
            description = f"internal error in op {request.get('op')!r}: {type(error).__name__}: {error}"
            return _refusal(request, f"{description} (traceback in the log)")


def _parse(line: bytes) -> Fields:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ControlError(f"not JSON: {error or type(error).__name__}") from None
    if not isinstance(request, dict) or not isinstance(request.get("op"), str):
        raise ControlError('a request is an object with a string "op", like {"op": "devices", "id": 1}')
    return request


def _refusal(request: Fields, error: str) -> Fields:
    return {"id": request.get("id"), "ok": False, "error": error}


def _line(message: Fields) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def field(request: Fields, name: str, kind: type, example: str) -> Any:
    """A field of a request, of that type. Raises ControlError with an example."""
    value = request.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        problem = f"{name} = {value!r}" if name in request else f"{name} is missing"
        raise ControlError(f"{request['op']}: {problem} (want {example})")
    return value
