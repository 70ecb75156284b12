"""Leave the terminal: `mrc up -d`, or the word `detach` at the prompt of `mrc up`.

The command forks before it makes anything. The child brings the fabric up with its output at the terminal, for `-d` in
a session of its own; once it lets go of the terminal, the parent returns. Until then every failure is shown, and the
exit code is that of the child. A fork of a front process that has threads and children would be no front process: the
children die with the thread that began them (ipc/processes.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from mrc_testbed.ipc.signals import end_with_parent

LetGo = Callable[[Path], None]
SIGN = b"1"
HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that the parent hands on to the child as long as it waits."""


def fork_front(*, prompt: bool) -> LetGo:
    """Fork, and return in the child alone; the parent waits until the child lets go, or ends, and ends.

    The result ends the parent's waiting: output goes to the log that it is called with, input is empty from then on.
    `prompt`: until then the child has the terminal, and ends with the parent; otherwise it leaves its session at once.
    Raises SystemExit in the parent, with the exit code.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(writer)
        raise SystemExit(_wait(pid, reader))
    os.close(reader)
    if prompt:
        end_with_parent(signal.SIGTERM)
        if os.getppid() != parent:  # it ended before that
            raise SystemExit(128 + signal.SIGTERM)
    else:
        os.setsid()
    return lambda log: _let_go(log, writer)


def _wait(pid: int, reader: int) -> int:
    """Wait until the child has let go or has ended; the exit code."""
    with _handing_on(pid):
        if os.read(reader, 1) == SIGN:
            return 0
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _handing_on(pid: int) -> Iterator[None]:
    """Hand signals on to the child within: in a session of its own it gets none of the terminal's."""

    def hand_on(number: int, _frame: FrameType | None) -> None:
        # A child in our session got the terminal's Ctrl-C itself.
        if number == signal.SIGINT and os.getsid(0) == _session_of(pid):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    old_handlers: dict[int, Any] = {number: signal.signal(number, hand_on) for number in HANDED_ON}
    try:
        yield
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)


def _session_of(pid: int) -> int:
    """Return the session of a process; 0 when it has ended."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _let_go(log: Path, writer: int) -> None:
    if os.getsid(0) != os.getpid():
        os.setsid()
        end_with_parent(0)
    sys.stdout.flush()
    sys.stderr.flush()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    empty = os.open(os.devnull, os.O_RDONLY)
    for source, descriptor in ((empty, 0), (out, 1), (out, 2)):
        os.dup2(source, descriptor)
    os.close(out)
    os.close(empty)
    os.chdir("/")  # or the user's folder could not be unmounted
    os.write(writer, SIGN)
    os.close(writer)
