"""Receiver memory of a flow with known messages: payloads are compared on arrival, never stored.

Where sender and receiver are in different halves of a fabric (halves.py), each half has such a memory. Those twins
notify each other: the sender's of what to expect, the receiver's of what has come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mrc_testbed.hosts.engine.memory import PayloadSink
from mrc_testbed.hosts.engine.wire.payload import Payload, TextPart, size_of
from mrc_testbed.hosts.traffic.message_bytes import MessageBytes

NO_MESSAGE: Final = -1
"""Number of the message of a slot that expects none: any payload there is wrong."""
STATE_EXPECTS: Final = 0
STATE_INTACT: Final = 1
STATE_DAMAGE: Final = 2
"""States of a slot, of which twins notify each other.

A slot expects a message, which then has come, intact or with damage.
"""
Notify = Callable[[int, int, int], None]
"""Function that passes (slot, number of a message, state) to the twin."""


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

    __slots__ = ("_content", "_notify", "_payloads", "_size", "_slots", "_unit", "damaged_messages", "text")

    def __init__(self, content: MessageBytes, slots: int, unit_bytes: int) -> None:
        super().__init__(slots * content.size)
        self._content = content
        self.text: bytes = content.text
        self._size: int = content.size
        self._unit = unit_bytes
        self._payloads = content.size // unit_bytes + 1
        self._slots = [_Slot(NO_MESSAGE, NO_MESSAGE, content.size, self._payloads) for _ in range(slots)]
        self._notify: Notify | None = None
        self.damaged_messages: set[int] = set()
        """Numbers of messages with a payload that differed, came twice, or began or ended at a wrong offset."""

    def notify_twin(self, notify: Notify | None) -> None:
        """Pass on what happens here; None: sender and receiver use the same memory."""
        self._notify = notify

    def note(self, index: int, number: int, state: int) -> None:
        """Take what the twin passed on."""
        if state == STATE_EXPECTS:
            self._prepare(index, number)
            return
        self._slots[index].missing_bytes = 0
        if state == STATE_DAMAGE:
            self.damaged_messages.add(number)

    def _prepare(self, index: int, number: int) -> None:
        start = NO_MESSAGE if number == NO_MESSAGE else self._content.start(number)
        self._slots[index] = _Slot(number, start, self._size, self._payloads)

    def expect(self, index: int, number: int) -> None:
        """Expect message `number` in a slot."""
        self._prepare(index, number)
        if self._notify is not None:
            self._notify(index, number, STATE_EXPECTS)

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
            is_intact = data.begin == begin and data.text is self.text
        else:
            is_intact = self.text.startswith(data, begin)
        if wrong or not is_intact:
            self.damaged_messages.add(slot.number)
        has_come[index] = True
        slot.missing_bytes = missing_bytes
        if self._notify is not None and missing_bytes == 0:
            self._notify(
                start // self._size, slot.number, STATE_DAMAGE if slot.number in self.damaged_messages else STATE_INTACT
            )

    def finish(self, index: int) -> bool:
        """Return whether the message of a slot is complete and intact; the slot expects none from now on."""
        slot = self._slots[index]
        is_whole = slot.number != NO_MESSAGE and not slot.missing_bytes and slot.number not in self.damaged_messages
        self.expect(index, NO_MESSAGE)
        return is_whole

    @property
    def has_stray(self) -> bool:
        """Whether a payload came to a slot that expected no message."""
        return NO_MESSAGE in self.damaged_messages

    @property
    def placed_bytes(self) -> int:
        """Bytes of messages that are not finished."""
        return sum(self._size - slot.missing_bytes for slot in self._slots)
