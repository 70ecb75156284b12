"""Packets of MRC as records, one class per kind; the codecs alone know the bytes.

Every record starts with the same five fields::

    dest_qp   QPN of the receiver, 24 bits (2 = the endpoint itself, §2.13)
    ev        entropy value, 32 bits: names the path; both codecs put it in UDP sport + flow label (§1.4)
    plane     port it leaves by, or came in on
    dscp      6 bits, effective: of the outer header where there is one
    ecn       2 bits, effective: 3 (CE) when the outer or the inner header says so (§1.2)

PSNs here are those of the wire, 24 bits. Timestamps are the wire's 16 bits in units the sender alone knows
(§2.4). A record is made for one transmission and not changed afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from mrc_testbed.hosts.engine.wire.payload import Payload

ECN_NOT_ECT: Final = 0
ECN_ECT0: Final = 2
ECN_CE: Final = 3

ENDPOINT_QPN: Final = 2
"""Destination QPN of endpoint operations (§2.13)."""
FIRST_QPN: Final = 3
"""Lowest QPN of a queue pair; 0, 1 and 2 are reserved (§2.13)."""
NOMINAL_OVERHEAD: Final = 40
"""Nominal size of a packet = UDP length + this, in bytes, on both sides (§6.2, byte accounting)."""
RCVD_UNIT: Final = 256
"""Unit of Sack.rcvd_units, bytes (§2.15)."""
CC_NSCC: Final = 0
"""cc_type of a SACK whose last 8 bytes are NSCC's CC_STATE (§2.8)."""
MPR_UNIT: Final = 128
"""Unit of the maximum PSN range on the wire, packets (§2.15)."""


class Opcode(IntEnum):
    """BTH opcodes: the RC opcode OR 0xC0 (§2.1)."""

    WRITE_FIRST = 0xC6
    WRITE_MIDDLE = 0xC7
    WRITE_LAST = 0xC8
    WRITE_LAST_IMM = 0xC9
    WRITE_ONLY = 0xCA
    WRITE_ONLY_IMM = 0xCB
    ACKNOWLEDGE = 0xD1
    ENDPOINT_REQUEST = 0xD8
    ENDPOINT_RESPONSE = 0xD9
    SACK = 0xDC
    NACK = 0xDD
    RELIABILITY_PROBE = 0xDE


WRITE_OPCODES: Final = frozenset(op for op in Opcode if op.name.startswith("WRITE_"))
IMM_OPCODES: Final = frozenset((Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM))
START_OPCODES: Final = frozenset((Opcode.WRITE_FIRST, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM))
"""Opcodes whose virtual address is where the message begins."""
END_OPCODES: Final = frozenset((Opcode.WRITE_LAST, Opcode.WRITE_ONLY)) | IMM_OPCODES
"""Opcodes that end a message."""


class Verdict(IntEnum):
    """Verdict of a SACK on the path of its EV (SETH m, §2.8)."""

    NONE = 0
    SKIP_ONCE = 1
    ALWAYS_SKIP = 2


class NackReason(IntEnum):
    """NETH reason (§2.10)."""

    TRIMMED = 0x01
    TRIMMED_LASTHOP = 0x02
    NO_BITMAP = 0x06
    NO_PKT_BUFFER = 0x07
    NO_RESOURCE = 0x0A
    PSN_OOR_WINDOW = 0x0B
    UNEXP_EVENT = 0x19


class Syndrome(IntEnum):
    """AETH syndrome (§2.7). 0x20..0x3F (RNR) and 0x60 (sequence error) do not exist in MRC."""

    ACK = 0x1F
    NAK_INVALID_REQUEST = 0x61
    NAK_REMOTE_ACCESS = 0x62
    NAK_REMOTE_OPERATION = 0x63


class EndpointOp(IntEnum):
    """ERTH and EETH op (§2.12)."""

    PORT_STATUS_UPDATE = 0
    EV_PROBE = 1


