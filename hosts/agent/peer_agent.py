"""Client of another host's agent inside our `selectors` loop: the management network (docs/architecture.md).

`await peer.call("create_qp", peer="h0")` gives the answer without blocking the loop, or raises ManagementError
with the name of the host and what it said. Closing, or the other agent's death, fails every call that waits.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hosts.agent.tasks import Future
from ipc.rpc import JsonlError, LineBuffer, decode, encode


class ManagementError(Exception):
    """A call to another agent that was refused or could not be carried; says which host and why."""


class PeerAgent:
    """Connection to the agent of `name`, listening on `path`. Raises ManagementError when nobody does."""

    def __init__(self, name: str, path: Path, selector: selectors.BaseSelector) -> None:
        self.name = name
        self._path = path
        self._selector = selector
        self._waiting: dict[int, tuple[str, Future]] = {}
        self._last_id = 0
        self._lines = LineBuffer()
        self._unsent = bytearray()
        self.on_lost: Callable[[str], None] | None = None
        """Called with the reason when the other agent ends the connection or dies."""
        kind = socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_UNIX, kind)
        try:
            self._socket.connect(str(path))  # a Unix socket connects at once or not at all
        except OSError as error:
            self._socket.close()
            raise ManagementError(f"{name}: no agent answers on {path}: {error.strerror or error}") from error
        selector.register(self._socket, selectors.EVENT_READ, self._on_ready)

    def call(self, op: str, **fields: Any) -> Future:
        """Ask for `op`; await the future for the fields of the answer."""
        future = Future()
        if self._socket.fileno() < 0:
            future.fail(ManagementError(f"{self.name}: {op}: its agent has closed the connection"))
            return future
        self._last_id += 1
        self._waiting[self._last_id] = (op, future)
        self._unsent += encode({"op": op, "id": self._last_id, **fields})
        self._flush()
        return future

    def close(self, reason: str = "the connection was closed here") -> None:
        """Close the connection; calls that wait fail with `reason`. Idempotent."""
        self.on_lost = None
        self._end(reason)

    def _end(self, reason: str) -> None:
        if self._socket.fileno() < 0:
            return
        self._selector.unregister(self._socket)
        self._socket.close()
        waiting, self._waiting = self._waiting, {}
        for op, future in waiting.values():
            future.fail(ManagementError(f"{self.name}: {op}: {reason}"))
        if self.on_lost is not None:
            self.on_lost(f"{self.name}: {reason}")

    def _on_ready(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if mask & selectors.EVENT_READ and self._socket.fileno() >= 0:
            self._read()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass  # the selector calls again when there is room
        except OSError as error:
            self._end(f"its agent is gone ({error.strerror or error})")
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        self._selector.modify(self._socket, wanted, self._on_ready)

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
            answers = [decode(line) for line in self._lines.feed(data)]
        except BlockingIOError:
            return
        except (OSError, JsonlError) as error:
            self._end(f"its agent is gone or answers nonsense ({error})")
            return
        if not data:
            self._end(f"its agent closed the connection (did it die? see log/{self.name}.log)")
            return
        for answer in answers:
            self._settle(answer)

    def _settle(self, answer: dict[str, Any]) -> None:
        number = answer.pop("id", None)
        op, future = self._waiting.pop(number, ("", None)) if isinstance(number, int) else ("", None)
        if future is None:
            return
        if answer.pop("ok", None) is True:
            future.set(answer)
        else:
            future.fail(ManagementError(f"{self.name}: {op}: {answer.get('error', 'refused without a reason')}"))
