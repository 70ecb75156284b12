"""Shared wires: memory of a port and a process of the host (switch/runtime/shared_wires.c).

A process connects to a Unix socket of the daemon's, which only its owner can open, and sends one line::

    {"interface": "p0-t0-0-eth1", "frame_bytes": 4352, "match": [[20, 1, 41, 41], [106, 4, 65537, 131071]]}

`interface` is the port's, `frame_bytes` the longest frame the process takes. Each entry of `match` is a number in a
frame (offset, bytes, first, last), network order; with a fifth entry, true, the number must lie outside. Frames for
which all hold are the process's. The answer is a line, and with `{"ok": true}` comes a descriptor of the memory
(switch/system/shared_wire.h)::

    {"ok": true}    or    {"ok": false, "error": "no port is on interface 'p0-t0-0-eth1'"}

From then on the socket carries only the bytes that wake a side, and its end is the wire's end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from pathlib import Path
from typing import Any

from mrc_testbed.switch.device.loop import EventLoop, FrameRange, PortError
from mrc_testbed.switch.system.unix_socket import listen, remove_own

MAX_LINE_BYTES = 4096
PAUSE_S = 1.0
"""Pause after a client that could not be accepted, for want of a descriptor."""

log = logging.getLogger(__name__)


class SharedWireError(Exception):
    """A request that is refused; the text becomes the answer's `error`."""


class SharedWireServer:
    """Makes shared wires of `loop` for whoever asks at the socket `path`. Start it on the asyncio loop."""

    def __init__(self, path: Path, loop: EventLoop) -> None:
        self._path, self._loop = path, loop
        self._listener: socket.socket | None = None
        self._inode = 0
        self._clients: dict[socket.socket, bytes] = {}
        """Clients that have not sent their whole line, with what has come of it."""

    def start(self) -> None:
        """Raises SocketError."""
        self._listener = listen(self._path)
        self._inode = self._path.stat().st_ino
        asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def close(self) -> None:
        """Serve nobody any more; wires that exist stay. May be called twice."""
        for client in tuple(self._clients):
            self._forget(client)
            client.close()
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
            remove_own(self._path, self._inode)

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError as error:  # it has gone again, or we are out of descriptors
            log.warning("shared wires: %s", error)
            running = asyncio.get_running_loop()
            running.remove_reader(listener)
            running.call_later(PAUSE_S, self._listen_again, listener)
            return
        client.setblocking(False)
        self._clients[client] = b""
        asyncio.get_running_loop().add_reader(client, self._read, client)

    def _listen_again(self, listener: socket.socket) -> None:
        if listener is self._listener:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _forget(self, client: socket.socket) -> bytes:
        asyncio.get_running_loop().remove_reader(client)
        return self._clients.pop(client)

    def _read(self, client: socket.socket) -> None:
        try:
            data = client.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._clients[client] += data
        text = self._clients[client]
        if data and b"\n" not in text and len(text) < MAX_LINE_BYTES:
            return
        self._forget(client)
        if data:
            self._serve(client, text)
        else:
            client.close()

    def _serve(self, client: socket.socket, text: bytes) -> None:
        """Answer a whole request; the event loop owns the socket afterwards, or it is closed."""
        try:
            interface, frame_bytes, ranges = _request(text)
            memory = self._loop.share(interface, client, frame_bytes, ranges)
        except (SharedWireError, PortError) as error:
            self._refuse(client, str(error))
            return
        try:
            socket.send_fds(client, [b'{"ok": true}\n'], [memory])
        except OSError as error:  # it has gone: the event loop sees that too
            log.warning("shared wire of %s: %s", interface, error)
        finally:
            os.close(memory)
            client.detach()

    def _refuse(self, client: socket.socket, error: str) -> None:
        with client:
            try:
                client.send(json.dumps({"ok": False, "error": error}).encode() + b"\n")
            except OSError:
                log.warning("shared wire refused (%s), and the client has gone", error)


def _request(text: bytes) -> tuple[str, int, list[FrameRange]]:
    """Return interface, frame_bytes and ranges of a request. Raises SharedWireError."""
    try:
        request = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SharedWireError(f"not a line of JSON: {error or type(error).__name__}") from None
    if not isinstance(request, dict):
        raise SharedWireError(f"a request is an object, not {request!r}")
    interface, frame_bytes, match = request.get("interface"), request.get("frame_bytes"), request.get("match")
    if not isinstance(interface, str) or not interface.isascii() or not interface.isprintable():
        raise SharedWireError(f"interface = {interface!r} (want a port's, such as p0-t0-0-eth1)")
    if not isinstance(frame_bytes, int) or not _is_number(frame_bytes):
        raise SharedWireError(f"frame_bytes = {frame_bytes!r} (want a number of bytes)")
    if not isinstance(match, list):
        raise SharedWireError(f"match = {match!r} (want a list of [offset, bytes, first, last])")
    return interface, frame_bytes, [_range(entry) for entry in match]


def _range(entry: Any) -> FrameRange:
    if not isinstance(entry, list) or len(entry) not in (4, 5) or not all(map(_is_number, entry[:4])):
        raise SharedWireError(f"match: {entry!r} (want [offset, bytes, first, last], numbers of 32 bits)")
    offset, size, first, last = entry[:4]
    return FrameRange(offset, size, first, last, is_outside=entry[4:] == [True])


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32
