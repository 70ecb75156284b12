"""Campaign of many seeds on several processes: counts, findings, and how to replay each finding."""

from __future__ import annotations

import gc
import json
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from mrc_testbed.console.progress import left_by_share
from mrc_testbed.errors import UsageError
from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.ipc.signals import end_with_parent
from mrc_testbed.simulator.simtest.invariants import INVARIANTS
from mrc_testbed.simulator.simtest.run import SimResult, simulate
from mrc_testbed.simulator.simtest.schedule import Schedule, ScheduleError, draw
from mrc_testbed.simulator.simtest.shrink import shrink

CHUNK = 25
"""Seeds a process takes at a time."""
COLLECT_AFTER = 4000
"""Number of new objects after which Python looks for cycles.

A schedule leaves some 800, nearly all of them in cycles: collected while they are still in the CPU's caches, they cost
a fraction of what they cost by the hundred thousand.
"""
STOP_AFTER = 20
"""Findings after which a campaign ends unless it keeps going; most likely they have one cause."""


@dataclass
class CampaignReport:
    """Counts and findings of a campaign. `failures`: results with a violation, by seed."""

    first: int
    seeds: int = 0
    jobs: int = 1
    wall_s: float = 0.0
    cpu_s: float = 0.0
    stats: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    """Number of schedules of each kind (schedule.KINDS)."""
    failures: list[SimResult] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failures

    def to_json(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "seeds": self.seeds,
            "jobs": self.jobs,
            "wall_s": round(self.wall_s, 1),
            "cpu_s": round(self.cpu_s, 1),
            "passed": self.passed,
            "stats": dict(self.stats),
            "kinds": dict(self.kinds),
            "faults": dict(self.faults),
            "failures": [failure_json(result) for result in self.failures],
        }

    def text(self) -> str:
        """Return a summary in a few lines."""
        counts = ", ".join(f"{number:,} {name}" for name, number in self.stats.items() if name != "schedules")
        lines = [
            f"{self.seeds:,} schedules (seeds {self.first} to {self.first + self.seeds - 1}) in {self.wall_s:.0f} s, "
            f"{self.jobs} job{'s' * (self.jobs > 1)}, {self.cpu_s:.0f} s CPU",
            f"  {counts}",
            "  schedules: " + ", ".join(f"{name} {number:,}" for name, number in self.kinds.most_common()),
            "  faults: " + (", ".join(f"{name} {number:,}" for name, number in self.faults.most_common()) or "none"),
        ]
        for result in self.failures:
            violation = result.violation
            assert violation is not None
            lines += [
                f"seed {result.seed}: {violation}",
                f"  invariant: {INVARIANTS[violation.invariant]}",
                f"  see it:    mrc simtest --seed {result.seed}",
            ]
        lines.append(f"{len(self.failures)} failed" if self.failures else "no invariant was violated")
        return "\n".join(lines)


def failure_json(result: SimResult) -> dict[str, Any]:
    """Return the JSON of a finding."""
    violation = result.violation
    assert violation is not None
    return {
        "seed": result.seed,
        "invariant": violation.invariant,
        "detail": violation.detail,
        "at_s": violation.time_s,
        "trace": result.trace[-20:],
    }


def run_chunk(seeds: range) -> tuple[list[SimResult], Counter[str], Counter[str], Counter[str], float]:
    """Run some seeds; return (failures, stats, kinds, faults, CPU seconds)."""
    failures, stats, kinds, faults = [], Counter[str](), Counter[str](), Counter[str]()
    began = time.process_time()
    _keep_modules()
    for seed in seeds:
        schedule = draw(seed)
        result = simulate(schedule)
        stats.update(result.stats)
        kinds[schedule.kind] += 1
        faults.update(fault.kind for fault in schedule.faults)
        if result.violation is not None:
            failures.append(result)
    return failures, stats, kinds, faults, time.process_time() - began


@cache
def _keep_modules() -> None:
    """Make Python look for cycles among the objects of schedules alone, in this process."""
    gc.freeze()
    gc.set_threshold(max(COLLECT_AFTER, gc.get_threshold()[0]))


