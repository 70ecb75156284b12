"""IP packets between a host's kernel and the fabric: one TUN interface, an EV per flow.

A packet that a program sends comes from the TUN interface, gets the path of its flow (flows.py), and leaves through
the NIC in the fabric's own way: in srv6 mode behind an outer uSID address, in the others to the peer's address. A
packet from the fabric goes to the kernel. None of it is MRC: no PSN, no retransmission, no congestion control but
TCP's own (docs/ip-over-the-fabric.md).

A flow moves when its path is withdrawn: by the state of the ports here and at the peer, by the denylist and the QPs to
the peer (Connections.health), or by probes without an answer (path_probes.py). While a port has a rate, its packets
wait here and share the port with MRC one by one, so that neither starves the other.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from collections import Counter, deque
from dataclasses import dataclass
from random import Random
from typing import Any

from mrc_testbed.hosts.agent.connections import Connections
from mrc_testbed.hosts.agent.ports import HostPorts
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.ip.flows import FlowTable, NotIpError, Path, read_header
from mrc_testbed.hosts.ip.path_probes import PathProbes
from mrc_testbed.hosts.ip.tun import INTERFACE, Tun, TunError
from mrc_testbed.hosts.nic.base import Nic
from mrc_testbed.hosts.nic.ip_packet import IP_MTU, IpPacket

READ_BATCH = 64
"""Packets read from the kernel before the agent's other work."""
QUEUE_MAX = 128
"""Packets that wait for one port; a further one is dropped."""
REFRESH_S = 0.05
"""Age of a list of good paths, seconds, at which it is made anew."""
ACTIVE_S = 1.0
"""Seconds after its last packet for which a flow's path is probed."""
PROBE_RTTS = 5
PROBE_MIN_S = 0.05
"""Time that a probe has for its answer: PROBE_RTTS base round trips, PROBE_MIN_S at least."""
_BAD_STATES = frozenset(("denied", "assumed_bad"))

log = logging.getLogger("mrc_testbed.hosts.agent")


@dataclass(slots=True)
class GoodPathList:
    """Good paths to one peer, and when the list was made."""

    paths: frozenset[Path]
    made_at: float


