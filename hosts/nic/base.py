"""NIC interface of an agent: records out, records in, one port per plane (fast.py, scapy_nic.py).

    nic.send(plane, peer, packet)                     queue; nic.flush() puts it on the wire
    nic.send_many([(plane, peer, packet), ...])       queue several, with fewer system calls
    for plane, peer, packet in nic.receive(limit):    `packet` may look into a buffer: use it before the next one

In srv6 mode a NIC adds Ethernet and the outer header and takes them off again (mrc-protocol §1.2): DA from the plan's
template and the EV, flow label, DSCP and ECN as inside; on the way in the outer DSCP wins and CE is ORed. It takes a
frame only when the outer DA is the port's own uSID alone and the inner DA is the port's own address. In the other modes
(§8) there is Ethernet alone around the packet, and its own address decides. Everything a NIC does not take is counted
by reason and never raises.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from mrc_testbed.hosts.engine.config import KEYS, Config
from mrc_testbed.hosts.engine.errors import WireError
from mrc_testbed.hosts.engine.wire.packets import PacketRecord
from mrc_testbed.hosts.nic.ip_packet import IpPacket
from mrc_testbed.hosts.nic.netlink import LinkState
from mrc_testbed.topologies.plan import Host, Plan, Port

ETHERNET_BYTES = 14
OUTER_BYTES = 40
ENCAPSULATION_BYTES = ETHERNET_BYTES + OUTER_BYTES
"""Bytes before the inner IPv6 header in srv6 mode; in the others ETHERNET_BYTES."""
SRH_ROOM = 8 + 16 * 4
"""Room for a segment routing header on the way in: up to four segments (§1.1, layer 2a)."""
INNER_OVERHEAD = 40 + 8 + 12 + 4 + 4 + 16 + 4 + 4
"""Most an MRC write adds to its payload: IPv6, UDP, BTH, METH, TSETH, RETH, ImmDt, iCRC; bytes (§1.1)."""
HOP_LIMIT = 64
NO_LIMIT = 1 << 30
"""Room of a port without a rate."""

_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")

Received = tuple[int, str, PacketRecord]
"""Received packet: (plane, peer host, record)."""
AnyPacket: TypeAlias = PacketRecord | IpPacket
Outgoing = tuple[int, str, AnyPacket]
"""Packet to send: (plane, peer host, record)."""


class NicError(Exception):
    """Failure to open a NIC; the message names the interface, the cause and the cure."""


def drop_reason(error: WireError) -> str:
    """Return the reason of a WireError as a counter's key.

    Numbers are left out, so that hostile frames make few keys.
    """
    return _NUMBER.sub("N", str(error))


@dataclass(slots=True)
class PortCounters:
    """Frames and bytes (Ethernet header to iCRC) of one port since the agent started."""

    tx_packets: int = 0
    tx_bytes: int = 0
    rx_packets: int = 0
    """Frames taken: ours, whole and valid."""
    rx_bytes: int = 0
    tx_dropped: Counter[str] = field(default_factory=Counter)
    """Packets not sent, by reason: the port was down, no buffer, or a hook dropped them."""
    rx_dropped: Counter[str] = field(default_factory=Counter)
    """Frames not taken, by reason: `icrc`, `not ours`, `no buffer`, or what was malformed."""

    def to_json(self) -> dict[str, Any]:
        return {
            "tx_packets": self.tx_packets,
            "tx_bytes": self.tx_bytes,
            "rx_packets": self.rx_packets,
            "rx_bytes": self.rx_bytes,
            "tx_dropped": dict(self.tx_dropped),
            "rx_dropped": dict(self.rx_dropped),
        }


def check_config(config: Config) -> None:
    """Raise NicError for a configuration that no NIC of a live fabric supports (§12 rows 35 and 36)."""
    for key in ("srv6_widths", "structured_widths"):
        if (widths := KEYS[key].value(config)) != KEYS[key].default:
            raise NicError(
                f"{key} = {widths}: NICs and switches of a live fabric read EVs as §8.3 has them "
                f"(plane and uplink, 8 bits each); leave it out, or use the virtual fabric"
            )


class Nic(ABC):
    """The ports of one host. Construction opens them; raises NicError when one cannot be."""

    kind: str
    carries_ip = False
    """Whether the NIC sends and receives IpPacket records too."""

    def __init__(self, plan: Plan, host: Host) -> None:
        self.plan = plan
        self.host = host
        self.ports: dict[int, Port] = {p: plan.host_port(host, p) for p in plan.host_planes(host)}
        self._counters: dict[int, PortCounters] = {p: PortCounters() for p in self.ports}
        self._ip_receiver: Callable[[str, bytes], None] | None = None

    @property
    def counters(self) -> dict[int, PortCounters]:
        """Counters by plane, up to date but for those that only the kernel has (`refresh_counters`)."""
        return self._counters

    @abstractmethod
    def filenos(self) -> dict[int, int]:
        """Return the descriptor of each plane, readable when a frame waits; new when a port is opened again."""

    def share(self, path: Path, qpns: range) -> None:  # noqa: B027 - a NIC can do without
        """Ask the switches behind the socket `path` for wires in shared memory, for packets to `qpns`."""

    def wire_filenos(self) -> list[int]:
        """Return the descriptors that are readable when a shared wire has something; the same ones for ever."""
        return []

    @abstractmethod
    def send(self, plane: int, peer: str, packet: AnyPacket) -> None:
        """Queue a packet for a port. A packet that cannot be sent counts in `tx_dropped` and is lost."""

    def send_many(self, packets: Sequence[Outgoing]) -> None:
        """Queue several packets, in their order at each port."""
        for plane, peer, packet in packets:
            self.send(plane, peer, packet)

    @abstractmethod
    def flush(self) -> None:
        """Put everything queued on the wire."""

    @abstractmethod
    def receive(self, limit: int) -> Iterable[Received]:
        """Return up to `limit` frames from each port. Bad frames are counted and left out."""

    @abstractmethod
    def link_changed(self, plane: int, state: LinkState) -> bool:
        """Take a link event of a port; return whether `filenos` changed (the interface was created anew)."""

    def capture_changed(self, plane: int, is_captured: bool) -> None:  # noqa: B027 - a NIC can do without
        """Let a port's frames be seen at its interface while somebody captures there."""

    def receive_ip(self, receiver: Callable[[str, bytes], None]) -> None:
        """Hand carried IP packets to `receiver` (sending host, packet); without one, drop and count them."""
        self._ip_receiver = receiver

    @property
    def backlog(self) -> int:
        """Frames that wait because the kernel took no more; their ports have no room until `flush`."""
        return 0

    def room(self) -> list[int] | None:
        """Return the data packets that the port of each plane takes now (Endpoint.transmit); None: no limit."""
        return None

    def control_room(self) -> list[int] | None:
        """Return the control packets that the port of each plane takes now; None: no limit."""
        return None

    def next_at(self) -> float | None:
        """Return when `flush` has something to send by itself; CLOCK_MONOTONIC seconds, None = never."""
        return None

    def refresh_counters(self) -> None:  # noqa: B027 - a NIC without a ring has nothing to fetch
        """Bring `counters` up to date with what the kernel counts."""

    @abstractmethod
    def close(self) -> None:
        """Close all ports. Idempotent."""
