"""Socket file of a server: a dead server's is replaced, a live server's or successor's is kept."""

from __future__ import annotations

import os
import socket
from pathlib import Path

UNHEARD = "~"
"""Suffix of a socket's file until somebody listens there: whoever sees its own name is heard."""


class SocketError(Exception):
    """The socket file cannot be made; the text says why."""


def listen(path: Path) -> socket.socket:
    """Return a listening Unix socket at `path`, mode 0600, non-blocking.

    The file of a dead server is replaced.

    The file appears when it can be connected to: it is made under another name. Raises SocketError when someone listens
    there or the folder is missing.
    """
    unheard = path.with_name(path.name + UNHEARD)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        if path.exists():
            _check_dead(path)
        unheard.unlink(missing_ok=True)  # of a server that was killed in the middle of this
        old_mask = os.umask(0o177)
        try:
            server.bind(str(unheard))
        finally:
            os.umask(old_mask)
        server.listen(64)
        server.setblocking(False)
        unheard.rename(path)
    except OSError as error:
        server.close()
        raise SocketError(f"cannot listen on {path}: {error.strerror or error}") from error
    except SocketError:
        server.close()
        raise
    return server


def _check_dead(path: Path) -> None:
    if not path.is_socket():
        raise SocketError(f"cannot listen on {path}: the file there is no socket; remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return
    raise SocketError(f"cannot listen on {path}: another process answers there; stop it first")


def remove_own(path: Path, inode: int) -> None:
    """Remove the socket file at close, unless a successor has put its own there."""
    try:
        if path.stat().st_ino == inode:
            path.unlink()
    except FileNotFoundError:
        return
