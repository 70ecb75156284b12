"""Programs as GOAL text: what a trace holds, for LogGOPSim, ATLAHS and whoever else reads it.

    text = goal_of(program)          # read_goal gives the program back, with messages in place of collectives

A collective becomes the messages that its algorithm writes: the state machines that hosts run are run here on a small
buffer, and each message waits for all that its rank had received when it was sent. Tags are numbered anew.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import lru_cache

from mrc_testbed.experiments.traces.expansion import MARKER_LANE
from mrc_testbed.experiments.traces.goal import NANOSECONDS
from mrc_testbed.hosts.traffic.program import (
    AnyTask,
    Compute,
    JoinCollective,
    Program,
    ReceiveMessage,
    SendMessage,
)

MODEL_ELEMENTS = 64
"""Elements for each rank of the small buffer: enough for every part of a tree."""
MARKER = f"calc 0 cpu {MARKER_LANE}"
"""Begin or end of a collective."""
RECEIVE, SEND = "recv", "send"
_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class CollectiveMove:
    """One message of a rank of a collective: the peer's position, its step, and its share of the buffer."""

    way: str
    peer: int
    step: int
    share: float


@lru_cache(maxsize=64)
def moves_of(kind: str, ranks: int) -> tuple[tuple[CollectiveMove, ...], ...]:
    """Return what each rank receives and sends, in an order in which it can happen."""
    # Not before: numpy comes with it.
    from mrc_testbed.hosts.traffic.collectives import Send, make

    machines = [make(kind, rank=rank, ranks=ranks, size_bytes=4 * MODEL_ELEMENTS * ranks) for rank in range(ranks)]
    moves: list[list[CollectiveMove]] = [[] for _ in machines]
    under_way: deque[tuple[int, Send]] = deque()

    def post(rank: int, sends: list[Send]) -> None:
        for send in sends:
            moves[rank].append(CollectiveMove(SEND, send.peer, send.step, send.count / machines[rank].elements))
            under_way.append((rank, send))

    for rank, machine in enumerate(machines):
        post(rank, machine.start(0))
    while under_way:
        rank, send = under_way.popleft()
        moves[send.peer].append(CollectiveMove(RECEIVE, rank, send.step, send.count / machines[rank].elements))
        post(send.peer, machines[send.peer].on_write(rank, send.step, 0))
    return tuple(map(tuple, moves))


@dataclass(slots=True)
class _Lines:
    """Lines of a rank: tasks by label, then what waits for what."""

    tasks: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)

    def add(self, text: str, enders: list[str], starters: list[str]) -> str:
        """Add a task; return its label."""
        label = f"t{len(self.tasks)}"
        self.tasks.append(f"{label}: {text}")
        self.waits += [f"{label} requires {ender}" for ender in enders]
        self.waits += [f"{label} irequires {starter}" for starter in starters]
        return label


class MessageTags:
    """Tags in the order in which they are asked for, each of one message.

    With a tag of several messages LogGOPSim gives each to any receive that waits, not to the first.
    """

    def __init__(self) -> None:
        self._numbers: dict[_Key, int] = {}
        self._counts: dict[_Key, int] = defaultdict(int)

    def number(self, *key: object) -> int:
        """Return the tag of a message by what names it."""
        return self._numbers.setdefault(key, len(self._numbers))

    def of_message(self, rank: int, task: SendMessage | ReceiveMessage) -> int:
        """Return the tag of the next message of a rank, the same at both of its ends."""
        is_send = isinstance(task, SendMessage)
        ends = (rank, task.peer) if is_send else (task.peer, rank)
        self._counts[is_send, ends, task.tag] += 1
        return self.number("message", ends, task.tag, self._counts[is_send, ends, task.tag])


def goal_of(program: Program) -> str:
    """Return a program as the text of a GOAL schedule."""
    tags = MessageTags()
    out = [f"num_ranks {len(program.ranks)}"]
    for rank, rank_tasks in enumerate(program.ranks):
        lines = _rank_lines(rank, rank_tasks.tasks, tags)
        out += ["", f"rank {rank} {{", *lines.tasks, *lines.waits, "}"]
    return "\n".join(out) + "\n"


def _rank_lines(rank: int, tasks: tuple[AnyTask, ...], tags: MessageTags) -> _Lines:
    lines = _Lines()
    counts: dict[tuple[int, ...], int] = defaultdict(int)
    first: dict[int, str] = {}
    last: dict[int, str] = {}
    # Tasks may wait for tasks below them, GOAL's text names only labels above: dependencies come behind all tasks.
    pending: list[tuple[str, AnyTask]] = []
    for number, task in enumerate(tasks):
        if isinstance(task, JoinCollective):
            first[number] = lines.add(MARKER, [], [])
            key = (task.group, counts[task.group])
            counts[task.group] += 1
            last[number] = _add_collective(lines, rank, task, first[number], key, tags)
        else:
            first[number] = last[number] = lines.add(_text(rank, task, tags), [], [])
        pending.append((first[number], task))
    for label, task in pending:
        lines.waits += [f"{label} requires {last[number]}" for number in task.after]
        lines.waits += [f"{label} irequires {first[number]}" for number in task.once_begun]
    return lines


def _text(rank: int, task: AnyTask, tags: MessageTags) -> str:
    if isinstance(task, Compute):
        return f"calc {round(task.seconds * NANOSECONDS)}{f' cpu {task.lane}' if task.lane else ''}"
    assert not isinstance(task, JoinCollective)
    way, word = (SEND, "to") if isinstance(task, SendMessage) else (RECEIVE, "from")
    return f"{way} {task.size}b {word} {task.peer} tag {tags.of_message(rank, task)}"


def _add_collective(lines: _Lines, rank: int, task: JoinCollective, start: str, key: _Key, tags: MessageTags) -> str:
    """Add the messages of a collective behind a label; return the label of what ends it."""
    received_labels, all_labels = [start], [start]
    for move in moves_of(task.kind, len(task.group))[task.group.index(rank)]:
        size, peer = max(1, round(task.size * move.share)), task.group[move.peer]
        ends = (rank, peer) if move.way == SEND else (peer, rank)
        tag = tags.number(*key, *ends, move.step)
        word = "to" if move.way == SEND else "from"
        # A receive may begin at once; what is sent has in it what came before.
        enders = received_labels if move.way == SEND else [start]
        label = lines.add(f"{move.way} {size}b {word} {peer} tag {tag}", enders, [])
        all_labels.append(label)
        if move.way == RECEIVE:
            received_labels = [*received_labels, label]
    return lines.add(MARKER, all_labels, [])
