"""The fault list: reports of bad ports and lost switches in, faults with a location out.

Pure: no clock, no I/O; `now` (CLOCK_MONOTONIC seconds) comes in with every call. After each call drain
`changes()` and re-arm at `next_timer()`.

A report becomes a `Sighting`; after every report a plane's open sightings are explained afresh, by few causes:

    1. a switch whose P4Runtime stream is lost is a fault by itself; it explains every bad link it has;
    2. a switch with all its links down, gone within TOGETHER_S, at least two of them not explained by another
       switch, is a fault; the one that explains most comes first (four bad links at a T0 are that T0, not the
       two T1 above it);
    3. what is left are faults of single links. Both ends of a link speak of the same fault.

Design notes
1. Rule 2 asks for "together" because two links cut an hour apart may also be all links of a small switch.
2. A switch that boots brings up its links one by one. Its fault stays for SETTLE_S after its cause ended while
   links of it are still down, so that a reboot does not end in a shower of link faults; then they are named.
3. A report may show that an earlier fault was part of a bigger one (first link of a dying switch). The earlier
   one becomes `merged`, and says into which.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any

from topologies.plan import Link, Plan, Switch

TOGETHER_S = 2.0
"""Links of one switch that went down within this time, seconds, went down together."""
SETTLE_S = 1.0
"""Time a returning switch has to bring its links up, seconds, before they count as faults of their own."""
KEEP_CLOSED = 1000
"""Closed faults remembered; the oldest are forgotten."""

P4RUNTIME = "p4runtime"
"""Source name of sightings of a lost stream."""


class FaultState(Enum):
    ACTIVE = "active"
    CLEARED = "cleared"  # nothing reports it any more
    MERGED = "merged"  # turned out to be part of the faults in `into`


PORT_IS_BAD = {
    "UP": False,
    "UNKNOWN": False,  # RFC 2863: the driver does not tell; Linux holds such an interface usable
    "DORMANT": True,
    "TESTING": True,
    "DOWN": True,
    "LOWER_LAYER_DOWN": True,
    "NOT_PRESENT": True,
}
"""Whether an oper-status (openconfig-interfaces) means that no packet passes."""


@dataclass(slots=True)
class Sighting:
    """One source saying that one thing is bad, from `since` to `cleared` (None: still). Times in seconds."""

    source: str
    """Who says it: `p4runtime`, or `gnmi` and its address."""
    about: str
    """Interface or switch."""
    says: str
    since: float
    last_seen: float
    cleared: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "about": self.about,
            "says": self.says,
            "first_seen": self.since,
            "last_seen": self.last_seen,
            "cleared": self.cleared,
        }


@dataclass(slots=True)
class Fault:
    """One thing that is broken. Times are CLOCK_MONOTONIC seconds."""

    number: int
    kind: str
    """`T0-T1 link`, `NIC-T0 link` or `switch`."""
    location: str
    """Switch name, or the two ends of a link as the CLI's `link` command names them."""
    plane: int
    first_seen: float
    text: str
    state: FaultState = FaultState.ACTIVE
    cleared: float | None = None
    """When it was cleared or merged; None while active."""
    into: list[int] = field(default_factory=list)
    """Numbers of the faults a merged one is part of."""
    evidence: list[Sighting] = field(default_factory=list)

    @property
    def last_seen(self) -> float:
        """When a source last said so."""
        return max(s.last_seen for s in self.evidence)

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "kind": self.kind,
            "location": self.location,
            "plane": self.plane,
            "text": self.text,
            "state": self.state.value,
            "first_seen": self.first_seen,
            "last_seen": self.last_seen,
            "cleared": self.cleared,
            "into": list(self.into),
            "evidence": [s.to_json() for s in self.evidence],
        }


Cause = Switch | Link
"""What a fault is about; the key of an active fault."""


