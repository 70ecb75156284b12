"""Programs as Chakra traces that ASTRA-sim reads: a file a rank, and process groups as JSON.

    first = write_chakra(program, folder, "job")      # job.0.et, job.1.et, ..., job.groups.json

Durations are whole microseconds there, sizes what a rank puts in. Collectives lose the algorithm that was chosen.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.traces.chakra import DEVICE_LANE, GATHERS
from mrc_testbed.experiments.traces.chakra_schema import COLLECTIVES, MESSAGES, NODE_TYPES
from mrc_testbed.experiments.traces.goal_text import MessageTags
from mrc_testbed.experiments.traces.task_list import KINDS
from mrc_testbed.hosts.traffic.program import AnyTask, Compute, JoinCollective, Program, SendMessage

NODE_NUMBERS = {name: number for number, name in NODE_TYPES.items()}
COLLECTIVE_NUMBERS = {
    **{KINDS[name]: COLLECTIVES.index(name) for name in ("ALL_REDUCE", "ALL_GATHER", "ALL_TO_ALL", "REDUCE_SCATTER")},
    "all_reduce_tree": COLLECTIVES.index("ALL_REDUCE"),
}
"""The testbed's name of a collective -> number of `comm_type`."""
SHARED_KINDS = tuple(KINDS[name] for name in GATHERS if name in KINDS)
SCHEMA_VERSION = "0.0.4"
MICROSECOND = 1e-6


def write_chakra(program: Program, folder: Path, name: str) -> Path:
    """Write a file for each rank; return the first. Raises UsageError for what ASTRA-sim has no node for."""
    tags = MessageTags()
    groups = _Numbers()
    everyone = tuple(range(len(program.ranks)))
    for rank, tasks in enumerate(program.ranks):
        messages = [MESSAGES["GlobalMetadata"](version=SCHEMA_VERSION)]
        messages += [_node(rank, number, task, everyone, tags, groups) for number, task in enumerate(tasks.tasks)]
        (folder / f"{name}.{rank}.et").write_bytes(b"".join(map(_with_length, messages)))
    groups_file(folder, name).write_text(json.dumps({str(number): key for key, number in groups.items()}))
    return folder / f"{name}.0.et"


def groups_file(folder: Path, name: str) -> Path:
    """Return the path of the groups of a trace: ASTRA-sim's comm-group-configuration, and --groups here."""
    return folder / f"{name}.groups.json"


class _Numbers(dict[Any, int]):
    """Numbers from 1 by order of appearance."""

    def __missing__(self, key: Any) -> int:
        self[key] = len(self) + 1
        return self[key]


def _node(rank: int, number: int, task: AnyTask, everyone: tuple[int, ...], tags: MessageTags, groups: _Numbers) -> Any:
    if task.once_begun:
        raise UsageError(f"rank {rank}, task {number}: Chakra has no node that waits for a begin (irequires)")
    # ASTRA-sim refuses communication on a CPU; its older feeders take a node without the attribute for one.
    attributes: dict[str, bool | int | str] = {"is_cpu_op": False}
    micros = 0
    if isinstance(task, Compute):
        kind, micros = "COMP_NODE", round(task.seconds / MICROSECOND)
        attributes["is_cpu_op"] = task.lane != DEVICE_LANE
    elif isinstance(task, JoinCollective):
        if task.kind not in COLLECTIVE_NUMBERS:
            raise UsageError(f"rank {rank}, task {number}: Chakra has no collective {task.kind}")
        kind = "COMM_COLL_NODE"
        # comm_size is what a rank puts in.
        shares = len(task.group) if task.kind in SHARED_KINDS else 1
        attributes |= {"comm_type": COLLECTIVE_NUMBERS[task.kind], "comm_size": max(1, task.size // shares)}
        if task.group != everyone:
            attributes["pg_name"] = str(groups[task.group])
    else:
        is_send = isinstance(task, SendMessage)
        kind = "COMM_SEND_NODE" if is_send else "COMM_RECV_NODE"
        source, target = (rank, task.peer) if is_send else (task.peer, rank)
        attributes |= {
            "comm_src": source,
            "comm_dst": target,
            "comm_size": task.size,
            "comm_tag": tags.of_message(rank, task),
        }
    # Control and data dependencies are alike to ASTRA-sim: all of them are the latter.
    node = MESSAGES["Node"](
        id=number, name=task.name or f"{kind}_{number}", type=NODE_NUMBERS[kind], duration_micros=micros
    )
    node.data_deps.extend(task.after)
    for name, value in attributes.items():
        field = "bool_val" if isinstance(value, bool) else "string_val" if isinstance(value, str) else "int64_val"
        setattr(node.attr.add(name=name), field, value)
    return node


def _with_length(message: Any) -> bytes:
    """Return a message behind its length."""
    data: bytes = message.SerializeToString()
    length, prefix = len(data), bytearray()
    while length > 0x7F:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*prefix, length]) + data
