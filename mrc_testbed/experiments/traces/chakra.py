"""MLCommons Chakra execution traces: one file per rank, `NAME.RANK.et`, or its JSON, `NAME.RANK.json`.

An .et file has length-prefixed messages.

COMP nodes take their `duration_micros` (those on a CPU on a lane of their own); memory, storage and metadata nodes take
theirs, mostly none. COMM_COLL nodes join a collective of their process group, COMM_SEND and COMM_RECV nodes are
messages. Control and data dependencies are both waited for. Collectives that the testbed lacks are made of messages
(expansion.py). Members of a process group (`pg_name`) come from the file of groups, else from a node of the trace that
lists them, else they are all ranks whose trace names the group; without a name all ranks.
"""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError

from mrc_testbed.experiments.traces.chakra_schema import COLLECTIVES, MESSAGES, NODE_TYPES
from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.expansion import EXPANDED_KINDS, Expansion, expand
from mrc_testbed.experiments.traces.recognition import kind_of
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
"""Most bytes of a node."""
CONTENT_MAX, JSON_GAP_MAX = 256 << 20, 1024
"""Most bytes of a file of JSON, and of blanks between two of its objects."""
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
"""Chakra's name of a collective -> the testbed's; a barrier is an all-reduce of one element per rank."""
CPU_LANE, DEVICE_LANE = 1, 0
_Data = bytes | dict[str, Any]
"""A message as it stands in a file."""


@dataclass(slots=True)
class _Node:
    id: int
    name: str
    kind: str
    dependencies: list[int]
    seconds: float
    attributes: dict[str, Any]
    inputs: str


@dataclass(slots=True)
class _Trace:
    path: Path
    rank: int
    nodes: list[_Node] = field(default_factory=list)


def read_chakra(path: Path, groups: Path | None = None) -> Program:
    """Return the program of a folder of .et or .json files, or of all files of one job. Raises TraceError.

    `path`: the folder, or one file of the job; `groups`: JSON file with the ranks of each process group.
    """
    as_json = kind_of(path) == "chakra json"
    traces = [_read(file, rank, as_json=as_json) for rank, file in enumerate(_files(path, groups))]
    members = _Groups(traces, groups)
    order = {
        group: index for index, group in enumerate(sorted({members.ranks_of(t, n) for t in traces for n in _joins(t)}))
    }
    return Program(path.stem.partition(".")[0], tuple(_tasks(trace, members, order) for trace in traces))


def _files(path: Path, groups: Path | None) -> list[Path]:
    """Return the file of each rank, by rank; a file of groups beside them is none. Raises TraceError."""
    if path.is_dir():
        ending = ".et" if any(path.glob("*.et")) else ".json"
        files = sorted(file for file in path.glob(f"*{ending}") if groups is None or not file.samefile(groups))
        jobs = sorted({_job(file) for file in files})
        if len(jobs) > 1:
            raise TraceError(path, f"traces of several jobs ({', '.join(jobs[:4])}, ...): name a file of one of them")
    else:
        files = [file for file in path.parent.glob(f"*{path.suffix}") if _job(file) == _job(path)]
    ranks: dict[int, Path] = {}
    for rank_file in files:
        number = re.fullmatch(r"(?:.*\.)?(\d{1,6})\.\w+", rank_file.name)
        if number is None:
            raise TraceError(rank_file, "the name of a rank's file is NAME.RANK.et or NAME.RANK.json")
        ranks[int(number[1])] = rank_file
    if len(ranks) < 2:
        raise TraceError(path, f"{len(ranks)} files of ranks (NAME.RANK.et or .json): a job has two ranks or more")
    if len(ranks) > RANKS_MAX:
        raise TraceError(path, f"{len(ranks)} ranks: at most {RANKS_MAX}")
    if missing_ranks := sorted(set(range(max(ranks) + 1)) - set(ranks)):
        raise TraceError(
            path, f"rank {missing_ranks[0]} has no file, rank {max(ranks)} has ({len(missing_ranks)} missing)"
        )
    return [ranks[rank] for rank in range(len(ranks))]


