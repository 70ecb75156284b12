"""One line for an exception that no word of a prompt expects; the traceback goes to a log."""

from __future__ import annotations

import traceback
from pathlib import Path

from mrc_testbed.errors import DISK_FULL_ERRNOS


def unexpected_failure(line: str, error: Exception, log: Path) -> str:
    """Return the cause and cure of a full disk, and of other exceptions the log that has the traceback."""
    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
        return f"{error.filename or 'the disk'}: {error.strerror}: make room there, or write elsewhere"
    hint = f"traceback in {log}"
    try:
        with log.open("a") as out:
            traceback.print_exception(error, file=out)
    except OSError as unwritten:
        hint = f"no traceback: {log}: {unwritten.strerror}"
    return f"internal error in {line.split()[0]!r}: {type(error).__name__}: {error} ({hint})"
