"""Requests and replies on a program's socket, with their descriptors."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from struct import Struct

from mrc_testbed.hosts.nicd.layout import HEAD, MAGIC, MAX_TEXT, MAX_VALUES

_MAX_FDS = 4
_SO_SNDBUFFORCE = 32
_EVENT_BYTES = 8 << 20
"""Kernel memory for events that a program has not read, with the kernel's own bytes."""
_MAX_BYTES = HEAD.size + 8 * MAX_VALUES + MAX_TEXT


class MessageError(Exception):
    """A program sent what no library of ours sends."""


class ForeignFileError(MessageError):
    """A program sent a descriptor of something else than memory."""


@dataclass
class ProgramRequest:
    """A request of a program. Descriptors are the receiver's to close."""

    operation: int
    values: tuple[int, ...]
    fds: list[int] = field(default_factory=list)


@dataclass
class Reply:
    """Reply to a request: values and descriptors, or an errno with its reason."""

    values: Sequence[int] = ()
    fds: Sequence[int] = ()
    sent_fds: Sequence[int] = ()
    """Descriptors of `fds` that are the program's alone: closed here once they are sent."""
    errno: int = 0
    text: str = ""


def receive(program: socket.socket) -> ProgramRequest | None:
    """Return the next request; None when the program has ended.

    Raises MessageError (ForeignFileError), and BlockingIOError where there is no request.
    """
    try:
        data, control, flags, _ = program.recvmsg(
            _MAX_BYTES + 1, socket.CMSG_SPACE(4 * _MAX_FDS), socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionError:
        return None
    fds = array.array("i")
    for level, kind, part in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(part[: len(part) - len(part) % fds.itemsize])
    if not all(_is_memory(fd) for fd in fds):
        # A file system of the program's own (FUSE) lets whoever closes its file wait, without end if it likes.
        threading.Thread(target=close_all, args=(fds,), name="foreign files", daemon=True).start()
        raise ForeignFileError("descriptors that are no memory")
    if not data:
        close_all(fds)
        return None
    try:
        return ProgramRequest(*_parse(data, flags), list(fds))
    except MessageError:
        close_all(fds)
        raise


def _is_memory(fd: int) -> bool:
    """Whether a descriptor is of memory (memfd), found out without asking the file's own file system."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS) >= 0
    except OSError:
        return False


def _parse(data: bytes, flags: int) -> tuple[int, tuple[int, ...]]:
    if len(data) < HEAD.size:
        raise MessageError(f"request of {len(data)} bytes, less than its header of {HEAD.size}")
    magic, operation, count, text_bytes = HEAD.unpack_from(data)
    if magic != MAGIC or count > MAX_VALUES or text_bytes or len(data) != HEAD.size + 8 * count:
        raise MessageError(f"request of {len(data)} bytes with magic {magic:#x} and {count} values")
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        raise MessageError("request cut off: too many bytes or descriptors")
    return operation, Struct(f"<{count}Q").unpack_from(data, HEAD.size)


def send(program: socket.socket, reply: Reply) -> None:
    """Send a reply. Raises OSError when the program does not read its replies, or has ended."""
    text = reply.text.encode()[:MAX_TEXT]
    head = HEAD.pack(MAGIC, reply.errno, len(reply.values), len(text))
    values = Struct(f"<{len(reply.values)}Q").pack(*reply.values)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", reply.fds))] if reply.fds else []
    program.sendmsg([head, values, text], rights, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)


def event_socket(kind: int = socket.SOCK_SEQPACKET) -> tuple[socket.socket, int]:
    """Return our end of a socket, and the program's, which waits unless it sets O_NONBLOCK."""
    own_end, program_end = socket.socketpair(socket.AF_UNIX, kind)
    own_end.setblocking(False)
    with suppress(OSError):  # without privilege the system's own limit holds
        own_end.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _EVENT_BYTES)
    return own_end, program_end.detach()


def close_all(fds: Sequence[int]) -> None:
    """Close descriptors; those that are closed already do not matter."""
    for fd in fds:
        with suppress(OSError):
            os.close(fd)
