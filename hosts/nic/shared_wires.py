"""Shared wires of ports: memory between this process and the switches, past the kernel.

`SharedWires` asks the switches' daemon for a wire for each port (switch/server/shared_wires.py), and again when one
has ended. What it does not get goes over the interface, as everything does where no daemon has such wires (BMv2,
`mrc up --wires veth`). The port's half in C reads and writes the wire (mrc_native.c).

Nothing here waits: a request is sent, and its answer, which wakes the loop, is looked for in a later turn.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mrc_testbed.hosts.nic.ip_packet import GUE_PORT
from mrc_testbed.hosts.nic.qpns import (
    IPV6_IN_IPV6,
    NEXT_HEADER,
    QPN_OUTER,
    QPN_PLAIN,
    UDP,
    UDP_PORT_BEFORE_QPN,
)

RETRY_S = 1.0
"""Pause before the daemon is asked again for a wire that it refused or ended."""
MAX_ANSWER_BYTES = 4096

log = logging.getLogger("mrc_testbed.hosts.nic")


def match_of(qpns: range, *, outer: bool) -> list[list[int | bool]]:
    """Return the frames of these QPNs as a daemon's `match`: MRC without a segment routing header.

    Packets to QPN 2, which each process of a host gets, and IP packets are none of them: they take the interface, as
    do those that qpns.py lets pass as strays.
    """
    qpn_offset = QPN_OUTER if outer else QPN_PLAIN
    next_header = IPV6_IN_IPV6 if outer else UDP
    return [
        [NEXT_HEADER, 1, next_header, next_header],
        [qpn_offset - UDP_PORT_BEFORE_QPN, 2, GUE_PORT, GUE_PORT, True],
        [qpn_offset + 1, 3, qpns[0], qpns[-1]],
    ]


class SharedWires:
    """Wires of ports, by plane. `interfaces`: the switches' ends; `c_port`: gives a port's half in C."""

    def __init__(
        self,
        path: Path,
        interfaces: Mapping[int, str],
        frame_bytes: int,
        match: Sequence[Sequence[int | bool]],
        c_port: Callable[[int], Any],
    ) -> None:
        self._path, self._interfaces, self._c_port = path, interfaces, c_port
        self._request = {"frame_bytes": frame_bytes, "match": match}
        self._waiting: dict[int, socket.socket] = {}
        self._open: dict[int, tuple[socket.socket, mmap.mmap]] = {}
        self._reasons: dict[int, set[str]] = {plane: set() for plane in interfaces}
        """Reasons why a plane's frames take the interface for now: it is down, or somebody captures there."""
        self._lost: dict[int, int] = {}
        """Frames that found a wire full, as of the last `take_lost`."""
        self._retry_at = 0.0
        self._epoll = select.epoll()
        self.is_incomplete = True
        """Whether a port lacks its wire, so that `advance` has something to do."""
        self.advance()

    def fileno(self) -> int:
        """Return a descriptor that is readable when a frame waits on a wire, or an answer has come."""
        return self._epoll.fileno()

    @property
    def planes(self) -> frozenset[int]:
        """Planes whose ports have a wire."""
        return frozenset(self._open)

    def advance(self) -> None:
        """Take answers that have come; ask for the wires that lack one when it is time to."""
        for plane, sock in tuple(self._waiting.items()):
            self._take_answer(plane, sock)
        now = time.monotonic()
        if now >= self._retry_at:
            self._retry_at = now + RETRY_S
            if self._path.exists():
                for plane in self._interfaces.keys() - self._waiting.keys() - self._open.keys():
                    self._send_request(plane)
        self.is_incomplete = len(self._open) < len(self._interfaces)

    def _send_request(self, plane: int) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        line = json.dumps({"interface": self._interfaces[plane], **self._request}).encode() + b"\n"
        try:
            sock.connect(str(self._path))
            sock.send(line)
        except OSError:  # nobody listens, or too many ask at once
            sock.close()
            return
        self._waiting[plane] = sock
        self._epoll.register(sock, select.EPOLLIN)

    def _take_answer(self, plane: int, sock: socket.socket) -> None:
        try:
            line, files, _, _ = socket.recv_fds(sock, MAX_ANSWER_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            line, files = b"", []
        del self._waiting[plane]
        if not files:
            log.info("%s: no shared wire: %s", self._interfaces[plane], line.decode(errors="replace").strip())
            self._forget(sock)
            return
        try:
            memory = mmap.mmap(files[0], 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            self._c_port(plane).share(sock.fileno(), memory)
        except (OSError, ValueError) as error:
            log.warning("%s: no shared wire: %s", self._interfaces[plane], error)
            self._forget(sock)
            return
        finally:
            os.close(files[0])
        self._open[plane] = sock, memory
        self._c_port(plane).close_wire(bool(self._reasons[plane]))

    def _forget(self, sock: socket.socket) -> None:
        self._epoll.unregister(sock)
        sock.close()

    def set_closed(self, plane: int, reason: str, is_closed: bool) -> None:
        """Say for one reason whether a port's frames take the interface for now."""
        reasons = self._reasons[plane]
        if is_closed:
            reasons.add(reason)
        else:
            reasons.discard(reason)
        if plane in self._open:
            self._c_port(plane).close_wire(bool(reasons))

    def take_lost(self, plane: int) -> int:
        """Return how many frames found a port's wire full since the last call."""
        if plane not in self._open:
            return 0
        old_count, self._lost[plane] = self._lost.get(plane, 0), self._c_port(plane).wire_lost()
        return int(self._lost[plane] - old_count)

    def end(self, plane: int) -> None:
        """Give a port's wire up, because the switch has; `advance` asks for another."""
        if plane in self._open:
            sock, memory = self._open.pop(plane)
            self._c_port(plane).unshare()
            self._lost.pop(plane, None)
            self._forget(sock)
            memory.close()
            self.is_incomplete = True

    def close(self) -> None:
        """Give all wires up. Idempotent."""
        for plane in tuple(self._open):
            self.end(plane)
        for sock in self._waiting.values():
            sock.close()
        self._waiting.clear()
        self._epoll.close()
