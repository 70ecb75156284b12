"""Receiver memory of a flow with known messages: payloads are compared on arrival, never stored."""

from __future__ import annotations

from mrc_testbed.hosts.engine.memory import PayloadSink
from mrc_testbed.hosts.engine.wire.payload import Payload, TextPart
from mrc_testbed.hosts.traffic.message_bytes import MessageBytes


class MessageSlots(PayloadSink):
    """`slots` messages side by side: number n is written to slot n % slots, after finish(n - slots).

    Every byte of a message has to be placed once, as `content` has it, in payloads that begin at multiples of
    `unit_bytes`, the path MTU.
    """

    __slots__ = ("_begins", "_content", "_missing", "_numbers", "_seen", "_size", "_text", "_unit", "damaged")

    def __init__(self, content: MessageBytes, slots: int, unit_bytes: int) -> None:
        super().__init__(slots * content.size)
        self._content = content
        self._text: bytes = content.text
        self._size: int = content.size
        self._unit = unit_bytes
        self._numbers = list(range(slots))
        """Number of the message written in each slot."""
        self._begins: list[int] = [content.start(number) for number in range(slots)]
        """Start of each slot's message in the text."""
        self._missing = [self._size] * slots
        """Bytes still missing in each slot."""
        self._seen = [0] * slots
        """Bit i: the payload came that begins at byte i * unit_bytes."""
        self.damaged: set[int] = set()
        """Messages of which a payload was not what was sent, came twice, or began or ended where none does."""

    def write(self, start: int, data: Payload) -> None:
        slot = start // self._size
        offset, length = start % self._size, len(data)
        seen, bit = self._seen[slot], 1 << offset // self._unit
        left = self._missing[slot] - length
        wrong = seen & bit or offset % self._unit or length > self._unit or left < 0 or offset + length > self._size
        begin = self._begins[slot] + offset
        if isinstance(data, TextPart):  # it is what it should be when it stands there in the same text
            right = data.begin == begin and data.text is self._text
        else:
            right = self._text.startswith(data, begin)
        if wrong or not right:
            self.damaged.add(self._numbers[slot])
        self._seen[slot], self._missing[slot] = seen | bit, left

    def finish(self, number: int) -> bool:
        """Whether message `number` is there, whole and as it was sent; the one after it may come to its slot."""
        slot = number % len(self._numbers)
        whole = self._numbers[slot] == number and not self._missing[slot] and number not in self.damaged
        following = number + len(self._numbers)
        self._numbers[slot], self._missing[slot] = following, self._size
        self._begins[slot] = self._content.start(following)
        self._seen[slot] = 0
        return whole

    @property
    def placed_bytes(self) -> int:
        """Bytes of messages that are not finished."""
        return self._size * len(self._missing) - sum(self._missing)
