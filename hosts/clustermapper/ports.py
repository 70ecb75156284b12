"""Packet sockets of all hosts' ports, opened in their network namespaces by a process outside.

A socket belongs to the namespace in which it was opened. So the (single-threaded) process enters each namespace for a
moment and comes back. Which namespaces: `hosts.json` in the run folder, {"h0": pid of a process inside}.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from mrc_testbed.hosts.clustermapper.packets import (
    SO_ATTACH_FILTER,
    NotOursError,
    PortIdentity,
    ReturnedProbe,
    filter_option,
    read,
)
from mrc_testbed.topologies.plan import DEVICE_MTU

CLONE_NEWNET = 0x4000_0000
ETH_P_IPV6 = 0x86DD
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
SO_TIMESTAMPNS = 35
RECEIVE_BYTES = 512
BATCH = 512
"""Frames taken from a port in one go at most: it must not keep the others waiting."""
_TIMESPEC = struct.Struct("=qq")
NO_BUFFER = frozenset((errno.EAGAIN, errno.ENOMEM))
"""Errors of a send that come from this machine's memory, not from the port."""


class PortsError(Exception):
    """A port cannot be opened; the message names host, interface, cause and cure."""


@dataclass(slots=True)
class ProbePort:
    """One NIC port. Counters are frames since the start."""

    host: str
    plane: int
    interface: str
    identity: PortIdentity
    socket: socket.socket
    not_sent: Counter[str] = field(default_factory=Counter)
    refused_frames: Counter[str] = field(default_factory=Counter)
    """Frames that were no whole probe of ours, by why."""

    def send(self, frame: bytearray) -> int:
        """Put a frame on the wire; 0, or the error number. A port that is down loses it, as a cut cable does."""
        try:
            self.socket.send(frame)
        except OSError as error:
            number = error.errno or errno.EIO
            self.not_sent[os.strerror(number)] += 1
            return number
        return 0

    def receive(self, key: bytes, wall_offset_ns: int) -> Iterator[tuple[ReturnedProbe, float]]:
        """Probes that wait, each with its RTT in seconds; `wall_offset_ns`: CLOCK_REALTIME - CLOCK_MONOTONIC."""
        for _ in range(BATCH):
            try:
                frame, extra, _, _ = self.socket.recvmsg(RECEIVE_BYTES, 64)
            except BlockingIOError:
                return
            except OSError:  # ENETDOWN after a cut: reported once, then the socket works on
                continue
            try:
                probe = read(frame, self.identity, key)
            except NotOursError as reason:
                self.refused_frames[str(reason)] += 1
                continue
            yield probe, self._rtt(probe, extra, wall_offset_ns)

    @staticmethod
    def _rtt(probe: ReturnedProbe, extra: list[tuple[int, int, bytes]], wall_offset_ns: int) -> float:
        """Return the RTT by the kernel's receive time, without the delay of reading; seconds.

        A wall clock that was set meanwhile is detected.
        """
        now = time.monotonic_ns()
        arrival_ns = now
        for level, kind, data in extra:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
                seconds, nanoseconds = _TIMESPEC.unpack_from(data)
                arrival_ns = seconds * 1_000_000_000 + nanoseconds - wall_offset_ns
        if not probe.sent_ns <= arrival_ns <= now:
            arrival_ns = now
        return max(arrival_ns - probe.sent_ns, 0) / 1e9


def wall_offset_ns() -> int:
    """CLOCK_REALTIME - CLOCK_MONOTONIC, nanoseconds."""
    return time.time_ns() - time.monotonic_ns()


def open_port(host: str, plane: int, interface: str, identity: PortIdentity, code: bytes) -> ProbePort:
    """Open a packet socket on an interface of the current namespace; raises PortsError."""
    try:
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, 0)
    except PermissionError:
        raise PortsError(f"{interface}: no permission for a packet socket: run as root (CAP_NET_RAW)") from None
    try:
        value, _kept_buffer = filter_option(code)
        sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, value)
        sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * DEVICE_MTU)
        sock.bind((interface, ETH_P_IPV6))
    except OSError as error:
        sock.close()
        raise PortsError(f"{host}: {interface}: cannot open it: {error.strerror or error}") from error
    return ProbePort(host, plane, interface, identity, sock)


@contextlib.contextmanager
def network_namespace(pid: int) -> Iterator[None]:
    """Enter the network namespace of a process. Raises PortsError.

    A process that cannot return to its own namespace must end.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(descriptor: int) -> None:
        if libc.setns(descriptor, CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    try:
        home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise PortsError(f"cannot open our own namespace: {error.strerror}") from error
    try:
        try:
            namespace_fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise PortsError(f"no network namespace of pid {pid}: {error.strerror}: is the fabric up?") from error
        try:
            enter(namespace_fd)
        except OSError as error:
            raise PortsError(
                f"cannot enter the network namespace of pid {pid}: {error.strerror}: run as root"
            ) from error
        finally:
            os.close(namespace_fd)
        try:
            yield
        finally:
            # Not caught: in a foreign namespace the process may not go on.
            enter(home)
    finally:
        os.close(home)
