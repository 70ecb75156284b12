"""Files that are whole or not there, whatever ends the process that writes them, and however full the disk is."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

PART = ".part"


def write_whole(path: Path, data: bytes) -> None:
    """Whole or not at all, also when the process is killed or the disk is full: written aside, synced, renamed.

    Raises OSError.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{PART}")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)  # a write names no file
        raise


def sync_folder(folder: Path) -> None:
    """Bring names of new files to the disk, too; where the file system has no such thing, nothing."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def write_output(path: Path, data: bytes) -> None:
    """Write a file that the user named: whole or not at all, but a pipe or a device, as `/dev/stdout`, as it is.

    Raises OSError.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(data)
    else:
        write_whole(path, data)
