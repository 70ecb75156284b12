"""Estimated wall time of virtual runs, from a short piece of one run of each variant.

    pieces = {run.name: measure(run) for run in choose_samples(planned.runs)}
    costs = estimate(planned.runs, pieces)    # run name -> seconds of one CPU
    text = describe_estimate(planned.runs, costs, jobs=2)

A piece is the set-up and the first moments of the work of a variant's smallest run (of several, such as those of a
sweep of losses, the middle one). Its cost is scaled by the bytes that the other runs of the variant have to move.
Nothing is stored: the next machine may be another, or busier.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass

from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.virtual.virtual_run import VirtualRun

PIECE_S = 2.0
"""Wall time of a piece after its set-up."""
PIECE_MAX_S = 60.0
"""Wall time after which a piece ends though nothing has arrived."""
STEPS_A_ROUND_TRIP = 2
"""Checks of the clock in a round trip of a piece."""
MINUTE_S, HOUR_S = 60, 3600
MEMORY_NOTE_BYTES = 1 << 30
"""Memory of a run above which it is printed before the runs start."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Cost of a piece of a run, wall seconds."""

    set_up_s: float
    work_s: float
    """Time of the whole run's work, extrapolated from the share that was done."""


def payload_bytes(run: RunPlan) -> float:
    """Return the bytes that a run moves; where only a duration is given, as many as the NICs can send."""
    work = run.work()
    moved_bytes = 0.0
    for group in work.groups:
        ranks = len(group.ranks)
        moved_bytes += (
            2.0 * group.size_bytes * ranks * (group.iterations + group.warm_up)
        )  # the same factor for all its runs
    if run.duration_s is not None:
        return moved_bytes + run.nic_bps / 8 * run.duration_s * max(1, len({flow.source for flow in work.flows}))
    return moved_bytes + sum(flow.total_bytes or 0 for flow in work.flows)


def memory_bytes(run: RunPlan) -> int:
    """Return the bytes of the buffers that a run's ranks write to, nearly all memory of a large run.

    Flows have none: their receivers store no bytes.
    """
    work, needed_bytes = run.work(), 0
    for group in work.groups:
        count = len(group.ranks)
        rank = group.rank(0, run.seed)  # memory pages are allocated when written to
        needed_bytes += count * rank.memory_bytes(group.warm_up + group.iterations)
    return needed_bytes


def describe_memory(runs: list[RunPlan], jobs: int, free_bytes: int) -> str:
    """Return the memory need of large runs as text, with advice if too little is free.

    For example `up to 8.7 GB of memory each`; empty for small runs. `jobs`: runs side by side; `free_bytes`: free
    memory of the machine.
    """
    sizes = sorted((memory_bytes(run) for run in runs), reverse=True)
    if not sizes or sizes[0] < MEMORY_NOTE_BYTES:
        return ""
    text = f"up to {sizes[0] / 1e9:.1f} GB of memory each"
    fit = max(1, next((n for n in range(jobs, 0, -1) if sum(sizes[:n]) <= free_bytes), 0))
    if sum(sizes[:jobs]) <= free_bytes:
        return text
    advice = f"give --jobs {fit}" if fit < jobs else "runs will fail or swap"
    return f"{text}, and {free_bytes / 1e9:.1f} GB are free: {advice}"


def measure(run: RunPlan, piece_s: float = PIECE_S) -> Piece:
    """Set a run up, do some of it and throw it away. Raises what VirtualRunner raises."""
    try:
        return _begin(run, piece_s)
    finally:
        gc.collect()  # the discarded run may hold gigabytes


def _begin(run: RunPlan, piece_s: float) -> Piece:
    began = time.monotonic()
    virtual = VirtualRun(run)
    virtual.begin()
    set_up = time.monotonic()
    step = shortest_step = run.rtt_s / STEPS_A_ROUND_TRIP
    while virtual.share_done < 1 and virtual.fabric.now < virtual.ends:
        took = time.monotonic() - set_up
        # The first bytes of hundreds of hosts arrive late: without a share there is no estimate.
        if took >= piece_s and (virtual.share_done > 0 or took >= PIECE_MAX_S):
            break
        # While all ranks compute nothing arrives: steps through it would be most of the piece's cost.
        share_before = virtual.share_done
        virtual.fabric.run_for(step)
        step = shortest_step if virtual.share_done > share_before else 2 * step
    took = time.monotonic() - set_up
    return Piece(set_up - began, took / virtual.share_done if virtual.share_done else 0.0)


def choose_samples(runs: list[RunPlan]) -> list[RunPlan]:
    """Return the run of each variant whose piece is measured."""
    out = []
    for variant in _variants(runs):
        sizes = [payload_bytes(run) for run in variant]
        smallest = [run for run, size in zip(variant, sizes, strict=True) if size == min(sizes)]
        out.append(smallest[len(smallest) // 2])
    return out


def estimate(runs: list[RunPlan], pieces: Mapping[str, Piece]) -> dict[str, float]:
    """Return the CPU seconds of each run by name; `pieces`: by name of the sample runs."""
    costs: dict[str, float] = {}
    for variant in _variants(runs):
        sample = next(run for run in variant if run.name in pieces)
        piece, sample_bytes = pieces[sample.name], payload_bytes(sample)
        for run in variant:
            part = payload_bytes(run) / sample_bytes if sample_bytes else 1.0
            costs[run.name] = piece.set_up_s + piece.work_s * part
    return costs


def _variants(runs: list[RunPlan]) -> list[list[RunPlan]]:
    runs_by_variant: dict[str, list[RunPlan]] = {}
    for run in runs:
        runs_by_variant.setdefault(str(run.label.get("variant", "")), []).append(run)
    return list(runs_by_variant.values())


def describe_estimate(runs: list[RunPlan], costs: dict[str, float], jobs: int) -> str:
    """Return the estimate in words: `27 runs, about 9 min with 2 side by side`."""
    jobs = max(1, min(jobs, len(runs)))
    longest_s = max((costs[run.name] for run in runs), default=0.0)
    seconds = max(longest_s, sum(costs[run.name] for run in runs) / jobs)
    jobs_text = f" with {jobs} side by side" if jobs > 1 else ""
    return f"{len(runs)} runs, about {duration(seconds)}{jobs_text} (a short piece of each variant was measured)"


def duration(seconds: float) -> str:
    """Return a duration as text: `40 s`, `9 min`, `2.5 h`."""
    if seconds < 2 * MINUTE_S:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / MINUTE_S:.0f} min" if seconds < 2 * HOUR_S else f"{seconds / HOUR_S:.1f} h"
