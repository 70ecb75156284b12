"""Receiver memory of a flow with known messages: payloads are compared on arrival, never stored."""

from __future__ import annotations

from typing import Final

from mrc_testbed.hosts.engine.memory import PayloadSink
from mrc_testbed.hosts.engine.wire.payload import Payload, TextPart, size_of
from mrc_testbed.hosts.traffic.message_bytes import MessageBytes

NO_MESSAGE: Final = -1
"""Number of the message of a slot that expects none: any payload there is wrong."""


class _Slot:
    """Place of one message."""

    __slots__ = ("has_come", "missing_bytes", "number", "text_start")

    def __init__(self, number: int, text_start: int, missing_bytes: int, payloads: int) -> None:
        self.number = number
        """Number of the message written here."""
        self.text_start = text_start
        """Start of the message in the text."""
        self.missing_bytes = missing_bytes
        self.has_come = [False] * payloads
        """True at i: the payload came that begins at byte i * unit_bytes."""


class MessageSlots(PayloadSink):
    """`slots` messages side by side, each expected, written and finished; then its slot takes another.

    Every byte of a message has to be placed once, as `content` has it, in payloads that begin at multiples of
    `unit_bytes`, the path MTU.
    """

    __slots__ = ("_content", "_payloads", "_size", "_slots", "_text", "_unit", "damaged_messages")

    def __init__(self, content: MessageBytes, slots: int, unit_bytes: int) -> None:
        super().__init__(slots * content.size)
        self._content = content
        self._text: bytes = content.text
        self._size: int = content.size
        self._unit = unit_bytes
        self._payloads = content.size // unit_bytes + 1
        self._slots = [_Slot(NO_MESSAGE, NO_MESSAGE, content.size, self._payloads) for _ in range(slots)]
        self.damaged_messages: set[int] = set()
        """Numbers of messages with a payload that differed, came twice, or began or ended at a wrong offset."""

    def expect(self, index: int, number: int) -> None:
        """Expect message `number` in a slot."""
        self._slots[index] = _Slot(number, self._content.start(number), self._size, self._payloads)

    def write(self, start: int, data: Payload) -> None:
        slot = self._slots[start // self._size]
        offset, length = start % self._size, size_of(data)
        has_come, index = slot.has_come, offset // self._unit
        missing_bytes = slot.missing_bytes - length
        wrong = (
            has_come[index]
            or offset % self._unit
            or length > self._unit
            or missing_bytes < 0
            or offset + length > self._size
        )
        begin = slot.text_start + offset
        if isinstance(data, TextPart):  # equal when it is the same range of the same text
            is_intact = data.begin == begin and data.text is self._text
        else:
            is_intact = self._text.startswith(data, begin)
        if wrong or not is_intact:
            self.damaged_messages.add(slot.number)
        has_come[index] = True
        slot.missing_bytes = missing_bytes

    def finish(self, index: int) -> bool:
        """Return whether the message of a slot is complete and intact; the slot expects none from now on."""
        slot = self._slots[index]
        is_whole = slot.number != NO_MESSAGE and not slot.missing_bytes and slot.number not in self.damaged_messages
        self._slots[index] = _Slot(NO_MESSAGE, NO_MESSAGE, self._size, self._payloads)
        return is_whole

    @property
    def has_stray(self) -> bool:
        """Whether a payload came to a slot that expected no message."""
        return NO_MESSAGE in self.damaged_messages

    @property
    def placed_bytes(self) -> int:
        """Bytes of messages that are not finished."""
        return sum(self._size - slot.missing_bytes for slot in self._slots)
