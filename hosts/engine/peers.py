"""The other hosts: which of their ports are up, and over which EV a control packet reaches them.

Also the endpoint operations, which need no QP (reference §2.12, §5.12, §6.10): port status updates both ways, and
EV probes.

Control packets go back on the plane their trigger came in on, over the EV on which a packet of that plane arrived last:
a path names the same links in both directions, so that EV is known to be good. When that plane cannot be used, the
plane most recently heard of is next, and at last whatever the QP's own profile offers. (A reverse EV set of its
own, §6.8, is a refinement of `Peer.route`.)
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

from .config import Config
from .context import Room
from .events import Event, EvProbeResult, PlaneChanged
from .packets import (
    ECN_ECT0,
    ECN_NOT_ECT,
    ENDPOINT_QPN,
    EndpointOp,
    EndpointRequest,
    EndpointResponse,
    Packet,
)

if TYPE_CHECKING:
    from .qp import QueuePair

ALL_PORTS = 0xFFFFFFFF
REQUEST_BITS = 16


class Peer:
    """What is known of one other host."""

    __slots__ = (
        "_heard_at", "_reverse", "acknowledged", "last_update", "name", "ports", "qps", "update_at", "update_id",
        "updates_sent",
    )  # fmt: skip

    def __init__(self, name: str, planes: int):
        self.name = name
        self.qps: list[QueuePair] = []
        """Connected QPs."""
        self.ports = ALL_PORTS
        """Bit p: its port of plane p is up, as far as it told us."""
        self.last_update: int | None = None
        """Request id of its newest port status update."""
        self._reverse: list[int | None] = [None] * planes
        """EV on which a packet of each plane arrived last."""
        self._heard_at = [0.0] * planes
        self.update_at: float | None = None
        """When our next port status update to it leaves; None = it knows all."""
        self.update_id = 0
        self.updates_sent = 0
        self.acknowledged = True

    def heard(self, plane: int, ev: int, now: float) -> None:
        """A packet arrived from it."""
        self._reverse[plane] = ev
        self._heard_at[plane] = now

    def route(self, plane: int, free: int) -> tuple[int, int] | None:
        """(plane, EV) for a control packet that should leave on `plane`, or None when there is no way now.

        `free`: mask of the planes that are up and have room.
        """
        ev = self._reverse[plane]
        if ev is not None and free >> plane & 1:
            return plane, ev
        known = [p for p, ev in enumerate(self._reverse) if ev is not None and free >> p & 1]
        if known:
            best = max(known, key=self._heard_at.__getitem__)
            return best, self._reverse[best]  # type: ignore[return-value]
        for qp in self.qps:
            choice = qp.paths.choose(free) if qp.paths is not None else None
            if choice is not None:
                return choice.plane, choice.value
        return None


class Peers:
    """All other hosts an endpoint has heard of. `local_ports`: mask of our own ports that are up."""

    def __init__(self, planes: int, config: Config, events: list[Event], rng: Random):
        self._planes, self._config, self._events = planes, config, events
        self._mask = (1 << planes) - 1
        self._by_name: dict[str, Peer] = {}
        self.local_ports = self._mask
        self.control: deque[tuple[Peer, Packet]] = deque(maxlen=1 << 14)
        """Control packets to be sent, oldest first; beyond the bound the oldest are lost, as they might on the wire."""
        self._probes: dict[int, tuple[str, int, int, float, float]] = {}
        """EV probes in flight by request id: peer, EV, plane, time sent, deadline."""
        self._request_id = rng.getrandbits(REQUEST_BITS)
        self._plane = 0

    def get(self, name: str) -> Peer:
        """The peer of that name, new if need be. Names come from the NIC, which knows the hosts there are."""
        peer = self._by_name.get(name)
        if peer is None:
            peer = self._by_name[name] = Peer(name, self._planes)
        return peer

    def connected(self, peer: Peer, qp: QueuePair, now: float) -> None:
        """A QP with that peer is up. The first one starts from a clean sheet: the peer may have been restarted."""
        if not peer.qps:
            peer.ports, peer.last_update = ALL_PORTS, None
        peer.qps.append(qp)
        qp.on_ports(self.local_ports, peer.ports, now)
        if self.local_ports != self._mask:
            self.tell(peer, now)

    # ---- control packets --------------------------------------------------------------------------------

    def transmit(self, out: list[tuple[int, str, Packet]], limit: int, room: Room) -> None:
        """Send what is queued, where ports have room; the rest stays."""
        queue = self.control
        for _ in range(min(len(queue), limit)):
            peer, packet = queue.popleft()
            if type(packet) is EndpointRequest and packet.request_id != peer.update_id:
                continue  # ports changed again while it waited
            # With no port up at both ends one belief must be wrong, and only a packet sent all the same can tell.
            usable = room.free & peer.ports if self.local_ports & peer.ports else room.free
            route = peer.route(packet.plane, usable)
            if route is None:
                queue.append((peer, packet))
                continue
            packet.plane, packet.ev = route
            room.take(packet.plane)
            out.append((packet.plane, peer.name, packet))

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
        """§5.12. Updates may overtake each other on different planes: an older one changes nothing."""
        last = peer.last_update
        if last is not None and (request.request_id - last & 0xFFFF) >= 1 << REQUEST_BITS - 1:
            return
        peer.last_update = request.request_id
        changed = (peer.ports ^ request.port_mask) & self._mask
        peer.ports = request.port_mask | ALL_PORTS & ~self._mask
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
            request.op, request.timestamp,
        )  # fmt: skip
        self.control.append((peer, answer))

    def on_response(self, peer: Peer, response: EndpointResponse, now: float) -> None:
        """The peer answered. Matched by request id, not by op (§12 row 6)."""
        found = self._probes.get(response.request_id)
        if found is not None and found[0] == peer.name:
            del self._probes[response.request_id]
            name, ev, plane, sent_at, _ = found
            self._events.append(EvProbeResult(response.request_id, name, ev, plane, now - sent_at, now))
        elif not peer.acknowledged and response.request_id == peer.update_id:
            peer.acknowledged = True
            all_up = self.local_ports == self._mask
            peer.update_at = None if all_up else now + self._config.port_status_refresh_s

    def probe_ev(self, name: str, ev: int, plane: int, now: float, timeout_s: float) -> tuple[int, EndpointRequest]:
        """An EV probe, to be sent on its plane by the caller; its outcome is an EvProbeResult."""
        request_id = self._request_id = self._request_id + 1 & 0xFFFF
        self._probes[request_id] = (name, ev, plane, now, now + timeout_s)
        dscp = self._config.dscp_trimmable
        return request_id, EndpointRequest(
            ENDPOINT_QPN, ev, plane, dscp, ECN_ECT0, request_id, EndpointOp.EV_PROBE, 0, self._timestamp(now), 1
        )

    def _timestamp(self, now: float) -> int:
        return int(now / self._config.ts_unit_s) & 0xFFFF

    # ---- clock ------------------------------------------------------------------------------------------

    def on_timer(self, now: float) -> None:
        """Repeat port status updates (§5.12), fail EV probes without answer."""
        for peer in self._by_name.values():
            if peer.update_at is None or peer.update_at > now:
                continue
            if not peer.qps:
                peer.update_at = None
                continue
            self._update(peer, now)
        for request_id, (name, ev, plane, _, deadline) in list(self._probes.items()):
            if deadline <= now:
                del self._probes[request_id]
                self._events.append(EvProbeResult(request_id, name, ev, plane, None, now))

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
            EndpointOp.PORT_STATUS_UPDATE, self.local_ports, self._timestamp(now), 1,
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
        times = [peer.update_at for peer in self._by_name.values() if peer.update_at is not None]
        times += [found[4] for found in self._probes.values()]
        return min(times, default=None)
