"""Check of a message's packets: the responder reads them once more, in order of PSN.

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

_MIDDLE: Final = Opcode.WRITE_MIDDLE
"""Opcode of most packets, tested before any set of opcodes."""
RING_FROM: Final = 32
"""Packets above a hole for which there is room at first; a power of two."""


class MessagePart:
    """Record of a packet above a hole; a class, because a tuple would make objects of its numbers."""

    __slots__ = ("dma_length", "msn", "opcode", "rqmsn", "size", "va")

    def __init__(self, packet: Write, size: int) -> None:
        self.hold(packet, size)

    def hold(self, packet: Write, size: int) -> None:
        """Record a packet in place of one that has been read."""
        self.opcode: Opcode = packet.opcode
        self.msn, self.rqmsn, self.va = packet.msn, packet.rqmsn, packet.va
        self.size = size
        """Bytes of payload."""
        self.dma_length = packet.dma_length


class Reassembly:
    """Check of one QP's messages, packet by packet in order of PSN.

    `remainder`: DMALen is the length of what is left of the message from its packet on, not the message's (§12 row
    12).
    """

    __slots__ = (
        "_bytes_left",
        "_has_begun",
        "_held_mask",
        "_held_parts",
        "_length",
        "_msn",
        "_remainder",
        "_rqmsn",
        "_va",
        "ended_lengths",
    )

    def __init__(self, remainder: bool) -> None:
        self._remainder = remainder
        self._held_parts: list[MessagePart | None] = [None] * RING_FROM
        """Packets here above a hole, at the lowest bits of their PSN.

        The record of a packet that was read stays, for the next one at its place."""
        self._held_mask = RING_FROM - 1
        self._has_begun = False
        """Whether a message has begun; else the next packet must begin one."""
        self._msn = self._rqmsn = 0
        """MSN and RQMSN of the message begun."""
        self._length = self._bytes_left = self._va = 0
        """Length of the message begun and bytes still to come; address of its next packet."""
        self.ended_lengths: deque[int] = deque()
        """Lengths in bytes of the messages that ended and were not taken out yet, in order."""

    def hold(self, psn: int, distance: int, packet: Write, size: int) -> None:
        """Hold a packet with `size` bytes of payload, accepted `distance` PSNs above the hole (1 or more)."""
        if distance > self._held_mask:
            self._widen(psn - distance, distance)
        index = psn & self._held_mask
        part = self._held_parts[index]
        if part is None:
            self._held_parts[index] = MessagePart(packet, size)
        else:
            part.hold(packet, size)

    def _widen(self, hole: int, distance: int) -> None:
        """Make room for PSNs so far above the hole."""
        old_mask, held_parts = self._held_mask, self._held_parts
        mask = self._held_mask = (1 << distance.bit_length()) - 1
        self._held_parts = [None] * (mask + 1)
        for psn in range(hole, hole + old_mask + 1):
            self._held_parts[psn & mask] = held_parts[psn & old_mask]

    def read(self, packet: Write, size: int, psn: int, run: int) -> tuple[int, str | None]:
        """Check `packet`, which fills the hole at `psn`, and the packets held behind it, `run` in all.

        `size`: bytes of its payload.

        Returns how many of them are right, and what is wrong with the next one; None when all are right.
        """
        fault = self._next(packet.opcode, packet.msn, packet.rqmsn, packet.va, size, packet.dma_length)
        held_parts, mask, count = self._held_parts, self._held_mask, 0
        while fault is None:
            count += 1
            if count == run:
                break
            part = held_parts[psn + count & mask]
            assert part is not None
            fault = self._next(part.opcode, part.msn, part.rqmsn, part.va, part.size, part.dma_length)
        return count, fault

    def _next(self, opcode: Opcode, msn: int, rqmsn: int, va: int, size: int, dma_length: int) -> str | None:
        """Check the next packet of the message by its numbers; return what is wrong, or None."""
        if opcode is not _MIDDLE and opcode in START_OPCODES:
            if self._has_begun:
                return (
                    f"a message begins, and {self._bytes_left} bytes of the one before it (MSN {self._msn}) never came"
                )
            self._has_begun = True
            self._msn, self._rqmsn = msn, rqmsn
            self._length = self._bytes_left = dma_length
        elif not self._has_begun:
            return f"{opcode.name} without a message begun"
        elif self._msn != msn or self._rqmsn != rqmsn:
            return f"MSN {msn}, RQMSN {rqmsn} inside the message of MSN {self._msn}, RQMSN {self._rqmsn}"
        else:
            # DMALen counts the whole message, or what is left of it (§12 row 12).
            expected_length = self._bytes_left if self._remainder else self._length
            if dma_length != expected_length:
                return f"DMALen {dma_length}, where the packets before it make it {expected_length}"
            if va != self._va:
                return f"virtual address {va:#x}, where the packet before it ended at {self._va:#x}"
        self._va = va + size
        self._bytes_left -= size
        if opcode is not _MIDDLE and opcode in END_OPCODES:
            if self._bytes_left:
                return f"the message ends with {self._length - self._bytes_left} of {self._length} bytes"
            self._has_begun = False
            self.ended_lengths.append(self._length)
        elif self._bytes_left <= 0:
            return f"{opcode.name} reaches the end of a message of {self._length} bytes"
        return None
