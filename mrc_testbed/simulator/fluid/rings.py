"""Paces of jobs that are rings, from the rates that their flows have while they send.

A rank sends a chunk when it has sent the one before, and its left neighbour's has arrived. With T for a chunk, a flow
alone takes T a step, and once round the ring each step takes T + delay. So a step is the longer of the slowest flow's T
and the mean of T + delay (the largest cycle mean of a max-plus system): a single slow flow hides in the delays of the
others. An iteration begins when the writes of the one before are answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rings:
    """Equal rings, whose QPs stand one job after the other, and in a job one rank after the other."""

    first: int
    """Number of the first QP."""
    jobs: int
    ranks: int
    qps: int
    """QPs of a flow."""
    steps: int
    """Steps of an iteration."""
    chunk_bytes: float
    """Bytes that a flow carries in a step."""

    @property
    def iteration_bytes(self) -> float:
        """Bytes that a flow carries in an iteration."""
        return self.steps * self.chunk_bytes

    @property
    def end(self) -> int:
        """Number after the last QP."""
        return self.first + self.jobs * self.ranks * self.qps

    def paces(self, rates_bps: Floats, delays_s: Floats, answers_s: Floats) -> Floats:
        """Return the mean rate of each job's flows over an iteration, bits/s.

        `rates_bps`: of each flow while it sends. `delays_s`: of its packets on their way. `answers_s`: on the way back.
        """
        rates, delays, answers = (array.reshape(self.jobs, self.ranks) for array in (rates_bps, delays_s, answers_s))
        moves = rates.min(axis=1) > 0
        times = self.chunk_bytes * 8 / np.where(moves[:, None], rates, 1.0)
        arrivals = times + delays
        step = np.maximum(times.max(axis=1), arrivals.mean(axis=1))
        iteration = (self.steps - 1) * step + (arrivals + answers).max(axis=1)
        paces: Floats = np.where(moves, self.iteration_bytes * 8 / iteration, 0.0)
        return paces
