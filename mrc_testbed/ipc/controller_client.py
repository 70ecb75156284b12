"""Blocking client of the controller's northbound API: HTTP/JSON and events over its Unix socket.

The API is described in docs/northbound.md.

::

    controller = Northbound(run_dir)                 # asks by run_dir/controller.sock
    controller.request("faults")["faults"]           # GET /v1/faults
    controller.request("verify", entries=True)       # POST /v1/verify
    with controller.watch() as watch:                # GET /v1/events
        event = watch.get(timeout_s=1.0)             # {"event": "fault", "t": ..., ...} or None
    known = KnownFaults("text")                      # across streams that break
    known.change(event["fault"])                     # "raised", ..., or None: told before

Same methods and exceptions as `mrc_testbed.ipc.rpc.JsonlClient`, so callers are independent of the transport.
Standard library only, and nothing is kept open between requests: a restarted controller is found by itself.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from mrc_testbed.ipc.framing import (
    EventReader,
    JsonlError,
    JsonlPeerError,
    JsonlTimeoutError,
    LineBuffer,
    Message,
    check_socket_path,
)
from mrc_testbed.ipc.patience import peer_gets_on
from mrc_testbed.ipc.rundir import RunFiles

OPERATIONS = {
    "status": ("GET", "/v1/status"),
    "faults": ("GET", "/v1/faults"),
    "fault": ("GET", "/v1/faults/{number}"),
    "links": ("GET", "/v1/links"),
    "switches": ("GET", "/v1/switches"),
    "evs": ("GET", "/v1/evs"),
    "counters": ("GET", "/v1/counters"),
    "queues": ("GET", "/v1/queues"),
    "denylist": ("GET", "/v1/denylist"),
    "set_denylist": ("POST", "/v1/denylist"),
    "verify": ("POST", "/v1/verify"),
    "tables": ("GET", "/v1/tables"),
    "set_tables": ("POST", "/v1/tables"),
    "check": ("POST", "/v1/check"),
    "reload": ("POST", "/v1/reload"),
    "shutdown": ("POST", "/v1/shutdown"),
}
"""Method and path of each `op` of `request`.

Fields in braces fill the path; the other fields are the query (GET) or JSON (POST).
"""
MAX_HEAD_BYTES = 1 << 16
SWITCHES_S = 30.0
"""Longest time for which a controller that calls switches sends no answer, seconds.

The controller gives up each switch after 10 s.
"""


class UnixHttpConnection(http.client.HTTPConnection):
    """HTTP by a Unix socket, to a host that is called localhost."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Raises OSError, and JsonlError for a path that no socket can have."""
        self.sock = _connected(self._path, self.timeout)


