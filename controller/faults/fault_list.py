"""Life cycle of faults: raised, updated, narrowed, merged, cleared. Pure.

    faults.reconcile(plane, findings, now)   # follow the findings of a plane, which correlator.py makes
    faults.changes()                         # the changes since the last call

Notes 1, 4, 5 and 7 of docs/design/fault-correlation.md give the delays and their reasons.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from mrc_testbed.controller.faults.diagnosis import FailureMode, Finding
from mrc_testbed.controller.faults.fault_model import Fault, FaultState, Symptom, has_explanations_of, key_of
from mrc_testbed.controller.faults.path_segments import NO_PLANE, Cause, PathSegmenter
from mrc_testbed.controller.faults.timers import ROUNDING_S, FaultTimers
from mrc_testbed.topologies.plan import Link

KEEP_CLOSED = 1000
"""Most closed faults kept; the oldest are dropped."""

ExplainedFindings = list[tuple[Finding, list[Symptom]]]
"""Findings with the symptoms that each explains."""


class FaultList:
    """Active and closed faults of one fabric.

    `wait(plane, due)`: the plane has to be explained again by then; `on_clear(fault, now)`: a fault was cleared.
    """

    def __init__(
        self,
        links_of: Mapping[str, Sequence[Link]],
        times: FaultTimers,
        *,
        wait: Callable[[int, float], None],
        on_clear: Callable[[Fault, float], None],
    ) -> None:
        self.active_faults: list[Fault] = []
        self.closed_faults: deque[Fault] = deque(maxlen=KEEP_CLOSED)
        self._links_of = links_of
        self.times = times
        self._wait, self._on_clear = wait, on_clear
        self._soak: dict[int, float] = {}
        """End of the soak time of flapping or lossy faults without symptoms now, by number."""
        self._confirmation_deadlines: dict[int, float] = {}
        """Time at which faults restored from the journal are cleared unless seen again, by number."""
        self._unclear: dict[int, dict[frozenset[Cause], float]] = {}
        """End of the hold-down of findings that are ambiguous or perhaps chance, by plane and causes."""
        self._changes: list[tuple[str, Fault]] = []
        self._numbers = count(1)

    def changes(self) -> list[tuple[str, Fault]]:
        """Return (`raised`, `updated`, `cleared` or `merged`; fault) since the last call, in order."""
        out, self._changes = self._changes, []
        return out

    def of_plane(self, plane: int) -> list[Fault]:
        """Active faults of a plane."""
        return [fault for fault in self.active_faults if fault.plane == plane]

    def recently_closed(self, now: float, within_s: float) -> Iterator[Fault]:
        """Yield the faults closed within the last `within_s` seconds, the latest first."""
        for fault in reversed(self.closed_faults):
            if fault.cleared_at is None or now > fault.cleared_at + within_s:
                break
            yield fault

    def confirm(self, fault: Fault, symptom: Symptom) -> None:
        """Attach a symptom of another source."""
        if fault.attach(symptom):
            self._changes.append(("updated", fault))

    # ---- restart --------------------------------------------------------------------------------

    def restore(self, records: list[dict[str, Any]], segmenter: PathSegmenter, deadline: float) -> None:
        """Restore the faults of an earlier controller; active ones are cleared at `deadline` unless seen."""
        for record in records:
            fault = Fault.from_json(record, segmenter)
            if fault is None:
                continue
            if fault.state is FaultState.ACTIVE:
                self.active_faults.append(fault)
                self._confirmation_deadlines[fault.number] = deadline
            else:
                self.closed_faults.append(fault)
        last = max((fault.number for fault in (*self.active_faults, *self.closed_faults)), default=0)
        self._numbers = count(last + 1)

    def confirm_by(self, due: float) -> None:
        """Clear the restored faults that no source has reported by `due`: all sources answer now."""
        self._confirmation_deadlines = {
            number: min(deadline, due) for number, deadline in self._confirmation_deadlines.items()
        }

    # ---- time -------------------------------------------------------------------------------------------

    def next_timer(self) -> float | None:
        """Return the time at which the first soak time or confirmation ends, seconds, or None."""
        return min((*self._soak.values(), *self._confirmation_deadlines.values()), default=None)

    def planes_due(self, now: float) -> set[int]:
        """Return the planes with a fault whose wait is over; explain them, then `drop_expired_waits()`."""
        waits = (self._soak, self._confirmation_deadlines)
        numbers = {number for deadlines in waits for number, deadline in deadlines.items() if deadline <= now}
        return {fault.plane for fault in self.active_faults if fault.number in numbers}

    def drop_expired_waits(self, now: float) -> None:
        """Forget the waits that have ended."""
        self._soak = {number: deadline for number, deadline in self._soak.items() if deadline > now}
        self._confirmation_deadlines = {
            number: deadline for number, deadline in self._confirmation_deadlines.items() if deadline > now
        }

    # ---- the life of a fault ----------------------------------------------------------------------------

    def reconcile(self, plane: int, findings: ExplainedFindings, now: float) -> None:
        """Raise, update, narrow, merge and clear faults until the list equals the findings."""
        kept_numbers: set[int] = set()
        matches: list[tuple[Finding, list[Symptom], Fault | None]] = []
        unmatched_faults = self.of_plane(plane)
        for fits in (_is_same, _is_narrower, _is_wider):  # the best match for all first
            for finding, symptoms in [pair for pair in findings if not any(pair[0] is m[0] for m in matches)]:
                fault = next((f for f in unmatched_faults if fits(f, finding)), None)
                if fault is not None:
                    unmatched_faults.remove(fault)
                    matches.append((finding, symptoms, fault))
        matches += [(f, s, None) for f, s in findings if not any(f is m[0] for m in matches)]
        # What a host explains is part of its fault, which belongs to no plane.
        hosts = self.of_plane(NO_PLANE) if plane != NO_PLANE else []
        homes = {id(symptom): [host.number] for host in hosts for symptom in host.symptoms}
        for finding, symptoms, fault in matches:
            if fault is None and self._waits_for_clarity(finding, now):
                continue
            fault = self._update(fault, finding, symptoms) if fault else self._raise(finding, symptoms, now)
            kept_numbers.add(fault.number)
            self._soak.pop(fault.number, None)
            self._confirmation_deadlines.pop(fault.number, None)
            for symptom in symptoms:
                symptom.attributed = True
                homes.setdefault(id(symptom), []).append(fault.number)
        current_causes = {finding.causes for finding, _ in findings}
        self._unclear[plane] = {c: due for c, due in self._unclear.get(plane, {}).items() if c in current_causes}
        for fault in [f for f in self.of_plane(plane) if f.number not in kept_numbers]:
            numbers = {n for s in fault.symptoms if s.cleared_at is None for n in homes.get(id(s), [])}
            self._close(fault, sorted(n for n in numbers if not self._is_part(n, fault)), now)

    def _is_part(self, number: int, fault: Fault) -> bool:
        """Return whether the numbered fault names only links of the switch or host that `fault` named."""
        names = {cause.name for cause in fault.causes if not isinstance(cause, Link)}
        part = next(f for f in self.active_faults if f.number == number)
        return bool(names) and all(isinstance(cause, Link) and cause.ends & names for cause in part.causes)

    def _waits_for_clarity(self, finding: Finding, now: float) -> bool:
        """Return whether to delay an ambiguous finding or a loss: either may resolve soon (note 1)."""
        is_choice = len(finding.explanations) > 1
        if finding.mode is FailureMode.LOSSY:
            wait = self.times.lossy_unclear_s if is_choice else self.times.lossy_again_s
        elif is_choice:
            wait = self.times.unclear_s
        else:
            return False
        plane = _plane_of(finding)
        due_time = now + (0.0 if finding.mode is FailureMode.REPORTED_DOWN else wait)
        waiting = self._unclear.setdefault(plane, {})
        if is_choice:  # a choice that shares most of its causes with a waiting one is the same: keep its deadline
            causes = finding.causes
            alike = [c for c in waiting if len(c) > 1 and 2 * len(c & causes) > min(len(c), len(causes))]
            due_time = min([due_time, *(waiting[causes] for causes in alike)])
        due = waiting.setdefault(finding.causes, due_time)
        if now < due - ROUNDING_S:
            self._wait(plane, min(due, now + self.times.hold_down_path_s))
            return True
        return False

    def _raise(self, finding: Finding, symptoms: list[Symptom], now: float) -> Fault:
        earlier_fault = next((f for f in reversed(self.closed_faults) if self._is_back(f, finding, now)), None)
        if earlier_fault is not None:
            self.closed_faults.remove(earlier_fault)
            fault, fault.state, fault.cleared_at = earlier_fault, FaultState.ACTIVE, None
            fault.flaps, fault.raised_at = fault.flaps + 1, now
            fault.forget_cleared()
        else:
            first = min((s.onset for s in symptoms), default=now)
            fault = Fault(next(self._numbers), first, now, _plane_of(finding))
        fault.describe(finding, self._links_of, symptoms)
        for symptom in symptoms:
            fault.attach(symptom)
        fault.describe(finding, self._links_of, symptoms)
        self.active_faults.append(fault)
        self._changes.append(("raised", fault))
        return fault

    def _is_back(self, fault: Fault, finding: Finding, now: float) -> bool:
        return (
            fault.state is FaultState.CLEARED
            and fault.cleared_at is not None
            and now - fault.cleared_at <= self.times.flap_s
            and key_of(fault.explanations) == key_of(finding.explanations)
        )

    def _update(self, fault: Fault, finding: Finding, symptoms: list[Symptom]) -> Fault:
        if fault.certain_cause is not None and _is_wider(fault, finding):  # a certain cause stays: evidence expires
            cause = next(iter(fault.causes))
            finding = Finding(finding.mode, ((cause,),), finding.reports, finding.loss)
        new_symptoms = [s for s in symptoms if fault.attach(s)]
        previous = (fault.text, fault.mode)
        fault.describe(finding, self._links_of, symptoms)
        if new_symptoms or previous != (fault.text, fault.mode):
            self._changes.append(("updated", fault))
        return fault

    def _close(self, fault: Fault, merged_into: list[int], now: float) -> None:
        if not merged_into:
            deadline = self._confirmation_deadlines.get(fault.number)
            if deadline is not None and now < deadline:
                return
            # A short total loss cannot be told from heavy partial loss, so the fault ends as a lossy one.
            hold = self.times.flap_s if fault.flaps >= 2 else self.times.lossy_hold_s
            is_brief = fault.mode is FailureMode.SILENT_DOWN and now - fault.first_seen < self.times.dead_for_s
            if is_brief and fault.certain_cause is not None:
                finding = Finding(FailureMode.LOSSY, fault.explanations, (), arcs=fault.arcs)
                fault.describe(finding, self._links_of, [])
                self._changes.append(("updated", fault))
            if fault.flaps >= 2 or fault.mode is FailureMode.LOSSY:
                deadline = self._soak.setdefault(fault.number, now + hold)
                if now < deadline - ROUNDING_S:
                    return
                self._soak.pop(fault.number, None)
        self._soak.pop(fault.number, None)
        self._confirmation_deadlines.pop(fault.number, None)
        self.active_faults.remove(fault)
        fault.state = FaultState.MERGED if merged_into else FaultState.CLEARED
        fault.merged_into, fault.cleared_at = merged_into, now
        self.closed_faults.append(fault)
        self._changes.append((fault.state.value, fault))
        if not merged_into:
            self._on_clear(fault, now)


def _plane_of(finding: Finding) -> int:
    return next(iter(finding.causes)).plane


def _is_same(fault: Fault, finding: Finding) -> bool:
    return has_explanations_of(fault, finding)


def _is_narrower(fault: Fault, finding: Finding) -> bool:
    """Return whether a finding narrows an ambiguous fault to some of its candidate causes."""
    return len(fault.explanations) > 1 and finding.causes < fault.causes


def _is_wider(fault: Fault, finding: Finding) -> bool:
    """Return whether a finding allows for the fault's causes and for others."""
    is_open = len(fault.explanations) > 1 and len(finding.explanations) > 1
    return key_of(fault.explanations) < key_of(finding.explanations) or (is_open and fault.causes < finding.causes)
