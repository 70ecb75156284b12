"""Fault correlation: symptoms of all sources in, root causes with a location out.

Pure: no clock, no I/O; `now` (CLOCK_MONOTONIC seconds) comes in with every call, and `t` where a source has its own
time of the event. After each call drain `changes()` and re-arm at `next_timer()`.

A report opens, renews or closes a *symptom* (one source says that one thing is bad; symptoms.py keeps them). When its
hold-down has expired, the open symptoms of a plane are explained afresh by the fewest causes (diagnosis.py), directions
that the evidence does not support are dropped (directions.py), and the fault list follows (fault_list.py). The numbered
design notes that comments name are in docs/design/fault-correlation.md.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec

from mrc_testbed.controller.faults.diagnosis import Finding, How, explain_dead_paths, explain_losses, explain_ports
from mrc_testbed.controller.faults.directions import DirectionRules
from mrc_testbed.controller.faults.fault_list import FaultList, Found
from mrc_testbed.controller.faults.fault_model import (
    COUNTERS,
    DIGEST,
    EV,
    MAPPER,
    P4RUNTIME,
    PORT_IS_BAD,
    Fault,
    FaultState,
    Symptom,
)
from mrc_testbed.controller.faults.path_segments import Cause, PathSegmenter, PathSegments
from mrc_testbed.controller.faults.path_stats import NEVER, PathFate, PathStats
from mrc_testbed.controller.faults.symptoms import SymptomStore
from mrc_testbed.controller.faults.timers import FaultTimers
from mrc_testbed.topologies.plan import Link, Plan, Switch

__all__ = [
    "COUNTERS",
    "DIGEST",
    "EV",
    "MAPPER",
    "P4RUNTIME",
    "PORT_IS_BAD",
    "Fault",
    "FaultCorrelator",
    "FaultState",
    "FaultTimers",
]

WITNESSES = (MAPPER,)
"""Sources that watch paths all the time."""
Tap = Callable[[str, dict[str, Any]], None]
"""Hears of every call that tells the fault list something: the method's name and its arguments by name."""
OBSERVATIONS: list[str] = []
"""Names of those methods."""


P = ParamSpec("P")


def observation(method: Callable[P, None]) -> Callable[P, None]:
    """A method that tells the fault list something; its `tap` hears of it first."""
    OBSERVATIONS.append(method.__name__)
    _, *names = inspect.signature(method).parameters

    @functools.wraps(method)
    def heard(*given: P.args, **named: P.kwargs) -> None:
        tap: Tap | None = getattr(given[0], "tap", None)
        if tap is not None:
            tap(method.__name__, {**dict(zip(names, given[1:], strict=False)), **named})
        method(*given, **named)

    return heard


