"""What each rank of a Program runs: numbers of messages, places in memory and partners worked out beforehand.

    scripts = scripts_of(program)            # raises TrainingProgramError
    rank = ProgramRank(scripts[2], seed=7)   # hosts/traffic/program_rank.py

A number names a write of one rank to another within a step: collectives come first, each with a block of numbers that
is the same at all ranks, then messages in the order of their sender's tasks. A script is JSON (msgspec) on its way to
an agent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from mrc_testbed.hosts.traffic.collective_options import CollectiveOptions
from mrc_testbed.hosts.traffic.program import (
    Compute,
    JoinCollective,
    Program,
    ReceiveMessage,
    SendMessage,
    TrainingProgramError,
)

ELEMENT_BYTES = 4
NUMBERS_MAX = 1 << 16
"""Writes of one rank to another in a step, those of collectives included."""
TASKS_MAX = 100_000
"""Tasks of a rank."""
MEMORY_MAX = 1 << 30
"""Bytes of all messages that a rank sends or receives in a step."""


class ScriptTask(msgspec.Struct, array_like=True, frozen=True):
    """One task: what it waits for by number, and one of the four things it does."""

    after: list[int]
    once_begun: list[int]


class ComputeTask(ScriptTask, tag="compute", array_like=True, frozen=True):
    """Seconds of a lane."""

    seconds: float
    lane: int


class SendTask(ScriptTask, tag="send", array_like=True, frozen=True):
    """`elements` from `start` of our outbox to `at` of the inbox of `peer`."""

    peer: int
    number: int
    elements: int
    start: int
    at: int


class ReceiveTask(ScriptTask, tag="receive", array_like=True, frozen=True):
    """The message of that number of `peer`."""

    peer: int
    number: int


class JoinTask(ScriptTask, tag="join", array_like=True, frozen=True):
    """The collective of that place in RankScript.collectives."""

    collective: int


AnyScriptTask: TypeAlias = ComputeTask | SendTask | ReceiveTask | JoinTask


class Incoming(msgspec.Struct, array_like=True, frozen=True):
    """A message that comes: `elements` at `at` of our inbox."""

    peer: int
    number: int
    elements: int
    at: int


class ScriptCollective(msgspec.Struct, array_like=True, frozen=True):
    """A collective that this rank is in. Its writes have numbers from `base` on; `key` names it at all ranks."""

    key: int
    base: int
    kind: str
    size: int
    group: list[int]
    options: CollectiveOptions


class RankScript(msgspec.Struct, frozen=True):
    """All that one rank does in a step. Places and counts are elements of four bytes."""

    rank: int
    ranks: int
    tasks: list[AnyScriptTask]
    collectives: list[ScriptCollective]
    incoming: list[Incoming]
    targets: list[int]
    """Ranks that it writes to."""
    outbox: int
    inbox: int
    sent_bytes: int
    """Payload that it writes in a step, about as much as collectives do by their bus factor."""


def scripts_of(program: Program) -> list[RankScript]:
    """The script of each rank. Raises TrainingProgramError."""
    from mrc_testbed.hosts.traffic.collectives import CollectiveError  # numpy comes with it

    try:
        return _scripts(program)
    except CollectiveError as error:
        raise TrainingProgramError(str(error)) from None


def _scripts(program: Program) -> list[RankScript]:
    from mrc_testbed.hosts.traffic.collectives import bus_factor_of, peers_of, steps_of

    ranks = len(program.ranks)
    blocks = _collectives(program)
    bases, taken = {}, 0
    for key, (joined, _) in enumerate(blocks.values()):
        bases[key] = taken
        taken += steps_of(joined.kind, len(joined.group))
    keys = {place: key for key, (_, places) in enumerate(blocks.values()) for place in places}
    messages = _messages(program, first=taken)
    inboxes, arrivals = _inboxes(program, messages)
    scripts = []
    for rank, mine in enumerate(program.ranks):
        if len(mine.tasks) > TASKS_MAX:
            raise TrainingProgramError(f"rank {rank} has {len(mine.tasks)} tasks: at most {TASKS_MAX}")
        tasks: list[AnyScriptTask] = []
        collectives: list[ScriptCollective] = []
        targets: set[int] = set()
        start, sent = 0, 0.0
        for number, task in enumerate(mine.tasks):
            waits = (list(task.after), list(task.once_begun))
            match task:
                case Compute():
                    tasks.append(ComputeTask(*waits, task.seconds, task.lane))
                case SendMessage():
                    one = messages[rank, number]
                    tasks.append(SendTask(*waits, task.peer, one.number, one.elements, start, inboxes[rank, number]))
                    start, sent = start + one.elements, sent + one.elements * ELEMENT_BYTES
                    targets.add(task.peer)
                case ReceiveMessage():
                    one = messages[rank, number]
                    tasks.append(ReceiveTask(*waits, task.peer, one.number))
                case JoinCollective():
                    key = keys[rank, number]
                    count, own = len(task.group), task.group.index(rank)
                    tasks.append(JoinTask(*waits, len(collectives)))
                    collectives.append(
                        ScriptCollective(key, bases[key], task.kind, task.size, list(task.group), task.options)
                    )
                    targets |= {task.group[peer] for peer in peers_of(task.kind, own, count, task.options)}
                    sent += task.size * bus_factor_of(task.kind, count)
        inbox = sum(one.elements for one in arrivals[rank])
        for what, elements in (("sends", start), ("receives", inbox)):
            if elements * ELEMENT_BYTES > MEMORY_MAX:
                raise TrainingProgramError(
                    f"rank {rank} {what} {elements * ELEMENT_BYTES >> 20} MiB in messages a step: at most "
                    f"{MEMORY_MAX >> 20}; scale the sizes down"
                )
        scripts.append(
            RankScript(rank, ranks, tasks, collectives, arrivals[rank], sorted(targets), start, inbox, round(sent))
        )
    return scripts


_Nth: TypeAlias = tuple[tuple[int, ...], int]
"""A group of ranks, and which of its collectives."""


class _Message(msgspec.Struct, frozen=True):
    number: int
    elements: int


def _collectives(program: Program) -> dict[_Nth, tuple[JoinCollective, list[tuple[int, int]]]]:
    """(group, n-th of it) -> its task, and where it stands as (rank, task number), in an order all ranks share."""
    found: dict[_Nth, tuple[JoinCollective, list[tuple[int, int]]]] = {}
    for rank, mine in enumerate(program.ranks):
        counts: dict[tuple[int, ...], int] = defaultdict(int)
        for number, task in enumerate(mine.tasks):
            if isinstance(task, JoinCollective):
                if rank not in task.group or len(set(task.group)) != len(task.group) or len(task.group) < 2:
                    raise TrainingProgramError(
                        f"rank {rank}, task {number}: a collective of ranks {list(task.group)}: its own rank, and two "
                        "or more different ones, have to be among them"
                    )
                nth = counts[task.group]
                counts[task.group] += 1
                first, places = found.setdefault((task.group, nth), (task, []))
                if (first.kind, first.size, first.options) != (task.kind, task.size, task.options):
                    raise TrainingProgramError(
                        f"collective {nth + 1} of ranks {list(task.group)} is {task.kind} of {task.size} bytes at rank "
                        f"{rank} and {first.kind} of {first.size} at rank {places[0][0]}"
                    )
                places.append((rank, number))
    for (group, nth), (task, places) in found.items():
        missing = sorted(set(task.group) - {rank for rank, _ in places})
        if missing:
            raise TrainingProgramError(
                f"collective {nth + 1} ({task.kind}) of ranks {list(group)}: rank {missing[0]} never joins it"
            )
    return found


def _messages(program: Program, first: int) -> dict[tuple[int, int], _Message]:
    """(rank, task number) of both halves of each message -> the message."""
    out: dict[tuple[int, int], _Message] = {}
    waiting: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
    numbers: dict[tuple[int, int], int] = defaultdict(lambda: first)
    for rank, number, task in _tasks(program, SendMessage):
        if not 0 <= task.peer < len(program.ranks) or task.peer == rank:
            raise TrainingProgramError(
                f"rank {rank}, task {number}: a message to rank {task.peer}: {_others(program, rank)}"
            )
        if task.size < 0:
            raise TrainingProgramError(f"rank {rank}, task {number}: a message of {task.size} bytes")
        pair = (rank, task.peer)
        out[rank, number] = _Message(numbers[pair], max(1, -(-task.size // ELEMENT_BYTES)))
        numbers[pair] += 1
        waiting[rank, task.peer, task.tag].append((number, task.size))
    if numbers and max(numbers.values()) > NUMBERS_MAX:
        (a, b) = max(numbers, key=lambda pair: numbers[pair])
        raise TrainingProgramError(
            f"rank {a} writes {numbers[a, b]} times to rank {b} in a step, collectives included: at most {NUMBERS_MAX}"
        )
    taken: dict[tuple[int, int, int], int] = defaultdict(int)
    for rank, number, task in _tasks(program, ReceiveMessage):
        if not 0 <= task.peer < len(program.ranks) or task.peer == rank:
            raise TrainingProgramError(
                f"rank {rank}, task {number}: a message of rank {task.peer}: {_others(program, rank)}"
            )
        way = (task.peer, rank, task.tag)
        sent = waiting[way]
        if taken[way] >= len(sent):
            raise TrainingProgramError(
                f"rank {rank}, task {number} waits for message {taken[way] + 1} of rank {task.peer} with tag "
                f"{task.tag}, which sends {len(sent)}"
            )
        at, size = sent[taken[way]]
        taken[way] += 1
        if size != task.size:
            raise TrainingProgramError(
                f"rank {rank}, task {number} waits for {task.size} bytes of rank {task.peer}, whose task {at} sends "
                f"{size}"
            )
        out[rank, number] = out[task.peer, at]
    for (source, target, tag), sent in waiting.items():
        if taken[source, target, tag] < len(sent):
            number = sent[taken[source, target, tag]][0]
            raise TrainingProgramError(
                f"rank {source}, task {number}: nobody receives its message to rank {target}, tag {tag}"
            )
    return out


def _tasks(program: Program, kind: type) -> Iterable[tuple[int, int, SendMessage | ReceiveMessage]]:
    for rank, mine in enumerate(program.ranks):
        for number, task in enumerate(mine.tasks):
            if isinstance(task, kind):
                assert isinstance(task, SendMessage | ReceiveMessage)
                yield rank, number, task


def _others(program: Program, rank: int) -> str:
    return f"there are ranks 0 to {len(program.ranks) - 1}, and a rank does not talk to itself ({rank})"


def _inboxes(
    program: Program, messages: dict[tuple[int, int], _Message]
) -> tuple[dict[tuple[int, int], int], list[list[Incoming]]]:
    """Place of each message, by (sender, task number), in the inbox of its receiver; and what comes to each rank."""
    places: dict[tuple[int, int], int] = {}
    arrivals: list[list[Incoming]] = [[] for _ in program.ranks]
    used = [0] * len(program.ranks)
    for rank, number, task in _tasks(program, SendMessage):
        one = messages[rank, number]
        places[rank, number] = used[task.peer]
        arrivals[task.peer].append(Incoming(rank, one.number, one.elements, used[task.peer]))
        used[task.peer] += one.elements
    return places, arrivals
