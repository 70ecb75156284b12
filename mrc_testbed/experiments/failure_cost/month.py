"""Months of failures, sample_numbers by seed, and what a job loses in each.

month = draw_month(hazards, terms, random_seed)
month.lost_s, month.restarts, month.failures

Failures of each kind come by themselves (Poisson). Some only make the job wait once, some keep it slower until the part
is repaired, some kill it. A dead job loses what it did since its last checkpoint, and the time of a restart; failures
meanwhile meet no job. Of slower parts the slowest counts, since a step waits for its slowest NIC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mrc_testbed.experiments.failure_cost.samples import Cost

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Hazard:
    """A kind of failure, as one fabric has it."""

    failure: str
    expected_count: float
    """Failures in the month, on average, of all parts."""
    costs: Sequence[Cost]
    """Samples of what one costs; each failure draws one."""
    pace: float
    """Time of a collective while the part is broken over that before."""
    lasts_s: float
    evaded_by_swap: bool = False
    """Whether a restart without this host ends the slower pace."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of the job and of its month, seconds."""

    month_s: float
    restart_s: float
    checkpoint_s: float
    exposed_share: float
    """Share of a step that waits for collectives."""
    swaps: bool = False
    """Whether the job is restarted at its next checkpoint without a host that has a broken port."""


@dataclass(frozen=True, slots=True)
class Month:
    """One month of a job."""

    failures: int
    restarts: int
    """Restarts after the death of the job."""
    swaps: int
    """Restarts at a checkpoint, to leave out a host."""
    down_s: float
    """Restarts of both kinds, and the work since the last checkpoint that is done again."""
    stalled_s: float
    slowed_s: float

    @property
    def lost_s(self) -> float:
        """All time lost."""
        return self.down_s + self.stalled_s + self.slowed_s


def draw_month(hazards: Sequence[Hazard], terms: Terms, seed: int) -> Month:
    """Return one month."""
    generator = np.random.default_rng(seed)
    deaths: list[Floats] = []
    slow: list[tuple[float, Floats, Floats]] = []
    failures, stall_s, swaps = 0, 0.0, 0
    for hazard in hazards:
        count = int(generator.poisson(hazard.expected_count))
        times = generator.uniform(0.0, terms.month_s, count)
        sample_numbers = generator.integers(0, len(hazard.costs), count)
        dies = np.array([cost.dies for cost in hazard.costs])[sample_numbers]
        stall_s += float(np.array([cost.stall_s for cost in hazard.costs])[sample_numbers][~dies].sum())
        failures += count
        deaths.append(times[dies])
        if hazard.pace > 1.0:
            starts = times[~dies]
            ends = np.minimum(starts + hazard.lasts_s, terms.month_s)
            if terms.swaps and hazard.evaded_by_swap:
                checkpoints = np.ceil(starts / terms.checkpoint_s) * terms.checkpoint_s
                # One restart leaves out all hosts that broke since the last checkpoint.
                swaps += len(np.unique(checkpoints[checkpoints < ends]))
                ends = np.minimum(ends, checkpoints)
            slow.append((hazard.pace, starts, ends))
    restarts, down_s = _restarts(np.sort(np.concatenate(deaths)), terms)
    down_s = min(down_s + swaps * terms.restart_s, terms.month_s)
    # While the job is down nothing delays it.
    up_share = 1.0 - down_s / terms.month_s
    slowed_s = up_share * _slowdown(slow, terms.exposed_share)
    stalled_s = min(up_share * stall_s, terms.month_s - down_s - slowed_s)
    return Month(failures, restarts, swaps, down_s, max(0.0, stalled_s), slowed_s)


def _restarts(deaths: Floats, terms: Terms) -> tuple[int, float]:
    """Return how often the job is restarted, and the time that restarts and repeated work take."""
    restarts, lost_s, began, index = 0, 0.0, 0.0, 0
    while index < len(deaths):
        death_s = float(deaths[index])
        restarts += 1
        lost_s += (death_s - began) % terms.checkpoint_s + min(terms.restart_s, terms.month_s - death_s)
        began = death_s + terms.restart_s
        index = int(np.searchsorted(deaths, began))
    return restarts, lost_s


def _slowdown(slow: Sequence[tuple[float, Floats, Floats]], exposed_share: float) -> float:
    """Return the time lost to slower paces, of which the slowest counts at any time."""
    lost_s, covered_s = 0.0, 0.0
    starts, ends = np.empty(0), np.empty(0)
    for pace, more_starts, more_ends in sorted(slow, key=lambda part: -part[0]):
        starts, ends = np.concatenate([starts, more_starts]), np.concatenate([ends, more_ends])
        all_s = _union_length(starts, ends)
        step = 1.0 + exposed_share * (pace - 1.0)
        lost_s += (all_s - covered_s) * (1.0 - 1.0 / step)
        covered_s = all_s
    return lost_s


def _union_length(starts: Floats, ends: Floats) -> float:
    """Return the length of the union of intervals."""
    if not len(starts):
        return 0.0
    order = np.argsort(starts)
    starts, ends = starts[order], ends[order]
    reached_ends = np.concatenate([[-np.inf], np.maximum.accumulate(ends)[:-1]])
    return float(np.maximum(0.0, ends - np.maximum(starts, reached_ends)).sum())
