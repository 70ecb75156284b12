"""Conversion of baseline records to scapy packets and back, with MRC's layers [IBTA] (codec.py)."""

from __future__ import annotations

from typing import Any

from scapy.packet import Packet as ScapyPacket
from scapy.packet import Raw

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
from mrc_testbed.hosts.engine.wire.packets import NOMINAL_OVERHEAD
from mrc_testbed.hosts.scapy.layers import AETH, BTH, ICRC, RETH, ImmDt

BECN = 0x40
CNP_BYTES = 16
_BTH, _RETH, _IMM, _AETH = len(BTH()), len(RETH()), len(ImmDt()), len(AETH())


def rc_packet(record: RcPacket) -> ScapyPacket:
    """Return BTH to ICRC of a record."""
    if isinstance(record, RcAck):
        return BTH(opcode=0x11, psn=record.psn) / AETH(syndrome=int(record.syndrome), msn=record.msn) / ICRC()
    if isinstance(record, Cnp):
        return BTH(opcode=0x81, variant=BECN) / Raw(bytes(CNP_BYTES)) / ICRC()
    pad = -len(record.payload) & 3
    packet: ScapyPacket = BTH(
        opcode=int(record.opcode), se=record.solicited, pad=pad, a=record.ack_request, psn=record.psn
    )
    if record.opcode in RC_START:
        packet /= RETH(va=record.va, rkey=record.rkey, dma_length=record.dma_length)
    if record.opcode in RC_IMM:
        packet /= ImmDt(immediate=record.imm)
    if record.payload:
        packet /= Raw(bytes(record.payload))
    full_packet: ScapyPacket = packet / ICRC(pad=bytes(pad))
    return full_packet


def rc_record(bth: BTH, common_fields: dict[str, Any], body: int, udp_length: int) -> RcPacket:
    """Return the record of a packet whose iCRC is right. Raises WireError.

    `body`: bytes from BTH to the last pad byte.
    """
    opcode = RcOpcode(bth.opcode)
    if opcode in RC_WRITES:
        payload = body - _BTH - bth.pad - (_RETH if opcode in RC_START else 0) - (_IMM if opcode in RC_IMM else 0)
        if payload < 0:
            raise WireError(f"RC {opcode.name} ends before its headers do")
        if payload + bth.pad & 3:
            raise WireError(f"RC {opcode.name}: wrong pad")
        # RETH only in the first packet of a message, ImmDt only in the last.
        optional: dict[str, Any] = {}
        if opcode in RC_START:
            optional = {"va": bth[RETH].va, "rkey": bth[RETH].rkey, "dma_length": bth[RETH].dma_length}
        if opcode in RC_IMM:
            optional["imm"] = bth[ImmDt].immediate
        return RcWrite(
            **common_fields,
            opcode=opcode,
            psn=bth.psn,
            payload=bth[Raw].load if payload else b"",
            size=udp_length + NOMINAL_OVERHEAD,
            **optional,
            ack_request=bool(bth.a),
            solicited=bool(bth.se or bth.migreq),
        )
    if bth.pad or body - _BTH != (CNP_BYTES if opcode is RcOpcode.CNP else _AETH):
        raise WireError(f"RC {opcode.name}: wrong length or pad")
    if opcode is RcOpcode.CNP:
        return Cnp(**common_fields)
    return RcAck(**common_fields, psn=bth.psn, syndrome=bth[AETH].syndrome, msn=bth[AETH].msn)
