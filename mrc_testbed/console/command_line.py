"""Outermost frame of every command: Ctrl-C ends the command in one line, from first import to exit."""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import NoReturn

from mrc_testbed.errors import EXIT_INTERRUPTED


def begin(module: str, interruption: str) -> NoReturn:
    """Import `module`, which may take most of a second, and end the process with what its `main` returns.

    `interruption`: the line for standard error after Ctrl-C while it was imported, or told how it ended.
    """
    try:
        sys.exit(import_module(module).main())
    except KeyboardInterrupt:
        print(interruption, file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    finally:
        # Python's own end would answer Ctrl-C with a traceback. One that is ignored, as after `&`, stays so.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
