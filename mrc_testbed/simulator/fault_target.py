"""Operations of faults on a virtual fabric.

Overlapping faults of one link or switch are counted: a link is up when all are over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, repeat
from typing import Any, Protocol

from mrc_testbed.faults.kinds import ALL_SWITCHES
from mrc_testbed.faults.places import Ends
from mrc_testbed.faults.target import Damage, Delayed, Direction, Drains, FaultError, Holds, PacketChoice
from mrc_testbed.simulator.impairment import Lateness, Picker
from mrc_testbed.simulator.ports import EgressPort
from mrc_testbed.simulator.profiles import Line, LinkProfile
from mrc_testbed.simulator.switches import VirtualSwitch
from mrc_testbed.topologies.plan import Plan

REBOOT_S = 2.0
"""Seconds that a rebooting node is away.

About what the embedded switch, the controller and its routes need live, and a minute or two in the paper (E5).
"""
ONE_AFTER_THE_OTHER_S = 1e-6
"""Default gap between the planes of switches that resume after a stall, seconds."""
EffectKey = tuple[str, ...]
_IMPAIRMENTS: dict[Damage, str] = {"loss": "loss", "corrupt": "corrupt", "duplicate": "repeat"}


class StallingHost(Protocol):
    """A host whose process faults can hold up or end."""

    def stall(self, seconds: float, order: Sequence[int] | None = None, gap_s: float = 0.0) -> None: ...

    def vanish(self) -> None: ...


class FaultyFabric(Protocol):
    """Fabric that faults act on; VirtualFabric documents each member."""

    plan: Plan
    links: LinkProfile

    @property
    def now(self) -> float: ...

    @property
    def hosts(self) -> Mapping[str, StallingHost]: ...

    @property
    def switches(self) -> Mapping[str, VirtualSwitch]: ...

    @property
    def ports(self) -> Mapping[str, EgressPort]: ...

    def schedule(self, time: float, action: Callable[[], object]) -> None: ...

    def directions(self, a: str, b: str, both_ways: bool) -> list[EgressPort]: ...

    def set_link(self, a: str, b: str, *, enabled: bool) -> None: ...

    def set_power(self, node: str, on: bool) -> None: ...

    def set_blackhole(self, switch: str, on: bool) -> None: ...

    def stall_switch(self, switch: str, seconds: float) -> None: ...

    def host(self, name: str) -> StallingHost: ...

    def heal(self) -> None: ...


class VirtualControlPlane(Protocol):
    """The control plane of a virtual run."""

    def drain(self, plane: int, on: bool) -> None:
        """Deny a whole plane, or allow it again."""

    def set_alive(self, alive: bool) -> None:
        """Kill the controller, or start it again."""

    def links_changed(self) -> None:
        """Note that ports changed by a cause other than a step of the control plane."""


class NoControlPlane:
    """The control plane of a fabric that has none."""

    def drain(self, plane: int, on: bool) -> None:
        raise FaultError(
            f"plane {plane} cannot be denied (on = {on}): fabric without control plane. Cure: a run with a controller"
        )

    def set_alive(self, alive: bool) -> None:
        raise FaultError(
            f"controller cannot be set (alive = {alive}): fabric without controller. Cure: a run with a controller"
        )

    def links_changed(self) -> None:
        """See VirtualControlPlane."""


class _Hold:
    """Share of one fault in an effect; `release` is called when the last share of the effect ends."""

    __slots__ = ("key", "release")

    def __init__(self, key: EffectKey | None, release: Callable[[], object]) -> None:
        self.key, self.release = key, release


class _Flapping:
    """Flap of some links: down and up in turn."""

    def __init__(self, target: VirtualFaultTarget, links: Sequence[Ends], down_s: float, up_s: float) -> None:
        self._target, self._links, self._down_s, self._up_s = target, links, down_s, up_s
        self._stopped = False

    def schedule(self, begin: float) -> None:
        """Schedule one turn that begins at `begin`, seconds."""
        for link in self._links:
            self._target.fabric.schedule(begin, partial(self._set, link, enabled=False))
            self._target.fabric.schedule(begin + self._down_s, partial(self._set, link, enabled=True))

    def go_on(self) -> None:
        """Schedule turns without end."""
        if not self._stopped:
            fabric = self._target.fabric
            self.schedule(fabric.now)
            fabric.schedule(fabric.now + self._down_s + self._up_s, self.go_on)

    def stop(self) -> None:
        """End the flap with the links up."""
        for link in self._links:
            self._set(link, enabled=True)
        self._stopped = True

    def _set(self, link: Ends, enabled: bool) -> None:
        if not self._stopped:
            self._target.fabric.set_link(*link, enabled=enabled)
            self._target.control.links_changed()


class VirtualFaultTarget:
    """The FaultTarget of a virtual fabric."""

    def __init__(self, fabric: FaultyFabric, control: VirtualControlPlane | None = None) -> None:
        self.fabric, self.control = fabric, control or NoControlPlane()
        self._holding: dict[EffectKey, set[_Hold]] = {}
        """Holds by (effect, link or switch)."""
        self._drains = Drains()

    def _take(self, key: EffectKey, change: Callable[[bool], None]) -> Holds:
        """Call `change(True)` for the first hold of an effect, `change(False)` when its last hold ends."""
        hold = _Hold(key, partial(change, False))
        holders = self._holding.setdefault(key, set())
        holders.add(hold)
        if len(holders) == 1:
            change(True)
        return [hold]

    def undo(self, holds: Holds) -> None:
        for hold in holds:
            if hold.key is None:
                hold.release()
                continue
            holders = self._holding.get(hold.key, set())
            if hold in holders:
                holders.remove(hold)
                if not holders:
                    hold.release()

    def later(self, delay_s: float, action: Callable[[], None]) -> Delayed:
        delayed = self._drains.due(Delayed(action))
        self.fabric.schedule(self.fabric.now + delay_s, delayed)
        return delayed

    # ---- links ------------------------------------------------------------------------------------------

    def cut(self, a: str, b: str) -> Holds:
        return self._take(("cut", a, b), lambda on: self.fabric.set_link(a, b, enabled=not on))

    def swallow(self, a: str, b: str, *, both_ways: bool) -> Holds:
        def change(on: bool) -> None:
            for port in self.fabric.directions(a, b, both_ways):
                port.set_impairment("cut", on)

        return self._take(("silent" if both_ways else "one_way", a, b), change)

    def restore(self, a: str, b: str) -> None:
        for effect in ("cut", "silent", "one_way"):
            for ends in ((a, b), (b, a)):
                self._holding.pop((effect, *ends), None)
        for port in self.fabric.directions(a, b, True):
            port.clear_impairments()
        self.fabric.set_link(a, b, enabled=True)

    def impair(self, kind: Damage, a: str, b: str, choice: PacketChoice, *, direction: Direction) -> Holds:
        """Lose, damage or repeat the packets of a choice; random draws are the port's own."""
        return self._impair(a, b, direction, _IMPAIRMENTS[kind], lambda port: _picker(port, choice))

    def hold_up(
        self, a: str, b: str, choice: PacketChoice, *, seconds: float, twin: bool, direction: Direction
    ) -> Holds:
        return self._impair(a, b, direction, "lateness", lambda port: Lateness(Picker(port.rng, choice), seconds, twin))

    def _impair(
        self, a: str, b: str, direction: Direction, impairment: str, make: Callable[[EgressPort], Any]
    ) -> Holds:
        holds: Holds = []
        for port in self._directions(a, b, direction):
            port.set_impairment(impairment, make(port))
            holds.append(_Hold(None, partial(port.set_impairment, impairment, None)))
        return holds

    def set_line(
        self,
        a: str,
        b: str,
        *,
        rate_bps: float | None,
        delay_s: float | None,
        jitter_s: float | None,
        in_order: bool | None,
        direction: Direction,
    ) -> Holds:
        holds: Holds = []
        for port in self._directions(a, b, direction):
            line = self._planned_line(port)
            changes = {
                key: (value, getattr(line, key))
                for key, value in (
                    ("rate_bps", rate_bps),
                    ("delay_s", delay_s),
                    ("jitter_s", jitter_s),
                    ("fifo", in_order),
                )
                if value is not None
            }
            port.change_line(**{key: value for key, (value, _) in changes.items()})
            holds.append(
                _Hold(
                    None,
                    partial(port.change_line, **{key: planned_value for key, (_, planned_value) in changes.items()}),
                )
            )
        return holds

    def _planned_line(self, port: EgressPort) -> Line:
        """Return the line of a port that the fabric was made with."""
        hosts, links = self.fabric.hosts, self.fabric.links
        return links.line_of(port.node, port.neighbour, port.node in hosts or port.neighbour in hosts)

    def _directions(self, a: str, b: str, direction: Direction) -> list[EgressPort]:
        match direction:
            case "both":
                return self.fabric.directions(a, b, True)
            case "down":
                return self.fabric.directions(b, a, False)
        return self.fabric.directions(a, b, False)

    def flap(self, links: Sequence[Ends], *, down_s: float, up_s: float, times: int | None) -> Holds:
        flapping = _Flapping(self, links, down_s, up_s)
        if times is None:
            flapping.go_on()
        for begin in self._turns(down_s + up_s, times or 0):
            flapping.schedule(begin)
        return [_Hold(None, flapping.stop)]

    def _turns(self, period_s: float, times: int) -> list[float]:
        """Return the times at which the turns of a flap begin, from now on."""
        return [self.fabric.now + number * period_s for number in range(times)]

    # ---- switches ---------------------------------------------------------------------------------------

    def blackhole(self, switch: str) -> Holds:
        return self._take(("blackhole", switch), partial(self.fabric.set_blackhole, switch))

    def corrupt_switch(self, switch: str, rate: float) -> Holds:
        holds: Holds = []
        for port in self.fabric.ports.values():
            if port.node == switch:
                port.set_impairment("corrupt", Picker(port.rng, PacketChoice(rate)))
                holds.append(_Hold(None, partial(port.set_impairment, "corrupt", None)))
        return holds

    # ---- power ------------------------------------------------------------------------------------------

    def power_off(self, node: str) -> Holds:
        return self._take(("power", node), lambda is_off: self.fabric.set_power(node, not is_off))

    def power_on(self, node: str) -> None:
        self._holding.pop(("power", node), None)
        self.fabric.set_power(node, True)

    def reboot(self, node: str, off_s: float | None) -> Holds:
        self.fabric.set_power(node, False)
        self.later(REBOOT_S if off_s is None else off_s, partial(self._finish_boot, node))
        return []

    def _finish_boot(self, node: str) -> None:
        if node in self.fabric.switches:
            self.fabric.set_blackhole(node, False)
            self._holding.pop(("blackhole", node), None)
        self.fabric.set_power(node, True)
        self.control.links_changed()

    # ---- CPUs -------------------------------------------------------------------------------------------

    def stall(self, node: str, seconds: float, *, order: Sequence[int] | None, gap_s: float) -> None:
        fabric = self.fabric
        if node == ALL_SWITCHES:
            turn = {plane: position for position, plane in enumerate(order or ())}
            for name, switch in fabric.switches.items():
                position = turn.get(switch.plane, len(turn))
                fabric.stall_switch(name, seconds + position * (gap_s or ONE_AFTER_THE_OTHER_S))
        elif node in fabric.switches:
            fabric.stall_switch(node, seconds)
        else:
            fabric.host(node).stall(seconds, order, gap_s)

    def vanish(self, host: str) -> None:
        self.fabric.host(host).vanish()

    # ---- planes, control plane, everything --------------------------------------------------------------

    def deny_plane(self, plane: int, on: bool) -> None:
        if self._drains.deny(plane, on):
            self.control.drain(plane, on)

    def cut_plane(self, plane: int) -> Holds:
        holds: Holds = []
        for link in self.fabric.plan.links:
            if link.plane == plane:
                holds += self.cut(link.lower.node, link.upper.node)
        self.control.links_changed()
        return [*holds, _Hold(None, self.control.links_changed)]

    def set_controller(self, alive: bool) -> None:
        self.control.set_alive(alive)

    def heal(self) -> None:
        self._holding.clear()
        denied = self._drains.heal()
        self.fabric.heal()
        for plane in denied:
            self.control.drain(plane, False)


