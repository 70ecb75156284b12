"""A training step as a program: overlap, bubbles, stages."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.traffic.program import (
    JoinCollective,
    TrainingProgramError,
)
from mrc_testbed.hosts.traffic.program_check import check
from mrc_testbed.hosts.traffic.training_step import TrainingShape, training_step


def test_training_step__overlaps_gradients_with_backward():
    program = training_step(TrainingShape(ranks=2, layers=3, forward_s=1, backward_s=2, optimizer_s=0.5), (0, 1))
    tasks = program.ranks[0].tasks
    joins = [index for index, task in enumerate(tasks) if isinstance(task, JoinCollective)]
    assert [tasks[join].name for join in joins] == ["gradients 2", "gradients 1", "gradients 0"]
    assert [tasks[task.after[0]].name for task in (tasks[join] for join in joins)] == [
        "backward 2.0",
        "backward 1.0",
        "backward 0.0",
    ]
    assert set(joins) < set(tasks[-1].after) and tasks[-1].name == "optimizer"
    assert check(program).seconds == 3 * 1 + 3 * 2 + 0.5


def test_training_step__pipeline_takes_its_bubble():
    shape = TrainingShape(ranks=4, stages=4, layers=4, micro_batches=4, forward_s=1, backward_s=1, gradient_bytes=0)
    assert check(training_step(shape, (0,) * 4)).seconds == 2 * (4 + 3)


def test_training_step__needs_even_stages():
    with pytest.raises(TrainingProgramError, match="both must be multiples"):
        training_step(TrainingShape(ranks=4, stages=3, layers=3), (0,) * 4)
