"""Parts of the fabric that a probe or the packets of an EV cross: the suspects of a path. Pure.

An *arc* is one direction of a link, named by the interface that sends into it. A link that loses packets one way only
is found because the other way is another arc; the diagnosis still names the one link.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from mrc_testbed.topologies.plan import Host, Link, Plan, Switch

NO_PLANE = -1
"""Plane of a cause that stands in all of them."""


@dataclass(frozen=True, slots=True)
class HostLinks:
    """A host as a cause: all its NIC links are down."""

    name: str
    links: tuple[Link, ...]

    @classmethod
    def from_plan(cls, plan: Plan, host: str) -> HostLinks:
        """Return the cause of a host by its name. Raises PlanError for no such host."""
        return cls(plan.host(host).name, tuple(plan.links_of("nic", host=host)))

    @property
    def plane(self) -> int:
        return NO_PLANE


Cause = Switch | Link | HostLinks
"""A root cause."""


@dataclass(frozen=True, slots=True)
class PathSegments:
    """Arcs and switches of a path within one plane, in the order in which a packet meets them."""

    plane: int
    arcs: tuple[str, ...]
    switches: tuple[str, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        return (*self.arcs, *self.switches)


class PathSegmenter:
    """Builder of traces over one plan; finds the cause of a part."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._switches: dict[str, Switch] = {switch.name: switch for switch in plan.switches}
        self._causes: dict[str, Cause] = dict(self._switches)
        for link in plan.links:
            self._causes |= {port.interface: link for port in (link.lower, link.upper)}
        self._arcs = {
            (sender.node, receiver.node): sender.interface
            for link in plan.links
            for sender, receiver in ((link.lower, link.upper), (link.upper, link.lower))
        }
        self._ends = {arc: ends for ends, arc in self._arcs.items()}

    def walk(self, plane: int, nodes: tuple[str, ...]) -> PathSegments:
        """Return the trace of a walk from node to node. Raises KeyError for no such link."""
        arcs = tuple(self._arcs[pair] for pair in pairwise(nodes))
        return PathSegments(plane, arcs, tuple(node for node in nodes if node in self._switches))

    def from_nodes(self, nodes: tuple[str, ...]) -> PathSegments:
        """Return the trace of a list of nodes, the inverse of `nodes`.

        One node is a `switch_segments`, two are a `wire_segments`. Raises ValueError for no such walk.
        """
        if len(nodes) == 1:
            return self.switch_segments(nodes[0])
        if any(pair not in self._arcs for pair in pairwise(nodes)) or not nodes:
            raise ValueError(f"no walk of this fabric: {' '.join(nodes)}")
        if len(nodes) == 2:
            return self.wire_segments(self._arcs[nodes[0], nodes[1]])
        return self.walk(self.plan.link(nodes[0], nodes[1]).plane, nodes)

    def nodes(self, trace: PathSegments) -> tuple[str, ...]:
        """Return the nodes of a trace in the order in which a packet meets them."""
        if not trace.arcs:
            return trace.switches
        return (*(self.ends(arc)[0] for arc in trace.arcs), self.ends(trace.arcs[-1])[1])

    def ends(self, arc: str) -> tuple[str, str]:
        """Return (sender, receiver) of an arc. Raises KeyError for no such arc."""
        return self._ends[arc]

    def t0_probe(self, host: str, plane: int) -> PathSegments:
        """Return the trace from a NIC to its T0 and back (§9). Raises PlanError for no such host."""
        t0 = self.plan.t0_name(plane, self.plan.host(host).rack)
        return self.walk(plane, (host, t0, host))

    def t1_probe(self, host: str, plane: int, t1: str) -> PathSegments:
        """Return the trace from a NIC over its T0 to a T1 and back (§9). Raises PlanError, KeyError."""
        t0 = self.plan.t0_name(plane, self.plan.host(host).rack)
        return self.walk(plane, (host, t0, t1, t0, host))

    def data(self, source: Host, destination: Host, ev: int) -> PathSegments:
        """Return the trace of an EV's data packets. Raises PlanError where the EV names no path."""
        path = self.plan.path(source, destination, ev)
        return self.walk(path.links[0].plane, path.nodes)

    def wire_segments(self, interface: str) -> PathSegments:
        """Return the trace of one direction of a link alone: sent by one port, received by its peer.

        Raises PlanError for no such interface.
        """
        return PathSegments(self.plan.link_of_interface(interface).plane, (interface,), ())

    def switch_segments(self, switch: str) -> PathSegments:
        """Return the trace of a switch alone: received and forwarded by it. Raises PlanError."""
        return PathSegments(self.plan.switch(switch).plane, (), (switch,))

    def cause(self, part: str) -> Cause:
        """Return the link or switch that a part belongs to."""
        return self._causes[part]

    @staticmethod
    def arcs(link: Link) -> tuple[str, str]:
        """Return both directions of a link: up (sent by the lower end) and down."""
        return link.lower.interface, link.upper.interface

    def direction(self, arc: str) -> str:
        """Return a direction of a link in words: `A -> B`."""
        return " -> ".join(self.ends(arc))

    @staticmethod
    def crosses(trace: PathSegments, cause: Cause) -> bool:
        """Return whether the path crosses the cause, in either direction."""
        if isinstance(cause, HostLinks):
            return any(PathSegmenter.crosses(trace, link) for link in cause.links)
        if isinstance(cause, Switch):
            return cause.name in trace.switches
        return cause.lower.interface in trace.arcs or cause.upper.interface in trace.arcs
