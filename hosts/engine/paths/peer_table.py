"""The other hosts: which of their ports are up, and what we have to tell them.

Also the endpoint operations, which need no QP (mrc-protocol §2.12, §5.12, §6.10): port status updates both ways, and
EV probes, asked for by the application or by the reverse EV set (§6.8, ack_paths.py).

Design note: port maps are soft state. An update names no process of the peer's, and a process that was restarted
counts its request ids from anywhere, so no comparison of ids alone can tell a newer word from one that comes late:

1. A connect, which travels out of band, is where a new process shows itself. Whatever id comes next is believed; and
   each end tells its ports with its first QP to a peer, all up or not.
2. An older id is passed over, and acknowledged only if it says what we believe anyway: who is alive says it again, at
   least once a refresh (`port_status_refresh_s`, R), under the same id. It is believed when it comes again more than R
   after the newest.
3. That a port is down is believed for LEASE_REFRESHES * R after the last update that said so, and no longer. A peer
   with a port down says so once in R.

So what a late packet of an old process said about a port that is up is believed for LEASE_REFRESHES * R at most, and
that a port is down is known 2 R after the late word at the latest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from mrc_testbed.hosts.engine.cc.incast import IncastSignal
from mrc_testbed.hosts.engine.cc.qpcc import Qpcc, Qpccs
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.connection import TxCredit
from mrc_testbed.hosts.engine.deadlines import NEVER, Deadlines, TimedItem
from mrc_testbed.hosts.engine.events import Event, EvProbeResult, PlaneChanged
from mrc_testbed.hosts.engine.paths.ack_paths import NO_EV, AckPaths
from mrc_testbed.hosts.engine.paths.ev import Ev, EvProfile
from mrc_testbed.hosts.engine.wire.packets import (
    ECN_ECT0,
    ECN_NOT_ECT,
    ENDPOINT_QPN,
    EndpointOp,
    EndpointRequest,
    EndpointResponse,
    PacketRecord,
)

_EV_PROBE: Final[int] = EndpointOp.EV_PROBE.value
_PORT_STATUS_UPDATE: Final[int] = EndpointOp.PORT_STATUS_UPDATE.value
"""Numbers of the operations, which machine code compares without a call."""

ALL_PORTS: Final = 0xFFFFFFFF
CONTROL_MOST: Final = 1 << 14
"""Largest number of control packets in a queue."""
REQUEST_BITS: Final = 16
LEASE_REFRESHES: Final = 3.5
"""Refreshes for which a port of a peer is believed to be down: two reports in a row may get lost."""
PROBES_WITHOUT_PROOF: Final = 32
"""EV probes that follow the last packet of a peer to which no way is proven."""
RENEWED_PEERS: Final = 2
"""Peers to which EV probes renew the reverse EVs as often as to one alone; more of them take turns."""
PROBE_RTTS: Final = 4
"""Round trips for which an EV probe of the reverse set waits for its answer.

