"""PyTorch profiler traces (Kineto): JSON in Chrome's trace format, one file per rank.

    program = read_kineto(Path("traces/"))       # a folder, or one file of it, plain or with gzip

Communication is what the device's kernels say of it ("Collective name", "In msg nelems", "dtype", the process group);
where a trace has no such kernels, as with gloo, what record_param_comms says on the host. Computing is made of the
time stamps: outside of communication all time that passes, during it the kernels that run beside it. A computation
waits for the communication that had ended before it began, unless another kernel ran across that end. Communication
waits for what was computed before it began, and for what was before it on its stream.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mrc_testbed.experiments.traces.chakra import SIZE_MAX, read_groups
from mrc_testbed.experiments.traces.chakra_file import CONTENT_MAX, MICROSECOND
from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.expansion import EXPANDED_KINDS, MARKER_LANE, expand
from mrc_testbed.experiments.traces.recognition import is_kineto
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
from mrc_testbed.hosts.traffic.program_script import TASKS_MAX

HOST_RECORD = "record_param_comms"
COLLECTIVES = {
    "allreduce": "ALL_REDUCE",
    "allgather": "ALL_GATHER",
    "reducescatter": "REDUCE_SCATTER",
    "alltoall": "ALL_TO_ALL",
    "alltoallv": "ALL_TO_ALL",
    "broadcast": "BROADCAST",
    "reduce": "REDUCE",
    "gather": "GATHER",
    "scatter": "SCATTER",
    "barrier": "BARRIER",
    "send": "SEND",
    "recv": "RECV",
}
"""PyTorch's name of a collective, without underscores and the words of VARIANTS -> Chakra's."""
VARIANTS = re.compile(r"(base|oop|coalesced|intotensor|tensor)$")
"""Words of a name that say how the buffers are given."""
NO_TRAFFIC = ("wait", "init")
"""Names of records that send nothing."""
ELEMENT_BYTES = {
    1: "byte char bool int8 uint8 qint8 quint8 float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz",
    2: "short half bfloat16 uint16 int16 float16",
    4: "int float uint32 int32 float32 complexhalf",
    8: "long double uint64 int64 float64 complexfloat",
    16: "complexdouble",
}
DTYPE_BYTES = {dtype: size for size, dtypes in ELEMENT_BYTES.items() for dtype in dtypes.split()}
DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
DEVICE_LANE = 0


@dataclass(slots=True)
class _Communication:
    """One collective or message of a rank. Times are microseconds of the trace."""

    name: str
    start: float
    end: float
    stream: str
    values: dict[str, Any]


@dataclass(slots=True)
class _Trace:
    path: Path
    rank: int
    world_size: int | None
    groups: dict[str, tuple[int, ...]]
    """Ranks of the process groups that distributedInfo lists."""
    communications: list[_Communication] = field(default_factory=list)
    busy_spans: list[tuple[float, float]] = field(default_factory=list)
    """Spans of time in which the device computed, which do not touch."""
    start: float = 0.0
    end: float = 0.0


def read_kineto(path: Path, groups: Path | None = None) -> Program:
    """Return the program of a profiled step. Raises TraceError.

    `groups`: JSON file with the ranks of each process group, instead of what the traces say.
    """
    folder = path if path.is_dir() else path.parent
    traces: dict[int, _Trace] = {}
    for file in sorted(folder.iterdir()):
        if not is_kineto(file):
            continue
        trace = _read(file)
        if trace.rank in traces:
            raise TraceError(path, f"two files of rank {trace.rank}: {traces[trace.rank].path.name}, {file.name}")
        traces[trace.rank] = trace
    world_size = max([max(traces) + 1, *(trace.world_size or 0 for trace in traces.values())])
    if not 2 <= world_size <= RANKS_MAX:
        raise TraceError(path, f"a job of {world_size} ranks: give one of 2 to {RANKS_MAX}")
    if missing_ranks := [rank for rank in range(world_size) if rank not in traces]:
        raise TraceError(
            path,
            f"rank {missing_ranks[0]} of {world_size} has no file ({len(missing_ranks)} missing): profile every rank",
        )
    file_groups = read_groups(groups, world_size) if groups else {}
    return Program(
        folder.name, tuple(_RankReader(traces[rank], world_size, file_groups).tasks() for rank in range(world_size))
    )


# ---- a file -------------------------------------------------------------------------------------------------


def _read(path: Path) -> _Trace:
    data = _content(path)
    events = data if isinstance(data, list) else data.get("traceEvents")
    if not isinstance(events, list):
        raise TraceError(path, "no list of traceEvents: not a PyTorch profiler's trace")
    info = data.get("distributedInfo") if isinstance(data, dict) else None
    info = info if isinstance(info, dict) else {}
    rank = _rank_of(path, info)
    world_size = info.get("world_size")
    trace = _Trace(path, rank, world_size if isinstance(world_size, int) else None, _groups_of(info))
    spans = [event for event in events if isinstance(event, dict) and event.get("ph") == "X"]
    records, kernels = _Records(path), list[_Communication]()
    # Each span is communication, computing of the device, a record of the host, or nothing that counts.
    for event in spans:
        category, name = str(event.get("cat", "")).lower(), str(event.get("name", ""))[:80]
        arguments = event.get("args")
        values: dict[str, Any] = arguments if isinstance(arguments, dict) else {}
        if category == "kernel" and (name.lower().startswith("nccl") or "Collective name" in values):
            kernels.append(_communication(path, event, name, values))
        elif category in DEVICE_CATEGORIES:
            span = _communication(path, event, name, {})
            trace.busy_spans.append((span.start, span.end))
        elif name == HOST_RECORD:
            records.add(_communication(path, event, name, values))
        elif name.startswith("gloo:"):
            records.runs.append(_communication(path, event, name, values))
    trace.communications = records.complete(kernels) if kernels else records.on_host()
    if len(trace.communications) > TASKS_MAX:
        raise TraceError(path, f"more than {TASKS_MAX} communications")
    trace.communications.sort(key=lambda communication: communication.start)
    _set_span(trace, spans, on_device=bool(kernels or trace.busy_spans))
    return trace


def _content(path: Path) -> Any:
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as file:
            content = file.read(CONTENT_MAX + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > CONTENT_MAX:
        raise TraceError(path, f"more than {CONTENT_MAX} bytes: profile fewer steps (`schedule(active=1)`)")
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise TraceError(path, "not UTF-8 text: not a PyTorch profiler's trace") from None
    except json.JSONDecodeError as error:
        raise TraceError(path, f"no JSON, or cut off: {error.msg}", error.lineno) from None
    except RecursionError:
        raise TraceError(path, "nested too deep: not a PyTorch profiler's trace") from None


def _rank_of(path: Path, info: dict[str, Any]) -> int:
    """Return the rank of a file: of its distributedInfo, else of its name."""
    rank = info.get("rank")
    match = re.search(r"(?:rank[-_]?|\.)(\d{1,6})\.", path.name)
    if rank is None and match is not None:
        rank = int(match[1])
    if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < RANKS_MAX:
        raise TraceError(path, f"no rank in distributedInfo, nor in the name NAME.RANK.json: got {rank!r}")
    return rank


def _groups_of(info: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the process groups that distributedInfo lists."""
    out = {}
    configs = info.get("pg_config")
    for entry in configs if isinstance(configs, list) else []:
        if isinstance(entry, dict) and (ranks := _ranks(entry.get("ranks"))):
            out[str(entry.get("pg_name"))] = ranks
    return out


