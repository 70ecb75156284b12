"""The verbs of faults on a virtual fabric.

Overlapping faults of one place are counted: a link is up when all are over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from faults.target import Direction, Holds
from simulator.fabric import VirtualFabric
from simulator.impairment import PacketPicker, PatternPicker, Picker
from simulator.ports import EgressPort

REBOOT_S = 2.0
"""How long a switch that reboots is away: about what the embedded one, the controller and its routes need live, and a
minute or two in the paper (E5)."""
Place = tuple[str, ...]


class VirtualControlPlane(Protocol):
    """The control plane of a virtual run."""

    def drain(self, plane: int, on: bool) -> None:
        """Deny a whole plane, or allow it again."""

    def set_alive(self, alive: bool) -> None:
        """The controller dies, or is back."""

    def links_changed(self) -> None:
        """Ports changed by something that is not a step of its own."""


class _Hold:
    """One fault's share in a place: `free` is called when it was the last one there."""

    __slots__ = ("free", "place")

    def __init__(self, place: Place | None, free: Callable[[], None]) -> None:
        self.place, self.free = place, free


class VirtualFaultTarget:
    """The FaultTarget of a virtual fabric."""

    def __init__(self, fabric: VirtualFabric, control: VirtualControlPlane) -> None:
        self.fabric, self.control = fabric, control
        self._holding: dict[Place, set[_Hold]] = {}
        """(what, link or switch) -> who wants it."""

    def _take(self, place: Place, change: Callable[[bool], None]) -> Holds:
        """`change(True)` by the first who wants this, `change(False)` when the last one is done with it."""
        hold = _Hold(place, lambda: change(False))
        holders = self._holding.setdefault(place, set())
        holders.add(hold)
        if len(holders) == 1:
            change(True)
        return [hold]

    def undo(self, holds: Holds) -> None:
        for hold in holds:
            if hold.place is None:
                hold.free()
                continue
            holders = self._holding.get(hold.place, set())
            if hold in holders:
                holders.remove(hold)
                if not holders:
                    hold.free()

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.fabric.at(self.fabric.now + delay_s, action)

    # ---- links ------------------------------------------------------------------------------------------

    def cut(self, a: str, b: str) -> Holds:
        return self._take(("cut", a, b), lambda on: self.fabric.set_link(a, b, up=not on))

    def swallow(self, a: str, b: str, *, both: bool) -> Holds:
        def change(on: bool) -> None:
            for port in self.fabric.directions(a, b, both):
                port.set_impairment("cut", on)

        return self._take(("silent" if both else "one_way", a, b), change)

    def restore(self, a: str, b: str) -> None:
        for what in ("cut", "silent", "one_way"):
            for ends in ((a, b), (b, a)):
                self._holding.pop((what, *ends), None)
        for port in self.fabric.directions(a, b, True):
            port.clear_impairments()
        self.fabric.set_link(a, b, up=True)

    def impair(
        self, kind: Literal["loss", "corrupt"], a: str, b: str, *, rate: float | None, pattern: str | None,
        direction: Direction, seed: int,
    ) -> Holds:  # fmt: skip
        """See FaultTarget. The dice are the port's own, whatever the `seed`."""
        holds: Holds = []
        for port in self._directions(a, b, direction):
            port.set_impairment(kind, _picker(rate, pattern, port))
            holds.append(_Hold(None, lambda port=port: port.set_impairment(kind, None)))
        return holds

    def set_line(self, a: str, b: str, *, rate_bps: float | None, delay_s: float | None, direction: Direction) -> Holds:
        fabric, hosts, holds = self.fabric, self.fabric.hosts, Holds()
        wanted = {"rate_bps": rate_bps, "delay_s": delay_s}
        changes = {key: value for key, value in wanted.items() if value is not None}
        for port in self._directions(a, b, direction):
            base = fabric.links.nic if port.node in hosts or port.neighbour in hosts else fabric.links.fabric
            first = {key: getattr(base, key) for key in changes}
            fabric.set_line(port.node, port.neighbour, both=False, **changes)
            holds.append(
                _Hold(None, lambda ends=(port.node, port.neighbour), first=first: fabric.set_line(
                    *ends, both=False, **first
                ))
            )  # fmt: skip
        return holds

    def _directions(self, a: str, b: str, direction: Direction) -> list[EgressPort]:
        match direction:
            case "both":
                return self.fabric.directions(a, b, True)
            case "down":
                return self.fabric.directions(b, a, False)
        return self.fabric.directions(a, b, False)

    def flap(self, links: Sequence[tuple[str, str]], *, down_s: float, up_s: float, times: int) -> Holds:
        fabric = self.fabric
        for number in range(times):
            begin = fabric.now + number * (down_s + up_s)
            for link in links:
                fabric.at(begin, lambda link=link: self._flapped(link, up=False))
                fabric.at(begin + down_s, lambda link=link: self._flapped(link, up=True))
        return []

    def _flapped(self, link: tuple[str, str], up: bool) -> None:
        self.fabric.set_link(*link, up=up)
        self.control.links_changed()

    # ---- switches ---------------------------------------------------------------------------------------

    def blackhole(self, switch: str) -> Holds:
        return self._take(("blackhole", switch), lambda on: self.fabric.set_blackhole(switch, on))

    def corrupt_switch(self, switch: str, rate: float) -> Holds:
        holds: Holds = []
        for port in self.fabric.ports.values():
            if port.node == switch:
                port.set_impairment("corrupt", Picker(port.rng, rate=rate))
                holds.append(_Hold(None, lambda port=port: port.set_impairment("corrupt", None)))
        return holds

    def power_off(self, switch: str) -> Holds:
        return self._take(("power", switch), lambda off: self.fabric.set_power(switch, not off))

    def power_on(self, switch: str) -> None:
        self._holding.pop(("power", switch), None)
        self.fabric.set_power(switch, True)

    def reboot(self, switch: str) -> None:
        self.fabric.set_power(switch, False)
        self.later(REBOOT_S, lambda: self._booted(switch))

    def _booted(self, switch: str) -> None:
        self.fabric.set_blackhole(switch, False)
        self._holding.pop(("blackhole", switch), None)
        self.fabric.set_power(switch, True)
        self.control.links_changed()

    # ---- planes, control plane, everything --------------------------------------------------------------

    def deny_plane(self, plane: int, on: bool) -> None:
        self.control.drain(plane, on)

    def cut_plane(self, plane: int) -> Holds:
        self._set_plane(plane, up=False)
        return []

    def restore_plane(self, plane: int, holds: Holds) -> None:
        self._set_plane(plane, up=True)

    def _set_plane(self, plane: int, up: bool) -> None:
        for link in self.fabric.plan.links:
            if link.plane == plane:
                self.fabric.set_link(link.lower.node, link.upper.node, up=up)
        self.control.links_changed()

    def set_controller(self, alive: bool) -> None:
        self.control.set_alive(alive)

    def heal(self) -> None:
        self._holding.clear()
        self.fabric.heal()


def _picker(rate: float | None, pattern: str | None, port: EgressPort) -> PacketPicker | None:
    if pattern is not None:
        return PatternPicker(pattern)
    return Picker(port.rng, rate=rate) if rate else None
