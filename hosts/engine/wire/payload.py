"""The payload of a packet: bytes, a view of them, or a place in a text that both ends know.

`TextPart` is for simulations, where packets are records and not bytes: who compares what arrived with what was sent
needs to know where in the text it stands, and no byte of it. A view of each packet's bytes is five lines of the CPU's
caches, which hundreds of hosts do not leave there, and the bytes are 64.
"""

from __future__ import annotations


class TextPart:
    """Part of `text`: `length` bytes from `begin` on.

    Stands for a buffer in EngineQueuePair.post_write, in MRC and RoCE.
    """

    __slots__ = ("begin", "length", "text")

    def __init__(self, text: bytes, begin: int, length: int) -> None:
        self.text, self.begin, self.length = text, begin, length

    def __len__(self) -> int:
        return self.length

    def __bytes__(self) -> bytes:
        return self.text[self.begin : self.begin + self.length]

    def part(self, start: int, length: int) -> TextPart:
        """Return `length` bytes from `start` on, which must be there."""
        return TextPart(self.text, self.begin + start, length)

    def release(self) -> None:
        """Do nothing; a memoryview releases its buffer here."""


Payload = bytes | memoryview | TextPart
Data = memoryview | TextPart
"""Source from which the payloads of a message are cut."""


def size_of(payload: Payload) -> int:
    """Return the bytes of a payload.

    In machine code len() of something that has one of several types is a call by name.
    """
    return payload.length if isinstance(payload, TextPart) else len(payload)


def cut(data: Data, start: int, length: int) -> Payload:
    """Return `length` bytes of a message from `start` on, not copied; they must be there."""
    return data.part(start, length) if isinstance(data, TextPart) else data[start : start + length]


def buffer_of(payload: Payload) -> bytes | memoryview:
    """Return a payload as bytes, to be put on a wire."""
    return bytes(payload) if isinstance(payload, TextPart) else payload
