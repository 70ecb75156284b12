"""One MRC queue pair: attributes that travel out of band, and the two halves behind one QPN."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from enum import Enum
from functools import partial
from random import Random
from typing import Any, Final, Protocol

from mrc_testbed.hosts.engine.cc.ccprofile import DEFAULT_PROFILE
from mrc_testbed.hosts.engine.cc.qpcc import Window
from mrc_testbed.hosts.engine.config import PATH_MTUS, Config
from mrc_testbed.hosts.engine.connection import Context, Counters, PlaneCounters, TxCredit
from mrc_testbed.hosts.engine.deadlines import NEVER, TimedItem
from mrc_testbed.hosts.engine.errors import LocalError, PeerError
from mrc_testbed.hosts.engine.events import Event, QpError, Status
from mrc_testbed.hosts.engine.loss.proof_of_loss import ProofOfLoss
from mrc_testbed.hosts.engine.loss.roundtrips import RoundTrips
from mrc_testbed.hosts.engine.memory import EngineMemoryRegion, Memory, QpAccess
from mrc_testbed.hosts.engine.paths.ev import EvProfile
from mrc_testbed.hosts.engine.paths.ev_state import EvSignal
from mrc_testbed.hosts.engine.paths.paths import QpPaths
from mrc_testbed.hosts.engine.paths.peer_table import Peer, PeerTable
from mrc_testbed.hosts.engine.requestor import Requestor
from mrc_testbed.hosts.engine.resources import PENALTY_MAX
from mrc_testbed.hosts.engine.responder import Responder
from mrc_testbed.hosts.engine.wire.codec import nominal_size
from mrc_testbed.hosts.engine.wire.packets import (
    FIRST_QPN,
    MPR_UNIT,
    Nack,
    Opcode,
    PacketRecord,
    ReliabilityProbe,
    Sack,
    TransportAck,
    Write,
)
from mrc_testbed.hosts.engine.wire.payload import Data, TextPart
from mrc_testbed.hosts.engine.wire.psn import PSN_MASK


class EngineQpState(Enum):
    """States of a queue pair, those of §10.1 that the engine tells apart."""

    INIT = "init"
    """State of a new QP, without a peer."""
    RTS = "rts"
    """Connected: sends and receives."""
    ERROR = "error"
    """Work requests were flushed; packets are ignored."""


_RTS: Final = EngineQpState.RTS
"""State RTS, looked up once: a member of an Enum costs as much as a call of a method."""


@dataclass(frozen=True, slots=True)
class QpAttributes:
    """Attributes that two ends exchange out of band before they connect (§10.2).

    JSON holds the record as it is.
    """

    qpn: int
    """QPN, 3 or above."""
    psn: int
    """First PSN this end will send, 24 bits."""
    pmtu_bytes: int
    mpr_packets: int
    """Window of this end as responder."""
    max_wimm: int
    """WriteIMM messages this end can have in flight towards it."""
    trim_nack: bool
    """Whether this end answers trimmed packets with a NACK."""
    va: int = 0
    """Virtual address of the registered region the peer may write to, when one is offered.

    Beside it: R_Key, and length in bytes."""
    rkey: int = 0
    length: int = 0
    dynamic_mpr: bool = False
    """Whether this end's window may change, and this end follows the peer's."""
    transport: str | None = None
    """"mrc" or "rocev2", which must be the peer's; None: not said, not checked."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> QpAttributes:
        """Inverse of to_json. Raises PeerError naming the key that is missing, unknown or out of range."""
        names = {f.name for f in fields(cls)}
        optional = {"va", "rkey", "length", "dynamic_mpr", "transport"}
        if not isinstance(data, dict) or not set(data) <= names or not names - optional <= set(data):
            raise PeerError(f"QP attributes have the keys {', '.join(sorted(names))}; got {data!r}")
        for key, value in data.items():
            if key in ("trim_nack", "dynamic_mpr"):
                good = isinstance(value, bool)
            elif key == "pmtu_bytes":
                good = value in PATH_MTUS
            elif key == "transport":
                good = value in (None, "mrc", "rocev2")
            else:
                low, high = _RANGES[key]
                good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
            if not good:
                raise PeerError(f"QP attribute {key} = {value!r} is out of range")
        return cls(**data)


