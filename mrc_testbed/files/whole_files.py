"""Files that are whole or absent, however the writing process ends and however full the disk is.

Every file that a command makes is written through this module. Others are no result that could be half there: logs and
journals, which grow by lines; the cache of builds (switch/system/, native_build/), which renames what gcc made; the run
folder (`ipc.rundir.write_private`), which is gone after a crash of the machine anyway; `/proc`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import Any, BinaryIO

PART = ".part"
STEM_MAX = 40
"""Number of a file name's characters at the start of its part's name.

No part's name is too long where the file's is not.
"""
CHUNK_BYTES = 1 << 20
"""Bytes that `write_random` has in memory at once."""


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let an OSError name the file that its reader knows.

    Errors of writes name no file, and a part has a name of its own.
    """
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


class _NamedFile(FileIO):
    """A file whose writes name it when they fail."""

    def __init__(self, file: Path, mode: str, path: Path) -> None:
        self._path = path
        with _naming(path):
            super().__init__(str(file), mode)

    def write(self, data: Any, /) -> int:
        with _naming(self._path):
            return super().write(data)


@contextmanager
def whole_file(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """A file to write to, which has its name when the block has ended well, and is gone when it has not.

    `sync`: bring it to the disk, as what must outlive a crash of the machine. Raises OSError, which names `path`.
    """
    part = path.with_name(f".{path.name[:STEM_MAX]}.{os.getpid()}-{secrets.token_hex(4)}{PART}")
    try:
        with BufferedWriter(_NamedFile(part, "xb", path)) as file:
            yield file
            file.flush()
            if sync:
                with _naming(path):
                    os.fsync(file.fileno())
        with _naming(path):
            part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


class GrowingFile(_NamedFile):
    """File that is of use before it is whole, such as a capture.

    The file has all that was written up to a `flush`, or none of it.

    Its OSErrors name it.
    """

    def __init__(self, path: Path) -> None:
        self._waiting = bytearray()
        self._whole_bytes = 0
        super().__init__(path, "wb", path)

    def write(self, data: Any, /) -> int:
        self._waiting += data
        return len(data)

    def flush(self) -> None:
        data, self._waiting = memoryview(bytes(self._waiting)), bytearray()
        offset = 0
        try:
            while offset < len(data):
                offset += super().write(data[offset:])
        except OSError:
            with suppress(OSError):  # a pipe keeps what it has
                os.ftruncate(self.fileno(), self._whole_bytes)
            raise
        self._whole_bytes += offset


def write_whole(path: Path, data: bytes) -> None:
    """Whole or not at all, also when the process is killed or the disk is full. Raises OSError."""
    with whole_file(path) as file:
        file.write(data)


def write_random(path: Path, size: int) -> None:
    """Write a file of random bytes to send, or none. Raises OSError."""
    with whole_file(path, sync=False) as file:
        for begin in range(0, size, CHUNK_BYTES):
            file.write(os.urandom(min(CHUNK_BYTES, size - begin)))


def sync_folder(folder: Path) -> None:
    """Bring names of new files to the disk, too; where the file system has no such thing, nothing."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_output(path: Path, data: bytes) -> None:
    """Write a file that the user named: whole or not at all; a pipe or device (`/dev/stdout`) directly.

    Raises OSError.
    """
    if path.exists() and not path.is_file():
        with GrowingFile(path) as file:
            file.write(data)
    else:
        write_whole(path, data)
