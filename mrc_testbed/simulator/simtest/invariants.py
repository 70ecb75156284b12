"""Invariants of a simulated run, checked at every packet, every event and every EV signal.

A `InvariantChecker` stands between the fabric and the endpoints, whose code it does not change: it knows what was
posted, sees every packet leave and arrive, and keeps its own account of what a correct endpoint may say next. `Lane` is
that account for one direction of one connection. Anything wrong raises Violation at the moment it happens.

What is checked: `INVARIANTS` names each. The account is kept from packets alone wherever possible, so that an engine
which miscounts cannot agree with itself; engine state is read only for what no packet shows (windows, EV states).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mrc_testbed.hosts.engine.cc.qpcc import Share
from mrc_testbed.hosts.engine.deadlines import NEVER
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.events import Completion, Event, LossCause, PacketLost, QpError, Status, WriteImmReceived
from mrc_testbed.hosts.engine.loss.send_window import IN_FLIGHT
from mrc_testbed.hosts.engine.paths.ev import Ev, EvProfile
from mrc_testbed.hosts.engine.paths.ev_state import EvSignal, EvState, ev_moves
from mrc_testbed.hosts.engine.paths.peer_table import LEASE_REFRESHES
from mrc_testbed.hosts.engine.qp import EngineQpState, EngineQueuePair
from mrc_testbed.hosts.engine.wire.codec import NOMINAL_EXTRA
from mrc_testbed.hosts.engine.wire.packets import (
    RCVD_UNIT,
    EndpointOp,
    EndpointRequest,
    Nack,
    NackReason,
    PacketRecord,
    Sack,
    Syndrome,
    TransportAck,
    Verdict,
    Write,
)
from mrc_testbed.hosts.engine.wire.payload import buffer_of
from mrc_testbed.hosts.engine.wire.psn import unwrap
from mrc_testbed.simulator.host import HostEngine
from mrc_testbed.simulator.simtest.census import census, is_small

INVARIANTS = {
    "placed": "a completed write's bytes are in place at the moment of its completion",
    "bounds": "nothing outside a region, and inside only what was posted, is ever touched",
    "order": "completions come in posting order and exactly once",
    "claims": "SACKs and ACKs claim nothing that did not arrive",
    "window": "no PSN beyond cack + MPR; nothing is sent into a full congestion window",
    "packets": "packets carry the posted bytes, consecutive PSNs, and rtx only when sent again",
    "states": "EV states move only by the table and for a reason",
    "paths": "data uses ports that are up and EVs in rotation",
    "balance": "planes differ by one packet per rotation when nothing is out",
    "budget": "a QP fails only when its retry budget is truly spent",
    "calm": "without faults nothing is lost, sent again or taken out",
    "blame": "a stall convicts no path but those through a switch that stalls; only timers that ran out send again",
    "ends": "with a finite budget every write completes or fails within the bound of its configuration",
    "memory": "state is bounded by windows and EVs, whatever the length of the run",
    "timers": "no packet stays in flight past its own timer",
    "forgotten": "a QP that has something to send is asked for it",
    "account": "bytes in flight are never below minus one counting unit, and not above zero when nothing is",
    "ports": "some refresh periods after the last change each end knows the other's ports, through restarts too",
    "neighbours": "a QP whose peer is gone does not stop the others to the same destination",
    "learns": "a round trip above the timer is learned: what leaves after the first answers is not sent again",
    "congestion": "without faults no QP dies, and all is written within what the bytes and the slowest link allow",
    "crash": "no exception leaves the engine",
}
LEARN_TRIPS = 2
"""Round trips after the first answer from which on a merely slow network causes no retransmission."""
SPARE_ENTRIES, ENTRIES_PER_PACKET, ENTRIES_PER_EV = 200, 16, 160
"""Limits of an engine's entries of one kind: base, for each packet in flight, and for each EV.

Finished items may stay in a queue until it is worth the trouble to clear it.
"""
COPIES = 8
"""Entries that each transmission may have of its own."""
TIMERS_EVERY_S = 0.001
GUARD = 64
"""Bytes of no-man's-land on both sides of a region, and between the writes in it."""
FILL = b"\xee"
_GUARD_BYTES = FILL * GUARD
_IN_ROTATION = (EvState.GOOD, EvState.SKIP)


class Violation(Exception):  # noqa: N818 - a finding of a run, not an error of the program
    """Violation of an invariant; `invariant` is its key in INVARIANTS, `time_s` its virtual time."""

    def __init__(self, invariant: str, detail: str, time_s: float = 0.0) -> None:
        super().__init__(f"{invariant}: {detail} (at {time_s:.6f} s)")
        self.invariant, self.detail, self.time_s = invariant, detail, time_s

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.invariant, self.detail, self.time_s)


