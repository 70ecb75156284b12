"""Number of seeds that a point needs, decided in the order of the seeds and by nothing else.

point = PointProgress(plan, 0)
point.missing_seeds()                 # seeds to make now: all up to the next look, and none beyond it
point.take(3, SeedValues({...}))            # a run came, in whatever order
point.decide()                  # True once the seeds are enough; else missing_seeds() has those up to the look after

After `min` seeds, and after each `step` more, the intervals of all seeds so far are checked; the first check at which
all intervals are narrow enough ends the point, and so do `max` seeds. A check waits for all of its seeds. So the runs
of a study follow from the file alone: not from the order in which runs end, the number of workers, or a kill.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrc_testbed.experiments.metrics.intervals import ConfidenceInterval, bootstrap_interval, t_interval
from mrc_testbed.experiments.study.plan import MetricGoal, Point, StudyPlan


@dataclass(frozen=True, slots=True)
class SeedValues:
    """Values that a study takes from one run."""

    metrics: dict[str, float | None]
    """Metric -> value; None: the run had nothing to compute it from. Empty for a failed run."""
    cause: str = ""
    """First cause of the run's failure; empty for a sound run."""


class PointProgress:
    """One point of a study."""

    def __init__(self, plan: StudyPlan, point: Point) -> None:
        self.point = point
        self._seeds, self._goals = plan.study.seeds, plan.goals
        self._values: dict[int, SeedValues] = {}
        self.seeds_needed = self._seeds.min
        """Seeds of the next check, or of the last one once the point is decided."""
        self.is_decided = False
        self.is_narrow = False
        """Whether every interval with a bound is within its bound."""

    def take(self, seed: int, values: SeedValues) -> None:
        """Take the values of a seed's run; `seed` counts from 0."""
        self._values[seed] = values

    def missing_seeds(self) -> list[int]:
        """Return the numbers of seeds missing for the next check; [] once the point is decided."""
        return [] if self.is_decided else [seed for seed in range(self.seeds_needed) if seed not in self._values]

    def decide(self) -> bool:
        """Check, as often as the available runs allow; return whether the point is decided."""
        while not self.is_decided and not self.missing_seeds():
            self.is_narrow = self._all_narrow()
            if self.is_narrow or self.seeds_needed >= self._seeds.max:
                self.is_decided = True
            else:
                self.seeds_needed = min(self.seeds_needed + (self._seeds.step or self._seeds.min), self._seeds.max)
        return self.is_decided

    @property
    def seeds_done(self) -> int:
        """Number of available seeds from the first on, without a gap, up to the next check."""
        return next((seed for seed in range(self.seeds_needed) if seed not in self._values), self.seeds_needed)

    @property
    def causes(self) -> list[str]:
        """Causes of failed runs among the available seeds; no interval contains a failed run."""
        return [self._values[seed].cause for seed in range(self.seeds_done) if self._values[seed].cause]

    def interval(self, goal: MetricGoal) -> ConfidenceInterval | None:
        """Return the interval over the available seeds; None for fewer than two values."""
        spec = goal.spec
        seed_values = [self._values[seed].metrics.get(spec.metric) for seed in range(self.seeds_done)]
        values = [value for value in seed_values if value is not None]
        if len(values) < 2:
            return None
        if spec.method == "t":
            return t_interval(values, spec.confidence)
        return bootstrap_interval(values, spec.confidence, spec.of, f"{self.point.name}|{spec.metric}")

    def is_within_bound(self, goal: MetricGoal) -> bool | None:
        """Return whether a metric's interval is narrow enough; None: the metric has no bound."""
        if goal.bound is None:
            return None
        interval = self.interval(goal)
        return interval is not None and goal.bound.allows(interval.half_width, interval.estimate)

    def _all_narrow(self) -> bool:
        bounds = [self.is_within_bound(goal) for goal in self._goals]
        return any(bounds) and all(narrow is not False for narrow in bounds)
