"""Facts about processes, read from /proc, and ending them without ever hitting a stranger.

A pid alone names nothing: it is reused. A process is ours when its start time is the one we recorded or its
environment carries the token of our run; the check is made on a pidfd, which keeps meaning that process only.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_PROC = Path("/proc")
_TCP_LISTEN = "0A"


def start_time(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; None when it is gone.

    A zombie has one too: its threads may still be closing sockets and interfaces (`kill` waits for them).
    """
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the command before it may hold spaces and parentheses
    return int(fields[19])


def command(pid: int) -> str:
    """Command line of a process, or "?" when it cannot be read."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "?"
    return " ".join(word.decode(errors="replace") for word in words if word) or "?"


def has_environment(pid: int, variable: str) -> bool:
    """`variable` is `NAME=value`: is it in the environment the process was started with?"""
    try:
        return variable.encode() in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def pids() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]


def lineage() -> set[int]:
    """This process and its ancestors: never to be ended by us."""
    out: set[int] = set()
    pid = os.getpid()
    while pid and pid not in out:
        out.add(pid)
        try:
            text = (_PROC / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            break
        pid = int(text.rpartition(")")[2].split()[1])
    return out


def with_environment(variable: str) -> list[int]:
    """Processes that carry `NAME=value`, except this one and its ancestors."""
    spared = lineage()
    return [pid for pid in pids() if pid not in spared and has_environment(pid, variable)]


def kill(candidates: Iterable[int], is_ours: Callable[[int], bool], wait_s: float = 5.0) -> list[int]:
    """SIGKILL those of `candidates` that are still ours and wait until they are gone; returns those that were alive.

    `is_ours` is asked while a pidfd holds the process, so that a reused pid is never hit. Gone means that all of
    its threads have ended and its files are closed; it may remain a zombie.
    Raises TimeoutError naming a process that did not go in `wait_s` seconds.
    """
    held: dict[int, int] = {}
    try:
        for pid in candidates:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            held[pid] = fd
            if not is_ours(pid) or _has_ended(fd):
                os.close(held.pop(pid))
        for fd in held.values():
            try:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            except ProcessLookupError:
                continue
        _wait_gone(held, wait_s)
    finally:
        for fd in held.values():
            os.close(fd)
    return list(held)


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _wait_gone(held: dict[int, int], wait_s: float) -> None:
    """A pidfd turns readable when its process has ended."""
    poll = select.poll()
    waiting = {fd: pid for pid, fd in held.items()}
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    deadline = time.monotonic() + wait_s
    while waiting:
        ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        for fd, _ in ready:
            poll.unregister(fd)
            del waiting[fd]
        if not ready:
            pid = next(iter(waiting.values()))
            raise TimeoutError(f"pid {pid} ({command(pid)}) did not end in {wait_s:g} s after SIGKILL")


def listener_of(port: int) -> tuple[int, str] | None:
    """(pid, command) of the process that listens on a TCP port of this namespace; None when there is none.

    pid 0 stands for a holder whose descriptors cannot be read.
    """
    inodes = set()
    for name in ("tcp", "tcp6"):
        try:
            rows = (_PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in (row.split() for row in rows):
            if fields[3] == _TCP_LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return None
    for pid in pids():
        try:
            files = [os.readlink(entry.path) for entry in os.scandir(_PROC / str(pid) / "fd")]
        except OSError:
            continue
        if not inodes.isdisjoint(files):
            return pid, command(pid)
    return 0, "?"
