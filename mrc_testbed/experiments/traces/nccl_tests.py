"""Result tables of nccl-tests: each row one collective, one after the other.

    # Collective test starting: all_reduce_perf
    #  Rank  0 Group  0 Pid   1887 on   worker-1 device  0 [0x8d] NVIDIA H100 80GB HBM3
    #       size         count      type   redop    root     time   algbw   busbw #wrong ...
         1048576        262144     float     sum      -1    27.76   37.78   66.11      0 ...

The table has the sizes; its Rank lines say how many ranks there are; the name of the test stands in its head, or in the
command that was kept with it. Times of the table are not replayed: they are what to compare with.
"""

from __future__ import annotations

import re
from pathlib import Path

from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.task_list import TaskList
from mrc_testbed.experiments.traces.text_lines import RANKS_MAX, numbered_lines, quote, whole_number
from mrc_testbed.hosts.traffic.program import Program
from mrc_testbed.hosts.traffic.program_script import TASKS_MAX

COLLECTIVES = {
    "all_reduce": "ALL_REDUCE",
    "all_gather": "ALL_GATHER",
    "reduce_scatter": "REDUCE_SCATTER",
    "alltoall": "ALL_TO_ALL",
    "broadcast": "BROADCAST",
    "reduce": "REDUCE",
    "gather": "GATHER",
    "scatter": "SCATTER",
    "sendrecv": "",
}
"""Name of a test without _perf -> Chakra's name of its collective; sendrecv sends to the next rank."""
LINE_MAX = 1 << 16
SIZE_MAX = 1 << 50
HEADER = re.compile(r"#\s+size\s+count\s+type\b(?P<more>.*)")
_TAG = re.compile(r"^\[\d+,\d+\]<\w+>:\s?")
"""Mark before a line that mpirun sets on request."""
_RANK = re.compile(r"#\s+Rank\s+(\d{1,6})\b.* on ")
_TEST = re.compile(r"\b(\w+)_perf(?:_mpi)?\b")
_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w*\s")


def read_nccl_tests(path: Path) -> Program:
    """Return the program of a table. Raises TraceError."""
    ranks: list[int] = []
    test, columns = "", list[str]()
    rows: list[tuple[int, int]] = []
    for line, text in numbered_lines(path, "a table of nccl-tests", line_max=LINE_MAX):
        text = _TAG.sub("", text)
        if match := _RANK.match(text):
            ranks.append(int(match[1]))
        elif match := HEADER.match(text):
            columns = ["size", "count", "type", *match["more"].split()]
        elif columns and _ROW.match(text):
            rows.append(_row(path, line, text.split(), columns))
        elif not test and (match := _TEST.search(text)):
            test = match[1].split("/")[-1]
        if max(len(rows), len(ranks)) > TASKS_MAX:
            raise TraceError(path, f"more than {TASKS_MAX} lines of one kind", line)
    _check(path, test, ranks, rows)
    tasks = [TaskList(rank) for rank in range(len(ranks))]
    for rank_tasks in tasks:
        _add_rows(rank_tasks, COLLECTIVES[test], rows, len(ranks))
    notes = ("the times of the table are not replayed: they are what to compare with",)
    return Program(path.stem, tuple(rank_tasks.finish() for rank_tasks in tasks), notes)


def _row(path: Path, line: int, fields: list[str], columns: list[str]) -> tuple[int, int]:
    """Return size and root of a row; without a root that is -1. Raises TraceError."""
    size = whole_number(path, fields[0], "size", line, 0, SIZE_MAX)
    if "root" not in columns:
        return size, -1
    column = columns.index("root")
    text = fields[column] if column < len(fields) else ""
    return size, -1 if text == "-1" else whole_number(path, text, "root", line, 0, RANKS_MAX)


def _check(path: Path, test: str, ranks: list[int], rows: list[tuple[int, int]]) -> None:
    """Raises TraceError for a table that does not say what was measured."""
    if not test:
        raise TraceError(path, "does not say which test it is: keep the line with its command, such as all_reduce_perf")
    if test not in COLLECTIVES:
        raise TraceError(path, f"test {quote(test)} (known: {', '.join(COLLECTIVES)})")
    if not rows:
        raise TraceError(path, "has no rows: the test did not come so far")
    if not 2 <= len(ranks) <= RANKS_MAX:
        raise TraceError(path, f"{len(ranks)} lines `#  Rank N ... on HOST`: a test has 2 to {RANKS_MAX} ranks")
    if sorted(ranks) != list(range(len(ranks))):
        raise TraceError(path, f"{len(ranks)} lines of ranks, not 0 to {len(ranks) - 1}: build nccl-tests with MPI=1")
    if (root := max(root for _, root in rows)) >= len(ranks):
        raise TraceError(path, f"root {root} of {len(ranks)} ranks")


def _add_rows(tasks: TaskList, kind: str, rows: list[tuple[int, int]], ranks: int) -> None:
    """Add the collectives of a rank, each when the one before it has ended."""
    last: tuple[int, ...] = ()
    for size, root in rows:
        if not size:
            continue
        if kind:
            last = (tasks.collective(kind, size, tuple(range(ranks)), last, root=max(0, root)),)
            continue
        sent = tasks.send((tasks.rank + 1) % ranks, size, last)
        last = (sent, tasks.receive((tasks.rank - 1) % ranks, size, last))
