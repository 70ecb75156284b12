"""NCCL's debug log (NCCL_DEBUG_SUBSYS=INIT,COLL): the operations of every rank, in their order.

    host:4711:4731 [0] NCCL INFO ncclCommInitRank comm 0x55d0 rank 0 nranks 8 cudaDev 0 ... commId 0xa1 - Init COMPLETE
    host:4711:4731 [0] NCCL INFO AllReduce: opCount 1a sendbuff 0x7 recvbuff 0x7 count 64 datatype 7 op 0 root 0 comm
        0x55d0 [nranks=8] stream 0x55cf                      (one line)

One file, or a folder with one a process (NCCL_DEBUG_FILE=nccl.%h.%p.log). Lines of Init COMPLETE say who has which
rank; without them ranks are numbered by host, process and device, which is good for collectives without a root.
Operations of a stream follow each other, sends and receives of one opCount start together. A log has no times:
computing takes none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.task_list import TaskList
from mrc_testbed.experiments.traces.text_lines import RANKS_MAX, numbered_lines
from mrc_testbed.hosts.traffic.program import Program
from mrc_testbed.hosts.traffic.program_script import TASKS_MAX

_PROCESS = r"(?P<host>[^\s:]+):(?P<pid>\d{1,10}):\d+ \[(?P<device>-?\d{1,6})\] NCCL INFO "
OPERATION = re.compile(
    _PROCESS + r"(?P<name>\w+): opCount (?P<number>[0-9a-fA-F]+) sendbuff \S+ recvbuff \S+ count (?P<count>\d{1,16})"
    r" datatype (?P<dtype>\d{1,4}) op \d+ root (?P<root>-?\d{1,6}) comm (?P<comm>\S+) \[nranks=(?P<ranks>\d{1,6})\]"
    r"(?: stream (?P<stream>\S+))?"
)
INIT = re.compile(
    _PROCESS + r"(?:\w+ )?comm (?P<comm>\S+) rank (?P<rank>\d{1,6}) n[Rr]anks (?P<ranks>\d{1,6})\b"
    r"(?:.*? commId (?P<id>\S+))?.*Init COMPLETE"
)
_TORN = re.compile(r"\bopCount [0-9a-fA-F]+ sendbuff ")
LINE_MAX = 1 << 16
DTYPE_BYTES = {0: 1, 1: 1, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 10: 1, 11: 1}
"""Number of a datatype -> bytes: integers of 1, 4 and 8, floats of 2, 4 and 8, bfloat16, float8."""
COLLECTIVES = {
    "AllReduce": "ALL_REDUCE",
    "AllGather": "ALL_GATHER",
    "ReduceScatter": "REDUCE_SCATTER",
    "AlltoAll": "ALL_TO_ALL",
    "AllToAll": "ALL_TO_ALL",
    "Broadcast": "BROADCAST",
    "Reduce": "REDUCE",
    "Gather": "GATHER",
    "Scatter": "SCATTER",
}
SHARES = ("ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL", "GATHER", "SCATTER")
"""Collectives whose count is that of one rank's share."""
ROOT_KINDS = ("BROADCAST", "REDUCE", "GATHER", "SCATTER")
MESSAGES = ("Send", "Recv")
CURE = (
    "log with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL, each process to a file (NCCL_DEBUG_FILE=nccl.%h.%p.log)"
)
_Device = tuple[str, int, int]
"""Host, process and device: a rank of the job."""


@dataclass(slots=True)
class _Communicator:
    """A communicator, and which device has which of its ranks."""

    ranks: int
    devices: dict[int, _Device] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Operation:
    path: Path
    line: int
    device: _Device
    communicator: _Communicator
    values: dict[str, str]

    def error(self, text: str) -> TraceError:
        return TraceError(self.path, f"{self.values['name']} of communicator {self.values['comm']} {text}", self.line)


