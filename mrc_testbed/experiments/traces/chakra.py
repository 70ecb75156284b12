"""MLCommons Chakra execution traces: one file per rank, `NAME.RANK.et`, or its JSON, `NAME.RANK.json`.

COMP nodes take their `duration_micros` (those on a CPU on a lane of their own); memory, storage and metadata nodes take
theirs, mostly none. COMM_COLL nodes join a collective of their process group, COMM_SEND and COMM_RECV nodes are
messages. Control and data dependencies are both waited for. Collectives that the testbed lacks are made of messages
(expansion.py). Members of a process group (`pg_name`) come from the file of groups, else from a node of the trace that
lists them, else they are all ranks whose trace names the group; without a name all ranks. An attribute that changes
what is sent and cannot be followed is refused by its name; what only hints is left out with a note.
"""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from mrc_testbed.experiments.traces.chakra_file import ChakraNode, ChakraTrace, read_file
from mrc_testbed.experiments.traces.chakra_schema import COLLECTIVES
from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.expansion import EXPANDED_KINDS, MARKER_LANE, Expansion, expand
from mrc_testbed.experiments.traces.recognition import kind_of
from mrc_testbed.experiments.traces.task_list import KINDS
from mrc_testbed.experiments.traces.text_lines import RANKS_MAX
from mrc_testbed.hosts.traffic.program import (
    AnyTask,
    Compute,
    JoinCollective,
    Program,
    RankTasks,
    ReceiveMessage,
    SendMessage,
)

SIZE_MAX = 1 << 50
CPU_LANE, DEVICE_LANE = 1, 0
GATHERS = ("ALL_GATHER", "GATHER")
"""Collectives of which a rank puts in one share."""


def read_chakra(path: Path, groups: Path | None = None) -> Program:
    """Return the program of a folder of .et or .json files, or of all files of one job. Raises TraceError.

    `path`: the folder, or one file of the job; `groups`: JSON file with the ranks of each process group.
    """
    as_json = kind_of(path) == "chakra json"
    traces = [read_file(file, rank, as_json=as_json) for rank, file in enumerate(_files(path, groups))]
    members = _Groups(traces, groups)
    order = {
        group: index for index, group in enumerate(sorted({members.ranks_of(t, n) for t in traces for n in _joins(t)}))
    }
    ranks = tuple(_tasks(trace, members, order) for trace in traces)
    return Program(path.stem.partition(".")[0], ranks, tuple(_notes(traces)))


def _notes(traces: list[ChakraTrace]) -> Iterator[str]:
    """Yield what the traces have and their program has not."""
    nodes = [node for trace in traces for node in trace.nodes]
    if count := sum(bool(node.attributes.get("comm_priority")) for node in nodes):
        yield f"comm_priority of {count} nodes is left out: all traffic has one class"
    if count := sum(node.kind.startswith("MEM") and not node.seconds for node in nodes):
        yield f"{count} nodes of memory say no duration_micros: they take no time"
    if count := sum(
        node.kind == "COMM_COLL_NODE" and _is_rooted(node) and "root_rank" not in node.attributes for node in nodes
    ):
        yield f"{count} nodes of collectives with a root have no root_rank: the first rank of their group is taken"


def _is_rooted(node: ChakraNode) -> bool:
    number = node.attributes.get("comm_type")
    return isinstance(number, int) and 0 <= number < len(COLLECTIVES) and COLLECTIVES[number] in EXPANDED_KINDS


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


# ---- process groups -----------------------------------------------------------------------------------------


def _joins(trace: ChakraTrace) -> Iterator[ChakraNode]:
    return (node for node in trace.nodes if node.kind == "COMM_COLL_NODE")


class _Groups:
    """Ranks of each process group."""

    def __init__(self, traces: list[ChakraTrace], file: Path | None) -> None:
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
                    self._add_groups(trace, node, groups or {})
                elif node.kind == "COMM_COLL_NODE":
                    self._ranks_by_group[_group_name(trace, node)].add(trace.rank)

    def _add_groups(self, trace: ChakraTrace, node: ChakraNode, groups: dict[str, tuple[int, ...]]) -> None:
        """Add what a rank says of the groups. Raises TraceError when a rank before it says something else."""
        for name, ranks in groups.items():
            first_ranks = self._trace_groups.setdefault(name, ranks)
            if first_ranks != ranks and name not in self._file_groups:
                raise _node_error(
                    trace,
                    node,
                    f"says at rank {trace.rank} that process group {name!r} is ranks {list(ranks)}, a rank before it "
                    f"{list(first_ranks)}: give --groups FILE",
                )

    def ranks_of(self, trace: ChakraTrace, node: ChakraNode) -> tuple[int, ...]:
        """Return the ranks of the node's group, ascending. Raises TraceError."""
        name = _group_name(trace, node)
        if "involved_dim" in node.attributes and name not in self._file_groups:
            _check_dimensions(trace, node, node.attributes["involved_dim"])
        if not name:
            return self._all_ranks
        ranks = self._file_groups.get(name) or self._trace_groups.get(name) or tuple(sorted(self._ranks_by_group[name]))
        if ranks[-1] >= len(self._all_ranks) or ranks[0] < 0:
            text = f"is of process group {name!r}, ranks {list(ranks)}: the trace has ranks 0 to {self._all_ranks[-1]}"
            raise _node_error(trace, node, text)
        if trace.rank not in ranks:
            text = f"is of process group {name!r}, ranks {list(ranks)}, without its own, rank {trace.rank}"
            raise _node_error(trace, node, text)
        return ranks


