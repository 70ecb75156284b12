"""Outages of links, ports and switches of a fluid fabric, as intervals of time made by faults.

    target = FluidFaultTarget(names, shape)
    target.now = 3.0
    held = target.cut("p0-t0-0", "p0-t1-1")        # the verbs of faults/target.py
    target.undo(held)
    outages = target.finish(end_s)
    outages.of_path(plane, rack, other_rack, spine)

Nothing is done for a link that never fails, so a fabric of a million links costs what its faults cost.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from mrc_testbed.faults.target import Damage, Delayed, Direction, FaultError, Holds, PacketChoice
from mrc_testbed.simulator.fluid.ev_life import Intervals, union
from mrc_testbed.simulator.fluid.shape import Bools, FabricShape
from mrc_testbed.topologies.plan.model import Host, Link, Switch

REBOOT_S: Final = 2.0
"""Seconds that a rebooting switch is away, as in simulator/fault_target.py."""
UP, DOWN, PORT, SILENT, SPINE, RACK = "up", "down", "port", "silent", "spine", "rack"
"""Kinds of places that may be out.

UP, DOWN: a T0-T1 link on its way up, or down. PORT: a NIC port that both ends know to be down. SILENT: one that is
dead without notice. SPINE: all links of a T1. RACK: all that a T0 forwards.
"""
Place = tuple[str, int, int, int]
"""(kind, plane, number, other number) of a place that may be out."""


class PlaceNames(Protocol):
    """Lookup of names, as a plan has it."""

    def switch(self, name: str) -> Switch: ...

    def host(self, name: str) -> Host: ...

    def link(self, a: str, b: str) -> Link: ...


class Outages:
    """Intervals, seconds, of each place that is ever out."""

    def __init__(self, shape: FabricShape, found: dict[Place, Intervals]) -> None:
        self.shape, self._found = shape, found
        self.places = list(found)

    def of(self, what: str, plane: int, number: int, other: int = 0) -> Intervals:
        """Return the outages of one place."""
        return self._found.get((what, plane, number, other), [])

    def of_path(self, plane: int, source_rack: int, target_rack: int, spine: int) -> Intervals:
        """Return the dead intervals of a path between two racks, NIC links and T0s apart."""
        found = [
            one
            for one in (
                self.of(UP, plane, source_rack, spine),
                self.of(DOWN, plane, target_rack, spine),
                self.of(SPINE, plane, spine),
            )
            if one
        ]
        return found[0] if len(found) == 1 else union(*found) if found else []

    def of_ends(self, plane: int, source: int, target: int) -> Intervals:
        """Return when nothing passes on any path and no port reports it: both NIC links and both T0s."""
        below = self.shape.hosts_per_rack
        found = [
            one
            for one in (
                self.of(SILENT, plane, source),
                self.of(SILENT, plane, target),
                self.of(RACK, plane, source // below),
                self.of(RACK, plane, target // below),
            )
            if one
        ]
        return union(*found) if found else []

    def of_ports(self, plane: int, source: int, target: int) -> Intervals:
        """Return when a port of the plane is down at an end, and both ends know."""
        return union(self.of(PORT, plane, source), self.of(PORT, plane, target))

    def ever_dead(self) -> tuple[Bools, Bools]:
        """[plane, rack, spine]: whether a link is ever out on its way up, and down."""
        shape = self.shape
        up, down = (np.zeros((shape.planes, shape.racks, shape.spines), bool) for _ in range(2))
        for what, plane, number, other in self.places:
            if what == UP:
                up[plane, number, other] = True
            elif what == DOWN:
                down[plane, number, other] = True
            elif what == SPINE:
                up[plane, :, number] = True
        return up, down

    def hosts_at_fault(self) -> Bools:
        """[plane, host]: whether its NIC link or its T0 is ever out."""
        shape = self.shape
        out = np.zeros((shape.planes, shape.hosts), bool)
        for what, plane, number, _ in self.places:
            if what in (PORT, SILENT):
                out[plane, number] = True
            elif what == RACK:
                out[plane, number * shape.hosts_per_rack : (number + 1) * shape.hosts_per_rack] = True
        return out

    def dead_at(self, at: float) -> set[tuple[str, int, int, int]]:
        """Places that are out at a moment."""
        return {place for place, some in self._found.items() if any(a <= at < b for a, b in some)}


class FluidFaultTarget:
    """A FaultTarget that notes when what is out. `now`: seconds, set by the caller before each verb."""

    def __init__(self, names: PlaceNames, shape: FabricShape) -> None:
        self.now = 0.0
        self._names, self._shape = names, shape
        self._count: dict[Place, int] = {}
        self._since: dict[Place, float] = {}
        self._found: dict[Place, Intervals] = {}
        self._held: dict[int, list[Place]] = {}
        """Live holds by number."""
        self._serial = 0
        self._later: list[tuple[float, int, Delayed]] = []

    # ---- time -------------------------------------------------------------------------------------------

    def advance(self, to_s: float) -> None:
        """Do what was put off until a moment."""
        while self._later and self._later[0][0] <= to_s:
            self.now, _, action = heapq.heappop(self._later)
            action()
        self.now = to_s

    def finish(self, end_s: float) -> Outages:
        """Return all outages up to `end_s`; an outage that still lasts has no end."""
        self.advance(end_s)
        found = {place: list(some) for place, some in self._found.items()}
        for place, since in self._since.items():
            found.setdefault(place, []).append((since, float("inf")))
        return Outages(self._shape, {place: union(some) for place, some in found.items() if some})

    # ---- holds ------------------------------------------------------------------------------------------

    def _hold(self, places: Iterable[Place]) -> Holds:
        self._serial += 1
        held = self._held[self._serial] = list(places)
        for place in held:
            self._count[place] = self._count.get(place, 0) + 1
            if self._count[place] == 1:
                self._since[place] = self.now
        return [self._serial]

    def undo(self, holds: Holds) -> None:
        """Give back what faults hold; nothing for what has been given back already."""
        for number in holds:
            for place in self._held.pop(number, ()):
                self._count[place] -= 1
                if not self._count[place]:
                    del self._count[place]
                    since = self._since.pop(place)
                    if self.now > since:
                        self._found.setdefault(place, []).append((since, self.now))

    def _release(self, wanted: set[Place]) -> None:
        """Undo all holds of some places, whoever has them; their other places stay."""
        for number, places in list(self._held.items()):
            mine = [place for place in places if place in wanted]
            if mine:
                self._held[number] = [place for place in places if place not in wanted]
                self._serial += 1
                self._held[self._serial] = mine
                self.undo([self._serial])

    def later(self, delay_s: float, action: Callable[[], None]) -> Delayed:
        made = Delayed(action)
        self._serial += 1
        heapq.heappush(self._later, (self.now + delay_s, self._serial, made))
        return made

    # ---- places -----------------------------------------------------------------------------------------

    def _is_host(self, name: str) -> bool:
        return name.startswith("h")

    def _link(self, a: str, b: str, seen: bool, both: bool = True) -> list[Place]:
        """Places of a link: from `a` to `b`, or both ways. `seen`: ports go down."""
        self._names.link(a, b)
        hosts = [name for name in (a, b) if self._is_host(name)]
        if hosts:
            if not both:
                raise _unmodelled("a NIC link that is dead one way")
            other = self._names.switch(b if hosts[0] == a else a)
            return [(PORT if seen else SILENT, other.plane, self._names.host(hosts[0]).number, 0)]
        first, second = self._names.switch(a), self._names.switch(b)
        t0, t1 = (first, second) if first.tier == 0 else (second, first)
        ways = (UP, DOWN) if both else (UP,) if first is t0 else (DOWN,)
        return [(way, t0.plane, t0.number, t1.number) for way in ways]

    def _switch(self, name: str, seen: bool) -> list[Place]:
        switch = self._names.switch(name)
        if switch.tier:
            return [(SPINE, switch.plane, switch.number, 0)]
        if not seen:
            return [(RACK, switch.plane, switch.number, 0)]
        below = self._shape.hosts_per_rack
        ports = range(switch.number * below, (switch.number + 1) * below)
        return [
            *((PORT, switch.plane, host, 0) for host in ports),
            *((way, switch.plane, switch.number, spine) for way in (UP, DOWN) for spine in range(self._shape.spines)),
        ]

    # ---- verbs ------------------------------------------------------------------------------------------

    def cut(self, a: str, b: str) -> Holds:
        return self._hold(self._link(a, b, seen=True))

    def swallow(self, a: str, b: str, *, both: bool) -> Holds:
        return self._hold(self._link(a, b, seen=False, both=both))

    def restore(self, a: str, b: str) -> None:
        self._release({*self._link(a, b, seen=True), *self._link(a, b, seen=False)})

    def flap(self, links: Sequence[tuple[str, str]], *, down_s: float, up_s: float, times: int | None) -> Holds:
        if times is None:
            raise _unmodelled("flaps without an end")
        begun = self.now
        for number in range(times):
            self.now = begun + number * (down_s + up_s)
            for a, b in links:
                places = self._link(a, b, seen=True)
                self.later(0.0, lambda places=places: self._brief(places, down_s))  # type: ignore[misc]
        self.now = begun
        self.advance(begun)
        return []

    def _brief(self, places: list[Place], seconds: float) -> None:
        held = self._hold(places)
        self.later(seconds, lambda: self.undo(held))

    def blackhole(self, switch: str) -> Holds:
        return self._hold(self._switch(switch, seen=False))

    def power_off(self, switch: str) -> Holds:
        return self._hold(self._switch(switch, seen=True))

    def power_on(self, switch: str) -> None:
        self._release(set(self._switch(switch, seen=True)))

    def reboot(self, switch: str, off_s: float | None) -> Holds:
        self._release(set(self._switch(switch, seen=False)))
        held = self._hold(self._switch(switch, seen=True))
        self.later(REBOOT_S if off_s is None else off_s, lambda: self.undo(held))
        return held

    def cut_plane(self, plane: int) -> Holds:
        raise _unmodelled("a plane that is drained")

    def heal(self) -> None:
        self.undo(list(self._held))

    # ---- what a fluid has not ---------------------------------------------------------------------------

    def impair(self, kind: Damage, a: str, b: str, choice: PacketChoice, *, direction: Direction) -> Holds:
        raise _unmodelled(f"links with {kind} of some packets")

    def hold_up(
        self, a: str, b: str, choice: PacketChoice, *, seconds: float, twin: bool, direction: Direction
    ) -> Holds:
        raise _unmodelled("late packets")

    def set_line(self, a: str, b: str, **change: Any) -> Holds:
        raise _unmodelled("links whose rate or delay changes")

    def corrupt_switch(self, switch: str, rate: float) -> Holds:
        raise _unmodelled("a switch that corrupts packets")

    def stall(self, node: str, seconds: float, *, order: Sequence[int] | None, gap_s: float) -> None:
        raise _unmodelled("a node without CPU")

    def vanish(self, host: str) -> None:
        raise _unmodelled("a host that vanishes")

    def deny_plane(self, plane: int, on: bool) -> None:
        raise _unmodelled("a plane that is drained")

    def set_controller(self, alive: bool) -> None:
        """Do nothing: hosts need no controller."""


def _unmodelled(what: str) -> FaultError:
    return FaultError(what)