Envelope = tuple[int, int, int, int, int]
"""First five fields of every record."""


def elsewhere(plane: int) -> int:
    """Return the `plane` field of a control packet that must not leave by `plane`; its own inverse.

    `plane` is the one on which the packet's trigger came in; the usual way is in doubt (AckPaths.route).
    """
    return ~plane


@dataclass(slots=True)
class PacketRecord:
    """First fields of every packet."""

    dest_qp: int
    ev: int
    plane: int
    dscp: int
    ecn: int

    def __copy__(self) -> PacketRecord:
        """Return a copy; compiled records have no method for it."""
        return replace(self)


@dataclass(slots=True, init=False)
class Write(PacketRecord):
    """A data packet, opcodes 0xC6..0xCB (§2.1, §2.3-§2.6)."""

    opcode: Opcode
    psn: int
    msn: int
    """Number of the message, 16 bits; the same in all its packets."""
    va: int
    """Virtual address of *this packet's* first byte; 0 when trimmed away."""
    rkey: int
    dma_length: int
    """Length of the whole message in bytes, the same in all its packets."""
    payload: Payload
    """Bytes of this packet, without padding; empty when trimmed."""
    size: int
    """Nominal size of the untrimmed packet in bytes: UDP length + 40; trimming keeps the lengths (§4.3)."""
    rqmsn: int = 0
    """Number of the WriteIMM message, 16 bits; 0 in plain writes."""
    imm: int = 0
    """32-bit immediate value; on the wire in the two IMM opcodes only."""
    timestamp: int | None = None
    """TSETH tx_timestamp; None = no TSETH (BTH.ts clear, or a switch cut in front of it)."""
    tsr: int = 0
    ack_request: bool = False
    rtx: bool = False
    solicited: bool = False
    trimmed: NackReason | None = None
    """Reason TRIMMED or TRIMMED_LASTHOP when a switch trimmed the packet (seen by its DSCP), else None."""

    def __init__(  # written out: the one that dataclass makes stays interpreted
        self,
        dest_qp: int,
        ev: int,
        plane: int,
        dscp: int,
        ecn: int,
        opcode: Opcode,
        psn: int,
        msn: int,
        va: int,
        rkey: int,
        dma_length: int,
        payload: Payload,
        size: int,
        rqmsn: int = 0,
        imm: int = 0,
        timestamp: int | None = None,
        tsr: int = 0,
        ack_request: bool = False,
        rtx: bool = False,
        solicited: bool = False,
        trimmed: NackReason | None = None,
    ) -> None:
        self.dest_qp = dest_qp
        self.ev = ev
        self.plane = plane
        self.dscp = dscp
        self.ecn = ecn
        self.opcode = opcode
        self.psn = psn
        self.msn = msn
        self.va = va
        self.rkey = rkey
        self.dma_length = dma_length
        self.payload = payload
        self.size = size
        self.rqmsn = rqmsn
        self.imm = imm
        self.timestamp = timestamp
        self.tsr = tsr
        self.ack_request = ack_request
        self.rtx = rtx
        self.solicited = solicited
        self.trimmed = trimmed


