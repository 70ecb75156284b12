"""A trace file or folder as a Program, checked: `read_trace(path)`.

What it is shows in its content: a folder, or a name that ends in `.et`, is a Chakra trace with a file a rank; anything
else is GOAL text. Nothing is kept of a trace that is wrong; its first mistake is told in one line, with the file.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from mrc_testbed.experiments.language.model import TraceWork
from mrc_testbed.experiments.traces.chakra import read_chakra
from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.goal import read_goal
from mrc_testbed.hosts.traffic.program import (
    Compute,
    JoinCollective,
    Program,
    RankTasks,
    ReceiveMessage,
    SendMessage,
    TrainingProgramError,
)
from mrc_testbed.hosts.traffic.program_check import check


def read_trace(
    path: Path, *, groups: Path | None = None, compute_scale: float = 1.0, size_scale: float = 1.0
) -> Program:
    """The program of a trace. `groups`: JSON file with the ranks of each process group of a Chakra trace.

    `compute_scale` and `size_scale` multiply times and sizes. Raises TraceError, with the mistake in one line.
    """
    others = path if path.is_dir() else path.parent if path.suffix == ".et" else None
    files = [path, *([groups] if groups else []), *(sorted(others.glob("*.et")) if others else [])]
    changed = tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.exists())
    return _read(path, groups, compute_scale, size_scale, changed)


def trace_of(work: TraceWork) -> Program:
    """The program that a scenario replays. Raises TraceError."""
    return read_trace(
        Path(work.trace),
        groups=Path(work.groups) if work.groups else None,
        compute_scale=work.compute_scale,
        size_scale=work.size_scale,
    )


@lru_cache(maxsize=8)
def _read(
    path: Path, groups: Path | None, compute_scale: float, size_scale: float, _changed: tuple[tuple[str, int, int], ...]
) -> Program:
    if not path.exists():
        raise TraceError(path, "no such file or folder: give a GOAL file, a folder of .et files or one of them")
    program = read_chakra(path, groups) if path.is_dir() or path.suffix == ".et" else read_goal(path)
    scaled = [tuple(_scaled(task, compute_scale, size_scale) for task in rank.tasks) for rank in program.ranks]
    program = Program(program.name, tuple(map(RankTasks, scaled)))
    try:
        check(program)
    except TrainingProgramError as error:
        raise TraceError(path, str(error)) from None
    return program


def _scaled(task: object, compute: float, size: float) -> Compute | SendMessage | ReceiveMessage | JoinCollective:
    if isinstance(task, Compute):
        return replace(task, seconds=task.seconds * compute)
    assert isinstance(task, SendMessage | ReceiveMessage | JoinCollective)
    return task if size == 1.0 else replace(task, size=max(1, round(task.size * size)))
