"""RoCEv2 RC queue pair with the surface of MRC's EngineQueuePair: any workload runs on either.

    qp = endpoint.create_qp(transport="rocev2")        # then attributes(), connect(), post_write() as ever

Made to be compared with: one path by a constant EV (one of those given to connect), packets in order, Go-Back-N. What
is MRC's alone stays away from it: no probes, no port status, no EV states but one, no limit of WriteIMM (RC has RNR
NAKs for those that find no posted receive). Its parameters: rc_config.RcConfig.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Final

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.connection import Context, PlaneCounters, TxCredit
from mrc_testbed.hosts.engine.deadlines import NEVER
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import Event, Status
from mrc_testbed.hosts.engine.memory import EngineMemoryRegion, Memory
from mrc_testbed.hosts.engine.paths.peer_table import PeerTable
from mrc_testbed.hosts.engine.qp import EngineQpState, EngineQueuePair, QpAttributes, SendingHalf, TouchedQps
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.hosts.engine.rocev2.rc_counters import RcCounters
from mrc_testbed.hosts.engine.rocev2.rc_packets import Cnp, RcAck, RcWrite
from mrc_testbed.hosts.engine.rocev2.rc_rate import Dcqcn, LineRate, rate_control
from mrc_testbed.hosts.engine.rocev2.rc_requestor import RcRequestor
from mrc_testbed.hosts.engine.rocev2.rc_responder import RcResponder
from mrc_testbed.hosts.engine.wire.packets import PacketRecord

_RTS: Final = EngineQpState.RTS


@dataclass(frozen=True, slots=True)
class RcConnection:
    """State of a baseline QP from connect() on; its halves answer to the calls that EngineQueuePair makes."""

    remote: QpAttributes
    requestor: RcRequestor
    responder: RcResponder
    path: tuple[int, int]
    """Pair (EV, plane)."""


class RcQueuePair(EngineQueuePair):
    """Queue pair made by Endpoint.create_qp(transport="rocev2"); else as EngineQueuePair."""

    transport = "rocev2"

    def __init__(
        self,
        qpn: int,
        psn: int,
        planes: int,
        config: Config,
        settings: RcConfig,
        memory: Memory,
        peers: PeerTable,
        events: list[Event],
        rng: Random,
        touched_qps: TouchedQps,
    ) -> None:
        self.rc_counters = RcCounters(planes=[PlaneCounters() for _ in range(planes)])
        """Counters of the QP: the same record as `counters`, of the baseline's class."""
        super().__init__(qpn, psn, planes, config, memory, peers, events, rng, touched_qps, self.rc_counters)
        self.settings = settings
        self.baseline: RcConnection | None = None
        """Both halves of the connected QP, in place of `connected`, which stays None."""
        self._port = 0
        """Bit of the port it sends by."""

    def _sending_half(self) -> SendingHalf | None:
        return None if self.baseline is None else self.baseline.requestor

    @property
    def path(self) -> tuple[int, int] | None:
        """Pair (EV, plane) once connected; the baseline has no `paths` as MRC has."""
        return None if self.baseline is None else self.baseline.path

    # ---- set-up -----------------------------------------------------------------------------------------

    def attributes(self, region: EngineMemoryRegion | None = None) -> QpAttributes:
        """Return attributes for the peer, out of band; windows and trimming of MRC have no meaning here."""
        return replace(super().attributes(region), trim_nack=False, dynamic_mpr=False)

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
        """Connect over one of `evs`, (EV, plane) pairs: INIT -> RTS.

        RcConfig.ev_choice sets which one; a list of one chooses it.

        `window`: a LineRate or Dcqcn; by default what RcConfig.control names. `denied`: EVs not to be chosen.
        Raises LocalError.
        """
        if self.state is not EngineQpState.INIT:
            raise LocalError(f"QP {self.qpn} is in {self.state.value}: only a new one can be connected")
        self._check_transport(remote)
        if bad_planes := sorted({plane for _, plane in evs if not 0 <= plane < self._planes}):
            raise LocalError(
                f"EVs on planes {bad_planes}, but there are {self._planes} planes, 0 to {self._planes - 1}"
            )
        denied_values = set(denied)
        usable_evs = [pair for pair in evs if pair[0] not in denied_values]
        if not usable_evs:
            raise LocalError(f"no EV to choose from: {len(evs)} given, {len(denied_values)} denied")
        if window is not None and not isinstance(window, (LineRate, Dcqcn)):
            raise LocalError(f"window = {type(window).__name__}: a rocev2 QP needs a LineRate or a Dcqcn")
        # Spread: n QPs with consecutive numbers use n paths.
        spread = self.settings.ev_choice == "spread"
        path = usable_evs[self.qpn % len(usable_evs)] if spread else self._rng.choice(usable_evs)
        config = self._config = config or self._config
        pmtu = min(config.qp.pmtu_bytes, remote.pmtu_bytes)
        context = Context(self.qpn, remote.qpn, peer, config, self._events, pmtu, remote.mpr_packets, False)
        self.peer, self.link = peer, self._peers.get(peer)
        requestor = RcRequestor(
            context,
            self.rc_counters,
            self.settings,
            window or rate_control(self.settings, now),
            path,
            self.first_psn,
            self._port_up,
            self._fail,
        )
        responder = RcResponder(
            context,
            self.rc_counters,
            self._memory,
            self.settings,
            path,
            remote.psn,
            self._receives,
            partial(self._fail, blame_own=False),
        )
        responder.access = self._access
        self.baseline = RcConnection(remote, requestor, responder, path)
        self._port = 1 << path[1]
        self.state = _RTS
        self.touch()

    def _port_up(self) -> bool:
        return bool(self._peers.local_ports & self._port)

    # ---- application ------------------------------------------------------------------------------------

    def post_write(
        self, local: Any, remote_va: int, rkey: int, *, now: float, imm: int | None = None, solicited: bool = False
    ) -> int:
        """Post a write as EngineQueuePair does, without its limit of WriteIMM."""
        data = self._checked_write(local, remote_va, rkey, imm)
        assert self.baseline is not None
        self._wr_id += 1
        self.baseline.requestor.post(self._wr_id, data, remote_va, rkey, imm, solicited)
        self.baseline.requestor.start_timer(now)
        self.touch()
        return self._wr_id

    def set_penalty(self, penalty: int) -> None:
        """Raise LocalError: not in this transport."""
        raise LocalError(f"QP {self.qpn} is rocev2: receiver flow control is MRC's")

    def release(self) -> None:
        """Release a destroyed QP; it has no share of a window to give back."""
        self._peers.qpccs.profiles.give_back(self._cc_profile)

    def held_packets(self) -> int:
        """0: what comes out of order is dropped."""
        return 0

    def cc_state(self) -> dict[str, Any]:
        """Control, window and, with DCQCN, rate and alpha; empty before connect()."""
        if self.baseline is None:
            return {}
        requestor = self.baseline.requestor
        rate = requestor.rate
        return {
            "control": self.settings.control,
            "window_packets": requestor.window_packets,
            "inflight_packets": requestor.next_psn - requestor.una_psn,
            **({"rate_bps": rate.rate_bps, "alpha": rate.alpha} if isinstance(rate, Dcqcn) else {}),
        }

    def ev_states(self) -> list[dict[str, Any]]:
        """Return the one EV, in the form of EngineQueuePair.ev_states; always `good`, as no rule judges it."""
        if self.path is None:
            return []
        ev, plane = self.path
        return [
            {
                "ev": ev,
                "plane": plane,
                "state": "good",
                "active": True,
                "sent": self.counters.plane_packets[plane],
                "acked": 0,
                "lost": self.counters.lost,
                "marked": 0,
                "trimmed": 0,
                "rtt_s": None,
                "srtt_s": None,
                "probes_ok": 0,
                "probes_needed": 0,
                "probes_answered": 0,
                "held_by_floor": False,
            }
        ]

    def deny_ev(self, value: int, deny: bool, now: float) -> None:
        """Raise LocalError: not in this transport."""
        raise LocalError(f"QP {self.qpn} is rocev2: its path is fixed (only mrc QPs have EVs to deny)")

    # ---- network and clock ------------------------------------------------------------------------------

    def receive(self, packet: PacketRecord, now: float) -> None:
        """Take a packet from our peer for this QP; MRC's are ignored."""
        self.touch()
        connected = self.baseline
        if connected is None:
            return
        if self.state is not _RTS:
            if isinstance(packet, RcWrite):
                connected.responder.repeat_nak()
        elif isinstance(packet, RcWrite):
            connected.responder.on_write(packet, now)
        elif isinstance(packet, RcAck):
            connected.requestor.on_ack(packet, now)
        elif isinstance(packet, Cnp):
            connected.requestor.on_cnp(packet, now)

    def transmit(self, now: float, out: list[Any], limit: int, credit: TxCredit) -> None:
        """Append the responder's pending answers, and up to `limit` data packets."""
        connected = self.baseline
        if connected is None or not self.can_send():
            return
        self.touch()
        connected.responder.transmit(out, credit)
        if self.state is _RTS:
            connected.requestor.transmit(now, out, limit, credit)

    def can_send(self) -> bool:
        """Transmit may have something to send, as far as time and ports let it."""
        connected = self.baseline
        return connected is not None and (
            connected.responder.owes_answer or (self.state is _RTS and connected.requestor.can_send())
        )

    def transport_ack(self) -> None:
        """Return None: ACKs leave with transmit, on the QP's own path."""
        return None

    def on_timer(self, now: float) -> None:
        """Do what is due; harmless when nothing is."""
        if self.baseline is not None and self.next_deadline() <= now:
            self.touch()
            self.baseline.requestor.on_timer(now)

    def _sending_due(self) -> float:
        return NEVER if self.baseline is None else self.baseline.requestor.next_deadline()

    def _answer_due(self) -> float:
        return NEVER

    def _flush(self, status: Status, psn: int | None, now: float) -> None:
        if self.baseline is not None:
            self.baseline.requestor.flush(status, psn, now)
            self.baseline.responder.flush(now)
