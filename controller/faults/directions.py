"""Rules for the broken direction of a link: which evidence names it, and when it may be reported. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace

from mrc_testbed.controller.faults.diagnosis import Finding
from mrc_testbed.controller.faults.fault_model import COUNTERS, EV, MAPPER, Fault, Symptom, is_nic
from mrc_testbed.controller.faults.path_segments import PathSegmenter, PathSegments
from mrc_testbed.controller.faults.path_stats import PathFate, PathStats
from mrc_testbed.controller.faults.symptoms import SymptomStore
from mrc_testbed.controller.faults.timers import FaultTimers
from mrc_testbed.topologies.plan import Link


class DirectionRules:
    """Rules over the open symptoms and the paths of a fabric.

    `wait(plane, due)`: the plane has to be explained again by then.
    """

    def __init__(
        self, symptoms: SymptomStore, paths: PathStats, times: FaultTimers, wait: Callable[[int, float], None]
    ) -> None:
        self._symptoms, self._paths, self._times, self._wait = symptoms, paths, times, wait

    def is_evidence(self, symptom: Symptom, link: Link, now: float) -> bool:
        """Whether a dead path is evidence of a direction. EVs are of NIC links alone where loops cover the others.

        An EV that loses packets elsewhere stays bad for long although its path forwards: what else it crosses has to
        be known to lose nothing.
        """
        if symptom.source == EV and self._paths.has_source(MAPPER, link.plane):
            assert isinstance(symptom.subject, PathSegments)
            own = PathSegmenter.arcs(link)
            others = [arc for arc in symptom.subject.arcs if arc not in own]
            if not is_nic(link) or not self._paths.lose_nothing(link.plane, others, link, now, source=MAPPER):
                return False
        return not self._is_dead_before(symptom, link) and self._is_surely_dead(symptom, now)

    def of_dead_paths(self, finding: Finding, by_key: Mapping[Hashable, Symptom], now: float) -> Finding:
        """Drop a direction that only EV states support: heavy loss makes EVs bad just as a dead link does."""
        others = [by_key[key] for key in finding.reports if by_key[key].source != EV]
        if finding.arcs and not any(self._is_surely_dead(symptom, now) for symptom in others):
            return replace(finding, arcs=frozenset())
        return finding

    def of_losses(self, finding: Finding, faults: list[Fault], now: float) -> Finding:
        """Drop the direction of a loss until another losing link, which the loops may cross, would have been named.

        `faults`: the active ones of its plane.
        """
        old = [fault for fault in faults if now - fault.raised >= self._times.lossy_direction_s]
        if any(fault.causes == finding.causes for fault in old):
            return finding
        return replace(finding, arcs=frozenset())

    def _is_dead_before(self, symptom: Symptom, link: Link) -> bool:
        """Whether a shorter path, a part of this one without the link, is dead: that kills this one, too."""
        assert isinstance(symptom.subject, PathSegments)
        arcs = set(symptom.subject.arcs)
        return any(
            isinstance(other.subject, PathSegments)
            and other.subject.arcs
            and not other.is_lossy
            and other.source == MAPPER
            and arcs.issuperset(other.subject.arcs)
            and not PathSegmenter.crosses(other.subject, link)
            for other in self._symptoms
        )

    def _is_surely_dead(self, symptom: Symptom, now: float) -> bool:
        """Whether a path is dead beyond a few packets lost in a row."""
        if symptom.source == COUNTERS:
            return True
        path = self._paths.get((symptom.source, symptom.about), symptom.plane)
        if symptom.source == EV or path is None:
            self._wait(symptom.plane, now + self._times.hold_down_ev_s)
            return now >= symptom.heard + self._times.ev_lossy_s
        fate = path.fate(lossy=True)
        if fate is PathFate.OPEN:
            self._wait(symptom.plane, now + self._times.hold_down_path_s)
        return fate is PathFate.DEAD
