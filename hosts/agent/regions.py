"""Memory regions of one host's agent: plain memory, mapped files, and files being received.

A file being received is written to `NAME.part` beside its final name and takes that name only when its SHA-256
is right, so that a reader never meets half a file. Room for it is allocated first: a full disk is an error here,
not a SIGBUS in the middle of a transfer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import itertools
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mrc_testbed.hosts.engine.endpoint import Endpoint
    from mrc_testbed.hosts.engine.memory import EngineMemoryRegion

MAX_REGION_BYTES = 1 << 36
"""64 GiB: beyond that a length is taken for a mistake."""
HASH_STEP_BYTES = 1 << 20
"""Bytes hashed in one step, about 3 ms; the network gets its turn between steps."""


class RegionError(ValueError):
    """Use of a region that does not exist or cannot be created; the message names the cure."""


@dataclass(slots=True)
class Region:
    """Memory region: `number` names it on the management network, `memory` is its engine registration."""

    number: int
    memory: EngineMemoryRegion
    length: int
    path: Path | None = None
    """The file behind it, if any."""
    final_path: Path | None = None
    """Name that `path` gets when the file is complete; None unless it is being received."""
    mapping: mmap.mmap | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "region": self.number,
            "length": self.length,
            "va": self.memory.va,
            "rkey": self.memory.rkey,
            "path": None if self.path is None else str(self.path),
        }


class Regions:
    """All regions of one agent."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._regions: dict[int, Region] = {}
        self._numbers = itertools.count(1)

    def __iter__(self) -> Iterator[Region]:
        return iter(self._regions.values())

    def get(self, number: int) -> Region:
        """Return the region of that number; raises RegionError that lists those that exist."""
        try:
            return self._regions[number]
        except KeyError:
            known = ", ".join(map(str, self._regions)) or "none"
            raise RegionError(f"no region {number} (has: {known})") from None

    def add_memory(self, length: int) -> Region:
        """Register `length` bytes of zeroed memory. Raises RegionError."""
        _check_length(length)
        try:
            return self._add(bytearray(length), length)
        except MemoryError:
            raise RegionError(f"no memory for a region of {length} bytes") from None

    def add_buffer(self, buffer: memoryview) -> Region:
        """Register a writable buffer that its caller owns and keeps. Raises RegionError."""
        _check_length(len(buffer))
        return self._add(buffer, len(buffer))

    def add_file(self, path: Path, length: int | None, create: bool) -> Region:
        """Map a file shared: all of an existing one, or a new one of `length` zero bytes with `create`.

        Raises RegionError; an existing file is never changed in length.
        """
        if create:
            if length is None:
                raise RegionError(f"{path}: `create` needs a length in bytes")
            return self._map(path, _make_file(path, length), length)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise RegionError(f"{path}: {error.strerror}") from error
        size = os.fstat(descriptor).st_size
        if length is not None and length > size:
            os.close(descriptor)
            raise RegionError(f"{path}: {size} bytes, fewer than the {length} requested")
        return self._map(path, descriptor, size if length is None else length)

    def receive_file(self, final_path: Path, length: int) -> Region:
        """Allocate room for a file of `length` bytes that will be named `final_path`. Raises RegionError."""
        if final_path.is_dir():
            raise RegionError(f"{final_path}: is a folder; give the name of a file in it")
        part = final_path.with_name(final_path.name + ".part")
        if any(region.path == part for region in self):
            raise RegionError(f"{final_path}: is being received already; wait, or give another dest_path")
        with contextlib.suppress(OSError):  # if the folder cannot be made, opening the file says why
            final_path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError, ValueError):  # of a transfer that was killed, or prepared by somebody else
            part.unlink()
        descriptor = _make_file(part, length)
        if length == 0:
            os.close(descriptor)
            region = self._add(bytearray(1), 0)
            region.path = part
        else:
            region = self._map(part, descriptor, length)
        region.final_path = final_path
        return region

    def commit(self, region: Region) -> Path:
        """Give a received file its name and forget the region. Raises RegionError."""
        if region.final_path is None or region.path is None:
            raise RegionError(f"region {region.number} is no file being received")
        self._forget(region)
        try:
            os.replace(region.path, region.final_path)
        except OSError as error:
            raise RegionError(f"{region.final_path}: {error.strerror}") from error
        return region.final_path

    def remove(self, region: Region) -> None:
        """Deregister; a file being received is deleted, any other keeps what was written to it."""
        self._forget(region)
        if region.final_path is not None and region.path is not None:
            region.path.unlink(missing_ok=True)

    def discard(self, region: Region) -> None:
        """Remove a region, unless it has been removed."""
        if self._regions.get(region.number) is region:
            self.remove(region)

    def close(self) -> None:
        """Remove every region."""
        for region in list(self):
            self.remove(region)

    async def sha256(self, region: Region) -> str:
        """Return the hexadecimal SHA-256 of a region, hashed step by step between turns of the loop.

        Raises RegionError when the region is removed meanwhile.
        """
        digest = hashlib.sha256()
        for start in range(0, region.length, HASH_STEP_BYTES):
            if self._regions.get(region.number) is not region:
                raise RegionError(f"region {region.number} was removed while it was hashed")
            digest.update(region.memory.view[start : min(start + HASH_STEP_BYTES, region.length)])
            await asyncio.sleep(0)
        return digest.hexdigest()

    def _map(self, path: Path, descriptor: int, length: int) -> Region:
        try:
            _check_length(length)
            mapping = mmap.mmap(descriptor, length, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except (OSError, ValueError) as error:
            raise RegionError(f"{path}: cannot map it: {error}") from error
        finally:
            os.close(descriptor)
        region = self._add(mapping, length)
        region.path, region.mapping = path, mapping
        return region

    def _add(self, buffer: Any, length: int) -> Region:
        memory = self._endpoint.register(buffer)
        region = Region(next(self._numbers), memory, length)
        self._regions[region.number] = region
        return region

    def _forget(self, region: Region) -> None:
        del self._regions[region.number]
        self._endpoint.deregister(region.memory)
        if region.mapping is not None:
            # Closed when the last view of it goes; a write still queued from this region keeps it.
            region.memory.view.release()
            with contextlib.suppress(BufferError):
                region.mapping.close()


def _check_length(length: int) -> None:
    if not 1 <= length <= MAX_REGION_BYTES:
        raise RegionError(f"a region has 1 to {MAX_REGION_BYTES} bytes; got {length}")


def _make_file(path: Path, length: int) -> int:
    """Return a descriptor of a new file, for its owner alone, with `length` bytes allocated.

    Raises RegionError and leaves nothing behind.
    """
    if not 0 <= length <= MAX_REGION_BYTES:
        raise RegionError(f"{path}: a file has 0 to {MAX_REGION_BYTES} bytes; got {length}")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        hint = "; choose another name or leave out `create`" if error.errno == errno.EEXIST else ""
        raise RegionError(f"{path}: {error.strerror}{hint}") from error
    try:
        if length:
            os.ftruncate(descriptor, length)  # before: a tmpfs gives huge pages to what is within the size of the file
            os.posix_fallocate(descriptor, 0, length)
    except OSError as error:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        has = os.statvfs(path.parent)
        raise RegionError(
            f"{path}: no room for {length} bytes ({has.f_bavail * has.f_frsize} free there): {error.strerror}; send "
            "less, or give a dest_path elsewhere; MRC_DATA_IN_MEMORY=0 when the fabric starts keeps its data/ on disk"
        ) from error
    return descriptor