class LastWordFaultTarget(VirtualFaultTarget):
    """FaultTarget on which, for each link or switch, the fault that began or ended last decides.

    The end of one impairment of a link ends all its impairments; lines are without jitter then; each turn of a flap
    begins where the former turn ended. For schedules whose faults are removed one by one: the faults that remain act
    as before, whatever other faults the schedule had.
    """

    def _take(self, _key: EffectKey, change: Callable[[bool], None]) -> Holds:
        change(True)
        return [_Hold(None, partial(change, False))]

    def swallow(self, a: str, b: str, *, both_ways: bool) -> Holds:
        for port in self.fabric.directions(a, b, both_ways):
            port.set_impairment("cut", True)
        return [_Hold(None, partial(self._clear, a, b))]

    def _impair(
        self, a: str, b: str, direction: Direction, impairment: str, make: Callable[[EgressPort], Any]
    ) -> Holds:
        super()._impair(a, b, direction, impairment, make)
        return [_Hold(None, partial(self._clear, a, b))]

    def _clear(self, a: str, b: str) -> None:
        for port in self.fabric.directions(a, b, True):
            port.clear_impairments()

    def _turns(self, period_s: float, times: int) -> list[float]:
        return list(accumulate(repeat(period_s, times - 1), initial=self.fabric.now))

    def _planned_line(self, port: EgressPort) -> Line:
        return replace(super()._planned_line(port), jitter_s=0.0, fifo=True)


def _picker(port: EgressPort, choice: PacketChoice) -> Picker | None:
    return None if choice.rate == 0 else Picker(port.rng, choice)
