"""MLCommons Chakra execution traces: a file for each rank, `NAME.RANK.et`, protobuf messages behind their lengths.

COMP nodes take their `duration_micros` (those on a CPU on a lane of their own); memory, storage and metadata nodes take
theirs, mostly none. COMM_COLL nodes join a collective of their process group, COMM_SEND and COMM_RECV nodes are
messages. Control and data dependencies are both waited for. Collectives that the testbed has not are made of messages
(expansion.py). Who is in a process group (`pg_name`): the file of groups, else what a node of the trace says about it,
else all ranks whose trace names it; without a name all ranks.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError

from mrc_testbed.experiments.traces.chakra_schema import COLLECTIVES, MESSAGES, NODE_TYPES
from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.expansion import EXPANDED, Expansion, expand
from mrc_testbed.hosts.traffic.program import (
    AnyTask,
    Compute,
    JoinCollective,
    Program,
    RankTasks,
    ReceiveMessage,
    SendMessage,
)
from mrc_testbed.hosts.traffic.program_script import TASKS_MAX

MESSAGE_MAX = 16 << 20
"""Bytes of a node."""
RANKS_MAX = 4096
SIZE_MAX = 1 << 50
MICROSECOND = 1e-6
KINDS = {
    "ALL_REDUCE": "all_reduce",
    "ALL_GATHER": "all_gather",
    "ALL_TO_ALL": "all_to_all",
    "REDUCE_SCATTER": "reduce_scatter",
    "REDUCE_SCATTER_BLOCK": "reduce_scatter",
    "BARRIER": "all_reduce_tree",
}
"""Collectives of Chakra that are ones of ours. A barrier is an all-reduce of one element a rank."""
CPU_LANE, DEVICE_LANE = 1, 0


@dataclass(slots=True)
class _Node:
    id: int
    name: str
    kind: str
    after: list[int]
    seconds: float
    attributes: dict[str, Any]
    inputs: str


@dataclass(slots=True)
class _Trace:
    path: Path
    rank: int
    nodes: list[_Node] = field(default_factory=list)


def read_chakra(path: Path, groups: Path | None = None) -> Program:
    """The program of a folder of .et files, or of one of them and those of its name beside it. Raises TraceError."""
    traces = [_read(file, rank) for rank, file in enumerate(_files(path))]
    members = _Groups(traces, groups)
    order = {group: at for at, group in enumerate(sorted({members.of(t, n) for t in traces for n in _joins(t)}))}
    return Program(path.stem.partition(".")[0], tuple(_tasks(trace, members, order) for trace in traces))


def _files(path: Path) -> list[Path]:
    """One a rank, by its number."""
    if path.is_dir():
        found = sorted(path.glob("*.et"))
        jobs = sorted({_job(one) for one in found})
        if len(jobs) > 1:
            raise TraceError(path, f"traces of several jobs ({', '.join(jobs[:4])}, ...): name a file of one of them")
    else:
        found = [one for one in path.parent.glob("*.et") if _job(one) == _job(path)]
    ranks: dict[int, Path] = {}
    for one in found:
        number = re.fullmatch(r"(?:.*\.)?(\d{1,6})\.et", one.name)
        if number is None:
            raise TraceError(one, "the name of a rank's file is NAME.RANK.et")
        ranks[int(number[1])] = one
    if len(ranks) < 2:
        raise TraceError(path, f"{len(ranks)} files of ranks (NAME.RANK.et): a job has two ranks or more")
    if len(ranks) > RANKS_MAX:
        raise TraceError(path, f"{len(ranks)} ranks: at most {RANKS_MAX}")
    if missing := sorted(set(range(max(ranks) + 1)) - set(ranks)):
        raise TraceError(path, f"rank {missing[0]} has no file, rank {max(ranks)} has ({len(missing)} missing)")
    return [ranks[rank] for rank in range(len(ranks))]


def _job(path: Path) -> str:
    """NAME of NAME.RANK.et."""
    return path.name.rpartition(".")[0].rpartition(".")[0]


# ---- a file -------------------------------------------------------------------------------------------------


def _read(path: Path, rank: int) -> _Trace:
    trace = _Trace(path, rank)
    seen: set[int] = set()
    try:
        with path.open("rb") as file:
            for number, data in enumerate(_messages(path, file)):
                try:
                    if number == 0:
                        MESSAGES["GlobalMetadata"].FromString(data)
                        continue
                    node = MESSAGES["Node"].FromString(data)
                except DecodeError as error:
                    what = "GlobalMetadata" if number == 0 else f"node {number}"
                    raise TraceError(path, f"{what} is no message of a Chakra trace: {error}") from None
                if len(trace.nodes) >= TASKS_MAX:
                    raise TraceError(path, f"more than {TASKS_MAX} nodes")
                if node.id in seen:
                    raise TraceError(path, f"two nodes have the id {node.id}")
                seen.add(node.id)
                trace.nodes.append(_node(path, node))
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror}") from None
    for one in trace.nodes:
        if unknown := [other for other in one.after if other not in seen]:
            raise TraceError(path, f"node {one.id} ({one.name}) waits for node {unknown[0]}, which is not there")
    return trace


def _messages(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """Messages behind their lengths (varints), one in memory at a time."""
    count = 0
    while True:
        length = shift = 0
        while True:
            byte = file.read(1)
            if not byte:
                if shift:
                    raise TraceError(path, f"cut off after {count} messages")
                if not count:
                    raise TraceError(path, "empty: a Chakra trace begins with its GlobalMetadata")
                return
            length |= (byte[0] & 0x7F) << shift
            shift += 7
            if byte[0] < 0x80:
                break
            if shift > 28:
                raise TraceError(path, f"message {count + 1} has no sensible length: not a Chakra trace")
        if length > MESSAGE_MAX:
            what = f"message {count + 1} would have {length} bytes, at most {MESSAGE_MAX}"
            raise TraceError(path, f"{what}: not a Chakra trace")
        data = file.read(length)
        if len(data) < length:
            raise TraceError(path, f"cut off after {count} messages: the next lacks {length - len(data)} bytes")
        count += 1
        yield data


def _node(path: Path, node: Any) -> _Node:
    kind = NODE_TYPES.get(node.type)
    if kind is None:
        known = ", ".join(NODE_TYPES.values())
        raise TraceError(path, f"node {node.id} ({node.name}) is of type {node.type} (known: {known})")
    values = {one.name: getattr(one, which) for one in node.attr if (which := one.WhichOneof("value"))}
    after = list(dict.fromkeys([*node.ctrl_deps, *node.data_deps]))
    return _Node(node.id, node.name[:80], kind, after, node.duration_micros * MICROSECOND, values, node.inputs.values)


# ---- who talks to whom --------------------------------------------------------------------------------------


def _joins(trace: _Trace) -> Iterator[_Node]:
    return (node for node in trace.nodes if node.kind == "COMM_COLL_NODE")


class _Groups:
    """Ranks of each process group."""

    def __init__(self, traces: list[_Trace], file: Path | None) -> None:
        self._all = tuple(range(len(traces)))
        self._given = _given_groups(file, len(traces)) if file else {}
        self._told: dict[str, tuple[int, ...]] = {}
        self._named: dict[str, set[int]] = defaultdict(set)
        for trace in traces:
            for node in trace.nodes:
                if node.kind == "METADATA_NODE" and "process_group" in node.name:
                    self._told |= _told_groups(node.inputs, len(traces))
                elif node.kind == "COMM_COLL_NODE":
                    self._named[str(node.attributes.get("pg_name", ""))].add(trace.rank)

    def of(self, trace: _Trace, node: _Node) -> tuple[int, ...]:
        """Ranks of the node's group, ascending. Raises TraceError."""
        name = str(node.attributes.get("pg_name", ""))
        if not name:
            return self._all
        found = self._given.get(name) or self._told.get(name) or tuple(sorted(self._named[name]))
        if trace.rank not in found:
            raise _wrong(trace, node, f"is of process group {name!r}, ranks {list(found)}, without its own")
        return found


