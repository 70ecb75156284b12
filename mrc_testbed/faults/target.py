"""Operations of a fabric that faults are made of.

`simulator/fault_target.py` has them in virtual time, `topologies/lab/fault_target.py` on a live fabric.

Operations that can be undone return holds, opaque to the caller, for `undo`. Faults may overlap: what two of them hold
is free again when both are over. Links are named by their two nodes; `direction` is "both", "up" (from the first node,
which is the one nearer to the hosts), "down" or "one_way" (from the first node named to the second).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Holds = list[Any]
"""Holds that operations took, in the order of the operations."""
Direction = Literal["both", "up", "down", "one_way"]
Damage = Literal["loss", "corrupt", "duplicate"]


class FaultError(ValueError):
    """A fault names what does not exist or cannot be; the message says what would do."""


class Delayed:
    """An action that happens later unless it is called off first. Calls may come from any thread."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action, self._lock = action, threading.Lock()
        self._state: Literal["due", "done", "off"] = "due"

    def __call__(self) -> None:
        with self._lock:
            if self._state == "due":
                self._state = "done"
                self._action()

    def call_off(self) -> bool:
        """Whether it never happens; False: it has happened, when this returns."""
        with self._lock:
            if self._state == "due":
                self._state = "off"
            return self._state == "off"


class FaultHolds(Holds):
    """Holds of one fault, from its begin() to its end()."""

    delayed: Delayed | None = None
    """The part of the fault that is still to come."""


class Drains:
    """Drains of a fabric: denied planes with the number of drains of each, and delayed actions."""

    def __init__(self) -> None:
        self._denied: Counter[int] = Counter()
        self._due: list[Delayed] = []

    @property
    def planes(self) -> list[int]:
        """Planes that are denied."""
        return sorted(plane for plane, count in self._denied.items() if count > 0)

    def deny(self, plane: int, on: bool) -> bool:
        """Deny a plane once more, or once less; whether that changes it."""
        old_planes = self.planes
        self._denied[plane] = max(0, self._denied[plane] + (1 if on else -1))
        return self.planes != old_planes

    def due(self, delayed: Delayed) -> Delayed:
        """Note what is to come of one."""
        self._due.append(delayed)
        return delayed

    def heal(self) -> list[int]:
        """Call off what is to come; the planes that were denied, and are no more."""
        for delayed in self._due:
            delayed.call_off()
        self._due.clear()
        planes = self.planes
        self._denied.clear()
        return planes


@dataclass(frozen=True, slots=True)
class PacketChoice:
    """Packets of one direction of a link, by one of `rate`, `pattern` and `packets`. Raises FaultError.

    Counting starts at 0 when the fault begins, over the packets that `only` names.
    """

    rate: float | None = None
    """Probability of each packet; 0 hits none."""
    pattern: str | None = None
    """0s and 1s, repeated packet by packet; 1 is hit."""
    packets: tuple[int, ...] | None = None
    """Their numbers."""
    only: Literal["data", "control"] | None = None
    """Data (whole or trimmed) or control packets; None: both."""
    seed: int = 1
    """Dice seed, where the port's own are not used."""

    def __post_init__(self) -> None:
        keys = [key for key in ("rate", "pattern", "packets") if getattr(self, key) is not None]
        if len(keys) != 1:
            raise FaultError(f"give one of rate, pattern, packets; got {', '.join(keys) or 'none'}")
        if self.rate is not None and not 0 <= self.rate <= 1:
            raise FaultError(f"rate = {self.rate}: must be 0 to 1")
        if self.pattern is not None and (not self.pattern or set(self.pattern) - set("01")):
            raise FaultError(f"pattern {self.pattern!r}: 0s and 1s, one for each packet")
        if self.only not in (None, "data", "control"):
            raise FaultError(f"only = {self.only!r}: must be data or control")


class FaultTarget(Protocol):
    """A fabric, as faults see it. Each operation raises the fabric's own error for what it cannot do."""

    def undo(self, holds: Holds) -> None:
        """Give back what faults hold; nothing for what has been given back already."""

    def later(self, delay_s: float, action: Callable[[], None]) -> Delayed:
        """Do something `delay_s` from now, in the fabric's time."""

    # ---- links

    def cut(self, a: str, b: str) -> Holds:
        """Pull the cable: both ends lose their port."""

    def swallow(self, a: str, b: str, *, both_ways: bool) -> Holds:
        """Lose all packets from `a` to `b` (`both_ways`: and back) while the ports stay up."""

    def restore(self, a: str, b: str) -> None:
        """End what holds a link down or swallows its packets, whoever began it."""

    def impair(self, kind: Damage, a: str, b: str, choice: PacketChoice, *, direction: Direction) -> Holds:
        """Lose, damage or repeat the packets of a choice."""

    def hold_up(
        self, a: str, b: str, choice: PacketChoice, *, seconds: float, twin: bool, direction: Direction
    ) -> Holds:
        """Deliver the packets of a choice (`twin`: a copy of them) late, whatever others do meanwhile."""

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
        """New rate, one-way delay or jitter, packets kept in order or not; None: as it is."""

    def flap(self, links: Sequence[tuple[str, str]], *, down_s: float, up_s: float, times: int | None) -> Holds:
        """Cut links and restore them, `times` over (None: until undone), beginning now."""

    # ---- switches

    def blackhole(self, switch: str) -> Holds:
        """Lose all packets of a switch while its ports stay up."""

    def corrupt_switch(self, switch: str, rate: float) -> Holds:
        """Flip a bit in a share of the packets that a switch sends."""

    # ---- power

    def power_off(self, node: str) -> Holds:
        """Take the power of a switch or a host, and with it its state."""

    def power_on(self, node: str) -> None:
        """Give a switch or a host its power again, whoever took it."""

    def reboot(self, node: str, off_s: float | None) -> Holds:
        """Take a node's power for `off_s`; afterwards it is empty, and works again.

        `off_s` None: as long as fits this fabric.
        """

    # ---- CPUs

    def stall(self, node: str, seconds: float, *, order: Sequence[int] | None, gap_s: float) -> None:
        """Give a host or a switch no CPU for a while; see StallFault."""

    def vanish(self, host: str) -> None:
        """End a host's process without a word; its ports stay up."""

    # ---- planes, control plane, everything

    def deny_plane(self, plane: int, on: bool) -> None:
        """Deny a plane to all hosts, or allow it again."""

    def cut_plane(self, plane: int) -> Holds:
        """Cut all links of a plane."""

    def set_controller(self, alive: bool) -> None:
        """Kill the controller's process, or start another one when there is none."""

    def heal(self) -> None:
        """Undo everything."""