@dataclass(slots=True, init=False)
class Sack(PacketRecord):
    """Selective acknowledgment, 0xDC: SETH + CC_STATE (§2.8). BTH.PSN carries cack_psn too."""

    cack_psn: int
    """Cumulative PSN: every PSN up to and including it arrived."""
    sack_offset: int
    """PSN of bitmap bit 0, minus cack_psn; int16."""
    bitmap: int
    """Bit i set: PSN cack_psn + sack_offset + i arrived. 64 bits."""
    ack_psn_offset: int
    """PSN of the packet that triggered this SACK, minus cack_psn; int16. 0 in answers to probes."""
    probe_id: int | None
    """Id of the reliability probe that the SACK answers (SETH pr = 1); None: no probe."""
    entropy: int
    """EV of the trigger."""
    verdict: int
    """Verdict on `entropy`; the reserved value 3 may arrive and counts as NONE."""
    timestamp: int
    """tx_timestamp of the trigger, mirrored; 0 when it had none."""
    rcvd_units: int
    """Bytes accepted so far in units of 256, rounded up, modulo 2**24."""
    ooo_count: int = 0
    """Packets here above cack_psn; saturates at 32767."""
    mpr: int = 0
    """Current MPR in units of 128 packets; 0 = dynamic MPR is off."""
    penalty: int = 0
    """rcv_cwnd_pen, 0..127 (§6.9)."""
    restore_cwnd: bool = False
    rtx: bool = False
    """Echo of the trigger's rtx."""
    spdcid: int = 0
    dpdcid: int = 0
    cc_type: int = CC_NSCC
    """Type of congestion control, 4 bits.

    Of another type, `timestamp`, `rcvd_units`, `ooo_count`, `penalty` and `restore_cwnd` have no meaning: they are
    bits of an unknown layout."""

    def __init__(  # written out: the one that dataclass makes stays interpreted
        self,
        dest_qp: int,
        ev: int,
        plane: int,
        dscp: int,
        ecn: int,
        cack_psn: int,
        sack_offset: int,
        bitmap: int,
        ack_psn_offset: int,
        probe_id: int | None,
        entropy: int,
        verdict: int,
        timestamp: int,
        rcvd_units: int,
        ooo_count: int = 0,
        mpr: int = 0,
        penalty: int = 0,
        restore_cwnd: bool = False,
        rtx: bool = False,
        spdcid: int = 0,
        dpdcid: int = 0,
        cc_type: int = CC_NSCC,
    ) -> None:
        self.dest_qp = dest_qp
        self.ev = ev
        self.plane = plane
        self.dscp = dscp
        self.ecn = ecn
        self.cack_psn = cack_psn
        self.sack_offset = sack_offset
        self.bitmap = bitmap
        self.ack_psn_offset = ack_psn_offset
        self.probe_id = probe_id
        self.entropy = entropy
        self.verdict = verdict
        self.timestamp = timestamp
        self.rcvd_units = rcvd_units
        self.ooo_count = ooo_count
        self.mpr = mpr
        self.penalty = penalty
        self.restore_cwnd = restore_cwnd
        self.rtx = rtx
        self.spdcid = spdcid
        self.dpdcid = dpdcid
        self.cc_type = cc_type


@dataclass(slots=True, init=False)
class Nack(PacketRecord):
    """One packet refused, 0xDD: NETH (§2.9)."""

    psn: int
    """nack_psn: the PSN refused."""
    reason: int
    """Reason: a NackReason, or an unknown code (treated as NO_RESOURCE, §12 row 31)."""
    entropy: int
    timestamp: int = 0
    spdcid: int = 0
    dpdcid: int = 0
    cc_type: int = 2
    """Type of congestion control: 2 when sent, ignored when received (§12 row 8)."""

    def __init__(  # written out: the one that dataclass makes stays interpreted
        self,
        dest_qp: int,
        ev: int,
        plane: int,
        dscp: int,
        ecn: int,
        psn: int,
        reason: int,
        entropy: int,
        timestamp: int = 0,
        spdcid: int = 0,
        dpdcid: int = 0,
        cc_type: int = 2,
    ) -> None:
        self.dest_qp = dest_qp
        self.ev = ev
        self.plane = plane
        self.dscp = dscp
        self.ecn = ecn
        self.psn = psn
        self.reason = reason
        self.entropy = entropy
        self.timestamp = timestamp
        self.spdcid = spdcid
        self.dpdcid = dpdcid
        self.cc_type = cc_type


