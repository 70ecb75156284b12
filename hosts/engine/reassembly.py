"""Whether the packets of a message make up the message: the responder reads them once more, in order of PSN.

Payload is placed in the order it arrives, so that a packet alone can be right while its message is not: ten bytes that
announce a thousand, a hole in the addresses, a MIDDLE of another message. Such a message must not complete. What
arrives above a hole is therefore remembered in a few numbers (no payload) until cack passes it; at most a window's
worth. A message is whole when it begins with FIRST and ends with LAST (or is an ONLY), its packets share MSN and RQMSN
(§2.3) and DMALen (§2.5), each address is where the packet before it ended, that is VA(message) + i x PMTU, and the
bytes add up to DMALen.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mrc_testbed.hosts.engine.wire.packets import END_OPCODES, START_OPCODES, Opcode, Write

RING_FROM: Final = 32
"""Packets above a hole for which there is room at first; a power of two."""


class MessagePart:
    """What is remembered of a packet: a record and no tuple, whose numbers would be objects of their own."""

    __slots__ = ("announced", "msn", "opcode", "rqmsn", "size", "va")

    def __init__(self, packet: Write) -> None:
        self.opcode: Opcode = packet.opcode
        self.msn, self.rqmsn, self.va = packet.msn, packet.rqmsn, packet.va
        self.size = len(packet.payload)
        """Bytes of payload."""
        self.announced = packet.dma_length


class Reassembly:
    """`remainder`: DMALen tells what is left of the message from its packet on, not its length (§12 row 12)."""

    __slots__ = ("_begun", "_held", "_held_mask", "_left", "_length", "_msn", "_remainder", "_rqmsn", "_va", "ended")

    def __init__(self, remainder: bool) -> None:
        self._remainder = remainder
        self._held: list[MessagePart | None] = [None] * RING_FROM
        """Packets here above a hole, at the lowest bits of their PSN."""
        self._held_mask = RING_FROM - 1
        self._begun = False
        """A message is; else the next packet must begin one."""
        self._msn = self._rqmsn = 0
        """Of that message."""
        self._length = self._left = self._va = 0
        """Of that message: bytes in all, bytes still to come, address of the next one."""
        self.ended: deque[int] = deque()
        """Lengths in bytes of the messages that ended and were not taken out yet, in order."""

    def hold(self, psn: int, above: int, packet: Write) -> None:
        """A packet accepted `above` the hole (PSNs, 1 or more)."""
        if above > self._held_mask:
            self._widen(psn - above, above)
        self._held[psn & self._held_mask] = MessagePart(packet)

    def _widen(self, hole: int, above: int) -> None:
        """Make room for PSNs so far above the hole."""
        old, held = self._held_mask, self._held
        mask = self._held_mask = (1 << above.bit_length()) - 1
        self._held = [None] * (mask + 1)
        for psn in range(hole, hole + old + 1):
            self._held[psn & mask] = held[psn & old]

    def read(self, packet: Write, psn: int, run: int) -> tuple[int, str | None]:
        """The hole at `psn` is filled by `packet`, and `run` packets are here from there on without another.

        Returns how many of them are right, and what is wrong with the next one; None when all are right.
        """
        wrong = self._next(MessagePart(packet))
        held, mask, count = self._held, self._held_mask, 0
        while wrong is None:
            count += 1
            if count == run:
                break
            part = held[psn + count & mask]
            assert part is not None
            held[psn + count & mask] = None
            wrong = self._next(part)
        return count, wrong

    def _next(self, part: MessagePart) -> str | None:
        opcode, msn, rqmsn, va = part.opcode, part.msn, part.rqmsn, part.va
        size, announced = part.size, part.announced
        if opcode in START_OPCODES:
            if self._begun:
                return f"a message begins, and {self._left} bytes of the one before it (MSN {self._msn}) never came"
            self._begun, self._msn, self._rqmsn = True, msn, rqmsn
            self._length = self._left = announced
        elif not self._begun:
            return f"{opcode.name} without a message begun"
        elif self._msn != msn or self._rqmsn != rqmsn:
            return f"MSN {msn}, RQMSN {rqmsn} inside the message of MSN {self._msn}, RQMSN {self._rqmsn}"
        else:
            expected = self._left if self._remainder else self._length
            if announced != expected:
                return f"DMALen {announced}, where the packets before it make it {expected}"
            if va != self._va:
                return f"virtual address {va:#x}, where the packet before it ended at {self._va:#x}"
        self._va = va + size
        self._left -= size
        if opcode in END_OPCODES:
            if self._left:
                return f"the message ends with {self._length - self._left} of {self._length} bytes"
            self._begun = False
            self.ended.append(self._length)
        elif self._left <= 0:
            return f"{opcode.name} reaches the end of a message of {self._length} bytes"
        return None
