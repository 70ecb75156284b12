"""Scripts of the ranks of a Program, with message numbers, offsets in memory and partners precomputed.

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
    """One task: the numbers of the tasks it waits for; the action is in the subclass."""

    after: list[int]
    once_begun: list[int]


class ComputeTask(ScriptTask, tag="compute", array_like=True, frozen=True):
    """Seconds of a lane."""

    seconds: float
    lane: int


class SendTask(ScriptTask, tag="send", array_like=True, frozen=True):
    """`elements` from `start` of our outbox to `inbox_start` of the inbox of `peer`."""

    peer: int
    number: int
    elements: int
    start: int
    inbox_start: int


class ReceiveTask(ScriptTask, tag="receive", array_like=True, frozen=True):
    """The message of that number of `peer`."""

    peer: int
    number: int


class JoinTask(ScriptTask, tag="join", array_like=True, frozen=True):
    """The collective of that place in RankScript.collectives."""

    collective: int


AnyScriptTask: TypeAlias = ComputeTask | SendTask | ReceiveTask | JoinTask


class Incoming(msgspec.Struct, array_like=True, frozen=True):
    """A message that comes: `elements` at `inbox_start` of our inbox."""

    peer: int
    number: int
    elements: int
    inbox_start: int


class ScriptCollective(msgspec.Struct, array_like=True, frozen=True):
    """Collective of this rank: its writes have numbers from `base` on, `key` names it at all ranks."""

    key: int
    base: int
    kind: str
    size: int
    group: list[int]
    options: CollectiveOptions


class RankScript(msgspec.Struct, frozen=True):
    """Everything that one rank does in a step. Offsets and counts are elements of four bytes."""

    rank: int
    ranks: int
    tasks: list[AnyScriptTask]
    collectives: list[ScriptCollective]
    incoming: list[Incoming]
    targets: list[int]
    """Ranks that this one writes to."""
    outbox: int
    inbox: int
    sent_bytes: int
    """Payload written in a step, bytes; for collectives by their bus factor, so approximate."""


def scripts_of(program: Program) -> list[RankScript]:
    """Return the script of each rank. Raises TrainingProgramError."""
    from mrc_testbed.hosts.traffic.collectives import CollectiveError  # numpy comes with it

    try:
        return _build_scripts(program)
    except CollectiveError as error:
        raise TrainingProgramError(str(error)) from None


def _build_scripts(program: Program) -> list[RankScript]:
    from mrc_testbed.hosts.traffic.collectives import bus_factor_of, peers_of, steps_of

    ranks = len(program.ranks)
    # Collectives come first, each with a block of write numbers that is the same at all ranks.
    blocks = _group_collectives(program)
    bases, number_count = {}, 0
    for key, (join_task, _) in enumerate(blocks.values()):
        bases[key] = number_count
        number_count += steps_of(join_task.kind, len(join_task.group))
    keys = {task_id: key for key, (_, task_ids) in enumerate(blocks.values()) for task_id in task_ids}
    messages = _number_messages(program, first=number_count)
    inboxes, arrivals = _inboxes(program, messages)
    scripts = []
    for rank, rank_tasks in enumerate(program.ranks):
        if len(rank_tasks.tasks) > TASKS_MAX:
            raise TrainingProgramError(f"rank {rank} has {len(rank_tasks.tasks)} tasks: at most {TASKS_MAX}")
        tasks: list[AnyScriptTask] = []
        collectives: list[ScriptCollective] = []
        targets: set[int] = set()
        start, sent = 0, 0.0
        for number, task in enumerate(rank_tasks.tasks):
            waits = (list(task.after), list(task.once_begun))
            match task:
                case Compute():
                    tasks.append(ComputeTask(*waits, task.seconds, task.lane))
                case SendMessage():
                    message = messages[rank, number]
                    tasks.append(
                        SendTask(*waits, task.peer, message.number, message.elements, start, inboxes[rank, number])
                    )
                    start, sent = start + message.elements, sent + message.elements * ELEMENT_BYTES
                    targets.add(task.peer)
                case ReceiveMessage():
                    message = messages[rank, number]
                    tasks.append(ReceiveTask(*waits, task.peer, message.number))
                case JoinCollective():
                    key = keys[rank, number]
                    count, group_rank = len(task.group), task.group.index(rank)
                    tasks.append(JoinTask(*waits, len(collectives)))
                    collectives.append(
                        ScriptCollective(key, bases[key], task.kind, task.size, list(task.group), task.options)
                    )
                    targets |= {task.group[peer] for peer in peers_of(task.kind, group_rank, count, task.options)}
                    sent += task.size * bus_factor_of(task.kind, count)
        inbox = sum(message.elements for message in arrivals[rank])
        for verb, elements in (("sends", start), ("receives", inbox)):
            if elements * ELEMENT_BYTES > MEMORY_MAX:
                raise TrainingProgramError(
                    f"rank {rank} {verb} {elements * ELEMENT_BYTES >> 20} MiB in messages a step: at most "
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


def _group_collectives(program: Program) -> dict[_Nth, tuple[JoinCollective, list[tuple[int, int]]]]:
    """Return (group, n-th of the group) -> (task, [(rank, task number)]), in an order all ranks share."""
    collectives: dict[_Nth, tuple[JoinCollective, list[tuple[int, int]]]] = {}
    for rank, rank_tasks in enumerate(program.ranks):
        counts: dict[tuple[int, ...], int] = defaultdict(int)
        # The n-th collective of a group at one rank is the n-th of that group at every rank.
        for number, task in enumerate(rank_tasks.tasks):
            if isinstance(task, JoinCollective):
                if rank not in task.group or len(set(task.group)) != len(task.group) or len(task.group) < 2:
                    raise TrainingProgramError(
                        f"rank {rank}, task {number}: a collective of ranks {list(task.group)}: its own rank, and two "
                        "or more different ones, have to be among them"
                    )
                nth = counts[task.group]
                counts[task.group] += 1
                first, task_ids = collectives.setdefault((task.group, nth), (task, []))
                if (first.kind, first.size, first.options) != (task.kind, task.size, task.options):
                    raise TrainingProgramError(
                        f"collective {nth + 1} of ranks {list(task.group)} is {task.kind} of {task.size} bytes at rank "
                        f"{rank} and {first.kind} of {first.size} at rank {task_ids[0][0]}"
                    )
                task_ids.append((rank, number))
    for (group, nth), (task, task_ids) in collectives.items():
        missing_ranks = sorted(set(task.group) - {rank for rank, _ in task_ids})
        if missing_ranks:
            raise TrainingProgramError(
                f"collective {nth + 1} ({task.kind}) of ranks {list(group)}: rank {missing_ranks[0]} never joins it"
            )
    return collectives


def _number_messages(program: Program, first: int) -> dict[tuple[int, int], _Message]:
    """Return (rank, task number) of both halves of each message -> the message."""
    out: dict[tuple[int, int], _Message] = {}
    waiting: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
    numbers: dict[tuple[int, int], int] = defaultdict(lambda: first)
    for rank, number, task in _tasks(program, SendMessage):
        if not 0 <= task.peer < len(program.ranks) or task.peer == rank:
            raise TrainingProgramError(
                f"rank {rank}, task {number}: a message to rank {task.peer}: {_peer_range(program, rank)}"
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
    taken_counts: dict[tuple[int, int, int], int] = defaultdict(int)
    # Messages of one channel (sender, receiver, tag) are matched in the order of the tasks.
    for rank, number, task in _tasks(program, ReceiveMessage):
        if not 0 <= task.peer < len(program.ranks) or task.peer == rank:
            raise TrainingProgramError(
                f"rank {rank}, task {number}: a message of rank {task.peer}: {_peer_range(program, rank)}"
            )
        channel = (task.peer, rank, task.tag)
        sent = waiting[channel]
        if taken_counts[channel] >= len(sent):
            raise TrainingProgramError(
                f"rank {rank}, task {number} waits for message {taken_counts[channel] + 1} of rank {task.peer} with "
                f"tag {task.tag}, which sends {len(sent)}"
            )
        sender_number, size = sent[taken_counts[channel]]
        taken_counts[channel] += 1
        if size != task.size:
            raise TrainingProgramError(
                f"rank {rank}, task {number} waits for {task.size} bytes of rank {task.peer}, whose task "
                f"{sender_number} sends {size}"
            )
        out[rank, number] = out[task.peer, sender_number]
    for (source, target, tag), sent in waiting.items():
        if taken_counts[source, target, tag] < len(sent):
            number = sent[taken_counts[source, target, tag]][0]
            raise TrainingProgramError(
                f"rank {source}, task {number}: message to rank {target}, tag {tag}, without a receiver"
            )
    return out


def _tasks(program: Program, kind: type) -> Iterable[tuple[int, int, SendMessage | ReceiveMessage]]:
    for rank, rank_tasks in enumerate(program.ranks):
        for number, task in enumerate(rank_tasks.tasks):
            if isinstance(task, kind):
                assert isinstance(task, SendMessage | ReceiveMessage)
                yield rank, number, task


def _peer_range(program: Program, rank: int) -> str:
    return f"there are ranks 0 to {len(program.ranks) - 1}, and a rank does not talk to itself ({rank})"


def _inboxes(
    program: Program, messages: dict[tuple[int, int], _Message]
) -> tuple[dict[tuple[int, int], int], list[list[Incoming]]]:
    """Return the inbox offset of each message, and each rank's incoming messages.

    Offsets are by (sender, task number).
    """
    offsets: dict[tuple[int, int], int] = {}
    arrivals: list[list[Incoming]] = [[] for _ in program.ranks]
    used_elements = [0] * len(program.ranks)
    for rank, number, task in _tasks(program, SendMessage):
        message = messages[rank, number]
        offsets[rank, number] = used_elements[task.peer]
        arrivals[task.peer].append(Incoming(rank, message.number, message.elements, used_elements[task.peer]))
        used_elements[task.peer] += message.elements
    return offsets, arrivals
