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
from collections.abc import Callable, Hashable, Iterable
from typing import Any, ParamSpec

from mrc_testbed.controller.faults.diagnosis import (
    FailureMode,
    Finding,
    by_name,
    explain_dead_paths,
    explain_losses,
    explain_ports,
)
from mrc_testbed.controller.faults.directions import DirectionRules
from mrc_testbed.controller.faults.fault_list import ExplainedFindings, FaultList
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
from mrc_testbed.controller.faults.host_outages import HostOutages
from mrc_testbed.controller.faults.path_segments import NO_PLANE, Cause, PathSegmenter, PathSegments
from mrc_testbed.controller.faults.path_stats import BEFORE_ALL_TIMES, PathFate, PathStats
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
"""Callback before each observation, with the method's name and its arguments by name."""
OBSERVATIONS: list[str] = []
"""Names of the methods decorated with `observation`."""


P = ParamSpec("P")


def observation(method: Callable[P, None]) -> Callable[P, None]:
    """Decorate a method that reports an observation: `tap` is called first."""
    OBSERVATIONS.append(method.__name__)
    _, *names = inspect.signature(method).parameters

    @functools.wraps(method)
    def observed_method(*arguments: P.args, **keywords: P.kwargs) -> None:
        tap: Tap | None = getattr(arguments[0], "tap", None)
        if tap is not None:
            tap(method.__name__, {**dict(zip(names, arguments[1:], strict=False)), **keywords})
        method(*arguments, **keywords)

    return observed_method