def _given_groups(file: Path, ranks: int) -> dict[str, tuple[int, ...]]:
    """A JSON file: {"group": [0, 1, ...]}. Raises TraceError."""
    try:
        given = json.loads(file.read_bytes())
        found = {str(name): tuple(sorted(map(int, members))) for name, members in given.items()}
    except OSError as error:
        raise TraceError(file, f"cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise TraceError(file, 'groups are JSON like {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]}') from None
    for name, members in found.items():
        if not members or members[0] < 0 or members[-1] >= ranks or len(set(members)) != len(members):
            raise TraceError(file, f"group {name!r}: ranks {list(members)}, of 0 to {ranks - 1}, each once")
    return found


def _told_groups(text: str, ranks: int) -> dict[str, tuple[int, ...]]:
    """What PyTorch's node about process groups says, where it says something; an empty list of ranks means all."""
    try:
        told = json.loads(text)
        found = {str(one["pg_name"]): tuple(sorted(map(int, one.get("ranks") or range(ranks)))) for one in told}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
    return {name: group for name, group in found.items() if group and group[0] >= 0 and group[-1] < ranks}


# ---- tasks --------------------------------------------------------------------------------------------------


def _tasks(trace: _Trace, members: _Groups, order: dict[tuple[int, ...], int]) -> RankTasks:
    """Tasks of a rank. A node that becomes several is waited for by the last of them."""
    nodes = {node.id: node for node in trace.nodes}
    sizes: dict[int, Expansion] = {}
    counts: dict[tuple[int, ...], int] = defaultdict(int)
    for node in _joins(trace):
        kind = _collective(trace, node)
        group = members.of(trace, node)
        if kind in EXPANDED:
            sizes[node.id] = expand(
                kind,
                group,
                group.index(trace.rank),
                _root(trace, node, group),
                _size(trace, node),
                tag=-1 - (counts[group] * len(order) + order[group]),
            )
            counts[group] += 1
    last, at = {}, 0
    for node in trace.nodes:
        at += len(sizes[node.id]) + 1 if node.id in sizes else 1
        last[node.id] = at - 1
    tasks: list[AnyTask] = []
    for node in nodes.values():
        after = tuple(last[other] for other in node.after)
        if node.id in sizes:
            tasks += sizes[node.id].tasks(len(tasks), after, node.name)
        else:
            tasks.append(_task(trace, node, after, members))
    return RankTasks(tuple(tasks))


def _task(trace: _Trace, node: _Node, after: tuple[int, ...], members: _Groups) -> AnyTask:
    name = node.name
    if node.kind == "COMM_COLL_NODE":
        group = members.of(trace, node)
        if len(group) < 2:
            return Compute(seconds=0.0, name=name, after=after)
        kind = _collective(trace, node)
        size = 4 * len(group) if kind == "BARRIER" else _size(trace, node)
        return JoinCollective(kind=KINDS[kind], size=max(1, size), group=group, name=name, after=after)
    if node.kind in ("COMM_SEND_NODE", "COMM_RECV_NODE"):
        sends = node.kind == "COMM_SEND_NODE"
        peer = _number(trace, node, "comm_dst" if sends else "comm_src")
        made = SendMessage if sends else ReceiveMessage
        tag = _number(trace, node, "comm_tag", 0)
        return made(peer=peer, size=_size(trace, node), tag=max(0, tag), name=name, after=after)
    lane = CPU_LANE if node.attributes.get("is_cpu_op") else DEVICE_LANE
    return Compute(seconds=node.seconds, lane=lane, name=name, after=after)


def _collective(trace: _Trace, node: _Node) -> str:
    number = _number(trace, node, "comm_type")
    if not 0 <= number < len(COLLECTIVES):
        known = ", ".join(f"{at} {name}" for at, name in enumerate(COLLECTIVES))
        raise _wrong(trace, node, f"has comm_type {number} (known: {known})")
    return COLLECTIVES[number]


def _size(trace: _Trace, node: _Node) -> int:
    size = _number(trace, node, "comm_size")
    if not 0 <= size <= SIZE_MAX:
        raise _wrong(trace, node, f"has comm_size {size}: 0 to {SIZE_MAX} bytes")
    return size


def _root(trace: _Trace, node: _Node, group: tuple[int, ...]) -> int:
    """Place of the root in the group; its first rank where the node does not say."""
    root = _number(trace, node, "root_rank", group[0])
    if root not in group:
        raise _wrong(trace, node, f"has root_rank {root}, which is not of its group {list(group)}")
    return group.index(root)


def _number(trace: _Trace, node: _Node, name: str, default: int | None = None) -> int:
    value = node.attributes.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        has = ", ".join(sorted(node.attributes)) or "none"
        raise _wrong(trace, node, f"needs the number {name} (its attributes: {has})")
    return value


def _wrong(trace: _Trace, node: _Node, text: str) -> TraceError:
    return TraceError(trace.path, f"node {node.id} ({node.name}) {text}")
