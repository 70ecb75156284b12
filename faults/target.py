"""What a fabric offers to those who break it; `simulator/fault_target.py` has it in virtual time,
`topologies/lab/fault_target.py` on a live fabric.

Verbs that can be undone return what holds since then, opaque to the caller, for `undo`. Faults may overlap: what two of
them hold is free again when both are over. Links are named by their two nodes; `direction` is "both", "up" (from the
first node, which is the one nearer to the hosts), "down" or "one_way" (from the first node named to the second).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

Holds = list[Any]
"""What faults hold, in the order in which they took it."""
Direction = Literal["both", "up", "down", "one_way"]


class FaultTarget(Protocol):
    """A fabric, as faults see it. Each verb raises the fabric's own error for what it cannot do."""

    def undo(self, holds: Holds) -> None:
        """Give back what faults hold; nothing for what has been given back already."""

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something a while from now, in the fabric's time."""

    # ---- links

    def cut(self, a: str, b: str) -> Holds:
        """The cable is pulled: both ends lose their port."""

    def swallow(self, a: str, b: str, *, both: bool) -> Holds:
        """Packets from `a` to `b` (`both`: and back) vanish while the ports stay up."""

    def restore(self, a: str, b: str) -> None:
        """End what holds a link down or swallows its packets, whoever began it."""

    def impair(
        self, kind: Literal["loss", "corrupt"], a: str, b: str, *, rate: float | None, pattern: str | None,
        direction: Direction, seed: int,
    ) -> Holds:  # fmt: skip
        """Hit packets by a share of them or by a pattern; a share of 0 hits none."""

    def set_line(self, a: str, b: str, *, rate_bps: float | None, delay_s: float | None, direction: Direction) -> Holds:
        """New rate or one-way delay; None: as it is."""

    def flap(self, links: Sequence[tuple[str, str]], *, down_s: float, up_s: float, times: int) -> Holds:
        """Cut links and restore them, `times` over, beginning now."""

    # ---- switches

    def blackhole(self, switch: str) -> Holds:
        """A switch loses everything while its ports stay up."""

    def corrupt_switch(self, switch: str, rate: float) -> Holds:
        """A switch flips a bit in a share of what it sends."""

    def power_off(self, switch: str) -> Holds:
        """A switch loses its power and its state."""

    def power_on(self, switch: str) -> None:
        """A switch has power again, whoever took it."""

    def reboot(self, switch: str) -> None:
        """A switch goes and comes back empty, and as a switch that forwards."""

    # ---- planes, control plane, everything

    def deny_plane(self, plane: int, on: bool) -> None:
        """All hosts keep away from a plane, or may use it again."""

    def cut_plane(self, plane: int) -> Holds:
        """All links of a plane go down."""

    def restore_plane(self, plane: int, holds: Holds) -> None:
        """The links that cut_plane() took are back."""

    def set_controller(self, alive: bool) -> None:
        """The controller's process dies, or begins anew."""

    def heal(self) -> None:
        """Undo everything."""