class FaultList:
    """Active and past faults of one fabric."""

    def __init__(self, plan: Plan, *, together_s: float = TOGETHER_S, settle_s: float = SETTLE_S) -> None:
        self.plan = plan
        self.together_s = together_s
        self.settle_s = settle_s
        self._open: dict[tuple[str, str], Sighting] = {}
        """What is reported bad now, by (source, about)."""
        self._active: dict[Cause, Fault] = {}
        self._closed: deque[Fault] = deque(maxlen=KEEP_CLOSED)
        self._hold: dict[Switch, float] = {}
        """Switches whose cause ended with links still down, and when we stop waiting for those (seconds)."""
        self._changes: list[tuple[str, Fault]] = []
        self._numbers = count(1)
        self._switches = {plane: [s for s in plan.switches if s.plane == plane] for plane in range(plan.planes)}
        self._links_of: dict[str, list[Link]] = {s.name: [] for s in plan.switches}
        for link in plan.links:
            for end in link.ends & self._links_of.keys():
                self._links_of[end].append(link)
        self._links = {plane: [k for k in plan.links if k.plane == plane] for plane in range(plan.planes)}
        self._is_switch = self._links_of.keys()

    # ---- reports in -------------------------------------------------------------------------------------

    def port(self, interface: str, status: str, *, source: str, now: float) -> None:
        """`source` says that `interface` has an oper-status, one of PORT_IS_BAD; others count as bad.

        Raises PlanError for an interface the fabric does not have.
        """
        link = self.plan.link_of_interface(interface)
        self._report(source, interface, status, PORT_IS_BAD.get(status, True), link.plane, now)

    def stream(self, switch: str, up: bool, *, says: str = "stream lost", now: float) -> None:
        """The P4Runtime stream of `switch` was lost or is back. Raises PlanError for an unknown switch."""
        plane = self.plan.switch(switch).plane
        self._report(P4RUNTIME, switch, says, not up, plane, now)

    def on_timer(self, now: float) -> None:
        """Stop waiting for the links of switches that are back; call it at next_timer()."""
        for switch in [s for s, until in self._hold.items() if until <= now]:
            del self._hold[switch]
            self._explain(switch.plane, now, may_hold=False)

    def next_timer(self) -> float | None:
        """When on_timer() wants to be called, seconds; None when not at all."""
        return min(self._hold.values(), default=None)

    # ---- faults out -------------------------------------------------------------------------------------

    def changes(self) -> list[tuple[str, Fault]]:
        """(`raised`, `updated`, `cleared` or `merged`; fault) since the last call, in order."""
        out, self._changes = self._changes, []
        return out

    def active(self) -> list[Fault]:
        """Active faults, oldest first."""
        return sorted(self._active.values(), key=lambda fault: fault.number)

    def all(self) -> list[Fault]:
        """Active and closed faults, oldest first; not the merged ones, whose evidence is in the bigger faults."""
        closed = [fault for fault in self._closed if fault.state is not FaultState.MERGED]
        return sorted((*closed, *self._active.values()), key=lambda fault: fault.number)

    # ---- explaining -------------------------------------------------------------------------------------

    def _report(self, source: str, about: str, says: str, bad: bool, plane: int, now: float) -> None:
        key = (source, about)
        known = self._open.get(key)
        if bad and known is not None:
            known.says, known.last_seen = says, now
            return
        if bad:
            self._open[key] = Sighting(source, about, says, now, now)
        elif known is not None:
            known.cleared = now
            del self._open[key]
        else:
            return
        self._explain(plane, now)

    def _explain(self, plane: int, now: float, *, may_hold: bool = True) -> None:
        """Find the causes of a plane's open sightings and bring the fault list into line with them."""
        about: dict[str, list[Sighting]] = {}
        for sighting in self._open.values():
            about.setdefault(sighting.about, []).append(sighting)
        ends = {k: (k.lower.interface, k.upper.interface) for k in self._links[plane]}
        down = {k: seen for k, (a, b) in ends.items() if (seen := about.get(a, []) + about.get(b, []))}
        lost = {s: seen for s in self._switches[plane] if (seen := self._open.get((P4RUNTIME, s.name)))}
        guilty = self._guilty_switches(plane, down, lost)
        for switch in [s for s in self._hold if s in guilty]:
            del self._hold[switch]
        if may_hold:
            self._hold_returning(plane, guilty, down, now)
        guilty += [s for s in self._hold if s.plane == plane]

        found: dict[Cause, list[Sighting]] = {}
        explained: dict[Link, list[Switch]] = {}
        for switch in guilty:
            mine = [k for k in self._links_of[switch.name] if k in down]
            found[switch] = ([lost[switch]] if switch in lost else []) + [s for k in mine for s in down[k]]
            for link in mine:
                explained.setdefault(link, []).append(switch)
        found |= {link: seen for link, seen in down.items() if link not in explained}

        for cause, seen in found.items():
            self._raise_or_update(cause, seen)
        for cause in [c for c in self._active if c.plane == plane and c not in found]:
            self._close(cause, self._merged_into(cause, down, explained), now)

    def _guilty_switches(
        self, plane: int, down: dict[Link, list[Sighting]], lost: dict[Switch, Sighting]
    ) -> list[Switch]:
        """Rules 1 and 2 of the module's docstring."""
        guilty = list(lost)
        unexplained = set(down) - {k for s in guilty for k in self._links_of[s.name]}
        while True:
            best, best_count = None, 1
            for switch in self._switches[plane]:
                mine = self._links_of[switch.name]
                new = len(unexplained.intersection(mine))
                if switch not in guilty and new > best_count and self._went_together(mine, down):
                    best, best_count = switch, new
            if best is None:
                return guilty
            guilty.append(best)
            unexplained.difference_update(self._links_of[best.name])

    def _went_together(self, links: list[Link], down: dict[Link, list[Sighting]]) -> bool:
        if any(link not in down for link in links):
            return False
        times = [min(s.since for s in down[link]) for link in links]
        return max(times) - min(times) <= self.together_s

    def _hold_returning(self, plane: int, guilty: list[Switch], down: dict[Link, list[Sighting]], now: float) -> None:
        """Design note 2: start to wait for returning switches, stop for those that are back entirely."""
        for switch in self._switches[plane]:
            waits_for_links = any(k in down for k in self._links_of[switch.name])
            if not waits_for_links:
                self._hold.pop(switch, None)
            elif (
                switch in self._active
                and switch not in guilty
                and switch not in self._hold
                and not self._is_explained_elsewhere(switch, guilty, down)
            ):
                self._hold[switch] = now + self.settle_s

    def _is_explained_elsewhere(self, switch: Switch, guilty: list[Switch], down: dict[Link, list[Sighting]]) -> bool:
        names = {s.name for s in guilty}
        return all(link.ends & names for link in self._links_of[switch.name] if link in down)

    def _merged_into(
        self, cause: Cause, down: dict[Link, list[Sighting]], explained: dict[Link, list[Switch]]
    ) -> list[int]:
        """Numbers of the faults that now explain what `cause` did; none when it simply is over."""
        links = [cause] if isinstance(cause, Link) else self._links_of[cause.name]
        still_down = [link for link in links if link in down]
        if not still_down or any(link not in explained for link in still_down):
            return []
        return sorted({self._active[s].number for link in still_down for s in explained[link]})

    # ---- records ----------------------------------------------------------------------------------------

    def _raise_or_update(self, cause: Cause, seen: list[Sighting]) -> None:
        fault = self._active.get(cause)
        if fault is None:
            first_seen = min(s.since for s in seen)
            number, kind, text = next(self._numbers), self._kind(cause), self._text(cause, seen)
            fault = Fault(number, kind, cause.name, cause.plane, first_seen, text, evidence=list(seen))
            self._active[cause] = fault
            self._changes.append(("raised", fault))
        elif new := [s for s in seen if not any(s is old for old in fault.evidence)]:
            fault.evidence += new
            fault.text = self._text(cause, fault.evidence)
            self._changes.append(("updated", fault))

    def _close(self, cause: Cause, into: list[int], now: float) -> None:
        fault = self._active.pop(cause)
        fault.state = FaultState.MERGED if into else FaultState.CLEARED
        fault.into, fault.cleared = into, now
        self._closed.append(fault)
        self._changes.append((fault.state.value, fault))

    def _kind(self, cause: Cause) -> str:
        if isinstance(cause, Switch):
            return "switch"
        return "T0-T1 link" if cause.lower.node in self._is_switch else "NIC-T0 link"

    def _text(self, cause: Cause, evidence: list[Sighting]) -> str:
        """What was seen while the fault lasted, at its worst."""
        if isinstance(cause, Link):
            return f"{self._kind(cause)} {cause.name} down"
        signs = ["P4Runtime stream lost"] if any(s.source == P4RUNTIME for s in evidence) else []
        total = len(self._links_of[cause.name])
        about = {s.about for s in evidence}
        bad = sum(not about.isdisjoint((k.lower.interface, k.upper.interface)) for k in self._links_of[cause.name])
        if bad:
            signs.append(f"all {bad} links down" if bad == total else f"{bad} of {total} links down")
        return f"T{cause.tier} {cause.name} ({', '.join(signs)})"
