"""SIGTERM and SIGHUP end a process as Ctrl-C does: by an exception, so that clean-up runs.

One end may send several. A command that is killed at a terminal takes the session with it: its child gets the
terminal's SIGHUP and the SIGTERM that it asked for (`end_with_parent`). `kill` of a process group reaches parent and
child, and the parent hands the signal on. So what comes after the first one is no second request, and disturbs no
clean-up.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1


class SignalExit(SystemExit):
    """SIGTERM or SIGHUP came: ends the process with code 128 + signal once everything is removed."""


def terminate(number: int, _frame: FrameType | None) -> None:
    """Handle these signals: raise SignalExit, unless one is on its way already."""
    if isinstance(sys.exc_info()[1], SignalExit):
        return
    raise SignalExit(128 + number)


@contextmanager
def terminating() -> Iterator[None]:
    """Let the signals raise SignalExit inside the block (main thread only).

    A signal that is ignored (`nohup`) stays ignored.
    """
    old_handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                old_handlers[number] = signal.signal(number, terminate)
    try:
        yield
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)


def end_with_parent(number: int) -> None:
    """Ask the kernel for a signal at the end of the thread that forked this process, with 0 for none."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
