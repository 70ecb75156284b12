"""Tasks of one rank as a reader adds them: computing, messages, collectives, each with its number."""

from __future__ import annotations

from collections import defaultdict
from zlib import crc32

from mrc_testbed.experiments.traces.expansion import EXPANDED_KINDS, MARKER_LANE, expand
from mrc_testbed.hosts.traffic.program import (
    AnyTask,
    Compute,
    JoinCollective,
    RankTasks,
    ReceiveMessage,
    SendMessage,
)
from mrc_testbed.hosts.traffic.program_script import TASKS_MAX

KINDS = {
    "ALL_REDUCE": "all_reduce",
    "ALL_GATHER": "all_gather",
    "ALL_TO_ALL": "all_to_all",
    "REDUCE_SCATTER": "reduce_scatter",
    "REDUCE_SCATTER_BLOCK": "reduce_scatter",
    "BARRIER": "all_reduce_tree",
}
"""Chakra's name of a collective -> the testbed's; a barrier is an all-reduce of one element per rank."""
Dependencies = tuple[int, ...]


class TaskList:
    """Tasks of a rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._tasks: list[AnyTask] = []
        self._counts: dict[tuple[int, ...], int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self._tasks)

    def finish(self) -> RankTasks:
        """Return the tasks that were added."""
        return RankTasks(tuple(self._tasks))

    def compute(self, seconds: float, dependencies: Dependencies, *, lane: int = 0, name: str = "") -> int:
        """Add a computation."""
        return self._add(Compute(seconds=seconds, lane=lane, after=dependencies, name=name))

    def send(self, peer: int, size: int, dependencies: Dependencies, *, tag: int = 0, name: str = "") -> int:
        """Add a message to a peer."""
        return self._add(SendMessage(peer=peer, size=size, tag=tag, after=dependencies, name=name))

    def receive(self, peer: int, size: int, dependencies: Dependencies, *, tag: int = 0, name: str = "") -> int:
        """Add a message of a peer."""
        return self._add(ReceiveMessage(peer=peer, size=size, tag=tag, after=dependencies, name=name))

    def collective(
        self, kind: str, size: int, group: tuple[int, ...], dependencies: Dependencies, *, root: int = 0, name: str = ""
    ) -> int:
        """Add a collective by Chakra's name; `size` as nccl-tests count it, `root` is a position in the group."""
        if len(group) < 2:
            return self.compute(0.0, dependencies, lane=MARKER_LANE, name=name)
        if kind not in EXPANDED_KINDS:
            return self._add(
                JoinCollective(kind=KINDS[kind], size=max(1, size), group=group, after=dependencies, name=name)
            )
        # Negative tags are those of collectives; each of a group has its own.
        self._counts[group] += 1
        tag = -(crc32(repr(group).encode()) * (TASKS_MAX + 1) + self._counts[group])
        messages = expand(kind, group, group.index(self.rank), root, max(1, size), tag)
        self._tasks += messages.tasks(len(self._tasks), dependencies, name)
        return len(self._tasks) - 1

    def _add(self, task: AnyTask) -> int:
        self._tasks.append(task)
        return len(self._tasks) - 1
