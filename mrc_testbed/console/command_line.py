"""Outermost frame of commands, from import to exit: Ctrl-C, a reader that leaves, a full disk.

Ctrl-C ends the command in one line. A reader that has seen enough (`| head`) ends it without an error, as it asked for
no more. An output that cannot be written (`> /dev/full`) is one line and an exit code of its own.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

from mrc_testbed.errors import DISK_FULL_ERRNOS, EXIT_INTERRUPTED, EXIT_UNWRITTEN


class OutputStream(TextIOWrapper):
    """Standard output or error that ends the command with exit code 0 when its reader has left.

    The main thread gets SystemExit once, so that what it holds is cleaned up; later text is dropped.
    """

    _has_reader = True
    _has_ended = False

    def write(self, text: str, /) -> int:
        """Write a text. Raises SystemExit in the main thread once the reader has left."""
        return int(self._guard(super().write, text) or 0)

    def flush(self) -> None:
        """Write what is buffered. Raises SystemExit in the main thread once the reader has left."""
        self._guard(super().flush)

    def _guard(self, call: Callable[..., Any], *arguments: str) -> Any:
        answer = None
        try:
            answer = call(*arguments)
        except BrokenPipeError:
            self._has_reader = False
            drop_output(self.fileno())
        # Threads cannot end the command: the main thread does with its next text.
        if not self._has_reader and not self._has_ended and threading.current_thread() is threading.main_thread():
            self._has_ended = True
            raise SystemExit(0)
        return answer


def drop_output(descriptor: int) -> None:
    """Let a descriptor lead nowhere from now on: what is still buffered for it can be written."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _watch_readers() -> None:
    """Put an OutputStream in the place of both output streams."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is TextIOWrapper:  # else it is closed, or a test's
            encoding, errors, line_buffering = stream.encoding, stream.errors, stream.line_buffering
            stream.flush()
            guarded_stream = OutputStream(
                stream.detach(), encoding=encoding, errors=errors, line_buffering=line_buffering
            )
            setattr(sys, name, guarded_stream)
            setattr(sys, f"__{name}__", guarded_stream)


def begin(module: str, interruption: str) -> NoReturn:
    """Import `module`, which may take most of a second, and end the process with what its `main` returns.

    `interruption`: the line for standard error after Ctrl-C while it was imported, or told how it ended.
    """
    _watch_readers()
    try:
        try:
            code = import_module(module).main()
        finally:
            if sys.stdout is not None:  # closed by who started it
                sys.stdout.flush()
        sys.exit(code)
    except KeyboardInterrupt:
        print(interruption, file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        # A file has a name, and its command an answer of its own; an output stream has none.
        if error.errno not in DISK_FULL_ERRNOS or error.filename is not None:
            raise
        drop_output(1)
        program = Path(sys.argv[0]).name.replace("__main__.py", "mrc")
        message = f"{program}: error: its output: {error.strerror}. Cure: make room, or write elsewhere"
        print(message, file=sys.stderr)
        sys.exit(EXIT_UNWRITTEN)
    finally:
        # Python's own end would answer Ctrl-C with a traceback. One that is ignored, as after `&`, stays so.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
