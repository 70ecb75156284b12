"""Parts of the fabric that a probe or the packets of an EV cross: the suspects of a path. Pure.

An *arc* is one direction of a link, named by the interface that sends into it. A link that loses packets one way only
is found because the other way is another arc; it is still one link that is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from mrc_testbed.topologies.plan import Host, Link, Plan, Switch

Cause = Switch | Link
"""A root cause."""


@dataclass(frozen=True, slots=True)
class PathSegments:
    """Arcs and switches in the order they are met; `plane` is that of all of them."""

    plane: int
    arcs: tuple[str, ...]
    switches: tuple[str, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        return (*self.arcs, *self.switches)


class PathSegmenter:
    """Traces over one plan, and the way back from a part to the cause it stands for."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._switches: dict[str, Switch] = {switch.name: switch for switch in plan.switches}
        self._causes: dict[str, Cause] = dict(self._switches)
        for link in plan.links:
            self._causes |= {port.interface: link for port in (link.lower, link.upper)}
        self._arcs = {
            (here.node, there.node): here.interface
            for link in plan.links
            for here, there in ((link.lower, link.upper), (link.upper, link.lower))
        }
        self._ends = {arc: ends for ends, arc in self._arcs.items()}

    def over(self, plane: int, nodes: tuple[str, ...]) -> PathSegments:
        """A walk from node to node; the switches among them are crossed. Raises KeyError for no such link."""
        arcs = tuple(self._arcs[pair] for pair in pairwise(nodes))
        return PathSegments(plane, arcs, tuple(node for node in nodes if node in self._switches))

    def along(self, nodes: tuple[str, ...]) -> PathSegments:
        """A walk within one plane by its nodes, as `nodes` has them: one is `inside`, two are a `wire`.

        Raises ValueError for no such walk.
        """
        if len(nodes) == 1:
            return self.inside(nodes[0])
        if any(pair not in self._arcs for pair in pairwise(nodes)) or not nodes:
            raise ValueError(f"no walk of this fabric: {' '.join(nodes)}")
        if len(nodes) == 2:
            return self.wire(self._arcs[nodes[0], nodes[1]])
        return self.over(self.plan.link(nodes[0], nodes[1]).plane, nodes)

    def nodes(self, trace: PathSegments) -> tuple[str, ...]:
        """The nodes of a trace in the order they are met."""
        if not trace.arcs:
            return trace.switches
        return (*(self.ends(arc)[0] for arc in trace.arcs), self.ends(trace.arcs[-1])[1])

    def ends(self, arc: str) -> tuple[str, str]:
        """Sender and receiver of an arc. Raises KeyError for no such arc."""
        return self._ends[arc]

    def t0_probe(self, host: str, plane: int) -> PathSegments:
        """From a NIC to its T0 and back (§9). Raises PlanError for no such host."""
        t0 = self.plan.t0_name(plane, self.plan.host(host).rack)
        return self.over(plane, (host, t0, host))

    def t1_probe(self, host: str, plane: int, t1: str) -> PathSegments:
        """From a NIC over its T0 to a T1 and back the same way (§9). Raises PlanError, KeyError."""
        t0 = self.plan.t0_name(plane, self.plan.host(host).rack)
        return self.over(plane, (host, t0, t1, t0, host))

    def data(self, source: Host, destination: Host, ev: int) -> PathSegments:
        """The packets of an EV. Raises PlanError where the EV names no path."""
        path = self.plan.path(source, destination, ev)
        return self.over(path.links[0].plane, path.nodes)

    def wire(self, interface: str) -> PathSegments:
        """One direction of a link and nothing beside: what one end sent and the other received. Raises PlanError."""
        return PathSegments(self.plan.link_of_interface(interface).plane, (interface,), ())

    def inside(self, switch: str) -> PathSegments:
        """A switch and nothing beside: what it received and forwarded. Raises PlanError."""
        return PathSegments(self.plan.switch(switch).plane, (), (switch,))

    def cause(self, part: str) -> Cause:
        """The link or switch a part belongs to."""
        return self._causes[part]

    @staticmethod
    def arcs(link: Link) -> tuple[str, str]:
        """Both directions of a link: up (sent by the lower end) and down."""
        return link.lower.interface, link.upper.interface

    def direction(self, arc: str) -> str:
        """A direction of a link in words: `A -> B`."""
        return " -> ".join(self.ends(arc))

    @staticmethod
    def crosses(trace: PathSegments, cause: Cause) -> bool:
        """The path meets it, in either direction."""
        if isinstance(cause, Switch):
            return cause.name in trace.switches
        return cause.lower.interface in trace.arcs or cause.upper.interface in trace.arcs
