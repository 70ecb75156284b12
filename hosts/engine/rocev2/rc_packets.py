"""The packets of the RoCEv2 RC baseline as records, one class per kind [IBTA].

Three kinds are all RDMA Write needs: the write, the acknowledgment (ACK or NAK), and the congestion notification
of DCQCN. They begin with the same five fields as MRC's (packets.py), so that NICs and fabrics carry either; `ev` is the
UDP source port and flow label, the same in all packets of a QP, which is what makes it single-path.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from mrc_testbed.hosts.engine.wire.packets import PacketRecord
from mrc_testbed.hosts.engine.wire.payload import Payload


class RcOpcode(IntEnum):
    """BTH opcodes of RC that we use; MRC's are these OR 0xC0 (§2.1). CNP is RoCEv2's own."""

    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_IMM = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_IMM = 0x0B
    ACKNOWLEDGE = 0x11
    CNP = 0x81


RC_START: Final = frozenset((RcOpcode.WRITE_FIRST, RcOpcode.WRITE_ONLY, RcOpcode.WRITE_ONLY_IMM))
"""Opcodes with a RETH; the packets after a FIRST continue where it left off."""
RC_IMM: Final = frozenset((RcOpcode.WRITE_LAST_IMM, RcOpcode.WRITE_ONLY_IMM))
RC_END: Final = frozenset((RcOpcode.WRITE_LAST, RcOpcode.WRITE_ONLY)) | RC_IMM
RC_WRITES: Final = RC_START | RC_END | {RcOpcode.WRITE_MIDDLE}


class RcSyndrome(IntEnum):
    """AETH syndrome.

    0x1F = ACK with the credit field "not valid"; RNR_NAK OR a 5-bit code of the time to wait.
    """

    ACK = 0x1F
    RNR_NAK = 0x20
    NAK_SEQUENCE = 0x60
    NAK_INVALID_REQUEST = 0x61
    NAK_REMOTE_ACCESS = 0x62
    NAK_REMOTE_OPERATION = 0x63


@dataclass(slots=True, init=False)
class RcWrite(PacketRecord):
    """A data packet, opcodes 0x06..0x0B."""

    opcode: RcOpcode
    psn: int
    payload: Payload
    """Bytes of this packet, without padding."""
    size: int
    """Nominal size in bytes: UDP length + 40, as of an MRC write."""
    va: int = 0
    """Virtual address of the message, `rkey` its R_Key, `dma_length` its bytes: in FIRST and ONLY, else 0."""
    rkey: int = 0
    dma_length: int = 0
    imm: int = 0
    """32-bit immediate value; on the wire in the two IMM opcodes only."""
    ack_request: bool = False
    solicited: bool = False

    def __init__(  # written out: the one that dataclass makes stays interpreted
        self,
        dest_qp: int,
        ev: int,
        plane: int,
        dscp: int,
        ecn: int,
        opcode: RcOpcode,
        psn: int,
        payload: Payload,
        size: int,
        va: int = 0,
        rkey: int = 0,
        dma_length: int = 0,
        imm: int = 0,
        ack_request: bool = False,
        solicited: bool = False,
    ) -> None:
        self.dest_qp = dest_qp
        self.ev = ev
        self.plane = plane
        self.dscp = dscp
        self.ecn = ecn
        self.opcode = opcode
        self.psn = psn
        self.payload = payload
        self.size = size
        self.va = va
        self.rkey = rkey
        self.dma_length = dma_length
        self.imm = imm
        self.ack_request = ack_request
        self.solicited = solicited


@dataclass(slots=True)
class RcAck(PacketRecord):
    """ACK or NAK, 0x11: AETH."""

    psn: int
    """ACK: everything up to it arrived. NAK: the offending PSN; of a sequence error the PSN expected."""
    syndrome: int
    msn: int
    """Messages completed, 24 bits."""


@dataclass(slots=True)
class Cnp(PacketRecord):
    """Congestion notification, 0x81, from the receiver of CE marks to the sender.

    16 reserved bytes, and BECN set.
    """


RcPacket = RcWrite | RcAck | Cnp
