"""Responder half of a QP: places payload in registered memory in any order, and answers (§6).

Nothing is ever written that the memory check did not pass, and nothing twice. A message's start is known from its
FIRST, LAST and ONLY packets, so these are refused when any part of the message would leave the region; a MIDDLE packet
knows only its own place and is checked for that. Hence, when MIDDLEs overtake the FIRST of a message that leaves the
region, those of them that lie inside are written before the FIRST is refused: bytes the R_Key opens to the peer anyway,
and never one outside. The message fails all the same.

WriteIMM (§6.3): data is placed at once, the immediate waits until cack has passed the message, which also puts them in
order of RQMSN. RQMSN is in every packet, so `rqmsn - delivered` is the number of WriteIMM the peer has in flight, and
the limit needs no table. A number that is not the next one in its turn is the peer's error. A 0 says nothing by itself:
plain writes carry it, and the WriteIMM of that number does (§2.3, the first one and after each wrap), which is known by
the opcode of its last packet; the limit is looked at then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from mrc_testbed.hosts.engine.connection import Context, Counters
from mrc_testbed.hosts.engine.deadlines import NEVER
from mrc_testbed.hosts.engine.events import ReceiveFlushed, Status, WriteImmReceived
from mrc_testbed.hosts.engine.loss.send_window import BITMAP_BITS
from mrc_testbed.hosts.engine.memory import AccessError, Memory, QpAccess
from mrc_testbed.hosts.engine.paths.peer_table import Peer, PeerTable
from mrc_testbed.hosts.engine.reassembly import Reassembly
from mrc_testbed.hosts.engine.resources import Resources
from mrc_testbed.hosts.engine.wire.codec import NOMINAL_EXTRA
from mrc_testbed.hosts.engine.wire.packets import (
    ECN_CE,
    ECN_NOT_ECT,
    END_OPCODES,
    IMM_OPCODES,
    MPR_UNIT,
    RCVD_UNIT,
    START_OPCODES,
    Nack,
    NackReason,
    Opcode,
    PacketRecord,
    ReliabilityProbe,
    Sack,
    Syndrome,
    TransportAck,
    Verdict,
    Write,
    elsewhere,
)
from mrc_testbed.hosts.engine.wire.payload import size_of
from mrc_testbed.hosts.engine.wire.psn import unwrap, unwrap_number

_BITMAP_MASK: Final = (1 << BITMAP_BITS) - 1
_MIDDLE: Final = Opcode.WRITE_MIDDLE
"""Opcode of most packets, tested before any set of opcodes."""
MIN_TRIGGER_BYTES: Final = 1024
"""Least number of bytes that a packet counts towards the next SACK (§6.4)."""
OOO_MAX: Final = 0x7FFF
RQMSN_BITS: Final = 16
MARKED_EVS: Final = 1024
"""EVs whose CE marks are counted at a time; a peer may name any number."""


class AwaitedWork:
    """Work due when cack passes `psn`: an A bit, the end of a message, an immediate."""

    __slots__ = ("ack_request", "ends", "imm", "psn", "rqmsn", "solicited")

    def __init__(self, psn: int, packet: Write, ends: bool, rqmsn: int | None) -> None:
        self.psn, self.ack_request, self.ends = psn, packet.ack_request, ends
        self.rqmsn = rqmsn
        """Unwrapped; None = the message is a plain write."""
        self.imm, self.solicited = packet.imm, packet.solicited

    def __lt__(self, work: AwaitedWork) -> bool:
        return self.psn < work.psn


class Responder:
    """Responder half of one QP.

    `receives`: ids of posted receives; `link`: the peer, to which the answers go; `fail` as for the Requestor.
    """

    def __init__(
        self,
        context: Context,
        counters: Counters,
        memory: Memory,
        first_psn: int,
        receives: deque[int],
        peers: PeerTable,
        link: Peer,
        fail: Callable[[Status, str, int | None, float], None],
    ) -> None:
        self._context, self._counters, self._memory = context, counters, memory
        self.access: QpAccess | None = None
        """Limit of the peer's writes; None: all regions of the endpoint."""
        self._receives, self._peers, self._link, self._fail = receives, peers, link, fail
        config = self._config = context.config
        self._acks, self._dscp_control = config.acks, config.dscp.control
        self._resources = Resources.for_config(config)
        self._nominal = NOMINAL_EXTRA[config.qp.rcvd_counts]
        """Bytes added to a payload to get the size that counts; None = the size on the wire counts."""
        self._remainder = config.wire.dma_length == "remainder"
        """Whether only the first packet of a message has its length (§12 row 12)."""
        self._assembly = Reassembly(self._remainder)
        self._at_cack = config.acks.bitmap_base == "cack"
        self._threshold, self._flush_s = config.sack_threshold, config.acks.sack_flush_s
        self.mpr_packets = config.qp.mpr_packets
        """Current window as responder, packets; set_mpr changes it."""
        # An exclusive window end promises one PSN less.
        self._less = int(config.qp.window_end == "exclusive")
        self._edge = first_psn - 1 + self.mpr_packets - self._less
        """Highest PSN ever promised: a window that shrinks refuses nothing the peer was allowed to send."""
        self._penalty = 0
        """rcv_cwnd_pen by order of the application; the resources may ask for more."""
        self._restores = config.resources.flow_control and config.resources.flow_control_restore
        self._marks: dict[int, int] = {}
        """CE marks in a row by EV, when they are counted."""
        self.cack = first_psn - 1
        """PSN up to which nothing is missing (unwrapped)."""
        self._arrived_bits = 0
        """Bit i: PSN cack + 1 + i is here. Bit 0 is clear, or cack would have moved on."""
        self.held_packets = 0
        """Number of packets above a hole: how far the network reorders (ooo_count, §2.8)."""
        self._max_psn = self.cack
        """Highest PSN here."""
        self._lowest_unsacked = first_psn
        """Start of the next bitmap when one does not show the whole window (§6.5)."""
        self._near_turn = False
        """Whether the last requested SACK showed the surroundings of its trigger."""
        self._rcvd_bytes = 0
        self._unsacked_bytes = 0
        """sack_trigger_cnt."""
        self._awaited_work: list[AwaitedWork] = []
        """Heap: what to do when cack passes there."""
        self._rqmsn: int | None = None
        """Number of the last WriteIMM delivered (unwrapped); the first may be 0 or 1 (§12 row 11)."""
        self._messages = 0
        """Messages completed in order."""
        self.ack_plane: int | None = None
        """Plane on which a Transport ACK is owed; None when none is. transport_ack() pays it."""
        self._eager = 0
        """Packets still to be acknowledged one by one, after a mark."""
        self._flush_at = NEVER
        """Time at which the SACK owed for too few bytes leaves; NEVER when none is owed."""
        self._last: Write | None = None
        """Trigger of that SACK; without its payload."""
        self._nak: Syndrome | None = None
        """Syndrome of the Transport NAK that refused a packet and failed the QP; None: no packet was."""
        self._nak_psn = 0
        self._last_nack: int | None = None
        """Reason of the NACK that is sent instead of `_nak`."""

    # ---- data -------------------------------------------------------------------------------------------

    def on_write(self, packet: Write, now: float) -> None:
        """Take a data packet (§6.2).

        Order of checks: trimmed, duplicate, window, access, then the bytes are placed.
        """
        counters = self._counters
        psn = unwrap(packet.psn, self.cack)
        offset = psn - self.cack - 1
        known = offset < 0 or self._arrived_bits >> offset & 1
        if packet.trimmed is not None:
            self._on_trimmed(packet, psn, bool(known), now)
            return
        # A duplicate is answered too: its first answer may be lost.
        if known:
            counters.duplicates += 1
            if packet.rtx:
                packet.plane = elsewhere(packet.plane)  # our answer to the first copy was lost
            self._sack(packet, psn, now)
            if offset < 0 and self._messages:
                self.ack_plane = packet.plane
            return
        # A window that shrank still holds what it promised earlier (`_edge`).
        if offset >= self.mpr_packets - self._less and psn > self._edge:
            counters.out_of_window += 1
            if self._acks.oor_action == "nack":
                self._nack(packet, NackReason.PSN_OOR_WINDOW, psn)
            return
        rqmsn = None
        # Plain writes carry 0 and mean nothing by it, unlike the WriteIMM of that number (§2.3).
        if packet.rqmsn or (packet.opcode is not _MIDDLE and packet.opcode in IMM_OPCODES):
            rqmsn = self._check_rqmsn(packet, psn, now)
            if rqmsn is None:
                return
        if self._resources is not None and not self._take(self._resources, packet, offset, now):
            return
        payload_bytes = size_of(packet.payload)
        if not self._write_payload(packet, psn, payload_bytes, now):
            return
        self._accept(packet, psn, offset, payload_bytes, rqmsn, now)

    def _check_rqmsn(self, packet: Write, psn: int, now: float) -> int | None:
        """Return the unwrapped number of a WriteIMM.

        None when it breaks the limit or was delivered: the QP failed.
        """
        last_delivered = self._rqmsn
        rqmsn = unwrap_number(packet.rqmsn, 0 if last_delivered is None else last_delivered, RQMSN_BITS)
        limit = (last_delivered or 0) + self._config.qp.max_wimm
        if rqmsn < 0 or (last_delivered is not None and rqmsn <= last_delivered):
            self._refuse(packet, psn, Syndrome.NAK_INVALID_REQUEST, f"RQMSN {packet.rqmsn} was delivered already", now)
            return None
        if rqmsn > limit:
            detail = f"more than max_wimm = {self._config.qp.max_wimm} WriteIMM in flight"
            if self._config.qp.wimm_overflow == Syndrome.NAK_INVALID_REQUEST:
                self._refuse(packet, psn, Syndrome.NAK_INVALID_REQUEST, detail, now)
            else:
                self._last_nack, self._nak_psn = self._config.qp.wimm_overflow, psn
                self.repeat_nak(packet)
                self._fail(
                    Status.REMOTE_INVALID_REQUEST, f"refused PSN {packet.psn:#x} of the peer: {detail}", None, now
                )
            return None
        return rqmsn

    def _take(self, resources: Resources, packet: Write, offset: int, now: float) -> bool:
        """Whether there are resources for the packet; else it was NACKed."""
        ends = packet.opcode in END_OPCODES or packet.ack_request
        reason = resources.refuse(packet.size, offset, len(self._awaited_work), ends, now)
        if reason is not None:
            self._nack(packet, reason, packet.psn)
        return reason is None

    def _write_payload(self, packet: Write, psn: int, length: int, now: float) -> bool:
        """Check and copy. On failure the peer gets a Transport NAK, the QP fails and nothing was written."""
        data, va, total = packet.payload, packet.va, packet.dma_length
        if length > total:
            self._refuse(
                packet, psn, Syndrome.NAK_INVALID_REQUEST, f"{length} bytes of payload in a message of {total}", now
            )
            return False
        if not total:
            return True
        start, span, opcode = va, length, packet.opcode
        if opcode is not _MIDDLE:
            if opcode in START_OPCODES:
                span = total
            elif opcode in END_OPCODES and not self._remainder:
                start, span = va + length - total, total
        try:
            region = self._memory.check(packet.rkey, start, span)
            if self.access is not None:
                self.access.check(packet.rkey)
            self._memory.write(region, va, data)
        except AccessError as error:
            self._refuse(packet, psn, Syndrome.NAK_REMOTE_ACCESS, str(error), now)
            return False
        return True

    def _accept(self, packet: Write, psn: int, offset: int, payload_bytes: int, rqmsn: int | None, now: float) -> None:
        counters, size = self._counters, packet.size
        if self._nominal is not None:
            size = self._nominal + payload_bytes
        marked = packet.ecn == ECN_CE
        counters.packets_received += 1
        counters.bytes_received += payload_bytes
        self._rcvd_bytes += size
        self._unsacked_bytes += size if size > MIN_TRIGGER_BYTES else MIN_TRIGGER_BYTES
        if psn > self._max_psn:
            self._max_psn = psn
        ends = packet.opcode is not _MIDDLE and packet.opcode in END_OPCODES
        if ends or packet.ack_request:
            heappush(
                self._awaited_work, AwaitedWork(psn, packet, ends, rqmsn if packet.opcode in IMM_OPCODES else None)
            )
        is_ack_requested = False
        if offset:
            self._arrived_bits |= 1 << offset
            self.held_packets += 1
            self._assembly.hold(psn, offset, packet, payload_bytes)
            counters.out_of_order += 1
        else:
            bits_above = self._arrived_bits >> 1
            run = (~bits_above & bits_above + 1).bit_length()  # 1 + trailing ones
            right_count, fault = self._assembly.read(packet, payload_bytes, psn, run)
            if right_count > 1:
                self.held_packets -= right_count - 1
            self.cack += right_count
            self._arrived_bits >>= right_count
            edge = self.cack + self.mpr_packets - self._less
            if edge > self._edge:
                self._edge = edge
            if self._awaited_work and self._awaited_work[0].psn <= self.cack:
                is_ack_requested = self._settle(packet, now)
                if self._nak is not None or self._last_nack is not None:
                    return
            if fault is not None:
                self._refuse(packet, self.cack + 1, Syndrome.NAK_INVALID_REQUEST, fault, now)
                return
        if marked:
            counters.marks_received += 1
            self._eager = self._acks.sack_after_mark + 1
        elif self._marks:
            self._marks.pop(packet.ev, None)
        if self._eager:
            self._eager -= 1
            self._sack(packet, psn, now)
        elif self._unsacked_bytes > self._threshold or packet.ack_request or packet.rtx or is_ack_requested:
            self._sack(packet, psn, now)
        else:
            self._last = packet
            packet.payload = b""  # the view may die before the flush
            self._flush_at = now + self._flush_s

    def _settle(self, packet: Write, now: float) -> bool:
        """Do the work that waited for cack, which has moved.

        True when a SACK was requested behind the hole (prev_ar).
        """
        is_ack_requested = False
        while self._awaited_work and self._awaited_work[0].psn <= self.cack:
            work = heappop(self._awaited_work)
            length = self._assembly.ended_lengths.popleft() if work.ends else 0
            if work.rqmsn is not None and not self._deliver(work, length, packet, now):
                return False
            is_ack_requested = is_ack_requested or work.ack_request
            self.ack_plane = packet.plane
            if work.ends:
                self._messages += 1
        return is_ack_requested

    def _deliver(self, work: AwaitedWork, length: int, packet: Write, now: float) -> bool:
        """Deliver a WriteIMM that is complete and next in order; False when the QP failed of it."""
        rqmsn = work.rqmsn or 0
        if rqmsn > 1 if self._rqmsn is None else rqmsn != self._rqmsn + 1:
            detail = f"RQMSN {rqmsn & 0xFFFF} is not the next one"
            self._refuse(packet, work.psn, Syndrome.NAK_INVALID_REQUEST, detail, now)
            return False
        if self._receives:
            recv_id = self._receives.popleft()
        elif self._config.qp.no_receive == "deliver":
            recv_id = 0
        else:
            self._no_receive(work, packet, now)
            return False
        self._rqmsn = rqmsn
        self._context.events.append(WriteImmReceived(self._context.qpn, work.imm, length, now, recv_id, work.solicited))
        return True

    def _no_receive(self, work: AwaitedWork, packet: Write, now: float) -> None:
        """End the QP for a WriteIMM without a posted receive: there is no RNR (§6.3)."""
        if self._config.qp.no_receive == "nak":
            self._nak, self._nak_psn = Syndrome.NAK_REMOTE_OPERATION, work.psn
        else:
            self._last_nack, self._nak_psn = NackReason.UNEXP_EVENT, work.psn
        self.repeat_nak(packet)
        detail = f"WriteIMM at PSN {work.psn & 0xFFFFFF:#x} of the peer found no posted receive"
        self._fail(Status.REMOTE_OPERATION, detail, None, now)

    def _on_trimmed(self, packet: Write, psn: int, known: bool, now: float) -> None:
        """Answer a trimmed packet, without change of bitmap and byte count (§6.2 step 1)."""
        self._counters.trims_received += 1
        if packet.trimmed is NackReason.TRIMMED_LASTHOP:
            self._context.incast.on_trim(now)
        if known:
            self._sack(packet, psn, now)
        elif psn <= max(self._edge, self.cack + self.mpr_packets - self._less) and self._acks.trim_nack:
            self._nack(packet, packet.trimmed or NackReason.TRIMMED, psn)

    # ---- answers ----------------------------------------------------------------------------------------

    def _send(self, packet: PacketRecord) -> None:
        """Queue a control packet for the plane in it."""
        self._peers.queue(self._link, packet)

    def _base(self, trigger: int, near: bool, sure: bool) -> int:
        """PSN of bit 0 of the next bitmap (§6.5): the whole window when it fits, else turn and turn about.

        `near`: the SACK is about the trigger (CE, A, rtx): show its surroundings and leave the turn alone. Every second
        one only, unless `sure`: when every packet asks (writes of one packet), none would ever show the oldest hole.
        """
        first = self.cack + 1
        if self._max_psn - self.cack <= BITMAP_BITS or self._at_cack:
            self._lowest_unsacked = first
            return first
        last = self._max_psn - BITMAP_BITS + 1
        if near:
            self._near_turn = not self._near_turn
            if self._near_turn or sure:
                return max(first, min(trigger - BITMAP_BITS // 2, last))
        base = max(self._lowest_unsacked, first)
        if base >= last:
            self._lowest_unsacked = first
            return last
        self._lowest_unsacked = base + BITMAP_BITS
        return base

    def _sack(self, trigger: Write | ReliabilityProbe, psn: int, now: float) -> None:
        """Queue a SACK about `trigger`, whose unwrapped PSN is `psn`; that of a probe is cack."""
        context = self._context
        marked = trigger.ecn == ECN_CE
        near = psn > self.cack and isinstance(trigger, Write) and (marked or trigger.ack_request or trigger.rtx)
        base = self._base(psn, near, marked or (near and trigger.rtx))
        bitmap = self._arrived_bits >> base - self.cack - 1
        if bitmap.bit_length() > BITMAP_BITS:
            bitmap &= _BITMAP_MASK
        self._counters.sacks_sent += 1
        self._unsacked_bytes = 0
        self._flush_at, self._last = NEVER, None
        # The strongest of three penalties counts: the application's, the incast signal's, the buffer's.
        penalty, incast_penalty, resources = self._penalty, context.incast.penalty(now), self._resources
        if incast_penalty > penalty:
            penalty = incast_penalty
        if resources is not None:
            penalty = max(penalty, resources.penalty())
        self._send(
            Sack(
                context.remote_qpn,
                0,
                trigger.plane,
                self._dscp_control,
                ECN_NOT_ECT,
                cack_psn=self.cack & 0xFFFFFF,
                sack_offset=base - self.cack,
                bitmap=bitmap,
                ack_psn_offset=max(-0x8000, psn - self.cack),
                probe_id=None if isinstance(trigger, Write) else trigger.probe_id,
                entropy=trigger.ev,
                verdict=self._verdict(trigger.ev) if marked else Verdict.NONE,
                timestamp=trigger.timestamp or 0,
                rcvd_units=(self._rcvd_bytes + RCVD_UNIT - 1) // RCVD_UNIT & 0xFFFFFF,
                ooo_count=min(self.held_packets, OOO_MAX),
                mpr=self.mpr_packets // MPR_UNIT if context.dynamic_mpr else 0,
                penalty=penalty,
                restore_cwnd=self._restores,
                rtx=trigger.rtx and self._acks.rtx_echo,
                spdcid=context.answer_ids[0],
                dpdcid=context.answer_ids[1],
            )
        )

    def _verdict(self, ev: int) -> Verdict:
        """Return the verdict of a SACK on an EV marked CE (§6.5): SKIP_ONCE, or ALWAYS_SKIP.

        ALWAYS_SKIP after many marks in a row, when switched on.
        """
        limit = self._acks.always_skip_marks
        if not limit:
            return Verdict.SKIP_ONCE
        count = self._marks.get(ev, 0) + 1
        if ev not in self._marks and len(self._marks) >= MARKED_EVS:
            self._marks.clear()
        self._marks[ev] = count
        return Verdict.ALWAYS_SKIP if count >= limit else Verdict.SKIP_ONCE

    def on_probe(self, probe: ReliabilityProbe, now: float) -> None:
        """Answer a probe (§6.10), and repeat the Transport ACK: its loss may be why the peer asks (§6.7)."""
        if probe.rtx:
            probe.plane = elsewhere(probe.plane)
        self._sack(probe, self.cack, now)
        if self._messages:
            self.ack_plane = probe.plane

    def transport_ack(self) -> TransportAck | None:
        """Return the Transport ACK owed, for everything completed up to now; None when none is."""
        if self.ack_plane is None:
            return None
        plane, self.ack_plane = self.ack_plane, None
        self._counters.acks_sent += 1
        return TransportAck(
            self._context.remote_qpn,
            0,
            plane,
            self._dscp_control,
            ECN_NOT_ECT,
            self.cack & 0xFFFFFF,
            Syndrome.ACK,
            self._messages & 0xFFFFFF,
        )

    def _nack(self, packet: Write | ReliabilityProbe, reason: int, psn: int) -> None:
        """Queue a NACK of `psn`; `packet` is what it answers."""
        context = self._context
        self._counters.nacks_sent += 1
        self._send(
            Nack(
                context.remote_qpn,
                0,
                packet.plane,
                self._dscp_control,
                ECN_NOT_ECT,
                psn & 0xFFFFFF,
                reason,
                packet.ev,
                packet.timestamp or 0,
                context.answer_ids[0],
                context.answer_ids[1],
                self._config.wire.nack_cc_type,
            )
        )

    def _refuse(self, packet: Write, psn: int, syndrome: Syndrome, detail: str, now: float) -> None:
        """Refuse a packet that breaks a rule: Transport NAK and QP error (§6.2 step 3)."""
        self._nak, self._nak_psn = syndrome, psn
        self.repeat_nak(packet)
        status = Status.REMOTE_ACCESS if syndrome is Syndrome.NAK_REMOTE_ACCESS else Status.REMOTE_INVALID_REQUEST
        self._fail(status, f"refused PSN {psn & 0xFFFFFF:#x} of the peer: {detail}", None, now)

    def repeat_nak(self, packet: Write | ReliabilityProbe) -> None:
        """Send the NAK (again) to a peer that still sends to a QP in ERROR.

        0x62 when the failure was none of its doing (§6.2 step 3: QP in error). A probe is answered for the oldest PSN
        the peer waits for: with no EV left it sends nothing else.
        """
        if self._last_nack is not None:
            self._nack(packet, self._last_nack, self._nak_psn)
            return
        nak = self._nak
        self._send(
            TransportAck(
                self._context.remote_qpn,
                0,
                packet.plane,
                self._dscp_control,
                ECN_NOT_ECT,
                (self._nak_psn if nak is not None else packet.psn if type(packet) is Write else self.cack + 1)
                & 0xFFFFFF,
                Syndrome.NAK_REMOTE_ACCESS if nak is None else nak,
                self._messages & 0xFFFFFF,
            )
        )

    # ---- windows ----------------------------------------------------------------------------------------

    def set_mpr(self, packets: int) -> None:
        """Set the window, in packets (a multiple of 128).

        Each SACK carries it when both ends support it (§5.3).
        """
        self.mpr_packets = packets
        self._edge = max(self._edge, self.cack + packets - self._less)

    def set_penalty(self, penalty: int) -> None:
        """rcv_cwnd_pen of our SACKs from now on (§6.9)."""
        self._penalty = penalty
        self._restores = self._config.resources.flow_control_restore

    def flush(self, now: float) -> None:
        """Give back the posted receives of a failed QP."""
        while self._receives:
            self._context.events.append(ReceiveFlushed(self._context.qpn, self._receives.popleft(), now))

    # ---- clock ------------------------------------------------------------------------------------------

    def on_timer(self, now: float) -> None:
        """Send the SACK owed for the last few packets."""
        if self._flush_at <= now and self._last is not None:
            self._sack(self._last, unwrap(self._last.psn, self.cack), now)

    def next_deadline(self) -> float:
        """Return the time of the next on_timer call; NEVER when nothing is pending."""
        return self._flush_at