_RANGES: Final = {
    "qpn": (FIRST_QPN, PSN_MASK),
    "psn": (0, PSN_MASK),
    "mpr_packets": (1, 255 * 128),
    "max_wimm": (0, 0xFFFF),
    "va": (0, (1 << 64) - 1),
    "rkey": (0, 0xFFFFFFFF),
    "length": (0, (1 << 64) - 1),
}


@dataclass(frozen=True, slots=True)
class Connected:
    """State of a queue pair from connect() on, kept in ERROR."""

    remote: QpAttributes
    """Attributes of the peer."""
    requestor: Requestor
    responder: Responder
    paths: QpPaths
    window: Window


def _if_known(rtt_s: float) -> float | None:
    """Round trip of an EV for tools; None before the first one."""
    return None if rtt_s < 0 else rtt_s


class SendingHalf(Protocol):
    """Questions to a requestor, whatever its transport."""

    def pending(self) -> int: ...

    def wants_to_send(self) -> bool: ...

    def in_flight(self) -> bool: ...

    def window_open(self) -> bool: ...

    def restart(self, first_psn: int, remote_mpr: int, config: Config) -> None: ...


class TouchedQps:
    """QPs that changed, each once, in the order of their changes: a chain through the QPs themselves."""

    __slots__ = ("_last", "first")

    def __init__(self) -> None:
        self.first: EngineQueuePair | None = None
        self._last: EngineQueuePair | None = None

    def add(self, qp: EngineQueuePair) -> None:
        """Append a QP that is not in the chain."""
        last = self._last
        if last is None:
            self.first = qp
        else:
            last.next_touched = qp
        self._last = qp

    def take_all(self) -> EngineQueuePair | None:
        """Empty the chain; return its first QP, whose `next_touched` leads to the others."""
        first = self.first
        self.first = self._last = None
        return first


