"""Processes of this machine: identity, environment, listeners; and a kill that never hits a stranger.

A pid alone names nothing: it is reused. A process is ours when its start time is the one we recorded or its
environment carries the token of our run; the check is made on a pidfd, which keeps meaning that process only.
psutil reads the rest, but not these two: its create_time() moves with the wall clock, and it kills by pid.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
KILLED_S = 30.0
"""Time within which a killed process has gone, seconds.

On a slow machine closing hundreds of interfaces takes long.
"""
ThreadSeconds = dict[str, tuple[float, float]]
"""Thread -> (CPU time so far, time ready to run without a CPU), seconds."""


def start_time(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; None when it is gone.

    A zombie has one too: its threads may still be closing sockets and interfaces (`kill` waits for them).
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the command before it may hold spaces and parentheses
    return int(fields[19])


def is_zombie(pid: int) -> bool:
    """Whether a process has ended, and its parent has not asked how."""
    return _state(pid) == "Z"


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal or a debugger."""
    return _state(pid) in ("T", "t")


def _state(pid: int) -> str:
    """Return the kernel's letter for the state of a process; nothing when the process has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its threads so far, seconds. Raises OSError when it is gone."""
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def tree(pid: int) -> list[int]:
    """A process and all that it started, as far as they live."""
    pids, pending = [], [pid]
    while pending:
        pids.append(parent := pending.pop())
        try:
            for task in Path(f"/proc/{parent}/task").iterdir():
                pending += map(int, (task / "children").read_text().split())
        except OSError:  # it has ended, or the kernel does not tell
            continue
    return pids


def tree_seconds(pid: int) -> list[float]:
    """Return the CPU time so far of each process of a tree, seconds; a process that has gone is left out.

    The time of a process includes that of its children that have ended.
    """
    out = []
    for member in tree(pid):
        try:
            fields = Path(f"/proc/{member}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        out.append(sum(map(int, fields[11:15])) * TICK_S)
    return out


def is_ready_to_run(pid: int) -> bool:
    """Whether a thread of its tree runs, waits for a CPU, or for a disk."""
    for member in tree(pid):
        try:
            for task in Path(f"/proc/{member}/task").iterdir():
                if (task / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "RD":
                    return True
        except OSError:
            continue
    return False


def thread_seconds(pid: int) -> ThreadSeconds:
    """Return the times of each thread of a process; nothing when the process has gone.

    Waits are 0 where the kernel does not count them.
    """
    out = {}
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            try:
                wait_s = int((task / "schedstat").read_text().split()[1]) / 1e9
            except FileNotFoundError:
                wait_s = 0.0
            out[task.name] = ((int(fields[11]) + int(fields[12])) * TICK_S, wait_s)
    except (OSError, ValueError, IndexError):
        pass
    return out


def command(pid: int) -> str:
    """Command line of a process, or "?" when it cannot be read."""
    try:
        return " ".join(word for word in psutil.Process(pid).cmdline() if word) or "?"
    except (psutil.Error, OSError):
        return "?"


def has_environment(pid: int, variable: str) -> bool:
    """Whether a process was started with `variable`, `NAME=value`, in its environment."""
    name, _, value = variable.partition("=")
    try:
        return psutil.Process(pid).environ().get(name) == value
    except (psutil.Error, OSError):
        return False


def lineage() -> set[int]:
    """Return the pids of this process and its ancestors, which must never be killed."""
    process = psutil.Process()
    return {process.pid, *(parent.pid for parent in process.parents())}


def with_environment(variable: str) -> list[int]:
    """Processes that carry `NAME=value`, except this one and its ancestors."""
    own_pids = lineage()
    return [pid for pid in psutil.pids() if pid not in own_pids and has_environment(pid, variable)]


def kill(candidates: Iterable[int], is_ours: Callable[[int], bool], wait_s: float = KILLED_S) -> list[int]:
    """SIGKILL those of `candidates` that are still ours, wait until they are gone, and return their pids.

    The result holds those that were alive.

    `is_ours` is called while a pidfd holds the process, so that a reused pid is never hit. Gone means that all of
    its threads have ended and its files are closed; it may remain a zombie.
    Raises TimeoutError naming a process when none went for `wait_s` seconds.
    """
    pidfds: dict[int, int] = {}
    try:
        for pid in candidates:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            pidfds[pid] = fd
            if not is_ours(pid) or _has_ended(fd):
                os.close(pidfds.pop(pid))
        for fd in pidfds.values():
            try:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            except ProcessLookupError:
                continue
        _wait_gone(pidfds, wait_s)
    finally:
        for fd in pidfds.values():
            os.close(fd)
    return list(pidfds)


def kill_all(is_ours: Callable[[int], bool], wait_s: float = KILLED_S) -> list[str]:
    """SIGKILL the processes that are ours until none is left; return `pid 7 (command)` of each.

    Raises TimeoutError naming a process when none went for `wait_s` seconds.
    """
    descriptions: list[str] = []
    handled_pids: set[int] = set()
    # A process may have forked while it was killed: look again until no new one is there.
    while pids := [pid for pid in psutil.pids() if pid not in handled_pids and is_ours(pid)]:
        handled_pids.update(pids)
        commands = {pid: command(pid) for pid in pids}
        descriptions += [f"pid {pid} ({commands[pid]})" for pid in kill(pids, is_ours, wait_s)]
    return descriptions


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _wait_gone(pidfds: dict[int, int], wait_s: float) -> None:
    """A pidfd turns readable when its process has ended."""
    poll = select.poll()
    waiting = {fd: pid for pid, fd in pidfds.items()}
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    while waiting:
        events = poll.poll(wait_s * 1000)  # anew after each that has gone: many take long on a slow machine
        for fd, _ in events:
            poll.unregister(fd)
            del waiting[fd]
        if not events:
            pid = next(iter(waiting.values()))
            raise TimeoutError(f"pid {pid} ({command(pid)}) did not end in {wait_s:g} s after SIGKILL")


def listener_of(port: int) -> tuple[int, str] | None:
    """(pid, command) of the process that listens on a TCP port of this namespace; None when there is none.

    pid 0 stands for a holder whose descriptors cannot be read.
    """
    listening = (
        net_connection
        for net_connection in psutil.net_connections("tcp")
        if net_connection.status == psutil.CONN_LISTEN
    )
    pids = [listener.pid or 0 for listener in listening if listener.laddr and listener.laddr.port == port]
    if not pids:
        return None
    return max(pids), command(max(pids)) if max(pids) else "?"
