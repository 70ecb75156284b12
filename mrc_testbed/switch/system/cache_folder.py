"""The folder of what is made once and used again: builds, grammar tables, compiled modules, durations.

Everybody who imports the engine imports this: it must stay light.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from mrc_testbed.switch.system import ownership

DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)
"""Errors of a disk that takes nothing."""
_NO_HOME = Path("/nonexistent")
"""Home of a user without one, by Debian's convention.

The cache is not stored there, and its error names the folder.
"""


class BuildError(Exception):
    """A tool is missing, the cache cannot be used, or code did not compile; the message says the cure."""


class FullCacheError(BuildError):
    """The disk of the cache did not take a build; the message names folder and cure."""


def cache_dir() -> Path:
    """$MRC_CACHE_DIR or ~/.cache/mrc-testbed, whether it is there or not."""
    home = Path(os.path.expanduser("~"))  # as it stands where neither HOME nor the list of users knows it
    return Path(os.environ.get("MRC_CACHE_DIR") or (home if home.is_absolute() else _NO_HOME) / ".cache/mrc-testbed")


def safe_cache_dir() -> Path:
    """Return the cache folder, created if it is missing.

    Raises BuildError when it cannot be created or another user could change it.
    """
    path = cache_dir()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = ownership.refusal(path)
    except OSError as error:
        raise unwritten(path, error) from None
    if reason is not None:
        raise BuildError(f"a cache that another user could change is not used: {reason}, or set MRC_CACHE_DIR")
    return path


def unwritten(path: Path | str, reason: OSError | str) -> BuildError:
    """Return the error of a file or folder of the cache that cannot be written.

    `reason` may be the words of gcc.
    """
    text = str(reason)
    for word in map(
        os.strerror, DISK_FULL_ERRORS
    ):  # in the text: shutil.Error has no number, and one reason for each file
        if word in text:
            return FullCacheError(f"{path}: {word}: make room there, or set MRC_CACHE_DIR to another folder")
    reason_text = (reason.strerror if isinstance(reason, OSError) else None) or text
    return BuildError(f"{path}: {reason_text}: set MRC_CACHE_DIR to a folder that can be written")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file of the cache: other processes see all of it or nothing. Raises OSError, which names it."""
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise


@contextlib.contextmanager
def cache_lock(name: str, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a lock of the cache; `waiting` is called if another process has it.

    The kernel releases the lock when its holder dies.

    Raises BuildError.
    """
    path = safe_cache_dir() / f"{name}.lock"
    try:
        file = path.open("w")
    except OSError as error:
        raise unwritten(path, error) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
