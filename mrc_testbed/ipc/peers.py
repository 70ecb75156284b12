"""Process at the other end of a Unix socket, as the kernel knows it."""

from __future__ import annotations

import socket
import struct
from typing import Final, NamedTuple

_CREDENTIALS: Final = struct.Struct("3i")


class SocketPeer(NamedTuple):
    """Process that connected to a Unix socket, or listens there: its pid, user and group at that time."""

    pid: int
    user: int
    group: int


def peer_of(connection: socket.socket) -> SocketPeer:
    """Return the process at the other end of a connection. Raises OSError."""
    return SocketPeer(
        *_CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    )
