"""Bytes of the messages of a flow: what a sender posts and a receiver looks for.

A sender posts `MessageBytes(name, size).part(number)`; who gets it asks `matches(number, memory)`.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from zlib import crc32

from mrc_testbed.hosts.engine.wire.payload import TextPart

STEP = 257
"""Offset between consecutive messages in the text (modulo), so that they differ in nearly every byte."""
EXTRA_BYTES = 1 << 16
"""Bytes of the text beyond one message."""


class MessageBytes:
    """Messages of `size` bytes, as parts of one random text.

    All flows of a process share the text, which therefore stays in the CPU's caches; each flow (`name`) begins
    elsewhere in it.
    """

    def __init__(self, name: str, size: int) -> None:
        self.size = size
        self.text = _text(size + EXTRA_BYTES)
        self._view = memoryview(self.text)
        self._first = crc32(name.encode())

    def part(self, number: int) -> memoryview:
        """Return the bytes of message `number`."""
        start = self.start(number)
        return self._view[start : start + self.size]

    def text_part(self, number: int) -> TextPart:
        """Return message `number` by its offset in the text, for simulations."""
        return TextPart(self.text, self.start(number), self.size)

    def matches(self, number: int, memory: memoryview) -> bool:
        """Whether those are the bytes of message `number`, in place: two views would be compared item by item."""
        return len(memory) == self.size and self.text.startswith(memory, self.start(number))

    def start(self, number: int) -> int:
        """Return the offset of message `number` in the text."""
        return (self._first + number * STEP) % EXTRA_BYTES


@lru_cache(maxsize=4)
def _text(size: int) -> bytes:
    return Random("mrc-testbed").randbytes(size)