def read_nccl_log(path: Path) -> Program:
    """Return the program of a log, or of a folder of them. Raises TraceError."""
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())
    log = _Log(path)
    for file in files:
        for line, text in numbered_lines(file, "a log of NCCL", line_max=LINE_MAX):
            log.add_line(file, line, text)
    numbers = log.rank_numbers()
    ranks = [_Rank(number) for number in range(len(numbers))]
    names = {id(communicator): index for index, communicator in enumerate(log.communicators())}
    for operation in log.operations:
        group = log.group(operation, numbers)
        ranks[numbers[operation.device]].add(operation, group, names[id(operation.communicator)])
    notes = ["a log has no times: computing takes none", *log.notes]
    return Program(path.stem, tuple(rank.tasks.finish() for rank in ranks), tuple(notes))


class _Log:
    """Collects the lines of all files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.operations: list[_Operation] = []
        self.notes: list[str] = []
        self._by_id: dict[tuple[str, int], _Communicator] = {}
        """Communicators by commId and size; without an id by their count at a process."""
        self._by_pointer: dict[tuple[_Device, str], _Communicator] = {}
        self._inits: dict[tuple[_Device, int], int] = defaultdict(int)

    def add_line(self, path: Path, line: int, text: str) -> None:
        """Take a line; those that are no operation and no new communicator do not count. Raises TraceError."""
        if match := INIT.search(text):
            self._add_init(path, line, match)
        elif match := OPERATION.search(text):
            device = _device(match)
            communicator = self._by_pointer.get((device, match["comm"])) or self._unknown(device, match)
            values = {key: value or "" for key, value in match.groupdict().items()}
            self.operations.append(_Operation(path, line, device, communicator, values))
            if communicator.ranks != int(match["ranks"]):
                raise self.operations[-1].error(f"has nranks {match['ranks']}, its start said {communicator.ranks}")
            if len(self.operations) > TASKS_MAX * 16:
                raise TraceError(path, f"more than {TASKS_MAX * 16} operations", line)
        elif _TORN.search(text):
            raise TraceError(path, f"an operation whose line is torn, or without its process: {CURE}", line)

    def _add_init(self, path: Path, line: int, match: re.Match[str]) -> None:
        device, ranks, rank = _device(match), int(match["ranks"]), int(match["rank"])
        self._inits[device, ranks] += 1
        key = (match["id"] or f"start {self._inits[device, ranks]}", ranks)
        communicator = self._by_id.setdefault(key, _Communicator(ranks))
        if rank >= ranks or communicator.devices.setdefault(rank, device) != device:
            cure = "several communicators without commId: use NCCL 2.16 or later" if not match["id"] else CURE
            raise TraceError(path, f"two processes have rank {rank} of {ranks} of a communicator: {cure}", line)
        self._by_pointer[device, match["comm"]] = communicator

    def _unknown(self, device: _Device, match: re.Match[str]) -> _Communicator:
        """Return the communicator of an operation whose start no line said; ranks get numbers later."""
        key = ("", int(match["ranks"]))
        communicator = self._by_id.setdefault(key, _Communicator(key[1]))
        communicator.devices[len(communicator.devices)] = device
        self._by_pointer[device, match["comm"]] = communicator
        return communicator

    def communicators(self) -> list[_Communicator]:
        """Return all communicators that have operations, in the order of their first one."""
        return list({id(operation.communicator): operation.communicator for operation in self.operations}.values())

    def rank_numbers(self) -> dict[_Device, int]:
        """Return the rank of each device: that in the largest communicator. Raises TraceError."""
        if not self.operations:
            raise TraceError(self._path, f"no operations in it: {CURE}")
        for (identity, ranks), communicator in self._by_id.items():
            if communicator in self.communicators() and len(communicator.devices) != ranks:
                text = f"{len(communicator.devices)} of {ranks} ranks of a communicator are in the log"
                raise TraceError(self._path, f"{text}{'' if identity else ', without Init COMPLETE'}: {CURE}")
        world = max(self._by_id.values(), key=lambda communicator: communicator.ranks)
        if not 2 <= world.ranks <= RANKS_MAX:
            raise TraceError(self._path, f"a job of {world.ranks} ranks: give one of 2 to {RANKS_MAX}")
        if guessed_ranks := self._by_id.get(("", world.ranks)):
            guessed_ranks.devices = dict(enumerate(sorted(guessed_ranks.devices.values())))
            self.notes.append("ranks are numbered by host, process and device: the log has no Init COMPLETE")
        numbers = {device: rank for rank, device in sorted(world.devices.items())}
        if len(numbers) != world.ranks:
            raise TraceError(self._path, f"one device has several ranks of a communicator: {CURE}")
        return numbers

    def group(self, operation: _Operation, numbers: dict[_Device, int]) -> dict[int, int]:
        """Return rank in the communicator -> rank of the job. Raises TraceError."""
        devices = operation.communicator.devices
        if foreign_devices := [device for device in devices.values() if device not in numbers]:
            raise operation.error(
                f"has a rank at {foreign_devices[0][0]}:{foreign_devices[0][1]}, of no rank of the largest one: {CURE}"
            )
        has_root = operation.values["name"] in MESSAGES or COLLECTIVES.get(operation.values["name"]) in ROOT_KINDS
        if has_root and ("", operation.communicator.ranks) in self._by_id:
            raise operation.error(f"has a root or a peer, and the log does not say who has which rank: {CURE}")
        return {rank: numbers[device] for rank, device in devices.items()}


def _device(match: re.Match[str]) -> _Device:
    return match["host"], int(match["pid"]), int(match["device"])


class _Rank:
    """Adds the operations of one rank: those of a stream follow each other."""

    def __init__(self, rank: int) -> None:
        self.tasks = TaskList(rank)
        self._last: dict[str, tuple[int, ...]] = defaultdict(tuple)
        """Stream -> tasks that the next one on it waits for."""
        self._open: dict[str, tuple[tuple[int, str], tuple[int, ...]]] = {}
        """Stream -> communicator and opCount of messages that start together, and what they wait for."""

    def add(self, operation: _Operation, group: dict[int, int], communicator: int) -> None:
        """Add an operation. Raises TraceError."""
        values = operation.values
        name, stream = values["name"], values["stream"]
        element_bytes = DTYPE_BYTES.get(int(values["dtype"]))
        if element_bytes is None:
            raise operation.error(f"has datatype {values['dtype']} (known: 0 to {max(DTYPE_BYTES)})")
        size, root = int(values["count"]) * element_bytes, int(values["root"])
        has_root = name in MESSAGES or COLLECTIVES.get(name) in ROOT_KINDS
        if has_root and root not in group:
            raise operation.error(f"has root {root}: 0 to {len(group) - 1}")
        if name in MESSAGES:
            if size and group[root] != self.tasks.rank:
                self._add_message(stream, (communicator, values["number"]), name, group[root], size)
            return
        if name not in COLLECTIVES:
            raise operation.error(f"is not known (known: {', '.join([*COLLECTIVES, *MESSAGES])})")
        kind = COLLECTIVES[name]
        size *= len(group) if kind in SHARES else 1
        if size:
            ranks = tuple(sorted(group.values()))
            position = ranks.index(group[root]) if has_root else 0
            number = self.tasks.collective(kind, size, ranks, self._last[stream], root=position, name=name)
            self._last[stream] = (number,)
            self._open.pop(stream, None)

    def _add_message(self, stream: str, start: tuple[int, str], name: str, peer: int, size: int) -> None:
        """Add a message, at once with those of its opCount on the stream."""
        open_start, dependencies = self._open.get(stream, (None, ()))
        if open_start != start:
            dependencies = self._last[stream]
            self._open[stream] = (start, dependencies)
            self._last[stream] = ()
        add = self.tasks.send if name == "Send" else self.tasks.receive
        self._last[stream] += (add(peer, size, dependencies, tag=start[0], name=name),)
