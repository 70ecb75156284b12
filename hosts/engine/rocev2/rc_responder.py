"""Responder half of a RoCEv2 RC queue pair: takes the next PSN and nothing else [IBTA].

A packet ahead of its turn is dropped and answered once with a sequence NAK; the next one follows only after the missing
packet came. Answers are owed, not queued: whatever came in since the last transmit() is acknowledged by one ACK.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mrc_testbed.hosts.engine.connection import Context, TxCredit
from mrc_testbed.hosts.engine.events import ReceiveFlushed, Status, WriteImmReceived
from mrc_testbed.hosts.engine.memory import AccessError, Memory, QpAccess
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.hosts.engine.rocev2.rc_counters import RcCounters
from mrc_testbed.hosts.engine.rocev2.rc_packets import (
    RC_END,
    RC_IMM,
    RC_START,
    Cnp,
    RcAck,
    RcPacket,
    RcSyndrome,
    RcWrite,
)
from mrc_testbed.hosts.engine.wire.packets import ECN_CE, ECN_NOT_ECT, PacketRecord
from mrc_testbed.hosts.engine.wire.psn import unwrap


class RcResponder:
    """Responder half of a baseline QP.

    `path`: (EV, plane) our answers take. `receives`: ids of posted receives. `fail` as for MRC's Responder.
    """

    def __init__(
        self,
        context: Context,
        counters: RcCounters,
        memory: Memory,
        settings: RcConfig,
        path: tuple[int, int],
        first_psn: int,
        receives: deque[int],
        fail: Callable[[Status, str, int | None, float], None],
    ) -> None:
        self._context, self._counters, self._memory, self._settings = context, counters, memory, settings
        self.access: QpAccess | None = None
        """Limit of the peer's writes; None: all regions of the endpoint."""
        self._ev, self._plane = path
        self._receives, self._fail = receives, fail
        self.expected_psn = first_psn
        """Next PSN in order, which alone is accepted (unwrapped)."""
        self._va = self._rkey = self._total = self._bytes_left = 0
        """Next address, R_Key, length and missing bytes of the message begun; `_bytes_left` 0 = none is."""
        self._messages = 0
        self._ack_owed = False
        self._nak_owed: int | None = None
        self._nak_psn = 0
        self._nak_sent = False
        """Whether a NAK for the expected PSN has been queued."""
        self._fatal: RcSyndrome | None = None
        """Syndrome sent when the QP failed, and again for each packet that shows the peer missed it."""
        self._cnp_owed = False
        self._cnp_after = float("-inf")

    def on_write(self, packet: RcWrite, now: float) -> None:
        """Duplicate, gap, or the packet expected."""
        counters = self._counters
        if packet.ecn == ECN_CE:
            counters.marks_received += 1
            if now >= self._cnp_after and self._settings.control == "dcqcn":
                self._cnp_owed, self._cnp_after = True, now + self._settings.cnp_interval_s
        psn = unwrap(packet.psn, self.expected_psn)
        if psn < self.expected_psn:
            counters.duplicates += 1
            self._ack_owed = True
        elif psn > self.expected_psn:
            counters.out_of_order += 1
            if not self._nak_sent:
                self._nak_sent = True
                self._nak_owed, self._nak_psn = RcSyndrome.NAK_SEQUENCE, self.expected_psn
        elif packet.opcode in RC_IMM and not self._receives and self._context.config.qp.no_receive != "deliver":
            self._nak_sent = True  # what follows is dropped without another word
            self._nak_owed, self._nak_psn = RcSyndrome.RNR_NAK | self._settings.rnr_timer, psn
        elif self._write_payload(packet, psn, now):
            self._accept(packet, now)

    def _write_payload(self, packet: RcWrite, psn: int, now: float) -> bool:
        """Check and copy. On failure the peer gets a NAK, the QP fails and nothing was written."""
        opcode, data, pmtu = packet.opcode, packet.payload, self._context.pmtu_bytes
        length = len(data)
        is_start, is_end = opcode in RC_START, opcode in RC_END
        if is_start == bool(self._bytes_left):
            problem = "inside a message" if is_start else "without a message begun"
            return self._refuse(packet, psn, RcSyndrome.NAK_INVALID_REQUEST, f"{opcode.name} {problem}", now)
        va, rkey, bytes_left = (
            (packet.va, packet.rkey, packet.dma_length) if is_start else (self._va, self._rkey, self._bytes_left)
        )
        if length != (bytes_left if is_end else pmtu) or (length >= bytes_left) != is_end or length > pmtu:
            detail = f"{opcode.name} with {length} bytes where {bytes_left} of the message are missing, path MTU {pmtu}"
            return self._refuse(packet, psn, RcSyndrome.NAK_INVALID_REQUEST, detail, now)
        if bytes_left:
            try:
                region = self._memory.check(rkey, va, bytes_left)
                if self.access is not None:
                    self.access.check(rkey)
            except AccessError as error:
                return self._refuse(packet, psn, RcSyndrome.NAK_REMOTE_ACCESS, str(error), now)
            self._memory.write(region, va, data)
        if is_start:
            self._total = bytes_left
        self._va, self._rkey, self._bytes_left = va + length, rkey, bytes_left - length
        return True

    def _accept(self, packet: RcWrite, now: float) -> None:
        counters = self._counters
        counters.packets_received += 1
        counters.bytes_received += len(packet.payload)
        self.expected_psn += 1
        self._nak_sent, self._nak_owed = False, None
        self._ack_owed = self._ack_owed or packet.ack_request
        if packet.opcode in RC_END:
            self._messages += 1
        if packet.opcode in RC_IMM:
            recv_id = self._receives.popleft() if self._receives else 0
            self._context.events.append(
                WriteImmReceived(self._context.qpn, packet.imm, self._total, now, recv_id, packet.solicited)
            )

    def _refuse(self, packet: RcWrite, psn: int, syndrome: RcSyndrome, detail: str, now: float) -> bool:
        """Refuse a packet that breaks a rule: NAK and QP error; returns False."""
        self._fatal = self._nak_owed = syndrome
        self._nak_psn = psn
        access = syndrome is RcSyndrome.NAK_REMOTE_ACCESS
        status = Status.REMOTE_ACCESS if access else Status.REMOTE_INVALID_REQUEST
        self._fail(status, f"refused PSN {packet.psn:#x} of the peer: {detail}", None, now)
        return False

    def repeat_nak(self) -> None:
        """Send the NAK again, if any, to a peer that still sends to a QP in ERROR."""
        self._nak_owed = self._fatal

    @property
    def owes_answer(self) -> bool:
        """Whether an ACK, a NAK or a CNP is to be sent."""
        return self._ack_owed or self._cnp_owed or self._nak_owed is not None

    # ---- answers ----------------------------------------------------------------------------------------

    def transmit(self, out: list[tuple[int, str, PacketRecord]], credit: TxCredit) -> None:
        """Pending answers, over the QP's own path: a NAK, which implies the ACK, or an ACK; and a CNP."""
        context, counters = self._context, self._counters
        bit = 1 << self._plane
        head = (context.remote_qpn, self._ev, self._plane, context.config.dscp.control, ECN_NOT_ECT)
        if self._cnp_owed and credit.free_ports & bit:
            self._cnp_owed = False
            counters.cnps_sent += 1
            self._send(Cnp(*head), out, credit)
        if not credit.free_ports & bit:
            return
        msn = self._messages & 0xFFFFFF
        if self._nak_owed is not None:
            counters.nacks_sent += 1
            syndrome, self._nak_owed, self._ack_owed = self._nak_owed, None, False
            self._send(RcAck(*head, self._nak_psn & 0xFFFFFF, syndrome, msn), out, credit)
        elif self._ack_owed:
            counters.acks_sent += 1
            self._ack_owed = False
            self._send(RcAck(*head, self.expected_psn - 1 & 0xFFFFFF, RcSyndrome.ACK, msn), out, credit)

    def _send(self, packet: RcPacket, out: list[tuple[int, str, PacketRecord]], credit: TxCredit) -> None:
        credit.take(self._plane)
        out.append((self._plane, self._context.peer, packet))

    def flush(self, now: float) -> None:
        """Give back the posted receives of a failed QP."""
        while self._receives:
            self._context.events.append(ReceiveFlushed(self._context.qpn, self._receives.popleft(), now))