def _group_name(trace: ChakraTrace, node: ChakraNode) -> str:
    """Return the name of the node's group, empty for all ranks. Raises TraceError."""
    name = node.attributes.get("pg_name", "")
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise _node_error(trace, node, f"has pg_name {name!r:.40}: the name of a process group")
    return str(name)


def _check_dimensions(trace: ChakraTrace, node: ChakraNode, dimensions: object) -> None:
    """Raises TraceError unless all dimensions of the topology are involved."""
    flags = dimensions if isinstance(dimensions, list) else []
    are_numbers = all(isinstance(flag, int) for flag in flags)
    if not flags or not are_numbers or not all(flags):
        listing = [int(flag) for flag in flags] if flags and are_numbers else dimensions
        raise _node_error(
            trace,
            node,
            f"has involved_dim {listing!r:.60}, of a topology that the trace does not have: give its nodes a pg_name, "
            "and --groups FILE",
        )


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
    return groups


# ---- tasks --------------------------------------------------------------------------------------------------


def _tasks(trace: ChakraTrace, members: _Groups, order: dict[tuple[int, ...], int]) -> RankTasks:
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
                _buffer_size(trace, node, kind, group),
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


def _task(trace: ChakraTrace, node: ChakraNode, dependencies: tuple[int, ...], members: _Groups) -> AnyTask:
    name = node.name
    if node.kind == "COMM_COLL_NODE":
        group = members.ranks_of(trace, node)
        if len(group) < 2:
            return Compute(seconds=0.0, lane=MARKER_LANE, name=name, after=dependencies)
        kind = _collective(trace, node)
        size = 4 * len(group) if kind == "BARRIER" else _buffer_size(trace, node, kind, group)
        return JoinCollective(kind=KINDS[kind], size=max(1, size), group=group, name=name, after=dependencies)
    if node.kind in ("COMM_SEND_NODE", "COMM_RECV_NODE"):
        sends = node.kind == "COMM_SEND_NODE"
        peer = _number(trace, node, "comm_dst" if sends else "comm_src")
        task_class = SendMessage if sends else ReceiveMessage
        own_side = "comm_src" if sends else "comm_dst"
        if (own_rank := _number(trace, node, own_side, trace.rank)) != trace.rank:
            raise _node_error(trace, node, f"has {own_side} {own_rank} in the trace of rank {trace.rank}")
        if (tag := _number(trace, node, "comm_tag", 0)) < 0:
            raise _node_error(trace, node, f"has comm_tag {tag}: messages with any tag are not known; give each one")
        return task_class(peer=peer, size=_size(trace, node), tag=tag, name=name, after=dependencies)
    if node.kind == "COMP_NODE" and not node.seconds and (operations := node.attributes.get("num_ops")):
        text = f"has num_ops {operations} and no duration_micros: a device model would say its time: give it one"
        raise _node_error(trace, node, text)
    lane = CPU_LANE if node.attributes.get("is_cpu_op") else DEVICE_LANE
    return Compute(seconds=node.seconds, lane=lane, name=name, after=dependencies)


def _collective(trace: ChakraTrace, node: ChakraNode) -> str:
    number = _number(trace, node, "comm_type")
    if not 0 <= number < len(COLLECTIVES):
        types = ", ".join(f"{index} {name}" for index, name in enumerate(COLLECTIVES))
        raise _node_error(trace, node, f"has comm_type {number} (known: {types})")
    return COLLECTIVES[number]


def _size(trace: ChakraTrace, node: ChakraNode) -> int:
    size = _number(trace, node, "comm_size")
    if not 0 <= size <= SIZE_MAX:
        raise _node_error(trace, node, f"has comm_size {size}: 0 to {SIZE_MAX} bytes")
    return size


def _buffer_size(trace: ChakraTrace, node: ChakraNode, kind: str, group: tuple[int, ...]) -> int:
    """Return the bytes of a collective as nccl-tests count them: what the larger buffer of a rank holds.

    `comm_size` is what a rank puts in: of a gather its share alone. ASTRA-sim sends as much, and Chakra's converter
    adds up the inputs of PyTorch.
    """
    return _size(trace, node) * (len(group) if kind in GATHERS else 1)


def _root(trace: ChakraTrace, node: ChakraNode, group: tuple[int, ...]) -> int:
    """Return the position of the root in the group; the first rank where the node has no root."""
    root = _number(trace, node, "root_rank", group[0])
    if root not in group:
        raise _node_error(trace, node, f"has root_rank {root}, not a rank of its group {list(group)}")
    return group.index(root)


def _number(trace: ChakraTrace, node: ChakraNode, name: str, default: int | None = None) -> int:
    value = node.attributes.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        has = ", ".join(sorted(node.attributes)) or "none"
        raise _node_error(trace, node, f"needs the number {name} (its attributes: {has})")
    return value


def _node_error(trace: ChakraTrace, node: ChakraNode, text: str) -> TraceError:
    return TraceError(trace.path, f"node {node.id} ({node.name}) {text}")
