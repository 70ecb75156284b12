"""Links, switches and hosts of faults: named or drawn by a scenario file, checked, made concrete.

A draw is made of the plan's own order with the dice given, so that a seed gives the same places in every process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random as Dice
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from mrc_testbed.faults.terms import Part, Share, suggestion
from mrc_testbed.topologies.plan import Link, Plan, PlanError, Tier

Candidate = TypeVar("Candidate", Link, str)

_TIERS: dict[str, Tier] = {"nic-links": "nic", "fabric-links": "fabric"}

Ends = tuple[str, str]
"""A link as its nodes (lower, upper), one direction of it as (from, to)."""
Mistake = tuple[tuple[str, ...], str]
"""(keys inside the fault's value, what is wrong and what would do)."""


class Random(Part):
    """Targets drawn by the run's seed."""

    random: Literal["links", "nic-links", "fabric-links", "t0", "t1", "switches", "hosts"]
    count: int | None = Field(None, ge=0)
    """0, as the first value of a sweep: no target."""
    share: Share | None = None
    plane: int | None = None
    host: str | None = None
    """Host whose links are drawn; None: links of all hosts."""

    @model_validator(mode="after")
    def _check_amount(self) -> Random:
        if (self.count is None) == (self.share is None):
            raise ValueError("give one of count and share (of all there are)")
        return self

    def draw(self, candidates: Sequence[Candidate], dice: Dice) -> list[Candidate]:
        """Draw `count` or `share` of the known items."""
        if self.share is None:
            assert self.count is not None  # the model allows nothing else
            count = self.count
        else:
            count = max(int(self.share > 0), round(self.share * len(candidates)))
        return dice.sample(candidates, min(count, len(candidates)))

    def links(self, plan: Plan) -> Sequence[Link]:
        """The links it may be."""
        return plan.links_of(_TIERS.get(self.random), self.plane, self.host)

    def nodes(self, plan: Plan) -> list[str]:
        """The switches or hosts it may be."""
        if self.random == "hosts":
            return [host.name for host in plan.hosts]
        tier = {"t0": 0, "t1": 1}.get(self.random)
        return [s.name for s in plan.switches if tier in (None, s.tier) and self.plane in (None, s.plane)]


def _link(value: object) -> object:
    return value.split() if isinstance(value, str) and " " in value.strip() else value


LinkRef = Annotated[tuple[str, str] | Random, BeforeValidator(_link)]
Links = LinkRef | list[LinkRef]
Nodes = str | Random | list[str]


# ---- made concrete ----------------------------------------------------------------------------------------


def links_of(value: Links, plan: Plan, dice: Dice) -> tuple[Ends, ...]:
    """The links that a file names or draws, each once."""
    out: list[Ends] = []
    for link_ref in value if isinstance(value, list) else [value]:
        links = [plan.link(*link_ref)] if isinstance(link_ref, tuple) else link_ref.draw(link_ref.links(plan), dice)
        out += [(link.lower.node, link.upper.node) for link in links]
    return tuple(dict.fromkeys(out))


def directions_of(value: Links, plan: Plan, dice: Dice) -> tuple[Ends, ...]:
    """One direction of each link: as given where it is given; of a drawn link the one that the dice say."""
    out: list[Ends] = []
    for link_ref in value if isinstance(value, list) else [value]:
        if isinstance(link_ref, tuple):
            out.append(link_ref)
            continue
        for link in link_ref.draw(link_ref.links(plan), dice):
            ends = (link.lower.node, link.upper.node)
            out.append(ends if dice.random() < 0.5 else ends[::-1])
    return tuple(dict.fromkeys(out))


def nodes_of(value: Nodes, plan: Plan, dice: Dice) -> tuple[str, ...]:
    """The switches and hosts that a file names or draws."""
    if isinstance(value, Random):
        return tuple(value.draw(value.nodes(plan), dice))
    return (value,) if isinstance(value, str) else tuple(value)


def denylist_entry(plan: Plan, *nodes: str) -> dict[str, str]:
    """Return scope and name of a switch, or of the link between two nodes, for denylists.

    Denylists are those of hosts/agent/denylist.py.

    Raises PlanError.
    """
    if len(nodes) == 2:
        link = plan.link(*nodes)
        return {"scope": "nic-plane" if link.is_nic else "link", "name": link.name}
    if len(nodes) != 1:
        raise PlanError(f"a place is a switch, or a link by its two nodes; got {' '.join(nodes) or 'nothing'}")
    switch = plan.switch(nodes[0])
    return {"scope": "t1" if switch.tier else "t0", "name": switch.name}


# ---- checked ----------------------------------------------------------------------------------------------


def link_mistakes(value: Links, plan: Plan) -> Iterator[str]:
    """Yield the errors of links given by name."""
    for link_ref in value if isinstance(value, list) else [value]:
        if isinstance(link_ref, Random) and link_ref.random == "hosts":
            yield "hosts are no links. Cure: {random: nic-links}, or power_off for whole hosts"
        if isinstance(link_ref, tuple):
            try:
                plan.link(*link_ref)
            except PlanError as error:
                yield str(error)


def switch_mistakes(value: Nodes, plan: Plan) -> Iterator[str]:
    """Yield the errors of switches given by name."""
    if isinstance(value, Random) and value.random == "hosts":
        yield "hosts are no switches. Cure: {random: switches}, t0 or t1"
    yield from _unknown_names(value, [switch.name for switch in plan.switches], "switch")


def node_mistakes(value: Nodes, plan: Plan) -> Iterator[str]:
    """Yield the errors of switches and hosts given by name."""
    yield from _unknown_names(value, plan.node_names, "switch or host")


def _unknown_names(value: Nodes, names: Sequence[str], kind: str) -> Iterator[str]:
    for name in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
        if name not in names:
            yield f"no {kind} {name!r} ({suggestion(name, names)})"


def host_mistakes(name: str, plan: Plan) -> Iterator[str]:
    """Yield the errors of a host's name."""
    names = [host.name for host in plan.hosts]
    if name not in names:
        yield f"no host {name!r} ({suggestion(name, names)})"
