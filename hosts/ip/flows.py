"""Flows of ordinary IP packets, each on one EV as long as that EV is good.

No socket and no clock: times are arguments.

A flow is what ECMP hashes: addresses, protocol and ports; of ICMP echo its identifier; of a fragment the addresses
alone, so that all fragments of a packet take one path. Packets of a flow stay in order while its EV is good.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

Path: TypeAlias = tuple[int, int]
"""(EV, plane)."""
FLOWS_MAX = 4096
"""Flows remembered; the one unused for longest makes room."""
IDLE_S = 60.0
"""Seconds after which an unused flow counts as ended."""
_PORTS_AT = {6: 4, 17: 4, 132: 4}
"""Bytes of the ports at the start of TCP, UDP and SCTP headers."""
_ICMP, _ICMPV6 = 1, 58


class NotIpError(ValueError):
    """Bytes that are no IPv4 or IPv6 packet; the message says why."""


@dataclass(frozen=True, slots=True)
class IpHeader:
    """Addresses (packed) and flow of an IP packet."""

    source: bytes
    destination: bytes
    flow: bytes
    """Key of the flow: version, protocol, addresses, ports or identifier."""

    @property
    def protocol(self) -> int:
        """IP protocol number (IPv6: first next header)."""
        return self.flow[1]

    @property
    def is_multicast(self) -> bool:
        """Whether the destination is a group (224.0.0.0/3 with the broadcast address, ff00::/8)."""
        return self.destination[0] >= (0xE0 if len(self.destination) == 4 else 0xFF)


def read_header(packet: bytes) -> IpHeader:
    """Return addresses and flow of an IP packet. Raises NotIpError."""
    version = packet[0] >> 4 if packet else 0
    if version == 4:
        header_length = (packet[0] & 15) * 4
        if len(packet) < 20 or not 20 <= header_length <= len(packet):
            raise NotIpError("shorter than its IPv4 header")
        protocol, addresses, payload = packet[9], packet[12:20], packet[header_length:]
        is_fragment = int.from_bytes(packet[6:8], "big") & 0x3FFF != 0
    elif version == 6:
        if len(packet) < 40:
            raise NotIpError("shorter than its IPv6 header")
        # Behind extension headers no ports are looked for: such packets are rare, and one path for them is right.
        protocol, addresses, payload, is_fragment = packet[6], packet[8:40], packet[40:], False
    else:
        raise NotIpError(f"IP version {version}")
    half = len(addresses) // 2
    entropy = b"" if is_fragment else _entropy(protocol, payload)
    return IpHeader(addresses[:half], addresses[half:], bytes((version, protocol)) + addresses + entropy)


def _entropy(protocol: int, payload: bytes) -> bytes:
    """Return the bytes after the IP header that tell flows between two hosts apart."""
    if protocol in _PORTS_AT:
        return payload[: _PORTS_AT[protocol]]
    return payload[4:6] if protocol in (_ICMP, _ICMPV6) else b""


@dataclass(slots=True)
class IpFlow:
    """Flow to one peer. `used_at`: time of its last packet."""

    peer: str
    path: Path
    used_at: float


class FlowTable:
    """Flows of one host. `good_paths(peer)` are the paths that a flow may use; empty: none works."""

    def __init__(self, good_paths: Callable[[str], Collection[Path]], rng: Random) -> None:
        self._good_paths, self._rng = good_paths, rng
        self._flows: OrderedDict[bytes, IpFlow] = OrderedDict()
        """Flows by key, the one used last at the end."""
        self.move_count = 0
        """Moves of a flow whose EV was withdrawn."""

    def __len__(self) -> int:
        return len(self._flows)

    def path(self, key: bytes, peer: str, now: float) -> Path | None:
        """Return the path of a packet of that flow; None when no path to the peer works."""
        good_paths = self._good_paths(peer)
        flow = self._flows.get(key)
        if flow is not None and flow.path in good_paths:
            flow.used_at = now
            self._flows.move_to_end(key)
            return flow.path
        if not good_paths:
            return None
        path = self._rng.choice(sorted(good_paths))
        self.move_count += flow is not None
        self._flows[key] = IpFlow(peer, path, now)
        self._flows.move_to_end(key)
        self._forget(now)
        return path

    def _forget(self, now: float) -> None:
        while self._flows:
            key, flow = next(iter(self._flows.items()))
            if len(self._flows) <= FLOWS_MAX and now - flow.used_at < IDLE_S:
                return
            del self._flows[key]

    def paths_in_use(self, start: float) -> set[tuple[str, Path]]:
        """Return (peer, path) of the flows with a packet from `start` on."""
        paths = set()
        for flow in reversed(self._flows.values()):
            if flow.used_at < start:
                break
            paths.add((flow.peer, flow.path))
        return paths