def _results(chunks: list[range], jobs: int) -> Iterator[Any]:
    if jobs == 1:
        yield from map(run_chunk, chunks)
        return
    try:
        process_pool = multiprocessing.get_context("fork").Pool(jobs, end_with_parent, (signal.SIGKILL,))
    except OSError as error:
        need = f"{jobs} processes side by side need shared memory"
        raise UsageError(f"{need}, and /dev/shm gives none ({error.strerror}): give --jobs 1") from None
    with process_pool as pool:
        yield from pool.imap_unordered(run_chunk, chunks)


def campaign(
    first: int,
    seeds: int,
    jobs: int = 1,
    progress: Callable[[CampaignReport], None] | None = None,
    keep_going: bool = False,
) -> CampaignReport:
    """Run `seeds` seeds from `first` on; end after STOP_AFTER findings unless `keep_going`.

    `progress` is called after each chunk.
    """
    report = CampaignReport(first, jobs=jobs)
    began = time.monotonic()
    end = first + seeds
    chunks = [range(seed, min(seed + CHUNK, end)) for seed in range(first, end, CHUNK)]
    for failures, stats, kinds, faults, cpu_s in _results(chunks, jobs):
        report.stats.update(stats)
        report.kinds.update(kinds)
        report.faults.update(faults)
        report.failures += failures
        report.cpu_s += cpu_s
        report.seeds = report.stats["schedules"]
        report.wall_s = time.monotonic() - began
        if progress is not None:
            progress(report)
        if len(report.failures) >= STOP_AFTER and not keep_going:
            break
    report.failures.sort(key=lambda result: result.seed)
    return report


class CampaignProgress:
    """Progress on stderr: one line every `every_s` seconds, and each finding at once."""

    def __init__(self, total: int, every_s: float = 10.0, stream: TextIO | None = None) -> None:
        self._total, self._every_s, self._stream = total, every_s, stream or sys.stderr
        self._next_s = every_s
        self._reported_count = 0

    def __call__(self, report: CampaignReport) -> None:
        for result in report.failures[self._reported_count :]:
            self._print(f"seed {result.seed}: {result.violation}")
        self._reported_count = len(report.failures)
        if report.wall_s >= self._next_s:
            self._next_s = report.wall_s + self._every_s
            rate = report.seeds / report.wall_s
            text = f"{report.seeds:,} of {self._total:,} schedules, {rate:.0f}/s, {self._reported_count} failed"
            left_s = left_by_share(report.wall_s, report.seeds / self._total if self._total else 1.0)
            self._print(text if left_s is None else f"{text}, about {left_s:.0f} s left")

    def _print(self, text: str) -> None:
        print(f"simtest: {text}", file=self._stream, flush=True)


def load(path: Path) -> Schedule:
    """Read a schedule from a file. Raises ScheduleError."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ScheduleError(f"{path}: {error}") from error
    return Schedule.from_json(data)


def replay(schedule: Schedule, shrunk_to: Path | None = None) -> tuple[SimResult, str]:
    """Run a schedule; return its result and a text with the last packets and events.

    When the schedule fails, a smaller one is written to the file `shrunk_to`.
    """
    result = simulate(schedule)
    lines = [f"seed {schedule.seed}: {shape(schedule)}"]
    lines += [f"  {fault}" for fault in schedule.faults]
    if result.violation is None:
        lines.append("  " + ", ".join(f"{number:,} {name}" for name, number in result.stats.items()))
        lines.append("no invariant was violated")
        return result, "\n".join(lines)
    lines += result.trace
    lines += [f"violated: {result.violation}", f"  invariant: {INVARIANTS[result.violation.invariant]}"]
    if shrunk_to is not None:
        smaller, last, runs = shrink(schedule)
        write_whole(shrunk_to, (smaller.dumps() + "\n").encode())
        lines += [
            f"shrunk in {runs} runs to {shape(smaller)}: {last.violation}",
            *(f"  {fault}" for fault in smaller.faults),
            f"  again: mrc simtest --replay {shrunk_to}",
        ]
    return result, "\n".join(lines)


def shape(schedule: Schedule) -> str:
    """Return a summary of a schedule in one line."""
    size = sum(post.size * post.times for post in schedule.posts)
    writes = sum(post.times for post in schedule.posts)
    keys = len(schedule.config) + sum(map(len, schedule.config_of.values()))
    return (
        f"{schedule.kind}: {schedule.plan_of()}, {len(schedule.qps)} connections, {writes:,} writes of {size:,} bytes, "
        f"{len(schedule.faults)} faults, {keys} keys off their defaults"
    )
