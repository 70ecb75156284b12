"""Receiver memory of a flow with known messages: payloads are compared on arrival, never stored."""

from __future__ import annotations

from mrc_testbed.hosts.engine.memory import PayloadSink
from mrc_testbed.hosts.engine.wire.payload import Payload, TextPart
from mrc_testbed.hosts.traffic.message_bytes import MessageBytes


class _Slot:
    """Place of one message."""

    __slots__ = ("has_come", "missing_bytes", "number", "text_start")

    def __init__(self, number: int, text_start: int, missing_bytes: int, payloads: int) -> None:
        self.number = number
        """Number of the message written here."""
        self.text_start = text_start
        """Start of the message in the text."""
        self.missing_bytes = missing_bytes
        self.has_come = bytearray(payloads)
        """1 at i: the payload came that begins at byte i * unit_bytes."""


class MessageSlots(PayloadSink):
    """`slots` messages side by side: number n is written to slot n % slots, after finish(n - slots).

    Every byte of a message has to be placed once, as `content` has it, in payloads that begin at multiples of
    `unit_bytes`, the path MTU.
    """

    __slots__ = ("_content", "_size", "_slots", "_text", "_unit", "damaged_messages")

    def __init__(self, content: MessageBytes, slots: int, unit_bytes: int) -> None:
        super().__init__(slots * content.size)
        self._content = content
        self._text: bytes = content.text
        self._size: int = content.size
        self._unit = unit_bytes
        self._slots = [self._new_slot(number) for number in range(slots)]
        self.damaged_messages: set[int] = set()
        """Numbers of messages with a payload that differed, came twice, or began or ended at a wrong offset."""

    def _new_slot(self, number: int) -> _Slot:
        return _Slot(number, self._content.start(number), self._size, self._size // self._unit + 1)

    def write(self, start: int, data: Payload) -> None:
        slot = self._slots[start // self._size]
        offset, length = start % self._size, len(data)
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
        has_come[index] = 1
        slot.missing_bytes = missing_bytes

    def finish(self, number: int) -> bool:
        """Return whether message `number` is complete and intact; free its slot for the next message."""
        index = number % len(self._slots)
        slot = self._slots[index]
        is_whole = slot.number == number and not slot.missing_bytes and number not in self.damaged_messages
        following = number + len(self._slots)
        self._slots[index] = self._new_slot(following)
        return is_whole

    @property
    def placed_bytes(self) -> int:
        """Bytes of messages that are not finished."""
        return sum(self._size - slot.missing_bytes for slot in self._slots)
