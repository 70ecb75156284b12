"""Rules for the broken direction of a link: what counts as evidence, and when to report it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace

from mrc_testbed.controller.faults.diagnosis import Finding
from mrc_testbed.controller.faults.fault_model import COUNTERS, EV, MAPPER, Fault, Symptom, is_nic_link
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
        """Return whether a dead path is evidence of a direction.

        EVs are evidence for NIC links alone where loops cover the others. An EV that loses packets elsewhere stays bad
        for long although its path forwards: its other arcs must be known to lose nothing.
        """
        if symptom.source == EV and self._paths.has_source(MAPPER, link.plane):
            assert isinstance(symptom.subject, PathSegments)
            link_arcs = PathSegmenter.arcs(link)
            other_arcs = [arc for arc in symptom.subject.arcs if arc not in link_arcs]
            if not is_nic_link(link) or not self._paths.lose_nothing(link.plane, other_arcs, link, now, source=MAPPER):
                return False
        return not self._is_dead_before(symptom, link) and self._is_surely_dead(symptom, now)

    def of_dead_paths(self, finding: Finding, by_key: Mapping[Hashable, Symptom], now: float) -> Finding:
        """Drop a direction that only EV states support: heavy loss makes EVs bad just as a dead link does."""
        witnesses = [by_key[key] for key in finding.reports if by_key[key].source != EV]
        if finding.arcs and not any(self._is_surely_dead(symptom, now) for symptom in witnesses):
            return replace(finding, arcs=frozenset())
        return finding

    def of_losses(self, finding: Finding, faults: list[Fault], now: float) -> Finding:
        """Drop the direction of a loss until another losing link on the same loops would have been reported.

        `faults`: active faults of the plane.
        """
        mature_faults = [fault for fault in faults if now - fault.raised_at >= self._times.lossy_direction_s]
        if any(fault.causes == finding.causes for fault in mature_faults):
            return finding
        return replace(finding, arcs=frozenset())

    def _is_dead_before(self, symptom: Symptom, link: Link) -> bool:
        """Return whether a shorter dead path without the link is part of this path, and so kills it."""
        assert isinstance(symptom.subject, PathSegments)
        arcs = set(symptom.subject.arcs)
        return any(
            isinstance(symptom_before.subject, PathSegments)
            and symptom_before.subject.arcs
            and not symptom_before.is_lossy
            and symptom_before.source == MAPPER
            and arcs.issuperset(symptom_before.subject.arcs)
            and not PathSegmenter.crosses(symptom_before.subject, link)
            for symptom_before in self._symptoms
        )

    def _is_surely_dead(self, symptom: Symptom, now: float) -> bool:
        """Return whether a path is dead beyond a few packets lost in a row."""
        if symptom.source == COUNTERS:
            return True
        path = self._paths.get((symptom.source, symptom.subject_name), symptom.plane)
        if symptom.source == EV or path is None:
            self._wait(symptom.plane, now + self._times.hold_down_ev_s)
            return now >= symptom.reported_at + self._times.ev_lossy_s
        fate = path.fate(is_loss_near=True)
        if fate is PathFate.OPEN:
            self._wait(symptom.plane, now + self._times.hold_down_path_s)
        return fate is PathFate.ALL_LOST