class Northbound:
    """Client of the controller of a run folder. Threads may share it.

    `works`: JsonlClient's.
    """

    def __init__(
        self,
        run_dir: Path | str,
        *,
        name: str = "controller",
        timeout_s: float = 10.0,
        works: Callable[[], bool] | None = None,
    ) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self._works = works
        self.socket = RunFiles(run_dir).controller_socket

    def request(
        self, op: str, *, timeout_s: float | None = None, patient: bool | None = None, **fields: Any
    ) -> Message:
        """The answer to one request, a JSON object. `patient`: JsonlClient's.

        Raises JsonlPeerError when refused, JsonlTimeoutError, and JsonlError when it could not be carried.
        """
        method, path, body = self._call(op, fields)
        limit = self.timeout_s if timeout_s is None else timeout_s
        if patient is None:
            patient = timeout_s is None
        try:
            connection = UnixHttpConnection(self.socket, max(limit, 0.001))
            try:
                headers = {"Content-Type": "application/json"} if body is not None else {}
                connection.request(method, path, body, headers)
                answers = select.poll()  # select() takes no descriptor from 1024 on
                answers.register(connection.sock, select.POLLIN)
                while not answers.poll(limit * 1000):
                    works = patient and (self._works() if self._works else peer_gets_on(connection.sock))
                    # A controller at rest may have answered while it was looked at.
                    if not works and not answers.poll(0):
                        raise TimeoutError
                answer = connection.getresponse()
                status, data = answer.status, answer.read()
            finally:
                connection.close()
        except TimeoutError:
            raise JsonlTimeoutError(f"{self.name}: {op}: no answer in time") from None
        except JsonlError as error:
            raise JsonlError(f"{self.name}: {op}: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            raise JsonlError(f"{self.name}: {op}: {_reason(error, self.socket)}") from error
        return self._answer(op, status, data)

    def watch(self, *, timeout_s: float | None = None, **fields: Any) -> EventStream:
        """Open the event stream; returns when the controller has agreed. `events="fault,port"` narrows it.

        Events published after that are all in the stream. `timeout_s` is for agreeing, not for events.
        """
        limit = self.timeout_s if timeout_s is None else timeout_s
        while True:
            try:
                return EventStream(self.socket, urlencode(fields), limit, self.name)
            except TimeoutError:
                if timeout_s is not None or self._works is None or not self._works():
                    raise JsonlTimeoutError(f"{self.name}: watch: no answer in time") from None
            except OSError as error:
                raise JsonlError(f"{self.name}: watch: {_reason(error, self.socket)}") from error

    def close(self) -> None:
        """Do nothing: no connection is open between requests. Other clients have something to close."""

    def __enter__(self) -> Northbound:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _call(self, op: str, fields: dict[str, Any]) -> tuple[str, str, str | None]:
        if op not in OPERATIONS:
            raise JsonlPeerError(f"{self.name}: no op {op!r} (has: {', '.join(OPERATIONS)})", f"no op {op!r}")
        method, path = OPERATIONS[op]
        path_keys = [key for key in fields if f"{{{key}}}" in path]
        path = path.format(**{key: quote(str(fields[key]), safe="") for key in path_keys})
        parameters = {key: value for key, value in fields.items() if key not in path_keys and value is not None}
        if method == "POST":
            return method, path, json.dumps(parameters)
        return method, path + (f"?{urlencode(parameters)}" if parameters else ""), None

    def _answer(self, op: str, status: int, data: bytes) -> Message:
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise JsonlError(f"{self.name}: {op}: HTTP {status} with no JSON object (is that our controller?)")
        if status != 200:
            reason = str(answer.get("error", f"HTTP {status} without a reason"))
            cure = answer.get("cure")
            raise JsonlPeerError(f"{self.name}: {op}: {reason}" + (f": {cure}" if cure else ""), reason)
        return answer


def sources_of(fault: Message) -> list[str]:
    """Return the kinds of sources that saw a fault, without their addresses: `gnmi`, `ev`."""
    return list(dict.fromkeys(str(entry["source"]).split()[0] for entry in fault["evidence"]))


class KnownFaults:
    """Faults as they were told last: what of another record of one is news.

    A stream that broke begins anew with the active faults, so it repeats some changes and misses others: those of
    `missed` are told as if they had come. A record that is older than the one before it is passed over.
    """

    def __init__(self, *fields: str) -> None:
        """`fields`: fields of a fault whose change is told, beside its state."""
        self._fields = fields
        self._records: dict[int, Message] = {}

    def change(self, fault: Message) -> str | None:
        """Keep a record; `raised`, `updated`, `cleared` or `merged`, or None when it is no news."""
        old_record = self._records.get(fault["number"])
        if old_record is not None:
            if _age(fault) < _age(old_record):
                return None
            if fault["raised"] == old_record["raised"]:
                changed_fields = [name for name in ("state", *self._fields) if fault[name] != old_record[name]]
                if not changed_fields:
                    return None
        self._records[fault["number"]] = fault
        if fault["state"] != "active":
            return str(fault["state"])
        return "raised" if old_record is None or fault["raised"] != old_record["raised"] else "updated"

    def reconcile(self, faults: Iterable[Message]) -> Iterator[tuple[str, Message]]:
        """Keep the records of faults that were reported before; yield (change, fault) for each that is news."""
        for fault in faults:
            if fault["number"] in self._records and (change := self.change(fault)) is not None:
                yield change, fault


def _age(fault: Message) -> tuple[float, bool, float]:
    """Return the sort key of a record among those of one fault, oldest first.

    A fault may return after its end; until its end its record changes with each sighting.
    """
    return fault["raised"], fault["state"] != "active", fault["last_seen"]


class EventStream(EventReader):
    """Event stream of the controller over HTTP/1.0: events follow each other without chunk headers."""

    def __init__(self, path: Path, query: str, timeout_s: float, name: str) -> None:
        self._name, self._path = name, path
        self._socket = _connected(path, timeout_s)
        self._lines = LineBuffer()
        self._pending: list[bytes] = []
        try:
            events = "/v1/events" + (f"?{query}" if query else "")
            self._socket.sendall(f"GET {events} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            self._take_head(time.monotonic() + timeout_s)
        except BaseException:
            self._socket.close()
            raise

    def get(self, timeout_s: float | None = None) -> Message | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            while self._pending:
                line = self._pending.pop(0)
                if line.startswith(b"data:"):
                    return self._event(line)
            try:
                self._pending = self._lines.feed(self._receive(deadline))
            except TimeoutError:
                return None
            except OSError as error:
                raise JsonlError(f"{self._name}: watch: {_reason(error, self._path)}") from error

    def fileno(self) -> int:
        """Return the descriptor for `select`.

        Call `get(0)` until it returns None after each wake-up: events arrive in batches.
        """
        return self._socket.fileno()

    def close(self) -> None:
        """End the stream, also under a thread that waits in `get`. Idempotent."""
        with contextlib.suppress(OSError):  # the other side has closed already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _take_head(self, deadline: float) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            if len(head) > MAX_HEAD_BYTES:
                raise JsonlError(f"{self._name}: watch: no end of the HTTP head")
            head += self._receive(deadline)
        head, _, body = head.partition(b"\r\n\r\n")
        status = head.split(b" ", 2)[1:2]
        if status != [b"200"]:
            while len(body) < MAX_HEAD_BYTES:
                try:
                    body += self._receive(deadline)
                except (JsonlError, OSError):
                    break
            try:
                reason = str(json.loads(body)["error"])
            except (ValueError, KeyError, TypeError, RecursionError):
                reason = f"HTTP {head[:80]!r}"
            raise JsonlPeerError(f"{self._name}: watch: {reason}", reason)
        self._pending = self._lines.feed(body)

    def _receive(self, deadline: float | None) -> bytes:
        self._socket.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
        data = self._socket.recv(1 << 16)
        if not data:
            raise JsonlError(f"{self._name}: watch: the controller closed the connection (did it die? see its log)")
        return data

    def _event(self, line: bytes) -> Message:
        try:
            event = json.loads(line[5:])
        except (ValueError, RecursionError) as error:
            raise JsonlError(f"{self._name}: watch: an event that is not JSON: {error}") from error
        if not isinstance(event, dict):
            raise JsonlError(f"{self._name}: watch: an event that is no JSON object")
        return event


def _connected(path: Path, timeout_s: float | None) -> socket.socket:
    """Return a socket that is connected to `path`.

    Raises OSError, and JsonlError for a path that is too long.
    """
    check_socket_path(path)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connected.settimeout(timeout_s)
        connected.connect(str(path))
    except BaseException:
        connected.close()
        raise
    return connected


def _reason(error: Exception, path: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return f"nobody listens: {path} is missing (is the fabric up? `mrc up`)"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens at its address any more (did it die? see log/controller.log in the run folder)"
    if isinstance(error, OSError):
        return f"{error.strerror or error}"
    return f"{error or type(error).__name__}"
