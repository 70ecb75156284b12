"""Step times of programs (training, traces), run by run, for the console and the report."""

from __future__ import annotations

from statistics import median

from mrc_testbed.experiments.backend.outcome import PROGRAM, Iteration
from mrc_testbed.experiments.metrics.assertions import Measurements
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.metrics.repeats import base_name, group_repeats
from mrc_testbed.experiments.report.faults import spans_of

PROGRAMS = ("training", "trace", PROGRAM)
"""Kinds of work whose step times are printed without a rule."""
HEADS = ("steps", "median", "longest", "before fault", "in fault", "not computing")
"""Heads behind the run's; those of faults are of medians, and only where a run has faults."""


def step_table(runs: Measurements) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of step times: a row per run and program; no rows for a single run.

    The first head has the unit. Of repeats it is the first.
    """
    programs = [
        (base_name(name), measurement, collective)
        for (name, _, measurement), *_ in group_repeats(runs).values()
        for collective in measurement.outcome.collectives
        if collective.kind in PROGRAMS
    ]
    if len({name for name, _, _ in programs}) < 2:
        return [], []
    every = [_seconds(step) for _, _, collective in programs for step in collective.iterations]
    factor, unit = (1.0, "s") if max(every, default=0.0) >= 1.0 else (1e3, "ms")
    several_works = len({collective.work for _, _, collective in programs}) > 1
    rows = []
    for name, measurement, collective in programs:
        planned_count = measurement.plan.iterations.get(collective.work, 0)
        has_exposed = collective.kind != PROGRAM
        cells = _cells(collective.iterations, planned_count, measurement, factor, has_exposed=has_exposed)
        rows.append([f"{name}: {collective.work}" if several_works else name, *cells])
    shown_columns = [number for number in range(len(HEADS) + 1) if any(row[number] for row in rows)]
    heads = [f"step times, {unit}", *HEADS]
    return [heads[number] for number in shown_columns], [[row[number] for number in shown_columns] for row in rows]


def _seconds(step: Iteration) -> float:
    return step.finished_s - step.started_s


def _cells(
    steps: list[Iteration], planned_count: int, measurement: Measurement, factor: float, *, has_exposed: bool
) -> list[str]:
    """Return the cells of HEADS, times multiplied by `factor`; empty ones where there is no fault."""
    count = f"{len(steps)} of {planned_count}" if planned_count > len(steps) else str(len(steps))
    if not steps:
        return [count, "–", "–", "", "", "–"]
    spans = [(low, high) for _, low, high in spans_of(measurement)]
    first_s = min((low for low, _ in spans), default=0.0)
    steps_before = [step for step in steps if step.finished_s <= first_s]
    steps_in_fault = [
        step for step in steps if any(step.started_s < high and step.finished_s > low for low, high in spans)
    ]
    middles = [
        f"{factor * median(map(_seconds, part)):.3g}" if part else "–" if spans else ""
        for part in (steps_before, steps_in_fault)
    ]
    exposed_share = sum(step.exposed for step in steps) / len(steps)
    exposed_text = f"{100 * exposed_share:.0f} %" if has_exposed else "–"
    times = sorted(map(_seconds, steps))
    return [
        count,
        f"{factor * median(times):.3g}",
        f"{factor * times[-1]:.3g}",
        *middles,
        exposed_text,
    ]
