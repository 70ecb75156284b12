"""Packing of short runs into tasks that are worth their start.

packs([0.3] * 1000, least_s=60.0)       # five tasks of 200 runs each
"""

from __future__ import annotations

from collections.abc import Sequence

TASK_S = 60.0
"""Least estimated CPU seconds that make a task worth its start: queue, interpreter, imports."""
TASKS_MAX = 200
"""Most tasks of one hand-in; with more work, tasks are longer."""


def packs(costs: Sequence[float], least_s: float = TASK_S, tasks_max: int = TASKS_MAX) -> list[list[int]]:
    """Return tasks as lists of run indexes, each run once, at least `least_s` of work in each.

    `costs`: estimated seconds of each run. Less work than `least_s` is one task. Runs that cost that much come first,
    each in a task of its own; the others follow in their order, so that neighbours (the repeats of one point) end
    together.
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
        if open_s >= least_s * (1 - 1e-9):  # sums of floats are not exact
            out.append(filling)
            filling, open_s = [], 0.0
    if filling and (out or single_run_tasks):
        (out or single_run_tasks)[-1].extend(filling)
    elif filling:
        out.append(filling)
    return single_run_tasks + out


def side_by_side(costs: Sequence[float], count: int) -> list[list[int]]:
    """Return at most `count` tasks of about equal length, as lists of run indexes.

    The longest run first, each goes to the task with the least work.
    """
    tasks: list[list[int]] = [[] for _ in range(max(1, min(count, len(costs))))]
    loads = [0.0] * len(tasks)
    for number in sorted(range(len(costs)), key=lambda index: -costs[index]):
        lightest = loads.index(min(loads))
        tasks[lightest].append(number)
        loads[lightest] += costs[number]
    return [sorted(task) for task in tasks if task]
