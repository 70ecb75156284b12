"""Rates and latencies of a network test, as plain arithmetic. Reads no clock."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from statistics import fmean, pstdev
from typing import Any

PEAK_WINDOW_S = 0.1
"""Shortest stretch for the peak rate, seconds; a stretch begins and ends with a completion."""


class PeakMeter:
    """Highest rate seen. Completions in batches would make a peak of any size over shorter stretches."""

    def __init__(self, start: float, window_s: float = PEAK_WINDOW_S) -> None:
        self._window_s = window_s
        self._total = 0
        self._points: deque[tuple[float, int]] = deque([(start, 0)])
        self.peak_bps = 0.0

    def add(self, now: float, length: int) -> None:
        """Count `length` bytes that completed at `now` (seconds, never decreasing)."""
        self._total += length
        points = self._points
        points.append((now, self._total))
        while len(points) > 1 and now - points[1][0] >= self._window_s:
            points.popleft()
        window_start, start_total = points[0]
        if now - window_start >= self._window_s:
            self.peak_bps = max(self.peak_bps, (self._total - start_total) * 8 / (now - window_start))


def percentile(samples: Sequence[float], share: float) -> float:
    """Nearest rank: the smallest sample that at least `share` (0..1) of all are not above."""
    return samples[max(0, math.ceil(share * len(samples)) - 1)]


def latency_summary(samples_s: Iterable[float]) -> dict[str, Any]:
    """Microseconds of samples in seconds, with perftest's names; all None when there are no samples."""
    samples = sorted(samples_s)
    if not samples:
        return dict.fromkeys(LATENCY_KEYS)
    values = (
        samples[0],
        samples[-1],
        percentile(samples, 0.5),
        fmean(samples),
        pstdev(samples),
        percentile(samples, 0.99),
        percentile(samples, 0.999),
    )
    return {key: round(value * 1e6, 3) for key, value in zip(LATENCY_KEYS, values, strict=True)}


LATENCY_KEYS = ("t_min_us", "t_max_us", "t_typical_us", "t_avg_us", "t_stdev_us", "p99_us", "p99_9_us")
