"""The work request as a requestor keeps it: its bytes, its PSNs, and the opcode of each packet."""

from __future__ import annotations

from mrc_testbed.hosts.engine.wire.packets import Opcode
from mrc_testbed.hosts.engine.wire.payload import Data


class Message:
    """One work request: `length` bytes of `data` to `va`, in packets first_psn .. last_psn (unwrapped)."""

    __slots__ = (
        "data",
        "first_psn",
        "imm",
        "last_psn",
        "length",
        "msn",
        "rkey",
        "rqmsn",
        "solicited",
        "va",
        "wr_id",
    )

    def __init__(
        self,
        wr_id: int,
        data: Data,
        va: int,
        rkey: int,
        first_psn: int,
        pmtu: int,
        msn: int,
        rqmsn: int,
        imm: int | None,
        solicited: bool,
    ) -> None:
        self.wr_id = wr_id
        self.data, self.length = data, len(data)
        self.va, self.rkey = va, rkey
        self.first_psn = first_psn
        self.last_psn = first_psn + max(1, -(-self.length // pmtu)) - 1
        """Last PSN of the message; a write of zero bytes is one packet (§5.2)."""
        self.msn, self.rqmsn, self.imm, self.solicited = msn, rqmsn, imm, solicited

    def release(self) -> None:
        """Let go of the application's buffer; queues may hold this message for a while yet."""
        self.data.release()

    def opcode(self, psn: int) -> Opcode:
        """Opcode of the packet with that PSN (§5.2)."""
        if psn != self.last_psn:
            return Opcode.WRITE_FIRST if psn == self.first_psn else Opcode.WRITE_MIDDLE
        if self.first_psn == self.last_psn:
            return Opcode.WRITE_ONLY if self.imm is None else Opcode.WRITE_ONLY_IMM
        return Opcode.WRITE_LAST if self.imm is None else Opcode.WRITE_LAST_IMM
