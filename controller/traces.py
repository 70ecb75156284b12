"""What a probe or the packets of an EV cross, as the parts of the fabric that may be at fault. Pure.

An *arc* is one direction of a link, named by the interface that sends into it. A link that loses packets one way only
is found because the other way is another arc; it is still one link that is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from topologies.plan import Host, Link, Plan, Switch

Cause = Switch | Link
"""What can be broken."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Arcs and switches in the order they are met; `plane` is that of all of them."""

    plane: int
    arcs: tuple[str, ...]
    switches: tuple[str, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        return (*self.arcs, *self.switches)


class Traces:
    """Traces over one plan, and the way back from a part to the cause it stands for."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._switches = {switch.name: switch for switch in plan.switches}
        self._arcs = {
            (here.node, there.node): here.interface
            for link in plan.links
            for here, there in ((link.lower, link.upper), (link.upper, link.lower))
        }

    def over(self, plane: int, nodes: tuple[str, ...]) -> Trace:
        """A walk from node to node; the switches among them are crossed. Raises KeyError for no such link."""
        arcs = tuple(self._arcs[pair] for pair in pairwise(nodes))
        return Trace(plane, arcs, tuple(node for node in nodes if node in self._switches))

    def t0_probe(self, host: str, plane: int) -> Trace:
        """From a NIC to its T0 and back (§9). Raises PlanError for no such host."""
        t0 = self.plan.t0_name(plane, self.plan.host(host).rack)
        return self.over(plane, (host, t0, host))

    def t1_probe(self, host: str, plane: int, t1: str) -> Trace:
        """From a NIC over its T0 to a T1 and back the same way (§9). Raises PlanError, KeyError."""
        t0 = self.plan.t0_name(plane, self.plan.host(host).rack)
        return self.over(plane, (host, t0, t1, t0, host))

    def data(self, source: Host, destination: Host, ev: int) -> Trace:
        """The packets of an EV. Raises PlanError where the EV names no path."""
        path = self.plan.path(source, destination, ev)
        return self.over(path.links[0].plane, path.nodes)

    def wire(self, interface: str) -> Trace:
        """One direction of a link and the switch it ends in, as port counters of both ends see it. Raises PlanError.

        A frame that left and was not counted on the other side died on the wire or at the receiver's input.
        """
        link = self.plan.link_of_interface(interface)
        there = link.upper.node if link.lower.interface == interface else link.lower.node
        return Trace(link.plane, (interface,), (there,) if there in self._switches else ())

    def cause(self, part: str) -> Cause:
        """The link or switch a part belongs to."""
        return self._switches.get(part) or self.plan.link_of_interface(part)

    def crosses(self, trace: Trace, cause: Cause) -> bool:
        if isinstance(cause, Switch):
            return cause.name in trace.switches
        return cause.lower.interface in trace.arcs or cause.upper.interface in trace.arcs
