"""Records of a fabric: ports, links, hosts, switches, routes and paths.

`mrc_testbed.topologies.plan` makes them and exports them again; import them from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Literal, TypeAlias

from mrc_testbed.topologies.plan.addressing import ROLE_T0, ROLE_T1, usid

Tier: TypeAlias = Literal["nic", "fabric"]
"""Links between NICs and T0s, or between T0s and T1s."""


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a link: `node` (a switch or a host), its port `number` and its interface name.

    Numbers are 1-based on switches and hosts alike; a host's port of plane p is number p + 1.
    """

    node: str
    number: int
    interface: str

    @property
    def plug(self) -> str:
        """Interface at the end of the cable that is plugged into this port, such as `p0-t0-0-mid3`."""
        return self.interface.replace("-eth", "-mid")


@dataclass(frozen=True, slots=True)
class Link:
    """A cable: `lower` is the end nearer to the hosts (NIC before T0, T0 before T1)."""

    lower: Port
    upper: Port
    plane: int
    tier: Tier

    @property
    def is_nic(self) -> bool:
        """Whether `lower` is a host's port: names of a topology file say nothing about it."""
        return self.tier == "nic"

    @property
    def kind(self) -> str:
        """The two ends in words."""
        return "NIC-T0" if self.is_nic else "T0-T1"

    @property
    def name(self) -> str:
        """`p1-t0-0 p1-t1-1`, as the Mininet CLI's `link` command names it."""
        return f"{self.lower.node} {self.upper.node}"

    @property
    def ends(self) -> frozenset[str]:
        return frozenset((self.lower.node, self.upper.node))

    def end(self, node: str) -> Port:
        """The end at `node`, one of `ends`."""
        return self.lower if self.lower.node == node else self.upper


@dataclass(frozen=True, slots=True)
class Host:
    """Host `h{number}`: `rack` = number // hosts_per_rack, `downlink` = number % hosts_per_rack."""

    name: str
    number: int
    rack: int
    downlink: int


@dataclass(frozen=True, slots=True)
class Switch:
    """A T0 or T1. `tier` is 0 or 1, `number` its rack (T0) or T1 number; `device_id` is P4Runtime's."""

    name: str
    tier: int
    plane: int
    number: int
    device_id: int

    @property
    def usid(self) -> int:
        return usid(ROLE_T1 if self.tier else ROLE_T0, self.plane, self.number)


@dataclass(frozen=True, slots=True)
class SwitchRoutes:
    """Routes of `srv6.p4` on one switch, written once (§8.1).

    `own_usid`: the uSID it ends; `next_hops`: (uSID, egress port) of each neighbour; `adjacencies`: (uA uSID,
    egress port) of each port, for lists that name the cable and not the neighbour.
    """

    own_usid: int
    next_hops: tuple[tuple[int, int], ...]
    adjacencies: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SprayRoutes:
    """Routes of `spray.p4` on one switch.

    `down_routes`: (prefix, prefix length, egress port) by destination; `up_routes`: (prefix, prefix length) that
    leaves by any port of `uplinks`. Both empty-able: a T1 has no uplinks.
    """

    down_routes: tuple[tuple[IPv6Address, int, int], ...]
    up_routes: tuple[tuple[IPv6Address, int], ...]
    uplinks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FabricPath:
    """The way of one EV from a source to a destination host: nodes in order and the links between them.

    Where a switch and not the EV chooses the T1 (`exact` is False), `nodes` names it `p1-t1-*`, `choices` lists
    the T1s it may be, and `links` holds only the links that are crossed for certain: both NIC-T0 links.
    """

    ev: int
    nodes: tuple[str, ...]
    links: tuple[Link, ...]
    choices: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether the EV alone decides every hop."""
        return not self.choices


def path_label(plane: int, uplink: int | None) -> str:
    """`1/0`, as `trace` takes it; the plane alone where the EV names no uplink, or none is taken."""
    return f"{plane}" if uplink is None else f"{plane}/{uplink}"


def turning_point(nodes: Sequence[str]) -> str:
    """The switch in the middle of a path, host to host: its T1, or inside a rack its T0."""
    return nodes[len(nodes) // 2]
