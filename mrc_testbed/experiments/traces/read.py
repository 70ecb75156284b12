"""A trace file or folder as a Program, checked: `read_trace(path)`.

The content says of what kind it is (recognition.py). All-reduces are rings or trees, as NCCL would carry them out
(nccl_choice.py). The first mistake of an invalid trace is the text of a TraceError, one line with the file.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from mrc_testbed.experiments.language.model import TraceWork
from mrc_testbed.experiments.traces.connection_matrix import read_matrix
from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.goal import read_goal
from mrc_testbed.experiments.traces.goal_binary import read_goal_binary
from mrc_testbed.experiments.traces.nccl_choice import choose_for
from mrc_testbed.experiments.traces.nccl_log import read_nccl_log
from mrc_testbed.experiments.traces.nccl_tests import read_nccl_tests
from mrc_testbed.experiments.traces.recognition import READABLE, Kind, kind_of
from mrc_testbed.experiments.traces.workload_text import read_workload
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

RANK_ENDINGS = (".et", ".json", ".gz", ".log")
"""Endings of files of which each has one rank."""


def read_trace(
    path: Path,
    *,
    groups: Path | None = None,
    ranks: int | None = None,
    compute_scale: float = 1.0,
    size_scale: float = 1.0,
) -> Program:
    """Return the program of a trace.

    `groups`: JSON file with the ranks of each process group; `ranks`: their number, where a workload does not say it.

    `compute_scale` and `size_scale` multiply times and sizes. Raises TraceError, with the mistake in one line.
    """
    folder, ending = (path, "") if path.is_dir() else (path.parent, path.suffix)
    rank_files = []
    if not ending or ending in RANK_ENDINGS:
        rank_files = sorted(file for file in folder.glob(f"*{ending}") if file.suffix in RANK_ENDINGS)
    files = [path, *([groups] if groups else []), *rank_files]
    file_states = tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.exists())
    return _read(path, groups, ranks, compute_scale, size_scale, file_states)


def trace_of(work: TraceWork) -> Program:
    """Return the program that a scenario replays. Raises TraceError."""
    return read_trace(
        Path(work.trace),
        groups=Path(work.groups) if work.groups else None,
        ranks=None if work.ranks == "all" else work.ranks if isinstance(work.ranks, int) else len(work.ranks),
        compute_scale=work.compute_scale,
        size_scale=work.size_scale,
    )


@lru_cache(maxsize=8)
def _read(
    path: Path,
    groups: Path | None,
    ranks: int | None,
    compute_scale: float,
    size_scale: float,
    _file_states: tuple[tuple[str, int, int], ...],
) -> Program:
    if not path.exists():
        raise TraceError(path, f"no such file or folder: {READABLE}")
    program = choose_for(_program(path, kind_of(path), groups, ranks))
    scaled_ranks = [
        tuple(_scale_task(task, compute_scale, size_scale) for task in rank.tasks) for rank in program.ranks
    ]
    program = replace(program, ranks=tuple(map(RankTasks, scaled_ranks)))
    try:
        check(program)
    except TrainingProgramError as error:
        raise TraceError(path, str(error)) from None
    return program


def _program(path: Path, kind: Kind, groups: Path | None, ranks: int | None) -> Program:
    """Return the program of a kind of trace. Raises TraceError."""
    if groups is not None and kind not in ("chakra", "chakra json", "kineto"):
        raise TraceError(path, f"a trace of kind {kind!r} names no process groups: leave --groups out")
    match kind:
        case "goal":
            return read_goal(path)
        case "goal binary":
            return read_goal_binary(path)
        case "workload text":
            return read_workload(path, ranks)
        case "connection matrix":
            return read_matrix(path)
        case "nccl log":
            return read_nccl_log(path)
        case "nccl tests":
            return read_nccl_tests(path)
        # Not before: they bring protobuf, and each process of a run would load it.
        case "kineto":
            from mrc_testbed.experiments.traces.kineto import read_kineto

            return read_kineto(path, groups)
        case _:
            from mrc_testbed.experiments.traces.chakra import read_chakra

            return read_chakra(path, groups)


def _scale_task(task: object, compute: float, size: float) -> Compute | SendMessage | ReceiveMessage | JoinCollective:
    if isinstance(task, Compute):
        return replace(task, seconds=task.seconds * compute)
    assert isinstance(task, SendMessage | ReceiveMessage | JoinCollective)
    return task if size == 1.0 else replace(task, size=max(1, round(task.size * size)))
