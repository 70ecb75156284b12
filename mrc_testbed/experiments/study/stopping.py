"""How many seeds a point needs: decided in the order of the seeds, so that nothing else has a say.

point = PointProgress(plan, 0)
point.missing()                 # seeds to make now: all up to the next look, and none beyond it
point.take(3, SeedValues({...}))            # a run came, in whatever order
point.decide()                  # True once the seeds are enough; else missing() has those up to the look after

After `min` seeds, and after each `step` more, the intervals of the first so many seeds are looked at; the first look at
which all of them are narrow enough ends the point, `max` seeds end it anyway. A look waits for all of its seeds. So
which runs a study has follows from the file alone: not from the order in which runs end, the number of workers, or a
kill.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrc_testbed.experiments.study.intervals import ConfidenceInterval, bootstrap_interval, t_interval
from mrc_testbed.experiments.study.plan import Point, StudyPlan, Wanted


@dataclass(frozen=True, slots=True)
class SeedValues:
    """What a study takes from one run."""

    metrics: dict[str, float | None]
    """None: the run had nothing to compute it from. Empty for a run that failed."""
    cause: str = ""
    """First cause of its failure."""


class PointProgress:
    """One point of a study."""

    def __init__(self, plan: StudyPlan, point: Point) -> None:
        self.point = point
        self._seeds, self._wanted = plan.study.seeds, plan.wanted
        self._values: dict[int, SeedValues] = {}
        self.asked = self._seeds.min
        """Seeds of the next look."""
        self.is_decided = False
        self.is_narrow = False
        """Every interval with a bound is within it."""

    def take(self, seed: int, values: SeedValues) -> None:
        """The run of a seed, by its number from 0."""
        self._values[seed] = values

    def missing(self) -> list[int]:
        """Numbers of seeds without which there is no next look; [] once the point is decided."""
        return [] if self.is_decided else [seed for seed in range(self.asked) if seed not in self._values]

    def decide(self) -> bool:
        """Look, as often as the runs that are there allow. True: the point has all that it needs, `asked` seeds."""
        while not self.is_decided and not self.missing():
            self.is_narrow = self._all_narrow()
            if self.is_narrow or self.asked >= self._seeds.max:
                self.is_decided = True
            else:
                self.asked = min(self.asked + (self._seeds.step or self._seeds.min), self._seeds.max)
        return self.is_decided

    @property
    def there(self) -> int:
        """Seeds from the first on that have come, without a gap, up to the next look."""
        return next((seed for seed in range(self.asked) if seed not in self._values), self.asked)

    @property
    def causes(self) -> list[str]:
        """Why seeds of these failed: none of them is in an interval."""
        return [self._values[seed].cause for seed in range(self.there) if self._values[seed].cause]

    def interval(self, wanted: Wanted) -> ConfidenceInterval | None:
        """Of the seeds that are there; None for fewer than two values."""
        asked = wanted.asked
        found = [self._values[seed].metrics.get(asked.metric) for seed in range(self.there)]
        values = [value for value in found if value is not None]
        if len(values) < 2:
            return None
        if asked.method == "t":
            return t_interval(values, asked.confidence)
        return bootstrap_interval(values, asked.confidence, asked.of, f"{self.point.name}|{asked.metric}")

    def within(self, wanted: Wanted) -> bool | None:
        """Whether its interval is narrow enough; None: it has no bound."""
        if wanted.bound is None:
            return None
        interval = self.interval(wanted)
        return interval is not None and wanted.bound.allows(interval.half_width, interval.estimate)

    def _all_narrow(self) -> bool:
        bounds = [self.within(wanted) for wanted in self._wanted]
        return any(bounds) and all(narrow is not False for narrow in bounds)
