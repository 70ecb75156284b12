"""Door of a fabric for its guests (guests.py), served by the front process of `mrc up --allow`.

A guest can neither look into the run folder nor start a process of root. So he asks here, in the lines of
ipc/framing.py, one request a connection:

    {"op": "plan"}                 the answer has {"plan": the fabric, as in plan.json}
    {"op": "start", "host": "h0"}  the NIC process of a host is started, unless it runs; it has a socket for guests

    python -m mrc_testbed.hosts.nicd.door FOLDER HOST    asks for a start: libmrc's command for programs of guests
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from mrc_testbed.hosts.nicd import guests
from mrc_testbed.hosts.nicd.launch import START_S, ensure_nic_process, environment_of
from mrc_testbed.ipc.framing import (
    JsonlError,
    JsonlPeerError,
    LineBuffer,
    Message,
    answer_fields,
    answer_to,
    decode,
    decode_request,
    encode,
    listen,
    refusal_of,
)
from mrc_testbed.ipc.peers import peer_of
from mrc_testbed.ipc.rundir import FabricError, GuestFiles, RunFiles
from mrc_testbed.topologies.plan import Plan, PlanError

REQUEST_BYTES = 4096
"""Bytes of a request, which comes in one piece."""
REQUEST_S = 1.0
"""Longest time for a guest to ask, and to take his answer, seconds."""
MAX_CONNECTIONS = 8
"""Connections of one user at once: each has a thread of the front process."""
_RETRY_S = 0.1
log = logging.getLogger("mrc_testbed.hosts.nicd")
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@contextlib.contextmanager
def open_door(files: RunFiles, users: Collection[int]) -> Iterator[None]:
    """Serve the guests of a fabric within; nothing for a fabric without. Raises JsonlError."""
    if not users:
        yield
        return
    path = files.guests.door
    door = _Door(files, users)
    with listen(path) as listening:
        listening.setblocking(True)
        os.chmod(path, 0o666)  # the kernel says who connects; the folder is root's
        threading.Thread(target=door.accept, args=(listening,), name="door", daemon=True).start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # wakes the thread, which then ends
            path.unlink(missing_ok=True)


class _Door:
    def __init__(self, files: RunFiles, users: Collection[int]) -> None:
        self._files, self._users = files, users
        self._plan_json = files.read_plan()
        self._hosts = {host.name for host in Plan.from_json(self._plan_json).hosts}
        self._connections: Counter[int] = Counter()
        self._lock = threading.Lock()

    def accept(self, listening: socket.socket) -> None:
        """Serve each connection in a thread, until the socket is shut down."""
        while True:
            try:
                connection, _ = listening.accept()
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    return
                time.sleep(_RETRY_S)
                continue
            with contextlib.suppress(OSError):  # it has gone
                self._admit(connection)

    def _admit(self, connection: socket.socket) -> None:
        """Begin to serve a connection, or send its refusal: no more than its socket takes at once."""
        connection.settimeout(REQUEST_S)
        user = peer_of(connection).user
        reason = guests.refusal(user, self._users)
        with self._lock:
            if reason is None and self._connections[user] >= MAX_CONNECTIONS:
                reason = f"user {user} asks {MAX_CONNECTIONS} times at once, the limit. Cure: wait"
            if reason is None:
                self._connections[user] += 1
        if reason is not None:
            with connection:
                connection.sendall(encode(refusal_of({}, reason)))
            return
        threading.Thread(target=self._serve, args=(connection, user), name="guest", daemon=True).start()

    def _serve(self, connection: socket.socket, user: int) -> None:
        request: Message = {}
        try:
            with connection, contextlib.suppress(OSError):  # a guest who goes is not missed
                try:
                    # A request in pieces would let a guest keep the thread for ever.
                    request = _request_in(connection.recv(REQUEST_BYTES))
                    answer = answer_to(request, self._answer(request))
                except (JsonlError, FabricError) as error:
                    answer = refusal_of(request, str(error))
                connection.sendall(encode(answer))
        finally:
            with self._lock:
                self._connections[user] -= 1

    def _answer(self, request: Message) -> Message:
        """Carry a request out; the fields of its answer. Raises JsonlError, FabricError."""
        match request["op"]:
            case "plan":
                return {"plan": self._plan_json}
            case "start":
                self._start(str(request.get("host")))
                return {}
        raise JsonlError(f"no op {request['op']!r} (has: plan, start)")

    def _start(self, host: str) -> None:
        """Start the NIC process of a host. Raises FabricError."""
        if host not in self._hosts:
            raise FabricError(f"no host {host!r} here")
        self._files.check_host_on(host)
        try:
            ensure_nic_process(self._files, host)
        except (FabricError, OSError, ValueError) as error:  # its text may have a line of a log, which is the owner's
            log.error("for a guest: %s", error)
            raise FabricError(f"the NIC process of {host} does not start. Cure: ask the fabric's owner") from None


def _request_in(data: bytes) -> Message:
    """Return the one request of a connection. Raises JsonlError."""
    received = LineBuffer().feed(data)
    if len(received) != 1:
        raise JsonlError("a request is one line that comes in one piece")
    return decode_request(received[0])


def plan_for_guest(files: GuestFiles) -> Plan:
    """Return the fabric that this user is a guest of. Raises FabricError, where he is none too."""
    try:
        return Plan.from_json(_answer_to(files, {"op": "plan"})["plan"])
    except (KeyError, PlanError, JsonlError) as error:
        raise FabricError(f"the fabric's plan does not come as it should: {error}") from error


def guest_environment(files: GuestFiles, host: str, *, dlopen: bool = False) -> dict[str, str]:
    """Return the variables with which a guest's program finds libmrc and the device of a host (launch.py).

    Raises BuildError.
    """
    command = ["mrc_testbed.hosts.nicd.door", str(files.path), host]
    return environment_of(files.nic_socket(host), command, dlopen=dlopen)


def start_for_guest(files: GuestFiles, host: str) -> None:
    """Let the NIC process of a host be started, unless it runs. Raises FabricError, JsonlError."""
    _answer_to(files, {"op": "start", "host": host})


def _answer_to(files: GuestFiles, request: Message) -> Message:
    lines = LineBuffer()
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(START_S + 2 * REQUEST_S)
            connection.connect(str(files.door))
            with contextlib.suppress(BrokenPipeError):  # a refusal comes before the request is read
                connection.sendall(encode(request))
            while data := connection.recv(1 << 16):
                if received := lines.feed(data):
                    return answer_fields(decode(received[0]), str(request["op"]))
    except JsonlPeerError as error:
        raise FabricError(error.reason) from None
    except (FileNotFoundError, ConnectionError):
        pass
    except TimeoutError:
        raise FabricError(f"the fabric does not answer at {files.door}. Cure: ask its owner") from None
    raise FabricError(f"no fabric answers at {files.door}. Cure: `mrc up --allow` of its owner, who may be starting it")


def main(argv: list[str] | None = None) -> int:
    """Ask for the NIC process of a host (arguments: folder of the sockets for guests, host)."""
    folder, host = sys.argv[1:] if argv is None else argv
    try:
        start_for_guest(GuestFiles(Path(folder)), host)
    except (FabricError, JsonlError, OSError) as error:
        print(f"libmrc: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
