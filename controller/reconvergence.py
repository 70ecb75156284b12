"""Reconvergence delay: the control plane acts on a failure at once, some time later, or never.

MRC needs no control plane to act; the networks it is compared with do, and theirs takes seconds (§11, the headline).
The time is that of experiments/virtual/control_plane.py: the first change starts it, changes until it is over are
included, and a restarted controller continues with the failures that switches follow. Only groups of uplinks wait
(pruning.py): a T0's own dead uplink is left to its selector. Pure; the caller has the clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from mrc_testbed.topologies.plan import Link, Plan, PlanError, Switch

REACT_NOW, REACT_NEVER = "now", "never"
"""Words for 0 and infinitely many seconds."""


@dataclass(frozen=True, slots=True)
class PlaneFailures:
    """Links and switches that forward nothing."""

    down_links: frozenset[Link] = frozenset()
    """Links of which a port reports that it is down."""
    fresh_links: frozenset[Link] = frozenset()
    """Links that came up a moment ago; groups do not use them until both ends are ready."""
    silent_causes: frozenset[Link | Switch] = frozenset()
    """Links and switches that forward nothing while their ports are up, where the cause is certain."""


def seconds_of(text: str) -> float:
    """Return the seconds of `now`, `never` or a number from 0 to a day. Raises ValueError."""
    if text in (REACT_NOW, REACT_NEVER):
        return 0.0 if text == REACT_NOW else math.inf
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 86_400.0:
        raise ValueError(f"{text!r}: wants `{REACT_NOW}`, `{REACT_NEVER}` or seconds up to a day, like 2.5")
    return value


class ReconvergenceDelay:
    """Failures by plane, and those that the switches' groups follow. Times in seconds.

    after_s     from the first change to the new tables; infinite: never
    due         when `act` has to be called next; None: nothing waits
    """

    def __init__(self, after_s: float = 0.0) -> None:
        self.after_s = after_s
        self.due: float | None = None
        self._present: dict[int, PlaneFailures] = {}
        self._acted_on: dict[int, PlaneFailures] = {}

    def acted_on(self, plane: int) -> PlaneFailures:
        """Return the failures that groups follow now."""
        return self._acted_on.get(plane, PlaneFailures())

    def update(self, plane: int, failures: PlaneFailures, now: float) -> None:
        """Set the failures of a plane."""
        if self.after_s == 0.0:
            self._acted_on[plane] = failures
            return
        # The delay itself gives a link that came up its time.
        self._present[plane] = failures = replace(failures, fresh_links=frozenset())
        if failures != self.acted_on(plane) and self.due is None and self.after_s < math.inf:
            self.due = now + self.after_s

    def act(self) -> list[int]:
        """Follow all known failures: the time is over. Return the planes where groups change."""
        self.due = None
        planes = [plane for plane, failures in self._present.items() if failures != self.acted_on(plane)]
        self._acted_on.update(self._present)
        return planes

    # ---- across restarts --------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of links and switches that routing has acted on, for the journal."""
        causes = {
            cause for failures in self._acted_on.values() for cause in failures.down_links | failures.silent_causes
        }
        return sorted(cause.name for cause in causes)

    def restore(self, plan: Plan, names: Iterable[Any]) -> None:
        """Continue with the failures that switches follow since an earlier controller.

        Names that the plan does not have are skipped.
        """
        if self.after_s == 0.0:
            return
        links: set[Link] = set()
        switches: set[Switch] = set()
        for name in names:
            try:
                ends = str(name).split()
                if len(ends) == 2:
                    links.add(plan.link(ends[0], ends[1]))
                else:
                    switches.add(plan.switch(str(name)))
            except PlanError:
                continue
        for plane in range(plan.planes):
            restored_failures = PlaneFailures(
                down_links=frozenset(link for link in links if link.plane == plane),
                silent_causes=frozenset(switch for switch in switches if switch.plane == plane),
            )
            self._acted_on[plane] = restored_failures
