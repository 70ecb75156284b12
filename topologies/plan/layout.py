"""Layout of an uneven fabric: holes in the grid of a plan, names and link speeds of its own.

    layout = GridLayout(holes=("p1-t1-1", "h3"), names=(("p0-t0-0", "leaf-a"),))
    Plan(2, 2, 2, 2, layout=layout)

A plan is a grid of planes, racks, spines and hosts. A layout takes parts away and renames others; numbers stay: ports,
uSIDs, EVs and addresses are those of the grid, so that a fabric with a hole reads as the full one with that part dead.
Parts have the grid's names here (`p1-t0-2`, `h7`, `p1-t0-2 p1-t1-0`), as `default_t0` and its siblings make them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from mrc_testbed.topologies.plan.addressing import PlanError
from mrc_testbed.topologies.plan.link_speeds import LinkSpeed

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*(-[A-Za-z0-9_]+)*")
"""Names of hosts and switches: they become part of interface names, and words of the prompt."""
_PORT_WORD: Final = re.compile(r"-(eth|mid)")
"""Ends of a name from which the tree reads that it is an interface's."""


def default_host(number: int) -> str:
    """Grid name of a host by its number."""
    return f"h{number}"


def default_t0(plane: int, rack: int) -> str:
    """Grid name of a T0 by plane and rack."""
    return f"p{plane}-t0-{rack}"


def default_t1(plane: int, number: int) -> str:
    """Grid name of a T1 by plane and number."""
    return f"p{plane}-t1-{number}"


@dataclass(frozen=True, slots=True)
class GridLayout:
    """Differences between a fabric and the full grid of its plan.

    Raises PlanError for names that cannot be. Whether the parts exist in the grid is checked by the Plan that takes it.
    """

    holes: tuple[str, ...] = ()
    """Hosts, switches and links (`A B`, the lower end first) that do not exist."""
    names: tuple[tuple[str, str], ...] = ()
    """Grid name and own name of hosts and switches."""
    speeds: tuple[tuple[str, LinkSpeed], ...] = ()
    """Links whose speed is not that of their tier."""

    def __post_init__(self) -> None:
        for grid_name, name in self.names:
            if mistake := name_mistake(name):
                raise PlanError(f"name {name!r} of {grid_name}: {mistake}")
        doubles = [name for name, count in Counter(name for _, name in self.names).items() if count > 1]
        if doubles:
            raise PlanError(f"name {doubles[0]!r} stands for two parts. Cure: give each its own")

    def to_json(self) -> dict[str, Any]:
        return {
            "holes": list(self.holes),
            "names": dict(self.names),
            "speeds": {name: speed.to_json() for name, speed in self.speeds},
        }

    @classmethod
    def from_json(cls, data: Any) -> GridLayout:
        """Inverse of to_json. Raises PlanError."""
        if not isinstance(data, dict) or not set(data) <= {"holes", "names", "speeds"}:
            raise PlanError(f"a layout has the keys holes, names and speeds; got {data!r}")
        holes, names, speeds = data.get("holes", []), data.get("names", {}), data.get("speeds", {})
        if not (isinstance(holes, list) and isinstance(names, dict) and isinstance(speeds, dict)):
            raise PlanError(f"a layout has a list `holes` and mappings `names` and `speeds`; got {data!r}")
        return cls(
            tuple(map(str, holes)),
            tuple((str(grid_name), str(name)) for grid_name, name in names.items()),
            tuple((str(link), LinkSpeed.from_json(str(link), speed)) for link, speed in speeds.items()),
        )


def name_mistake(name: str) -> str | None:
    """Return what is wrong with a name for a host or switch; None: nothing."""
    if not NAME.fullmatch(name):
        return "letters, digits, `_` and single `-` between them, beginning with a letter"
    if _PORT_WORD.search(name):
        return "`-eth` and `-mid` belong to interfaces"
    return None