@dataclass(slots=True, init=False)
class TransportAck(PacketRecord):
    """Transport ACK or NAK, 0xD1: AETH (§2.7). Completes work requests."""

    psn: int
    """Cumulative PSN acknowledged; of a NAK: the offending PSN."""
    syndrome: int
    msn: int
    """Messages completed in order at the responder, 24 bits."""

    def __init__(  # written out: the one that dataclass makes stays interpreted
        self, dest_qp: int, ev: int, plane: int, dscp: int, ecn: int, psn: int, syndrome: int, msn: int
    ) -> None:
        self.dest_qp = dest_qp
        self.ev = ev
        self.plane = plane
        self.dscp = dscp
        self.ecn = ecn
        self.psn = psn
        self.syndrome = syndrome
        self.msn = msn


@dataclass(slots=True, init=False)
class ReliabilityProbe(PacketRecord):
    """Probe of one EV of a QP, 0xDE: PETH (§2.11). Answered by a Sack with its probe_id."""

    probe_id: int
    """16 bits."""
    timestamp: int | None = 0
    """None = sent without one (§12 row 9); received as 0."""
    tsr: int = 0
    spdcid: int = 0
    dpdcid: int = 0
    rtx: bool = False
    """Whether the probe is sent again for want of an answer.

    True: the answer should take another way (ack_paths.py)."""

    def __init__(  # written out: the one that dataclass makes stays interpreted
        self,
        dest_qp: int,
        ev: int,
        plane: int,
        dscp: int,
        ecn: int,
        probe_id: int,
        timestamp: int | None = 0,
        tsr: int = 0,
        spdcid: int = 0,
        dpdcid: int = 0,
        rtx: bool = False,
    ) -> None:
        self.dest_qp = dest_qp
        self.ev = ev
        self.plane = plane
        self.dscp = dscp
        self.ecn = ecn
        self.probe_id = probe_id
        self.timestamp = timestamp
        self.tsr = tsr
        self.spdcid = spdcid
        self.dpdcid = dpdcid
        self.rtx = rtx


@dataclass(slots=True, init=False)
class EndpointRequest(PacketRecord):
    """Port status update or EV probe between endpoints, 0xD8: ERTH (§2.12)."""

    request_id: int
    """16 bits, copied into the response."""
    op: int
    """Operation, an EndpointOp."""
    port_mask: int = 0
    """Mask of usable ports (op 0): bit p set means the sender's port of plane p is usable.

    Bits are counted from Config.ports.bit_base (§12 row 27)."""
    timestamp: int | None = 0
    """Timestamp as in ReliabilityProbe."""
    tsr: int = 0
    rtx: bool = False
    """Whether the request is sent again, as in ReliabilityProbe; False in port status updates."""

    def __init__(  # written out: the one that dataclass makes stays interpreted
        self,
        dest_qp: int,
        ev: int,
        plane: int,
        dscp: int,
        ecn: int,
        request_id: int,
        op: int,
        port_mask: int = 0,
        timestamp: int | None = 0,
        tsr: int = 0,
        rtx: bool = False,
    ) -> None:
        self.dest_qp = dest_qp
        self.ev = ev
        self.plane = plane
        self.dscp = dscp
        self.ecn = ecn
        self.request_id = request_id
        self.op = op
        self.port_mask = port_mask
        self.timestamp = timestamp
        self.tsr = tsr
        self.rtx = rtx


@dataclass(slots=True, init=False)
class EndpointResponse(PacketRecord):
    """Answer to an EndpointRequest, 0xD9: EETH (§2.12)."""

    request_id: int
    op: int
    timestamp: int = 0

    def __init__(  # written out: the one that dataclass makes stays interpreted
        self,
        dest_qp: int,
        ev: int,
        plane: int,
        dscp: int,
        ecn: int,
        request_id: int,
        op: int,
        timestamp: int = 0,
    ) -> None:
        self.dest_qp = dest_qp
        self.ev = ev
        self.plane = plane
        self.dscp = dscp
        self.ecn = ecn
        self.request_id = request_id
        self.op = op
        self.timestamp = timestamp


Packet = Write | Sack | Nack | TransportAck | ReliabilityProbe | EndpointRequest | EndpointResponse