`probe_timeout_s` instead, where that is shorter."""


class PortListener(Protocol):
    """A connected QP as this table sees it."""

    @property
    def sends(self) -> bool:
        """Whether it is connected and has not failed."""

    def on_ports(self, local: int, peer: int, now: float) -> None:
        """Masks of the ports that are up here and at the peer."""

    def touch(self) -> None:
        """Note that state it depends on has changed."""


class Peer(TimedItem):
    """State of one other host."""

    __slots__ = (
        "ack_paths",
        "acknowledged",
        "last_update",
        "last_update_at",
        "lease_ends",
        "listeners",
        "name",
        "number",
        "passed_over",
        "ports",
        "probe_at",
        "probes_left",
        "profiles",
        "update_at",
        "update_id",
        "update_waits",
        "updates_sent",
    )

    def __init__(self, name: str, number: int, planes: int, rng: Random) -> None:
        super().__init__()
        self.name = name
        self.number = number
        """Number of the peer among all peers, in the order in which they turned up."""
        self.listeners: list[PortListener] = []
        """Connected QPs; `profiles` are theirs, in the same order."""
        self.profiles: list[EvProfile] = []
        # All ports of a peer without a report count as up.
        self.ports = ALL_PORTS
        """Bit p: its port of plane p is up, by its last report."""
        self.lease_ends = NEVER
        """Time until which at least one port is believed to be down; NEVER: all are up."""
        self.last_update: int | None = None
        """Request id of its newest port status update, which came at `last_update_at`; None = any is believed."""
        self.last_update_at = 0.0
        self.passed_over: int | None = None
        """Request id of the newest update if it was older than that one."""
        self.ack_paths = AckPaths(planes, self.profiles, rng)
        self.probe_at = NEVER
        """Time at which an EV probe for the reverse set may leave.

        NEVER: no data came in since the last one."""
        self.probes_left = 0
        """Probes that may follow it while no way is proven."""
        self.update_at = NEVER
        """Time at which our next port status update to the peer leaves; NEVER: the peer knows all."""
        self.update_id = 0
        self.updates_sent = 0
        self.update_waits = False
        """Whether an update is queued: while no port is up none can leave."""
        self.acknowledged = True


class EvProbe(TimedItem):
    """EV probe in flight, sent once or twice.

    `ev`: EV of the reverse set; None for a probe of the application.
    """

    __slots__ = (
        "again_at",
        "again_id",
        "again_rtt_s",
        "deadline",
        "dscp",
        "ev",
        "number",
        "peer",
        "plane",
        "qpcc",
        "request_id",
        "sent_at",
        "value",
    )

    def __init__(
        self,
        request_id: int,
        number: int,
        peer: Peer,
        value: int,
        plane: int,
        sent_at: float,
        deadline: float,
        ev: Ev | None,
        qpcc: Qpcc | None,
    ) -> None:
        super().__init__()
        self.request_id = request_id
        """Request id of the first transmission; names the probe."""
        self.number = number
        """Number of the probe among all probes, in the order of their requests."""
        self.peer = peer
        self.value, self.plane = value, plane
        self.sent_at, self.deadline = sent_at, deadline
        self.ev = ev
        self.qpcc = qpcc
        """The QPCC that measures the base RTT."""
        self.dscp: int | None = None
        """Traffic class that the application asked for; None: that of its kind of probe."""
        self.again_id: int | None = None
        """Request id of the second asking, which left at `again_at` and was answered after `again_rtt_s`."""
        self.again_at = 0.0
        self.again_rtt_s: float | None = None


def _on_dropped(peer: Peer, packet: PacketRecord) -> None:
    """Note that a full queue of control packets dropped its oldest, as the wire might."""
    if type(packet) is EndpointRequest and packet.op == _PORT_STATUS_UPDATE:
        peer.update_waits = False


class PeerTable:
    """All other hosts an endpoint has heard of. `local_ports`: mask of our own ports that are up."""

    def __init__(self, planes: int, config: Config, events: list[Event], rng: Random) -> None:
        self._planes, self._config, self._events = planes, config, events
        self._mask = (1 << planes) - 1
        self._by_name: dict[str, Peer] = {}
        self.local_ports = self._mask
        self._control: list[tuple[Peer, PacketRecord]] = []
        """Control packets to be sent that were not tried yet, oldest first."""
        self._held_packets: dict[int, deque[tuple[Peer, PacketRecord]]] = {}
        """Packets that wait for room at any of a set of ports, by the mask of these ports.

        0: no EV of a port that is up is known. So each packet is tried when it comes and when a port that it waits
        for has room, however many wait for others."""
        self.has_control = False
        """Whether control packets wait to be sent."""
        self._renewing = 0
        """Peers of which data came in, and to which an EV probe is due."""
        self._rng = rng
        # A look into the configuration, whose classes stay Python, is a look-up by name.
        self._dscp_control = config.dscp.control
        self._stamp_s = config.wire.ts_unit_s if config.wire.timestamps else 0.0
        """Unit of the timestamps in our requests, seconds; 0 = there are none."""
        self._reverse_probe_s, self._probe_timeout_s = config.paths.reverse_probe_s, config.probes.timeout_s
        # Probes: those of ours in flight, and whether we answer others'.
        self._probes: dict[int, EvProbe] = {}
        """EV probes in flight by request id, of either transmission."""
        self._probes_asked = 0
        self._peer_times, self._probe_times = Deadlines(), Deadlines()
        """Deadlines of peers, and of EV probes (to be sent again, or failed)."""
        self._request_id = rng.getrandbits(REQUEST_BITS)
        self._plane = 0
        self.answers_probes: Callable[[], bool] | None = None
        """Whether we answer probes and port status updates now; None: always."""
        self.qpccs = Qpccs(config, planes, self._probe_base, rng)
        self.incast = IncastSignal(config.congestion.incast_penalty, config.congestion.incast_hold_s)

    def get(self, name: str) -> Peer:
        """Return the peer of that name, new if need be.

        Names come from the NIC, which knows the existing hosts.
        """
        peer = self._by_name.get(name)
        if peer is None:
            peer = self._by_name[name] = Peer(name, len(self._by_name), self._planes, self._rng)
        return peer

    def ports_of(self, name: str) -> int:
        """Return the ports of a peer that are up, as far as known: all, of one we know nothing of."""
        peer = self._by_name.get(name)
        return ALL_PORTS if peer is None else peer.ports

    def _time(self, peer: Peer) -> None:
        """Update the deadline of a peer one of whose times has changed."""
        due = peer.update_at
        if peer.probe_at < due:
            due = peer.probe_at
        if peer.lease_ends < due:
            due = peer.lease_ends
        self._peer_times.put(peer, due)

    def on_connect(self, peer: Peer, qp: PortListener, profile: EvProfile, now: float) -> None:
        """Add a connected QP; the peer may have been restarted: see the design note.

        Its map stays as it is: its word may have been faster than the news that it has connected.
        """
        first = not peer.listeners
        if first:
            peer.ack_paths.forget()
        peer.last_update = None
        peer.listeners.append(qp)
        peer.profiles.append(profile)
        qp.on_ports(self.local_ports, peer.ports, now)
        if first or self.local_ports != self._mask or not peer.acknowledged:
            self.start_update(peer, now)

    @staticmethod
    def on_disconnect(peer: Peer, qp: PortListener) -> None:
        """Remove a QP; with the peer's last one goes what would renew the proof of reverse EVs."""
        if qp in peer.listeners:
            index = peer.listeners.index(qp)
            del peer.listeners[index], peer.profiles[index]
            if not peer.listeners:
                peer.ack_paths.forget()

    # ---- control packets --------------------------------------------------------------------------------

    @staticmethod
    def _route(peer: Peer, packet: PacketRecord, ports_up: int, free_ports: int) -> tuple[int, int]:
        """See AckPaths.route. Answers to EV probes have a way of their own (on_request)."""
        plane = packet.plane
        if type(packet) is EndpointResponse and packet.op == _EV_PROBE and ports_up >> plane & 1:
            return (plane, packet.ev) if free_ports >> plane & 1 else (1 << plane, NO_EV)
        return peer.ack_paths.route(plane, ports_up, free_ports)

    def queue(self, peer: Peer, packet: PacketRecord) -> None:
        """Queue a control packet, to leave when ports let it."""
        self.has_control = True
        control = self._control
        if len(control) >= CONTROL_MOST:
            _on_dropped(*control.pop(0))
        control.append((peer, packet))

    def _release(self) -> None:
        """Retry all held packets: other ports open other ways."""
        self._control[:0] = [item for queue in self._held_packets.values() for item in queue]
        self._held_packets.clear()

    def _hold(self, ports: int, peer: Peer, packet: PacketRecord) -> None:
        queue = self._held_packets.setdefault(ports, deque())
        if len(queue) >= CONTROL_MOST:
            _on_dropped(*queue.popleft())
        queue.append((peer, packet))

    def transmit(self, out: list[tuple[int, str, PacketRecord]], limit: int, credit: TxCredit) -> None:
        """Send what is queued, where ports have room; the rest stays."""
        if self._held_packets:
            self._transmit_held(out, limit, credit)
        control, count = self._control, 0
        while count < len(control) and len(out) < limit:
            peer, packet = control[count]
            self._send(peer, packet, out, credit)
            count += 1
        if count == len(control):
            control.clear()
        else:
            del control[:count]
        self.has_control = len(control) > 0 or len(self._held_packets) > 0

    def _transmit_held(self, out: list[tuple[int, str, PacketRecord]], limit: int, credit: TxCredit) -> None:
        """Send the held packets for which ports have room now."""
        for ports in list(self._held_packets):
            if ports and not ports & credit.free_ports:
                continue
            queue = self._held_packets[ports]
            for _ in range(min(len(queue), limit)):
                if len(out) >= limit or (ports and not ports & credit.free_ports):
                    break
                peer, packet = queue.popleft()
                self._send(peer, packet, out, credit)
            del self._held_packets[ports]
            if queue:
                self._held_packets[ports] = queue  # the last one now: those of other masks may wait for the same port

    def _send(
        self, peer: Peer, packet: PacketRecord, out: list[tuple[int, str, PacketRecord]], credit: TxCredit
    ) -> None:
        """Send a control packet, or hold it."""
        if type(packet) is EndpointRequest:
            if packet.op == _EV_PROBE:
                self._send_probe(peer, packet, out, credit)
                return
            packet.request_id, packet.port_mask = peer.update_id, self._port_mask()  # of now: it may have waited
        # With no port up at both ends one belief must be wrong, and only a packet sent all the same can tell.
        usable = self.local_ports & peer.ports or self.local_ports
        plane, ev = self._route(peer, packet, usable, usable & credit.free_ports)
        if ev == NO_EV:
            self._hold(plane, peer, packet)
            return
        if type(packet) is EndpointRequest:
            peer.update_waits = False
        packet.plane, packet.ev = plane, ev
        credit.take(plane)
        out.append((plane, peer.name, packet))

    def _send_probe(
        self, peer: Peer, packet: EndpointRequest, out: list[tuple[int, str, PacketRecord]], credit: TxCredit
    ) -> None:
        """EV probes leave on their own EV or not at all: where the port is down they fail by their timeout."""
        if credit.free_ports >> packet.plane & 1:
            credit.take(packet.plane)
            out.append((packet.plane, peer.name, packet))
        elif self.local_ports >> packet.plane & 1:
            self._hold(1 << packet.plane, peer, packet)

    # ---- ports ------------------------------------------------------------------------------------------

    def on_port(self, plane: int, is_up: bool, now: float) -> None:
        """Withdraw or readmit the plane of our port that changed, at once, and notify all peers."""
        bit = 1 << plane
        if bool(self.local_ports & bit) == is_up:
            return
        self.local_ports ^= bit
        self._events.append(PlaneChanged(None, plane, is_up, now))
        self._release()
        for peer in self._by_name.values():
            self._apply(peer, now)
            self.start_update(peer, now)

    def _apply(self, peer: Peer, now: float) -> None:
        for qp in peer.listeners:
            qp.on_ports(self.local_ports, peer.ports, now)

    def start_update(self, peer: Peer, now: float) -> None:
        """Start a port status update to a peer with whom a QP is connected."""
        if peer.listeners:
            peer.update_id = self._new_id()
            peer.update_at, peer.updates_sent, peer.acknowledged = now, 0, False
            self._time(peer)

    def _on_update(self, peer: Peer, request: EndpointRequest, now: float) -> bool:
        """Take a port status update (§5.12); an older one, overtaken on another plane, changes nothing.

        Returns whether what it says is what we believe now: else it must not be acknowledged.
        """
        ports = request.port_mask >> self._config.ports.bit_base | ALL_PORTS & ~self._mask
        last = peer.last_update
        is_older = last is not None and (request.request_id - last & 0xFFFF) >= 1 << REQUEST_BITS - 1
        is_repeated = (
            request.request_id == peer.passed_over and now - peer.last_update_at >= self._config.ports.status_refresh_s
        )
        peer.passed_over = request.request_id if is_older else None
        if not is_older or is_repeated:
            peer.last_update, peer.last_update_at = request.request_id, now
            self._believe(peer, ports, now)
        elif ports != peer.ports:
            return False
        if ports != ALL_PORTS:
            peer.lease_ends = now + LEASE_REFRESHES * self._config.ports.status_refresh_s
            self._time(peer)
        return True

    def _believe(self, peer: Peer, ports: int, now: float) -> None:
        """Store the ports of the peer that are up, and report those that changed."""
        changed_ports = peer.ports ^ ports
        peer.ports, peer.lease_ends = ports, NEVER
        self._time(peer)
        for plane in range(self._planes):
            if changed_ports >> plane & 1:
                self._events.append(PlaneChanged(peer.name, plane, bool(ports >> plane & 1), now))
        if changed_ports:
            self._release()
            self._apply(peer, now)

    # ---- endpoint operations ----------------------------------------------------------------------------

    def on_request(self, peer: Peer, request: EndpointRequest, now: float) -> None:
        """Answer an EV probe or a port status update; other operations are ignored."""
        if request.op == _PORT_STATUS_UPDATE:
            if not self._on_update(peer, request, now):
                return
        elif request.op != _EV_PROBE:
            return
        if self.answers_probes is not None and not self.answers_probes():
            return
        if request.rtx and request.op == _EV_PROBE:
            for plane, ev in peer.ack_paths.other_ways(request.plane, request.ev, self.local_ports & peer.ports):
                self._respond(peer, request, plane, ev)
        else:
            self._respond(peer, request, request.plane, request.ev)

    def _respond(self, peer: Peer, request: EndpointRequest, plane: int, ev: int) -> None:
        """Queue an answer, with the way that it should take."""
        self.queue(
            peer,
            EndpointResponse(
                ENDPOINT_QPN,
                ev,
                plane,
                self._dscp_control,
                ECN_NOT_ECT,
                request.request_id,
                request.op,
                request.timestamp or 0,
            ),
        )

    def on_response(self, peer: Peer, response: EndpointResponse, now: float) -> None:
        """Take an answer of the peer; matched by request id, not by op (§12 row 6)."""
        probe = self._probes.get(response.request_id)
        if probe is not None and probe.peer is peer:
            if response.request_id == probe.request_id:
                self._end_probe(probe, now - probe.sent_at, False, now)
                return
            if probe.again_rtt_s is None:  # the first of the ways
                probe.again_rtt_s = now - probe.again_at
            if probe.ev is not None or probe.qpcc is not None:
                self._end_probe(probe, probe.again_rtt_s, True, now)  # who wants to know of the way back waits on
        elif not peer.acknowledged and response.request_id == peer.update_id:
            peer.acknowledged = True
            all_up = self.local_ports == self._mask
            peer.update_at = NEVER if all_up else now + self._config.ports.status_refresh_s
            self._time(peer)

    def _end_probe(self, probe: EvProbe, rtt_s: float | None, back_lost: bool, now: float) -> None:
        """End an EV probe, with its round trip or (None) without any answer."""
        del self._probes[probe.request_id]
        if probe.again_id is not None:
            self._probes.pop(probe.again_id, None)
        self._probe_times.put(probe, NEVER)
        ack_paths = probe.peer.ack_paths
        if probe.qpcc is not None:
            probe.qpcc.on_probe(rtt_s)
            for qp in probe.peer.listeners:
                qp.touch()  # their window may have opened
        elif probe.ev is None:
            name = probe.peer.name
            result = EvProbeResult(probe.request_id, name, probe.value, probe.plane, rtt_s, now, back_lost)
            self._events.append(result)
        elif rtt_s is None:
            ack_paths.on_probe_unanswered(probe.ev)
        else:
            ack_paths.on_probe_answered(probe.ev, rtt_s)

    def probe_ev(
        self,
        peer: Peer,
        value: int,
        plane: int,
        now: float,
        timeout_s: float,
        ev: Ev | None = None,
        qpcc: Qpcc | None = None,
        dscp: int | None = None,
    ) -> int:
        """Queue an EV probe, of the traffic class `dscp` if given; return its request id.

        The outcome is an EvProbeResult, or `ev` or `qpcc` is notified. Without an answer the probe is sent again
        after half of `timeout_s`.
        """
        request_id = self._new_id()
        self._probes_asked += 1
        probe = EvProbe(request_id, self._probes_asked, peer, value, plane, now, now + timeout_s, ev, qpcc)
        probe.dscp = dscp
        self._probes[request_id] = probe
        self._probe_times.put(probe, now + timeout_s / 2)
        self._queue_probe(probe, request_id, now)
        return request_id

    def _new_id(self) -> int:
        self._request_id = self._request_id + 1 & 0xFFFF
        return self._request_id

    def _queue_probe(self, probe: EvProbe, request_id: int, now: float) -> None:
        # Probes for control packets travel in their class, those of the application in that of data (§2.13).
        is_control = probe.ev is not None or probe.qpcc is not None
        dscp, ecn = (self._dscp_control, ECN_NOT_ECT) if is_control else (self._config.dscp.trimmable, ECN_ECT0)
        if probe.dscp is not None:
            dscp = probe.dscp
        timestamp, tsr = self._timestamp(now)
        self.queue(
            probe.peer,
            EndpointRequest(
                ENDPOINT_QPN,
                probe.value,
                probe.plane,
                dscp,
                ecn,
                request_id,
                _EV_PROBE,
                0,
                timestamp,
                tsr,
                request_id != probe.request_id,
            ),
        )

    def _on_overdue(self, probe: EvProbe, now: float) -> None:
        """Send an overdue probe again, or end it."""
        if probe.again_id is None and now < probe.deadline:
            probe.again_id, probe.again_at = self._new_id(), now
            self._probes[probe.again_id] = probe
            self._probe_times.put(probe, probe.deadline)
            self._queue_probe(probe, probe.again_id, now)
        else:
            self._end_probe(probe, probe.again_rtt_s, probe.again_rtt_s is not None, now)

    def _probe_base(self, qpcc: Qpcc, now: float) -> bool:
        """Probe the base RTT (nscc.md §2.8) over any EV that works; False when there is none."""
        peer = self.get(qpcc.peer)
        ev = peer.ack_paths.draw(self.local_ports & peer.ports)
        if ev is not None:
            self.probe_ev(peer, ev.value, ev.plane, now, self._probe_timeout_s, qpcc=qpcc)
        return ev is not None

    def on_data(self, peer: Peer, now: float) -> None:
        """Data or a probe came in: a round trip later, if we sent no data, an EV probe renews the set (§6.8)."""
        self._renew_later(peer, now)
        peer.probes_left = PROBES_WITHOUT_PROOF
        self._time(peer)

    def _reverse_period_s(self, peer: Peer) -> float:
        """Return the time between two EV probes to a peer, seconds.

        Longer when more peers send to us: the answers to all of them come in by one port, beside the data.
        """
        period_s = self._reverse_probe_s
        rtt_s = peer.ack_paths.rtt_s
        shared_period_s = period_s * (self._renewing / RENEWED_PEERS)
        if shared_period_s > period_s:
            period_s = shared_period_s
        return rtt_s if rtt_s is not None and rtt_s > period_s else period_s

    def _renew_later(self, peer: Peer, now: float) -> None:
        self._renewing += 1
        peer.probe_at = now + self._reverse_period_s(peer)

    def _renew_reverse(self, peer: Peer, now: float) -> None:
        peer.probe_at = NEVER
        self._renewing -= 1
        if peer.ack_paths.proved_at >= now - self._reverse_period_s(peer):
            return
        ev = peer.ack_paths.draw(self.local_ports & peer.ports)
        if ev is not None:
            patience = min(self._probe_timeout_s, PROBE_RTTS * self._reverse_period_s(peer))
            self.probe_ev(peer, ev.value, ev.plane, now, patience, ev)
            if peer.probes_left and not peer.ack_paths.proven:
                peer.probes_left -= 1
                self._renew_later(peer, now)

    def _timestamp(self, now: float) -> tuple[int | None, int]:
        """Return (tx_timestamp, tsr) of a request."""
        return (int(now / self._stamp_s) & 0xFFFF, 1) if self._stamp_s else (None, 0)

    # ---- clock ------------------------------------------------------------------------------------------

    def on_timer(self, now: float) -> None:
        """Repeat port status updates (§5.12), ask again and fail EV probes without answer."""
        if self._peer_times.bound <= now:
            self._on_peer_times(now)
        if self._probe_times.bound <= now:
            self._on_probe_times(now)

    def _on_probe_times(self, now: float) -> None:
        probes = [item for item in self._probe_times.take_due(now) if isinstance(item, EvProbe)]
        if len(probes) > 1:
            probes.sort(key=lambda probe: probe.number)
        for probe in probes:
            self._on_overdue(probe, now)

    def _on_peer_times(self, now: float) -> None:
        peers = [item for item in self._peer_times.take_due(now) if isinstance(item, Peer)]
        if len(peers) > 1:
            peers.sort(key=lambda peer: peer.number)
        for peer in peers:
            if peer.probe_at <= now:
                self._renew_reverse(peer, now)
            if peer.lease_ends <= now:
                self._believe(peer, ALL_PORTS, now)
            if peer.update_at <= now:
                if any(qp.sends for qp in peer.listeners):
                    self._update(peer, now)
                else:
                    peer.update_at = NEVER  # nobody sends to us; the next connect tells
            self._time(peer)

    def _update(self, peer: Peer, now: float) -> None:
        config = self._config
        peer.updates_sent += 1
        early = not peer.acknowledged and peer.updates_sent < config.ports.status_repeats
        peer.update_at = now + (config.loss.base_timeout_s if early else config.ports.status_refresh_s)
        if peer.acknowledged:  # a refresh: newer than what was acknowledged
            peer.update_id = self._new_id()
            peer.acknowledged = False
        if peer.update_waits:
            return
        peer.update_waits = True
        timestamp, tsr = self._timestamp(now)
        self.queue(
            peer,
            EndpointRequest(
                ENDPOINT_QPN,
                0,
                self._next_plane(),
                self._dscp_control,
                ECN_NOT_ECT,
                peer.update_id,
                _PORT_STATUS_UPDATE,
                self._port_mask(),
                timestamp,
                tsr,
            ),
        )

    def _port_mask(self) -> int:
        """Return our ports that are up, as the wire has them."""
        return self.local_ports << self._config.ports.bit_base & ALL_PORTS

    def _next_plane(self) -> int:
        """Repeated updates take turns over the planes that are left, for one of them may be the trouble."""
        for _ in range(self._planes):
            self._plane = (self._plane + 1) % self._planes
            if self.local_ports >> self._plane & 1:
                break
        return self._plane

    def next_deadline(self, now: float) -> float:
        """Return a time not after that of the next on_timer call, as Endpoint.next_deadline does."""
        peer, probe = self._peer_times.bound, self._probe_times.bound
        if peer <= now:
            peer = self._peer_times.first()
        if probe <= now:
            probe = self._probe_times.first()
        return peer if peer < probe else probe
