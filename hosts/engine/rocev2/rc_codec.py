"""Codec of the RoCEv2 RC records, from after the BTH up to the padding.

codec.py does the rest for both protocols.

BTH byte 8 holds A and seven reserved bits in RC, so none of MRC's flags there is read or sent. BECN of a CNP is bit 6
of byte 4, which no iCRC covers. [IBTA]
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mrc_testbed.hosts.engine.errors import WireError
from mrc_testbed.hosts.engine.rocev2.rc_packets import (
    RC_IMM,
    RC_START,
    RC_WRITES,
    Cnp,
    RcAck,
    RcOpcode,
    RcPacket,
    RcWrite,
)
from mrc_testbed.hosts.engine.wire.headers import AETH, IMMDT, RETH, Layout
from mrc_testbed.hosts.engine.wire.packets import NOMINAL_OVERHEAD, Envelope
from mrc_testbed.hosts.engine.wire.payload import buffer_of

RC_OPCODES: Final = {int(op): op for op in RcOpcode}
CNP_RESERVED: Final = 16
"""Zero bytes after the BTH of a CNP."""
BECN: Final = 0x40
"""Bit of BTH byte 4."""
FLAG_A: Final = 0x80
FLAGS_SE_OR_M: Final = 0xC0
FLAG_SE: Final = 0x80
_UDP_BTH_ICRC: Final = 8 + 12 + 4


def rc_headers(opcode: RcOpcode) -> tuple[Layout, ...]:
    """Headers after BTH of an RC write: RETH in FIRST and ONLY, ImmDt last where the opcode says so."""
    return (*((RETH,) if opcode in RC_START else ()), *((IMMDT,) if opcode in RC_IMM else ()))


_SIZES: Final = {op: sum(layout.size for layout in rc_headers(op)) for op in RC_WRITES}


def rc_write_size(opcode: RcOpcode, payload: int) -> int:
    """Return the nominal size (UDP length + 40) of a write of that payload, as for MRC (§6.2)."""
    return _UDP_BTH_ICRC + _SIZES[opcode] + payload + (-payload & 3) + NOMINAL_OVERHEAD


class RcBody(NamedTuple):
    """Fields of an RC packet that codec.py frames."""

    opcode: RcOpcode
    variant: int
    """BTH byte 4, which the iCRC leaves out."""
    flags1: int
    """BTH byte 1 without the pad count."""
    flags: int
    """BTH byte 8."""
    psn: int
    headers: bytes
    payload: bytes | memoryview


def encode_rc(record: RcPacket) -> RcBody:
    """Encode a record; raises ValueError for values that fit no field (a bug of the caller)."""
    if type(record) is RcWrite:
        values = {"va": record.va, "rkey": record.rkey, "dma_length": record.dma_length, "imm": record.imm}
        headers = b"".join(layout.pack(values) for layout in rc_headers(record.opcode))
        flags = FLAG_A if record.ack_request else 0
        return RcBody(
            record.opcode, 0, FLAG_SE if record.solicited else 0, flags, record.psn, headers, buffer_of(record.payload)
        )
    if type(record) is RcAck:
        body = AETH.pack({"syndrome": record.syndrome, "msn": record.msn})
        return RcBody(RcOpcode.ACKNOWLEDGE, 0, 0, 0, record.psn, body, b"")
    return RcBody(RcOpcode.CNP, BECN, 0, 0, 0, bytes(CNP_RESERVED), b"")


def decode_rc(
    view: memoryview, offset: int, opcode: RcOpcode, flags1: int, word: int, envelope: Envelope, length: int
) -> RcPacket:
    """Return the record whose first byte after BTH is at `offset`.

    `view` ends with the iCRC, which was found right.

    `flags1`: BTH byte 1; `word`: bytes 8 to 11. Raises WireError.
    """
    pad = flags1 >> 4 & 3
    end = len(view) - 4 - pad
    if opcode in RC_WRITES:
        start = offset + _SIZES[opcode]
        if end < start:
            raise WireError(
                f"RC {opcode.name}: headers need {start - offset} bytes, {len(view) - 4 - offset} are there"
            )
        if end - start + pad & 3:
            raise WireError(f"RC {opcode.name}: pad {pad} after {end - start} bytes")
        values = {"va": 0, "rkey": 0, "dma_length": 0, "imm": 0}
        for layout in rc_headers(opcode):
            values.update(layout.unpack(view, offset))
            offset += layout.size
        return RcWrite(
            *envelope,
            opcode,
            word & 0xFFFFFF,
            view[start:end],
            length + NOMINAL_OVERHEAD,
            values["va"],
            values["rkey"],
            values["dma_length"],
            values["imm"],
            word >> 24 & FLAG_A != 0,
            flags1 & FLAGS_SE_OR_M != 0,
        )
    # Neither ACK nor CNP has padding; anything after its header is an error.
    size = CNP_RESERVED if opcode is RcOpcode.CNP else AETH.size
    if pad or end - offset != size:
        raise WireError(f"RC {opcode.name}: {end - offset} bytes after BTH, pad {pad}")
    if opcode is RcOpcode.CNP:
        return Cnp(*envelope)
    header = AETH.unpack(view, offset)
    return RcAck(*envelope, word & 0xFFFFFF, header["syndrome"], header["msn"])
