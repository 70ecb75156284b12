"""Requestor half of a RoCEv2 RC queue pair: one path, in order, Go-Back-N [IBTA].

A sequence NAK acknowledges everything before its PSN and names where to begin again; without one (the tail was lost, or
the retransmission, or the NAK) the timer does. Both send everything from there on again. Each return without progress
is charged; one more than `retry_cnt` ends the QP. The path never changes: when it is dead the QP waits, or fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.connection import Context, TxCredit
from mrc_testbed.hosts.engine.deadlines import NEVER
from mrc_testbed.hosts.engine.events import Completion, LossCause, PacketLost, Status
from mrc_testbed.hosts.engine.rocev2.rc_codec import rc_write_size
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.hosts.engine.rocev2.rc_counters import RcCounters
from mrc_testbed.hosts.engine.rocev2.rc_packets import Cnp, RcAck, RcOpcode, RcSyndrome, RcWrite
from mrc_testbed.hosts.engine.rocev2.rc_rate import Dcqcn, LineRate
from mrc_testbed.hosts.engine.wire.packets import ECN_ECT0, PacketRecord
from mrc_testbed.hosts.engine.wire.payload import Data, cut
from mrc_testbed.hosts.engine.wire.psn import unwrap

RNR_FOREVER: Final = 7
"""rnr_retry with the meaning "never give up" [IBTA]."""
_RNR_MS: Final = (
    655.36,
    0.01,
    0.02,
    0.03,
    0.04,
    0.06,
    0.08,
    0.12,
    0.16,
    0.24,
    0.32,
    0.48,
    0.64,
    0.96,
    1.28,
    1.92,
    2.56,
    3.84,
    5.12,
    7.68,
    10.24,
    15.36,
    20.48,
    30.72,
    40.96,
    61.44,
    81.92,
    122.88,
    163.84,
    245.76,
    327.68,
    491.52,
)
RNR_TIMERS_S: Final = {RcSyndrome.RNR_NAK | code: ms / 1000 for code, ms in enumerate(_RNR_MS)}
"""Syndromes 0x20..0x3F, and how long each asks to wait [IBTA]."""
_NAK_STATUS: Final[dict[int, Status]] = {
    RcSyndrome.NAK_INVALID_REQUEST: Status.REMOTE_INVALID_REQUEST,
    RcSyndrome.NAK_REMOTE_ACCESS: Status.REMOTE_ACCESS,
    RcSyndrome.NAK_REMOTE_OPERATION: Status.REMOTE_OPERATION,
}


class RcMessage:
    """One work request: `data` to `va`, in packets first_psn .. last_psn (unwrapped)."""

    __slots__ = ("data", "first_psn", "imm", "last_psn", "length", "rkey", "solicited", "va", "wr_id")

    def __init__(
        self,
        wr_id: int,
        data: Data,
        va: int,
        rkey: int,
        first_psn: int,
        pmtu: int,
        imm: int | None,
        solicited: bool,
    ) -> None:
        self.wr_id, self.data, self.length = wr_id, data, len(data)
        self.va, self.rkey, self.imm, self.solicited = va, rkey, imm, solicited
        self.first_psn = first_psn
        self.last_psn = first_psn + max(1, -(-self.length // pmtu)) - 1

    def opcode(self, psn: int) -> RcOpcode:
        """Opcode of the packet with that PSN."""
        if psn != self.last_psn:
            return RcOpcode.WRITE_FIRST if psn == self.first_psn else RcOpcode.WRITE_MIDDLE
        if self.first_psn == self.last_psn:
            return RcOpcode.WRITE_ONLY if self.imm is None else RcOpcode.WRITE_ONLY_IMM
        return RcOpcode.WRITE_LAST if self.imm is None else RcOpcode.WRITE_LAST_IMM


class RcRequestor:
    """Requestor half of a baseline QP.

    `path`: its EV and plane, for ever. `port_up()`: whether our port of that plane is up. `fail` as for MRC's
    Requestor.
    """

    def __init__(
        self,
        context: Context,
        counters: RcCounters,
        settings: RcConfig,
        rate: LineRate | Dcqcn,
        path: tuple[int, int],
        first_psn: int,
        port_up: Callable[[], bool],
        fail: Callable[[Status, str, int | None, float], None],
    ) -> None:
        self._context, self._counters, self._settings = context, counters, settings
        self.rate = rate
        self._ev, self._plane = path
        self._port_up, self._fail = port_up, fail
        full_size = rc_write_size(RcOpcode.WRITE_MIDDLE, context.pmtu_bytes)
        self._dscp = context.config.dscp.no_trim
        self.window_packets = settings.window_packets or max(1, context.config.congestion.cwnd_bytes // full_size)
        self._messages: dict[int, RcMessage] = {}
        """Messages not completed, by ordinal."""
        self._first = self._cursor = self._count = 0
        """Ordinals of the oldest message, of the one `next_psn` is in, and of the next to be posted."""
        self.una_psn = self.next_psn = self._sent_psn = self._end_psn = first_psn
        """Oldest PSN not acknowledged, next to send, first never sent, first no message has."""
        self._retries = self._rnr_retries = 0
        self._deadline = NEVER
        self._resume_at = float("-inf")
        """Time before which nothing is sent, as the responder was not ready (RNR)."""
        self._seen_at = float("-inf")
        """Time of the last call of on_timer or transmit; as much transmit as ports allow follows either."""

    # ---- application ------------------------------------------------------------------------------------

    def post(self, wr_id: int, data: Data, va: int, rkey: int, imm: int | None, solicited: bool = False) -> None:
        """Queue a write behind all others."""
        message = RcMessage(wr_id, data, va, rkey, self._end_psn, self._context.pmtu_bytes, imm, solicited)
        self._messages[self._count] = message
        self._count += 1
        self._end_psn = message.last_psn + 1

    def start_timer(self, now: float) -> None:
        """Start the timer after a post: from now on there has to be progress."""
        if self._deadline == NEVER:
            self._deadline = now + self._settings.timeout_s

    def restart(self, first_psn: int, remote_mpr: int, config: Config) -> None:
        """Start at another PSN, before anything was posted; the window of MRC has no meaning for RC."""
        self.una_psn = self.next_psn = self._sent_psn = self._end_psn = first_psn

    def pending(self) -> int:
        """Messages not completed."""
        return len(self._messages)

    def can_send(self) -> bool:
        """Return whether the window allows a packet that is to be sent."""
        return self.next_psn < min(self._end_psn, self.una_psn + self.window_packets)

    def wants_to_send(self) -> bool:
        """Return whether a packet is to be sent, or sent again."""
        return self.next_psn < self._end_psn

    def in_flight(self) -> bool:
        """Return whether a packet was sent that is not acknowledged."""
        return self.una_psn < self.next_psn

    def window_open(self) -> bool:
        """Return whether the window lets the next packet go."""
        return self.next_psn < self.una_psn + self.window_packets

    # ---- sending ----------------------------------------------------------------------------------------

    def transmit(self, now: float, out: list[tuple[int, str, PacketRecord]], limit: int, credit: TxCredit) -> None:
        """Append up to `limit` packets.

        A port that is down swallows what is sent, as its NIC would.
        """
        self._seen_at = now
        if now < self._resume_at:
            return
        dead = not self._port_up()
        bit = 1 << self._plane
        while limit > 0 and self.can_send() and self.rate.send_at(now) <= now:
            if not dead and not credit.free_ports & bit:
                return
            packet = self._packet(now)
            limit -= 1
            if not dead:
                credit.take(self._plane)
                out.append((self._plane, self._context.peer, packet))

    def _packet(self, now: float) -> RcWrite:
        """Return the packet of next_psn, and move next_psn on."""
        context, counters = self._context, self._counters
        psn = self.next_psn
        message = self._messages[self._cursor]
        start = (psn - message.first_psn) * context.pmtu_bytes
        payload_size = min(context.pmtu_bytes, message.length - start)
        payload = cut(message.data, start, payload_size)
        opcode = message.opcode(psn)
        last = psn == message.last_psn
        size = rc_write_size(opcode, payload_size)
        self.next_psn = psn + 1
        if last:
            self._cursor += 1
        # Go-Back-N returned to a PSN that was sent before: a retransmission.
        if psn < self._sent_psn:
            counters.retransmitted += 1
        else:
            self._sent_psn = psn + 1
            counters.packets_sent += 1
            counters.bytes_sent += payload_size
        counters.planes[self._plane].count(payload_size)
        self.rate.on_send(size, now)
        stalls = self.next_psn == self.una_psn + self.window_packets
        ack_request = last or stalls or not (psn + 1) % self._settings.ack_every_packets
        write = RcWrite(
            context.remote_qpn,
            self._ev,
            self._plane,
            self._dscp,
            ECN_ECT0,
            opcode,
            psn & 0xFFFFFF,
            payload,
            size,
            ack_request=ack_request,
        )
        if psn == message.first_psn:
            write.va, write.rkey, write.dma_length = message.va, message.rkey, message.length
        if last and message.imm is not None:
            write.imm, write.solicited = message.imm, message.solicited
        return write

    # ---- acknowledgments --------------------------------------------------------------------------------

    def on_cnp(self, packet: Cnp, now: float) -> None:
        """Pass on that the receiver saw CE marks."""
        self._counters.cnps_received += 1
        self.rate.on_cnp(now)

    def on_ack(self, ack: RcAck, now: float) -> None:
        """Act on an ACK or NAK; feedback about PSNs never sent is counted and ignored."""
        counters = self._counters
        psn = unwrap(ack.psn, self.una_psn)
        if psn >= self._sent_psn:
            counters.bad_feedback += 1
            return
        if ack.syndrome == RcSyndrome.ACK:
            self._acknowledge(psn + 1, now)
        elif psn < self.una_psn:
            counters.stale_sacks += 1
        elif ack.syndrome == RcSyndrome.NAK_SEQUENCE:
            self._acknowledge(psn, now)
            if psn < self.next_psn:
                self._go_back(LossCause.OVERTAKEN, now)
        elif ack.syndrome in RNR_TIMERS_S:
            self._acknowledge(psn, now)
            self._not_ready(RNR_TIMERS_S[ack.syndrome], now)
        elif ack.syndrome in _NAK_STATUS:
            status = _NAK_STATUS[ack.syndrome]
            self._fail(status, f"the responder answered PSN {ack.psn:#x} with {status.value}", psn, now)
        else:
            counters.bad_feedback += 1

    def _acknowledge(self, end: int, now: float) -> None:
        """Take all before `end` as arrived: complete what ended there, start the timer anew."""
        if end <= self.una_psn:
            return
        self.una_psn = end
        self._retries = self._rnr_retries = 0
        while self._first < self._count and self._messages[self._first].last_psn < end:
            message = self._messages.pop(self._first)
            self._first += 1
            message.data.release()
            self._context.events.append(
                Completion(self._context.qpn, message.wr_id, Status.SUCCESS, message.length, now)
            )
        if self.next_psn < end:  # an old packet arrived after all, when we had gone back already
            self._seek(end)
        self._deadline = now + self._settings.timeout_s if self._messages else NEVER

    # ---- loss -------------------------------------------------------------------------------------------

    def _seek(self, psn: int) -> None:
        """Continue sending at `psn`, which is not before una_psn."""
        self.next_psn = psn
        self._cursor = self._first  # nothing before una_psn is left, so the oldest message holds it

    def _go_back(self, cause: LossCause, now: float) -> None:
        """Send everything from una_psn on again, unless that was done too often without progress."""
        counters, settings = self._counters, self._settings
        counters.lost += 1
        counters.losses[cause] += 1
        self._retries += 1
        counters.retry_charges += 1
        self._context.events.append(
            PacketLost(self._context.qpn, self.una_psn & 0xFFFFFF, self._ev, self._plane, cause, now, now)
        )
        if self._retries > settings.retry_cnt:
            detail = f"PSN {self.una_psn & 0xFFFFFF:#x} did not get through in {settings.retry_cnt} retries"
            self._fail(Status.RETRY_EXCEEDED, detail, None, now)
            return
        self._seek(self.una_psn)
        self._deadline = now + settings.timeout_s

    def _not_ready(self, wait_s: float, now: float) -> None:
        """RNR NAK: the PSN at una_psn found no posted receive; again from there after `wait_s`.

        It did get through, so the other retry counter starts anew.
        """
        self._retries = 0
        self._counters.rnr_naks += 1
        self._rnr_retries += 1
        limit = self._settings.rnr_retry
        if limit < RNR_FOREVER and self._rnr_retries > limit:
            self._fail(Status.RETRY_EXCEEDED, f"the peer posted no receive in {limit} RNR retries", None, now)
            return
        self._seek(self.una_psn)
        self._resume_at = now + wait_s
        self._deadline = self._resume_at + self._settings.timeout_s

    # ---- clock ------------------------------------------------------------------------------------------

    def on_timer(self, now: float) -> None:
        """Go back after a whole timeout without progress.

        What never left, because the port had no room, is not lost.
        """
        self._seen_at = now
        if self._deadline > now:
            return
        if self.next_psn == self.una_psn and self._port_up():
            self._deadline = now + self._settings.timeout_s
            return
        self._go_back(LossCause.TIMEOUT, now)

    def next_deadline(self) -> float:
        """Return when on_timer is due, or transmit may send a packet that it might not at its last call.

        Packets that only the port held back need no timer: transmit is called when it has room again.
        """
        if self._deadline == NEVER or not self.can_send():
            return self._deadline
        send_at = max(self._resume_at, self.rate.send_at(self._seen_at))
        return min(send_at, self._deadline) if send_at > self._seen_at else self._deadline

    def flush(self, status: Status, psn: int | None, now: float) -> None:
        """End all work requests of a failed QP, as Requestor.flush does."""
        messages = list(self._messages.values())
        guilty = messages[0] if messages else None
        if psn is not None:
            guilty = next((m for m in messages if m.first_psn <= psn <= m.last_psn), guilty)
        for message in messages:
            message.data.release()
            message_status = status if message is guilty else Status.FLUSHED
            self._context.events.append(
                Completion(self._context.qpn, message.wr_id, message_status, message.length, now)
            )
        self._messages.clear()
        self._first = self._cursor = self._count
        self.next_psn = self._end_psn = self.una_psn
        self._deadline = NEVER
