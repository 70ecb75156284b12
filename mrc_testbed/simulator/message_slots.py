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

    __slots__ = (
        "_content",
        "_missing_bytes",
        "_numbers",
        "_payload_bits",
        "_size",
        "_text",
        "_text_starts",
        "_unit",
        "damaged_messages",
    )

    def __init__(self, content: MessageBytes, slots: int, unit_bytes: int) -> None:
        super().__init__(slots * content.size)
        self._content = content
        self._text: bytes = content.text
        self._size: int = content.size
        self._unit = unit_bytes
        self._numbers = list(range(slots))
        """Number of the message written in each slot."""
        self._text_starts: list[int] = [content.start(number) for number in range(slots)]
        """Start of each slot's message in the text."""
        self._missing_bytes = [self._size] * slots
        """Bytes still missing in each slot."""
        self._payload_bits = [0] * slots
        """Bit i: the payload came that begins at byte i * unit_bytes."""
        self.damaged_messages: set[int] = set()
        """Numbers of messages with a payload that differed, came twice, or began or ended at a wrong offset."""

    def write(self, start: int, data: Payload) -> None:
        slot = start // self._size
        offset, length = start % self._size, len(data)
        payload_bits, bit = self._payload_bits[slot], 1 << offset // self._unit
        missing_bytes = self._missing_bytes[slot] - length
        wrong = (
            payload_bits & bit
            or offset % self._unit
            or length > self._unit
            or missing_bytes < 0
            or offset + length > self._size
        )
        begin = self._text_starts[slot] + offset
        if isinstance(data, TextPart):  # equal when it is the same range of the same text
            is_intact = data.begin == begin and data.text is self._text
        else:
            is_intact = self._text.startswith(data, begin)
        if wrong or not is_intact:
            self.damaged_messages.add(self._numbers[slot])
        self._payload_bits[slot], self._missing_bytes[slot] = payload_bits | bit, missing_bytes

    def finish(self, number: int) -> bool:
        """Return whether message `number` is complete and intact; free its slot for the next message."""
        slot = number % len(self._numbers)
        whole = self._numbers[slot] == number and not self._missing_bytes[slot] and number not in self.damaged_messages
        following = number + len(self._numbers)
        self._numbers[slot], self._missing_bytes[slot] = following, self._size
        self._text_starts[slot] = self._content.start(following)
        self._payload_bits[slot] = 0
        return whole

    @property
    def placed_bytes(self) -> int:
        """Bytes of messages that are not finished."""
        return self._size * len(self._missing_bytes) - sum(self._missing_bytes)
