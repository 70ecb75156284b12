"""The fabric as pure data: names, ports, addresses, uSIDs, EVs, paths, routes, speeds, thresholds.

Only this module and its pure siblings (addressing, modes, link_speeds, model) compute any of these; everything else
asks a `Plan`. They import nothing else of ours and touch nothing on the machine (docs/architecture.md, "The plan").
Bit layouts are those of mrc-protocol §8.3, see topologies/plan/addressing.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from ipaddress import IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from mrc_testbed.topologies.plan import addressing, link_speeds, modes
from mrc_testbed.topologies.plan.addressing import (
    ROLE_ADJACENCY_DOWN,
    ROLE_ADJACENCY_UP,
    ROLE_DOWNLINK,
    ROLE_T0,
    ROLE_T1,
    AddressTemplate,
    PlanError,
    carrier,
    ev_plane,
    ev_uplink,
    usid,
)
from mrc_testbed.topologies.plan.link_speeds import PATH_MTUS, LinkSpeed, Thresholds
from mrc_testbed.topologies.plan.model import FabricPath, Host, Link, Port, SprayRoutes, Switch, SwitchRoutes
from mrc_testbed.topologies.plan.modes import Mode

Tier: TypeAlias = Literal["nic", "fabric"]
"""Links between NICs and T0s, or between T0s and T1s."""
INTERFACE_NAME_MAX = 15
"""IFNAMSIZ - 1: the longest interface name Linux takes, in characters."""
CPU_PORT = 510
"""Port of packet-in and packet-out on both targets (511 is v1model's drop port)."""
DEVICE_MTU = 9216
"""MTU of every fabric interface, bytes (docs/architecture.md)."""

IP4_NETWORK, IP6_NETWORK = IPv4Network("10.64.0.0/10"), IPv6Network("fd01::/64")
"""Prefixes of the addresses that ordinary programs on the hosts use (`Plan.ip_interfaces`)."""

LIMITS = {
    "planes": (1, 16, "an EV and a uSID carry the plane in one nibble (§8.3)"),
    "racks": (1, 256, "a uSID numbers its T0 in 8 bits (§8.3)"),
    "spines": (1, 256, "an EV carries the T0 uplink in 8 bits (§8.3)"),
    "hosts_per_rack": (1, 256, "a uSID numbers the downlink in 8 bits (§8.3)"),
}


@dataclass(frozen=True)
class Plan:
    """A multi-plane two-tier Clos fabric. Raises PlanError for dimensions that do not fit.

    `host_link`, `fabric_link`: speeds of NIC-T0 and T0-T1 links; by default as fast as the machine, and then there
    are no thresholds. `Plan.scaled` gives the speeds of §11.4. `pmtu_bytes`: path MTU of the hosts, which fixes what
    a packet is in every depth. `mode` may be given by name. `interface_prefix`: begin of the names of the switches'
    interfaces, by which fabrics beside each other on a machine keep apart.
    """

    planes: int = 4
    racks: int = 2
    spines: int = 2
    hosts_per_rack: int = 2
    mode: Mode = field(default=Mode.SRV6, kw_only=True)
    host_link: LinkSpeed = field(default=LinkSpeed(), kw_only=True)
    fabric_link: LinkSpeed = field(default=LinkSpeed(), kw_only=True)
    pmtu_bytes: int = field(default=4096, kw_only=True)
    interface_prefix: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        for key, (low, high, reason) in LIMITS.items():
            value = getattr(self, key)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise PlanError(f"{key} = {value!r}: must be {low} to {high}, because {reason}")
        if self.hosts_per_rack + self.spines >= CPU_PORT:
            raise PlanError(
                f"hosts_per_rack + spines = {self.hosts_per_rack + self.spines}: a T0 has at most "
                f"{CPU_PORT - 1} ports (v1model numbers them in 9 bits; {CPU_PORT} is the CPU port)"
            )
        object.__setattr__(self, "mode", Mode.from_name(self.mode))
        if self.pmtu_bytes not in PATH_MTUS:
            raise PlanError(f"pmtu_bytes = {self.pmtu_bytes!r}: must be one of {', '.join(map(str, PATH_MTUS))}")
        if not isinstance(self.interface_prefix, str) or not re.fullmatch("[0-9a-z]?", self.interface_prefix):
            raise PlanError(f"interface_prefix = {self.interface_prefix!r}: a digit, a small letter, or nothing")
        longest_name = max(self._longest_interface_names(), key=len)
        if len(longest_name) > INTERFACE_NAME_MAX:
            raise PlanError(
                f"interface {longest_name!r} would have {len(longest_name)} characters and Linux takes "
                f"{INTERFACE_NAME_MAX}: use fewer planes, racks, spines or hosts per rack"
            )

    def _longest_interface_names(self) -> Iterator[str]:
        p, t0_ports = self.planes - 1, self.hosts_per_rack + self.spines
        yield f"{self.interface_prefix}p{p}-t0-{self.racks - 1}-eth{t0_ports}"
        yield f"{self.interface_prefix}p{p}-t1-{self.spines - 1}-eth{self.racks}"
        yield f"h{self.racks * self.hosts_per_rack - 1}-eth{p}"

    @classmethod
    def scaled(
        cls,
        planes: int = 4,
        racks: int = 2,
        spines: int = 2,
        hosts_per_rack: int = 2,
        *,
        mode: Mode | str = Mode.SRV6,
        rate_bps: float = link_speeds.SCALED_RATE_BPS,
        rtt_s: float = link_speeds.SCALED_RTT_S,
        pmtu_bytes: int = link_speeds.SCALED_PMTU,
    ) -> Plan:
        """A plan at the scale of §11.4 and Annex C: all links alike, delays such that the base RTT is `rtt_s`."""
        mode = Mode.from_name(mode)
        speed = link_speeds.scaled_speed(rate_bps, rtt_s, pmtu_bytes, mode, hops=4 if racks > 1 else 2)
        return cls(
            planes,
            racks,
            spines,
            hosts_per_rack,
            mode=mode,
            host_link=speed,
            fabric_link=speed,
            pmtu_bytes=pmtu_bytes,
        )

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
        nodes: list[Host | Switch] = [*self.hosts, *self.switches]
        return {node.name: node for node in nodes}

    @property
    def node_names(self) -> list[str]:
        """Hosts, then switches."""
        return list(self._nodes)

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
        host = self.host(source)
        candidates = [h for h in self.hosts if h.rack != host.rack] or [h for h in self.hosts if h != host]
        if not candidates:
            raise PlanError("the fabric has only one host: give it 2 racks or 2 hosts per rack")
        return candidates[0]

    # ---- ports and links --------------------------------------------------------------------------------

    def host_port(self, host: Host, plane: int) -> Port:
        """Port of a NIC on `plane`: MRC port number plane + 1, interface `h0-eth{plane}`."""
        return Port(host.name, plane + 1, f"{host.name}-eth{plane}")

    def switch_port(self, switch: Switch, number: int) -> Port:
        """Port of a switch; its interface `p0-t0-0-eth3` may be in one namespace with those of other fabrics."""
        return Port(switch.name, number, f"{self.interface_prefix}{switch.name}-eth{number}")

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

    def links_of(self, tier: Tier | None = None, plane: int | None = None, host: str | None = None) -> Sequence[Link]:
        """Links in the order of `links`: of a tier, of a plane, of a host; None: of all."""
        return [
            link
            for link in self.links
            if tier in (None, "nic" if link.lower.node in self._host_names else "fabric")
            and plane in (None, link.plane)
            and host in (None, link.lower.node)
        ]

    @cached_property
    def _links_by_ends(self) -> dict[frozenset[str], tuple[Link, ...]]:
        out: dict[frozenset[str], tuple[Link, ...]] = {}
        for link in self.links:
            out[link.ends] = (*out.get(link.ends, ()), link)
        return out

    @cached_property
    def _links_by_interface(self) -> dict[str, Link]:
        return {port.interface: link for link in self.links for port in (link.lower, link.upper)}

    def link_named(self, name: str) -> Link:
        """The link that Link.name names. Raises PlanError."""
        a, _, b = name.partition(" ")
        return self.link(a, b)

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
        links = [k for k in self._links_by_ends.get(frozenset((a, b)), ()) if plane in (None, k.plane)]
        if not links:
            near = sorted({n for k in self.links if a in k.ends for n in k.ends} - {a}, key=_natural)
            raise PlanError(f"no link between {a} and {b} ({a} is linked to: {', '.join(near)})")
        return links[0]

    def link_of_interface(self, interface: str) -> Link:
        """The link one of whose ends is `interface`. Raises PlanError."""
        try:
            return self._links_by_interface[interface]
        except KeyError:
            raise PlanError(f"no interface {interface!r} in this fabric") from None

    @cached_property
    def _ports_by_node(self) -> dict[str, tuple[Port, ...]]:
        ports_by_node: dict[str, list[Port]] = {name: [] for name in self._nodes}
        for link in self.links:
            for port in (link.lower, link.upper):
                ports_by_node[port.node].append(port)
        return {name: tuple(sorted(ports, key=lambda p: p.number)) for name, ports in ports_by_node.items()}

    def ports(self, node: str) -> tuple[Port, ...]:
        """All ports of a node in port order. Raises PlanError for an unknown name."""
        if node not in self._nodes:
            raise PlanError(f"no node {node!r}")
        return self._ports_by_node[node]

    def link_of_port(self, node: str, number: int) -> Link:
        """The link at a port of a node. Raises PlanError listing the ports."""
        for port in self.ports(node):
            if port.number == number:
                return self._links_by_interface[port.interface]
        has = ", ".join(str(port.number) for port in self.ports(node))
        raise PlanError(f"no port {number!r} on {node} (has: {has})")

    # ---- speeds and thresholds --------------------------------------------------------------------------

    def speed(self, link: Link) -> LinkSpeed:
        """Return the speed of a link by its tier."""
        return self.host_link if link.lower.node in self._host_names else self.fabric_link

    @cached_property
    def _host_names(self) -> frozenset[str]:
        return frozenset(host.name for host in self.hosts)

    @property
    def limited(self) -> bool:
        """Whether any link has a rate."""
        return self.host_link.rate_bps is not None or self.fabric_link.rate_bps is not None

    def _speeds(self, source: Host | None, destination: Host | None) -> list[LinkSpeed]:
        """Speeds of the links between two hosts; None: of the longest way in the fabric."""
        if source is not None and destination is not None:
            far = source.rack != destination.rack
        else:
            far = self.racks > 1
        return [self.host_link, self.fabric_link, self.fabric_link, self.host_link] if far else [self.host_link] * 2

    def base_rtt_s(
        self, source: Host | None = None, destination: Host | None = None, pmtu_bytes: int | None = None
    ) -> float:
        """Return the seconds of a full packet there and its SACK back when nothing waits.

        Without hosts, of the longest way.

        Delays both ways and serialising at each link; 0 where the plan limits nothing. What hosts add is not in it.
        """
        return link_speeds.round_trip_s(self._speeds(source, destination), pmtu_bytes or self.pmtu_bytes, self.mode)

    def bdp_bytes(
        self, source: Host | None = None, destination: Host | None = None, pmtu_bytes: int | None = None
    ) -> float | None:
        """Bytes in flight that fill one plane between two hosts: lowest rate x base RTT. None without a rate."""
        rates = [speed.rate_bps for speed in self._speeds(source, destination) if speed.rate_bps is not None]
        return min(rates) * self.base_rtt_s(source, destination, pmtu_bytes) / 8 if rates else None

    @property
    def nic_rate_bps(self) -> float | None:
        """Rate of all ports of a host together; None without a limit."""
        return None if self.host_link.rate_bps is None else self.host_link.rate_bps * self.planes

    def thresholds(self, switch: Switch | str, port: int, pmtu_bytes: int | None = None) -> Thresholds | None:
        """Return the queue thresholds of a switch's egress port (§4.4).

        They follow from the port's rate and the fabric's longest base RTT.

        None when the port has no rate: such a queue never stands, so nothing is to be marked or trimmed there.
        Raises PlanError for no such switch or port.
        """
        device = self.switch(switch) if isinstance(switch, str) else switch
        link = self.link_of_port(device.name, port)
        rate = self.speed(link).rate_bps
        if rate is None:
            return None
        pmtu = pmtu_bytes or self.pmtu_bytes
        return self.thresholds_at(rate, last_hop=link.lower.node in self._host_names, pmtu_bytes=pmtu)

    def thresholds_at(self, rate_bps: float, *, last_hop: bool, pmtu_bytes: int | None = None) -> Thresholds:
        """The thresholds a port of any rate would have in this fabric: for rates changed while it runs."""
        pmtu = pmtu_bytes or self.pmtu_bytes
        bdp = rate_bps * self.base_rtt_s(pmtu_bytes=pmtu) / 8
        frame, trimmed = link_speeds.frame_bytes(pmtu, self.mode), link_speeds.trimmed_bytes(self.mode)
        return link_speeds.thresholds(bdp, frame, trimmed, last_hop)

    @property
    def trim_bytes(self) -> int:
        """Bytes of a trimmed frame, `trim_len` of §4.3."""
        return link_speeds.trimmed_bytes(self.mode)

    def frame_bytes(self, payload: int | None = None) -> int:
        """Bytes of a data frame with that much payload (a full one without), without FCS."""
        return link_speeds.frame_bytes(self.pmtu_bytes if payload is None else payload, self.mode)

    # ---- addresses --------------------------------------------------------------------------------------

    def address(self, host: Host, plane: int) -> IPv6Address:
        """Inner IPv6 address of a host's port: fd00:{plane}:{rack}:{downlink}::1."""
        return IPv6Address(0xFD00 << 112 | plane << 96 | host.rack << 80 | host.downlink << 64 | 1)

    def ip_interfaces(self, host: Host) -> tuple[IPv4Interface, IPv6Interface]:
        """Return the addresses that a host's ordinary programs use, with their prefixes (hosts/ip/gateway.py).

        The host's number + 1 in IP4_NETWORK and IP6_NETWORK, which have room for every host of the largest plan.
        """
        return (
            IPv4Interface((IP4_NETWORK[host.number + 1], IP4_NETWORK.prefixlen)),
            IPv6Interface((IP6_NETWORK[host.number + 1], IP6_NETWORK.prefixlen)),
        )

    @staticmethod
    def place_of_address(packed: bytes) -> tuple[int, int, int] | None:
        """(plane, rack, downlink) of an inner address as any fabric's `address` makes them; None for others."""
        value = int.from_bytes(packed, "big")
        plane, rack, downlink = (value >> low & 0xFFFF for low in (96, 80, 64))
        is_inner = len(packed) == 16 and value >> 112 == 0xFD00 and value & (1 << 64) - 1 == 1
        return (plane, rack, downlink) if is_inner else None

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

    def _uplinks(self, source: Host, destination: Host) -> int:
        """Distinct paths a plane: inside a rack only the plane matters (§8.2)."""
        return self.spines if source.rack != destination.rack else 1

    def ev_planes(self, source: Host, destination: Host, *, seed: int | str = 0) -> tuple[tuple[int, int], ...]:
        """(EV, plane) pairs of a QP in this plan's mode, see modes.ev_planes.

        `seed`: the modes with random EVs draw other ones for each; give the QP's number. In srv6 and stev mode they
        are one a distinct path: planes x spines between racks, one a plane inside a rack.
        """
        seed_text = f"{source.name}/{destination.name}/{seed}"
        return modes.ev_planes(self.mode, self.planes, self._uplinks(source, destination), seed_text)

    def evs(self, source: Host, destination: Host, *, seed: int | str = 0) -> tuple[int, ...]:
        """The EVs of `ev_planes` alone; where the EV names its path, every EV that does."""
        return tuple(ev for ev, _ in self.ev_planes(source, destination, seed=seed))

    def template(self, source: Host, destination: Host) -> AddressTemplate:
        """Address template of a pair of hosts (§8.2)."""
        t0_here, t0_there = usid(ROLE_T0, 0, source.rack), usid(ROLE_T0, 0, destination.rack)
        end = usid(ROLE_DOWNLINK, 0, destination.downlink)
        if source.rack == destination.rack:
            return addressing.template((t0_here, end), None)
        return addressing.template((t0_here, usid(ROLE_T1, 0, 0), t0_there, end), 1)

    def adjacency_template(self, source: Host, destination: Host) -> AddressTemplate:
        """Return the address template by uA uSIDs: each names the cable to leave by (§8.1).

        No switch looks a neighbour up.
        """
        adjacency_down = usid(ROLE_ADJACENCY_DOWN, 0, destination.downlink)
        end = usid(ROLE_DOWNLINK, 0, destination.downlink)
        if source.rack == destination.rack:
            return addressing.template((adjacency_down, end), None)
        to_rack = usid(ROLE_ADJACENCY_DOWN, 0, destination.rack)
        return addressing.template((usid(ROLE_ADJACENCY_UP, 0, 0), to_rack, adjacency_down, end), 0)

    def t0_probe_template(self, host: Host) -> AddressTemplate:
        """Self-probe of the host's T0: T0, then back down (§9)."""
        nic_usid = usid(ROLE_DOWNLINK, 0, host.downlink)
        return addressing.template((usid(ROLE_T0, 0, host.rack), nic_usid), None)

    def t1_probe_template(self, host: Host) -> AddressTemplate:
        """Self-probe of a T1: up to it and back over the same T0 (§9)."""
        t0, nic_usid = usid(ROLE_T0, 0, host.rack), usid(ROLE_DOWNLINK, 0, host.downlink)
        return addressing.template((t0, usid(ROLE_T1, 0, 0), t0, nic_usid), 1)

    def nic_address(self, host: Host, plane: int) -> int:
        """Outer DA with which a packet reaches a NIC port: locator and its downlink uSID alone (§8.1)."""
        return carrier(usid(ROLE_DOWNLINK, plane, host.downlink))

    def walk(self, nodes: Sequence[str], *, adjacencies: bool = False) -> tuple[int, ...]:
        """The uSIDs of a walk host, switch, ..., switch, host by name, of any length; for segment_list.

        By uN (each switch, then the NIC) or, with `adjacencies`, by uA (each cable, then the NIC). Raises PlanError
        when two nodes that follow each other are not linked, or an end is no host.
        """
        if len(nodes) < 3:
            raise PlanError(f"a walk goes from a host over switches to a host, got: {' '.join(nodes)}")
        self.host(nodes[0])
        last, switches = self.host(nodes[-1]), [self.switch(name) for name in nodes[1:-1]]
        links = [self.link(a, b) for a, b in pairwise(nodes)]
        if adjacencies:
            by_port = {s.name: {p: usid_ for usid_, p in self.adjacencies(s)} for s in switches}
            out = [by_port[s.name][k.end(s.name).number] for s, k in zip(switches, links[1:], strict=True)]
        else:
            out = [switch.usid for switch in switches]
        return (*out, usid(ROLE_DOWNLINK, links[-1].plane, last.downlink))

    def path(self, source: Host, destination: Host, ev: int, plane: int | None = None) -> FabricPath:
        """Nodes and links an EV crosses. Raises PlanError for an EV that names no path of this pair.

        Where the EV names no path (`mode.ev_is_path`), any EV goes; `plane` is needed then (switch-spray: not), and
        the Path tells what is certain (parts.Path).
        """
        far = source.rack != destination.rack
        if self.mode.ev_is_path:
            named_plane, uplink = ev_plane(ev), ev_uplink(ev)
            known = named_plane < self.planes and uplink < self._uplinks(source, destination)
            if not known or plane not in (None, named_plane):
                on = "" if plane is None else f" on plane {plane}"
                raise PlanError(f"EV {ev:#06x} names no path from {source.name} to {destination.name}{on}")
            return self._path(source, destination, ev, named_plane, self.t1_name(named_plane, uplink), ())
        if plane is None and self.mode is Mode.SWITCH_SPRAY:
            plane = ev_plane(ev)
        if plane is None or not 0 <= plane < self.planes:
            raise PlanError(
                f"mode {self.mode}: EV {ev:#010x} does not say its plane: give one of 0 to {self.planes - 1}"
            )
        choices = tuple(self.t1_name(plane, k) for k in range(self.spines)) if far else ()
        if len(choices) == 1:
            return self._path(source, destination, ev, plane, choices[0], ())
        return self._path(source, destination, ev, plane, f"p{plane}-t1-*", choices)

    def _path(
        self, source: Host, destination: Host, ev: int, plane: int, t1: str, choices: tuple[str, ...]
    ) -> FabricPath:
        nodes = [source.name, self.t0_name(plane, source.rack)]
        if source.rack != destination.rack:
            nodes += [t1, self.t0_name(plane, destination.rack)]
        nodes.append(destination.name)
        sure = [(a, b) for a, b in pairwise(nodes) if not choices or t1 not in (a, b)]
        return FabricPath(ev, tuple(nodes), tuple(self.link(a, b, plane) for a, b in sure), choices)

    def evs_through(
        self, source: Host, destination: Host, node_or_link: str | Link, *, seed: int | str = 0
    ) -> tuple[int, ...]:
        """The EVs of a pair of hosts whose path crosses a link (Link) or a node (its name) for certain."""
        out = []
        for ev, plane in self.ev_planes(source, destination, seed=seed):
            path = self.path(source, destination, ev, plane)
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
        return SwitchRoutes(switch.usid, tuple(hops), self.adjacencies(switch))

    def adjacencies(self, switch: Switch) -> tuple[tuple[int, int], ...]:
        """(uA uSID, egress port) of every port of a switch, downwards first."""
        plane = switch.plane
        port_count = self.racks if switch.tier else self.hosts_per_rack
        to_port = self.rack_port if switch.tier else self.downlink_port
        out = [(usid(ROLE_ADJACENCY_DOWN, plane, n), to_port(n)) for n in range(port_count)]
        if not switch.tier:
            out += [(usid(ROLE_ADJACENCY_UP, plane, k), self.uplink_port(k)) for k in range(self.spines)]
        return tuple(out)

    def spray_routes(self, switch: Switch) -> SprayRoutes:
        """The destination routes of a switch in ECMP and structured-EV modes."""
        plane = switch.plane
        if switch.tier == 1:
            down_routes = tuple(
                (IPv6Address(f"fd00:{plane:x}:{r:x}::"), 48, self.rack_port(r)) for r in range(self.racks)
            )
            return SprayRoutes(down_routes, (), ())
        down_routes = tuple(
            (self.address(h, plane), 128, self.downlink_port(h.downlink)) for h in self.hosts if h.rack == switch.number
        )
        uplinks = tuple(self.uplink_port(k) for k in range(self.spines))
        return SprayRoutes(down_routes, ((IPv6Address(f"fd00:{plane:x}::"), 32),), uplinks)

    # ---- to and from files ------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON; without a prefix of interfaces when it has none."""
        data = {**asdict(self), "mode": self.mode.value}
        return data if self.interface_prefix else {key: data[key] for key in data if key != "interface_prefix"}

    @classmethod
    def from_json(cls, data: Any) -> Plan:
        """Inverse of to_json; what is missing has its default. Raises PlanError for anything else."""
        keys = [field_.name for field_ in fields(cls)]
        if not isinstance(data, dict) or not set(data) <= set(keys):
            raise PlanError(f"a plan has the keys {', '.join(keys)}; got {data!r}")
        tiers = {key: LinkSpeed.from_json(key, data[key]) for key in ("host_link", "fabric_link") if key in data}
        return cls(**{**data, **tiers})

    def __str__(self) -> str:
        return (
            f"{self.planes} planes x ({self.racks} T0 + {self.spines} T1), "
            f"{len(self.hosts)} hosts ({self.hosts_per_rack} a rack)"
        )

    def describe_links(self) -> str:
        """Mode, speeds and what follows from them, in one line."""
        if not self.limited and not self.host_link.delay_s and not self.fabric_link.delay_s:
            return f"mode {self.mode}, links as fast as the machine"
        is_uniform = self.host_link == self.fabric_link
        links = (
            f"links {self.host_link}" if is_uniform else f"NIC links {self.host_link}; fabric links {self.fabric_link}"
        )
        rtt = f"base RTT {self.base_rtt_s() * 1e3:.4g} ms with a path MTU of {self.pmtu_bytes}"
        return f"mode {self.mode}, {links}; {rtt}"


def _natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _span(names: list[str]) -> str:
    """All names when few, else the first and last: a message has to stay readable."""
    return ", ".join(names) if len(names) <= 8 else f"{names[0]} ... {names[-1]}"
