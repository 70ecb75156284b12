"""Program of a training step of a model in pipeline stages and replicas.

    program = training_step(TrainingShape(ranks=8, stages=2, layers=4, gradient_bytes=1 << 20), racks)

Rank r is replica r % replicas of stage r // replicas, replicas = ranks / stages. All micro-batches go forward, then
backward (as GPipe has it); a layer's gradients are all-reduced over its stage's replicas once its last backward is
done, beside the backward of the layers before it. A step ends when all gradients and the optimizer are done.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrc_testbed.hosts.traffic.collective_options import NO_OPTIONS, CollectiveOptions
from mrc_testbed.hosts.traffic.program import (
    AnyTask,
    Compute,
    JoinCollective,
    Program,
    RankTasks,
    ReceiveMessage,
    SendMessage,
    TrainingProgramError,
)

HIERARCHICAL = "all_reduce_hierarchical"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingShape:
    """Seconds and bytes are of one layer (and micro-batch, where it computes) at one rank."""

    ranks: int
    stages: int = 1
    micro_batches: int = 1
    layers: int = 4
    forward_s: float = 0.01
    backward_s: float = 0.02
    optimizer_s: float = 0.0
    gradient_bytes: int = 1 << 18
    gradient_kind: str = "all_reduce"
    activation_bytes: int = 1 << 16
    token_bytes: int = 1 << 17
    """Bytes that a replica dispatches at a layer of experts."""
    expert_every: int = 0
    """Every so many layers one of experts; 0: none."""
    experts: int = 0
    skew: float = 1.0


def training_step(shape: TrainingShape, racks: tuple[int, ...]) -> Program:
    """Return the program of one step; `racks`: of each rank, for all_reduce_hierarchical.

    Raises TrainingProgramError.
    """
    if shape.ranks % shape.stages or shape.layers % shape.stages:
        raise TrainingProgramError(
            f"{shape.ranks} ranks and {shape.layers} layers in {shape.stages} stages: both must be multiples of it"
        )
    return Program("training", tuple(_Replica(shape, rank, racks).tasks() for rank in range(shape.ranks)))


class _Replica:
    """Tasks of one rank."""

    def __init__(self, shape: TrainingShape, rank: int, racks: tuple[int, ...]) -> None:
        self.shape, self.rank = shape, rank
        self.replicas = shape.ranks // shape.stages
        self.stage = rank // self.replicas
        first = self.stage * self.replicas
        self.group = tuple(range(first, first + self.replicas))
        self.racks = tuple(racks[member] for member in self.group)
        per_stage = shape.layers // shape.stages
        self.layers = range(self.stage * per_stage, (self.stage + 1) * per_stage)
        self.task_list: list[AnyTask] = []
        self.draws = 0

    def tasks(self) -> RankTasks:
        """Return all tasks of a step."""
        shape = self.shape
        last: tuple[int, ...] = ()
        for batch in range(shape.micro_batches):
            last = self._forward(batch, last)
        all_reduces: list[int] = []
        for batch in reversed(range(shape.micro_batches)):
            last = self._backward(batch, last, all_reduces if batch == 0 else None)
        self._add(Compute(seconds=shape.optimizer_s, name="optimizer", after=(*last, *all_reduces)))
        return RankTasks(tuple(self.task_list))

    def _add(self, task: AnyTask) -> int:
        self.task_list.append(task)
        return len(self.task_list) - 1

    def _forward(self, batch: int, last: tuple[int, ...]) -> tuple[int, ...]:
        shape = self.shape
        if self.stage > 0:
            source = self.rank - self.replicas
            last = (*last, self._add(ReceiveMessage(peer=source, size=shape.activation_bytes, tag=2 * batch)))
        for layer in self.layers:
            forward = self._add(Compute(seconds=shape.forward_s, name=f"forward {layer}.{batch}", after=last))
            last = self._experts(layer, batch, (forward,), "forward", shape.forward_s)
        if self.stage < shape.stages - 1:
            self._add(
                SendMessage(peer=self.rank + self.replicas, size=shape.activation_bytes, tag=2 * batch, after=last)
            )
        return last

    def _backward(self, batch: int, last: tuple[int, ...], all_reduces: list[int] | None) -> tuple[int, ...]:
        """Add a micro-batch backward; the last one's all-reduces of gradients go to `all_reduces`."""
        shape = self.shape
        if self.stage < shape.stages - 1:
            source = self.rank + self.replicas
            last = (*last, self._add(ReceiveMessage(peer=source, size=shape.activation_bytes, tag=2 * batch + 1)))
        for layer in reversed(self.layers):
            last = self._experts(layer, batch, last, "backward", 0.0)
            last = (self._add(Compute(seconds=shape.backward_s, name=f"backward {layer}.{batch}", after=last)),)
            if all_reduces is not None and self.replicas > 1 and shape.gradient_bytes:
                options = CollectiveOptions(groups=self.racks) if shape.gradient_kind == HIERARCHICAL else NO_OPTIONS
                all_reduces.append(
                    self._join(f"gradients {layer}", shape.gradient_kind, shape.gradient_bytes, last, options)
                )
        if self.stage > 0:
            tag, target = 2 * batch + 1, self.rank - self.replicas
            self._add(SendMessage(peer=target, size=shape.activation_bytes, tag=tag, after=last))
        return last

    def _experts(self, layer: int, batch: int, last: tuple[int, ...], way: str, seconds: float) -> tuple[int, ...]:
        """Dispatch of the tokens, the experts' work, and the way back, at a layer of experts."""
        shape = self.shape
        if not shape.expert_every or (layer + 1) % shape.expert_every or self.replicas < 2:
            return last
        dispatch_options = CollectiveOptions(
            experts=shape.experts, skew=shape.skew, draw=layer * shape.micro_batches + batch
        )
        name = f"{layer}.{batch} {way}"
        sent = self._join(f"dispatch {name}", "all_to_allv", shape.token_bytes, last, dispatch_options)
        experts_work = self._add(Compute(seconds=seconds, name=f"experts {name}", after=(sent,)))
        combine_options = CollectiveOptions(
            experts=dispatch_options.experts, skew=dispatch_options.skew, draw=dispatch_options.draw, reverse=True
        )
        return (self._join(f"combine {name}", "all_to_allv", shape.token_bytes, (experts_work,), combine_options),)

    def _join(self, name: str, kind: str, size: int, predecessors: tuple[int, ...], options: CollectiveOptions) -> int:
        return self._add(
            JoinCollective(kind=kind, size=size, group=self.group, name=name, after=predecessors, options=options)
        )