def _job(path: Path) -> str:
    """Return NAME of NAME.RANK.et or NAME.RANK.json."""
    return path.name.rpartition(".")[0].rpartition(".")[0]


# ---- a file -------------------------------------------------------------------------------------------------


def _read(path: Path, rank: int, *, as_json: bool = False) -> _Trace:
    trace = _Trace(path, rank)
    ids: set[int] = set()
    try:
        with path.open("rb") as file:
            # The first message is the file's metadata, all others are nodes.
            read: Callable[[Path, BinaryIO], Iterator[_Data]] = _json_messages if as_json else _messages
            for number, data in enumerate(read(path, file)):
                try:
                    if number == 0:
                        _message_of("GlobalMetadata", data)
                        continue
                    node = _message_of("Node", data)
                except (DecodeError, ParseError) as error:
                    subject = "GlobalMetadata" if number == 0 else f"node {number}"
                    raise TraceError(path, f"{subject} is no message of a Chakra trace: {error}") from None
                if len(trace.nodes) >= TASKS_MAX:
                    raise TraceError(path, f"more than {TASKS_MAX} nodes")
                if node.id in ids:
                    raise TraceError(path, f"two nodes have the id {node.id}")
                ids.add(node.id)
                trace.nodes.append(_node(path, node))
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror}") from None
    for waiting_node in trace.nodes:
        if unknown := [dependency for dependency in waiting_node.dependencies if dependency not in ids]:
            raise TraceError(
                path, f"node {waiting_node.id} ({waiting_node.name}) waits for node {unknown[0]}, which is not there"
            )
    return trace


