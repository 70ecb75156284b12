"""Names and files that come from elsewhere: a received results folder, a manifest, a peer's request."""

from __future__ import annotations

import os
import stat
from pathlib import Path

NAME_MAX = 255
"""Bytes in a file's name, as Linux' file systems have it."""


def is_plain(name: object) -> bool:
    """Return whether a value is the name of one file within a folder, with no way up, down or elsewhere."""
    return (
        isinstance(name, str)
        and name not in ("", ".", "..")
        and not any(letter in "/\\" or not letter.isprintable() for letter in name)
        and len(os.fsencode(name)) <= NAME_MAX
    )


def read_regular(path: Path) -> bytes:
    """Return the bytes of a file that is neither a symbolic link nor a pipe or device, which never ends.

    Raises OSError.
    """
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "is no regular file", str(path))
        return file.read()
