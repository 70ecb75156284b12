"""Whether a program can run: every message has two halves, and nothing waits for itself. Linear in its tasks.

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

_Place = tuple[int, int]
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
    for rank, mine in enumerate(program.ranks):
        for number, task in enumerate(mine.tasks):
            for other in (*task.after, *task.once_begun):
                if not 0 <= other < len(mine.tasks):
                    raise TrainingProgramError(f"rank {rank}, task {number} waits for task {other}, which is not there")
            if isinstance(task, Compute) and not 0 <= task.seconds < 1e9:
                raise TrainingProgramError(f"rank {rank}, task {number} computes for {task.seconds} seconds")
    scripts = scripts_of(program)
    ends = _Ideal(program).ends()
    busy = [sum(task.seconds for task in one.tasks if isinstance(task, Compute)) for one in program.ranks]
    every = [task for one in program.ranks for task in one.tasks]
    groups = sum(1 / len(task.group) for task in every if isinstance(task, JoinCollective))
    return IdealRun(
        seconds=max((end for mine in ends for end in mine), default=0.0),
        busiest_s=max(busy, default=0.0),
        sent_bytes=sum(script.sent_bytes for script in scripts),
        messages=sum(isinstance(task, SendMessage) for task in every),
        collectives=round(groups),
    )


class _Ideal:
    """Runs every task as soon as what it waits for is over, in an order of time."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._begun: list[list[float | None]] = [[None] * len(one.tasks) for one in program.ranks]
        self._ended: list[list[float | None]] = [[None] * len(one.tasks) for one in program.ranks]
        self._waits: list[list[int]] = [
            [len(set(task.after)) + len(set(task.once_begun)) for task in one.tasks] for one in program.ranks
        ]
        self._followers: list[list[list[int]]] = [[[] for _ in one.tasks] for one in program.ranks]
        self._starters: list[list[list[int]]] = [[[] for _ in one.tasks] for one in program.ranks]
        self._partner, self._group = _partners(program)
        self._joined: dict[tuple[tuple[int, ...], int], list[_Place]] = defaultdict(list)
        self._lane_free: dict[tuple[int, int], float] = defaultdict(float)
        for rank, one in enumerate(program.ranks):
            for number, task in enumerate(one.tasks):
                for other in set(task.after):
                    self._followers[rank][other].append(number)
                for other in set(task.once_begun):
                    self._starters[rank][other].append(number)
        self._ready: list[tuple[float, int, int]] = []
        """(seconds, rank, task), the first in time first."""

    def ends(self) -> list[list[float]]:
        """When each task ends, seconds. Raises TrainingProgramError for what never does."""
        self._ready = [
            (0.0, rank, at) for rank, waits in enumerate(self._waits) for at, count in enumerate(waits) if not count
        ]
        while self._ready:
            self._begin(*heapq.heappop(self._ready))
        for rank, mine in enumerate(self._ended):
            for number, end in enumerate(mine):
                if end is None:
                    raise TrainingProgramError(self._stuck(rank, number))
        return [[end or 0.0 for end in mine] for mine in self._ended]

    def _task(self, place: _Place) -> AnyTask:
        return self.program.ranks[place[0]].tasks[place[1]]

    def _begin(self, at: float, rank: int, number: int) -> None:
        task = self._task((rank, number))
        self._begun[rank][number] = at
        self._release(rank, self._starters[rank][number])
        match task:
            case Compute():
                lane = (rank, task.lane)
                end = max(at, self._lane_free[lane]) + task.seconds
                self._lane_free[lane] = end
                self._end(rank, number, end)
            case SendMessage():
                self._end(rank, number, at)
                self._receive(self._partner[rank, number], at)
            case ReceiveMessage():
                other = self._partner[rank, number]
                sent = self._begun[other[0]][other[1]]
                if sent is not None:
                    self._end(rank, number, max(at, sent))
            case JoinCollective():
                which = self._group[rank, number]
                self._joined[which].append((rank, number))
                if len(self._joined[which]) == len(task.group):
                    last = max(self._begun[r][n] or 0.0 for r, n in self._joined[which])
                    for r, n in self._joined[which]:
                        self._end(r, n, last)

    def _receive(self, place: _Place, at: float) -> None:
        begun = self._begun[place[0]][place[1]]
        if begun is not None:
            self._end(*place, max(begun, at))

    def _end(self, rank: int, number: int, at: float) -> None:
        self._ended[rank][number] = at
        self._release(rank, self._followers[rank][number])

    def _release(self, rank: int, followers: list[int]) -> None:
        for follower in followers:
            self._waits[rank][follower] -= 1
            if not self._waits[rank][follower]:
                task = self._task((rank, follower))
                at = max(
                    [self._ended[rank][one] or 0.0 for one in task.after]
                    + [self._begun[rank][one] or 0.0 for one in task.once_begun]
                )
                heapq.heappush(self._ready, (at, rank, follower))

    def _stuck(self, rank: int, number: int) -> str:
        """The cycle that a task which never ends waits in."""
        seen: dict[_Place, int] = {}
        way: list[_Place] = []
        place = (rank, number)
        while place not in seen:
            seen[place] = len(way)
            way.append(place)
            place = self._waits_for(place)
        cycle = way[seen[place] :]
        names = [self._named(place) for place in cycle]
        shown = names if len(names) <= SHOWN_MAX else [*names[:SHOWN_MAX], f"{len(names) - SHOWN_MAX} more"]
        return f"a circle of {len(names)} tasks that wait for each other: {' for '.join(shown)} for {names[0]}"

    def _named(self, place: _Place) -> str:
        name = self._task(place).name
        return f"rank {place[0]} task {place[1]}" + (f" ({name})" if name else "")

    def _waits_for(self, place: _Place) -> _Place:
        """Something that a task which never ends waits for, and which never ends either."""
        rank, number = place
        task = self._task(place)
        if self._begun[rank][number] is None:
            for other in task.after:
                if self._ended[rank][other] is None:
                    return rank, other
            return rank, next(other for other in task.once_begun if self._begun[rank][other] is None)
        if isinstance(task, JoinCollective):
            there = {r for r, _ in self._joined[self._group[place]]}
            return next(
                one for one, which in self._group.items() if which == self._group[place] and one[0] not in there
            )
        return self._partner[place]


def _partners(
    program: Program,
) -> tuple[dict[_Place, _Place], dict[_Place, tuple[tuple[int, ...], int]]]:
    """Other half of each message; and of each task that joins a collective which one."""
    sent: dict[tuple[int, int, int], list[_Place]] = defaultdict(list)
    partner: dict[_Place, _Place] = {}
    group: dict[_Place, tuple[tuple[int, ...], int]] = {}
    for rank, mine in enumerate(program.ranks):
        counts: dict[tuple[int, ...], int] = defaultdict(int)
        for number, task in enumerate(mine.tasks):
            if isinstance(task, SendMessage):
                sent[rank, task.peer, task.tag].append((rank, number))
            elif isinstance(task, JoinCollective):
                group[rank, number] = (task.group, counts[task.group])
                counts[task.group] += 1
    taken: dict[tuple[int, int, int], int] = defaultdict(int)
    for rank, mine in enumerate(program.ranks):
        for number, task in enumerate(mine.tasks):
            if isinstance(task, ReceiveMessage):
                way = (task.peer, rank, task.tag)
                other = sent[way][taken[way]]
                taken[way] += 1
                partner[other], partner[rank, number] = (rank, number), other
    return partner, group
