"""Workloads as text of ASTRA-sim 1.0 and SimAI: a parallelism, a number of layers, a line for each.

    HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 4 ep: 1 pp: 1 all_gpus: 8 ...
    2
    mlp  -1  2478000 ALLREDUCE 33554  2478000 NONE 0  2478000 NONE 0  100

A layer has a name, a field that nobody reads, and for the forward pass, the input gradients and the weight gradients a
time in nanoseconds, a collective and its bytes; then the time of an update, which follows each of its collectives. The
step is one pass: forward through the layers, backward again, in the order in which these simulators go. Collectives of
both passes go over the tensor-parallel group, those of weight gradients over the data-parallel one; `_EP` and `_DP_EP`
name the experts' groups. Ranks: tensor parallelism nearest, then experts, then data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.task_list import TaskList
from mrc_testbed.experiments.traces.text_lines import RANKS_MAX, numbered_lines, quote, whole_number
from mrc_testbed.hosts.traffic.program import Program
from mrc_testbed.hosts.traffic.program_script import TASKS_MAX

NANOSECOND = 1e-9
COLLECTIVES = {
    "ALLREDUCE": "ALL_REDUCE",
    "ALLGATHER": "ALL_GATHER",
    "REDUCESCATTER": "REDUCE_SCATTER",
    "ALLTOALL": "ALL_TO_ALL",
    "BROADCAST": "BROADCAST",
}
TRANSFORMERS = ("HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD")
READ_POLICIES = ("MICRO", "DATA", "MODEL", "DISTRIBUTED_INFERENCE", *TRANSFORMERS)
TOPOLOGY_POLICIES = (
    "HYBRID_DATA_MODEL",
    "HYBRID_MODEL_DATA",
    "HYBRID_CUSTOMIZED",
    "HYBRID_DLRM",
    "HYBRID_DLRM_ENHANCED",
)
"""Parallelisms whose groups are dimensions of a topology that the file does not have."""
PHASES = ("fwd", "ig", "wg")
PHASES_OF = {"MICRO": ("wg",), "DATA": ("wg",), "MODEL": ("fwd", "ig"), "DISTRIBUTED_INFERENCE": ("fwd",)}
"""Parallelism -> phases that have collectives; others have them in all."""
FIELDS = 12
COMPUTE_LANE, UPDATE_LANE = 0, 1
_HEADER = "the first line is a parallelism: " + ", ".join(READ_POLICIES)


@dataclass(frozen=True, slots=True)
class _Part:
    """A phase of a layer: nanoseconds of computing, a collective and its group by name, its bytes."""

    nanoseconds: int
    kind: str
    group: str
    size: int


@dataclass(frozen=True, slots=True)
class _Layer:
    name: str
    parts: dict[str, _Part]
    update: int


def read_workload(path: Path, ranks: int | None = None) -> Program:
    """Return the program of a pass. Raises TraceError.

    `ranks`: number of ranks, where the file has no `all_gpus`.
    """
    policy, keys, layers = _read(path)
    ranks = _count(path, keys, ranks)
    groups = _Groups(path, policy, keys, ranks)
    steps = [_Steps(rank, groups) for rank in range(ranks)]
    for rank_steps in steps:
        rank_steps.add_pass(policy, layers)
    notes = () if policy != "MICRO" else ("all its collectives begin at once: a MICRO workload has no order",)
    return Program(path.stem, tuple(rank_steps.tasks.finish() for rank_steps in steps), notes)


# ---- the file -----------------------------------------------------------------------------------------------


def _read(path: Path) -> tuple[str, dict[str, int], list[_Layer]]:
    """Return the parallelism, the values of the first line, and the layers. Raises TraceError."""
    lines = [(n, text.split()) for n, text in numbered_lines(path, "a workload of ASTRA-sim or SimAI") if text.strip()]
    if len(lines) < 2 or len(lines[1][1]) != 1:
        raise TraceError(path, "cut off: the second line is the number of layers", lines[-1][0] if lines else None)
    (line, (policy, *words)), (count_line, (count_text,)) = lines[:2]
    if policy in TOPOLOGY_POLICIES:
        text = "its groups are dimensions of a topology that the file does not have: make Chakra traces of it"
        raise TraceError(path, f"{policy}: {text} (chakra_converter Text), and give --groups FILE", line)
    if policy not in READ_POLICIES:
        raise TraceError(path, f"{quote(policy)}: {_HEADER}", line)
    keys = _keys(path, line, words)
    count = whole_number(path, count_text, "number of layers", count_line, 1, TASKS_MAX)
    layers = [_layer(path, number, fields, policy) for number, fields in lines[2:]]
    if len(layers) != count:
        raise TraceError(path, f"line 2 says {count} layers, the file has {len(layers)}", count_line)
    return policy, keys, layers


def _keys(path: Path, line: int, words: list[str]) -> dict[str, int]:
    """Return the values of the first line, `key: number` or `key number`. Raises TraceError."""
    keys: dict[str, int] = {}
    position = 0
    while position < len(words):
        key = words[position].removesuffix(":")
        if position + 1 == len(words) or not re.fullmatch(r"[A-Za-z_]+", key):
            raise TraceError(path, f"{quote(words[position])}: the first line has pairs `key: number`", line)
        keys[key] = whole_number(path, words[position + 1], key, line)
        position += 2
        # Lists of layers follow the number of them: refused with their key.
        if key.startswith("checkpoint") and keys[key]:
            raise TraceError(path, f"{key} {keys[key]}: layers that run twice are not replayed", line)
    if keys.get("pp", 1) > 1:
        raise TraceError(path, f"pp {keys['pp']}: messages between the stages of a pipeline are not in the file", line)
    return keys


def _layer(path: Path, line: int, fields: list[str], policy: str) -> _Layer:
    if len(fields) != FIELDS:
        raise TraceError(
            path, f"a layer of {len(fields)} fields: {FIELDS} (name, a number, 3 x time kind size, update)", line
        )
    parts = {}
    for phase, (time, word, size) in zip(PHASES, (fields[2:5], fields[5:8], fields[8:11]), strict=True):
        # A group that names experts is the ending of the word.
        kind, _, group = word.partition("_")
        if word != "NONE" and (kind not in COLLECTIVES or group not in ("", "EP", "DP_EP")):
            known_words = ", ".join(["NONE", *COLLECTIVES])
            raise TraceError(path, f"collective {quote(word)} (known: {known_words}, and with _EP or _DP_EP)", line)
        bytes_ = whole_number(path, size, "size", line)
        if word != "NONE" and bytes_ and phase not in PHASES_OF.get(policy, PHASES):
            raise TraceError(path, f"{word} in the phase {phase!r}: {policy} has no collectives there", line)
        name = COLLECTIVES[kind] if word != "NONE" and bytes_ else ""
        parts[phase] = _Part(
            whole_number(path, time, "time", line), name, group or ("DP" if phase == "wg" else "TP"), bytes_
        )
    return _Layer(fields[0][:80], parts, whole_number(path, fields[11], "update time", line))


def _count(path: Path, keys: dict[str, int], ranks: int | None) -> int:
    """Return the number of ranks. Raises TraceError."""
    job_ranks = keys.get("all_gpus")
    count = job_ranks if ranks is None else ranks
    if count is None:
        raise TraceError(path, "does not say how many ranks there are: give --ranks N (in a scenario: `ranks: N`)")
    if job_ranks not in (None, count):
        raise TraceError(path, f"all_gpus is {job_ranks}, {count} ranks are asked for: leave --ranks out")
    if not 2 <= count <= RANKS_MAX:
        raise TraceError(path, f"{count} ranks: 2 to {RANKS_MAX}")
    return count


# ---- the program --------------------------------------------------------------------------------------------


class _Groups:
    """Ranks of the groups that a collective names."""

    def __init__(self, path: Path, policy: str, keys: dict[str, int], ranks: int) -> None:
        self._ranks = ranks
        self.sizes_are_inputs = "all_gpus" not in keys
        """Whether a size is what a rank puts in.

        So it is in ASTRA-sim; SimAI, which writes all_gpus, has the larger buffer.
        """
        self._hybrid = policy in TRANSFORMERS
        self._tensor = keys.get("model_parallel_NPU_group") or ranks
        self._experts = keys.get("ep") or 1
        if self._hybrid and ranks % (self._tensor * self._experts):
            text = f"{ranks} ranks are no multiple of model_parallel_NPU_group {self._tensor} x ep {self._experts}"
            raise TraceError(path, text)

    def ranks_of(self, name: str, rank: int) -> tuple[int, ...]:
        """Return the group of a rank, ascending."""
        if not self._hybrid:
            return tuple(range(self._ranks))
        tensor, block = self._tensor, self._tensor * self._experts
        match name:
            case "TP":
                return tuple(range(rank - rank % tensor, rank - rank % tensor + tensor))
            case "EP":
                return tuple(range(rank - rank % block + rank % tensor, rank - rank % block + block, tensor))
            case "DP_EP":
                return tuple(range(rank % block, self._ranks, block))
            case _:
                return tuple(range(rank % tensor, self._ranks, tensor))


class _Steps:
    """Adds the tasks of a pass of one rank."""

    def __init__(self, rank: int, groups: _Groups) -> None:
        self.tasks = TaskList(rank)
        self._groups = groups
        self._last: tuple[int, ...] = ()
        """Task that all that follows waits for."""

    def add_pass(self, policy: str, layers: list[_Layer]) -> None:
        """Add the forward and the backward pass."""
        if policy == "MICRO":
            for layer in layers:
                self._communicate(layer, "wg", ())
            return
        for layer in layers:
            self._compute(layer, "fwd")
            self._wait_for(self._communicate(layer, "fwd", self._last))
        if policy == "DISTRIBUTED_INFERENCE":
            return
        for index in reversed(range(len(layers))):
            self._add_backward(policy, layers[index], is_first=index == 0)

    def _add_backward(self, policy: str, layer: _Layer, *, is_first: bool) -> None:
        if policy == "DATA":
            self._compute(layer, "wg")
            self._communicate(layer, "wg", self._last)
            if not is_first:
                self._compute(layer, "ig")
            return
        self._compute(layer, "ig")
        exchange = None
        # The first layer has no layer before it that would want its input gradients.
        if policy != "MODEL" or not is_first:
            exchange = self._communicate(layer, "ig", self._last)
        if policy != "MODEL":
            self._wait_for(exchange)
        self._compute(layer, "wg")
        self._communicate(layer, "wg", self._last)
        if policy == "MODEL" and exchange is not None:
            self._last = (*self._last, exchange)

    def _compute(self, layer: _Layer, phase: str) -> None:
        if nanoseconds := layer.parts[phase].nanoseconds:
            name = f"{layer.name} {phase}"
            self._last = (self.tasks.compute(nanoseconds * NANOSECOND, self._last, lane=COMPUTE_LANE, name=name),)

    def _wait_for(self, number: int | None) -> None:
        if number is not None:
            self._last = (number,)

    def _communicate(self, layer: _Layer, phase: str, dependencies: tuple[int, ...]) -> int | None:
        """Add the collective of a phase and its update; return the last task, None without any."""
        part, name = layer.parts[phase], f"{layer.name} {phase}"
        if not part.kind:
            return None
        group = self._groups.ranks_of(part.group, self.tasks.rank)
        size = part.size * (len(group) if part.kind == "ALL_GATHER" and self._groups.sizes_are_inputs else 1)
        number = self.tasks.collective(part.kind, size, group, dependencies, name=name)
        if not layer.update:
            return number
        return self.tasks.compute(layer.update * NANOSECOND, (number,), lane=UPDATE_LANE, name=f"{name} update")
