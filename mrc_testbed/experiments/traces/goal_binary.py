"""GOAL schedules in the binary form of LogGOPSim's txt2bin, also of ATLAHS.

Little-endian, packed: a magic number (8 bytes), the number of ranks (4), the highest cpu and nic (1 each), for each
rank begin and end of its part (8 each, counted from behind the magic number). A part has the numbers of its tasks and
of those that wait for nothing (4 each), the latter's places (4 each), then tasks of 39 bytes, then places of the tasks
that wait for the end, or the begin, of a task.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.goal import NANOSECONDS, nic_notes
from mrc_testbed.experiments.traces.text_lines import NUMBER_MAX, RANKS_MAX
from mrc_testbed.hosts.traffic.program import AnyTask, Compute, Program, RankTasks, ReceiveMessage, SendMessage
from mrc_testbed.hosts.traffic.program_script import TASKS_MAX

MAGIC = struct.pack("<Q", 4223)
SIZE_MAX = 1 << 30
"""Most bytes of a file."""
ANY_NUMBER = 0xFFFFFFFF
"""Peer or tag -1."""
_HEADER, _SPAN, _COUNTS, _TASK = (
    struct.Struct("<IBB"),
    struct.Struct("<QQ"),
    struct.Struct("<II"),
    struct.Struct("<IbIQIBBIIII"),
)
SEND, RECEIVE, CALCULATE = 1, 2, 3


def read_goal_binary(path: Path) -> Program:
    """Return the program of a binary schedule. Raises TraceError."""
    try:
        if path.stat().st_size > SIZE_MAX:
            raise TraceError(path, f"more than {SIZE_MAX} bytes")
        data = memoryview(path.read_bytes())[len(MAGIC) :]
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror}") from None
    reader = _Reader(path, data)
    (count, _, _) = reader.unpack(_HEADER, 0, "the number of ranks")
    if not 2 <= count <= RANKS_MAX:
        raise TraceError(path, f"{count} ranks: 2 to {RANKS_MAX}")
    ranks = [RankTasks(tuple(reader.tasks(rank))) for rank in range(count)]
    return Program(path.stem, tuple(ranks), nic_notes(reader.nics))


class _Reader:
    def __init__(self, path: Path, data: memoryview) -> None:
        self._path, self._data = path, data
        self.nics = 0
        """Tasks that name a NIC other than the first."""

    def unpack(self, form: struct.Struct, offset: int, subject: str) -> tuple[int, ...]:
        """Return numbers at a place of the file. Raises TraceError behind its end."""
        if offset + form.size > len(self._data):
            raise TraceError(self._path, f"cut off: {subject} would be at byte {offset + len(MAGIC)}")
        return form.unpack_from(self._data, offset)

    def tasks(self, rank: int) -> list[AnyTask]:
        """Return the tasks of a rank with what they wait for. Raises TraceError."""
        start, _ = self.unpack(_SPAN, _HEADER.size + rank * _SPAN.size, f"the place of rank {rank}")
        count, roots = self.unpack(_COUNTS, start, f"the part of rank {rank}")
        if count > TASKS_MAX:
            raise TraceError(self._path, f"rank {rank} has {count} tasks: at most {TASKS_MAX}")
        first = start + _COUNTS.size + 4 * roots
        rows = [self.unpack(_TASK, first + number * _TASK.size, f"a task of rank {rank}") for number in range(count)]
        tasks = [self._task(rank, number, row) for number, row in enumerate(rows)]
        end_waits: list[list[int]] = [[] for _ in rows]
        begin_waits: list[list[int]] = [[] for _ in rows]
        # The file says who waits for a task; a program says what a task waits for.
        appendix = first + count * _TASK.size
        for number, row in enumerate(rows):
            for waits, amount, index in ((end_waits, row[7], row[8]), (begin_waits, row[9], row[10])):
                for follower in self._followers(rank, appendix + 4 * index, amount, count):
                    waits[follower].append(number)
        return [
            replace(task, after=tuple(dict.fromkeys(enders)), once_begun=tuple(dict.fromkeys(starters)))
            for task, enders, starters in zip(tasks, end_waits, begin_waits, strict=True)
        ]

    def _followers(self, rank: int, offset: int, amount: int, count: int) -> tuple[int, ...]:
        if amount > count:
            raise TraceError(
                self._path, f"rank {rank} says that {amount} tasks wait for one of them, and has {count} tasks"
            )
        followers = self.unpack(struct.Struct(f"<{amount}I"), offset, f"what waits in rank {rank}") if amount else ()
        if too_large := [follower for follower in followers if follower >= count]:
            raise TraceError(self._path, f"rank {rank} has no task {too_large[0]}: its tasks are 0 to {count - 1}")
        return followers

    def _task(self, rank: int, number: int, row: tuple[int, ...]) -> AnyTask:
        _, kind, peer, size, tag, lane, nic, *_ = row
        subject = f"task {number} of rank {rank}"
        self.nics += nic != 0
        if size > NUMBER_MAX:
            raise TraceError(self._path, f"{subject} has size {size}: at most {NUMBER_MAX}")
        if kind == CALCULATE:
            return Compute(seconds=size / NANOSECONDS, lane=lane)
        if kind not in (SEND, RECEIVE):
            raise TraceError(self._path, f"{subject} is of type {kind}: 1 send, 2 receive, 3 compute")
        if ANY_NUMBER in (peer, tag):
            raise TraceError(self._path, f"{subject} has peer or tag -1: any rank or tag is not known; name them")
        return (SendMessage if kind == SEND else ReceiveMessage)(peer=peer, size=size, tag=tag)