def _ranks(value: Any) -> tuple[int, ...] | None:
    """Return ranks given as a list or as its text; None for others, as for a text that was shortened."""
    numbers = _numbers(value)
    return tuple(sorted(set(numbers))) if numbers else None


def _numbers(value: Any) -> list[int] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    is_list = isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in value)
    return value if is_list else None


def _communication(path: Path, event: dict[str, Any], name: str, values: dict[str, Any]) -> _Communication:
    """Return an event that lasts, with its times. Raises TraceError."""
    try:
        start, duration = float(event["ts"]), float(event.get("dur", 0))
    except (KeyError, TypeError, ValueError):
        start = duration = float("nan")
    if not (abs(start) < 1e18 and 0 <= duration < 1e15):
        raise TraceError(path, f"event {name!r} has no time: ts {event.get('ts')!r}, dur {event.get('dur')!r}")
    stream = f"{event.get('pid')}/{event.get('tid')}"
    return _Communication(name, start, start + duration, stream, values)


class _Records:
    """Collects the events record_param_comms of the host."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._by_id: dict[Any, _Communication] = {}
        self._records: list[_Communication] = []
        self.runs: list[_Communication] = []
        """Spans in which gloo carried the records out."""

    def add(self, record: _Communication) -> None:
        if str(record.values.get("Collective name", "")).lower() in NO_TRAFFIC:
            return
        self._records.append(record)
        if (number := record.values.get("External id")) is not None:
            self._by_id[number] = record

    def complete(self, kernels: list[_Communication]) -> list[_Communication]:
        """Return kernels with the values of their records, which older profilers do not copy."""
        for kernel in kernels:
            record = self._by_id.get(kernel.values.get("External id"))
            kernel.values = (record.values if record else {}) | kernel.values
        return [k for k in kernels if str(k.values.get("Collective name", "")).lower() not in NO_TRAFFIC]

    def on_host(self) -> list[_Communication]:
        """Return the records, each lasting until gloo had carried it out."""
        self.runs.sort(key=lambda run: run.start)
        records = sorted(self._records, key=lambda record: record.start)
        if len(self.runs) == len(records):
            for record, run in zip(records, self.runs, strict=True):
                record.end = max(record.end, run.end)
        return records


def _set_span(trace: _Trace, events: list[dict[str, Any]], *, on_device: bool) -> None:
    """Merge what the device computed, and set begin and end of what is replayed."""
    spans_apart: list[tuple[float, float]] = []
    for start, end in sorted(trace.busy_spans):
        if spans_apart and start <= spans_apart[-1][1]:
            spans_apart[-1] = (spans_apart[-1][0], max(spans_apart[-1][1], end))
        else:
            spans_apart.append((start, end))
    trace.busy_spans = spans_apart
    spans = [*spans_apart, *((communication.start, communication.end) for communication in trace.communications)]
    if not on_device:
        # Without a device the host computes, from its first operation to its last.
        cpu_events = [event for event in events if event.get("cat") in ("cpu_op", "user_annotation")]
        spans += [(e.start, e.end) for e in (_communication(trace.path, event, "", {}) for event in cpu_events)]
    trace.start = min((start for start, _ in spans), default=0.0)
    trace.end = max((end for _, end in spans), default=0.0)


# ---- tasks --------------------------------------------------------------------------------------------------


class _RankReader:
    """Makes the tasks of one rank."""

    def __init__(self, trace: _Trace, world_size: int, groups: dict[str, tuple[int, ...]]) -> None:
        self._trace, self._world_size, self._file_groups = trace, world_size, groups
        self._tasks: list[AnyTask] = []
        self._counts: dict[tuple[int, ...], int] = defaultdict(int)

    def tasks(self) -> RankTasks:
        """Return the tasks in the order of their time stamps. Raises TraceError."""
        trace = self._trace
        times = {trace.start, trace.end}
        for communication in trace.communications:
            times |= {communication.start, communication.end}
        # Nothing begins or ends between two moments: what passes there is one computation.
        moments = sorted(times)
        waiting = trace.communications[::-1]
        last_of_stream: dict[str, int] = {}
        running: list[tuple[float, int]] = []
        last_compute: tuple[int, ...] = ()
        for moment, following in zip(moments, [*moments[1:], moments[-1]], strict=True):
            while waiting and waiting[-1].start <= moment:
                communication = waiting.pop()
                earlier = last_of_stream.get(communication.stream)
                self._add(communication, last_compute if earlier is None else (*last_compute, earlier))
                last_of_stream[communication.stream] = len(self._tasks) - 1
                running.append((communication.end, len(self._tasks) - 1))
            ended_numbers = [] if self._is_busy_across(moment) else [number for end, number in running if end <= moment]
            passing = following - moment
            if any(end > moment for end, _ in running):
                passing = self._busy_between(moment, following)
            if passing > 0:
                dependencies = (*last_compute, *ended_numbers)
                self._tasks.append(Compute(seconds=passing * MICROSECOND, lane=DEVICE_LANE, after=dependencies))
                last_compute = (len(self._tasks) - 1,)
                running = [(end, number) for end, number in running if number not in ended_numbers]
        return RankTasks(tuple(self._tasks))

    def _is_busy_across(self, moment: float) -> bool:
        index = bisect_left(self._trace.busy_spans, (moment,)) - 1
        return index >= 0 and moment < self._trace.busy_spans[index][1]

    def _busy_between(self, start: float, end: float) -> float:
        spans, index, total = self._trace.busy_spans, max(0, bisect_left(self._trace.busy_spans, (start,)) - 1), 0.0
        while index < len(spans) and spans[index][0] < end:
            total += max(0.0, min(end, spans[index][1]) - max(start, spans[index][0]))
            index += 1
        return total

    def _add(self, communication: _Communication, dependencies: tuple[int, ...]) -> None:
        """Add the tasks of a communication; the last of them ends it."""
        name = communication.name
        # The name without the words that say how buffers are given.
        word = str(communication.values.get("Collective name", "")).lower().replace("_", "")
        while (shorter := VARIANTS.sub("", word)) != word:
            word = shorter
        if word not in COLLECTIVES:
            names = ", ".join(COLLECTIVES)
            given_name = communication.values.get("Collective name")
            text = "has no Collective name: profile with PyTorch 2.3 or later"
            raise self._error(
                communication, f"has Collective name {given_name!r} (known: {names})" if given_name else text
            )
        kind = COLLECTIVES[word]
        if kind in ("SEND", "RECV"):
            self._tasks.append(self._message(communication, kind, dependencies))
            return
        group = self._group(communication)
        if len(group) < 2:
            self._tasks.append(Compute(seconds=0.0, lane=MARKER_LANE, name=name, after=dependencies))
        elif kind == "ALL_TO_ALL" and (parts := self._uneven_parts(communication, group)):
            self._tasks += self._exchange(group, parts, name, dependencies)
        elif kind in EXPANDED_KINDS:
            size = self._bytes(communication, "Out" if kind == "SCATTER" else "In")
            size *= len(group) if kind in ("GATHER", "SCATTER") else 1
            root = communication.values.get("Rank", 0)
            if isinstance(root, bool) or not isinstance(root, int) or not 0 <= root < len(group):
                raise self._error(communication, f"has root Rank {root!r}: 0 to {len(group) - 1} of its group")
            position = group.index(self._trace.rank)
            parts_of_tree = expand(kind, group, position, root, max(1, size), self._tag(group))
            self._tasks += parts_of_tree.tasks(len(self._tasks), dependencies, name)
        else:
            self._tasks.append(
                JoinCollective(
                    kind=KINDS[kind],
                    size=self._collective_bytes(communication, kind, group),
                    group=group,
                    name=name,
                    after=dependencies,
                )
            )

    def _collective_bytes(self, communication: _Communication, kind: str, group: tuple[int, ...]) -> int:
        """Return the size as nccl-tests count it: the larger buffer of a rank."""
        if kind == "BARRIER":
            return 4 * len(group)
        if kind == "ALL_TO_ALL":
            return max(1, self._bytes(communication, "In"), self._bytes(communication, "Out"))
        return max(1, self._bytes(communication, "Out" if kind == "ALL_GATHER" else "In"))

    def _bytes(self, communication: _Communication, direction: str) -> int:
        """Return the bytes of a buffer. Raises TraceError for a size or type that is not there."""
        key, dtype = f"{direction} msg nelems", str(communication.values.get("dtype", ""))
        count, size = communication.values.get(key), DTYPE_BYTES.get(dtype.lower().removeprefix("torch."))
        if isinstance(count, bool) or not isinstance(count, int):
            raise self._error(communication, f"has no {key!r}: profile with PyTorch 2.3 or later")
        if size is None:
            raise self._error(communication, f"has dtype {dtype!r} (known: {', '.join(DTYPE_BYTES)})")
        if not 0 <= count * size <= SIZE_MAX:
            raise self._error(communication, f"has {key!r} {count}: 0 to {SIZE_MAX} bytes")
        return count * size

    def _group(self, communication: _Communication) -> tuple[int, ...]:
        """Return the ranks of the process group, ascending. Raises TraceError."""
        values, rank = communication.values, self._trace.rank
        name, count = str(values.get("Process Group Name", "")), values.get("Group size")
        group = self._file_groups.get(name) or _ranks(values.get("Process Group Ranks")) or self._trace.groups.get(name)
        steps = _numbers([values.get("Global rank start"), values.get("Global rank stride"), count])
        # Long lists of ranks are shortened in the trace: an even group is known by its steps.
        if not group and steps and min(steps[1:]) > 0 and steps[2] <= self._world_size:
            group = tuple(range(steps[0], steps[0] + steps[1] * steps[2], steps[1]))
        if not group and count == self._world_size:
            group = tuple(range(self._world_size))
        if not group:
            raise self._error(
                communication, f"is of process group {name!r}, whose ranks are not said: give --groups FILE"
            )
        if rank not in group or group[-1] >= self._world_size or group[0] < 0:
            raise self._error(
                communication,
                f"is of process group {name!r}, ranks {list(group)}: its own is {rank}, of {self._world_size}",
            )
        return group

    def _message(self, communication: _Communication, kind: str, dependencies: tuple[int, ...]) -> AnyTask:
        sends = kind == "SEND"
        key = "Dst Rank" if sends else "Src Rank"
        peer = communication.values.get(key)
        if isinstance(peer, bool) or not isinstance(peer, int) or not 0 <= peer < self._world_size:
            raise self._error(communication, f"has {key} {peer!r}: 0 to {self._world_size - 1}")
        size = self._bytes(communication, "In" if sends else "Out")
        task_class = SendMessage if sends else ReceiveMessage
        return task_class(peer=peer, size=max(1, size), name=communication.name, after=dependencies)

    def _uneven_parts(
        self, communication: _Communication, group: tuple[int, ...]
    ) -> tuple[list[int], list[int]] | None:
        """Return bytes to and from each rank of an all-to-all; None: even shares."""
        parts = []
        for direction in ("In", "Out"):
            key = f"{direction} split size"
            value = communication.values.get(key) or "[]"
            splits = _numbers(value)
            if splits is None or (splits and len(splits) != len(group)) or min(splits, default=0) < 0:
                raise self._error(communication, f"has {key!r} {value!r:.60}: {len(group)} numbers, or none")
            total = self._bytes(communication, direction)
            shares = splits if sum(splits) else [1] * len(group)
            parts.append([total * share // sum(shares) for share in shares])
        sent, received = parts
        return None if len({*sent, *received}) == 1 else (sent, received)

    def _exchange(
        self, group: tuple[int, ...], parts: tuple[list[int], list[int]], name: str, dependencies: tuple[int, ...]
    ) -> Iterator[AnyTask]:
        """Yield the messages of an all-to-all with uneven parts, and a task that ends it."""
        tag, first = self._tag(group), len(self._tasks)
        count = 0
        for task_class, sizes in ((ReceiveMessage, parts[1]), (SendMessage, parts[0])):
            for peer, size in zip(group, sizes, strict=True):
                if size and peer != self._trace.rank:
                    count += 1
                    yield task_class(peer=peer, size=size, tag=tag, name=name, after=dependencies)
        numbers = tuple(range(first, first + count))
        yield Compute(seconds=0.0, lane=MARKER_LANE, name=name, after=numbers or dependencies)

    def _tag(self, group: tuple[int, ...]) -> int:
        """Return a tag of its own for the messages of a collective: the same at all ranks of the group."""
        self._counts[group] += 1
        return -(zlib.crc32(repr(group).encode()) * (TASKS_MAX + 1) + self._counts[group])

    def _error(self, communication: _Communication, text: str) -> TraceError:
        return TraceError(self._trace.path, f"event {communication.name!r} at {communication.start:.3f} us {text}")