class FaultCorrelator:
    """Decides when the symptoms of a plane are explained, and keeps the fault list of one fabric true to them."""

    def __init__(self, plan: Plan, times: FaultTimers | None = None, tap: Tap | None = None) -> None:
        self.plan = plan
        self.tap = tap
        self.times = times or FaultTimers()
        self.segmenter = PathSegmenter(plan)
        self._symptoms = SymptomStore(self.times, self._schedule)
        self._paths = PathStats(self.segmenter, trial_s=self.times.trial_s)
        self._directions = DirectionRules(self._symptoms, self._paths, self.times, self._schedule)
        self._attending: set[str] = set()
        """Sources that say of switches and wires whether they work, once something is bad."""
        self._answering: set[str] = set()
        """Switches whose P4Runtime stream is open."""
        self._hold: dict[Switch, float] = {}
        """Switches whose cause ended with links still down, and when we stop waiting for those."""
        self._due: dict[int, float] = {}
        """Time of the next correlation of each plane."""
        self._dead_causes_at: tuple[int, float, frozenset[Cause]] | None = None
        """(plane, now, causes of dead paths) at the last counts: a reading has many of one moment."""
        self._switches = {plane: [s for s in plan.switches if s.plane == plane] for plane in range(plan.planes)}
        self._links_of: dict[str, list[Link]] = {s.name: [] for s in plan.switches}
        for link in plan.links:
            for end in link.ends & self._links_of.keys():
                self._links_of[end].append(link)
        self._fault_list = FaultList(self._links_of, self.times, wait=self._schedule, over=self._suppress_recovering)

    # ---- reports in -------------------------------------------------------------------------------------

    @observation
    def port(self, interface: str, status: str, *, source: str, now: float, t: float | None = None) -> None:
        """`source` says that `interface` has an oper-status, one of PORT_IS_BAD; others count as bad.

        Raises PlanError for an interface the fabric does not have.
        """
        link = self.plan.link_of_interface(interface)
        self._report(source, interface, link, status, PORT_IS_BAD.get(status, True), link.plane, now, t)

    @observation
    def stream(self, switch: str, up: bool, *, says: str = "stream lost", now: float) -> None:
        """The P4Runtime stream of `switch` was lost or is back. Raises PlanError for an unknown switch."""
        cause = self.plan.switch(switch)
        (self._answering.add if up else self._answering.discard)(switch)
        self._report(P4RUNTIME, switch, cause, says, not up, cause.plane, now)

    @observation
    def path(
        self,
        about: str,
        trace: PathSegments,
        state: str,
        *,
        source: str,
        now: float,
        t: float | None = None,
        says: str = "",
    ) -> None:
        """A path is `ok`, `lossy` or `down`, since `t`: a packet came through at `t` unless it is down."""
        t = now if t is None else t
        self._paths.report((source, about), trace, state != "down", t)
        says = says or state
        self._report(source, about, trace, says, state != "ok", trace.plane, now, t, is_lossy=state == "lossy")
        if state == "ok":
            self._schedule(trace.plane, now + self.times.hold_down_port_s)

    @observation
    def counts(
        self,
        about: str,
        trace: PathSegments,
        sent: int,
        lost: int,
        *,
        source: str,
        now: float,
        through_at: float | None = None,
    ) -> None:
        """Packets that a source has sent over a path, and found lost, since it began to count.

        `through_at`: when the last packet that came through was sent, where the source knows.
        """
        if self._dead_causes_at is None or self._dead_causes_at[:2] != (trace.plane, now):
            self._dead_causes_at = (trace.plane, now, self._dead_causes(trace.plane, now))
        dead_causes = self._dead_causes_at[2]
        if source == EV and self._symptoms.is_congested(trace, now):  # data waits behind data; probes do not
            dead_causes = frozenset(self.segmenter.cause(part) for part in trace.parts)
        self._paths.counted((source, about), trace, sent, lost, now=now, through_at=through_at, dead_causes=dead_causes)

    def _dead_causes(self, plane: int, now: float) -> frozenset[Cause]:
        """Causes of dead paths of a plane, those cleared `recover_s` ago included: losses are counted late."""
        faults = [*self._fault_list.active, *self._fault_list.recently_closed(now, self.times.recover_s)]
        return frozenset(c for f in faults if f.plane == plane and f.how is not How.LOSSY for c in f.causes)

    @observation
    def digest(self, interface: str, says: str, *, now: float) -> None:
        """Digest of a switch: a packet met a dead next hop behind `interface`. Confirms a fault; never raises one."""
        try:
            link = self.plan.link_of_interface(interface)
        except ValueError:
            return
        for fault in self._fault_list.active:
            if any(link == cause or (isinstance(cause, Switch) and cause.name in link.ends) for cause in fault.causes):
                self._fault_list.confirm(fault, Symptom(DIGEST, interface, link, says, now, now, now, cleared=now))

    @observation
    def attend(self, source: str, *, now: float) -> None:  # noqa: ARG002 - observations have their time, for replay
        """A source will say of switches and wires whether they work, while some path is bad."""
        self._attending.add(source)

    @observation
    def withdraw(self, about: str, plane: int, *, source: str, now: float) -> None:
        """A source no longer watches a path: the QP is gone, the EV denied."""
        self._paths.drop((source, about), plane)
        if (source, about) in self._symptoms:
            self._symptoms.close((source, about), now)
            self._schedule(plane, now + self.times.hold_down_port_s)

    @observation
    def forget(self, source: str, now: float) -> None:
        """Withdraw all symptoms and paths of a source that is gone."""
        self._symptoms.close_source(source, now)
        self._paths.drop_source(source)
        self._attending.discard(source)
        for plane in self._switches:
            self._schedule(plane, now)

    @observation
    def full_queue(self, interface: str, *, now: float) -> None:
        """Tail drops of the queue behind `interface`: congestion. Suppresses EV symptoms of paths through it."""
        link = self.plan.link_of_interface(interface)
        self._symptoms.on_full_queue(interface, now)
        self._schedule(link.plane, now + self.times.hold_down_port_s)

    @property
    def planes_with_symptoms(self) -> set[int]:
        """Planes in which some path is bad."""
        return {s.plane for s in self._symptoms if not s.is_certain}

    @property
    def has_path_symptoms(self) -> bool:
        """Whether some path is bad, so that readings of the others are wanted soon."""
        return any(not s.is_certain for s in self._symptoms)

    # ---- restart --------------------------------------------------------------------------------

    @observation
    def restore(self, records: list[dict[str, Any]], now: float, confirm_s: float) -> None:
        """Faults as an earlier controller kept them. Those still active are over unless seen within `confirm_s`."""
        self._fault_list.restore(records, self.segmenter, now + confirm_s)

    @observation
    def confirm_by(self, due: float, *, now: float) -> None:
        """All sources answer now: remembered faults that nobody sees by `due` are over."""
        self._fault_list.confirm_by(max(due, now))

    # ---- time -------------------------------------------------------------------------------------------

    @observation
    def on_timer(self, now: float) -> None:
        """Run everything whose hold-down has expired; call it at next_timer()."""
        for switch in [s for s, until in self._hold.items() if until <= now]:
            del self._hold[switch]
            self._explain(switch.plane, now, may_hold=False)
        for plane in [p for p, due in self._due.items() if due <= now]:
            self._explain(plane, now)
        for plane in self._fault_list.planes_due(now):
            self._explain(plane, now)
        self._fault_list.waited(now)

    def next_timer(self) -> float | None:
        """Time of the next on_timer() call, seconds, or None."""
        of_faults = self._fault_list.next_timer()
        waits = [*self._hold.values(), *self._due.values(), *([of_faults] if of_faults is not None else [])]
        return min(waits, default=None)

    # ---- faults out -------------------------------------------------------------------------------------

    def changes(self) -> list[tuple[str, Fault]]:
        """(`raised`, `updated`, `cleared` or `merged`; fault) since the last call, in order."""
        return self._fault_list.changes()

    def active(self) -> list[Fault]:
        """Active faults, oldest first."""
        return sorted(self._fault_list.active, key=lambda fault: fault.number)

    def all(self) -> list[Fault]:
        """Active and closed faults, oldest first; not the merged ones, whose evidence is in the bigger faults."""
        closed = [fault for fault in self._fault_list.closed if fault.state is not FaultState.MERGED]
        return sorted((*closed, *self._fault_list.active), key=lambda fault: fault.number)

    # ---- symptoms --------------------------------------------------------------------------------------

    def _report(
        self,
        source: str,
        about: str,
        subject: Cause | PathSegments,
        says: str,
        bad: bool,
        plane: int,
        now: float,
        t: float | None = None,
        is_lossy: bool = False,
    ) -> None:
        key = (source, about)
        known = self._symptoms.get(key)
        is_certain = not isinstance(subject, PathSegments)
        t = now if t is None else min(t, now)
        if bad and known is not None and known.is_lossy and not is_lossy:
            self._symptoms.close(key, now)  # that it is dead now is another thing, with a cause of its own maybe
            known = None
        if bad and known is not None:
            known.says, known.last_seen, known.is_lossy = says, max(known.last_seen, t), is_lossy
            if not is_certain:
                self._schedule(plane, now + self.times.hold_down_path_s)
        elif bad:
            symptom = Symptom(source, about, subject, says, t, t, now, is_lossy=is_lossy)
            self._suppress_late_symptom(symptom)
            self._symptoms.open(symptom, now)
            self._schedule(plane, now + self._symptoms.hold_down_s(symptom))
        elif known is not None:
            if not is_certain:
                self._symptoms.close(key, now)
                self._schedule(plane, now + self.times.hold_down_port_s)
                return
            if not known.attributed:  # over before it was reported: it happened all the same
                self._symptoms.end_hold_down(plane)
                self._explain(plane, now)
            self._symptoms.close(key, now)
            self._explain(plane, now)

    def _suppress_late_symptom(self, symptom: Symptom) -> None:
        """Design note 3: it began while a fault was active that has been cleared since."""
        for fault in self._fault_list.recently_closed(symptom.heard, self.times.suppress_s):
            if fault.state is FaultState.CLEARED and fault.cleared is not None:
                began_before = symptom.since <= fault.cleared + self.times.hold_down_path_s
                if began_before and symptom.is_over(fault.causes):
                    hard = fault.how is How.DOWN
                    symptom.suppressed_until = fault.cleared + (
                        self.times.suppress_s if hard else 2 * self.times.recover_s
                    )

    def _schedule(self, plane: int, due: float) -> None:
        self._due[plane] = min(due, self._due.get(plane, due))

    # ---- explaining -------------------------------------------------------------------------------------

    def _explain(self, plane: int, now: float, *, may_hold: bool = True) -> None:
        """Diagnose the open symptoms of a plane and reconcile the fault list with the findings."""
        self._due.pop(plane, None)
        certain, paths = self._symptoms.of_plane(plane)
        seen = self._symptoms.past_hold_down(certain, now)
        paths = [s for s in paths if not self._symptoms.is_suppressed(s, now)]
        found = self._port_findings(plane, seen, now, may_hold)
        causes = frozenset(cause for finding, _ in found for cause in finding.causes)
        paths = self._without_recovering(plane, paths, causes, now)
        for finding, symptoms in found:
            symptoms += [s for s in paths if s.is_over(finding.causes)]
        rest = [s for s in paths if not s.is_over(causes)]
        past = self._symptoms.past_hold_down(rest, now)
        is_probe_pending = len(past) < len(rest) and any(s.source != EV and not s.attributed for s in rest)
        found += self._path_findings(plane, past, is_probe_pending, now)
        self._fault_list.reconcile(plane, found, now)

    def _without_recovering(
        self, plane: int, paths: list[Symptom], causes: frozenset[Cause], now: float
    ) -> list[Symptom]:
        """Design note 3, for ports and streams that have recovered: suppress the symptoms of paths they had killed."""
        over = [f for f in self._fault_list.of(plane) if f.how is How.DOWN and not f.causes & causes]
        for symptom in paths:
            if symptom.attributed and any(symptom.is_over(fault.causes) for fault in over):
                symptom.suppressed_until = now + self.times.suppress_s
        return [s for s in paths if not self._symptoms.is_suppressed(s, now)]

    def _port_findings(self, plane: int, seen: list[Symptom], now: float, may_hold: bool) -> Found:
        by_cause: dict[Hashable, list[Symptom]] = {}
        for symptom in seen:
            by_cause.setdefault(symptom.subject, []).append(symptom)
        down = {k: min(s.since for s in seen) for k, seen in by_cause.items() if isinstance(k, Link)}
        lost = [k for k in by_cause if isinstance(k, Switch)]
        answering = frozenset(s for s in self._switches[plane] if s.name in self._answering)
        findings = explain_ports(
            self._switches[plane], lambda s: self._links_of[s.name], down, lost, answering, self.times.together_s
        )
        guilty = {c for finding in findings for c in finding.causes if isinstance(c, Switch)}
        for switch in [s for s in self._hold if s in guilty]:
            del self._hold[switch]
        if may_hold:
            self._hold_returning(plane, guilty, down, now)
        held = [s for s in self._hold if s.plane == plane]
        if held:
            covered = {link for switch in held for link in self._links_of[switch.name]}
            findings = [f for f in findings if not f.causes <= covered]
            findings += [
                Finding(How.DOWN, ((s,),), (s, *(k for k in self._links_of[s.name] if k in down))) for s in held
            ]
        return [(f, [s for report in f.reports for s in by_cause.get(report, [])]) for f in findings]

    def _hold_returning(self, plane: int, guilty: set[Switch], down: dict[Link, float], now: float) -> None:
        """Design note 2: start to wait for returning switches, stop for those that are back entirely."""
        certain = {f.certain_cause for f in self._fault_list.active if f.how is How.DOWN}
        names = {s.name for s in guilty}
        for switch in self._switches[plane]:
            waits_for = [k for k in self._links_of[switch.name] if k in down]
            if not waits_for:
                self._hold.pop(switch, None)
                continue
            is_returning = switch in certain and switch not in guilty and switch not in self._hold
            if is_returning and not all(link.ends & names for link in waits_for):
                self._hold[switch] = now + self.times.settle_s

    def _path_findings(self, plane: int, symptoms: list[Symptom], is_probe_pending: bool, now: float) -> Found:
        """Findings about paths that no port explains.

        Paths of a fault that clears recover one after the other, and the slower ones are waited for; unless the fault
        was a wrong guess, and the symptoms of other paths explain all of them. While a prober's verdict is pending
        (`is_probe_pending`), no fault clears.
        """
        found = self._weigh(plane, symptoms, now)
        causes = frozenset(cause for finding, _ in found for cause in finding.causes)
        over = [f for f in self._fault_list.of(plane) if f.how is not How.DOWN and not f.causes & causes]
        slow = [s for s in symptoms if s.attributed and any(s in fault.symptoms for fault in over)]
        if not slow:
            return found
        if is_probe_pending:
            found = self._weigh(plane, [s for s in symptoms if s not in slow], now)
            for fault in over:
                mine = [s for s in slow if s in fault.symptoms]
                if mine:
                    found.append((Finding(fault.how, fault.explanations, ()), mine))
            return found
        for symptom in slow:
            symptom.suppressed_until = now + self.times.recover_s
        found = self._weigh(plane, [s for s in symptoms if not self._symptoms.is_suppressed(s, now)], now)
        causes = frozenset(cause for finding, _ in found for cause in finding.causes)
        if all(s.is_over(causes) for s in slow):
            for symptom in slow:
                symptom.suppressed_until = now
            for finding, mine in found:
                mine += [s for s in slow if s.is_over(finding.causes)]
        return found

    def _weigh(self, plane: int, symptoms: list[Symptom], now: float) -> Found:
        by_key: dict[Hashable, Symptom] = {(s.source, s.about): s for s in symptoms}
        dead, surviving = self._dead(plane, by_key, now)
        proofs = self._paths.proofs(plane)
        died = {key: self._died(by_key[key]) for key in dead}
        findings, leftover = explain_dead_paths(
            self.segmenter,
            dead,
            lambda key, part: proofs.get(part, NEVER) > died[key],
            lambda key, link: self._directions.is_evidence(by_key[key], link, now),
            bool(self._attending),
        )
        findings = [self._directions.of_dead_paths(finding, by_key, now) for finding in findings]
        if early := {key for finding in findings for key in self._premature(plane, finding, findings, by_key, now)}:
            self._schedule(plane, now + self.times.hold_down_port_s)
            return self._weigh(plane, [s for key, s in by_key.items() if key not in early], now)
        causes = frozenset(cause for finding in findings for cause in finding.causes)
        met: dict[int, list[Hashable]] = {}
        losing = [*leftover, *surviving]
        for key, symptom in by_key.items():
            if not symptom.is_lossy:
                continue
            if not symptom.is_over(causes):
                losing.append(key)
            for finding in findings:
                if symptom.is_over(finding.causes):
                    met.setdefault(id(finding), []).append(key)
        found = [(f, [by_key[key] for key in (*f.reports, *met.get(id(f), []))]) for f in findings]
        losing = self._credible(plane, losing, by_key, now)
        if losing:
            trials = {
                key: trial
                for key, trial in self._paths.trials(plane, now).items()
                if not self._paths.crosses(trial.trace, causes) and (key in losing or self._forwards(key, plane))
            }
            known = frozenset(c for f in self._fault_list.of(plane) if f.how is How.LOSSY for c in f.causes)
            losses, unexplained = explain_losses(self.segmenter, trials, losing, _is_of_mapper, known)
            faults = self._fault_list.of(plane)
            losses = [self._directions.of_losses(finding, faults, now) for finding in losses]
            found += [(f, [by_key[key] for key in f.reports]) for f in losses]
            is_open = any(len(f.causes) > 1 or not f.arcs for f in losses)
            if unexplained or is_open:
                self._schedule(plane, now + self.times.hold_down_lossy_s)
        return found

    def _forwards(self, key: Hashable, plane: int) -> bool:
        path = self._paths.get(key, plane) if isinstance(key, tuple) else None
        return path is not None and path.forwards

    def _is_new_to(self, finding: Finding, symptom: Symptom) -> bool:
        """Whether the symptom belongs to no fault, or only to a fault elsewhere that survives without it."""
        homes = [f for f in self._fault_list.of(symptom.plane) if any(s is symptom for s in f.symptoms)]
        if not symptom.attributed or not homes:
            return not symptom.attributed
        return not any(home.causes & finding.causes or len(home.symptoms) == 1 for home in homes)

    def _died(self, symptom: Symptom) -> float:
        """Time by which a path was dead for good: its first loss may have been chance, or another fault.

        Over something that loses packets a few in a row may have been lost before it died.
        """
        if symptom.source != MAPPER:
            return symptom.since
        died = symptom.since + self.times.dying_s
        path = self._paths.get((MAPPER, symptom.about), symptom.plane)
        if path is None or not self._is_beside_losses(symptom):
            return died
        return max(died, path.proven_at + self.times.dying_lossy_s)

    def _is_beside_losses(self, symptom: Symptom) -> bool:
        """Whether it shares a part with a prober's path that is bad and that a packet has come through since."""
        assert isinstance(symptom.subject, PathSegments)
        arcs = set(symptom.subject.arcs)
        for other in self._symptoms:
            if other.source != MAPPER or not isinstance(other.subject, PathSegments):
                continue
            if not arcs.isdisjoint(other.subject.arcs):
                path = self._paths.get((other.source, other.about), symptom.plane)
                if other.is_lossy or (path is not None and path.proven_at > other.since):
                    return True
        return False

    def _premature(
        self, plane: int, finding: Finding, findings: list[Finding], by_key: dict[Hashable, Symptom], now: float
    ) -> list[Hashable]:
        """Design note 8: new symptoms that this would explain while a prober has not reported, or disagrees."""
        new = [key for key in finding.reports if self._is_new_to(finding, by_key[key])]
        if not any(now < by_key[key].heard + self.times.witness_s for key in new):
            return []
        elsewhere = {key for one in findings if one is not finding for key in one.reports}
        alone = [key for key in finding.reports if key not in elsewhere]
        if all(by_key[key].source == EV for key in alone or finding.reports):
            return new if self._paths.is_watched(plane, finding.causes, sources=WITNESSES) else []
        died = max(self._died(by_key[key]) for key in finding.reports)
        return new if self._paths.is_unheard(plane, finding.causes, died, sources=WITNESSES) else []

    def _dead(
        self, plane: int, by_key: dict[Hashable, Symptom], now: float
    ) -> tuple[dict[Hashable, PathSegments], list[Hashable]]:
        """Dead paths, and paths reported dead that a packet has come through since."""
        dead: dict[Hashable, PathSegments] = {}
        surviving: list[Hashable] = []
        for key, symptom in by_key.items():
            assert isinstance(symptom.subject, PathSegments)
            if symptom.is_lossy:
                continue
            is_known_lossy = self._is_known_lossy(symptom)
            path = self._paths.get((symptom.source, symptom.about), plane)
            fate = PathFate.UNCOUNTED
            if path is not None and symptom.source != EV:
                is_loss_near = is_known_lossy or (symptom.source == MAPPER and self._is_beside_losses(symptom))
                fate = path.fate(is_loss_near)
            waited = symptom.attributed or now >= symptom.heard + self.times.judge_s
            if fate is PathFate.SURVIVES or (fate is PathFate.UNCOUNTED and is_known_lossy):
                surviving.append(key)
            elif fate is PathFate.OPEN and not waited:
                self._schedule(plane, now + self.times.hold_down_port_s)
            else:
                dead[key] = symptom.subject
        return dead, surviving

    def _credible(
        self, plane: int, losing: list[Hashable], by_key: dict[Hashable, Symptom], now: float
    ) -> list[Hashable]:
        """Losing paths but those that EVs alone report, until `ev_lossy_s` later: a prober would see them, too."""
        if not self._paths.has_source(MAPPER, plane) or any(by_key[key].source != EV for key in losing):
            return losing
        credible_from = now - self.times.ev_lossy_s
        out = [key for key in losing if by_key[key].heard <= credible_from or self._is_known_lossy(by_key[key])]
        if len(out) < len(losing):
            self._schedule(plane, now + self.times.hold_down_lossy_s)
        return out

    def _is_known_lossy(self, symptom: Symptom) -> bool:
        """Whether it crosses a known lossy cause, which may lose a few packets in a row."""
        losing = [f for f in self._fault_list.of(symptom.plane) if f.how is How.LOSSY]
        return any(symptom.is_over(fault.causes) for fault in losing)

    def _suppress_recovering(self, fault: Fault, now: float) -> None:
        """Design note 3: suppress the symptoms of paths that a cleared fault had killed: they recover later."""
        suppress_s = self.times.suppress_s if fault.how is How.DOWN else 2 * self.times.recover_s
        self._symptoms.suppress(fault.causes, now + suppress_s)
        self._paths.forget_counts(fault.plane, fault.causes)


def _is_of_mapper(path: Hashable) -> bool:
    """Whether Clustermapper sends the packets of a path."""
    return isinstance(path, tuple) and path[0] == MAPPER
