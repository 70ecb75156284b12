"""Training step as a task graph per rank: computations, messages and collectives with dependencies.

    sender = RankTasks((Compute(seconds=0.02), SendMessage(peer=1, size=1 << 20, after=(0,))))
    program = Program("step", (sender, RankTasks((ReceiveMessage(peer=0, size=1 << 20),))))

Traces are read into it, generators make it (training_step.py), and program_script.py makes of it what each rank runs.
Nothing here has a clock or a socket. Tasks of a rank are numbered by their place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mrc_testbed.errors import UsageError
from mrc_testbed.hosts.traffic.collective_options import CollectiveOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Base of all tasks. Times are seconds, sizes bytes, peers are ranks."""

    name: str = ""
    after: tuple[int, ...] = ()
    """Tasks of this rank that have to end before this one begins."""
    once_begun: tuple[int, ...] = ()
    """Tasks of this rank that have to begin before this one does (`irequires` of GOAL)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute(Task):
    """Computation of a rank. Those of one lane run one at a time, in the order they become ready."""

    seconds: float
    lane: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage(Task):
    """A message to a peer; it ends when the peer has acknowledged all of it."""

    peer: int
    size: int
    tag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveMessage(Task):
    """A message of a peer: the next one with this tag. It ends when all of it is in memory."""

    peer: int
    size: int
    tag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCollective(Task):
    """A rank's part in a collective; it ends when this rank has its result.

    The n-th one of a group at one rank belongs to the n-th of that group at all others, by the order of their numbers.
    """

    kind: str
    """One of mrc_testbed.hosts.traffic.collectives.KINDS."""
    size: int
    """Bytes as nccl-tests count them: what a rank's larger buffer holds."""
    group: tuple[int, ...]
    """Ranks that take part, ascending."""
    options: CollectiveOptions = field(default_factory=CollectiveOptions)


AnyTask = Compute | SendMessage | ReceiveMessage | JoinCollective


@dataclass(frozen=True, slots=True)
class RankTasks:
    """One rank's tasks."""

    tasks: tuple[AnyTask, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """One step of all ranks; rank i is `ranks[i]`. Runs repeat it."""

    name: str
    ranks: tuple[RankTasks, ...]
    notes: tuple[str, ...] = ()
    """Sentences on what its source has and the program has not, or has otherwise."""


class TrainingProgramError(UsageError):
    """Program that cannot run: a cycle, half a message, groups that disagree, a size out of range.

    The message names rank and tasks, in one line.
    """
