"""Errors of the front door that are the user's: shown as one line, never as a traceback."""

from __future__ import annotations

import errno

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
INTERRUPTION = "mrc: interrupted; no process or interface of this run is left"
UNWRITTEN = 3
"""Exit code of a command that ended, and whose files the disk did not take."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)
"""What a disk says that takes nothing."""


class UsageError(Exception):
    """A mistake in the user's request; the message names the cure."""


class FullDiskError(UsageError):
    """The disk did not take what a command writes; the message names the file, the cure, and what of it is whole."""
