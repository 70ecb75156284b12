"""Confidence intervals of a mean or a median over seeds: Student's t, or the bootstrap.

    t_interval(values, 0.95)                                   # of the mean; exact for normal values
    bootstrap_interval(values, 0.95, "median", key="mrc|time")    # of either, whatever their distribution

Same values in the same order, same interval, on any machine: the bootstrap draws from a generator seeded by `key`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Literal

RESAMPLES = 2000
"""Samples of the bootstrap: the ends of a 95 % interval are the 50th lowest and highest estimates."""
Statistic = Literal["mean", "median"]
METHODS = ("t", "bootstrap")


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """An estimate and the ends of its interval."""

    estimate: float
    low: float
    high: float
    count: int
    """Number of values behind the estimate."""

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def t_interval(values: Sequence[float], confidence: float) -> ConfidenceInterval:
    """Return the interval of the mean: mean ± t s / sqrt(n). Raises ValueError for fewer than two values."""
    if len(values) < 2:
        raise ValueError("an interval needs two values")
    mean = fmean(values)
    half = t_quantile((1 + confidence) / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return ConfidenceInterval(mean, mean - half, mean + half, len(values))


def bootstrap_interval(
    values: Sequence[float], confidence: float, statistic: Statistic, key: str
) -> ConfidenceInterval:
    """Return percentiles of the statistic over RESAMPLES samples of the values.

    Raises ValueError for fewer than two values.
    """
    if len(values) < 2:
        raise ValueError("an interval needs two values")
    estimator = fmean if statistic == "mean" else median
    generator = random.Random(f"{key}|{len(values)}")
    estimates = sorted(estimator(generator.choices(values, k=len(values))) for _ in range(RESAMPLES))
    out = math.floor((1 - confidence) / 2 * RESAMPLES)
    return ConfidenceInterval(estimator(values), estimates[out], estimates[RESAMPLES - 1 - out], len(values))


def t_quantile(probability: float, freedom: int) -> float:
    """Return the value that Student's t with `freedom` degrees stays below with a probability (0.5 to 1)."""
    low, high = 0.0, 1.0
    while t_below(high, freedom) < probability:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_below(middle, freedom) < probability else (low, middle)
    return high


def t_below(t: float, freedom: int) -> float:
    """Return the probability that Student's t stays below `t` >= 0.

    The closed form for whole degrees of freedom, a finite sum in the cosine of atan(t / sqrt(freedom)) (Abramowitz and
    Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4).
    """
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for index in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (index - 1) / index
        total += term
    central = (angle + sine * total) * 2 / math.pi if odd else sine * total
    return 0.5 + central / 2
