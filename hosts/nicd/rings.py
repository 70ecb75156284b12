"""Rings in memory that a program shares: requests that it posts, and completions for it.

A program may write anything into them at any time. So each index and record is read once, checked, and used as it
was read.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from collections import deque
from functools import cache
from struct import Struct
from typing import Final

from mrc_testbed.hosts.libmrc import library
from mrc_testbed.hosts.nicd.layout import (
    ASLEEP_AT,
    COMPLETION,
    HEAD_AT,
    KIND_RECV,
    RECORD,
    SLOT_BYTES,
    SLOTS_AT,
    SQ_BYTES,
    SQ_SLOTS,
    TAIL_AT,
    RingRecord,
)

_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class RingError(Exception):
    """A program wrote what no library of ours writes."""


@cache
def _library() -> ctypes.CDLL:
    """Return libmrc, whose loads and stores are in an order: Python's own are not."""
    libmrc = ctypes.CDLL(str(library()))
    libmrc.mrc_nic_publish.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    libmrc.mrc_nic_publish.restype = None
    for name in ("mrc_nic_read", "mrc_nic_sleep"):
        function = getattr(libmrc, name)
        function.argtypes = [ctypes.c_void_p]
        function.restype = ctypes.c_uint64
    return libmrc


class _SharedMemory:
    """Memory in a sealed memfd of ours: the program can map it, and cannot change its size."""

    def __init__(self, name: str, size: int) -> None:
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
        self.memory = mmap.mmap(self.fd, size)
        self._anchor = ctypes.c_char.from_buffer(self.memory)
        self.address = ctypes.addressof(self._anchor)
        """Address in this process, for the library's functions."""

    def close(self) -> None:
        del self._anchor
        self.memory.close()
        os.close(self.fd)


class SubmissionRing:
    """Requests of a program's context, taken in order, but for receives, which come first.

    A receive must be there when its peer's packet comes, however many requests the program wrote before it.
    """

    def __init__(self) -> None:
        self.memfd = _SharedMemory("mrc-submissions", SQ_BYTES)
        self._library = _library()
        self._head = 0
        """Slots that the program may use again."""
        self._read = 0
        """Slots whose records were read, at least `_head`."""
        self._waiting: deque[tuple[RingRecord, bytes]] = deque()
        """Records that were read and still have their slots; receives among them are served already."""

    def take(self, limit: int) -> list[tuple[RingRecord, bytes]]:
        """Return all receives that are written, then up to `limit` other records.

        Each comes with the bytes behind it. Raises RingError.
        """
        records, old_head = self._read_written(), self._head
        end = len(records) + limit
        while self._waiting and len(records) < end:
            record, payload = self._waiting.popleft()
            self._head += record.slots
            if record.kind != KIND_RECV:
                records.append((record, payload))
        if self._head != old_head:
            self._library.mrc_nic_publish(self.memfd.address + HEAD_AT, self._head)
        return records

    def _read_written(self) -> list[tuple[RingRecord, bytes]]:
        """Read what was written since, and return the receives of it. Raises RingError."""
        tail = self._library.mrc_nic_read(self.memfd.address + TAIL_AT)
        if not 0 <= tail - self._read <= SQ_SLOTS - (self._read - self._head):
            raise RingError(f"tail {tail} of the submission ring, whose head is {self._head}")
        receives: list[tuple[RingRecord, bytes]] = []
        while self._read != tail:
            start = SLOTS_AT + (self._read % SQ_SLOTS) * SLOT_BYTES
            record = RingRecord(*RECORD.unpack_from(self.memfd.memory, start))
            if not 1 <= record.slots <= tail - self._read:
                raise RingError(f"record of {record.slots} slots, {tail - self._read} of which are written")
            request = record, self._bytes_behind(record.slots - 1)
            self._waiting.append(request)
            if record.kind == KIND_RECV:
                receives.append(request)
            self._read += record.slots
        return receives

    def _bytes_behind(self, slots: int) -> bytes:
        """Return the bytes of the slots behind the one that is read; they may wrap."""
        if not slots:
            return b""
        memory, first = self.memfd.memory, (self._read + 1) % SQ_SLOTS
        before_end = min(slots, SQ_SLOTS - first)
        start = SLOTS_AT + first * SLOT_BYTES
        data = memory[start : start + before_end * SLOT_BYTES]
        return data + memory[SLOTS_AT : SLOTS_AT + (slots - before_end) * SLOT_BYTES]

    def sleep(self) -> bool:
        """Ask for the doorbell at the next post; False when there are requests already."""
        if self._library.mrc_nic_sleep(self.memfd.address) == self._head:
            return True
        self.wake()
        return False

    def wake(self) -> None:
        """Ask for no doorbell: the ring is looked at anyway."""
        self._library.mrc_nic_publish(self.memfd.address + ASLEEP_AT, 0)

    def close(self) -> None:
        self.memfd.close()


class CompletionRing:
    """Completions for a program, or entries of another layout, as many as it has room for."""

    def __init__(self, entries: int, layout: Struct = COMPLETION) -> None:
        self._layout = layout
        self.slots = 1 << max(entries - 1, 1).bit_length()
        self.memfd = _SharedMemory("mrc-completions", SLOTS_AT + self.slots * SLOT_BYTES)
        self._library = _library()
        self.tail = 0

    def room(self) -> int:
        """Return the number of entries that fit. Raises RingError."""
        used_slots: int = self.tail - self._library.mrc_nic_read(self.memfd.address + HEAD_AT)
        if not 0 <= used_slots <= self.slots:
            raise RingError(f"head of a completion ring that is {used_slots} entries behind its tail")
        return self.slots - used_slots

    def write(self, *fields: int) -> None:
        """Write an entry, for which there is room: the fields of its layout."""
        self._layout.pack_into(self.memfd.memory, SLOTS_AT + (self.tail % self.slots) * SLOT_BYTES, *fields)
        self.tail += 1

    def publish(self) -> None:
        """Show the program what was written."""
        self._library.mrc_nic_publish(self.memfd.address + TAIL_AT, self.tail)

    def close(self) -> None:
        self.memfd.close()
