"""The steps of a scenario on the virtual fabric.

Overlapping faults of one link are counted: it is up when all are over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.language.fault_schedule import FaultStep
from simulator.fabric import VirtualFabric
from simulator.impairment import PatternPicker, Picker
from simulator.ports import EgressPort
from topologies.plan import Plan

REBOOT_S = 2.0
"""How long a switch that reboots is away: about what the embedded one, the controller and its routes need live, and a
minute or two in the paper (E5)."""
DRAIN_S = 0.5
"""Between denying a plane's EVs and cutting its links."""


class VirtualFaults:
    """`apply(step)`: do it, or undo it."""

    def __init__(self, fabric: VirtualFabric, plan: Plan, control: Any) -> None:
        self.fabric, self.plan, self.control = fabric, plan, control
        self._holding: dict[tuple[str, Any], set[int]] = {}
        """What is in force: (kind, target) -> numbers of the steps that want it."""

    def apply(self, step: FaultStep) -> None:
        """Carry out a step. Raises FaultError."""
        getattr(self, f"_{step.action}")(step)

    def _held(self, kind: str, target: Any, step: FaultStep) -> bool | None:
        """True when `step` is the first to want this, False when its end was the last, else None."""
        holders = self._holding.setdefault((kind, target), set())
        before = bool(holders)
        if step.undo is None:
            holders.add(step.number)
        else:
            holders.discard(step.undo)
        return bool(holders) if bool(holders) != before else None

    def _each(self, kind: str, step: FaultStep, change: Callable[[Any, bool], None]) -> None:
        for target in step.targets:
            now = self._held(kind, target, step)
            if now is not None:
                change(target, now)

    # ---- links ------------------------------------------------------------------------------------------

    def _cut(self, step: FaultStep) -> None:
        self._each("cut", step, lambda link, on: self.fabric.set_link(*link, up=not on))

    def _silent(self, step: FaultStep) -> None:
        self._each("silent", step, lambda link, on: self._swallow(link, on, both=True))

    def _one_way(self, step: FaultStep) -> None:
        self._each("one_way", step, lambda link, on: self._swallow(link, on, both=False))

    def _swallow(self, link: tuple[str, str], on: bool, both: bool) -> None:
        for port in self.fabric.directions(*link, both):
            port.set_impairment("cut", on)

    def _loss(self, step: FaultStep) -> None:
        self._impair("loss", step)

    def _corrupt(self, step: FaultStep) -> None:
        self._impair("corrupt", step)

    def _impair(self, name: str, step: FaultStep) -> None:
        for link in step.targets:
            for port in self._directions(link, step.values["direction"]):
                port.set_impairment(name, self._picker(step, port) if step.undo is None else None)

    def _directions(self, link: tuple[str, str], direction: str) -> list[EgressPort]:
        """`up` is from the end nearer to the hosts; `one_way` from the first node named to the second."""
        a, b = link
        match direction:
            case "both":
                return self.fabric.directions(a, b, True)
            case "down":
                return self.fabric.directions(b, a, False)
        return self.fabric.directions(a, b, False)

    @staticmethod
    def _picker(step: FaultStep, port: EgressPort) -> Any:
        if step.values.get("pattern") is not None:
            return PatternPicker(step.values["pattern"])
        rate = step.values["rate"]
        return Picker(port.rng, rate=rate) if rate else None

    def _line(self, step: FaultStep) -> None:
        changes = {"rate_bps": step.values["rate"], "delay_s": step.values["delay"]}
        hosts = self.fabric.hosts
        for link in step.targets:
            for port in self._directions(link, step.values["direction"]):
                base = (
                    self.fabric.links.nic if port.node in hosts or port.neighbour in hosts else self.fabric.links.fabric
                )
                for key, value in changes.items():
                    if value is not None:
                        new = value if step.undo is None else getattr(base, key)
                        self.fabric.set_line(port.node, port.neighbour, both=False, **{key: new})

    def _flap(self, step: FaultStep) -> None:
        down, up = step.values["down"], step.values["up"]
        for number in range(step.values["times"]):
            begin = self.fabric.now + number * (down + up)
            for link in step.targets:
                self.fabric.at(begin, lambda link=link: self._flapped(link, up=False))
                self.fabric.at(begin + down, lambda link=link: self._flapped(link, up=True))

    def _flapped(self, link: tuple[str, str], up: bool) -> None:
        self.fabric.set_link(*link, up=up)
        self.control.links_changed()

    def _restore(self, step: FaultStep) -> None:
        for link in step.targets:
            for kind in ("cut", "silent", "one_way"):
                for target in (link, link[::-1]):
                    self._holding.pop((kind, target), None)
            for port in self.fabric.directions(*link, True):
                port.clear_impairments()
            self.fabric.set_link(*link, up=True)

    # ---- switches ---------------------------------------------------------------------------------------

    def _blackhole(self, step: FaultStep) -> None:
        self._each("blackhole", step, self.fabric.set_blackhole)

    def _corrupts(self, step: FaultStep) -> None:
        for port in self.fabric.ports.values():
            if port.node in step.targets:
                hit = Picker(port.rng, rate=step.values["rate"])
                port.set_impairment("corrupt", hit if step.undo is None else None)

    def _power_off(self, step: FaultStep) -> None:
        self._each("power", step, lambda switch, off: self.fabric.set_power(switch, not off))

    def _power_on(self, step: FaultStep) -> None:
        for switch in step.targets:
            self._holding.pop(("power", switch), None)
            self.fabric.set_power(switch, True)

    def _reboot(self, step: FaultStep) -> None:
        for switch in step.targets:
            self.fabric.set_power(switch, False)
            self.fabric.at(self.fabric.now + REBOOT_S, lambda switch=switch: self._booted(switch))

    def _booted(self, switch: str) -> None:
        self.fabric.set_blackhole(switch, False)
        self._holding.pop(("blackhole", switch), None)
        self.fabric.set_power(switch, True)
        self.control.links_changed()

    # ---- planes, control plane, everything --------------------------------------------------------------

    def _drain(self, step: FaultStep) -> None:
        plane = step.values["plane"]
        links = [(k.lower.node, k.upper.node) for k in self.plan.links if k.plane == plane]
        if step.undo is None:
            self.control.drain(plane, True)
            self.fabric.at(self.fabric.now + DRAIN_S, lambda: self._set_all(links, up=False))
        else:
            self._set_all(links, up=True)
            self.fabric.at(self.fabric.now + DRAIN_S, lambda: self.control.drain(plane, False))

    def _set_all(self, links: list[tuple[str, str]], up: bool) -> None:
        for link in links:
            self.fabric.set_link(*link, up=up)
        self.control.links_changed()

    def _controller(self, step: FaultStep) -> None:
        self.control.set_alive(step.values["what"] == "start")

    def _heal(self, step: FaultStep) -> None:
        self._holding.clear()
        self.fabric.heal()
