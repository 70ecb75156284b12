"""The fabric as pure data: names, ports, addresses, uSIDs, EVs, paths, routes, speeds, thresholds.

Only this module and its pure siblings (addressing, modes, link_speeds, model) compute any of these; everything else
asks a `Plan`. They import nothing else of ours and touch nothing on the machine (docs/architecture.md, "The plan").
Bit layouts are those of mrc-protocol §8.3, see topologies/plan/addressing.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from ipaddress import IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from itertools import combinations, pairwise
from typing import Any

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
from mrc_testbed.topologies.plan.layout import GridLayout, default_host, default_t0, default_t1
from mrc_testbed.topologies.plan.link_speeds import PATH_MTUS, LinkSpeed, Thresholds
from mrc_testbed.topologies.plan.model import FabricPath, Host, Link, Port, SprayRoutes, Switch, SwitchRoutes, Tier
from mrc_testbed.topologies.plan.modes import Mode

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
    interfaces, by which fabrics beside each other on a machine keep apart. `layout`: what the fabric lacks of the grid
    of these dimensions, names of its own, links of another speed; None: the full grid, as most fabrics are.
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
    layout: GridLayout | None = field(default=None, kw_only=True)

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
        longest_name = max(self._longest_interface_names(), key=len, default="")
        if len(longest_name) > INTERFACE_NAME_MAX:
            cure = "shorter names" if self.layout else "fewer planes, racks, spines or hosts per rack"
            raise PlanError(
                f"interface {longest_name!r} would have {len(longest_name)} characters and Linux takes "
                f"{INTERFACE_NAME_MAX}: use {cure}"
            )
        if self.layout is not None:
            self._check_layout(self.layout)

    def _check_layout(self, layout: GridLayout) -> None:
        """Raise PlanError for parts that the grid lacks, and for hosts without a path to each other."""
        grid = replace(self, layout=None)
        for name in (*layout.holes, *(link for link, _ in layout.speeds)):
            if " " in name:
                grid.link_named(name)
            elif name not in grid._nodes:
                raise PlanError(f"no node or link {name!r} in {grid}")
        for name, _ in layout.names:
            if name not in grid._nodes:
                raise PlanError(f"no node {name!r} in {grid}")
        # A name of one's own may be that of another part of the grid.
        counts = Counter([*(host.name for host in self.hosts), *(switch.name for switch in self.switches)])
        if doubles := [name for name, count in counts.items() if count > 1]:
            raise PlanError(f"name {doubles[0]!r} stands for two parts. Cure: give each its own")
        if not self.hosts:
            raise PlanError("no host is left. Cure: take fewer away")
        for host in self.hosts:
            if not self.host_planes(host):
                raise PlanError(f"host {host.name} has no link. Cure: leave it a T0 in a plane, or take it away")
        if not self.mode.ev_is_path and (lost_links := self._partial_links()):
            raise PlanError(
                f"link {lost_links[0]} is missing while both ends exist: switches of mode {self.mode} would send "
                "packets there. Cure: mode srv6 or stev, or leave out a whole switch"
            )
        host_by_reach = {(host.rack, self.host_planes(host)): host for host in self.hosts}
        for a, b in combinations(host_by_reach.values(), 2):
            if not any(self.uplinks_between(a, b, plane) for plane in range(self.planes)):
                raise PlanError(
                    f"no path between {a.name} and {b.name}. Cure: a plane in which both have a T0 and a T1"
                )

    def _longest_interface_names(self) -> Iterator[str]:
        if self.layout is not None:
            yield from (port.interface for link in self.links for port in (link.lower, link.upper))
            return
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

    @cached_property
    def _own_names(self) -> dict[str, str]:
        return dict(self.layout.names) if self.layout else {}

    @cached_property
    def _holes(self) -> frozenset[str]:
        """Grid names of nodes and links that this fabric lacks; links of a missing node need not be in it."""
        return frozenset(self.layout.holes) if self.layout else frozenset()

    def t0_name(self, plane: int, rack: int) -> str:
        """Return the name of a T0, whether the fabric has it or not (`has_t0`)."""
        name = default_t0(plane, rack)
        return self._own_names.get(name, name) if self.layout else name

    def t1_name(self, plane: int, number: int) -> str:
        """Return the name of a T1, whether the fabric has it or not (`has_t1`)."""
        name = default_t1(plane, number)
        return self._own_names.get(name, name) if self.layout else name

    def has_t0(self, plane: int, rack: int) -> bool:
        """Return whether the fabric has that T0."""
        return default_t0(plane, rack) not in self._holes

    def has_t1(self, plane: int, number: int) -> bool:
        """Return whether the fabric has that T1."""
        return default_t1(plane, number) not in self._holes

    @cached_property
    def hosts(self) -> tuple[Host, ...]:
        """All hosts; `number` is the grid's, so a missing host leaves a gap."""
        return tuple(
            Host(self._own_names.get(default_host(n), default_host(n)), n, *divmod(n, self.hosts_per_rack))
            for n in range(self.racks * self.hosts_per_rack)
            if default_host(n) not in self._holes
        )

    @cached_property
    def switches(self) -> tuple[Switch, ...]:
        """Plane by plane, T0s before T1s; device ids count from 1 in this order."""
        out: list[Switch] = []
        for plane in range(self.planes):
            for rack in range(self.racks):
                if self.has_t0(plane, rack):
                    out.append(Switch(self.t0_name(plane, rack), 0, plane, rack, len(out) + 1))
            for number in range(self.spines):
                if self.has_t1(plane, number):
                    out.append(Switch(self.t1_name(plane, number), 1, plane, number, len(out) + 1))
        return tuple(out)

    # ---- what of the grid exists ------------------------------------------------------------------------

    def has_nic_link(self, host: Host, plane: int) -> bool:
        """Return whether a host has a cable to its T0 of a plane."""
        t0 = default_t0(plane, host.rack)
        return not self.layout or self._holes.isdisjoint((t0, f"{default_host(host.number)} {t0}"))

    def has_fabric_link(self, plane: int, rack: int, number: int) -> bool:
        """Return whether the T0 of a rack has a cable to T1 `number` of its plane."""
        t0, t1 = default_t0(plane, rack), default_t1(plane, number)
        return not self.layout or self._holes.isdisjoint((t0, t1, f"{t0} {t1}"))

    def host_planes(self, host: Host) -> tuple[int, ...]:
        """Return the planes on which a host has a port with a cable."""
        return tuple(plane for plane in range(self.planes) if self.has_nic_link(host, plane))

    def uplinks(self, plane: int, rack: int) -> tuple[int, ...]:
        """Return the numbers of the T1s that the T0 of a rack is linked to."""
        return tuple(number for number in range(self.spines) if self.has_fabric_link(plane, rack, number))

    def racks_of(self, plane: int, number: int) -> tuple[int, ...]:
        """Return the racks whose T0 is linked to T1 `number` of a plane."""
        return tuple(rack for rack in range(self.racks) if self.has_fabric_link(plane, rack, number))

    def hosts_of(self, plane: int, rack: int) -> tuple[Host, ...]:
        """Return the hosts linked to the T0 of a rack."""
        first = rack * self.hosts_per_rack
        candidates = self.hosts if self.layout else self.hosts[first : first + self.hosts_per_rack]
        return tuple(host for host in candidates if host.rack == rack and self.has_nic_link(host, plane))

    def uplinks_between(self, source: Host, destination: Host, plane: int) -> tuple[int, ...]:
        """Return the T0 uplinks by which a plane leads from one host to another.

        Inside a rack (0,), for nothing is chosen; () where the plane has no path between them.
        """
        if self.layout and not (self.has_nic_link(source, plane) and self.has_nic_link(destination, plane)):
            return ()
        if source.rack == destination.rack:
            return (0,)
        if not self.layout:
            return tuple(range(self.spines))
        remote_uplinks = self.uplinks(plane, destination.rack)
        return tuple(number for number in self.uplinks(plane, source.rack) if number in remote_uplinks)

    def _partial_links(self) -> list[str]:
        """T0-T1 links that are missing by themselves: both ends exist."""
        return [
            f"{self.t0_name(plane, rack)} {self.t1_name(plane, number)}"
            for plane in range(self.planes)
            for rack in range(self.racks)
            for number in range(self.spines)
            if self.has_t0(plane, rack) and self.has_t1(plane, number)
            if not self.has_fabric_link(plane, rack, number)
        ]

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
                if not self.has_nic_link(host, plane):
                    continue
                t0 = self.switch(self.t0_name(plane, host.rack))
                upper = self.switch_port(t0, self.downlink_port(host.downlink))
                out.append(Link(self.host_port(host, plane), upper, plane, "nic"))
            for rack in range(self.racks):
                if not self.has_t0(plane, rack):
                    continue
                t0 = self.switch(self.t0_name(plane, rack))
                for number in self.uplinks(plane, rack):
                    t1 = self.switch(self.t1_name(plane, number))
                    lower = self.switch_port(t0, self.uplink_port(number))
                    out.append(Link(lower, self.switch_port(t1, self.rack_port(rack)), plane, "fabric"))
        return tuple(out)

    def links_of(self, tier: Tier | None = None, plane: int | None = None, host: str | None = None) -> Sequence[Link]:
        """Links in the order of `links`: of a tier, of a plane, of a host; None: of all."""
        return [
            link
            for link in self.links
            if tier in (None, link.tier) and plane in (None, link.plane) and host in (None, link.lower.node)
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
        """Return the speed of a link: its own, or that of its tier."""
        if self.own_speeds and (own_speed := self.own_speeds.get(link.name)):
            return own_speed
        return self.host_link if link.is_nic else self.fabric_link

    @cached_property
    def own_speeds(self) -> dict[str, LinkSpeed]:
        """Links whose speed is not that of their tier, by name."""
        names = self._own_names
        return {
            " ".join(names.get(end, end) for end in link.split()): speed
            for link, speed in (self.layout.speeds if self.layout else ())
        }

    @property
    def limited(self) -> bool:
        """Whether any link has a rate."""
        tiers = (self.host_link, self.fabric_link, *self.own_speeds.values())
        return any(speed.rate_bps is not None for speed in tiers)

    @property
    def delayed(self) -> bool:
        """Whether any link has a delay."""
        return any(speed.delay_s for speed in (self.host_link, self.fabric_link, *self.own_speeds.values()))

    def _ways(self, source: Host | None, destination: Host | None) -> Iterator[list[LinkSpeed]]:
        """Speeds of the links of each way between two hosts; None: of the longest in the fabric."""
        if self.own_speeds:
            yield from self._uneven_ways(source, destination)
            return
        if source is not None and destination is not None:
            far = source.rack != destination.rack
        else:
            far = self.racks > 1
        yield [self.host_link, self.fabric_link, self.fabric_link, self.host_link] if far else [self.host_link] * 2

    def _uneven_ways(self, source: Host | None, destination: Host | None) -> Iterator[list[LinkSpeed]]:
        """Ways where links have speeds of their own: every path of the pair, or of each pair of hosts."""
        pairs = [(source, destination)] if source and destination else combinations(self.hosts, 2)
        for a, b in pairs:
            for plane in range(self.planes):
                for number in self.uplinks_between(a, b, plane):
                    nodes = self._nodes_of(a, b, plane, self.t1_name(plane, number))
                    yield [self.speed(self.link(*ends)) for ends in pairwise(nodes)]

    def base_rtt_s(
        self, source: Host | None = None, destination: Host | None = None, pmtu_bytes: int | None = None
    ) -> float:
        """Return the seconds of a full packet there and its SACK back when nothing waits.

        Without hosts, of the longest way.

        Delays both ways and serialising at each link; 0 where the plan limits nothing. What hosts add is not in it.
        """
        ends = (source.name if source else None, destination.name if destination else None)
        key = (*ends, pmtu_bytes or self.pmtu_bytes)
        if (rtt_s := self._round_trips.get(key)) is None:
            ways = self._ways(source, destination)
            rtt_s = max((link_speeds.round_trip_s(way, key[2], self.mode) for way in ways), default=0.0)
            self._round_trips[key] = rtt_s
        return rtt_s

    @cached_property
    def _round_trips(self) -> dict[tuple[str | None, str | None, int], float]:
        """Answers of base_rtt_s: with links of own speed it looks at every path, and is asked for every port."""
        return {}

    def bdp_bytes(
        self, source: Host | None = None, destination: Host | None = None, pmtu_bytes: int | None = None
    ) -> float | None:
        """Bytes in flight that fill one plane between two hosts: lowest rate x base RTT. None without a rate."""
        ways = self._ways(source, destination)
        rates = [speed.rate_bps for way in ways for speed in way if speed.rate_bps is not None]
        return min(rates) * self.base_rtt_s(source, destination, pmtu_bytes) / 8 if rates else None

    @property
    def nic_rate_bps(self) -> float | None:
        """Rate of all ports of a host together, of the fastest host; None without a limit."""
        if not self.layout:
            return None if self.host_link.rate_bps is None else self.host_link.rate_bps * self.planes
        sums = [[self.speed(link).rate_bps for link in self.links_of("nic", host=host.name)] for host in self.hosts]
        return max((sum(filter(None, rates)) for rates in sums if None not in rates), default=None)

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
        return self.thresholds_at(rate, last_hop=link.is_nic, pmtu_bytes=pmtu)

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
        return {self.address(h, p).packed: (h, p) for h in self.hosts for p in self.host_planes(h)}

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

    def ev_planes(self, source: Host, destination: Host, *, seed: int | str = 0) -> tuple[tuple[int, int], ...]:
        """(EV, plane) pairs of a QP in this plan's mode, see modes.ev_planes.

        `seed`: the modes with random EVs draw other ones for each; give the QP's number. In srv6 and stev mode they
        are one a distinct path: planes x spines between racks, one a plane inside a rack. A path that an uneven fabric
        lacks has none.
        """
        seed_text = f"{source.name}/{destination.name}/{seed}"
        uplinks = tuple(self.uplinks_between(source, destination, plane) for plane in range(self.planes))
        return modes.ev_planes(self.mode, uplinks, seed_text)

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
            known = named_plane < self.planes and uplink in self.uplinks_between(source, destination, named_plane)
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
        uplinks = self.uplinks_between(source, destination, plane)
        if not uplinks:
            raise PlanError(f"no path from {source.name} to {destination.name} on plane {plane}")
        choices = tuple(self.t1_name(plane, k) for k in uplinks) if far else ()
        if len(choices) == 1:
            return self._path(source, destination, ev, plane, choices[0], ())
        return self._path(source, destination, ev, plane, f"p{plane}-t1-*", choices)

    def _path(
        self, source: Host, destination: Host, ev: int, plane: int, t1: str, choices: tuple[str, ...]
    ) -> FabricPath:
        nodes = self._nodes_of(source, destination, plane, t1)
        sure = [(a, b) for a, b in pairwise(nodes) if not choices or t1 not in (a, b)]
        return FabricPath(ev, tuple(nodes), tuple(self.link(a, b, plane) for a, b in sure), choices)

    def _nodes_of(self, source: Host, destination: Host, plane: int, t1: str) -> list[str]:
        """Nodes of a way over a plane, from host to host."""
        near, far = self.t0_name(plane, source.rack), self.t0_name(plane, destination.rack)
        way = [near] if source.rack == destination.rack else [near, t1, far]
        return [source.name, *way, destination.name]

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
            hops = [(usid(ROLE_T0, plane, r), self.rack_port(r)) for r in self.racks_of(plane, switch.number)]
        else:
            hops = [(usid(ROLE_T1, plane, k), self.uplink_port(k)) for k in self.uplinks(plane, switch.number)]
            downlinks = [host.downlink for host in self.hosts_of(plane, switch.number)]
            hops += [(usid(ROLE_DOWNLINK, plane, d), self.downlink_port(d)) for d in downlinks]
        return SwitchRoutes(switch.usid, tuple(hops), self.adjacencies(switch))

    def adjacencies(self, switch: Switch) -> tuple[tuple[int, int], ...]:
        """(uA uSID, egress port) of every port of a switch, downwards first."""
        plane, number = switch.plane, switch.number
        if switch.tier:
            return tuple((usid(ROLE_ADJACENCY_DOWN, plane, r), self.rack_port(r)) for r in self.racks_of(plane, number))
        downlinks = [host.downlink for host in self.hosts_of(plane, number)]
        out = [(usid(ROLE_ADJACENCY_DOWN, plane, d), self.downlink_port(d)) for d in downlinks]
        out += [(usid(ROLE_ADJACENCY_UP, plane, k), self.uplink_port(k)) for k in self.uplinks(plane, number)]
        return tuple(out)

    def spray_routes(self, switch: Switch) -> SprayRoutes:
        """The destination routes of a switch in ECMP and structured-EV modes."""
        plane = switch.plane
        if switch.tier == 1:
            racks = self.racks_of(plane, switch.number)
            down_routes = tuple((self.rack_prefix(plane, rack), 48, self.rack_port(rack)) for rack in racks)
            return SprayRoutes(down_routes, (), ())
        hosts = self.hosts_of(plane, switch.number)
        down_routes = tuple((self.address(host, plane), 128, self.downlink_port(host.downlink)) for host in hosts)
        uplinks = tuple(self.uplink_port(k) for k in self.uplinks(plane, switch.number))
        return SprayRoutes(down_routes, ((IPv6Address(f"fd00:{plane:x}::"), 32),), uplinks)

    @staticmethod
    def rack_prefix(plane: int, rack: int) -> IPv6Address:
        """Return the prefix, 48 bits long, of the inner addresses of a rack's hosts on a plane."""
        return IPv6Address(f"fd00:{plane:x}:{rack:x}::")

    # ---- to and from files ------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON, without a layout or a prefix of interfaces where it has none."""
        data = {**asdict(self), "mode": self.mode.value, "layout": self.layout and self.layout.to_json()}
        defaults = ("layout", "interface_prefix")
        return {key: value for key, value in data.items() if value or key not in defaults}

    @classmethod
    def from_json(cls, data: Any) -> Plan:
        """Inverse of to_json; what is missing has its default. Raises PlanError for anything else."""
        keys = [field_.name for field_ in fields(cls)]
        if not isinstance(data, dict) or not set(data) <= set(keys):
            raise PlanError(f"a plan has the keys {', '.join(keys)}; got {data!r}")
        tiers = {key: LinkSpeed.from_json(key, data[key]) for key in ("host_link", "fabric_link") if key in data}
        layout = data.get("layout")
        return cls(**{**data, **tiers, "layout": None if layout is None else GridLayout.from_json(layout)})

    def __str__(self) -> str:
        if self.layout is not None:
            planes = [[s.tier for s in self.switches if s.plane == plane] for plane in range(self.planes)]
            sizes = ", ".join(f"{tiers.count(0)} T0 + {tiers.count(1)} T1" for tiers in planes)
            return f"{self.planes} planes ({sizes}), {len(self.hosts)} hosts"
        return (
            f"{self.planes} planes x ({self.racks} T0 + {self.spines} T1), "
            f"{len(self.hosts)} hosts ({self.hosts_per_rack} a rack)"
        )

    def describe_links(self) -> str:
        """Mode, speeds and what follows from them, in one line."""
        if not self.limited and not self.delayed:
            return f"mode {self.mode}, links as fast as the machine"
        is_uniform = self.host_link == self.fabric_link
        links = (
            f"links {self.host_link}" if is_uniform else f"NIC links {self.host_link}; fabric links {self.fabric_link}"
        )
        if self.own_speeds:
            links += f", {len(self.own_speeds)} links of their own"
        rtt = f"base RTT {self.base_rtt_s() * 1e3:.4g} ms with a path MTU of {self.pmtu_bytes}"
        return f"mode {self.mode}, {links}; {rtt}"


def _natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _span(names: list[str]) -> str:
    """All names when few, else the first and last: a message has to stay readable."""
    return ", ".join(names) if len(names) <= 8 else f"{names[0]} ... {names[-1]}"