class FaultCorrelator:
    """Fault correlation of one fabric: decides when a plane is diagnosed, and updates the fault list."""

    def __init__(self, plan: Plan, times: FaultTimers | None = None, tap: Tap | None = None) -> None:
        self.plan = plan
        self.tap = tap
        self.times = times or FaultTimers()
        self.segmenter = PathSegmenter(plan)
        self._symptoms = SymptomStore(self.times, self._schedule)
        self._paths = PathStats(self.segmenter, trial_s=self.times.trial_s)
        self._directions = DirectionRules(self._symptoms, self._paths, self.times, self._schedule)
        self._attending: set[str] = set()
        """Sources that report whether switches and wires work, while some path is bad."""
        self._answering: set[str] = set()
        """Switches whose P4Runtime stream is open."""
        self._hosts = HostOutages(plan, self.times, lambda due: self._schedule(NO_PLANE, due))
        self._hold: dict[Switch, float] = {}
        """Deadlines by which all links of a returning switch must be up; its links are no faults before."""
        self._due: dict[int, float] = {}
        """Time of the next correlation of each plane."""
        self._dead_causes_at: tuple[int, float, frozenset[Cause]] | None = None
        """(plane, now, causes of dead paths) at the last counts: a reading has many counts of one moment."""
        self._switches = {plane: [s for s in plan.switches if s.plane == plane] for plane in range(plan.planes)}
        # The links of a switch are asked for in every diagnosis.
        self._links_of: dict[str, list[Link]] = {s.name: [] for s in plan.switches}
        for link in plan.links:
            for end in link.ends & self._links_of.keys():
                self._links_of[end].append(link)
        self._fault_list = FaultList(
            self._links_of, self.times, wait=self._schedule, on_clear=self._suppress_recovering
        )

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
        self._paths.on_counts(
            (source, about), trace, sent, lost, now=now, through_at=through_at, dead_causes=dead_causes
        )

    def _dead_causes(self, plane: int, now: float) -> frozenset[Cause]:
        """Causes of dead paths of a plane, those cleared `recover_s` ago included: losses are counted late."""
        faults = [*self._fault_list.active_faults, *self._fault_list.recently_closed(now, self.times.recover_s)]
        planes = (plane, NO_PLANE)
        return frozenset(c for f in faults if f.plane in planes and f.mode is not FailureMode.LOSSY for c in f.causes)

    @observation
    def digest(self, interface: str, says: str, *, now: float) -> None:
        """Record a switch's digest: a packet met a dead next hop behind `interface`.

        A digest confirms a fault and never raises one.
        """
        try:
            link = self.plan.link_of_interface(interface)
        except ValueError:
            return
        for fault in self._fault_list.active_faults:
            if link in fault.causes or any(cause.name in link.ends for cause in fault.causes):
                self._fault_list.confirm(fault, Symptom(DIGEST, interface, link, says, now, now, now, cleared_at=now))

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
        """Restore the faults of an earlier controller; active ones are cleared unless seen within `confirm_s`."""
        self._fault_list.restore(records, self.segmenter, now + confirm_s)

    @observation
    def confirm_by(self, due: float, *, now: float) -> None:
        """Clear the restored faults that no source has reported by `due`: all sources answer now."""
        self._fault_list.confirm_by(max(due, now))

    # ---- time -------------------------------------------------------------------------------------------

    @observation
    def on_timer(self, now: float) -> None:
        """Run everything whose hold-down has expired; call it at next_timer()."""
        for switch in [s for s, deadline in self._hold.items() if deadline <= now]:
            del self._hold[switch]
            self._explain(switch.plane, now, may_hold=False)
        for plane in [p for p, due in self._due.items() if due <= now]:
            self._explain(plane, now)
        for plane in self._fault_list.planes_due(now):
            self._explain(plane, now)
        self._fault_list.drop_expired_waits(now)

    def next_timer(self) -> float | None:
        """Time of the next on_timer() call, seconds, or None."""
        of_faults = self._fault_list.next_timer()
        waits = [*self._hold.values(), *self._due.values(), *([of_faults] if of_faults is not None else [])]
        return min(waits, default=None)

    # ---- faults out -------------------------------------------------------------------------------------

    def changes(self) -> list[tuple[str, Fault]]:
        """Return (`raised`, `updated`, `cleared` or `merged`; fault) since the last call, in order."""
        return self._fault_list.changes()

    def active(self) -> list[Fault]:
        """Active faults, oldest first."""
        return sorted(self._fault_list.active_faults, key=lambda fault: fault.number)

    def all_faults(self) -> list[Fault]:
        """Active and closed faults, oldest first; not the merged ones, whose evidence is in the bigger faults."""
        closed_faults = [fault for fault in self._fault_list.closed_faults if fault.state is not FaultState.MERGED]
        return sorted((*closed_faults, *self._fault_list.active_faults), key=lambda fault: fault.number)

    # ---- symptoms --------------------------------------------------------------------------------------

    def _report(
        self,
        source: str,
        subject_name: str,
        subject: Cause | PathSegments,
        says: str,
        is_bad: bool,
        plane: int,
        now: float,
        t: float | None = None,
        is_lossy: bool = False,
    ) -> None:
        key = (source, subject_name)
        open_symptom = self._symptoms.get(key)
        is_certain = not isinstance(subject, PathSegments)
        t = now if t is None else min(t, now)
        if is_bad and open_symptom is not None and open_symptom.is_lossy and not is_lossy:
            self._symptoms.close(key, now)  # a lossy path that died is another symptom, perhaps of another cause
            open_symptom = None
        if is_bad and open_symptom is not None:
            open_symptom.says, open_symptom.last_seen, open_symptom.is_lossy = (
                says,
                max(open_symptom.last_seen, t),
                is_lossy,
            )
            if not is_certain:
                self._schedule(plane, now + self.times.hold_down_path_s)
        elif is_bad:
            symptom = Symptom(source, subject_name, subject, says, t, t, now, is_lossy=is_lossy)
            self._suppress_late_symptom(symptom)
            self._symptoms.open(symptom, now)
            self._schedule(plane, now + self._symptoms.hold_down_s(symptom))
        elif open_symptom is not None:
            if not is_certain:
                self._symptoms.close(key, now)
                # A recovered path proves its parts good: diagnose soon, with the others that recover at this moment.
                self._schedule(plane, now + self.times.hold_down_port_s)
                return
            if not open_symptom.attributed:  # over before it was reported: it happened all the same
                self._symptoms.end_hold_down(plane)
                self._explain(plane, now)
            self._symptoms.close(key, now)
            self._explain(plane, now)

    def _suppress_late_symptom(self, symptom: Symptom) -> None:
        """Suppress a symptom that began while a fault was active that has been cleared since (design note 3)."""
        for fault in self._fault_list.recently_closed(symptom.reported_at, self.times.suppress_s):
            if fault.state is FaultState.CLEARED and fault.cleared_at is not None:
                began_before = symptom.onset <= fault.cleared_at + self.times.hold_down_path_s
                if began_before and symptom.is_over(fault.causes):
                    hard = fault.mode is FailureMode.REPORTED_DOWN
                    symptom.suppressed_until = fault.cleared_at + (
                        self.times.suppress_s if hard else 2 * self.times.recover_s
                    )

    def _schedule(self, plane: int, due: float) -> None:
        self._due[plane] = min(due, self._due.get(plane, due))

    # ---- explaining -------------------------------------------------------------------------------------

    def _explain(self, plane: int, now: float, *, may_hold: bool = True) -> None:
        """Diagnose the open symptoms of a plane and reconcile the fault list with the findings."""
        self._due.pop(plane, None)
        self._explain_hosts(plane, now)
        if plane == NO_PLANE:
            return
        certain, paths = self._symptoms.of_plane(plane)
        mature = self._symptoms.past_hold_down(certain, now)
        paths = [s for s in paths if not self._symptoms.is_suppressed(s, now)]
        findings = self._port_findings(plane, mature, now, may_hold)
        findings = [(f, symptoms) for f, symptoms in findings if not f.causes <= self._hosts.links]
        causes = frozenset(cause for finding, _ in findings for cause in finding.causes) | self._hosts.dead_hosts
        paths = self._without_recovering(plane, paths, causes, now)
        for finding, symptoms in findings:
            symptoms += self._paths_lost_with(symptoms, finding.causes, paths)
        other_paths = [s for s in paths if not s.is_over(causes)]
        mature_paths = self._symptoms.past_hold_down(other_paths, now)
        is_probe_pending = len(mature_paths) < len(other_paths) and any(
            s.source != EV and not s.attributed for s in other_paths
        )
        findings += self._path_findings(plane, mature_paths, is_probe_pending, now)
        self._fault_list.reconcile(plane, findings, now)

    def _paths_lost_with(
        self, ports: list[Symptom], causes: frozenset[Cause], symptoms: Iterable[Symptom]
    ) -> list[Symptom]:
        """Return the paths over `causes` that went bad with these ports.

        What was bad before is another fault's.
        """
        began = min((symptom.onset for symptom in ports), default=BEFORE_ALL_TIMES) - self.times.late_port_s
        return [s for s in symptoms if not s.is_certain and s.onset >= began and s.is_over(causes)]

    def _explain_hosts(self, plane: int, now: float) -> None:
        """Find the hosts that are down by the ports of all planes; explain the planes of those that changed.

        A host is no fault of the plane that is explained now, whose own links are looked at next.
        """
        nic_symptoms = [
            s for s in self._symptoms if s.is_certain and isinstance(s.subject, Link) and self._hosts.has(s.subject)
        ]
        if not nic_symptoms and not self._hosts.dead_hosts:
            return
        down_since = _down_since(self._symptoms.past_hold_down(nic_symptoms, now))
        guilty: dict[int, set[str]] = {}
        """Dead switches of each plane that was asked for."""

        def is_explained(link: Link) -> bool:
            if link.plane not in guilty:
                findings = self._explain_ports(link.plane, self._symptoms.of_plane(link.plane)[0])
                guilty[link.plane] = {c.name for f in findings for c in f.causes if isinstance(c, Switch)}
            return link.upper.node in guilty[link.plane]

        changed_hosts = self._hosts.update(down_since, is_explained, now)
        for other_plane in {link.plane for host in changed_hosts for link in host.links} - {plane}:
            self._schedule(other_plane, now)
        findings: ExplainedFindings = []
        for host in sorted(self._hosts.dead_hosts, key=by_name):
            symptoms = [s for s in nic_symptoms if s.subject in host.links]
            symptoms += self._paths_lost_with(symptoms, frozenset({host}), self._symptoms)
            findings.append((Finding(FailureMode.REPORTED_DOWN, ((host,),), host.links), symptoms))
        self._fault_list.reconcile(NO_PLANE, findings, now)

    def _without_recovering(
        self, plane: int, paths: list[Symptom], causes: frozenset[Cause], now: float
    ) -> list[Symptom]:
        """Suppress the path symptoms of ports and streams that have recovered (note 3); return the others."""
        ending_faults = [
            f for f in self._fault_list.of_plane(plane) if f.mode is FailureMode.REPORTED_DOWN and not f.causes & causes
        ]
        for symptom in paths:
            if symptom.attributed and any(symptom.is_over(fault.causes) for fault in ending_faults):
                symptom.suppressed_until = now + self.times.suppress_s
        return [s for s in paths if not self._symptoms.is_suppressed(s, now)]

    def _port_findings(self, plane: int, symptoms: list[Symptom], now: float, may_hold: bool) -> ExplainedFindings:
        by_cause: dict[Hashable, list[Symptom]] = {}
        for symptom in symptoms:
            by_cause.setdefault(symptom.subject, []).append(symptom)
        findings, down_since = self._explain_ports(plane, symptoms), _down_since(symptoms)
        guilty = {c for finding in findings for c in finding.causes if isinstance(c, Switch)}
        for switch in [s for s in self._hold if s in guilty]:
            del self._hold[switch]
        # A switch that comes back is one fault until its last link is up, not a fault for each link still down.
        if may_hold:
            self._hold_returning(plane, guilty, down_since, now)
        held_switches = [s for s in self._hold if s.plane == plane]
        if held_switches:
            held_links = {link for switch in held_switches for link in self._links_of[switch.name]}
            findings = [f for f in findings if not f.causes <= held_links]
            findings += [
                Finding(
                    FailureMode.REPORTED_DOWN, ((s,),), (s, *(k for k in self._links_of[s.name] if k in down_since))
                )
                for s in held_switches
            ]
        return [(f, [s for report in f.reports for s in by_cause.get(report, [])]) for f in findings]

    def _explain_ports(self, plane: int, symptoms: list[Symptom]) -> list[Finding]:
        """Return the causes of the ports that are down and of the streams that are lost in a plane."""
        lost = dict.fromkeys(s.subject for s in symptoms if isinstance(s.subject, Switch))
        answering = frozenset(s for s in self._switches[plane] if s.name in self._answering)
        return explain_ports(
            self._switches[plane],
            lambda switch: self._links_of[switch.name],
            _down_since(symptoms),
            lost,
            answering,
            self.times.together_s,
        )

    def _hold_returning(self, plane: int, guilty: set[Switch], down_since: dict[Link, float], now: float) -> None:
        """Start to wait for returning switches, stop for those that are back entirely (design note 2)."""
        certain = {f.certain_cause for f in self._fault_list.active_faults if f.mode is FailureMode.REPORTED_DOWN}
        names = {s.name for s in guilty}
        for switch in self._switches[plane]:
            waits_for = [k for k in self._links_of[switch.name] if k in down_since]
            if not waits_for:
                self._hold.pop(switch, None)
                continue
            is_returning = switch in certain and switch not in guilty and switch not in self._hold
            if is_returning and not all(link.ends & names for link in waits_for):
                self._hold[switch] = now + self.times.settle_s

    def _path_findings(
        self, plane: int, symptoms: list[Symptom], is_probe_pending: bool, now: float
    ) -> ExplainedFindings:
        """Return findings about paths that no port explains.

        Paths of a fault that clears recover one after the other. The slower ones are waited for, unless the fault was
        misdiagnosed and the causes of other paths explain all of them. While a prober's verdict is pending
        (`is_probe_pending`), no fault clears.
        """
        findings = self._explain_paths(plane, symptoms, now)
        causes = frozenset(cause for finding, _ in findings for cause in finding.causes)
        ending_faults = [
            f
            for f in self._fault_list.of_plane(plane)
            if f.mode is not FailureMode.REPORTED_DOWN and not f.causes & causes
        ]
        # Paths of an ending fault that are still bad: late to recover, unless another cause explains them all.
        slow_symptoms = [s for s in symptoms if s.attributed and any(s in fault.symptoms for fault in ending_faults)]
        if not slow_symptoms:
            return findings
        if is_probe_pending:
            findings = self._explain_paths(plane, [s for s in symptoms if s not in slow_symptoms], now)
            for fault in ending_faults:
                fault_symptoms = [s for s in slow_symptoms if s in fault.symptoms]
                if fault_symptoms:
                    findings.append((Finding(fault.mode, fault.explanations, ()), fault_symptoms))
            return findings
        for symptom in slow_symptoms:
            symptom.suppressed_until = now + self.times.recover_s
        findings = self._explain_paths(plane, [s for s in symptoms if not self._symptoms.is_suppressed(s, now)], now)
        causes = frozenset(cause for finding, _ in findings for cause in finding.causes)
        if all(s.is_over(causes) for s in slow_symptoms):
            for symptom in slow_symptoms:
                symptom.suppressed_until = now
            for finding, finding_symptoms in findings:
                finding_symptoms += [s for s in slow_symptoms if s.is_over(finding.causes)]
        return findings

    def _explain_paths(self, plane: int, symptoms: list[Symptom], now: float) -> ExplainedFindings:
        by_key: dict[Hashable, Symptom] = {(s.source, s.subject_name): s for s in symptoms}
        dead_paths, surviving = self._dead_and_surviving(plane, by_key, now)
        proofs = self._paths.proofs(plane)
        death_times = {key: self._death_time(by_key[key]) for key in dead_paths}
        findings, leftover = explain_dead_paths(
            self.segmenter,
            dead_paths,
            lambda key, part: proofs.get(part, BEFORE_ALL_TIMES) > death_times[key],
            lambda key, link: self._directions.is_evidence(by_key[key], link, now),
            bool(self._attending),
        )
        findings = [self._directions.of_dead_paths(finding, by_key, now) for finding in findings]
        if premature := {key for finding in findings for key in self._premature(plane, finding, findings, by_key, now)}:
            self._schedule(plane, now + self.times.hold_down_port_s)
            return self._explain_paths(plane, [s for key, s in by_key.items() if key not in premature], now)
        causes = frozenset(cause for finding in findings for cause in finding.causes)
        losing_keys: dict[int, list[Hashable]] = {}
        # Paths without a dead cause, and paths that still forward: what they lose is loss, not death.
        losing = [*leftover, *surviving]
        for key, symptom in by_key.items():
            if not symptom.is_lossy:
                continue
            if not symptom.is_over(causes):
                losing.append(key)
            for finding in findings:
                if symptom.is_over(finding.causes):
                    losing_keys.setdefault(id(finding), []).append(key)
        explained_findings = [(f, [by_key[key] for key in (*f.reports, *losing_keys.get(id(f), []))]) for f in findings]
        losing = self._credible(plane, losing, by_key, now)
        if losing:
            trials = {
                key: trial
                for key, trial in self._paths.trials(plane, now).items()
                if not self._paths.crosses(trial.trace, causes) and (key in losing or self._forwards(key, plane))
            }
            known_causes = frozenset(
                c for f in self._fault_list.of_plane(plane) if f.mode is FailureMode.LOSSY for c in f.causes
            )
            losses, unexplained_paths = explain_losses(self.segmenter, trials, losing, _is_of_mapper, known_causes)
            faults = self._fault_list.of_plane(plane)
            losses = [self._directions.of_losses(finding, faults, now) for finding in losses]
            explained_findings += [(f, [by_key[key] for key in f.reports]) for f in losses]
            # Ambiguous so far: the next readings may decide.
            is_open = any(len(f.causes) > 1 or not f.arcs for f in losses)
            if unexplained_paths or is_open:
                self._schedule(plane, now + self.times.hold_down_lossy_s)
        return explained_findings

    def _forwards(self, key: Hashable, plane: int) -> bool:
        path = self._paths.get(key, plane) if isinstance(key, tuple) else None
        return path is not None and path.forwards

    def _is_new_to(self, finding: Finding, symptom: Symptom) -> bool:
        """Whether the symptom belongs to no fault, or only to a fault elsewhere that survives without it."""
        homes = [f for f in self._fault_list.of_plane(symptom.plane) if any(s is symptom for s in f.symptoms)]
        if not symptom.attributed or not homes:
            return not symptom.attributed
        return not any(home.causes & finding.causes or len(home.symptoms) == 1 for home in homes)

    def _death_time(self, symptom: Symptom) -> float:
        """Return the time by which a path was dead for good: its first loss may have been chance.

        Beside a lossy cause a few packets in a row may have been lost before the path died.
        """
        if symptom.source != MAPPER:
            return symptom.onset
        death_time = symptom.onset + self.times.dying_s
        path = self._paths.get((MAPPER, symptom.subject_name), symptom.plane)
        if path is None or not self._is_beside_losses(symptom):
            return death_time
        return max(death_time, path.proven_at + self.times.dying_lossy_s)

    def _is_beside_losses(self, symptom: Symptom) -> bool:
        """Return whether the path shares an arc with a prober's bad path that has forwarded since."""
        assert isinstance(symptom.subject, PathSegments)
        arcs = set(symptom.subject.arcs)
        for neighbor in self._symptoms:
            if neighbor.source != MAPPER or not isinstance(neighbor.subject, PathSegments):
                continue
            if not arcs.isdisjoint(neighbor.subject.arcs):
                path = self._paths.get((neighbor.source, neighbor.subject_name), symptom.plane)
                if neighbor.is_lossy or (path is not None and path.proven_at > neighbor.onset):
                    return True
        return False

    def _premature(
        self, plane: int, finding: Finding, findings: list[Finding], by_key: dict[Hashable, Symptom], now: float
    ) -> list[Hashable]:
        """Return a finding's new symptoms on which a prober has yet to report, or disagrees (note 8)."""
        new_keys = [key for key in finding.reports if self._is_new_to(finding, by_key[key])]
        if not any(now < by_key[key].reported_at + self.times.witness_s for key in new_keys):
            return []
        elsewhere = {key for candidate in findings if candidate is not finding for key in candidate.reports}
        sole_keys = [key for key in finding.reports if key not in elsewhere]
        if all(by_key[key].source == EV for key in sole_keys or finding.reports):
            return new_keys if self._paths.is_watched(plane, finding.causes, sources=WITNESSES) else []
        death_time = max(self._death_time(by_key[key]) for key in finding.reports)
        return new_keys if self._paths.is_unheard(plane, finding.causes, death_time, sources=WITNESSES) else []

    def _dead_and_surviving(
        self, plane: int, by_key: dict[Hashable, Symptom], now: float
    ) -> tuple[dict[Hashable, PathSegments], list[Hashable]]:
        """Return the dead paths, and paths reported dead that a packet has come through since."""
        dead_paths: dict[Hashable, PathSegments] = {}
        surviving: list[Hashable] = []
        for key, symptom in by_key.items():
            assert isinstance(symptom.subject, PathSegments)
            if symptom.is_lossy:
                continue
            is_known_lossy = self._is_known_lossy(symptom)
            path = self._paths.get((symptom.source, symptom.subject_name), plane)
            fate = PathFate.NO_COUNTS
            if path is not None and symptom.source != EV:
                is_loss_near = is_known_lossy or (symptom.source == MAPPER and self._is_beside_losses(symptom))
                fate = path.fate(is_loss_near)
            waited = symptom.attributed or now >= symptom.reported_at + self.times.judge_s
            if fate is PathFate.SURVIVES or (fate is PathFate.NO_COUNTS and is_known_lossy):
                surviving.append(key)
            elif fate is PathFate.OPEN and not waited:
                self._schedule(plane, now + self.times.hold_down_port_s)
            else:
                dead_paths[key] = symptom.subject
        return dead_paths, surviving

    def _credible(
        self, plane: int, losing: list[Hashable], by_key: dict[Hashable, Symptom], now: float
    ) -> list[Hashable]:
        """Drop losses that EVs alone report, for `ev_lossy_s`: a prober would see them, too."""
        if not self._paths.has_source(MAPPER, plane) or any(by_key[key].source != EV for key in losing):
            return losing
        credible_from = now - self.times.ev_lossy_s
        out = [key for key in losing if by_key[key].reported_at <= credible_from or self._is_known_lossy(by_key[key])]
        if len(out) < len(losing):
            self._schedule(plane, now + self.times.hold_down_lossy_s)
        return out

    def _is_known_lossy(self, symptom: Symptom) -> bool:
        """Return whether the path crosses a known lossy cause, which may lose a few packets in a row."""
        losing = [f for f in self._fault_list.of_plane(symptom.plane) if f.mode is FailureMode.LOSSY]
        return any(symptom.is_over(fault.causes) for fault in losing)

    def _suppress_recovering(self, fault: Fault, now: float) -> None:
        """Suppress the symptoms of paths that a cleared fault had killed: they recover later (design note 3)."""
        suppress_s = self.times.suppress_s if fault.mode is FailureMode.REPORTED_DOWN else 2 * self.times.recover_s
        self._symptoms.suppress(fault.causes, now + suppress_s)
        for plane in self._switches if fault.plane == NO_PLANE else (fault.plane,):
            self._paths.forget_counts(plane, fault.causes)


def _down_since(symptoms: list[Symptom]) -> dict[Link, float]:
    """Return the links that symptoms report down, with the first onset of each, seconds."""
    down_since: dict[Link, float] = {}
    for symptom in symptoms:
        if isinstance(symptom.subject, Link):
            down_since[symptom.subject] = min(symptom.onset, down_since.get(symptom.subject, symptom.onset))
    return down_since


def _is_of_mapper(path: Hashable) -> bool:
    """Whether Clustermapper sends the packets of a path."""
    return isinstance(path, tuple) and path[0] == MAPPER
