"""A plan too large to be carried out: names, hosts, switches and links, each made when somebody asks for it.

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
from mrc_testbed.topologies.plan.model import Host, Link, Port, Switch
from mrc_testbed.topologies.plan.plan import Plan, Tier

LARGEST: Final = {"planes": 64, "racks": 65_536, "spines": 4_096, "hosts_per_rack": 4_096}
"""What arrays of the models take."""
Thing = TypeVar("Thing", Host, Switch, Link)
_SWITCH: Final = re.compile(r"p(\d+)-t([01])-(\d+)")
_HOST: Final = re.compile(r"h(\d+)")


class LazySequence(Sequence[Thing], Generic[Thing]):
    """Sequence that builds each item on access."""

    def __init__(self, count: int, make: Any) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Thing: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Thing]: ...

    def __getitem__(self, at: int | slice) -> Thing | Sequence[Thing]:
        if isinstance(at, slice):
            return [self._make(number) for number in range(*at.indices(self._count))]
        if not -self._count <= at < self._count:
            raise IndexError(at)
        made: Thing = self._make(at % self._count)
        return made

    def __iter__(self) -> Iterator[Thing]:
        return map(self._make, range(self._count))


class Outline(Plan):
    """See the module. Dimensions as a Plan has them, without its limits; no addresses and no routes."""

    def __post_init__(self) -> None:
        for key, most in LARGEST.items():
            value = getattr(self, key)
            if not 1 <= value <= most:
                raise PlanError(f"{key} = {value!r}: must be 1 to {most}, even where nothing is addressed")

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
        """As Plan.links_of."""
        nic = 0 if tier == "fabric" else 1 if host is not None else len(self.hosts)
        fabric = 0 if tier == "nic" or host is not None else self.racks * self.spines
        first = 0 if host is None else self.host(host).number
        planes = range(self.planes) if plane is None else range(plane, min(plane + 1, self.planes))

        def make(number: int) -> Link:
            which, place = divmod(number, nic + fabric)
            if place < nic:
                return self._nic_link(planes[which], first + place)
            return self._fabric_link(planes[which], *divmod(place - nic, self.spines))

        return LazySequence[Link](len(planes) * (nic + fabric), make)

    def _host(self, number: int) -> Host:
        return Host(f"h{number}", number, number // self.hosts_per_rack, number % self.hosts_per_rack)

    def _switch(self, at: int) -> Switch:
        plane, place = divmod(at, self.racks + self.spines)
        if place < self.racks:
            return Switch(self.t0_name(plane, place), 0, plane, place, at + 1)
        return Switch(self.t1_name(plane, place - self.racks), 1, plane, place - self.racks, at + 1)

    def _nic_link(self, plane: int, number: int) -> Link:
        host = self._host(number)
        t0 = self.t0_name(plane, host.rack)
        port = self.downlink_port(host.downlink)
        return Link(self.host_port(host, plane), Port(t0, port, f"{t0}-eth{port}"), plane)

    def _fabric_link(self, plane: int, rack: int, spine: int) -> Link:
        t0, t1 = self.t0_name(plane, rack), self.t1_name(plane, spine)
        up, down = self.uplink_port(spine), self.rack_port(rack)
        return Link(Port(t0, up, f"{t0}-eth{up}"), Port(t1, down, f"{t1}-eth{down}"), plane)

    # ---- by name ----------------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """The host of that name. Raises PlanError."""
        found = _HOST.fullmatch(name)
        if found is None or int(found[1]) >= len(self.hosts):
            raise PlanError(f"no host {name!r} (has: h0 ... h{len(self.hosts) - 1})")
        return self._host(int(found[1]))

    def switch(self, name: str) -> Switch:
        """The switch of that name. Raises PlanError."""
        found = _SWITCH.fullmatch(name)
        if found is not None:
            plane, tier, number = map(int, found.groups())
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
        t0, t1 = sorted((self.switch(a), self.switch(b)), key=lambda one: one.tier)
        if (t0.tier, t1.tier) != (0, 1) or t0.plane != t1.plane or plane not in (None, t0.plane):
            raise PlanError(f"no link between {a} and {b} (a T0 is linked to the T1s of its plane, and to its hosts)")
        return self._fabric_link(t0.plane, t0.number, t1.number)
