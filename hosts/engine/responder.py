"""Responder half of a QP: places payload in registered memory in any order, and answers (reference §6).

Nothing is ever written that the memory check did not pass, and nothing twice. A message's start is known from its
FIRST, LAST and ONLY packets, so these are refused when any part of the message would leave the region; a MIDDLE packet
knows only its own place and is checked for that.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from .context import Context, Counters
from .events import Status, WriteImmReceived
from .flight import BITMAP_BITS
from .memory import AccessError, Memory
from .packets import (
    ECN_CE,
    ECN_NOT_ECT,
    END_OPCODES,
    IMM_OPCODES,
    RCVD_UNIT,
    START_OPCODES,
    Nack,
    NackReason,
    Packet,
    ReliabilityProbe,
    Sack,
    Syndrome,
    TransportAck,
    Verdict,
    Write,
)
from .psn import unwrap

_BITMAP_MASK = (1 << BITMAP_BITS) - 1
MIN_TRIGGER_BYTES = 1024
"""A packet counts at least this much towards the next SACK (§6.4)."""
OOO_MAX = 0x7FFF


class Responder:
    """`send(packet)` queues a control packet for the plane in it; `fail` as for the Requestor."""

    def __init__(
        self, context: Context, counters: Counters, memory: Memory, first_psn: int,
        send: Callable[[Packet], None], fail: Callable[[Status, str, int | None, float], None],
    ):  # fmt: skip
        self._context, self._counters, self._memory = context, counters, memory
        self._send, self._fail = send, fail
        self._config = context.config
        self.cack = first_psn - 1
        """Nothing is missing at or below this PSN (unwrapped)."""
        self._above = 0
        """Bit i: PSN cack + 1 + i is here. Bit 0 is clear, or cack would have moved on."""
        self._max_psn = self.cack
        """Highest PSN here."""
        self._lowest_unsacked = first_psn
        """Where the next bitmap begins when one does not show the whole window (§6.5)."""
        self._rcvd_bytes = 0
        self._unsacked_bytes = 0
        """sack_trigger_cnt."""
        self._ends: list[tuple[int, bool, bool, int, int]] = []
        """Heap of (PSN, A, ends a message, imm or -1, length) above cack: what to do when cack passes there."""
        self._wimm_waiting = 0
        self._messages = 0
        """Completed in order."""
        self.ack_plane: int | None = None
        """Plane on which a Transport ACK is owed; None when none is. transport_ack() pays it."""
        self._flush_at: float | None = None
        """When the SACK owed for too few bytes leaves; None when none is owed."""
        self._last: Write | None = None
        """Trigger of that SACK; without its payload."""
        self._nak: Syndrome | None = None
        """Sent when the QP failed, and again for each packet that shows the peer missed it."""
        self._nak_psn = 0

    # ---- data -------------------------------------------------------------------------------------------

    def on_write(self, packet: Write, now: float) -> None:
        """§6.2. Order of checks: trimmed, duplicate, window, access, then the bytes are placed."""
        counters = self._counters
        psn = unwrap(packet.psn, self.cack)
        offset = psn - self.cack - 1
        known = offset < 0 or self._above >> offset & 1
        if packet.trimmed is not None:
            self._on_trimmed(packet, psn, bool(known))
            return
        if known:
            counters.duplicates += 1
            self._sack(packet, psn)
            if offset < 0 and self._messages:
                self.ack_plane = packet.plane
            return
        if offset >= self._config.mpr_packets:
            counters.out_of_window += 1
            if self._config.oor_action == "nack":
                self._nack(packet, NackReason.PSN_OOR_WINDOW)
            return
        if not self._place(packet, psn, now):
            return
        self._accept(packet, psn, offset, now)

    def _place(self, packet: Write, psn: int, now: float) -> bool:
        """Check and copy. On failure the peer gets a Transport NAK, the QP fails and nothing was written."""
        data, va, total = packet.payload, packet.va, packet.dma_length
        length = len(data)
        if length > total:
            self._refuse(
                packet, psn, Syndrome.NAK_INVALID_REQUEST, f"{length} bytes of payload in a message of {total}", now
            )
            return False
        if not total:
            return True
        start, span = va, length
        if packet.opcode in START_OPCODES:
            span = total
        elif packet.opcode in END_OPCODES:
            start, span = va + length - total, total
        try:
            region = self._memory.check(packet.rkey, start, span)
        except AccessError as error:
            self._refuse(packet, psn, Syndrome.NAK_REMOTE_ACCESS, str(error), now)
            return False
        self._memory.place(region, va, data)
        return True

    def _accept(self, packet: Write, psn: int, offset: int, now: float) -> None:
        counters, size = self._counters, packet.size
        counters.packets_received += 1
        counters.bytes_received += len(packet.payload)
        self._rcvd_bytes += size
        self._unsacked_bytes += size if size > MIN_TRIGGER_BYTES else MIN_TRIGGER_BYTES
        if psn > self._max_psn:
            self._max_psn = psn
        ends = packet.opcode in END_OPCODES
        if ends or packet.ack_request:
            imm = packet.imm if packet.opcode in IMM_OPCODES else -1
            if imm >= 0 and not self._stash(packet, psn, now):
                return
            heapq.heappush(self._ends, (psn, packet.ack_request, ends, imm, packet.dma_length))
        asked = False
        if offset:
            self._above |= 1 << offset
            counters.out_of_order += 1
        else:
            above = self._above >> 1
            run = (~above & above + 1).bit_length()  # 1 + trailing ones
            self.cack += run
            self._above = above >> run - 1
            asked = self._pass_ends(packet.plane, now)
        marked = packet.ecn == ECN_CE
        if marked:
            counters.marks_received += 1
        if self._unsacked_bytes > self._config.sack_threshold or packet.ack_request or marked or packet.rtx or asked:
            self._sack(packet, psn)
        else:
            self._last = packet
            packet.payload = b""  # the view may die before the flush
            self._flush_at = now + self._config.sack_flush_s

    def _stash(self, packet: Write, psn: int, now: float) -> bool:
        """A WriteIMM waits for what is before it; more than advertised is the peer's error (§6.3)."""
        self._wimm_waiting += 1
        if self._wimm_waiting <= self._config.max_wimm:
            return True
        detail = f"more than max_wimm = {self._config.max_wimm} WriteIMM in flight"
        self._refuse(packet, psn, Syndrome.NAK_INVALID_REQUEST, detail, now)
        return False

    def _pass_ends(self, plane: int, now: float) -> bool:
        """cack moved: settle what waited for it. True when a SACK was asked for behind the hole (prev_ar)."""
        asked = False
        while self._ends and self._ends[0][0] <= self.cack:
            _, ask, ends, imm, length = heapq.heappop(self._ends)
            asked = asked or ask
            self.ack_plane = plane
            if ends:
                self._messages += 1
            if imm >= 0:
                self._wimm_waiting -= 1
                self._context.events.append(WriteImmReceived(self._context.qpn, imm, length, now))
        return asked

    def _on_trimmed(self, packet: Write, psn: int, known: bool) -> None:
        """§6.2 step 1: touches neither bitmap nor byte count."""
        self._counters.trims_received += 1
        if known:
            self._sack(packet, psn)
        elif psn - self.cack <= self._config.mpr_packets and self._config.trim_nack:
            self._nack(packet, packet.trimmed or NackReason.TRIMMED)

    # ---- answers ----------------------------------------------------------------------------------------

    def _base(self, trigger: int, near: bool) -> int:
        """PSN of bit 0 of the next bitmap (§6.5): the whole window when it fits, else turn and turn about.

        `near`: the SACK is about the trigger (CE, A, rtx): show its surroundings and leave the turn alone.
        """
        first = self.cack + 1
        if self._max_psn - self.cack <= BITMAP_BITS:
            self._lowest_unsacked = first
            return first
        last = self._max_psn - BITMAP_BITS + 1
        if near:
            return max(first, min(trigger - BITMAP_BITS // 2, last))
        base = max(self._lowest_unsacked, first)
        if base >= last:
            self._lowest_unsacked = first
            return last
        self._lowest_unsacked = base + BITMAP_BITS
        return base

    def _sack(self, trigger: Write | ReliabilityProbe, psn: int | None) -> None:
        """Queue a SACK about `trigger`; `psn` None = it answers a probe."""
        context = self._context
        marked = trigger.ecn == ECN_CE
        near = psn is not None and psn > self.cack and (marked or trigger.ack_request or trigger.rtx)
        base = self._base(psn if psn is not None else self.cack, near)
        self._counters.sacks_sent += 1
        self._unsacked_bytes = 0
        self._flush_at = self._last = None
        self._send(Sack(
            context.remote_qpn, 0, trigger.plane, self._config.dscp_control, ECN_NOT_ECT,
            cack_psn=self.cack & 0xFFFFFF,
            sack_offset=base - self.cack,
            bitmap=self._above >> base - self.cack - 1 & _BITMAP_MASK,
            ack_psn_offset=0 if psn is None else max(-0x8000, psn - self.cack),
            probe_id=trigger.probe_id if psn is None else None,
            entropy=trigger.ev,
            verdict=Verdict.SKIP_ONCE if marked else Verdict.NONE,
            timestamp=trigger.timestamp or 0,
            rcvd_units=(self._rcvd_bytes + RCVD_UNIT - 1) // RCVD_UNIT & 0xFFFFFF,
            ooo_count=min(self._above.bit_count(), OOO_MAX),
            rtx=psn is not None and trigger.rtx,
            spdcid=context.qpn & 0xFFFF, dpdcid=context.remote_qpn & 0xFFFF,
        ))  # fmt: skip

    def on_probe(self, probe: ReliabilityProbe, now: float) -> None:
        """§6.10; the Transport ACK is repeated too, for its loss may be why the peer asks (§6.7)."""
        self._sack(probe, None)
        if self._messages:
            self.ack_plane = probe.plane

    def transport_ack(self) -> TransportAck | None:
        """The Transport ACK owed, for everything completed up to now; None when none is."""
        if self.ack_plane is None:
            return None
        plane, self.ack_plane = self.ack_plane, None
        self._counters.acks_sent += 1
        return TransportAck(
            self._context.remote_qpn, 0, plane, self._config.dscp_control, ECN_NOT_ECT, self.cack & 0xFFFFFF,
            Syndrome.ACK, self._messages & 0xFFFFFF,
        )  # fmt: skip

    def _nack(self, packet: Write, reason: NackReason) -> None:
        context = self._context
        self._counters.nacks_sent += 1
        self._send(Nack(
            context.remote_qpn, 0, packet.plane, self._config.dscp_control, ECN_NOT_ECT, packet.psn, reason, packet.ev,
            packet.timestamp or 0, context.qpn & 0xFFFF, context.remote_qpn & 0xFFFF,
        ))  # fmt: skip

    def _refuse(self, packet: Write, psn: int, syndrome: Syndrome, detail: str, now: float) -> None:
        """The peer broke a rule: Transport NAK and QP error (§6.2 step 3)."""
        self._nak, self._nak_psn = syndrome, psn
        self.repeat_nak(packet.plane)
        status = Status.REMOTE_ACCESS if syndrome is Syndrome.NAK_REMOTE_ACCESS else Status.REMOTE_INVALID_REQUEST
        self._fail(status, f"refused PSN {packet.psn:#x} of the peer: {detail}", None, now)

    def repeat_nak(self, plane: int) -> None:
        """In ERROR: the peer is still sending, so tell it (again) if it was its fault."""
        if self._nak is not None:
            self._send(TransportAck(
                self._context.remote_qpn, 0, plane, self._config.dscp_control, ECN_NOT_ECT, self._nak_psn & 0xFFFFFF,
                self._nak, self._messages & 0xFFFFFF,
            ))  # fmt: skip

    # ---- clock ------------------------------------------------------------------------------------------

    def on_timer(self, now: float) -> None:
        """The SACK owed for the last few packets leaves."""
        if self._flush_at is not None and self._flush_at <= now and self._last is not None:
            self._sack(self._last, unwrap(self._last.psn, self.cack))

    def next_deadline(self) -> float | None:
        return self._flush_at
