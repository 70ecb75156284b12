"""Store of the open symptoms of one fabric, with their hold-down and suppression. Pure.

The correlator decides what a report means and when to explain; here each symptom has its state until it is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mrc_testbed.controller.faults.fault_model import EV, Symptom
from mrc_testbed.controller.faults.path_segments import Cause, PathSegments
from mrc_testbed.controller.faults.timers import ROUNDING_S, FaultTimers

Key = tuple[str, str]
"""Source, and the interface, switch or path that it reports."""


class SymptomStore:
    """Open symptoms by key. `wait(plane, due)`: the plane has to be explained again by then."""

    def __init__(self, times: FaultTimers, wait: Callable[[int, float], None]) -> None:
        self._times, self._wait = times, wait
        self._open: dict[Key, Symptom] = {}
        self._tail_drop_times: dict[str, float] = {}
        """Time of the last tail drop behind each interface, as reported."""

    def __iter__(self) -> Iterator[Symptom]:
        return iter(self._open.values())

    def __contains__(self, key: Key) -> bool:
        return key in self._open

    def get(self, key: Key) -> Symptom | None:
        return self._open.get(key)

    def of_plane(self, plane: int) -> tuple[list[Symptom], list[Symptom]]:
        """Return the symptoms of a plane: those of ports and streams, which are certain, and those of paths."""
        certain: list[Symptom] = []
        paths: list[Symptom] = []
        for symptom in self:
            if symptom.plane == plane:
                (certain if symptom.is_certain else paths).append(symptom)
        return certain, paths

    # ---- arrival and end --------------------------------------------------------------------------------

    def open(self, symptom: Symptom, now: float) -> None:
        """Keep a new symptom; suppress an EV's where data only waits behind data."""
        self._open[symptom.source, symptom.subject_name] = symptom
        subject = symptom.subject
        if symptom.source == EV and isinstance(subject, PathSegments) and self.is_congested(subject, now):
            self._suppress_congested(symptom, now)

    def close(self, key: Key, now: float) -> None:
        self._open.pop(key).cleared_at = now

    def close_source(self, source: str, now: float) -> None:
        """Close all symptoms of a source that is gone."""
        for key in [key for key in self._open if key[0] == source]:
            self.close(key, now)

    # ---- hold-down --------------------------------------------------------------------------------------

    def hold_down_s(self, symptom: Symptom) -> float:
        """Time from a symptom's arrival to its explanation, seconds."""
        if symptom.is_certain:
            return self._times.hold_down_port_s
        if symptom.is_lossy:
            return self._times.hold_down_lossy_s
        return self._times.hold_down_ev_s if symptom.source == EV else self._times.hold_down_path_s

    def end_hold_down(self, plane: int) -> None:
        """Do not wait for more reports of ports and streams."""
        for symptom in self.of_plane(plane)[0]:
            symptom.reported_at = min(symptom.reported_at, symptom.reported_at - self._times.hold_down_port_s)

    def past_hold_down(self, symptoms: list[Symptom], now: float) -> list[Symptom]:
        """Return the symptoms past their hold-down; the first to pass it ends the hold-down of all."""
        new_symptoms = [s for s in symptoms if not s.attributed]
        held_down = [s for s in new_symptoms if now < s.reported_at + self.hold_down_s(s) - ROUNDING_S]
        # Symptoms of one plane that arrive together have one cause: one past its hold-down releases the others.
        if len(held_down) < len(new_symptoms) or not held_down:
            return symptoms
        self._wait(held_down[0].plane, min(s.reported_at + self.hold_down_s(s) for s in held_down))
        return [s for s in symptoms if s.attributed]

    # ---- suppression ------------------------------------------------------------------------------------

    def is_suppressed(self, symptom: Symptom, now: float) -> bool:
        """Return whether a symptom is no evidence now; schedule its plane for the end of the suppression."""
        if now < symptom.suppressed_until:
            self._wait(symptom.plane, symptom.suppressed_until)
            return True
        return False

    def suppress(self, causes: frozenset[Cause], deadline: float) -> None:
        """Suppress the symptoms of all paths that cross one of the causes."""
        for symptom in self:
            if symptom.is_over(causes):
                symptom.suppressed_until = deadline

    def on_full_queue(self, interface: str, now: float) -> None:
        """Suppress EV symptoms of paths through an interface whose queue dropped packets."""
        self._tail_drop_times[interface] = now
        for symptom in self:
            if symptom.source == EV and isinstance(symptom.subject, PathSegments) and interface in symptom.subject.arcs:
                self._suppress_congested(symptom, now)

    def is_congested(self, trace: PathSegments, now: float) -> bool:
        """Whether a queue along a path dropped packets lately."""
        recent = {arc for arc, drop_time in self._tail_drop_times.items() if now - drop_time < self._times.congested_s}
        return not recent.isdisjoint(trace.arcs)

    def _suppress_congested(self, symptom: Symptom, now: float) -> None:
        symptom.suppressed_until = max(symptom.suppressed_until, now + self._times.congested_s)