def _messages(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """Yield messages that are prefixed with their length (a varint), one in memory at a time."""
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
            subject = f"message {count + 1} would have {length} bytes, at most {MESSAGE_MAX}"
            raise TraceError(path, f"{subject}: not a Chakra trace")
        data = file.read(length)
        if len(data) < length:
            raise TraceError(path, f"cut off after {count} messages: the next lacks {length - len(data)} bytes")
        count += 1
        yield data


def _json_messages(path: Path, file: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file, one after the other, as protobuf's MessageToJson writes them."""
    decoder, start = json.JSONDecoder(), 0
    try:
        text = file.read(CONTENT_MAX + 1).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise TraceError(path, "not UTF-8 text: not a Chakra trace as JSON") from None
    if len(text) > CONTENT_MAX:
        raise TraceError(path, f"more than {CONTENT_MAX} bytes: give the .et file that it was made of")
    while start < len(text):
        try:
            data, start = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            line = text.count("\n", 0, start) + 1
            raise TraceError(path, "no JSON object, or cut off: not a Chakra trace as JSON", line) from None
        if not isinstance(data, dict):
            raise TraceError(path, f"{data!r:.40} is no node", text.count("\n", 0, start) + 1)
        yield data
        start += len(text[start : start + JSON_GAP_MAX]) - len(text[start : start + JSON_GAP_MAX].lstrip())


def _message_of(name: str, data: _Data) -> Any:
    """Return a message of its bytes, or of its JSON. Raises DecodeError, ParseError."""
    if isinstance(data, bytes):
        return MESSAGES[name].FromString(data)
    numbers = {type_name: number for number, type_name in NODE_TYPES.items()}
    kind = data.get("type")
    return ParseDict(
        data | ({"type": numbers.get(kind, 0)} if isinstance(kind, str) else {}),
        MESSAGES[name](),
        ignore_unknown_fields=True,
    )


def _node(path: Path, node: Any) -> _Node:
    kind = NODE_TYPES.get(node.type)
    if kind is None:
        types = ", ".join(NODE_TYPES.values())
        raise TraceError(path, f"node {node.id} ({node.name}) is of type {node.type} (known: {types})")
    values = {
        attribute.name: getattr(attribute, kind_name)
        for attribute in node.attr
        if (kind_name := attribute.WhichOneof("value"))
    }
    values |= {
        attribute.name: list(attribute.bool_list.values) for attribute in node.attr if attribute.bool_list.values
    }
    dependencies = list(dict.fromkeys([*node.ctrl_deps, *node.data_deps]))
    return _Node(
        node.id, node.name[:80], kind, dependencies, node.duration_micros * MICROSECOND, values, node.inputs.values
    )


# ---- process groups -----------------------------------------------------------------------------------------


def _joins(trace: _Trace) -> Iterator[_Node]:
    return (node for node in trace.nodes if node.kind == "COMM_COLL_NODE")


class _Groups:
    """Ranks of each process group."""

    def __init__(self, traces: list[_Trace], file: Path | None) -> None:
        self._all_ranks = tuple(range(len(traces)))
        self._file_groups = read_groups(file, len(traces)) if file else {}
        self._trace_groups: dict[str, tuple[int, ...]] = {}
        self._ranks_by_group: dict[str, set[int]] = defaultdict(set)
        for trace in traces:
            for node in trace.nodes:
                if node.kind == "METADATA_NODE" and "process_group" in node.name:
                    groups = _parse_trace_groups(node.inputs, len(traces))
                    if groups is None and file is None:
                        raise _node_error(
                            trace, node, f"lists process groups as {node.inputs:.60}: not readable; give --groups FILE"
                        )
                    self._trace_groups |= groups or {}
                elif node.kind == "COMM_COLL_NODE":
                    self._ranks_by_group[str(node.attributes.get("pg_name", ""))].add(trace.rank)

    def ranks_of(self, trace: _Trace, node: _Node) -> tuple[int, ...]:
        """Return the ranks of the node's group, ascending. Raises TraceError."""
        name = str(node.attributes.get("pg_name", ""))
        dimensions = node.attributes.get("involved_dim")
        if not name and isinstance(dimensions, list) and not all(dimensions):
            raise _node_error(
                trace,
                node,
                f"has involved_dim {list(map(int, dimensions))}, of a topology that the trace does not have: give its "
                "nodes a pg_name, and --groups FILE",
            )
        if not name:
            return self._all_ranks
        ranks = self._file_groups.get(name) or self._trace_groups.get(name) or tuple(sorted(self._ranks_by_group[name]))
        if trace.rank not in ranks:
            raise _node_error(trace, node, f"is of process group {name!r}, ranks {list(ranks)}, without its own")
        return ranks


def read_groups(file: Path, ranks: int) -> dict[str, tuple[int, ...]]:
    """Return the groups of a JSON file: {"group": [0, 1, ...]}. Raises TraceError."""
    try:
        data = json.loads(file.read_bytes())
        groups = {str(name): tuple(sorted(map(int, members))) for name, members in data.items()}
    except OSError as error:
        raise TraceError(file, f"cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise TraceError(file, 'groups are JSON like {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]}') from None
    for name, members in groups.items():
        if not members or members[0] < 0 or members[-1] >= ranks or len(set(members)) != len(members):
            raise TraceError(file, f"group {name!r}: ranks {list(members)}, of 0 to {ranks - 1}, each once")
    return groups


def _parse_trace_groups(text: str, ranks: int) -> dict[str, tuple[int, ...]] | None:
    """Return the process groups that PyTorch's metadata node lists; None for other text.

    An empty list of ranks means all ranks. Chakra's converter writes str() of a list with one text, which is the JSON.
    """
    if not text:
        return {}
    try:
        if text.startswith(("['", '["')):
            (text,) = ast.literal_eval(text)
        data = json.loads(text)
        groups = {str(entry["pg_name"]): tuple(sorted(map(int, entry.get("ranks") or range(ranks)))) for entry in data}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, SyntaxError, MemoryError):
        return None
    return {name: group for name, group in groups.items() if group and group[0] >= 0 and group[-1] < ranks}


# ---- tasks --------------------------------------------------------------------------------------------------


def _tasks(trace: _Trace, members: _Groups, order: dict[tuple[int, ...], int]) -> RankTasks:
    """Return the tasks of a rank. Dependents of a node that becomes several tasks wait for the last task."""
    nodes = {node.id: node for node in trace.nodes}
    sizes: dict[int, Expansion] = {}
    counts: dict[tuple[int, ...], int] = defaultdict(int)
    for node in _joins(trace):
        kind = _collective(trace, node)
        group = members.ranks_of(trace, node)
        if kind in EXPANDED_KINDS:
            sizes[node.id] = expand(
                kind,
                group,
                group.index(trace.rank),
                _root(trace, node, group),
                _size(trace, node),
                tag=-1 - (counts[group] * len(order) + order[group]),
            )
            counts[group] += 1
    # Dependencies may name later nodes: number the last task of every node first.
    last, task_count = {}, 0
    for node in trace.nodes:
        task_count += len(sizes[node.id]) + 1 if node.id in sizes else 1
        last[node.id] = task_count - 1
    tasks: list[AnyTask] = []
    for node in nodes.values():
        dependencies = tuple(last[dependency] for dependency in node.dependencies)
        if node.id in sizes:
            tasks += sizes[node.id].tasks(len(tasks), dependencies, node.name)
        else:
            tasks.append(_task(trace, node, dependencies, members))
    return RankTasks(tuple(tasks))


def _task(trace: _Trace, node: _Node, dependencies: tuple[int, ...], members: _Groups) -> AnyTask:
    name = node.name
    if node.kind == "COMM_COLL_NODE":
        group = members.ranks_of(trace, node)
        if len(group) < 2:
            return Compute(seconds=0.0, name=name, after=dependencies)
        kind = _collective(trace, node)
        size = 4 * len(group) if kind == "BARRIER" else _size(trace, node)
        return JoinCollective(kind=KINDS[kind], size=max(1, size), group=group, name=name, after=dependencies)
    if node.kind in ("COMM_SEND_NODE", "COMM_RECV_NODE"):
        sends = node.kind == "COMM_SEND_NODE"
        peer = _number(trace, node, "comm_dst" if sends else "comm_src")
        task_class = SendMessage if sends else ReceiveMessage
        tag = _number(trace, node, "comm_tag", 0)
        return task_class(peer=peer, size=_size(trace, node), tag=max(0, tag), name=name, after=dependencies)
    lane = CPU_LANE if node.attributes.get("is_cpu_op") else DEVICE_LANE
    return Compute(seconds=node.seconds, lane=lane, name=name, after=dependencies)


def _collective(trace: _Trace, node: _Node) -> str:
    number = _number(trace, node, "comm_type")
    if not 0 <= number < len(COLLECTIVES):
        types = ", ".join(f"{index} {name}" for index, name in enumerate(COLLECTIVES))
        raise _node_error(trace, node, f"has comm_type {number} (known: {types})")
    return COLLECTIVES[number]


def _size(trace: _Trace, node: _Node) -> int:
    size = _number(trace, node, "comm_size")
    if not 0 <= size <= SIZE_MAX:
        raise _node_error(trace, node, f"has comm_size {size}: 0 to {SIZE_MAX} bytes")
    return size


def _root(trace: _Trace, node: _Node, group: tuple[int, ...]) -> int:
    """Return the position of the root in the group; the first rank where the node has no root."""
    root = _number(trace, node, "root_rank", group[0])
    if root not in group:
        raise _node_error(trace, node, f"has root_rank {root}, not a rank of its group {list(group)}")
    return group.index(root)


def _number(trace: _Trace, node: _Node, name: str, default: int | None = None) -> int:
    value = node.attributes.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        has = ", ".join(sorted(node.attributes)) or "none"
        raise _node_error(trace, node, f"needs the number {name} (its attributes: {has})")
    return value


def _node_error(trace: _Trace, node: _Node, text: str) -> TraceError:
    return TraceError(trace.path, f"node {node.id} ({node.name}) {text}")
