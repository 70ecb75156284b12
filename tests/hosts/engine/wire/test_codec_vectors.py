"""The twelve vectors of mrc-protocol Annex A, both ways.

Records are written by hand from the table's first column.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec
from mrc_testbed.hosts.engine.wire.packets import (
    EndpointOp,
    EndpointRequest,
    EndpointResponse,
    Nack,
    NackReason,
    Opcode,
    Packet,
    ReliabilityProbe,
    Sack,
    Syndrome,
    TransportAck,
    Verdict,
    Write,
)

BYTES = {
    name: bytes.fromhex(text) for name, text in json.loads((Path(__file__).parent / "annex_a.json").read_text()).items()
}
EV, REQUESTOR_QP, RESPONDER_QP, PLANE = 0x00010305, 0x456, 0x123, 3
DATA, RETX, CONTROL = (4, 2), (8, 2), (46, 0)  # DSCP, ECN


def head(qpn: int, marks: tuple[int, int], ev: int = EV) -> tuple[int, int, int, int, int]:
    return (qpn, ev, PLANE, *marks)


def write_a(ev: int = EV) -> Write:
    return Write(
        *head(RESPONDER_QP, DATA, ev),
        Opcode.WRITE_ONLY,
        psn=0xABC,
        msn=7,
        va=0x1000_0000_2000,
        rkey=0xAABBCCDD,
        dma_length=16,
        payload=bytes(range(16)),
        size=104,
        timestamp=0x1234,
        ack_request=True,
    )


RECORDS: dict[str, Packet] = {
    "A": write_a(),
    "B": Write(
        *head(RESPONDER_QP, RETX),
        Opcode.WRITE_ONLY_IMM,
        psn=0xABD,
        msn=8,
        va=0x1000_0000_2010,
        rkey=0xAABBCCDD,
        dma_length=4,
        payload=bytes.fromhex("11223344"),
        size=92,
        rqmsn=3,
        imm=0xDEADBEEF,
        ack_request=True,
        rtx=True,
        solicited=True,
    ),
    "C": Sack(
        *head(REQUESTOR_QP, CONTROL),
        cack_psn=4,
        sack_offset=1,
        bitmap=0x76,
        ack_psn_offset=7,
        probe_id=None,
        entropy=EV,
        verdict=Verdict.SKIP_ONCE,
        timestamp=0x1234,
        rcvd_units=0x51,
        ooo_count=5,
        mpr=8,
        spdcid=RESPONDER_QP,
        dpdcid=REQUESTOR_QP,
    ),
    "D": Sack(
        *head(REQUESTOR_QP, CONTROL),
        cack_psn=0xB,
        sack_offset=1,
        bitmap=0,
        ack_psn_offset=0,
        probe_id=0x77,
        entropy=EV,
        verdict=Verdict.NONE,
        timestamp=0x1234,
        rcvd_units=0x60,
        mpr=8,
        spdcid=RESPONDER_QP,
        dpdcid=REQUESTOR_QP,
    ),
    "E": Nack(
        *head(REQUESTOR_QP, CONTROL),
        psn=0xABC,
        reason=NackReason.TRIMMED,
        entropy=EV,
        timestamp=0x1234,
        spdcid=RESPONDER_QP,
        dpdcid=REQUESTOR_QP,
    ),
    "F": ReliabilityProbe(
        *head(RESPONDER_QP, DATA), probe_id=0x77, timestamp=0x1234, spdcid=REQUESTOR_QP, dpdcid=RESPONDER_QP
    ),
    "G": EndpointRequest(
        *head(2, CONTROL), request_id=0x42, op=EndpointOp.PORT_STATUS_UPDATE, port_mask=0xFD, timestamp=0x1234
    ),
    "H": EndpointRequest(*head(2, DATA), request_id=0x43, op=EndpointOp.EV_PROBE, timestamp=0x1234),
    "I": EndpointResponse(*head(2, CONTROL), request_id=0x43, op=EndpointOp.EV_PROBE, timestamp=0x1234),
    "J": TransportAck(*head(REQUESTOR_QP, CONTROL), psn=0xABC, syndrome=Syndrome.ACK, msn=8),
    "K": write_a(ev=EV & 0xFFFF),  # IPv4 has no flow label: half of the EV stays behind (§1.4)
    "L": Write(
        *head(RESPONDER_QP, DATA),
        Opcode.WRITE_MIDDLE,
        psn=0xFFFFFF,
        msn=7,
        va=0x1000_0000_2400,
        rkey=0xAABBCCDD,
        dma_length=0xC00,
        payload=bytes(8),
        size=92,
    ),
}


def addressing(packet: bytes) -> Addressing:
    if packet[0] >> 4 == 4:
        return Addressing(packet[12:16], packet[16:20])
    return Addressing(packet[8:24], packet[24:40])


@pytest.mark.parametrize("name", RECORDS)
def test_encode__gives_the_bytes_of_annex_a(name: str) -> None:
    wire = BYTES[name]
    packet = Codec().encode(RECORDS[name], addressing(wire)).join()
    if name == "K":
        # The vector's IPv4 header has identification 0 and "don't fragment" as ours: bytes equal throughout.
        assert packet[:20] == wire[:20]
    assert packet.hex() == wire.hex()


@pytest.mark.parametrize("name", RECORDS)
def test_decode__gives_the_record_of_annex_a(name: str) -> None:
    assert Codec().decode(BYTES[name], PLANE) == RECORDS[name]
