"""The fault list: reports of all sources in, faults with a location out.

Pure: no clock, no I/O; `now` (CLOCK_MONOTONIC seconds) comes in with every call, and `t` where a source has its own
time of the event. After each call drain `changes()` and re-arm at `next_timer()`.

A report opens, renews or closes a *sighting* (one source saying that one thing is bad). After a moment's waiting the
open sightings of a plane are explained afresh, by few causes (diagnosis.py), and the list is brought into line. The
numbered design notes that comments name are in docs/design/fault-correlation.md.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, ParamSpec

from controller.faults.diagnosis import Finding, How, hard, lossy, silent
from controller.faults.fault_list import FaultList, Found
from controller.faults.fault_model import (
    COUNTERS,
    DIGEST,
    EV,
    MAPPER,
    P4RUNTIME,
    PORT_IS_BAD,
    Fault,
    FaultState,
    Symptom,
    is_nic,
)
from controller.faults.path_segments import Cause, PathSegmenter, PathSegments
from controller.faults.path_stats import NEVER, PathFate, PathStats
from controller.faults.timers import FaultTimers
from topologies.plan import Link, Plan, Switch

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
        tap = given[0].tap  # type: ignore[attr-defined]
        if tap is not None:
            tap(method.__name__, {**dict(zip(names, given[1:], strict=False)), **named})
        method(*given, **named)

    return heard


class FaultCorrelator:
    """Active and past faults of one fabric."""

    def __init__(self, plan: Plan, times: FaultTimers | None = None, tap: Tap | None = None) -> None:
        self.plan = plan
        self.tap = tap
        self.times = times or FaultTimers()
        self.traces = PathSegmenter(plan)
        self._open: dict[tuple[str, str], Symptom] = {}
        """What is reported bad now, by (source, about)."""
        self._paths = PathStats(self.traces, trial_s=self.times.trial_s)
        self._attending: set[str] = set()
        """Sources that say of switches and wires whether they work, once something is bad."""
        self._answering: set[str] = set()
        """Switches whose P4Runtime stream is open."""
        self._congested: dict[str, float] = {}
        """When the queue behind an interface was last full, as far as told."""
        self._hold: dict[Switch, float] = {}
        """Switches whose cause ended with links still down, and when we stop waiting for those."""
        self._due: dict[int, float] = {}
        """When a plane wants to be explained again."""
        self._killing: tuple[int, float, frozenset[Cause]] | None = None
        """(plane, now, what has killed whole paths) of the last counts; a reading has many of one moment."""
        self._switches = {plane: [s for s in plan.switches if s.plane == plane] for plane in range(plan.planes)}
        self._links_of: dict[str, list[Link]] = {s.name: [] for s in plan.switches}
        for link in plan.links:
            for end in link.ends & self._links_of.keys():
                self._links_of[end].append(link)
        self._ledger = FaultList(self._links_of, self.times, wait=self._want, over=self._excuse)

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
        self._paths.told((source, about), trace, state != "down", t)
        says = says or state
        self._report(source, about, trace, says, state != "ok", trace.plane, now, t, is_lossy=state == "lossy")
        if state == "ok":
            self._want(trace.plane, now + self.times.gather_hard_s)

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
        """How many packets a source has sent over a path, and found lost, since it began to count.

        `through_at`: when the last packet that came through was sent, where the source knows.
        """
        if self._killing is None or self._killing[:2] != (trace.plane, now):
            self._killing = (trace.plane, now, self._killers(trace.plane, now))
        killers = self._killing[2]
        if source == EV and self._is_congested(trace, now):  # data waits behind data; probes do not
            killers = frozenset(self.traces.cause(part) for part in trace.parts)
        self._paths.counted((source, about), trace, sent, lost, now=now, through_at=through_at, killers=killers)

    def _killers(self, plane: int, now: float) -> frozenset[Cause]:
        """What has killed whole paths of a plane, until a little while ago: losses are counted late."""
        faults = [*self._ledger.active, *self._ledger.lately(now, self.times.recover_s)]
        return frozenset(c for f in faults if f.plane == plane and f.how is not How.LOSSY for c in f.causes)

    @observation
    def digest(self, interface: str, says: str, *, now: float) -> None:
        """A switch told that a packet met a dead next hop behind `interface`. Confirms; never accuses by itself."""
        try:
            link = self.plan.link_of_interface(interface)
        except ValueError:
            return
        for fault in self._ledger.active:
            if any(link == cause or (isinstance(cause, Switch) and cause.name in link.ends) for cause in fault.causes):
                self._ledger.confirm(fault, Symptom(DIGEST, interface, link, says, now, now, now, cleared=now))

    @observation
    def attend(self, source: str, *, now: float) -> None:
        """A source will say of switches and wires whether they work, while some path is bad."""
        self._attending.add(source)

    @observation
    def withdraw(self, about: str, plane: int, *, source: str, now: float) -> None:
        """A source has nothing to say about a path any more, good or bad: the QP is gone, the EV denied."""
        self._paths.drop((source, about), plane)
        if (source, about) in self._open:
            self._close_sighting((source, about), now)
            self._want(plane, now + self.times.gather_hard_s)

    @observation
    def forget(self, source: str, now: float) -> None:
        """A source is gone for good: what it said is withdrawn."""
        for key in [key for key in self._open if key[0] == source]:
            self._close_sighting(key, now)
        self._paths.drop_source(source)
        self._attending.discard(source)
        for plane in self._switches:
            self._want(plane, now)

    @observation
    def full_queue(self, interface: str, *, now: float) -> None:
        """A switch dropped packets because the queue behind `interface` was full: congestion, not a fault."""
        link = self.plan.link_of_interface(interface)
        self._congested[interface] = now
        for sighting in self._open.values():
            if (
                sighting.source == EV
                and isinstance(sighting.subject, PathSegments)
                and interface in sighting.subject.arcs
            ):
                sighting.excused_until = max(sighting.excused_until, now + self.times.congested_s)
        self._want(link.plane, now + self.times.gather_hard_s)

    def _is_congested(self, trace: PathSegments, now: float) -> bool:
        recent = {arc for arc, at in self._congested.items() if now - at < self.times.congested_s}
        return not recent.isdisjoint(trace.arcs)

    @property
    def puzzled_planes(self) -> set[int]:
        """Planes in which some path is bad."""
        return {s.plane for s in self._open.values() if isinstance(s.subject, PathSegments)}

    @property
    def is_puzzled(self) -> bool:
        """Some path is bad, and what the others are like is worth knowing soon."""
        return any(isinstance(s.subject, PathSegments) for s in self._open.values())

    # ---- an earlier life --------------------------------------------------------------------------------

    @observation
    def restore(self, records: list[dict[str, Any]], now: float, confirm_s: float) -> None:
        """Faults as an earlier controller kept them. Those still active are over unless seen within `confirm_s`."""
        self._ledger.restore(records, self.traces, now + confirm_s)

    @observation
    def confirm_by(self, due: float, *, now: float) -> None:
        """All sources answer now: remembered faults that nobody sees by `due` are over."""
        self._ledger.confirm_by(max(due, now))

    # ---- time -------------------------------------------------------------------------------------------

    @observation
    def on_timer(self, now: float) -> None:
        """What has been waited for long enough; call it at next_timer()."""
        for switch in [s for s, until in self._hold.items() if until <= now]:
            del self._hold[switch]
            self._explain(switch.plane, now, may_hold=False)
        for plane in [p for p, due in self._due.items() if due <= now]:
            self._explain(plane, now)
        for plane in self._ledger.planes_due(now):
            self._explain(plane, now)
        self._ledger.waited(now)

    def next_timer(self) -> float | None:
        """When on_timer() wants to be called, seconds; None when not at all."""
        of_faults = self._ledger.next_timer()
        waits = [*self._hold.values(), *self._due.values(), *([of_faults] if of_faults is not None else [])]
        return min(waits, default=None)

    # ---- faults out -------------------------------------------------------------------------------------

    def changes(self) -> list[tuple[str, Fault]]:
        """(`raised`, `updated`, `cleared` or `merged`; fault) since the last call, in order."""
        return self._ledger.changes()

    def active(self) -> list[Fault]:
        """Active faults, oldest first."""
        return sorted(self._ledger.active, key=lambda fault: fault.number)

    def all(self) -> list[Fault]:
        """Active and closed faults, oldest first; not the merged ones, whose evidence is in the bigger faults."""
        closed = [fault for fault in self._ledger.closed if fault.state is not FaultState.MERGED]
        return sorted((*closed, *self._ledger.active), key=lambda fault: fault.number)

    # ---- sightings --------------------------------------------------------------------------------------

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
        known = self._open.get(key)
        t = now if t is None else min(t, now)
        if bad and known is not None and known.is_lossy and not is_lossy:
            self._close_sighting(key, now)  # that it is dead now is another thing, with a cause of its own maybe
            known = None
        if bad and known is not None:
            known.says, known.last_seen, known.is_lossy = says, max(known.last_seen, t), is_lossy
            if isinstance(subject, PathSegments):
                self._want(plane, now + self.times.gather_path_s)
            return
        if bad:
            sighting = Symptom(source, about, subject, says, t, t, now, is_lossy=is_lossy)
            self._open[key] = sighting
            self._excuse_latecomer(sighting)
            if source == EV and isinstance(subject, PathSegments) and self._is_congested(subject, now):
                sighting.excused_until = max(sighting.excused_until, now + self.times.congested_s)
            self._want(plane, now + self._gather_s(sighting))
        elif known is not None:
            is_certain = not isinstance(subject, PathSegments)
            if is_certain and not known.told:  # over before it was told: it happened all the same
                self._ripen(plane)
                self._explain(plane, now)
            self._close_sighting(key, now)
            if is_certain:
                self._explain(plane, now)
            else:
                self._want(plane, now + self.times.gather_hard_s)

    def _ripen(self, plane: int) -> None:
        """Do not wait for more reports of ports and streams."""
        for sighting in self._open.values():
            if sighting.plane == plane and not isinstance(sighting.subject, PathSegments):
                sighting.heard = min(sighting.heard, sighting.heard - self.times.gather_hard_s)

    def _close_sighting(self, key: tuple[str, str], now: float) -> None:
        self._open.pop(key).cleared = now

    def _gather_s(self, sighting: Symptom) -> float:
        if not isinstance(sighting.subject, PathSegments):
            return self.times.gather_hard_s
        if sighting.is_lossy:
            return self.times.gather_lossy_s
        return self.times.gather_ev_s if sighting.source == EV else self.times.gather_path_s

    def _is_unripe(self, sighting: Symptom, now: float) -> bool:
        """It is new, and others may come that belong to it."""
        return not sighting.told and now < sighting.heard + self._gather_s(sighting) - 1e-6

    def _excuse_latecomer(self, sighting: Symptom) -> None:
        """Design note 3: it began while a fault was active that is over by now."""
        for fault in self._ledger.lately(sighting.heard, self.times.excused_s):
            if fault.state is FaultState.CLEARED:
                began_before = sighting.since <= fault.cleared + self.times.gather_path_s
                if began_before and self._is_over(sighting, fault.causes):
                    hard = fault.how is How.DOWN
                    sighting.excused_until = fault.cleared + (
                        self.times.excused_s if hard else 2 * self.times.recover_s
                    )

    def _is_over(self, sighting: Symptom, causes: frozenset[Cause]) -> bool:
        """It tells of a path, and the path leads over one of the causes."""
        return isinstance(sighting.subject, PathSegments) and self._paths.crosses(sighting.subject, causes)

    def _want(self, plane: int, due: float) -> None:
        self._due[plane] = min(due, self._due.get(plane, due))

    # ---- explaining -------------------------------------------------------------------------------------

    def _explain(self, plane: int, now: float, *, may_hold: bool = True) -> None:
        """Find the causes of a plane's open sightings and bring the fault list into line with them."""
        self._due.pop(plane, None)
        mine = [s for s in self._open.values() if s.plane == plane]
        seen = self._ripe([s for s in mine if not isinstance(s.subject, PathSegments)], now)
        paths = [s for s in mine if isinstance(s.subject, PathSegments) and not self._is_excused(s, now)]
        found = self._hard_findings(plane, seen, now, may_hold)
        causes = frozenset(cause for finding, _ in found for cause in finding.causes)
        paths = self._without_afterglow(plane, paths, causes, now)
        for finding, sightings in found:
            sightings += [s for s in paths if self._is_over(s, finding.causes)]
        rest = [s for s in paths if not self._is_over(s, causes)]
        ripe = self._ripe(rest, now)
        is_word_due = len(ripe) < len(rest) and any(s.source != EV and not s.told for s in rest)
        found += self._path_findings(plane, ripe, is_word_due, now)
        self._ledger.line_up(plane, found, now)

    def _ripe(self, sightings: list[Symptom], now: float) -> list[Symptom]:
        """Old enough to be explained; one that is makes all of its kind so, for they belong together."""
        new = [s for s in sightings if not s.told]
        unripe = [s for s in new if self._is_unripe(s, now)]
        if len(unripe) < len(new) or not unripe:
            return sightings
        self._want(unripe[0].plane, min(s.heard + self._gather_s(s) for s in unripe))
        return [s for s in sightings if s.told]

    def _is_excused(self, sighting: Symptom, now: float) -> bool:
        if now < sighting.excused_until:
            self._want(sighting.plane, sighting.excused_until)
            return True
        return False

    def _without_afterglow(
        self, plane: int, paths: list[Symptom], causes: frozenset[Cause], now: float
    ) -> list[Symptom]:
        """Design note 3, for ports and streams that are well again: the paths they had killed are excused."""
        over = [f for f in self._ledger.of(plane) if f.how is How.DOWN and not f.causes & causes]
        for sighting in paths:
            if sighting.told and any(self._is_over(sighting, fault.causes) for fault in over):
                sighting.excused_until = now + self.times.excused_s
        return [s for s in paths if not self._is_excused(s, now)]

    def _hard_findings(self, plane: int, seen: list[Symptom], now: float, may_hold: bool) -> Found:
        by_cause: dict[Hashable, list[Symptom]] = {}
        for sighting in seen:
            by_cause.setdefault(sighting.subject, []).append(sighting)
        down = {k: min(s.since for s in seen) for k, seen in by_cause.items() if isinstance(k, Link)}
        lost = [k for k in by_cause if isinstance(k, Switch)]
        answering = frozenset(s for s in self._switches[plane] if s.name in self._answering)
        findings = hard(
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
        certain = {f.certain_cause for f in self._ledger.active if f.how is How.DOWN}
        names = {s.name for s in guilty}
        for switch in self._switches[plane]:
            waits_for = [k for k in self._links_of[switch.name] if k in down]
            if not waits_for:
                self._hold.pop(switch, None)
                continue
            is_returning = switch in certain and switch not in guilty and switch not in self._hold
            if is_returning and not all(link.ends & names for link in waits_for):
                self._hold[switch] = now + self.times.settle_s

    def _path_findings(self, plane: int, sightings: list[Symptom], is_word_due: bool, now: float) -> Found:
        """What is wrong with paths that no port explains.

        Of a fault that goes, the slower ones are waited for; unless it was a wrong guess, and what others than its own
        paths say explains all of them. While a prober's word is due (`is_word_due`), no fault goes.
        """
        found = self._weigh(plane, sightings, now)
        causes = frozenset(cause for finding, _ in found for cause in finding.causes)
        over = [f for f in self._ledger.of(plane) if f.how is not How.DOWN and not f.causes & causes]
        slow = [s for s in sightings if s.told and any(s in fault.sightings for fault in over)]
        if not slow:
            return found
        if is_word_due:
            found = self._weigh(plane, [s for s in sightings if s not in slow], now)
            for fault in over:
                mine = [s for s in slow if s in fault.sightings]
                if mine:
                    found.append((Finding(fault.how, fault.explanations, ()), mine))
            return found
        for sighting in slow:
            sighting.excused_until = now + self.times.recover_s
        found = self._weigh(plane, [s for s in sightings if not self._is_excused(s, now)], now)
        causes = frozenset(cause for finding, _ in found for cause in finding.causes)
        if all(self._is_over(s, causes) for s in slow):
            for sighting in slow:
                sighting.excused_until = now
            for finding, mine in found:
                mine += [s for s in slow if self._is_over(s, finding.causes)]
        return found

    def _weigh(self, plane: int, sightings: list[Symptom], now: float) -> Found:
        by_key: dict[Hashable, Symptom] = {(s.source, s.about): s for s in sightings}
        dead, surviving = self._dead(plane, by_key, now)
        proofs = self._paths.proofs(plane)
        died = {key: self._died(by_key[key]) for key in dead}
        findings, leftover = silent(
            self.traces,
            dead,
            lambda key, part: proofs.get(part, NEVER) > died[key],
            lambda key, link: self._tells_direction(by_key[key], link, now),
            bool(self._attending),
        )
        findings = [self._with_sure_direction(finding, by_key, now) for finding in findings]
        if early := {key for finding in findings for key in self._early(plane, finding, findings, by_key, now)}:
            self._want(plane, now + self.times.gather_hard_s)
            return self._weigh(plane, [s for key, s in by_key.items() if key not in early], now)
        causes = frozenset(cause for finding in findings for cause in finding.causes)
        met: dict[int, list[Hashable]] = {}
        losing = [*leftover, *surviving]
        for key, sighting in by_key.items():
            if not sighting.is_lossy:
                continue
            if not self._is_over(sighting, causes):
                losing.append(key)
            for finding in findings:
                if self._is_over(sighting, finding.causes):
                    met.setdefault(id(finding), []).append(key)
        found = [(f, [by_key[key] for key in (*f.reports, *met.get(id(f), []))]) for f in findings]
        losing = self._believed(plane, losing, by_key, now)
        if losing:
            trials = {
                key: trial
                for key, trial in self._paths.trials(plane, now).items()
                if not self._paths.crosses(trial.trace, causes) and (key in losing or self._forwards(key, plane))
            }
            known = frozenset(c for f in self._ledger.of(plane) if f.how is How.LOSSY for c in f.causes)
            losses, unexplained = lossy(self.traces, trials, losing, lambda key: key[0] == MAPPER, known)
            losses = [self._with_settled_direction(finding, plane, now) for finding in losses]
            found += [(f, [by_key[key] for key in f.reports]) for f in losses]
            is_open = any(len(f.causes) > 1 or not f.arcs for f in losses)
            if unexplained or is_open:
                self._want(plane, now + self.times.gather_lossy_s)
        return found

    def _forwards(self, key: Hashable, plane: int) -> bool:
        path = self._paths.get(key, plane)  # type: ignore[arg-type]
        return path is not None and path.forwards

    def _with_sure_direction(self, finding: Finding, by_key: dict[Hashable, Symptom], now: float) -> Finding:
        """EVs tell a direction only of a link that others know to be dead: one that loses much keeps them bad, too."""
        others = [by_key[key] for key in finding.reports if by_key[key].source != EV]
        if finding.arcs and not any(self._is_surely_dead(sighting, now) for sighting in others):
            return replace(finding, arcs=frozenset())
        return finding

    def _with_settled_direction(self, finding: Finding, plane: int, now: float) -> Finding:
        """Of a loss the direction is told when another losing link, which the loops may cross, would have its name."""
        old = [f for f in self._ledger.of(plane) if now - f.raised >= self.times.lossy_direction_s]
        return finding if any(f.causes == finding.causes for f in old) else replace(finding, arcs=frozenset())

    def _is_new_to(self, finding: Finding, sighting: Symptom) -> bool:
        """Not told yet, or as part of a fault at another place that others tell of, too."""
        homes = [f for f in self._ledger.of(sighting.plane) if any(s is sighting for s in f.sightings)]
        if not sighting.told or not homes:
            return not sighting.told
        return not any(home.causes & finding.causes or len(home.sightings) == 1 for home in homes)

    def _died(self, sighting: Symptom) -> float:
        """By when a path was dead for good: its first loss may have been chance, or another fault.

        Over something that loses packets a few in a row may have been lost before it died.
        """
        if sighting.source != MAPPER:
            return sighting.since
        died = sighting.since + self.times.dying_s
        path = self._paths.get((MAPPER, sighting.about), sighting.plane)
        if path is None or not self._is_beside_losses(sighting):
            return died
        return max(died, path.proven_at + self.times.dying_lossy_s)

    def _is_beside_losses(self, sighting: Symptom) -> bool:
        """A prober's path that is bad, and that something came through since, has a part in common with it."""
        assert isinstance(sighting.subject, PathSegments)
        arcs = set(sighting.subject.arcs)
        for (source, about), other in self._open.items():
            if source == MAPPER and isinstance(other.subject, PathSegments) and not arcs.isdisjoint(other.subject.arcs):
                path = self._paths.get((source, about), sighting.plane)
                if other.is_lossy or (path is not None and path.proven_at > other.since):
                    return True
        return False

    def _tells_direction(self, sighting: Symptom, link: Link, now: float) -> bool:
        """It is dead, and no chance. EVs are asked of NIC links alone where loops and counters tell of the others.

        An EV that loses packets elsewhere stays bad for long although its path forwards: what else it crosses has to
        be known to lose nothing.
        """
        if sighting.source == EV and self._paths.has_source(MAPPER, link.plane):
            assert isinstance(sighting.subject, PathSegments)
            own = self.traces.arcs(link)
            others = [arc for arc in sighting.subject.arcs if arc not in own]
            if not is_nic(link) or not self._paths.lose_nothing(link.plane, others, link, now, source=MAPPER):
                return False
        return not self._is_dead_before(sighting, link) and self._is_surely_dead(sighting, now)

    def _is_dead_before(self, sighting: Symptom, link: Link) -> bool:
        """Nothing comes through a shorter path that is a part of this one, without the link: it dies of that, too."""
        assert isinstance(sighting.subject, PathSegments)
        arcs = set(sighting.subject.arcs)
        return any(
            isinstance(other.subject, PathSegments)
            and other.subject.arcs
            and not other.is_lossy
            and other.source == MAPPER
            and arcs.issuperset(other.subject.arcs)
            and not self.traces.crosses(other.subject, link)
            for other in self._open.values()
        )

    def _is_surely_dead(self, sighting: Symptom, now: float) -> bool:
        """Not by a few packets that were lost in a row."""
        if sighting.source == COUNTERS:
            return True
        path = self._paths.get((sighting.source, sighting.about), sighting.plane)
        if sighting.source == EV or path is None:
            self._want(sighting.plane, now + self.times.gather_ev_s)
            return now >= sighting.heard + self.times.ev_lossy_s
        fate = path.fate(lossy=True)
        if fate is PathFate.OPEN:
            self._want(sighting.plane, now + self.times.gather_path_s)
        return fate is PathFate.DEAD

    def _early(
        self, plane: int, finding: Finding, findings: list[Finding], by_key: dict[Hashable, Symptom], now: float
    ) -> list[Hashable]:
        """Design note 8: new reports that this would explain while a witness has not spoken, or does not agree."""
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
        """Paths that nothing comes through any more, and those called dead that something came through since."""
        dead: dict[Hashable, PathSegments] = {}
        surviving: list[Hashable] = []
        for key, sighting in by_key.items():
            assert isinstance(sighting.subject, PathSegments)
            if sighting.is_lossy:
                continue
            is_known_lossy = self._is_known_lossy(sighting)
            path = self._paths.get((sighting.source, sighting.about), plane)
            fate = PathFate.UNCOUNTED
            if path is not None and sighting.source != EV:
                is_loss_near = is_known_lossy or (sighting.source == MAPPER and self._is_beside_losses(sighting))
                fate = path.fate(is_loss_near)
            waited = sighting.told or now >= sighting.heard + self.times.judge_s
            if fate is PathFate.SURVIVES or (fate is PathFate.UNCOUNTED and is_known_lossy):
                surviving.append(key)
            elif fate is PathFate.OPEN and not waited:
                self._want(plane, now + self.times.gather_hard_s)
            else:
                dead[key] = sighting.subject
        return dead, surviving

    def _believed(
        self, plane: int, losing: list[Hashable], by_key: dict[Hashable, Symptom], now: float
    ) -> list[Hashable]:
        """EVs alone are believed later where a prober watches too: it would complain, if it were the path."""
        if not self._paths.has_source(MAPPER, plane) or any(by_key[key].source != EV for key in losing):
            return losing
        ripe_at = now - self.times.ev_lossy_s
        out = [key for key in losing if by_key[key].heard <= ripe_at or self._is_known_lossy(by_key[key])]
        if len(out) < len(losing):
            self._want(plane, now + self.times.gather_lossy_s)
        return out

    def _is_known_lossy(self, sighting: Symptom) -> bool:
        """It is over something that is known to lose packets, which may well lose a few in a row."""
        losing = [f for f in self._ledger.of(sighting.plane) if f.how is How.LOSSY]
        return any(self._is_over(sighting, fault.causes) for fault in losing)

    def _excuse(self, fault: Fault, now: float) -> None:
        """Design note 3: a fault was cleared; what it killed takes a little longer to recover."""
        excused_s = self.times.excused_s if fault.how is How.DOWN else 2 * self.times.recover_s
        for sighting in self._open.values():
            if self._is_over(sighting, fault.causes):
                sighting.excused_until = now + excused_s
        self._paths.forget_counts(fault.plane, fault.causes)
