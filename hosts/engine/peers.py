"""The other hosts: which of their ports are up, and what we have to tell them.

Also the endpoint operations, which need no QP (reference §2.12, §5.12, §6.10): port status updates both ways, and
EV probes, asked for by the application or by the reverse EV set (§6.8, reverse.py).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from .config import Config
from .context import Room
from .events import Event, EvProbeResult, PlaneChanged
from .incast import IncastSignal
from .packets import (
    ECN_ECT0,
    ECN_NOT_ECT,
    ENDPOINT_QPN,
    EndpointOp,
    EndpointRequest,
    EndpointResponse,
    Packet,
)
from .qpcc import Qpcc, Qpccs
from .reverse import ReverseSet

if TYPE_CHECKING:
    from .ev import Ev
    from .qp import QueuePair

ALL_PORTS = 0xFFFFFFFF
REQUEST_BITS = 16
NEVER = float("inf")
PROBES_WITHOUT_PROOF = 32
"""EV probes that follow the last packet of a peer to which no way is proven."""
PROBE_RTTS = 4
"""Round trips that an EV probe for the reverse set waits for its answer, if that is less than probe_timeout_s."""


class Peer:
    """What is known of one other host."""

    __slots__ = (
        "acknowledged", "last_update", "last_update_at", "name", "ports", "probe_at", "probes_left", "qps", "reverse",
        "update_at", "update_id", "updates_sent",
    )  # fmt: skip

    def __init__(self, name: str, planes: int, rng: Random):
        self.name = name
        self.qps: list[QueuePair] = []
        """Connected QPs."""
        self.ports = ALL_PORTS
        """Bit p: its port of plane p is up, as far as it told us."""
        self.last_update: int | None = None
        """Request id of its newest port status update, which came at `last_update_at`."""
        self.last_update_at = 0.0
        self.reverse = ReverseSet(planes, self.qps, rng)
        self.probe_at: float | None = None
        """When an EV probe for the reverse set may leave; None = no data came in since the last one."""
        self.probes_left = 0
        """Probes that may follow it while no way is proven."""
        self.update_at: float | None = None
        """When our next port status update to it leaves; None = it knows all."""
        self.update_id = 0
        self.updates_sent = 0
        self.acknowledged = True


@dataclass(slots=True)
class EvProbe:
    """An EV probe in flight. `ev`: of the reverse set, None when the application asked."""

    peer: Peer
    value: int
    plane: int
    sent_at: float
    deadline: float
    ev: Ev | None
    qpcc: Qpcc | None = None
    """Who wants to learn the base RTT."""


class Peers:
    """All other hosts an endpoint has heard of. `local_ports`: mask of our own ports that are up."""

    def __init__(self, planes: int, config: Config, events: list[Event], rng: Random):
        self._planes, self._config, self._events = planes, config, events
        self._mask = (1 << planes) - 1
        self._by_name: dict[str, Peer] = {}
        self.local_ports = self._mask
        self.control: deque[tuple[Peer, Packet]] = deque(maxlen=1 << 14)
        """Control packets to be sent, oldest first; beyond the bound the oldest are lost, as they might on the wire."""
        self._rng = rng
        self._probes: dict[int, EvProbe] = {}
        """By request id."""
        self._request_id = rng.getrandbits(REQUEST_BITS)
        self._plane = 0
        self.qpccs = Qpccs(config, planes, self._probe_base)
        self.incast = IncastSignal(config.incast_penalty, config.incast_hold_s)

    def get(self, name: str) -> Peer:
        """The peer of that name, new if need be. Names come from the NIC, which knows the hosts there are."""
        peer = self._by_name.get(name)
        if peer is None:
            peer = self._by_name[name] = Peer(name, self._planes, self._rng)
        return peer

    def connected(self, peer: Peer, qp: QueuePair, now: float) -> None:
        """A QP with that peer is up. The first one starts from a clean sheet: the peer may have been restarted."""
        if not peer.qps:
            peer.ports, peer.last_update = ALL_PORTS, None
            peer.reverse.forget()
        peer.qps.append(qp)
        qp.on_ports(self.local_ports, peer.ports, now)
        if self.local_ports != self._mask:
            self.tell(peer, now)

    @staticmethod
    def disconnected(peer: Peer, qp: QueuePair) -> None:
        """A QP with that peer is gone. With the last one goes what would renew the proof of reverse EVs."""
        if qp in peer.qps:
            peer.qps.remove(qp)
            if not peer.qps:
                peer.reverse.forget()

    # ---- control packets --------------------------------------------------------------------------------

    def transmit(self, out: list[tuple[int, str, Packet]], limit: int, room: Room) -> None:
        """Send what is queued, where ports have room; the rest stays."""
        queue = self.control
        for _ in range(min(len(queue), limit)):
            peer, packet = queue.popleft()
            if type(packet) is EndpointRequest:
                if packet.op == EndpointOp.EV_PROBE:
                    self._send_probe(peer, packet, out, room)
                    continue
                if packet.request_id != peer.update_id:
                    continue  # ports changed again while it waited
            # With no port up at both ends one belief must be wrong, and only a packet sent all the same can tell.
            usable = self.local_ports & peer.ports or self.local_ports
            route = peer.reverse.route(packet.plane, usable, usable & room.free)
            if route is None:
                queue.append((peer, packet))
                continue
            packet.plane, packet.ev = route
            room.take(packet.plane)
            out.append((packet.plane, peer.name, packet))

    def _send_probe(self, peer: Peer, packet: EndpointRequest, out: list[tuple[int, str, Packet]], room: Room) -> None:
        """EV probes leave on their own EV or not at all: where the port is down they fail by their timeout."""
        if room.free >> packet.plane & 1:
            room.take(packet.plane)
            out.append((packet.plane, peer.name, packet))
        elif self.local_ports >> packet.plane & 1:
            self.control.append((peer, packet))

    # ---- ports ------------------------------------------------------------------------------------------

    def on_port(self, plane: int, up: bool, now: float) -> None:
        """Our port changed: withdraw or readmit its plane at once, and tell everyone we talk to."""
        bit = 1 << plane
        if bool(self.local_ports & bit) == up:
            return
        self.local_ports ^= bit
        self._events.append(PlaneChanged(None, plane, up, now))
        for peer in self._by_name.values():
            self._apply(peer, now)
            self.tell(peer, now)

    def _apply(self, peer: Peer, now: float) -> None:
        for qp in peer.qps:
            qp.on_ports(self.local_ports, peer.ports, now)

    def tell(self, peer: Peer, now: float) -> None:
        """Start a port status update to a peer with whom a QP is connected."""
        if peer.qps:
            peer.update_id = self._request_id = self._request_id + 1 & 0xFFFF
            peer.update_at, peer.updates_sent, peer.acknowledged = now, 0, False

    def _on_update(self, peer: Peer, request: EndpointRequest, now: float) -> None:
        """§5.12. Updates may overtake each other on different planes: an older one changes nothing.

        Unless it comes later than any reordering: then another process of that host counts its requests by itself.
        """
        last = peer.last_update
        behind = last is not None and (request.request_id - last & 0xFFFF) >= 1 << REQUEST_BITS - 1
        if behind and now - peer.last_update_at < self._config.port_status_refresh_s:
            return
        peer.last_update, peer.last_update_at = request.request_id, now
        ports = request.port_mask >> self._config.port_bit_base
        changed = (peer.ports ^ ports) & self._mask
        peer.ports = ports | ALL_PORTS & ~self._mask
        for plane in range(self._planes):
            if changed >> plane & 1:
                self._events.append(PlaneChanged(peer.name, plane, bool(peer.ports >> plane & 1), now))
        if changed:
            self._apply(peer, now)

    # ---- endpoint operations ----------------------------------------------------------------------------

    def on_request(self, peer: Peer, request: EndpointRequest, now: float) -> None:
        """Answer an EV probe or a port status update; other operations are ignored."""
        if request.op == EndpointOp.PORT_STATUS_UPDATE:
            self._on_update(peer, request, now)
        elif request.op != EndpointOp.EV_PROBE:
            return
        answer = EndpointResponse(
            ENDPOINT_QPN, request.ev, request.plane, self._config.dscp_control, ECN_NOT_ECT, request.request_id,
            request.op, request.timestamp or 0,
        )  # fmt: skip
        self.control.append((peer, answer))

    def on_response(self, peer: Peer, response: EndpointResponse, now: float) -> None:
        """The peer answered. Matched by request id, not by op (§12 row 6)."""
        found = self._probes.get(response.request_id)
        if found is not None and found.peer is peer:
            del self._probes[response.request_id]
            self._probed(response.request_id, found, now - found.sent_at, now)
        elif not peer.acknowledged and response.request_id == peer.update_id:
            peer.acknowledged = True
            all_up = self.local_ports == self._mask
            peer.update_at = None if all_up else now + self._config.port_status_refresh_s

    def _probed(self, request_id: int, probe: EvProbe, rtt_s: float | None, now: float) -> None:
        """An EV probe ended, with its round trip or (None) without answer."""
        reverse = probe.peer.reverse
        if probe.qpcc is not None:
            probe.qpcc.on_probe(rtt_s)
        elif probe.ev is None:
            name = probe.peer.name
            self._events.append(EvProbeResult(request_id, name, probe.value, probe.plane, rtt_s, now))
        elif rtt_s is None:
            reverse.unanswered(probe.ev)
        else:
            reverse.answered(probe.ev, rtt_s)

    def probe_ev(
        self, peer: Peer, value: int, plane: int, now: float, timeout_s: float, ev: Ev | None = None,
        qpcc: Qpcc | None = None,
    ) -> int:  # fmt: skip
        """Queue an EV probe; returns its request id. Its outcome is an EvProbeResult, or `ev` or `qpcc` learn of it."""
        request_id = self._request_id = self._request_id + 1 & 0xFFFF
        self._probes[request_id] = EvProbe(peer, value, plane, now, now + timeout_s, ev, qpcc)
        # Probes for control packets travel in their class, those of the application in that of data (§2.13).
        ours = ev is not None or qpcc is not None
        dscp, ecn = (self._config.dscp_control, ECN_NOT_ECT) if ours else (self._config.dscp_trimmable, ECN_ECT0)
        self.control.append((peer, EndpointRequest(
            ENDPOINT_QPN, value, plane, dscp, ecn, request_id, EndpointOp.EV_PROBE, 0, *self._timestamp(now)
        )))  # fmt: skip
        return request_id

    def _probe_base(self, qpcc: Qpcc, now: float) -> bool:
        """Probe the base RTT (nscc.md §2.8) over any EV that works; False when there is none."""
        peer = self.get(qpcc.peer)
        ev = peer.reverse.draw(self.local_ports & peer.ports)
        if ev is not None:
            self.probe_ev(peer, ev.value, ev.plane, now, self._config.probe_timeout_s, qpcc=qpcc)
        return ev is not None

    def heard_data(self, peer: Peer, now: float) -> None:
        """Data or a probe came in: a round trip later, if we sent no data, an EV probe renews the set (§6.8)."""
        peer.probe_at = now + self._reverse_period_s(peer)
        peer.probes_left = PROBES_WITHOUT_PROOF

    def _reverse_period_s(self, peer: Peer) -> float:
        return max(peer.reverse.rtt_s or 0.0, self._config.reverse_probe_s)

    def _renew_reverse(self, peer: Peer, now: float) -> None:
        due, peer.probe_at = peer.probe_at, None
        if due is None or peer.reverse.proved_at >= now - self._reverse_period_s(peer):
            return
        ev = peer.reverse.draw(self.local_ports & peer.ports)
        if ev is not None:
            patience = min(self._config.probe_timeout_s, PROBE_RTTS * self._reverse_period_s(peer))
            self.probe_ev(peer, ev.value, ev.plane, now, patience, ev)
            if peer.probes_left and not peer.reverse.proven:
                peer.probes_left -= 1
                peer.probe_at = now + self._reverse_period_s(peer)

    def _timestamp(self, now: float) -> tuple[int | None, int]:
        """(tx_timestamp, tsr) of a request."""
        config = self._config
        return (int(now / config.ts_unit_s) & 0xFFFF, 1) if config.timestamps else (None, 0)

    # ---- clock ------------------------------------------------------------------------------------------

    def on_timer(self, now: float) -> None:
        """Repeat port status updates (§5.12), fail EV probes without answer."""
        for peer in self._by_name.values():
            if peer.probe_at is not None and peer.probe_at <= now:
                self._renew_reverse(peer, now)
            if peer.update_at is None or peer.update_at > now:
                continue
            if not peer.qps:
                peer.update_at = None
                continue
            self._update(peer, now)
        for request_id, probe in [(i, p) for i, p in self._probes.items() if p.deadline <= now]:
            del self._probes[request_id]
            self._probed(request_id, probe, None, now)

    def _update(self, peer: Peer, now: float) -> None:
        config = self._config
        peer.updates_sent += 1
        early = not peer.acknowledged and peer.updates_sent < config.port_status_repeats
        peer.update_at = now + (config.base_timeout_s if early else config.port_status_refresh_s)
        if peer.acknowledged:  # a refresh: newer than what was acknowledged
            peer.update_id = self._request_id = self._request_id + 1 & 0xFFFF
            peer.acknowledged = False
        self.control.append((peer, EndpointRequest(
            ENDPOINT_QPN, 0, self._next_plane(), config.dscp_control, ECN_NOT_ECT, peer.update_id,
            EndpointOp.PORT_STATUS_UPDATE, self.local_ports << config.port_bit_base & ALL_PORTS, *self._timestamp(now),
        )))  # fmt: skip

    def _next_plane(self) -> int:
        """Repeated updates take turns over the planes that are left, for one of them may be the trouble."""
        for _ in range(self._planes):
            self._plane = (self._plane + 1) % self._planes
            if self.local_ports >> self._plane & 1:
                break
        return self._plane

    def next_deadline(self) -> float | None:
        """When on_timer has something to do."""
        first = NEVER  # asked after every batch of packets: no lists here
        for peer in self._by_name.values():
            if peer.update_at is not None and peer.update_at < first:
                first = peer.update_at
            if peer.probe_at is not None and peer.probe_at < first:
                first = peer.probe_at
        for probe in self._probes.values():
            if probe.deadline < first:
                first = probe.deadline
        return None if first == NEVER else first
