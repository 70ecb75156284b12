"""Check that a program can run: messages have two halves, no cycle of waits. Linear in its tasks.

ideal = check(program)     # raises TrainingProgramError; ideal.seconds: on a network that takes no time
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass

from mrc_testbed.hosts.traffic.program import (
    AnyTask,
    Compute,
    JoinCollective,
    Program,
    ReceiveMessage,
    SendMessage,
    TrainingProgramError,
)
from mrc_testbed.hosts.traffic.program_script import scripts_of

SHOWN_MAX = 6
"""Tasks of a cycle that a message names."""

_TaskId = tuple[int, int]
"""Rank and task."""


@dataclass(frozen=True, slots=True)
class IdealRun:
    """A step on a network that takes no time."""

    seconds: float
    """Longest chain of computations, each lane one at a time."""
    busiest_s: float
    """Most that one rank computes."""
    sent_bytes: int
    """Payload of all ranks; of collectives as their bus factor counts it."""
    messages: int
    collectives: int


def check(program: Program) -> IdealRun:
    """Check a program and run it on an ideal network. Raises TrainingProgramError."""
    for rank, rank_tasks in enumerate(program.ranks):
        for number, task in enumerate(rank_tasks.tasks):
            for dependency in (*task.after, *task.once_begun):
                if not 0 <= dependency < len(rank_tasks.tasks):
                    raise TrainingProgramError(
                        f"rank {rank}, task {number} waits for task {dependency}, which is not there"
                    )
            if isinstance(task, Compute) and not 0 <= task.seconds < 1e9:
                raise TrainingProgramError(f"rank {rank}, task {number} computes for {task.seconds} seconds")
    scripts = scripts_of(program)
    ends = _Ideal(program).ends()
    busy_s = [
        sum(task.seconds for task in rank_tasks.tasks if isinstance(task, Compute)) for rank_tasks in program.ranks
    ]
    all_tasks = [task for rank_tasks in program.ranks for task in rank_tasks.tasks]
    groups = sum(1 / len(task.group) for task in all_tasks if isinstance(task, JoinCollective))
    return IdealRun(
        seconds=max((end for rank_tasks in ends for end in rank_tasks), default=0.0),
        busiest_s=max(busy_s, default=0.0),
        sent_bytes=sum(script.sent_bytes for script in scripts),
        messages=sum(isinstance(task, SendMessage) for task in all_tasks),
        collectives=round(groups),
    )


class _Ideal:
    """Runs every task as soon as what it waits for is over, in an order of time."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._begin_times: list[list[float | None]] = [[None] * len(rank_tasks.tasks) for rank_tasks in program.ranks]
        self._end_times: list[list[float | None]] = [[None] * len(rank_tasks.tasks) for rank_tasks in program.ranks]
        self._waits: list[list[int]] = [
            [len(set(task.after)) + len(set(task.once_begun)) for task in rank_tasks.tasks]
            for rank_tasks in program.ranks
        ]
        self._followers: list[list[list[int]]] = [[[] for _ in rank_tasks.tasks] for rank_tasks in program.ranks]
        self._starters: list[list[list[int]]] = [[[] for _ in rank_tasks.tasks] for rank_tasks in program.ranks]
        self._partner, self._group = _partners(program)
        self._members: dict[tuple[tuple[int, ...], int], list[_TaskId]] = defaultdict(list)
        self._lane_free: dict[tuple[int, int], float] = defaultdict(float)
        for rank, rank_tasks in enumerate(program.ranks):
            for number, task in enumerate(rank_tasks.tasks):
                for dependency in set(task.after):
                    self._followers[rank][dependency].append(number)
                for dependency in set(task.once_begun):
                    self._starters[rank][dependency].append(number)
        self._ready_tasks: list[tuple[float, int, int]] = []
        """(seconds, rank, task), the first in time first."""

    def ends(self) -> list[list[float]]:
        """Return when each task ends, seconds. Raises TrainingProgramError for one that never does."""
        self._ready_tasks = [
            (0.0, rank, number)
            for rank, waits in enumerate(self._waits)
            for number, count in enumerate(waits)
            if not count
        ]
        while self._ready_tasks:
            self._begin(*heapq.heappop(self._ready_tasks))
        for rank, end_times in enumerate(self._end_times):
            for number, end in enumerate(end_times):
                if end is None:
                    raise TrainingProgramError(self._stuck(rank, number))
        return [[end or 0.0 for end in end_times] for end_times in self._end_times]

    def _task(self, task_id: _TaskId) -> AnyTask:
        return self.program.ranks[task_id[0]].tasks[task_id[1]]

    def _begin(self, time: float, rank: int, number: int) -> None:
        task = self._task((rank, number))
        self._begin_times[rank][number] = time
        self._release(rank, self._starters[rank][number])
        match task:
            case Compute():
                lane = (rank, task.lane)
                end = max(time, self._lane_free[lane]) + task.seconds
                self._lane_free[lane] = end
                self._end(rank, number, end)
            case SendMessage():
                self._end(rank, number, time)
                self._receive(self._partner[rank, number], time)
            case ReceiveMessage():
                partner = self._partner[rank, number]
                sent = self._begin_times[partner[0]][partner[1]]
                if sent is not None:
                    self._end(rank, number, max(time, sent))
            case JoinCollective():
                key = self._group[rank, number]
                self._members[key].append((rank, number))
                if len(self._members[key]) == len(task.group):
                    last = max(self._begin_times[r][n] or 0.0 for r, n in self._members[key])
                    for r, n in self._members[key]:
                        self._end(r, n, last)

    def _receive(self, task_id: _TaskId, time: float) -> None:
        begin_time = self._begin_times[task_id[0]][task_id[1]]
        if begin_time is not None:
            self._end(*task_id, max(begin_time, time))

    def _end(self, rank: int, number: int, time: float) -> None:
        self._end_times[rank][number] = time
        self._release(rank, self._followers[rank][number])

    def _release(self, rank: int, followers: list[int]) -> None:
        for follower in followers:
            self._waits[rank][follower] -= 1
            if not self._waits[rank][follower]:
                task = self._task((rank, follower))
                time = max(
                    [self._end_times[rank][dependency] or 0.0 for dependency in task.after]
                    + [self._begin_times[rank][dependency] or 0.0 for dependency in task.once_begun]
                )
                heapq.heappush(self._ready_tasks, (time, rank, follower))

    def _stuck(self, rank: int, number: int) -> str:
        """Return the cycle in which a task that never ends waits."""
        positions: dict[_TaskId, int] = {}
        path: list[_TaskId] = []
        task_id = (rank, number)
        while task_id not in positions:
            positions[task_id] = len(path)
            path.append(task_id)
            task_id = self._waits_for(task_id)
        cycle = path[positions[task_id] :]
        names = [self._describe(task_id) for task_id in cycle]
        shown_names = names if len(names) <= SHOWN_MAX else [*names[:SHOWN_MAX], f"{len(names) - SHOWN_MAX} more"]
        return f"a circle of {len(names)} tasks that wait for each other: {' for '.join(shown_names)} for {names[0]}"

    def _describe(self, task_id: _TaskId) -> str:
        name = self._task(task_id).name
        return f"rank {task_id[0]} task {task_id[1]}" + (f" ({name})" if name else "")

    def _waits_for(self, task_id: _TaskId) -> _TaskId:
        """Return a task that never ends and for which a task that never ends waits."""
        rank, number = task_id
        task = self._task(task_id)
        if self._begin_times[rank][number] is None:
            for dependency in task.after:
                if self._end_times[rank][dependency] is None:
                    return rank, dependency
            return rank, next(
                dependency for dependency in task.once_begun if self._begin_times[rank][dependency] is None
            )
        if isinstance(task, JoinCollective):
            member_ranks = {r for r, _ in self._members[self._group[task_id]]}
            return next(
                rank_tasks
                for rank_tasks, key in self._group.items()
                if key == self._group[task_id] and rank_tasks[0] not in member_ranks
            )
        return self._partner[task_id]


