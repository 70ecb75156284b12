"""The fabric as pure data: names, ports, addresses, uSIDs, EV <-> path, static routes.

This is the only module that computes any of these; everything else asks a `Plan`. It imports nothing of
ours and touches nothing on the machine (docs/architecture.md, "The plan").

Bit layouts are those of reference/mrc-protocol.md §8.3::

    EV     31..16 free   15..8 plane   7..0 T0 uplink (= T1 number)
    uSID   15..12 role   11..8 plane   7..0 number          role 1 = T1, 2 = T0, 3 = NIC downlink
    DA     locator fcbb:bb00::/32, then up to six uSIDs; 0x0000 ends the list
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from ipaddress import IPv6Address
from itertools import pairwise
from typing import Any

LOCATOR = 0xFCBB_BB00
LOCATOR_BITS = 32
USID_BITS = 16
USIDS_PER_ADDRESS = 6

ROLE_T1 = 1
ROLE_T0 = 2
ROLE_DOWNLINK = 3

INTERFACE_NAME_MAX = 15
"""IFNAMSIZ - 1: the longest interface name Linux takes, in characters."""
CPU_PORT = 510
"""Port of packet-in and packet-out on both targets (511 is v1model's drop port)."""
DEVICE_MTU = 9216
"""MTU of every fabric interface, bytes (DESIGN §9)."""

LIMITS = {
    "planes": (1, 16, "an EV and a uSID carry the plane in one nibble (§8.3)"),
    "racks": (1, 256, "a uSID numbers its T0 in 8 bits (§8.3)"),
    "spines": (1, 256, "an EV carries the T0 uplink in 8 bits (§8.3)"),
    "hosts_per_rack": (1, 256, "a uSID numbers the downlink in 8 bits (§8.3)"),
}


class PlanError(ValueError):
    """The dimensions, or a name or number asked of the plan, do not exist; the message says what would."""


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a link: `node` (a switch or a host), its port `number` and its interface name.

    Numbers are 1-based on switches and hosts alike; a host's port of plane p is number p + 1.
    """

    node: str
    number: int
    interface: str


@dataclass(frozen=True, slots=True)
class Link:
    """A cable: `lower` is the end nearer to the hosts (NIC before T0, T0 before T1)."""

    lower: Port
    upper: Port
    plane: int

    @property
    def name(self) -> str:
        """`p1-t0-0 p1-t1-1`, as the Mininet CLI's `link` command names it."""
        return f"{self.lower.node} {self.upper.node}"

    @property
    def ends(self) -> frozenset[str]:
        return frozenset((self.lower.node, self.upper.node))


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
    """What `srv6.p4` needs on one switch, written once (§8.1).

    `own_usid`: the uSID it ends; `next_hops`: (uSID, egress port) of each neighbour.
    """

    own_usid: int
    next_hops: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SprayRoutes:
    """What `spray.p4` needs on one switch.

    `down`: (prefix, prefix length, egress port) by destination; `up`: (prefix, prefix length) that leaves by
    any port of `uplinks`. Both empty-able: a T1 has no uplinks.
    """

    down: tuple[tuple[IPv6Address, int, int], ...]
    up: tuple[tuple[IPv6Address, int], ...]
    uplinks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Path:
    """The way of one EV from a source to a destination host: nodes in order and the links between them."""

    ev: int
    nodes: tuple[str, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class AddressTemplate:
    """Outer destination address of a (source, destination) pair with plane and uplink left at zero (§8.2).

    `address(ev)` fills them in: 2 shifts and 2 ORs a packet, nothing stored per path.
    """

    base: int
    plane_unit: int
    """Sum of 1 << (bit of the plane nibble) over the uSIDs present: times the plane, ORed in."""
    uplink_shift: int | None
    """Bit of the T1 uSID's number; None inside a rack, where there is no T1."""

    def address(self, ev: int) -> int:
        """The 128-bit outer DA of `ev` as an integer."""
        value = self.base | self.plane_unit * ev_plane(ev)
        if self.uplink_shift is not None:
            value |= ev_uplink(ev) << self.uplink_shift
        return value


def usid(role: int, plane: int, number: int) -> int:
    """16-bit uSID of a role (1 T1, 2 T0, 3 NIC downlink), plane and number (§8.3)."""
    return role << 12 | plane << 8 | number


def make_ev(plane: int, uplink: int) -> int:
    """EV of a plane and a T0 uplink number (§8.3)."""
    return plane << 8 | uplink


def ev_plane(ev: int) -> int:
    return ev >> 8 & 0xFF


def ev_uplink(ev: int) -> int:
    return ev & 0xFF


def carrier(*usids: int) -> int:
    """128-bit uSID carrier address: locator, the uSIDs, zeros. Raises PlanError beyond six."""
    if len(usids) > USIDS_PER_ADDRESS:
        raise PlanError(f"{len(usids)} uSIDs do not fit in one address (at most {USIDS_PER_ADDRESS})")
    value = LOCATOR
    for one in usids:
        value = value << USID_BITS | one
    return value << USID_BITS * (USIDS_PER_ADDRESS - len(usids))


@dataclass(frozen=True)
class Plan:
    """A multi-plane two-tier Clos fabric. Raises PlanError for dimensions that cannot be named or numbered."""

    planes: int = 4
    racks: int = 2
    spines: int = 2
    hosts_per_rack: int = 2

    def __post_init__(self) -> None:
        for key, (low, high, why) in LIMITS.items():
            value = getattr(self, key)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise PlanError(f"{key} = {value!r}: must be {low} to {high}, because {why}")
        if self.hosts_per_rack + self.spines >= CPU_PORT:
            raise PlanError(
                f"hosts_per_rack + spines = {self.hosts_per_rack + self.spines}: a T0 has at most "
                f"{CPU_PORT - 1} ports (v1model numbers them in 9 bits; {CPU_PORT} is the CPU port)"
            )
        longest = max(self._longest_interface_names(), key=len)
        if len(longest) > INTERFACE_NAME_MAX:
            raise PlanError(
                f"interface {longest!r} would have {len(longest)} characters and Linux takes "
                f"{INTERFACE_NAME_MAX}: use fewer planes, racks, spines or hosts per rack"
            )

    def _longest_interface_names(self) -> Iterator[str]:
        p, t0_ports = self.planes - 1, self.hosts_per_rack + self.spines
        yield f"p{p}-t0-{self.racks - 1}-eth{t0_ports}"
        yield f"p{p}-t1-{self.spines - 1}-eth{self.racks}"
        yield f"h{self.racks * self.hosts_per_rack - 1}-eth{p}"

    # ---- names ------------------------------------------------------------------------------------------

    @staticmethod
    def t0_name(plane: int, rack: int) -> str:
        return f"p{plane}-t0-{rack}"

    @staticmethod
    def t1_name(plane: int, number: int) -> str:
        return f"p{plane}-t1-{number}"

    @cached_property
    def hosts(self) -> tuple[Host, ...]:
        return tuple(
            Host(f"h{n}", n, n // self.hosts_per_rack, n % self.hosts_per_rack)
            for n in range(self.racks * self.hosts_per_rack)
        )

    @cached_property
    def switches(self) -> tuple[Switch, ...]:
        """Plane by plane, T0s before T1s; device ids count from 1 in this order."""
        out: list[Switch] = []
        for plane in range(self.planes):
            for rack in range(self.racks):
                out.append(Switch(self.t0_name(plane, rack), 0, plane, rack, len(out) + 1))
            for number in range(self.spines):
                out.append(Switch(self.t1_name(plane, number), 1, plane, number, len(out) + 1))
        return tuple(out)

    @cached_property
    def _nodes(self) -> dict[str, Host | Switch]:
        return {node.name: node for node in (*self.hosts, *self.switches)}

    def host(self, name: str) -> Host:
        """The host of that name. Raises PlanError listing the hosts."""
        node = self._nodes.get(name)
        if not isinstance(node, Host):
            raise PlanError(f"no host {name!r} (has: {_span([h.name for h in self.hosts])})")
        return node

    def switch(self, name: str) -> Switch:
        """The switch of that name. Raises PlanError listing the switches."""
        node = self._nodes.get(name)
        if not isinstance(node, Switch):
            raise PlanError(f"no switch {name!r} (has: {_span([s.name for s in self.switches])})")
        return node

    def first_remote_host(self, source: str) -> Host:
        """The first host in another rack than `source`; in a one-rack fabric the first other host.

        Raises PlanError when `source` is alone.
        """
        here = self.host(source)
        others = [h for h in self.hosts if h.rack != here.rack] or [h for h in self.hosts if h != here]
        if not others:
            raise PlanError("the fabric has only one host: give it 2 racks or 2 hosts per rack")
        return others[0]

    # ---- ports and links --------------------------------------------------------------------------------

    def host_port(self, host: Host, plane: int) -> Port:
        """Port of a NIC on `plane`: MRC port number plane + 1, interface `h0-eth{plane}`."""
        return Port(host.name, plane + 1, f"{host.name}-eth{plane}")

    def switch_port(self, switch: Switch, number: int) -> Port:
        return Port(switch.name, number, f"{switch.name}-eth{number}")

    def downlink_port(self, downlink: int) -> int:
        """Port number of a T0 towards the host with that downlink number."""
        return downlink + 1

    def uplink_port(self, uplink: int) -> int:
        """Port number of a T0 towards T1 number `uplink`."""
        return self.hosts_per_rack + 1 + uplink

    def rack_port(self, rack: int) -> int:
        """Port number of a T1 towards the T0 of `rack`."""
        return rack + 1

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Every cable, plane by plane: NIC-T0 links first, then T0-T1 links."""
        out = []
        for plane in range(self.planes):
            for host in self.hosts:
                t0 = self.switch(self.t0_name(plane, host.rack))
                upper = self.switch_port(t0, self.downlink_port(host.downlink))
                out.append(Link(self.host_port(host, plane), upper, plane))
            for rack in range(self.racks):
                t0 = self.switch(self.t0_name(plane, rack))
                for number in range(self.spines):
                    t1 = self.switch(self.t1_name(plane, number))
                    lower = self.switch_port(t0, self.uplink_port(number))
                    out.append(Link(lower, self.switch_port(t1, self.rack_port(rack)), plane))
        return tuple(out)

    @cached_property
    def _links_by_ends(self) -> dict[frozenset[str], tuple[Link, ...]]:
        out: dict[frozenset[str], tuple[Link, ...]] = {}
        for link in self.links:
            out[link.ends] = (*out.get(link.ends, ()), link)
        return out

    @cached_property
    def _links_by_interface(self) -> dict[str, Link]:
        return {port.interface: link for link in self.links for port in (link.lower, link.upper)}

    def link(self, a: str, b: str, plane: int | None = None) -> Link:
        """The link between two nodes, in either order.

        A host meets each T0 in one plane only, so two names are always enough; `plane` is checked when given.
        Raises PlanError naming the neighbours of `a`.
        """
        for name in (a, b):
            if name not in self._nodes:
                raise PlanError(
                    f"no node {name!r} (has: {_span([s.name for s in self.switches])}; "
                    f"{_span([h.name for h in self.hosts])})"
                )
        found = [k for k in self._links_by_ends.get(frozenset((a, b)), ()) if plane in (None, k.plane)]
        if not found:
            near = sorted({n for k in self.links if a in k.ends for n in k.ends} - {a}, key=_natural)
            raise PlanError(f"no link between {a} and {b} ({a} is linked to: {', '.join(near)})")
        return found[0]

    def link_of_interface(self, interface: str) -> Link:
        """The link one of whose ends is `interface`. Raises PlanError."""
        try:
            return self._links_by_interface[interface]
        except KeyError:
            raise PlanError(f"no interface {interface!r} in this fabric") from None

    def ports(self, node: str) -> tuple[Port, ...]:
        """All ports of a node in port order. Raises PlanError for an unknown name."""
        if node not in self._nodes:
            raise PlanError(f"no node {node!r}")
        mine = [p for k in self.links for p in (k.lower, k.upper) if p.node == node]
        return tuple(sorted(mine, key=lambda p: p.number))

    # ---- addresses --------------------------------------------------------------------------------------

    def address(self, host: Host, plane: int) -> IPv6Address:
        """Inner IPv6 address of a host's port: fd00:{plane}:{rack}:{downlink}::1."""
        return IPv6Address(f"fd00:{plane:x}:{host.rack:x}:{host.downlink:x}::1")

    @cached_property
    def _hosts_by_address(self) -> dict[bytes, tuple[Host, int]]:
        return {self.address(h, p).packed: (h, p) for h in self.hosts for p in range(self.planes)}

    def host_of_address(self, packed: bytes) -> tuple[Host, int] | None:
        """(host, plane) that owns a 16-byte address, or None: packets from the wire may carry anything."""
        return self._hosts_by_address.get(packed)

    @staticmethod
    def mac(port: Port) -> str:
        """Locally administered MAC of a port, from a stable digest of its interface name."""
        value = 0
        for char in port.interface.encode():
            value = (value * 131 + char) % (1 << 40)
        return ":".join(f"{byte:02x}" for byte in (0x02, *value.to_bytes(5, "big")))

    # ---- EVs and paths ----------------------------------------------------------------------------------

    def evs(self, source: Host, destination: Host) -> tuple[int, ...]:
        """Every EV that names a distinct path between two hosts, plane by plane.

        planes x spines of them between racks, one a plane inside a rack (§8.2: only the plane matters there).
        """
        uplinks = range(self.spines) if source.rack != destination.rack else range(1)
        return tuple(make_ev(plane, uplink) for plane in range(self.planes) for uplink in uplinks)

    def template(self, source: Host, destination: Host) -> AddressTemplate:
        """Address template of a pair of hosts (§8.2)."""
        t0_here, t0_there = usid(ROLE_T0, 0, source.rack), usid(ROLE_T0, 0, destination.rack)
        end = usid(ROLE_DOWNLINK, 0, destination.downlink)
        if source.rack == destination.rack:
            return self._as_template((t0_here, end), None)
        return self._as_template((t0_here, usid(ROLE_T1, 0, 0), t0_there, end), 1)

    def t0_probe_template(self, host: Host) -> AddressTemplate:
        """Self-probe of the host's T0: T0, then back down (§9)."""
        own = usid(ROLE_DOWNLINK, 0, host.downlink)
        return self._as_template((usid(ROLE_T0, 0, host.rack), own), None)

    def t1_probe_template(self, host: Host) -> AddressTemplate:
        """Self-probe of a T1: up to it and back over the same T0 (§9)."""
        t0, own = usid(ROLE_T0, 0, host.rack), usid(ROLE_DOWNLINK, 0, host.downlink)
        return self._as_template((t0, usid(ROLE_T1, 0, 0), t0, own), 1)

    @staticmethod
    def _as_template(usids: tuple[int, ...], t1_at: int | None) -> AddressTemplate:
        shift = [128 - LOCATOR_BITS - USID_BITS * (i + 1) for i in range(len(usids))]
        return AddressTemplate(
            base=carrier(*usids),
            plane_unit=sum(1 << (low + 8) for low in shift),
            uplink_shift=None if t1_at is None else shift[t1_at],
        )

    def nic_address(self, host: Host, plane: int) -> int:
        """Outer DA with which a packet reaches a NIC port: locator and its downlink uSID alone (§8.1)."""
        return carrier(usid(ROLE_DOWNLINK, plane, host.downlink))

    def path(self, source: Host, destination: Host, ev: int) -> Path:
        """Nodes and links an EV crosses. Raises PlanError for an EV that names no path of this pair."""
        plane, uplink = ev_plane(ev), ev_uplink(ev)
        if (ev & 0xFFFF) not in self.evs(source, destination):
            raise PlanError(f"EV {ev:#06x} names no path from {source.name} to {destination.name}")
        nodes = [source.name, self.t0_name(plane, source.rack)]
        if source.rack != destination.rack:
            nodes += [self.t1_name(plane, uplink), self.t0_name(plane, destination.rack)]
        nodes.append(destination.name)
        links = tuple(self.link(a, b, plane) for a, b in pairwise(nodes))
        return Path(ev, tuple(nodes), links)

    def evs_through(self, source: Host, destination: Host, node_or_link: str | Link) -> tuple[int, ...]:
        """The EVs of a pair of hosts whose path crosses a link (Link) or a node (its name)."""
        out = []
        for ev in self.evs(source, destination):
            path = self.path(source, destination, ev)
            if node_or_link in (path.links if isinstance(node_or_link, Link) else path.nodes):
                out.append(ev)
        return tuple(out)

    # ---- static routes ----------------------------------------------------------------------------------

    def srv6_routes(self, switch: Switch) -> SwitchRoutes:
        """The uN table of a switch (§8.1): T0 to its T1s and NICs, T1 to its T0s; nothing crosses planes."""
        plane = switch.plane
        if switch.tier == 1:
            hops = [(usid(ROLE_T0, plane, r), self.rack_port(r)) for r in range(self.racks)]
        else:
            hops = [(usid(ROLE_T1, plane, k), self.uplink_port(k)) for k in range(self.spines)]
            hops += [(usid(ROLE_DOWNLINK, plane, d), self.downlink_port(d)) for d in range(self.hosts_per_rack)]
        return SwitchRoutes(switch.usid, tuple(hops))

    def spray_routes(self, switch: Switch) -> SprayRoutes:
        """The destination routes of a switch in ECMP and structured-EV modes."""
        plane = switch.plane
        if switch.tier == 1:
            down = tuple((IPv6Address(f"fd00:{plane:x}:{r:x}::"), 48, self.rack_port(r)) for r in range(self.racks))
            return SprayRoutes(down, (), ())
        down = tuple(
            (self.address(h, plane), 128, self.downlink_port(h.downlink)) for h in self.hosts if h.rack == switch.number
        )
        uplinks = tuple(self.uplink_port(k) for k in range(self.spines))
        return SprayRoutes(down, ((IPv6Address(f"fd00:{plane:x}::"), 32),), uplinks)

    # ---- to and from files ------------------------------------------------------------------------------

    def to_json(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Plan:
        """Inverse of to_json. Raises PlanError for anything else than the four dimensions."""
        if not isinstance(data, dict) or not set(data) <= set(LIMITS):
            raise PlanError(f"a plan has the keys {', '.join(LIMITS)}; got {data!r}")
        return cls(**data)

    def __str__(self) -> str:
        return (
            f"{self.planes} planes x ({self.racks} T0 + {self.spines} T1), "
            f"{len(self.hosts)} hosts ({self.hosts_per_rack} a rack)"
        )


def _natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _span(names: list[str]) -> str:
    """All names when few, else the first and last: a message has to stay readable."""
    return ", ".join(names) if len(names) <= 8 else f"{names[0]} ... {names[-1]}"