@dataclass(slots=True)
class Posted:
    """Write as the application knows it; `start` is its offset in Lane.buffer."""

    wr_id: int
    start: int
    size: int
    imm: int | None
    first_psn: int
    last_psn: int


class Lane:
    """One direction of one connection: receiver memory, and what was posted, sent, received and claimed."""

    def __init__(self, sender: QpSide, receiver: QpSide, pieces: Sequence[bytes], imms: Sequence[int | None]) -> None:
        self.sender, self.receiver = sender, receiver
        self.name = f"{sender.name}->{receiver.name}"
        self.pieces, self.imms = pieces, imms
        want = bytearray(_GUARD_BYTES)
        self.starts: list[int] = []
        for piece in pieces:
            self.starts.append(len(want))
            want += piece + FILL * (len(piece) % 7)
        want += FILL * (GUARD + 1)
        self.want = want
        self.buffer = bytearray(FILL * len(want))
        self.region = receiver.endpoint.register(memoryview(self.buffer)[GUARD:-GUARD])
        self.posted: list[Posted] = []
        self.ended_count = 0
        self.failed: Status | None = None
        self.closed = False
        """Whether the sender's process died or its QP was destroyed; the lane then ends as it is."""
        self.doomed = False
        """Whether the receiver's QP was destroyed; the sender is not informed."""
        self.foreign = False
        """Whether packets of another life of the connection reached the receiver's QP."""
        self.imms_due: deque[Posted] = deque()

    def connect(self, sender_qp: EngineQueuePair, receiver_qp: EngineQueuePair, pmtu: int) -> None:
        """Begin the account: both QPs exist and their first PSNs are known."""
        self.sender_qp, self.receiver_qp, self.pmtu = sender_qp, receiver_qp, pmtu
        self.first_psn = self.next_psn = self.end_psn = sender_qp.first_psn
        # The account follows packets alone; `cack` and `known_cack` start in front of the first PSN.
        self.cack = self.known_cack = self.first_psn - 1
        """`cack`: PSN up to which all arrived; `known_cack`: PSN up to which the sender has an acknowledgment."""
        self.arrived_bits = 0
        """Bit i: PSN cack + 1 + i arrived."""
        self.rcvd = 0
        """Nominal bytes that arrived, each PSN once."""
        self.last_psns: list[int] = []
        self.answer_at = 0.0
        """Time of the last higher cack at the sender, which makes its retry budget whole (§5.11)."""
        self.progress_at = 0.0
        """Time of the last higher cack or completed write."""
        self.peak = 0
        """Greatest number of packets sent and not yet acknowledged at one time."""
        self.sent_at: dict[int, float] | None = None
        """Time of each PSN's first transmission; None: not needed."""
        self.answered_at: float | None = None
        """Time of the first answer; None: none yet."""
        self.busy_at = self.excused_at = 0.0
        """Time when an idle QP last got work, and time when it last had a good reason to wait."""
        self.mpr = receiver_qp.config.qp.mpr_packets
        self.extra = NOMINAL_EXTRA[receiver_qp.config.qp.rcvd_counts]
        self.counts = [0] * self.sender.endpoint.planes
        """Data packets by plane since the rotation last was as it should be."""
        self.slack = 0
        """1 once counting began in the middle of a rotation, else 0: the imbalance allowed on top."""
        self.turns = (0, 0, 0, 0)
        """Counters of the QP whose growth takes a turn in the rotation."""

    # ---- application ------------------------------------------------------------------------------------

    def post(self, now: float) -> None:
        """Post the next write."""
        index = len(self.posted)
        if self.ended_count == index:
            self.busy_at = now
        piece, imm = self.pieces[index], self.imms[index]
        va = self.region.va + self.starts[index] - GUARD
        wr_id = self.sender_qp.post_write(piece, va, self.region.rkey, now=now, imm=imm)
        packets = max(1, -(-len(piece) // self.pmtu))
        first, self.end_psn = self.end_psn, self.end_psn + packets
        posted = Posted(wr_id, self.starts[index], len(piece), imm, first, self.end_psn - 1)
        self.posted.append(posted)
        self.last_psns.append(posted.last_psn)
        if imm is not None:
            self.imms_due.append(posted)

    def imms_open(self) -> int:
        """Number of WriteIMM posted and not completed."""
        return sum(p.imm is not None for p in self.posted[self.ended_count :])

    # ---- arrivals at the receiver -----------------------------------------------------------------------

    def on_arrival(self, packet: Write) -> None:
        """Note a whole data packet that is about to be handed to the receiver's engine."""
        psn = unwrap(packet.psn, self.cack)
        offset = psn - self.cack - 1
        if offset < 0 or offset >= self.mpr or self.arrived_bits >> offset & 1:
            return
        self.rcvd += packet.size if self.extra is None else self.extra + len(packet.payload)
        self.arrived_bits |= 1 << offset
        while self.arrived_bits & 1:
            self.arrived_bits >>= 1
            self.cack += 1

    def in_place(self, posted: Posted) -> bool:
        end = posted.start + posted.size
        return self.buffer[posted.start : end] == self.want[posted.start : end]

    def guards_hold(self) -> bool:
        return self.buffer.startswith(_GUARD_BYTES) and self.buffer.endswith(_GUARD_BYTES)

    # ---- claims of the receiver -------------------------------------------------------------------------

    def claims(self, packet: PacketRecord) -> str | None:
        """False claim of a SACK or Transport ACK of the receiver, in words; None when all is true."""
        if type(packet) is Sack:
            cack = unwrap(packet.cack_psn, self.cack)
            if cack > self.cack:
                return f"SACK of cack {cack}, but {self.cack + 1} has not arrived"
            shift = cack + packet.sack_offset - self.cack - 1
            bits = packet.bitmap << shift if shift >= 0 else packet.bitmap >> -shift
            if false_bits := bits & ~self.arrived_bits:
                return f"SACK of PSN {self.cack + false_bits.bit_length()}, which has not arrived"
            if packet.rcvd_units > -(-self.rcvd // RCVD_UNIT):
                return f"SACK of {packet.rcvd_units * RCVD_UNIT} bytes, {self.rcvd} have arrived"
        elif type(packet) is TransportAck and packet.syndrome == Syndrome.ACK:
            psn = unwrap(packet.psn, self.cack)
            if psn > self.cack:
                return f"Transport ACK of PSN {psn}, but {self.cack + 1} has not arrived"
            if packet.msn > bisect_right(self.last_psns, self.cack):
                return f"Transport ACK of {packet.msn} messages, too many for cack {self.cack}"
        return None

    def on_answer(self, packet: PacketRecord, now: float) -> None:
        """Note a SACK or ACK that is about to be handed to the sender's engine."""
        if type(packet) is Sack:
            cack = unwrap(packet.cack_psn, self.known_cack)
        elif type(packet) is TransportAck and packet.syndrome == Syndrome.ACK:
            cack = unwrap(packet.psn, self.known_cack)
        else:
            return
        if self.answered_at is None:
            self.answered_at = now
        if self.known_cack < cack <= self.cack:  # one that goes beyond is of another life
            self.known_cack, self.progress_at, self.answer_at = cack, now, now


class QpSide:
    """Watched host: its endpoint, its ports, and the port status updates of its peers."""

    def __init__(self, name: str, endpoint: Endpoint) -> None:
        self.name, self.endpoint = name, endpoint
        self.ports = (1 << endpoint.planes) - 1
        """Mask of the host's ports that are up."""
        self.peer_ports: dict[str, tuple[int, int, float]] = {}
        """Newest port status update that arrived from each peer, as (request id, mask, time)."""
        self.reborn: set[str] = set()
        """Peers whose process was started anew.

        Updates of two lives may be on their way, and only in the end (*ports*) is it certain what has to be believed.
        """
        self.seen_count = 0
        """Number of events already checked."""
        self.is_stalled: Callable[[], bool] = lambda: False
        """Whether the host has no CPU, or reads its ports one by one: timers may then be late."""
        self.timers_at = 0.0
        """Time of the next check of the timers."""
        self.engine: HostEngine = endpoint
        """Engine that the host calls: the endpoint, or its watcher."""

    def peer_up(self, peer: str, plane: int, now: float) -> bool:
        """Whether the peer's port may be taken for up, by its last port status update, whose lease ends."""
        update = self.peer_ports.get(peer)
        if update is None or peer in self.reborn:
            return True
        lease_s = LEASE_REFRESHES * self.endpoint.config.ports.status_refresh_s
        return bool(update[1] >> plane & 1) or now >= update[2] + lease_s


class InvariantChecker:
    """Checker of a run's invariants.

    `calm`: the run has no way to lose a packet, and no faults but (`stalled`) hosts and switches without CPU; then
    timers may expire unless all is `in_time`. `dubious`: planes on which a switch stalls; for as long, a stalled switch
    looks like a dead one, so the EVs of these planes may go.
    """

    def __init__(
        self, calm: bool = False, stalled: bool = False, in_time: bool = True, dubious: frozenset[int] = frozenset()
    ) -> None:
        self.is_calm = calm
        self._dubious = dubious
        self._innocent = "blame" if stalled else "calm"
        self._patient = calm and (not stalled or in_time) and not dubious
        """Whether no packet can be late enough for a timer."""
        self.sides: dict[str, QpSide] = {}
        self.lanes: list[Lane] = []
        self._lanes_to: dict[tuple[str, int], list[Lane]] = {}
        """Lanes by receiving host and its QPN: one for each life of the connection, newest last."""
        self._lanes_from: dict[tuple[str, int], list[Lane]] = {}
        """Lanes by sending host and its QPN."""
        self.trip_s: float | None = None
        """True round trip for the *learns* invariant, seconds; None when unknown or when packets can be lost."""
        self.crowded = False
        """Whether too many senders are the only disturbance, as the *congestion* invariant requires."""
        self.now = 0.0
        self.trace: deque[tuple[float, str, str, Any]] = deque(maxlen=60)
        """Last packets and events: (time, host, kind, record)."""
        self._packet: PacketRecord | None = None
        """Packet being received now; None: none."""
        self._states: dict[Ev, EvState] = {}
        self._answers: dict[Ev, int] = {}
        """Probe answers received for an EV since it went bad."""
        self._configs: dict[EvProfile, Any] = {}
        self.sent = self.resent = 0

    def violation(self, invariant: str, detail: str) -> Violation:
        return Violation(invariant, detail, self.now)

    # ---- set-up -----------------------------------------------------------------------------------------

    def side(self, name: str, endpoint: Endpoint, ports: int | None = None) -> QpSide:
        """Watch an endpoint, by `side.engine` in its place. `ports`: those that are up, if not all."""
        side = self.sides[name] = QpSide(name, endpoint)
        if ports is not None:
            side.ports = ports
        side.engine = WatchedEngine(self, side)
        return side

    def lane(self, lane: Lane) -> None:
        """Watch a direction; its QPs are connected."""
        self.lanes.append(lane)
        self._lanes_to.setdefault((lane.receiver.name, lane.receiver_qp.qpn), []).append(lane)
        self._lanes_from.setdefault((lane.sender.name, lane.sender_qp.qpn), []).append(lane)
        if self.trip_s is not None:
            lane.sent_at = {}
        profile = lane.sender_qp.paths.profile
        profile.observer = partial(self.on_signal, profile)
        self._configs[profile] = lane.sender_qp.config
        for ev in profile:
            self._states[ev] = ev.state
            self._answers[ev] = 0

    # ---- packets ----------------------------------------------------------------------------------------

    def before_receive(self, side: QpSide, packet: PacketRecord, peer: str, now: float) -> None:
        self.now = now
        self._packet = packet
        self.trace.append((now, side.name, "got", packet))
        if type(packet) is Write:
            lanes = self._lanes_to.get((side.name, packet.dest_qp))
            if lanes and packet.trimmed is None:
                lane = lanes[-1]
                if lane.sender.name == peer and lane.receiver is side:
                    # Another R_Key is that of another life of the connection with the same QPN.
                    if lane.region.rkey == packet.rkey:
                        lane.on_arrival(packet)
                    else:
                        lane.foreign = True
        elif type(packet) is EndpointRequest and packet.op == EndpointOp.PORT_STATUS_UPDATE:
            last_update = side.peer_ports.get(peer)
            # Updates overtake each other; an older one says nothing any more.
            if last_update is None or (packet.request_id - last_update[0] & 0xFFFF) < 0x8000:
                mask = packet.port_mask >> side.endpoint.config.ports.bit_base
                side.peer_ports[peer] = packet.request_id, mask, now
                self.rotation_broken(side.name)
        elif type(packet) is Sack or type(packet) is TransportAck:
            answered_lane = next(reversed(self._lanes_from.get((side.name, packet.dest_qp), ())), None)
            if answered_lane is not None and answered_lane.receiver.name == peer and answered_lane.sender is side:
                answered_lane.on_answer(packet, now)
                if type(packet) is Sack and packet.probe_id is not None:
                    ev = answered_lane.sender_qp.paths.find(packet.entropy)
                    if ev is not None:
                        self._answers[ev] += 1

    def after_receive(self, side: QpSide, packet: PacketRecord) -> None:
        self._packet = None
        if type(packet) is Write:
            lane = next(reversed(self._lanes_to.get((side.name, packet.dest_qp), ())), None)
            if lane is not None and lane.receiver is side:
                if not lane.guards_hold():
                    raise self.violation("bounds", f"{lane.name}: PSN {packet.psn} wrote outside its region")
                connected = lane.receiver_qp.connected
                responder = None if connected is None else connected.responder
                if responder is not None and responder.cack > lane.cack:
                    raise self.violation("claims", f"{lane.name}: cack {responder.cack} is ahead of {lane.cack}")
        self.on_events(side)

    def on_sent(self, side: QpSide, out: list[tuple[int, str, PacketRecord]], all_free: bool, now: float) -> None:
        """Check the packets of one transmit call."""
        lanes: set[Lane] = set()
        last: dict[int, tuple[Lane, Write]] = {}
        for plane, peer, packet in out:
            self.trace.append((now, side.name, "sent", packet))
            if not side.ports >> plane & 1:
                raise self.violation("paths", f"{side.name} sends by plane {plane}, whose port is down")
            if type(packet) is Write:
                lane = self._lane_of(side, peer, packet)
                if lane is None:
                    raise self.violation("packets", f"{side.name} writes to QP {packet.dest_qp} of {peer}")
                self.on_write_sent(lane, packet, plane)
                lanes.add(lane)
                window = lane.sender_qp.requestor._window
                # QPs that share a window are checked once, after the last packet through it.
                last[id(window._cc if isinstance(window, Share) else window)] = lane, packet
            else:
                answered_lanes = [
                    lane for lane in self._lanes_from.get((peer, packet.dest_qp), ()) if lane.receiver is side
                ]
                false_claims = [lane.claims(packet) for lane in answered_lanes]
                # Another life of the connection may have the same QPN: one true claim is enough.
                if answered_lanes and all(false_claims):
                    raise self.violation("claims", f"{answered_lanes[-1].name}: {false_claims[-1]}")
        for lane, packet in last.values():
            self.check_window(lane, packet)
        for lane in lanes:
            self.check_balance(lane, all_free)
        if side.endpoint._events:
            self.on_events(side)

    def _lane_of(self, side: QpSide, peer: str, packet: Write) -> Lane | None:
        """Lane of a packet; other lives of a connection have other R_Keys."""
        for lane in self._lanes_to.get((peer, packet.dest_qp), ()):
            if lane.sender is side and lane.region.rkey == packet.rkey:
                return lane
        return None

    def _has_learned(self, lane: Lane, sent_at: float) -> bool:
        """Whether a packet left at a time when the sender must have known the true round trip."""
        known_at = None if lane.answered_at is None else lane.answered_at + LEARN_TRIPS * (self.trip_s or 0.0)
        return known_at is not None and sent_at > known_at

    def on_write_sent(self, lane: Lane, packet: Write, plane: int) -> None:
        psn = unwrap(packet.psn, lane.next_psn)
        self.sent += 1
        if psn == lane.next_psn:
            lane.next_psn += 1
            if psn - lane.known_cack > lane.peak:
                lane.peak = psn - lane.known_cack
            if lane.sent_at is not None:
                lane.sent_at[psn] = self.now
            if packet.rtx:
                raise self.violation("packets", f"{lane.name}: PSN {psn} has rtx set the first time")
        else:
            self.resent += 1
            if psn > lane.next_psn or not packet.rtx:
                raise self.violation("packets", f"{lane.name}: PSN {psn}, rtx {packet.rtx}; next is {lane.next_psn}")
            if lane.sent_at is not None and self._has_learned(lane, lane.sent_at[psn]):
                detail = f"PSN {psn} of {lane.sent_at[psn]:.6f} s is sent again"
                raise self.violation("learns", f"{lane.name}: {detail}, the first answer came at {lane.answered_at} s")
            # Nothing is lost or late in such a run, so no packet may be taken for lost.
            if self._patient:
                raise self.violation(self._innocent, f"{lane.name}: PSN {psn} is sent again though nothing was lost")
        if psn >= lane.end_psn:
            raise self.violation("packets", f"{lane.name}: PSN {psn} belongs to no write")
        if psn > lane.known_cack + lane.mpr:
            raise self.violation("window", f"{lane.name}: PSN {psn} > cack {lane.known_cack} + MPR {lane.mpr}")
        offset = packet.va - lane.region.va + GUARD
        if offset < GUARD or not lane.want.startswith(buffer_of(packet.payload), offset):
            raise self.violation("packets", f"{lane.name}: PSN {psn} carries other bytes than were posted")
        ev = lane.sender_qp.paths.find(packet.ev)
        if ev is None or ev.plane != plane or not ev.active or ev.state not in _IN_ROTATION:
            raise self.violation("paths", f"{lane.name}: PSN {psn} on plane {plane} uses {ev!r}, not in rotation")
        if not lane.sender.peer_up(lane.receiver.name, plane, self.now):
            raise self.violation("paths", f"{lane.name}: PSN {psn} uses plane {plane}, down at the peer")
        lane.counts[plane] += 1

    def check_window(self, lane: Lane, last: Write) -> None:
        """Check §5.3 after several packets through one window: it was open before the last, or the pipe empty.

        What a parked QP sends is outside the window, and one packet at a time (docs/design/congestion-window.md, note
        4).
        """
        requestor = lane.sender_qp.requestor
        window, flight = requestor._window, requestor.flight
        is_parked = isinstance(window, Share) and window.parked
        cc_window = window._cc if isinstance(window, Share) and not is_parked else window
        inflight = cc_window.inflight - last.size
        cwnd = 1.0 if is_parked else window.cwnd
        if inflight >= cwnd and flight.bytes > last.size:
            detail = f"{inflight:.0f} of {cwnd:.0f} in flight" + (", parked" if is_parked else "")
            raise self.violation("window", f"{lane.name}: PSN {last.psn} left with {detail}")
        if flight.bytes < 0:
            raise self.violation("window", f"{lane.name}: {flight.bytes} bytes in flight")
        if window.inflight - last.size < -RCVD_UNIT:
            raise self.violation("account", f"{lane.name}: {window.inflight - last.size} bytes in flight")

    def check_timers(self, side: QpSide) -> None:
        """Check the timer of each packet, which no other path changes (§5.11); timers had their turn."""
        if side.is_stalled():
            return
        endpoint = side.endpoint
        first = endpoint.next_timer()
        wakes_at = NEVER if first is None else first
        for qp in endpoint._qps.values():
            if qp.sends and qp.next_deadline() != (due := min(qp._sending_due(), qp._answer_due())):
                detail = f"it believes {qp.next_deadline():.6f} s"
                raise self.violation("timers", f"QP {qp.qpn} of {side.name} is due at {due:.6f} s, {detail}")
            if qp.next_deadline() < wakes_at:
                raise self.violation("timers", f"QP {qp.qpn} of {side.name} is due before it wakes up at {first} s")
            if (qp.can_send() and qp.turn not in endpoint._ready_turns) or (
                qp.owes_ack() and qp not in endpoint._owing
            ):
                raise self.violation("forgotten", f"QP {qp.qpn} of {side.name} can send, and is not asked to")
        for lane in self.lanes:
            if lane.sender is side and not lane.closed:
                for sent in lane.sender_qp.requestor.flight.outstanding_sent():
                    if sent.deadline < self.now and sent.state == IN_FLIGHT:
                        detail = f"its timer ran out at {sent.deadline:.6f} s"
                        raise self.violation("timers", f"{lane.name}: PSN {sent.psn} is still in flight, {detail}")

    def check_memory(self) -> None:
        """Check that state is bounded by the most that was ever in flight, and by the number of EVs."""
        for side in self.sides.values():
            limit = SPARE_ENTRIES
            for lane in self.lanes:
                if side in (lane.sender, lane.receiver):
                    evs = len(lane.sender_qp.paths.profile)
                    limit += ENTRIES_PER_PACKET * lane.peak + ENTRIES_PER_EV * evs
            if is_small(side.endpoint, limit):
                continue
            for attribute, entries in census(side.endpoint).items():
                plenty = limit * COPIES if attribute == "Sent.copies" else limit
                if entries > plenty:
                    raise self.violation(
                        "memory", f"{side.name}: {entries:,} entries in {attribute}, {plenty} are plenty"
                    )

    def check_balance(self, lane: Lane, all_free: bool) -> None:
        """Check §5.5: planes differ by one packet at most, with all ports free and every EV in its place.

        All ports are up, too.

        Whatever takes a turn without a new data packet (a probe, a packet sent again elsewhere) starts the count anew.
        """
        side, qp = lane.sender, lane.sender_qp
        profile, counters = qp.paths.profile, qp.counters
        turns = (counters.probes_sent, counters.retry_charges, counters.lost, counters.retransmitted)
        all_ports = (1 << side.endpoint.planes) - 1
        peer = side.peer_ports.get(lane.receiver.name)
        if (
            not all_free
            or turns != lane.turns
            or side.ports != all_ports
            or lane.receiver.name in side.reborn
            or (peer is not None and peer[1] & all_ports != all_ports)
            or any(ev.state not in _IN_ROTATION for ev in profile)
        ):
            lane.turns = turns
            self._restart_count(lane)
            return
        counts = [lane.counts[p] for p in profile.planes]
        if max(counts) - min(counts) > 1 + lane.slack:
            raise self.violation("balance", f"{lane.name}: planes carried {counts} packets with nothing out")

    def rotation_broken(self, host: str) -> None:
        for lane in self.lanes:
            if host in (lane.sender.name, lane.receiver.name):
                self._restart_count(lane)

    @staticmethod
    def _restart_count(lane: Lane) -> None:
        lane.counts = [0] * len(lane.counts)
        lane.slack = 1

    # ---- events -----------------------------------------------------------------------------------------

    def on_events(self, side: QpSide) -> None:
        """Check the events that are new since the last call."""
        events = side.endpoint._events
        if len(events) <= side.seen_count:
            return
        new_events = events[side.seen_count :]
        side.seen_count = len(events)
        for event in new_events:
            self.trace.append((self.now, side.name, "event", event))
            if type(event) is Completion:
                self._completed(self._lanes_from[side.name, event.qpn][-1], event)
            elif type(event) is WriteImmReceived:
                self._imm(self._lanes_to[side.name, event.qpn][-1], event)
            elif type(event) is QpError:
                self._failed(
                    self._lanes_from[side.name, event.qpn][-1], self._lanes_to[side.name, event.qpn][-1], event
                )
            elif type(event) is PacketLost and self.is_calm and (self._patient or self._hasty(event)):
                detail = f"{side.name} takes PSN {event.psn} on EV {event.ev:#06x} for lost: {event.cause.value}"
                raise self.violation(self._innocent, detail)

    def _hasty(self, event: PacketLost) -> bool:
        """Whether a packet was judged lost before its timer, which no silence of a host justifies."""
        return event.cause is not LossCause.TIMEOUT and event.plane not in self._dubious

    def _completed(self, lane: Lane, event: Completion) -> None:
        if lane.ended_count >= len(lane.posted):
            raise self.violation("order", f"{lane.name}: write {event.wr_id} completes, none is left")
        posted = lane.posted[lane.ended_count]
        lane.ended_count += 1
        lane.progress_at = self.now
        if event.wr_id != posted.wr_id or event.length != posted.size:
            raise self.violation("order", f"{lane.name}: write {event.wr_id} completes, {posted.wr_id} is next")
        if event.status is not Status.SUCCESS:
            lane.failed = lane.failed or event.status
            if lane.sender_qp.state is not EngineQpState.ERROR:
                raise self.violation("budget", f"{lane.name}: write {event.wr_id} ends with {event.status.value}")
            return
        if lane.failed is not None:
            raise self.violation("order", f"{lane.name}: write {event.wr_id} succeeds after another failed")
        if posted.last_psn > lane.cack:
            raise self.violation("placed", f"{lane.name}: write {event.wr_id} completes before all its packets arrived")
        if not lane.in_place(posted):
            raise self.violation("placed", f"{lane.name}: write {event.wr_id} completes, its bytes are not in place")

    def _imm(self, lane: Lane, event: WriteImmReceived) -> None:
        posted = lane.imms_due.popleft() if lane.imms_due else None
        if posted is None or posted.imm != event.imm or posted.size != event.length:
            immediate = f"immediate {event.imm:#x} of {event.length} bytes"
            raise self.violation("order", f"{lane.name}: {immediate}, due: {posted}")
        if posted.last_psn > lane.cack or not lane.in_place(posted):
            raise self.violation("placed", f"{lane.name}: immediate {event.imm:#x} comes before its bytes")

    def _failed(self, lane: Lane, reverse_lane: Lane, event: QpError) -> None:
        """Check a QP's failure: only a whole budget without progress justifies it (§5.11)."""
        config = lane.sender_qp.config
        limit = config.loss.retry_limit
        if self.crowded:
            raise self.violation("congestion", f"{lane.name}: QP failed: {event.status.value}: {event.detail}")
        if event.status is Status.REMOTE_ACCESS and lane.receiver_qp.state is EngineQpState.ERROR:
            return  # the other end gave up, and says so (§6.2 step 3)
        if lane.foreign or reverse_lane.foreign:
            return  # something of another life came in, whose R_Key is refused
        if event.status is not Status.RETRY_EXCEEDED:
            raise self.violation("budget", f"{lane.name}: QP failed: {event.status.value}: {event.detail}")
        if limit is None:
            raise self.violation("budget", f"{lane.name}: QP gave up, but exp_cnt says never")
        budget_s = sum(config.loss.retry_interval_s(n) for n in range(1, limit))
        silence_s = self.now - lane.answer_at
        if silence_s < budget_s - 1e-9:
            raise self.violation(
                "budget", f"{lane.name}: QP gave up after {silence_s:.6f} s of silence, due: {budget_s:.6f}"
            )

    # ---- EV signals -------------------------------------------------------------------------------------

    def on_signal(
        self, profile: EvProfile, ev: Ev, old_state: EvState, signal: EvSignal, new_state: EvState, _now: float
    ) -> None:
        """Check an EV signal: the move must be the table's, and its cause must have happened."""
        known_state = self._states[ev]
        if old_state is not known_state and not (known_state is EvState.SKIP and old_state is EvState.GOOD):
            raise self.violation("states", f"{ev!r} was {known_state.name}, is {old_state.name} without a signal")
        table_state = ev_moves(self._configs[profile])[old_state, signal]
        held = table_state is EvState.ASSUMED_BAD and new_state is old_state
        if new_state is not table_state and not held:
            raise self.violation("states", f"{ev!r}: {old_state.name} and {signal.name} make {new_state.name}")
        packet = self._packet
        if signal is EvSignal.SACK_SKIP_ONCE:
            good = type(packet) is Sack and packet.verdict == Verdict.SKIP_ONCE and packet.entropy == ev.value
        elif signal is EvSignal.TRIMMED:
            named = type(packet) is Nack and packet.reason == NackReason.TRIMMED and packet.entropy == ev.value
            good = named or (ev.trimmed > 0 and ev.lost > 0)  # a loss that may have been a trim with its NACK
        elif signal in (EvSignal.PROBE_CLEAN, EvSignal.PROBE_SKIP_ONCE):
            plane_evs: list[Ev | None] = [
                candidate for candidate in profile.on_plane(ev.plane) if candidate.active and candidate is not ev
            ]
            at_a_loss = all(candidate is not None and candidate.in_doubt for candidate in plane_evs or [ev.stand_in])
            good = self._answers[ev] >= (1 if at_a_loss else self._configs[profile].probes.ok_count)
        else:
            good = True
        if self.is_calm and new_state is EvState.ASSUMED_BAD and ev.plane not in self._dubious:
            raise self.violation(self._innocent, f"{ev!r} is withdrawn ({signal.value}), with nothing lost")
        if not good:
            raise self.violation("states", f"{ev!r}: {signal.name} without cause")
        if new_state is EvState.ASSUMED_BAD and old_state is not new_state:
            answer = type(packet) is Sack and packet.probe_id is not None and packet.entropy == ev.value
            self._answers[ev] = int(answer)  # the packet that brings the bad news may be an answer, too
            if profile.active_count < min(1, profile.floor):
                raise self.violation("states", f"{ev!r} left the rotation with {profile.active_count} EVs")
        self._states[ev] = new_state

    # ---- the end ----------------------------------------------------------------------------------------

    def at_the_end(self) -> None:
        """Check the final account, with no packet in flight."""
        for side in self.sides.values():
            self.on_events(side)
        for lane in self.lanes:
            for number, posted in enumerate(lane.posted):
                end = posted.start + posted.size
                if not lane.in_place(posted):
                    done = lane.failed is None and number < lane.ended_count
                    if done or strange_bytes(lane.buffer[posted.start : end], lane.want[posted.start : end]):
                        raise self.violation("bounds", f"{lane.name}: write {posted.wr_id} left bytes not its own")
            if lane.failed is None and lane.ended_count == len(lane.pieces) and lane.buffer != lane.want:
                raise self.violation("bounds", f"{lane.name}: bytes between the writes were touched")
            if lane.closed:
                continue
            done = lane.failed is None and lane.ended_count == len(lane.posted)
            if done and lane.receiver_qp.state is EngineQpState.RTS and lane.imms_due:
                raise self.violation("order", f"{lane.name}: {len(lane.imms_due)} immediates were never delivered")
            flight = lane.sender_qp.requestor.flight
            if lane.ended_count == len(lane.posted) and (flight.bytes or flight.outstanding):
                raise self.violation("window", f"{lane.name}: {flight.bytes} bytes in flight after all completed")
            window = lane.sender_qp.requestor._window
            if lane.ended_count == len(lane.posted) and not -RCVD_UNIT <= window.inflight <= 0:
                raise self.violation("account", f"{lane.name}: {window.inflight} bytes in flight after all completed")
        self.check_memory()


def strange_bytes(have: bytearray, want: bytearray) -> bool:
    """Return whether any byte is neither the initial FILL nor the wanted one.

    Both texts have one length.
    """
    size = len(have)
    have_bits = int.from_bytes(have, "big")
    low, high = int.from_bytes(b"\x7f" * size, "big"), int.from_bytes(b"\x80" * size, "big")
    unlike_want, unlike_fill = have_bits ^ int.from_bytes(want, "big"), have_bits ^ int.from_bytes(FILL * size, "big")
    # The high bit of each byte: whether the byte is not zero.
    return bool(((unlike_want & low) + low | unlike_want) & ((unlike_fill & low) + low | unlike_fill) & high)


class WatchedEngine:
    """An Endpoint under watch: the calls of its host go through the checker."""

    def __init__(self, checker: InvariantChecker, side: QpSide) -> None:
        self._checker, self._side = checker, side
        self._endpoint = side.endpoint
        self.next_deadline = side.endpoint.next_deadline

    def receive(self, packet: PacketRecord, plane: int, peer: str, now: float) -> None:
        self._checker.before_receive(self._side, packet, peer, now)
        self._endpoint.receive(packet, plane, peer, now)
        self._checker.after_receive(self._side, packet)

    def transmit(
        self, now: float, limit: int = 64, room: list[int] | None = None
    ) -> list[tuple[int, str, PacketRecord]]:
        checker, side = self._checker, self._side
        checker.now = now
        if now >= side.timers_at:
            side.timers_at = now + TIMERS_EVERY_S
            checker.check_timers(side)
        out = self._endpoint.transmit(now, limit, room)
        if out:
            checker.on_sent(side, out, room is None or min(room) >= len(out), now)
        return out

    def on_timer(self, now: float) -> None:
        self._checker.now = now
        self._endpoint.on_timer(now)
        self._checker.on_events(self._side)

    def on_port(self, plane: int, is_up: bool, now: float) -> None:
        checker, side = self._checker, self._side
        checker.now = now
        side.ports = side.ports | 1 << plane if is_up else side.ports & ~(1 << plane)
        self._endpoint.on_port(plane, is_up, now)
        checker.on_events(side)
        checker.rotation_broken(side.name)

    def events(self) -> list[Event]:
        self._checker.on_events(self._side)
        self._side.seen_count = 0
        return self._endpoint.events()
