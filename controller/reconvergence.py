"""Reconvergence delay: the control plane acts on a failure at once, some time later, or never. Pure; the caller has the
clock.

MRC needs no control plane to act; the networks it is compared with do, and theirs takes seconds (§11, the headline).
The time is that of experiments/virtual/control_plane.py: the first change starts it, what changes until it is over is
included, and a controller that comes back begins anew with what switches were told before. Only groups of uplinks wait
(pruning.py): a T0's own dead uplink is the business of its selector.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mrc_testbed.controller.p4runtime.pruning import Dead
from mrc_testbed.topologies.plan import Link, Plan, PlanError, Switch

NOW, NEVER = "now", "never"
"""Words for 0 and infinitely many seconds."""


def seconds_of(text: str) -> float:
    """`now`, `never` or seconds from 0 to a day. Raises ValueError saying so."""
    if text in (NOW, NEVER):
        return 0.0 if text == NOW else math.inf
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 86_400.0:
        raise ValueError(f"{text!r}: wants `{NOW}`, `{NEVER}` or seconds up to a day, like 2.5")
    return value


class ReconvergenceDelay:
    """Failures by plane, and those that the switches' groups follow. Times in seconds.

    after_s     from the first change to the new tables; infinite: never
    due         when `act` has to be called next; None: nothing waits
    """

    def __init__(self, after_s: float = 0.0) -> None:
        self.after_s = after_s
        self.due: float | None = None
        self._present: dict[int, Dead] = {}
        self._acted_on: dict[int, Dead] = {}

    def acted_on(self, plane: int) -> Dead:
        """Failures that groups follow now."""
        return self._acted_on.get(plane, Dead())

    def update(self, plane: int, dead: Dead, now: float) -> None:
        """This is dead in a plane."""
        if self.after_s == 0.0:
            self._acted_on[plane] = dead
            return
        self._present[plane] = dead = replace(dead, fresh=frozenset())  # who is late gives a link time enough
        if dead != self.acted_on(plane) and self.due is None and self.after_s < math.inf:
            self.due = now + self.after_s

    def act(self) -> list[int]:
        """The time is over: heed all that is known. Returns the planes where that differs."""
        self.due = None
        moved = [plane for plane, dead in self._present.items() if dead != self.acted_on(plane)]
        self._acted_on.update(self._present)
        return moved

    # ---- across restarts --------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Links and switches that routing has acted on, for the journal."""
        causes = {cause for dead in self._acted_on.values() for cause in dead.ports | dead.silent}
        return sorted(cause.name for cause in causes)

    def restore(self, plan: Plan, names: Iterable[Any]) -> None:
        """Go on with what an earlier controller had told the switches. Passes over names the plan does not have."""
        if self.after_s == 0.0:
            return
        ports: set[Link] = set()
        silent: set[Switch] = set()
        for name in names:
            try:
                ends = str(name).split()
                if len(ends) == 2:
                    ports.add(plan.link(ends[0], ends[1]))
                else:
                    silent.add(plan.switch(str(name)))
            except PlanError:
                continue
        for plane in range(plan.planes):
            mine = Dead(
                ports=frozenset(port for port in ports if port.plane == plane),
                silent=frozenset(one for one in silent if one.plane == plane),
            )
            self._acted_on[plane] = mine