class IpGateway:
    """IP over the fabric for one host. Raises TunError when the host can have no interface for it."""

    def __init__(
        self,
        connections: Connections,
        endpoint: Endpoint,
        ports: HostPorts,
        config: Config,
        loop: AbstractEventLoop,
        rng: Random,
    ) -> None:
        self._connections, self._endpoint, self._ports, self._loop = connections, endpoint, ports, loop
        plan, host = connections.plan, connections.host
        self._dscp = config.dscp.no_trim
        """Class of data that keeps its tail: a trimmed packet is worth nothing to TCP."""
        self._interfaces = plan.ip_interfaces(host)
        self._own_addresses = {interface.ip.packed for interface in self._interfaces}
        self._peers = {
            interface.ip.packed: peer.name
            for peer in plan.hosts
            if peer != host
            for interface in plan.ip_interfaces(peer)
        }
        self._timeout_s = max(PROBE_RTTS * plan.base_rtt_s(), PROBE_MIN_S)
        self._lists: dict[str, GoodPathList] = {}
        self._flows = FlowTable(self._good_paths, rng)
        self._probes = PathProbes(self._send_probe, self._timeout_s)
        self._is_probing = False
        self._queues: dict[int, deque[tuple[str, IpPacket]]] = {plane: deque() for plane in ports.nic.ports}
        self.waiting = 0
        """Packets in all queues."""
        self.sent = self.received = 0
        self.dropped: Counter[str] = Counter()
        """Packets that went no further, by reason."""
        self._tun = Tun(self._interfaces, IP_MTU)
        loop.add_reader(self._tun, self._on_readable)

    # ---- out --------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        for _ in range(READ_BATCH):
            try:
                packet = self._tun.read()
            except TunError as error:  # a descriptor without an interface stays readable for ever
                log.warning("IP over the fabric ends: %s", error)
                self.close()
                break
            if packet is None:
                break
            self._queue(packet)
        self.send(self._ports.nic)

    def _queue(self, packet: bytes) -> None:
        try:
            header = read_header(packet)
        except NotIpError as error:
            self.dropped[str(error)] += 1
            return
        peer = self._peers.get(header.destination)
        if peer is None:
            if not header.is_multicast:  # the kernel greets routers and groups by itself
                self.dropped["no host has the address"] += 1
            return
        path = self._flows.path(header.flow, peer, self._loop.time())
        if path is None:
            self.dropped["no path to the host works"] += 1
            return
        ev, plane = path
        queue = self._queues[plane]
        if len(queue) >= QUEUE_MAX:
            self.dropped["queue full"] += 1
            return
        queue.append((peer, IpPacket(ev, packet, self._dscp)))
        self.waiting += 1
        if not self._is_probing:
            self._is_probing = True
            self._probe()

    def send(self, nic: Nic) -> None:
        """Give the NIC the packets for which its ports have room.

        A port with a rate gets one at a time while MRC has packets too.
        """
        if not self.waiting:
            return
        room = nic.room()
        share = 1 if self._endpoint.can_send() else QUEUE_MAX
        for plane, queue in self._queues.items():
            count = len(queue) if room is None else min(len(queue), room[plane], share)
            for _ in range(count):
                peer, packet = queue.popleft()
                nic.send(plane, peer, packet)
            self.sent += count
            self.waiting -= count
        nic.flush()

    # ---- in ---------------------------------------------------------------------------------------------

    def receive(self, peer: str, packet: bytes) -> None:
        """Give a packet from the fabric to the kernel, unless its addresses are not those of its ends."""
        try:
            header = read_header(packet)
        except NotIpError as error:
            self.dropped[str(error)] += 1
            return
        if header.destination not in self._own_addresses or self._peers.get(header.source) != peer:
            self.dropped["addresses of other hosts"] += 1
        elif self._tun.write(packet):
            self.received += 1
        else:
            self.dropped["not taken by the kernel"] += 1

    # ---- paths ------------------------------------------------------------------------------------------

    def on_ports_changed(self) -> None:
        """Forget which paths are good: a port went up or down."""
        self._lists.clear()

    def _good_paths(self, peer: str) -> frozenset[Path]:
        now = self._loop.time()
        path_list = self._lists.get(peer)
        if path_list is None or now - path_list.made_at >= REFRESH_S:
            (health,) = self._connections.health(peer)
            withdrawn = self._probes.withdrawn(peer)
            peer_ports = self._endpoint.peer_ports(peer)
            planes = {plane for plane in self._queues if self._ports.is_up(plane) and peer_ports >> plane & 1}
            paths = [(row["ev"], row["plane"]) for row in health["evs"] if row["state"] not in _BAD_STATES]
            path_list = self._lists[peer] = GoodPathList(
                frozenset(path for path in paths if path[1] in planes and path not in withdrawn), now
            )
        return path_list.paths

    def _probe(self) -> None:
        """Send the probes that are due, as long as flows are active."""
        now = self._loop.time()
        self._is_probing = self._probes.on_timer(self._flows.paths_in_use(now - ACTIVE_S), now)
        if self._is_probing:
            self._loop.call_later(self._timeout_s / 2, self._probe)

    def _send_probe(self, peer: str, path: Path) -> None:
        ev, plane = path
        host = self._connections.plan.host(peer)
        self._connections.probe(
            host, ev, plane, self._timeout_s, lambda result: self._on_probe_result(peer, path, result.rtt_s is not None)
        )

    def _on_probe_result(self, peer: str, path: Path, answered: bool) -> None:
        withdrawn_before = self._probes.withdrawn(peer)
        self._probes.on_result(peer, path, answered)
        if self._probes.withdrawn(peer) != withdrawn_before:
            self._lists.pop(peer, None)
            log.info("IP to %s: EV 0x%04x %s", peer, path[0], "answers again" if answered else "does not answer")

    # ---- state ------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return interface (null once deleted), addresses, counts of packets, flows and moves of flows."""
        return {
            "interface": INTERFACE if self._tun.fileno() >= 0 else None,
            "addresses": [str(address) for address in self._interfaces if address.version in self._tun.families],
            "mtu": IP_MTU,
            "sent": self.sent,
            "received": self.received,
            "dropped": dict(self.dropped),
            "flows": len(self._flows),
            "moved": self._flows.move_count,
        }

    def close(self) -> None:
        """Remove the interface. Idempotent."""
        if self._tun.fileno() >= 0:
            self._loop.remove_reader(self._tun)
            self._tun.close()