def _partners(
    program: Program,
) -> tuple[dict[_TaskId, _TaskId], dict[_TaskId, tuple[tuple[int, ...], int]]]:
    """Other half of each message; and of each task that joins a collective which one."""
    sent: dict[tuple[int, int, int], list[_TaskId]] = defaultdict(list)
    partner: dict[_TaskId, _TaskId] = {}
    group: dict[_TaskId, tuple[tuple[int, ...], int]] = {}
    for rank, rank_tasks in enumerate(program.ranks):
        counts: dict[tuple[int, ...], int] = defaultdict(int)
        for number, task in enumerate(rank_tasks.tasks):
            if isinstance(task, SendMessage):
                sent[rank, task.peer, task.tag].append((rank, number))
            elif isinstance(task, JoinCollective):
                group[rank, number] = (task.group, counts[task.group])
                counts[task.group] += 1
    taken_counts: dict[tuple[int, int, int], int] = defaultdict(int)
    for rank, rank_tasks in enumerate(program.ranks):
        for number, task in enumerate(rank_tasks.tasks):
            if isinstance(task, ReceiveMessage):
                way = (task.peer, rank, task.tag)
                sender = sent[way][taken_counts[way]]
                taken_counts[way] += 1
                partner[sender], partner[rank, number] = (rank, number), sender
    return partner, group
