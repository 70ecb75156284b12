"""The steps of a scenario on the live fabric: topologies/lab/fault_injection.py, the agents' denylists, the controller
itself."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from experiments.language.fault_schedule import FaultStep
from topologies.lab.fabric import CONTROLLER, Fabric
from topologies.lab.fault_injection import Injection
from topologies.plan import Plan

DRAIN_S = 0.5
"""Between denying a plane's EVs and cutting its links."""


class LiveFaults:
    """`apply(step)` does it or undoes it; `close` ends what runs in the background. `delays`: links have some."""

    def __init__(self, fabric: Fabric, plan: Plan, *, delays: bool = True) -> None:
        self.fabric, self.plan, self._delays = fabric, plan, delays
        self._made: dict[int, list[Injection]] = {}
        """By step number."""
        self._timers: list[threading.Timer] = []

    def apply(self, step: FaultStep) -> str | None:
        """Carry out a step; returns a note when it could not be done as asked. Raises FabricError."""
        if step.undo is not None and step.action not in ("drain",):
            for one in reversed(self._made.pop(step.undo, [])):
                with contextlib.suppress(KeyError):
                    self.fabric.inject.undo(one)
            return None
        made: list[Injection] = []
        note = getattr(self, f"_{step.action}")(step, made)
        self._made[step.number] = made
        return note

    def close(self) -> None:
        """No timer of ours fires any more."""
        for timer in self._timers:
            timer.cancel()

    # ---- links ------------------------------------------------------------------------------------------

    def _cut(self, step: FaultStep, made: list[Injection]) -> None:
        made += [self.fabric.inject.cut(*link) for link in step.targets]

    def _silent(self, step: FaultStep, made: list[Injection]) -> None:
        for a, b in step.targets:
            made += [self.fabric.inject.one_way_cut(a, b), self.fabric.inject.one_way_cut(b, a)]

    def _one_way(self, step: FaultStep, made: list[Injection]) -> None:
        made += [self.fabric.inject.one_way_cut(*link) for link in step.targets]

    def _restore(self, step: FaultStep, made: list[Injection]) -> None:
        for link in step.targets:
            self.fabric.inject.restore(*link)

    def _loss(self, step: FaultStep, made: list[Injection]) -> None:
        self._impair(self.fabric.inject.loss, step, made)

    def _corrupt(self, step: FaultStep, made: list[Injection]) -> None:
        self._impair(self.fabric.inject.corrupt, step, made)

    def _impair(self, inject: Any, step: FaultStep, made: list[Injection]) -> None:
        rate, pattern = step.values["rate"] or 0.0, step.values["pattern"] or ""
        if not rate and not pattern:
            return
        for link in step.targets:
            sender = self._sender(link, step.values["direction"])
            made.append(inject(*link, rate, pattern=pattern, sender=sender, seed=step.number + 1))

    @staticmethod
    def _sender(link: tuple[str, str], direction: str) -> str | None:
        """`up` is from the lower end, which is named first; `one_way` from the first node to the second."""
        return {"both": None, "up": link[0], "one_way": link[0], "down": link[1]}[direction]

    def _line(self, step: FaultStep, made: list[Injection]) -> None:
        for link in step.targets:
            sender = self._sender(link, step.values["direction"])
            if step.values["rate"] is not None:
                made.append(self.fabric.inject.rate(*link, step.values["rate"], sender=sender))
            if step.values["delay"] is not None and self._delays:
                made.append(self.fabric.inject.delay(*link, step.values["delay"], sender=sender))

    def _flap(self, step: FaultStep, made: list[Injection]) -> str | None:
        down, up = step.values["down"], step.values["up"]
        made += [
            self.fabric.inject.flap(*link, period_s=down + up, times=step.values["times"]) for link in step.targets
        ]
        return (
            None if down == up else f"flaps of {down:g} s down and {up:g} s up: live, both take {(down + up) / 2:g} s"
        )

    # ---- switches ---------------------------------------------------------------------------------------

    def _blackhole(self, step: FaultStep, made: list[Injection]) -> None:
        made += [self.fabric.inject.blackhole(switch) for switch in step.targets]

    def _corrupts(self, step: FaultStep, made: list[Injection]) -> None:
        for switch in step.targets:
            for link in self.plan.links:
                if switch in link.ends:
                    (other,) = link.ends - {switch}
                    made.append(self.fabric.inject.corrupt(switch, other, step.values["rate"], sender=switch))

    def _power_off(self, step: FaultStep, made: list[Injection]) -> None:
        for switch in step.targets:
            if (one := self.fabric.inject.power(switch, False)) is not None:
                made.append(one)

    def _power_on(self, step: FaultStep, made: list[Injection]) -> None:
        for switch in step.targets:
            self.fabric.inject.power(switch, True)

    def _reboot(self, step: FaultStep, made: list[Injection]) -> None:
        for switch in step.targets:
            for one in list(self.fabric.inject.active):
                if one.where == switch:
                    self.fabric.inject.undo(one)  # a switch that boots has forgotten what made it a black hole
            self.fabric.inject.reboot(switch, off_s=1.0)

    # ---- planes, control plane, everything --------------------------------------------------------------

    def _drain(self, step: FaultStep, made: list[Injection]) -> None:
        """Deny the plane on every host, then cut it; the other way round when it ends."""
        plane = step.values["plane"]
        if step.undo is None:
            self._deny(plane, True)
            self._later(lambda: made.extend(self._cut_plane(plane)))
            return
        for one in reversed(self._made.pop(step.undo, [])):
            self.fabric.inject.undo(one)
        self._later(lambda: self._deny(plane, False))

    def _cut_plane(self, plane: int) -> list[Injection]:
        links = [k for k in self.plan.links if k.plane == plane]
        return [self.fabric.inject.cut(k.lower.node, k.upper.node) for k in links]

    def _deny(self, plane: int, on: bool) -> None:
        for host in self.plan.hosts:
            entries = (
                [{"scope": "nic-plane", "host": one.name, "plane": plane} for one in self.plan.hosts] if on else []
            )
            self.fabric.agent(host.name).request("denylist", entries=entries)

    def _later(self, action: Any) -> None:
        timer = threading.Timer(DRAIN_S, action)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def _controller(self, step: FaultStep, made: list[Injection]) -> None:
        if step.values["what"] == "kill":
            self.fabric.processes.stop(CONTROLLER, grace_s=0.0)
            return
        self.fabric.spawn_controller()

    def _heal(self, step: FaultStep, made: list[Injection]) -> None:
        self._made.clear()
        self.fabric.inject.heal()
