"""Life cycle of faults: raised, updated, narrowed, merged, cleared. The findings come from correlator.py. Pure.

    faults.reconcile(plane, findings, now)   # follow the findings of a plane
    faults.changes()                         # what that changed

Notes 1, 4, 5 and 7 of docs/design/fault-correlation.md say what waits here, and why.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from mrc_testbed.controller.faults.diagnosis import Finding, How
from mrc_testbed.controller.faults.fault_model import Fault, FaultState, Symptom, key_of, named_alike
from mrc_testbed.controller.faults.path_segments import Cause, PathSegmenter
from mrc_testbed.controller.faults.timers import ROUNDING_S, FaultTimers
from mrc_testbed.topologies.plan import Link, Switch

KEEP_CLOSED = 1000
"""Closed faults remembered; the oldest are forgotten."""

Found = list[tuple[Finding, list[Symptom]]]
"""Findings, and the symptoms that each explains."""


class FaultList:
    """Active and closed faults of one fabric.

    `wait(plane, due)`: the plane has to be explained again by then; `over(fault, now)`: a fault was cleared.
    """

    def __init__(
        self,
        links_of: Mapping[str, Sequence[Link]],
        times: FaultTimers,
        *,
        wait: Callable[[int, float], None],
        over: Callable[[Fault, float], None],
    ) -> None:
        self.active: list[Fault] = []
        self.closed: deque[Fault] = deque(maxlen=KEEP_CLOSED)
        self._links_of = links_of
        self.times = times
        self._wait, self._over = wait, over
        self._soak: dict[int, float] = {}
        """Flapping or lossy faults without symptoms now, by number, and the end of their soak time."""
        self._unconfirmed: dict[int, float] = {}
        """Faults restored from the journal, by number, and when they are cleared unless seen again."""
        self._unclear: dict[int, dict[frozenset[Cause], float]] = {}
        """Findings of each plane in hold-down (more than one explanation, or perhaps chance), and its end."""
        self._changes: list[tuple[str, Fault]] = []
        self._numbers = count(1)

    def changes(self) -> list[tuple[str, Fault]]:
        """(`raised`, `updated`, `cleared` or `merged`; fault) since the last call, in order."""
        out, self._changes = self._changes, []
        return out

    def of(self, plane: int) -> list[Fault]:
        """Active faults of a plane."""
        return [fault for fault in self.active if fault.plane == plane]

    def recently_closed(self, now: float, within_s: float) -> Iterator[Fault]:
        """Faults closed no longer than that ago, the last one first."""
        for fault in reversed(self.closed):
            if fault.cleared is None or now > fault.cleared + within_s:
                break
            yield fault

    def confirm(self, fault: Fault, symptom: Symptom) -> None:
        """Attach a symptom of another source."""
        if fault.attach(symptom):
            self._changes.append(("updated", fault))

    # ---- restart --------------------------------------------------------------------------------

    def restore(self, records: list[dict[str, Any]], segmenter: PathSegmenter, until: float) -> None:
        """Faults as an earlier controller kept them. Those still active are over at `until` unless they are seen."""
        for record in records:
            fault = Fault.from_json(record, segmenter)
            if fault is None:
                continue
            if fault.state is FaultState.ACTIVE:
                self.active.append(fault)
                self._unconfirmed[fault.number] = until
            else:
                self.closed.append(fault)
        last = max((fault.number for fault in (*self.active, *self.closed)), default=0)
        self._numbers = count(last + 1)

    def confirm_by(self, due: float) -> None:
        """All sources answer now: remembered faults that nobody sees by then are over."""
        self._unconfirmed = {number: min(until, due) for number, until in self._unconfirmed.items()}

    # ---- time -------------------------------------------------------------------------------------------

    def next_timer(self) -> float | None:
        """Time at which the first soak time or confirmation ends, seconds, or None."""
        return min((*self._soak.values(), *self._unconfirmed.values()), default=None)

    def planes_due(self, now: float) -> set[int]:
        """Planes with a fault whose wait is over; explain them, then call `waited`."""
        waits = (self._soak, self._unconfirmed)
        numbers = {number for one in waits for number, until in one.items() if until <= now}
        return {fault.plane for fault in self.active if fault.number in numbers}

    def waited(self, now: float) -> None:
        """Forget the waits that have ended."""
        self._soak = {number: until for number, until in self._soak.items() if until > now}
        self._unconfirmed = {number: until for number, until in self._unconfirmed.items() if until > now}

    # ---- the life of a fault ----------------------------------------------------------------------------

    def reconcile(self, plane: int, found: Found, now: float) -> None:
        """Raise, update, narrow, merge and clear faults until the list equals the findings."""
        kept: set[int] = set()
        matched: list[tuple[Finding, list[Symptom], Fault | None]] = []
        free = self.of(plane)
        for match in (_same, _narrower, _wider):  # the best match for all first
            for finding, symptoms in [one for one in found if not any(one[0] is m[0] for m in matched)]:
                fault = next((f for f in free if match(f, finding)), None)
                if fault is not None:
                    free.remove(fault)
                    matched.append((finding, symptoms, fault))
        matched += [(f, s, None) for f, s in found if not any(f is m[0] for m in matched)]
        homes: dict[int, list[int]] = {}
        for finding, symptoms, fault in matched:
            if fault is None and self._waits_for_clarity(finding, now):
                continue
            fault = self._update(fault, finding, symptoms) if fault else self._raise(finding, symptoms, now)
            kept.add(fault.number)
            self._soak.pop(fault.number, None)
            self._unconfirmed.pop(fault.number, None)
            for symptom in symptoms:
                symptom.attributed = True
                homes.setdefault(id(symptom), []).append(fault.number)
        told = {finding.causes for finding, _ in found}
        self._unclear[plane] = {c: due for c, due in self._unclear.get(plane, {}).items() if c in told}
        for fault in [f for f in self.of(plane) if f.number not in kept]:
            into = {n for s in fault.symptoms if s.cleared is None for n in homes.get(id(s), [])}
            self._close(fault, sorted(n for n in into if not self._is_part(n, fault)), now)

    def _is_part(self, number: int, fault: Fault) -> bool:
        """The fault of that number is about links of a switch that `fault` was about: what is left, not what it was."""
        names = {cause.name for cause in fault.causes if isinstance(cause, Switch)}
        part = next(f for f in self.active if f.number == number)
        return bool(names) and all(isinstance(cause, Link) and cause.ends & names for cause in part.causes)

    def _waits_for_clarity(self, finding: Finding, now: float) -> bool:
        """Design note 1: a choice is not told at once, nor are losses, whose cause may be chance for a moment."""
        is_choice = len(finding.explanations) > 1
        if finding.how is How.LOSSY:
            wait = self.times.lossy_unclear_s if is_choice else self.times.lossy_again_s
        elif is_choice:
            wait = self.times.unclear_s
        else:
            return False
        plane = _plane_of(finding)
        at = now + (0.0 if finding.how is How.DOWN else wait)
        waiting = self._unclear.setdefault(plane, {})
        if is_choice:  # one among more or fewer, or most of them, is the same choice
            mine = finding.causes
            alike = [c for c in waiting if len(c) > 1 and 2 * len(c & mine) > min(len(c), len(mine))]
            at = min([at, *(waiting[causes] for causes in alike)])
        due = waiting.setdefault(finding.causes, at)
        if now < due - ROUNDING_S:
            self._wait(plane, min(due, now + self.times.hold_down_path_s))
            return True
        return False

    def _raise(self, finding: Finding, symptoms: list[Symptom], now: float) -> Fault:
        again = next((f for f in reversed(self.closed) if self._is_back(f, finding, now)), None)
        if again is not None:
            self.closed.remove(again)
            fault, fault.state, fault.cleared = again, FaultState.ACTIVE, None
            fault.flaps, fault.raised = fault.flaps + 1, now
            fault.forget_cleared()
        else:
            first = min((s.since for s in symptoms), default=now)
            fault = Fault(next(self._numbers), first, now, _plane_of(finding))
        fault.describe(finding, self._links_of, symptoms)
        for symptom in symptoms:
            fault.attach(symptom)
        fault.describe(finding, self._links_of, symptoms)
        self.active.append(fault)
        self._changes.append(("raised", fault))
        return fault

    def _is_back(self, fault: Fault, finding: Finding, now: float) -> bool:
        return (
            fault.state is FaultState.CLEARED
            and fault.cleared is not None
            and now - fault.cleared <= self.times.flap_s
            and key_of(fault.explanations) == key_of(finding.explanations)
        )

    def _update(self, fault: Fault, finding: Finding, symptoms: list[Symptom]) -> Fault:
        if fault.certain_cause is not None and _wider(fault, finding):  # evidence that grows old makes it no less so
            own = next(iter(fault.causes))
            finding = Finding(finding.how, ((own,),), finding.reports, finding.loss)
        news = [s for s in symptoms if fault.attach(s)]
        before = (fault.text, fault.how)
        fault.describe(finding, self._links_of, symptoms)
        if news or before != (fault.text, fault.how):
            self._changes.append(("updated", fault))
        return fault

    def _close(self, fault: Fault, into: list[int], now: float) -> None:
        if not into:
            until = self._unconfirmed.get(fault.number)
            if until is not None and now < until:
                return
            hold = self.times.flap_s if fault.flaps >= 2 else self.times.lossy_hold_s
            is_brief = fault.how is How.SILENT and now - fault.first_seen < self.times.dead_for_s
            if is_brief and fault.certain_cause is not None:
                finding = Finding(How.LOSSY, fault.explanations, (), arcs=fault.arcs)
                fault.describe(finding, self._links_of, [])
                self._changes.append(("updated", fault))
            if fault.flaps >= 2 or fault.how is How.LOSSY:
                until = self._soak.setdefault(fault.number, now + hold)
                if now < until - ROUNDING_S:
                    return
                self._soak.pop(fault.number, None)
        self._soak.pop(fault.number, None)
        self._unconfirmed.pop(fault.number, None)
        self.active.remove(fault)
        fault.state = FaultState.MERGED if into else FaultState.CLEARED
        fault.into, fault.cleared = into, now
        self.closed.append(fault)
        self._changes.append((fault.state.value, fault))
        if not into:
            self._over(fault, now)


def _plane_of(finding: Finding) -> int:
    return next(iter(finding.causes)).plane


def _same(fault: Fault, finding: Finding) -> bool:
    return named_alike(fault, finding)


def _narrower(fault: Fault, finding: Finding) -> bool:
    """The fault could not be told, and this is one of what it may have been."""
    return len(fault.explanations) > 1 and finding.causes < fault.causes


def _wider(fault: Fault, finding: Finding) -> bool:
    """This finding allows for what the fault may have been, beside others."""
    is_open = len(fault.explanations) > 1 and len(finding.explanations) > 1
    return key_of(fault.explanations) < key_of(finding.explanations) or (is_open and fault.causes < finding.causes)
