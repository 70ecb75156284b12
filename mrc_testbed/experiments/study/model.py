"""Types of a study file, read by plan.py; quantities are texts with units, as in scenarios."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mrc_testbed.faults.terms import Part

SEEDS_MAX = 10_000
"""Seeds of one point."""


class Seeds(Part):
    """Seeds of each point: `first`, `first` + 1, ...

    A point is checked for enough seeds after `min` of them, and after every further `step`.
    """

    first: int = 1
    min: Annotated[int, Field(ge=2, le=SEEDS_MAX)] = 5
    max: Annotated[int, Field(ge=2, le=SEEDS_MAX)] = 30
    step: Annotated[int, Field(ge=1, le=SEEDS_MAX)] | None = None
    """Seeds between two checks; None: `min`."""

    @model_validator(mode="after")
    def _check_order(self) -> Seeds:
        if self.min > self.max:
            raise ValueError(f"min = {self.min} must not be above max = {self.max}")
        return self


class StudyMetric(Part):
    """A metric (docs/scenarios.md lists them) over whole runs, and its interval."""

    metric: str
    within: Any = None
    """Half of the interval's width that is small enough; None: the metric never ends a point.

    A share of the estimate (`2%`), or a quantity in the metric's unit (`5ms`, `100k`)."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    method: Literal["t", "bootstrap"] = "t"
    """Student's t, or percentiles of the bootstrap."""
    of: Literal["mean", "median"] = "mean"

    @model_validator(mode="after")
    def _check_method(self) -> StudyMetric:
        if self.of == "median" and self.method == "t":
            raise ValueError("method: t with of: median. Cure: give method: bootstrap, or of: mean")
        return self


class StudyFigure(Part):
    """A picture: a metric over a parameter, a line for each combination of the others."""

    metric: str
    x: str
    log: bool = False
    """Logarithmic x axis."""
    title: str = ""


class Study(Part):
    """A whole study file."""

    schema_: Literal["mrc-study/1"] = Field("mrc-study/1", alias="schema")
    title: str
    scenario: str
    """File, from the folder of this one, or name of a scenario that comes with the testbed."""
    scale: str | None = None
    """Scale of the scenario to run; None: the scenario as it is."""
    variants: list[str] | None = None
    """Variants of the scenario to run; None: all that run in virtual time."""
    settings: dict[str, Any] = Field({}, alias="set")
    """Path of a key of the scenario -> value in all runs."""
    parameters: dict[str, Any] = {}
    """Path of a key, or name of a sweep of the scenario -> list or {from, to, step|factor}.

    Every combination, with each variant, is a point. Sweeps of the scenario that are not named keep their values."""
    seeds: Seeds = Seeds()
    metrics: list[StudyMetric] = Field(min_length=1)
    figures: list[StudyFigure] | None = None
    """Pictures; None: each metric over the first parameter with several values, else over the variants."""
