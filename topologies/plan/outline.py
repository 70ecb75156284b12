"""A plan too large to be held in memory: hosts, switches and links, each made on access.

    plan = Outline(8, 512, 256, 256)      # 131,072 NICs, two million links
    plan.links_of("fabric")[77]

The addresses of §8.3 and the names of Linux interfaces end at 256 T0s a plane; nothing here has either, so that models
which need neither (simulator/fluid) take fabrics of any size by the same names. What is drawn of it by dice is drawn as
of a Plan: links and switches stand in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final, Generic, TypeVar, overload

from mrc_testbed.topologies.plan.addressing import PlanError
from mrc_testbed.topologies.plan.model import Host, Link, Port, Switch, Tier
from mrc_testbed.topologies.plan.plan import Plan

LARGEST: Final = {"planes": 64, "racks": 65_536, "spines": 4_096, "hosts_per_rack": 4_096}
"""Largest dimensions that the arrays of the models take."""
Element = TypeVar("Element", Host, Switch, Link)
_SWITCH: Final = re.compile(r"p(\d+)-t([01])-(\d+)")
_HOST: Final = re.compile(r"h(\d+)")


class LazySequence(Sequence[Element], Generic[Element]):
    """Sequence that builds each item on access."""

    def __init__(self, count: int, make: Any) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Element: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Element]: ...

    def __getitem__(self, index: int | slice) -> Element | Sequence[Element]:
        if isinstance(index, slice):
            return [self._make(number) for number in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(index)
        element: Element = self._make(index % self._count)
        return element

    def __iter__(self) -> Iterator[Element]:
        return map(self._make, range(self._count))


class Outline(Plan):
    """See the module. Dimensions as a Plan has them, without its limits; no addresses and no routes."""

    def __post_init__(self) -> None:
        for key, largest in LARGEST.items():
            value = getattr(self, key)
            if not 1 <= value <= largest:
                raise PlanError(f"{key} = {value!r}: must be 1 to {largest}, even where nothing is addressed")

    # ---- things -----------------------------------------------------------------------------------------

    @cached_property
    def hosts(self) -> Any:
        return LazySequence[Host](self.racks * self.hosts_per_rack, self._host)

    @cached_property
    def switches(self) -> Any:
        return LazySequence[Switch](self.planes * (self.racks + self.spines), self._switch)

    @cached_property
    def links(self) -> Any:
        return self.links_of()

    def links_of(self, tier: Tier | None = None, plane: int | None = None, host: str | None = None) -> Sequence[Link]:
        """See Plan.links_of."""
        nic = 0 if tier == "fabric" else 1 if host is not None else len(self.hosts)
        fabric = 0 if tier == "nic" or host is not None else self.racks * self.spines
        first = 0 if host is None else self.host(host).number
        planes = range(self.planes) if plane is None else range(plane, min(plane + 1, self.planes))

        def make(number: int) -> Link:
            plane_index, index = divmod(number, nic + fabric)
            if index < nic:
                return self._nic_link(planes[plane_index], first + index)
            return self._fabric_link(planes[plane_index], *divmod(index - nic, self.spines))

        return LazySequence[Link](len(planes) * (nic + fabric), make)

    def _host(self, number: int) -> Host:
        return Host(f"h{number}", number, number // self.hosts_per_rack, number % self.hosts_per_rack)

    def _switch(self, index: int) -> Switch:
        plane, number = divmod(index, self.racks + self.spines)
        if number < self.racks:
            return Switch(self.t0_name(plane, number), 0, plane, number, index + 1)
        return Switch(self.t1_name(plane, number - self.racks), 1, plane, number - self.racks, index + 1)

    def _nic_link(self, plane: int, number: int) -> Link:
        host = self._host(number)
        t0 = self.t0_name(plane, host.rack)
        port = self.downlink_port(host.downlink)
        return Link(self.host_port(host, plane), Port(t0, port, f"{t0}-eth{port}"), plane, "nic")

    def _fabric_link(self, plane: int, rack: int, spine: int) -> Link:
        t0, t1 = self.t0_name(plane, rack), self.t1_name(plane, spine)
        uplink, downlink = self.uplink_port(spine), self.rack_port(rack)
        return Link(Port(t0, uplink, f"{t0}-eth{uplink}"), Port(t1, downlink, f"{t1}-eth{downlink}"), plane, "fabric")

    # ---- by name ----------------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """The host of that name. Raises PlanError."""
        match = _HOST.fullmatch(name)
        if match is None or int(match[1]) >= len(self.hosts):
            raise PlanError(f"no host {name!r} (has: h0 ... h{len(self.hosts) - 1})")
        return self._host(int(match[1]))

    def switch(self, name: str) -> Switch:
        """The switch of that name. Raises PlanError."""
        match = _SWITCH.fullmatch(name)
        if match is not None:
            plane, tier, number = map(int, match.groups())
            if plane < self.planes and number < (self.spines if tier else self.racks):
                return self._switch(plane * (self.racks + self.spines) + number + (self.racks if tier else 0))
        last = self.switches[-1].name
        raise PlanError(f"no switch {name!r} (has: {self.switches[0].name} ... {last})")

    def link(self, a: str, b: str, plane: int | None = None) -> Link:
        """The link between two nodes, in either order. Raises PlanError."""
        if _HOST.fullmatch(b):
            a, b = b, a
        if _HOST.fullmatch(a):
            host, switch = self.host(a), self.switch(b)
            if not switch.tier and switch.number == host.rack and plane in (None, switch.plane):
                return self._nic_link(switch.plane, host.number)
            raise PlanError(f"no link between {a} and {b} ({a} is linked to the T0s of rack {host.rack})")
        t0, t1 = sorted((self.switch(a), self.switch(b)), key=lambda end: end.tier)
        if (t0.tier, t1.tier) != (0, 1) or t0.plane != t1.plane or plane not in (None, t0.plane):
            raise PlanError(f"no link between {a} and {b} (a T0 is linked to the T1s of its plane, and to its hosts)")
        return self._fabric_link(t0.plane, t0.number, t1.number)
