"""Short runs put together, so that a scheduler gets tasks that are worth their start.

packs([0.3] * 1000, least_s=60.0)       # five tasks of 200 runs each
"""

from __future__ import annotations

from collections.abc import Sequence

TASK_S = 60.0
"""Estimated seconds of CPU from which on a task is worth its start: queue, interpreter, imports."""
TASKS_MAX = 200
"""Tasks of one hand-in; with more work than that they are longer."""


def packs(costs: Sequence[float], least_s: float = TASK_S, tasks_max: int = TASKS_MAX) -> list[list[int]]:
    """Places of runs, in tasks of at least `least_s` each; less work than that is one task. Each run is in one.

    `costs`: estimated seconds of each run. Dear runs come first and alone; the others follow in their order, so that
    neighbours (the repeats of one point) end together.
    """
    least_s = max(least_s, sum(costs) / tasks_max)
    single_run_tasks = [[number] for number, cost in enumerate(costs) if cost >= least_s]
    single_run_tasks.sort(key=lambda task: -costs[task[0]])
    out, open_s = [], 0.0
    filling: list[int] = []
    for number, cost in enumerate(costs):
        if cost >= least_s:
            continue
        filling.append(number)
        open_s += cost
        if open_s >= least_s * (1 - 1e-9):  # sums of floats
            out.append(filling)
            filling, open_s = [], 0.0
    if filling and (out or single_run_tasks):
        (out or single_run_tasks)[-1].extend(filling)
    elif filling:
        out.append(filling)
    return single_run_tasks + out


def side_by_side(costs: Sequence[float], count: int) -> list[list[int]]:
    """Places of runs in at most `count` tasks that take about as long: dearest first, each to who has least."""
    tasks: list[list[int]] = [[] for _ in range(max(1, min(count, len(costs))))]
    loads = [0.0] * len(tasks)
    for number in sorted(range(len(costs)), key=lambda index: -costs[index]):
        lightest = loads.index(min(loads))
        tasks[lightest].append(number)
        loads[lightest] += costs[number]
    return [sorted(task) for task in tasks if task]
