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
UPLINK, DOWNLINK, PORT, SILENT_PORT, SPINE, RACK = "up", "down", "port", "silent", "spine", "rack"
"""Kinds of links, ports and switches that may be out.

UPLINK, DOWNLINK: a T0-T1 link on its way up, or down. PORT: a NIC port that both ends know to be down. SILENT_PORT: a
NIC port that is dead without notice. SPINE: all links of a T1. RACK: all that a T0 forwards.
"""
OutageKey = tuple[str, int, int, int]
"""(kind, plane, number, other number) of a link, port or switch that may be out."""


class NameLookup(Protocol):
    """Lookup of names, as a plan has it."""

    @property
    def hosts(self) -> Sequence[Host]: ...

    def switch(self, name: str) -> Switch: ...

    def host(self, name: str) -> Host: ...

    def link(self, a: str, b: str) -> Link: ...


class Outages:
    """Outage intervals, seconds, of each link, port and switch that is ever out."""

    def __init__(self, shape: FabricShape, intervals: dict[OutageKey, Intervals]) -> None:
        self.shape, self._intervals = shape, intervals
        self.keys = list(intervals)

    def intervals_of(self, kind: str, plane: int, number: int, other_number: int = 0) -> Intervals:
        """Return the outages of one link, port or switch."""
        return self._intervals.get((kind, plane, number, other_number), [])

    def of_path(self, plane: int, source_rack: int, target_rack: int, spine: int) -> Intervals:
        """Return the dead intervals of a path between two racks, NIC links and T0s apart."""
        interval_lists = [
            intervals
            for intervals in (
                self.intervals_of(UPLINK, plane, source_rack, spine),
                self.intervals_of(DOWNLINK, plane, target_rack, spine),
                self.intervals_of(SPINE, plane, spine),
            )
            if intervals
        ]
        return interval_lists[0] if len(interval_lists) == 1 else union(*interval_lists) if interval_lists else []

    def of_ends(self, plane: int, source: int, target: int) -> Intervals:
        """Return the intervals when every path is dead but no port reports it: both NIC links, both T0s."""
        hosts_per_rack = self.shape.hosts_per_rack
        interval_lists = [
            intervals
            for intervals in (
                self.intervals_of(SILENT_PORT, plane, source),
                self.intervals_of(SILENT_PORT, plane, target),
                self.intervals_of(RACK, plane, source // hosts_per_rack),
                self.intervals_of(RACK, plane, target // hosts_per_rack),
            )
            if intervals
        ]
        return union(*interval_lists) if interval_lists else []

    def of_ports(self, plane: int, source: int, target: int) -> Intervals:
        """Return the intervals when a port of the plane is down at an end, and both ends know."""
        return union(self.intervals_of(PORT, plane, source), self.intervals_of(PORT, plane, target))

    def ever_dead(self) -> tuple[Bools, Bools]:
        """Return [plane, rack, spine]: whether a link is ever out on its way up, and down."""
        shape = self.shape
        up_dead, down_dead = (np.zeros((shape.planes, shape.racks, shape.spines), bool) for _ in range(2))
        for kind, plane, number, spine in self.keys:
            if kind == UPLINK:
                up_dead[plane, number, spine] = True
            elif kind == DOWNLINK:
                down_dead[plane, number, spine] = True
            elif kind == SPINE:
                up_dead[plane, :, number] = True
        return up_dead, down_dead

    def hosts_at_fault(self) -> Bools:
        """Return [plane, host]: whether its NIC link or its T0 is ever out."""
        shape = self.shape
        out = np.zeros((shape.planes, shape.hosts), bool)
        for kind, plane, number, _ in self.keys:
            if kind in (PORT, SILENT_PORT):
                out[plane, number] = True
            elif kind == RACK:
                out[plane, number * shape.hosts_per_rack : (number + 1) * shape.hosts_per_rack] = True
        return out

    def dead_at(self, time_s: float) -> set[tuple[str, int, int, int]]:
        """Return the keys that are out at a moment."""
        return {key for key, intervals in self._intervals.items() if any(a <= time_s < b for a, b in intervals)}


class FluidFaultTarget:
    """FaultTarget that records outages as intervals. `now`: seconds, set by the caller before each verb."""

    def __init__(self, names: NameLookup, shape: FabricShape) -> None:
        self.now = 0.0
        self._names, self._shape = names, shape
        self._count: dict[OutageKey, int] = {}
        self._start_s: dict[OutageKey, float] = {}
        self._intervals: dict[OutageKey, Intervals] = {}
        self._keys_of_hold: dict[int, list[OutageKey]] = {}
        """Live holds by number."""
        self._serial = 0
        self._later: list[tuple[float, int, Delayed]] = []

    # ---- time -------------------------------------------------------------------------------------------

    def advance(self, to_s: float) -> None:
        """Run the delayed actions that are due by a moment."""
        while self._later and self._later[0][0] <= to_s:
            self.now, _, action = heapq.heappop(self._later)
            action()
        self.now = to_s

    def finish(self, end_s: float) -> Outages:
        """Return all outages up to `end_s`; an outage that still lasts has no end."""
        self.advance(end_s)
        outages = {key: list(intervals) for key, intervals in self._intervals.items()}
        for key, start_s in self._start_s.items():
            outages.setdefault(key, []).append((start_s, float("inf")))
        return Outages(self._shape, {key: union(intervals) for key, intervals in outages.items() if intervals})

    # ---- holds ------------------------------------------------------------------------------------------

    def _hold(self, keys: Iterable[OutageKey]) -> Holds:
        self._serial += 1
        hold_keys = self._keys_of_hold[self._serial] = list(keys)
        for key in hold_keys:
            self._count[key] = self._count.get(key, 0) + 1
            if self._count[key] == 1:
                self._start_s[key] = self.now
        return [self._serial]

    def undo(self, holds: Holds) -> None:
        """Release holds of faults; a released hold is ignored."""
        for number in holds:
            for key in self._keys_of_hold.pop(number, ()):
                self._count[key] -= 1
                if not self._count[key]:
                    del self._count[key]
                    start_s = self._start_s.pop(key)
                    if self.now > start_s:
                        self._intervals.setdefault(key, []).append((start_s, self.now))

    def _release(self, released_keys: set[OutageKey]) -> None:
        """Undo all holds of some keys, of every fault; other keys of the same holds stay."""
        for number, keys in list(self._keys_of_hold.items()):
            hold_keys = [key for key in keys if key in released_keys]
            if hold_keys:
                self._keys_of_hold[number] = [key for key in keys if key not in released_keys]
                self._serial += 1
                self._keys_of_hold[self._serial] = hold_keys
                self.undo([self._serial])

    def later(self, delay_s: float, action: Callable[[], None]) -> Delayed:
        delayed = Delayed(action)
        self._serial += 1
        heapq.heappush(self._later, (self.now + delay_s, self._serial, delayed))
        return delayed

    # ---- keys -------------------------------------------------------------------------------------------

    def _link(self, a: str, b: str, is_visible: bool, both_ways: bool = True) -> list[OutageKey]:
        """Return the keys of a link, from `a` to `b` or both ways. `is_visible`: ports go down."""
        link = self._names.link(a, b)
        if link.is_nic:
            if not both_ways:
                raise _unmodelled_error("a NIC link that is dead one way")
            host = self._names.host(link.lower.node)
            return [(PORT if is_visible else SILENT_PORT, link.plane, host.number, 0)]
        first, second = self._names.switch(a), self._names.switch(b)
        t0, t1 = (first, second) if first.tier == 0 else (second, first)
        ways = (UPLINK, DOWNLINK) if both_ways else (UPLINK,) if first is t0 else (DOWNLINK,)
        return [(way, t0.plane, t0.number, t1.number) for way in ways]

    def _switch(self, name: str, is_visible: bool) -> list[OutageKey]:
        switch = self._names.switch(name)
        if switch.tier:
            return [(SPINE, switch.plane, switch.number, 0)]
        if not is_visible:
            return [(RACK, switch.plane, switch.number, 0)]
        hosts_per_rack = self._shape.hosts_per_rack
        ports = range(switch.number * hosts_per_rack, (switch.number + 1) * hosts_per_rack)
        return [
            *((PORT, switch.plane, host, 0) for host in ports),
            *(
                (way, switch.plane, switch.number, spine)
                for way in (UPLINK, DOWNLINK)
                for spine in range(self._shape.spines)
            ),
        ]

    # ---- verbs ------------------------------------------------------------------------------------------

    def cut(self, a: str, b: str) -> Holds:
        return self._hold(self._link(a, b, is_visible=True))

    def swallow(self, a: str, b: str, *, both_ways: bool) -> Holds:
        return self._hold(self._link(a, b, is_visible=False, both_ways=both_ways))

    def restore(self, a: str, b: str) -> None:
        self._release({*self._link(a, b, is_visible=True), *self._link(a, b, is_visible=False)})

    def flap(self, links: Sequence[tuple[str, str]], *, down_s: float, up_s: float, times: int | None) -> Holds:
        if times is None:
            raise _unmodelled_error("flaps without an end")
        begin_s = self.now
        for number in range(times):
            self.now = begin_s + number * (down_s + up_s)
            for a, b in links:
                keys = self._link(a, b, is_visible=True)
                self.later(0.0, lambda keys=keys: self._hold_for(keys, down_s))  # type: ignore[misc]
        self.now = begin_s
        self.advance(begin_s)
        return []

    def _hold_for(self, keys: list[OutageKey], seconds: float) -> None:
        holds = self._hold(keys)
        self.later(seconds, lambda: self.undo(holds))

    def blackhole(self, switch: str) -> Holds:
        return self._hold(self._switch(switch, is_visible=False))

    def power_off(self, node: str) -> Holds:
        return self._hold(self._powered_switch(node))

    def power_on(self, node: str) -> None:
        self._release(set(self._powered_switch(node)))

    def _powered_switch(self, name: str) -> list[OutageKey]:
        # The model moves bytes of flows and has no QPs, so that nothing in it could die with a host.
        if any(host.name == name for host in self._names.hosts):
            raise _unmodelled_error("a host without power")
        return self._switch(name, is_visible=True)

    def reboot(self, node: str, off_s: float | None) -> Holds:
        keys = self._powered_switch(node)
        self._release(set(self._switch(node, is_visible=False)))
        holds = self._hold(keys)
        self.later(REBOOT_S if off_s is None else off_s, lambda: self.undo(holds))
        return holds

    def cut_plane(self, plane: int) -> Holds:
        raise _unmodelled_error("a plane that is drained")

    def heal(self) -> None:
        self.undo(list(self._keys_of_hold))

    # ---- faults without a fluid model -------------------------------------------------------------------

    def impair(self, kind: Damage, a: str, b: str, choice: PacketChoice, *, direction: Direction) -> Holds:
        raise _unmodelled_error(f"links with {kind} of some packets")

    def hold_up(
        self, a: str, b: str, choice: PacketChoice, *, seconds: float, twin: bool, direction: Direction
    ) -> Holds:
        raise _unmodelled_error("late packets")

    def set_line(self, a: str, b: str, **change: Any) -> Holds:
        raise _unmodelled_error("links whose rate or delay changes")

    def corrupt_switch(self, switch: str, rate: float) -> Holds:
        raise _unmodelled_error("a switch that corrupts packets")

    def stall(self, node: str, seconds: float, *, order: Sequence[int] | None, gap_s: float) -> None:
        raise _unmodelled_error("a node without CPU")

    def vanish(self, host: str) -> None:
        raise _unmodelled_error("a host that vanishes")

    def deny_plane(self, plane: int, on: bool) -> None:
        raise _unmodelled_error("a plane that is drained")

    def set_controller(self, alive: bool) -> None:
        """Do nothing: hosts need no controller."""


def _unmodelled_error(subject: str) -> FaultError:
    return FaultError(subject)
