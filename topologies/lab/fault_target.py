"""The verbs of faults on a live fabric: its Injector, the agents' denylists, the controller itself."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mrc_testbed.faults.target import Damage, Delayed, Direction, Drains, FaultError, Holds, PacketChoice

if TYPE_CHECKING:
    from mrc_testbed.topologies.lab.fabric import Fabric  # brings Mininet along, which words at a prompt do not need

REBOOT_OFF_S = 1.0
"""Seconds for which a node that reboots has no power."""
_VIRTUAL_ONLY = "only a virtual fabric has it"


class LiveFaultTarget:
    """faults.FaultTarget on a live fabric; what it holds are Injections.

    `delays`: links have some. `note` is called with a text when something could not be done as asked. `close` ends what
    runs in the background.
    """

    def __init__(
        self, fabric: Fabric, *, delays: bool = True, note: Callable[[str], None] = lambda _text: None
    ) -> None:
        self.fabric, self._delays, self._note = fabric, delays, note
        self._timers: list[threading.Timer] = []
        self._drains = Drains()

    def close(self) -> None:
        """No timer of ours fires any more."""
        for timer in self._timers:
            timer.cancel()

    def undo(self, holds: Holds) -> None:
        for injection in reversed(holds):
            with contextlib.suppress(KeyError):
                self.fabric.inject.undo(injection)

    def later(self, delay_s: float, action: Callable[[], None]) -> Delayed:
        delayed = self._drains.due(Delayed(action))
        timer = threading.Timer(delay_s, delayed)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()
        return delayed

    # ---- links ------------------------------------------------------------------------------------------

    def cut(self, a: str, b: str) -> Holds:
        return [self.fabric.inject.cut(a, b)]

    def swallow(self, a: str, b: str, *, both_ways: bool) -> Holds:
        inject = self.fabric.inject
        return [inject.one_way_cut(*ends) for ends in (((a, b), (b, a)) if both_ways else ((a, b),))]

    def restore(self, a: str, b: str) -> None:
        self.fabric.inject.restore(a, b)

    def impair(self, kind: Damage, a: str, b: str, choice: PacketChoice, *, direction: Direction) -> Holds:
        if kind == "duplicate" or choice.packets is not None or choice.only is not None:
            raise FaultError(f"{kind} on {a} {b}: live packets are hit by share or pattern, and never twice")
        if not choice.rate and not choice.pattern:
            return []
        inject = self.fabric.inject.loss if kind == "loss" else self.fabric.inject.corrupt
        sender = _sender(a, b, direction)
        return [inject(a, b, choice.rate or 0.0, pattern=choice.pattern or "", sender=sender, seed=choice.seed)]

    def hold_up(
        self,
        a: str,
        b: str,
        choice: PacketChoice,  # noqa: ARG002 - refused
        *,
        seconds: float,  # noqa: ARG002 - refused
        twin: bool,  # noqa: ARG002 - refused
        direction: Direction,  # noqa: ARG002 - refused
    ) -> Holds:
        raise FaultError(f"late packets on {a} {b}: {_VIRTUAL_ONLY}")

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
        if jitter_s is not None or in_order is not None:
            raise FaultError(f"jitter on {a} {b}: {_VIRTUAL_ONLY}")
        sender, injections = _sender(a, b, direction), Holds()
        if rate_bps is not None:
            injections.append(self.fabric.inject.rate(a, b, rate_bps, sender=sender))
        if delay_s is not None and self._delays:
            injections.append(self.fabric.inject.delay(a, b, delay_s, sender=sender))
        return injections

    def flap(self, links: Sequence[tuple[str, str]], *, down_s: float, up_s: float, times: int | None) -> Holds:
        flaps = [self.fabric.inject.flap(a, b, period_s=down_s + up_s, times=times) for a, b in links]
        if down_s != up_s:
            half = (down_s + up_s) / 2
            self._note(f"flaps of {down_s:g} s down and {up_s:g} s up: live, both take {half:g} s")
        return flaps

    # ---- switches ---------------------------------------------------------------------------------------

    def blackhole(self, switch: str) -> Holds:
        return [self.fabric.inject.blackhole(switch)]

    def corrupt_switch(self, switch: str, rate: float) -> Holds:
        injections: Holds = []
        for link in self.fabric.plan.links:
            if switch in link.ends:
                (neighbour,) = link.ends - {switch}
                injections.append(self.fabric.inject.corrupt(switch, neighbour, rate, sender=switch))
        return injections

    # ---- power ------------------------------------------------------------------------------------------

    def power_off(self, node: str) -> Holds:
        injection = self.fabric.inject.power(node, False)
        return [] if injection is None else [injection]

    def power_on(self, node: str) -> None:
        self.fabric.inject.power(node, True)

    def reboot(self, node: str, off_s: float | None) -> Holds:
        """Reboot a node, and return when it is on again; a switch has forgotten what made it a black hole."""
        for injection in list(self.fabric.inject.active):
            if injection.location == node:
                self.fabric.inject.undo(injection)
        return [self.fabric.inject.reboot(node, off_s=REBOOT_OFF_S if off_s is None else off_s)]

    # ---- CPUs -------------------------------------------------------------------------------------------

    def stall(
        self,
        node: str,
        seconds: float,  # noqa: ARG002 - refused
        *,
        order: Sequence[int] | None,  # noqa: ARG002 - refused
        gap_s: float,  # noqa: ARG002 - refused
    ) -> None:
        raise FaultError(f"a stall of {node}: {_VIRTUAL_ONLY}")

    def vanish(self, host: str) -> None:
        raise FaultError(f"the end of the process of {host}: {_VIRTUAL_ONLY}")

    # ---- planes, control plane, everything --------------------------------------------------------------

    def deny_plane(self, plane: int, on: bool) -> None:
        if self._drains.deny(plane, on):
            self._deny_drained()

    def _deny_drained(self) -> None:
        hosts, planes = self.fabric.plan.hosts, self._drains.planes
        entries = [{"scope": "nic-plane", "host": host.name, "plane": plane} for plane in planes for host in hosts]
        for host in hosts:
            if host.name not in self.fabric.nodes_off:
                self.fabric.agent(host.name).request("denylist", entries=entries)

    def cut_plane(self, plane: int) -> Holds:
        links = [link for link in self.fabric.plan.links if link.plane == plane]
        return [self.fabric.inject.cut(link.lower.node, link.upper.node) for link in links]

    def set_controller(self, alive: bool) -> None:
        if alive:
            self.fabric.spawn_controller()
        else:
            self.fabric.kill_controller()

    def heal(self) -> None:
        denied = self._drains.heal()
        self.fabric.inject.heal()
        if denied:
            self._deny_drained()


def _sender(a: str, b: str, direction: Direction) -> str | None:
    """Return the sender that a fault of one direction hits; None: both."""
    return {"both": None, "up": a, "one_way": a, "down": b}[direction]