class EngineQueuePair(TimedItem):
    """MRC queue pair of an endpoint (Endpoint.create_qp); `connected` is None until connect()."""

    transport = "mrc"

    def __init__(
        self,
        qpn: int,
        psn: int,
        planes: int,
        config: Config,
        memory: Memory,
        peers: PeerTable,
        events: list[Event],
        rng: Random,
        touched_qps: TouchedQps,
        counters: Counters | None = None,
    ) -> None:
        super().__init__()
        self.qpn = qpn
        self.first_psn = psn
        self.state = EngineQpState.INIT
        self.peer: str | None = None
        self.link: Peer | None = None
        """State of the peer in the endpoint's table."""
        self.connected: Connected | None = None
        self.counters = counters or Counters(planes=[PlaneCounters() for _ in range(planes)])
        self.error: str | None = None
        """Reason of ERROR; None in other states."""
        self._planes, self._config, self._memory, self._peers = planes, config, memory, peers
        self._access: QpAccess | None = None
        self._events, self._rng = events, rng
        self._wr_id = self._recv_id = 0
        self._receives: deque[int] = deque()
        self._dynamic_mpr = False
        self._cc_profile = DEFAULT_PROFILE
        self.turn = -1
        """Place among the QPs of the endpoint; -1: it has been destroyed."""
        self._owes_ack = False
        """Whether the responder owes a Transport ACK; kept, for the endpoint asks after every packet."""
        self.listed = self.owing = False
        """Whether the endpoint lists the QP as able to send; as owing a Transport ACK."""
        # Deadlines are kept: most packets of a receiver change the responder alone.
        self._deadline = NEVER
        """Result of the last next_deadline(), which holds until something changes."""
        self._sender_deadline = NEVER
        """Deadline of the sending half alone."""
        self._changed = False
        self.sender_changed = True
        """Whether more than the responder changed since the endpoint last read the deadlines."""
        self.is_examined = False
        """Whether nothing changed since the endpoint last asked what the QP has to send."""
        self._touched_qps = touched_qps
        """Chain of changed QPs; the endpoint reads their deadlines and whether they can send."""
        self.next_touched: EngineQueuePair | None = None
        """Next QP of that chain."""

    def touch(self) -> None:
        """Mark the QP as changed."""
        self.sender_changed = True
        self.touch_responder()

    def touch_responder(self) -> None:
        """Mark only the responder as changed; the sending half, with all its queues, is not examined then.

        The usual case with most packets of a receiver.
        """
        self.is_examined = False
        if not self._changed:
            self._changed = True
            self._touched_qps.add(self)

    def _need_connected(self) -> Connected:
        """Return the connected parts; raises LocalError before connect()."""
        if self.connected is None:
            raise LocalError(f"QP {self.qpn} is in {self.state.value}, without a peer. Cure: connect() first")
        return self.connected

    def _sending_half(self) -> SendingHalf | None:
        """Return the requestor; None before connect()."""
        return None if self.connected is None else self.connected.requestor

    @property
    def requestor(self) -> Requestor:
        """Return the sending half; for tests and tools, not per packet.

        Raises LocalError before connect(), as do `responder` and `paths`.
        """
        return self._need_connected().requestor

    @property
    def responder(self) -> Responder:
        return self._need_connected().responder

    @property
    def paths(self) -> QpPaths:
        return self._need_connected().paths

    @property
    def config(self) -> Config:
        """Configuration of the QP."""
        return self._config

    # ---- set-up -----------------------------------------------------------------------------------------

    def attributes(self, region: EngineMemoryRegion | None = None) -> QpAttributes:
        """Return attributes for the peer, out of band; with the region it may write to, if any."""
        config = self._config
        region_fields = (0, 0, 0) if region is None else (region.va, region.rkey, region.length)
        return QpAttributes(
            self.qpn,
            self.first_psn,
            config.qp.pmtu_bytes,
            config.qp.mpr_packets,
            config.qp.max_wimm,
            config.acks.trim_nack,
            *region_fields,
            config.qp.dynamic_mpr,
            self.transport,
        )

    def set_cc_profile(self, profile_id: int) -> None:
        """Set the CC profile of this QP (§10.4); 0: as the configuration has it.

        Raises LocalError unless the QP is in INIT and the profile ONLINE.
        """
        if self.state is not EngineQpState.INIT:
            raise LocalError(f"QP {self.qpn} is in {self.state.value}: a CC profile is set before it connects")
        profiles = self._peers.qpccs.profiles
        profiles.take(profile_id)
        profiles.give_back(self._cc_profile)
        self._cc_profile = profile_id

    def limit_access(self, access: QpAccess) -> None:
        """Restrict the peer's writes to some of the endpoint's registrations.

        Raises LocalError unless in INIT.
        """
        if self.state is not EngineQpState.INIT:
            raise LocalError(f"QP {self.qpn} is in {self.state.value}: access is limited before it connects")
        self._access = access

    def cc_state(self) -> dict[str, Any]:
        """Window, base RTT, delay and what moved the window, see qpcc.Qpcc.report; empty before connect()."""
        return {} if self.connected is None else {"profile": self._cc_profile, **self.connected.window.report()}

    def release(self) -> None:
        """Release the share of a window and the CC profile of a destroyed QP."""
        if self.connected is not None:
            self.connected.window.leave()
        self._peers.qpccs.profiles.give_back(self._cc_profile)

    def connect(
        self,
        peer: str,
        remote: QpAttributes,
        evs: Sequence[tuple[int, int]],
        now: float,
        window: Any = None,
        denied: Iterable[int] = (),
        config: Config | None = None,
    ) -> None:
        """Connect to a peer: INIT -> RTS.

        `peer`: the NIC's key of the other host; `evs`: (EV, plane) pairs that name distinct paths.

        `window`: a qpcc.Window of the caller's; by default the CC profile decides (set_cc_profile). `denied`: the
        denylist, EVs that are DENIED from the start and replaced within their plane; those the profile lacks are
        ignored (§5.13). `config`: of this QP alone, in place of the endpoint's. Raises LocalError when the QP is not in
        INIT or the EVs make no profile.
        """
        if self.state is not EngineQpState.INIT:
            raise LocalError(f"QP {self.qpn} is in {self.state.value}: only a new one can be connected")
        self._check_transport(remote)
        if bad_planes := sorted({plane for _, plane in evs if not 0 <= plane < self._planes}):
            raise LocalError(
                f"EVs on planes {bad_planes}, but there are {self._planes} planes, 0 to {self._planes - 1}"
            )
        config = self._config = config or self._config
        try:
            profile = EvProfile(evs, config, self._rng, denied)
        except ValueError as error:
            raise LocalError(str(error)) from None
        pmtu = min(config.qp.pmtu_bytes, remote.pmtu_bytes)
        context = Context(
            self.qpn,
            remote.qpn,
            peer,
            config,
            self._events,
            pmtu,
            remote.mpr_packets,
            remote.trim_nack,
            config.qp.dynamic_mpr and remote.dynamic_mpr,
            self._peers.incast,
        )
        if window is None:
            window = self._peers.qpccs.window(
                peer,
                self._cc_profile,
                config,
                nominal_size(config)(Opcode.WRITE_MIDDLE, pmtu, config.wire.timestamps),
                remote.mpr_packets,
                remote.trim_nack,
                now,
            )
        self.peer = peer
        link = self.link = self._peers.get(peer)
        proof = ProofOfLoss(RoundTrips(config))
        paths = QpPaths(profile, context, self.counters, self._rng, link.ack_paths, proof)
        requestor = Requestor(context, self.counters, paths, window, proof, self.first_psn, self._fail)
        responder = Responder(
            context,
            self.counters,
            self._memory,
            remote.psn,
            self._receives,
            self._peers,
            link,
            partial(self._fail, blame_own=False),
        )
        responder.access = self._access
        self.connected = Connected(remote, requestor, responder, paths, window)
        self._dynamic_mpr = context.dynamic_mpr
        self.state = _RTS
        self.touch()
        for listener in link.listeners:
            listener.touch()  # its window is perhaps no longer its own
        self._peers.on_connect(link, self, profile, now)

    def _check_transport(self, remote: QpAttributes) -> None:
        """Raise LocalError when the peer's attributes name another transport."""
        if remote.transport not in (None, self.transport):
            raise LocalError(
                f"QP {self.qpn} is {self.transport}, QP {remote.qpn} of the peer {remote.transport}: make both alike"
            )

    def begin_sending(self, first_psn: int, remote_mpr: int, config: Config) -> None:
        """Set up the requestor, the second half of a set-up in two steps, before anything was posted.

        `config`: as given to connect(), with other timers and retries. Raises LocalError when it is too late.
        """
        sender = self._sending_half()
        if self.state is not _RTS or sender is None or self._wr_id:
            raise LocalError(f"QP {self.qpn}: a requestor is set up after connect() and before the first post")
        self.first_psn, self._config = first_psn, config
        self.touch()
        sender.restart(first_psn, remote_mpr, config)

    # ---- application ------------------------------------------------------------------------------------

    def post_write(
        self, local: Any, remote_va: int, rkey: int, *, now: float, imm: int | None = None, solicited: bool = False
    ) -> int:
        """Queue an RDMA write (WriteIMM with `imm`); returns its wr_id, which counts from 1.

        `local` (any contiguous buffer) must stay unchanged until the Completion. `solicited`: the WriteIMM asks for
        an event at the peer. Raises LocalError when the QP is not in RTS, a value does not fit its field, or the peer
        takes no more WriteIMM now; what it thinks of R_Key and range comes with the Completion.
        """
        data = self._checked_write(local, remote_va, rkey, imm)
        connected = self._need_connected()
        limit, requestor = connected.remote.max_wimm, connected.requestor
        if imm is not None and requestor.wimm_outstanding >= limit:
            raise LocalError(f"QP {self.qpn}: the peer takes {limit} WriteIMM at a time: wait for a completion (§5.3)")
        self._wr_id += 1
        self.touch()
        requestor.post(self._wr_id, data, remote_va, rkey, imm, solicited)
        requestor.watch_paths(now)
        return self._wr_id

    def _checked_write(self, local: Any, remote_va: int, rkey: int, imm: int | None) -> Data:
        """Return the bytes of a write whose values fit their fields.

        Raises LocalError, also when the QP is not in RTS.
        """
        if self.state is not _RTS:
            reason = f": {self.error}" if self.error else ""
            raise LocalError(f"QP {self.qpn} is in {self.state.value}, needs rts{reason}")
        data = local if isinstance(local, TextPart) else memoryview(local).cast("B")
        for name, value, bits in (("remote_va", remote_va, 64), ("rkey", rkey, 32), ("imm", imm or 0, 32)):
            if not 0 <= value < 1 << bits:
                raise LocalError(f"{name} = {value:#x} does not fit {bits} bits")
        if len(data) >= 1 << 32 or remote_va + len(data) > 1 << 64:
            raise LocalError(f"a write of {len(data)} bytes to {remote_va:#x}: at most 4 GiB - 1, inside 64 bits")
        return data

    def post_recv(self) -> int:
        """Post a receive for one WriteIMM; return the recv_id it will carry, which counts from 1.

        Each WriteIMM uses up one, in order; one that finds none ends the QP, for MRC has no RNR (§6.3). Post before the
        peer can send: receives may be posted before connect. Raises LocalError in ERROR.
        """
        if self.state is EngineQpState.ERROR:
            raise LocalError(f"QP {self.qpn} is in error: {self.error}")
        self._recv_id += 1
        self._receives.append(self._recv_id)
        return self._recv_id

    def receives(self) -> int:
        """Posted receives not used yet."""
        return len(self._receives)

    def set_mpr(self, packets: int) -> None:
        """Set our window as responder; the peer follows when both ends have `dynamic_mpr` (§5.3).

        Raises LocalError when it is off or `packets` is no multiple of 128 up to 32640.
        """
        if self.connected is None or not self._dynamic_mpr:
            raise LocalError(f"QP {self.qpn}: the window is fixed unless both ends connect with dynamic_mpr")
        if packets % MPR_UNIT or not MPR_UNIT <= packets <= 255 * MPR_UNIT:
            raise LocalError(f"MPR of {packets} packets: must be a multiple of {MPR_UNIT}, {MPR_UNIT} to 32640")
        self.connected.responder.set_mpr(packets)

    def set_penalty(self, penalty: int) -> None:
        """Ask the peer to slow down (§6.9).

        0 = no more, 64 halves its window in a round trip, 127 = to one packet.

        Raises LocalError for other values or before connect.
        """
        if self.connected is None or not 0 <= penalty <= PENALTY_MAX:
            raise LocalError(f"QP {self.qpn} in {self.state.value}, penalty {penalty}: needs rts, 0 to {PENALTY_MAX}")
        self.connected.responder.set_penalty(penalty)

    @property
    def sends(self) -> bool:
        """Whether the QP is in RTS: connected, and not failed."""
        return self.state is _RTS

    def outstanding(self) -> int:
        """Work requests not completed yet."""
        sender = self._sending_half()
        return 0 if sender is None else sender.pending()

    def held_packets(self) -> int:
        """Return the number of packets above a hole: how far the network reorders (ooo_count, §2.8)."""
        return 0 if self.connected is None else self.connected.responder.held_packets

    def scheduler_state(self) -> str:
        """Return "idle", "active", "ready" or "pending", by the table of §5.15.

        `scheduler_names` sets whether they are the primer's words or the tool's.
        """
        sender = self._sending_half()
        if sender is None or self.state is not _RTS:
            return "idle"
        if not sender.wants_to_send():
            return "pending" if sender.in_flight() else "idle"
        is_open = sender.window_open()
        return "ready" if is_open is (self._config.qp.scheduler_names == "primer") else "active"

    def ev_states(self) -> list[dict[str, Any]]:
        """Return one dict per EV, by value.

        `state` in words, `active` = in rotation, `probes_ok` of `probes_needed`.
        """
        if self.connected is None:
            return []
        return [
            {
                "ev": ev.value,
                "plane": ev.plane,
                "state": ev.state.name.lower(),
                "active": ev.active,
                "sent": ev.sent,
                "acked": ev.acked,
                "lost": ev.lost,
                "marked": ev.marked,
                "trimmed": ev.trimmed,
                "rtt_s": _if_known(ev.rtt_s),
                "srtt_s": _if_known(ev.srtt_s),
                "probes_ok": ev.streak,
                "probes_needed": ev.needed_streak,
                "probes_answered": ev.probes_answered,
                "held_by_floor": ev.held_count,
            }
            for ev in self.connected.paths.profile
        ]

    def deny(self, value: int, *, now: float) -> None:
        """Move an EV to DENIED until allow(); it is replaced within its plane, and no floor holds it (§5.12).

        Raises LocalError for an EV the QP has not.
        """
        self.deny_ev(value, True, now)

    def allow(self, value: int, *, now: float) -> None:
        """Make an EV GOOD again, whatever its state; raises LocalError for one the QP has not."""
        self.deny_ev(value, False, now)

    def deny_ev(self, value: int, deny: bool, now: float) -> None:
        """Take an EV out (DENIED) or give it back (GOOD), as the controller does.

        Raises LocalError for an EV the QP has not.
        """
        connected = self.connected
        ev = None if connected is None else connected.paths.find(value)
        if ev is None or connected is None:
            raise LocalError(f"QP {self.qpn} has no EV {value:#x}")
        self.touch()
        connected.paths.signal(ev, EvSignal.DENY if deny else EvSignal.ALLOW, now)
        connected.requestor.watch_paths(now)

    # ---- network and clock ------------------------------------------------------------------------------

    def receive(self, packet: PacketRecord, now: float) -> None:
        """Take a packet from our peer for this QP."""
        connected, kind = self.connected, type(packet)
        if connected is not None and kind is Write and self.state is _RTS:
            assert isinstance(packet, Write)
            self._receive_write(packet, connected.responder, now)
            return
        self.touch()
        if connected is None:
            return
        if self.state is not _RTS:
            if isinstance(packet, (Write, ReliabilityProbe)):
                connected.responder.repeat_nak(packet)
        elif kind is Sack:
            assert isinstance(packet, Sack)
            connected.requestor.on_sack(packet, now)
        elif isinstance(packet, Nack):
            connected.requestor.on_nack(packet, now)
        elif isinstance(packet, TransportAck):
            connected.requestor.on_transport_ack(packet, now)
        elif isinstance(packet, ReliabilityProbe):
            connected.responder.on_probe(packet, now)
            self._owes_ack = connected.responder.ack_plane is not None

    def _receive_write(self, packet: Write, responder: Responder, now: float) -> None:
        """Take a data packet.

        Mostly it only moves the time of the next SACK back, and the endpoint has nothing to examine.
        """
        responder.on_write(packet, now)
        owes_ack = responder.ack_plane is not None
        if self._changed or owes_ack != self._owes_ack or self.state is not _RTS:
            self._owes_ack = owes_ack
            self.touch_responder()
            return
        answer, first = responder.next_deadline(), self._sender_deadline
        due = answer if answer < first else first
        if self.postpone(due):
            self._deadline = due
        else:
            self.touch_responder()

    def on_ports(self, local: int, peer: int, now: float) -> None:
        """Masks of the ports that are up here and at the peer."""
        connected = self._need_connected()
        self.touch()
        connected.paths.profile.set_ports(local, peer, now)
        connected.paths.on_ports(now)
        connected.requestor.watch_paths(now)

    def transmit(self, now: float, out: list[tuple[int, str, PacketRecord]], limit: int, credit: TxCredit) -> None:
        """Probes and data, up to `limit` data packets."""
        connected = self.connected
        if connected is None or self.state is not _RTS:
            return
        self.touch()
        if connected.paths.has_probes:
            connected.paths.transmit(now, out, credit)
        if connected.requestor.wants_to_send():
            connected.requestor.transmit(now, out, limit, credit)

    def can_send(self) -> bool:
        """Return whether transmit may have a packet to send, as far as ports and EVs let it.

        False when a window holds the QP back that only events of this QP can open.
        """
        connected = self.connected
        if connected is None or self.state is not _RTS:
            return False
        return connected.requestor.can_send() or connected.paths.has_probes

    def owes_ack(self) -> bool:
        """transport_ack() has one."""
        return self._owes_ack and self.state is _RTS

    def transport_ack(self) -> TransportAck | None:
        """Return the Transport ACK owed, if any."""
        connected = self.connected
        if connected is None or not self.owes_ack():
            return None
        self._owes_ack = False
        self.touch()
        return connected.responder.transport_ack()

    def on_timer(self, now: float) -> None:
        """Do what is due; harmless when nothing is."""
        connected = self.connected
        if connected is not None and self.state is _RTS and self.next_deadline() <= now:
            # Mostly a SACK is due, for too few packets: the sending half is not examined then.
            sends = self._sender_deadline <= now
            self.touch_responder()
            connected.responder.on_timer(now)
            if sends:
                self.touch()
                connected.paths.on_timer(now)
                connected.requestor.on_timer(now)

    def next_deadline(self) -> float:
        """Return a time not after that of the next on_timer call; NEVER when nothing is pending."""
        if self._changed:
            self._changed = False
            if self.state is not _RTS:
                self._deadline = NEVER
                return NEVER
            if self.sender_changed:
                self._sender_deadline = self._sending_due()
            answer, first = self._answer_due(), self._sender_deadline
            self._deadline = answer if answer < first else first
        return self._deadline

    def _sending_due(self) -> float:
        """Return the next deadline of the sending half and its paths."""
        connected = self._need_connected()
        first, probe = connected.requestor.next_deadline(), connected.paths.next_deadline()
        return probe if probe < first else first

    def _answer_due(self) -> float:
        """Return the next deadline of the responder."""
        return self._need_connected().responder.next_deadline()

    # ---- the end ----------------------------------------------------------------------------------------

    def abort(self, detail: str, now: float) -> None:
        """End the QP: ERROR, work requests are flushed; the peer is not notified and learns by its timers."""
        self._fail(Status.FLUSHED, detail, None, now, blame_own=False)

    def _fail(self, status: Status, detail: str, psn: int | None, now: float, blame_own: bool = True) -> None:
        """Move to ERROR, once.

        `blame_own`: the requestor gave up or was refused, and the work request that holds `psn` (else the oldest) is
        to blame; else the peer broke a rule, and all of ours are flushed.
        """
        if self.state is EngineQpState.ERROR:
            return
        self.state, self.error = EngineQpState.ERROR, detail
        self.touch()
        self._events.append(QpError(self.qpn, self.peer or "", status, detail, now))
        self._flush(status if blame_own else Status.FLUSHED, psn, now)

    def _flush(self, status: Status, psn: int | None, now: float) -> None:
        """End all work requests, and give posted receives back."""
        if self.connected is not None:
            self.connected.requestor.flush(status, psn, now)
            self.connected.responder.flush(now)
