"""Programs without a network.

Any order of arrivals, completions and timers that a network can make ends right.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_testbed.hosts.traffic.collectives import CollectiveError, Send
from mrc_testbed.hosts.traffic.program import (
    Compute,
    Program,
    RankTasks,
    ReceiveMessage,
    SendMessage,
)
from mrc_testbed.hosts.traffic.program_check import check
from mrc_testbed.hosts.traffic.program_rank import ProgramRank
from mrc_testbed.hosts.traffic.program_script import scripts_of
from mrc_testbed.hosts.traffic.training_step import TrainingShape, training_step


class Network:
    """Ranks, wires that keep the order between two ranks, timers, and a dice that chooses the next event."""

    def __init__(self, program: Program, iterations: int, seed: int) -> None:
        self.ranks = [ProgramRank(script, seed=5) for script in scripts_of(program)]
        self.iterations, self.dice = iterations, random.Random(seed)
        self.wires: dict[tuple[int, int], list[tuple[int, Send, np.ndarray]]] = {}
        self.acks: list[tuple[int, Send]] = []
        self.timers: list[tuple[int, int]] = []
        self.pending = [0] * len(self.ranks)
        self.wrong_counts: list[int] = []
        self.iteration_counts = [0] * len(self.ranks)

    def act(self, rank: int, sends: list[Send]) -> None:
        program_rank = self.ranks[rank]
        for send in sends:
            data = program_rank.regions[send.region][send.start : send.start + send.count].copy()
            self.wires.setdefault((rank, send.peer), []).append((program_rank.iteration, send, data))
            self.pending[rank] += 1
        self.timers += [(rank, task) for _, task in program_rank.timers]
        program_rank.timers.clear()
        if program_rank.done and self.iteration_counts[rank] == program_rank.iteration:
            self.iteration_counts[rank] += 1
            self.wrong_counts.append(program_rank.count_errors())
        if program_rank.done and not self.pending[rank] and program_rank.iteration + 1 < self.iterations:
            self.act(rank, program_rank.start(program_rank.iteration + 1))

    def run(self) -> None:
        order = list(range(len(self.ranks)))
        self.dice.shuffle(order)
        for rank in order:
            self.act(rank, self.ranks[rank].start(0))
        while choices := [*(way for way, queue in self.wires.items() if queue), *self.acks[:1], *self.timers]:
            choice = self.dice.choice(choices)
            if choice in self.timers:
                self.timers.remove(choice)
                self.act(choice[0], self.ranks[choice[0]].on_timer(choice[1]))
            elif choice in self.wires:
                iteration, send, data = self.wires[choice].pop(0)
                target = self.ranks[choice[1]]
                target.regions[send.to_region][send.to_start : send.to_start + send.count] = data
                self.act(choice[1], target.on_write(choice[0], send.step, iteration))
                self.acks.append((choice[0], send))
            else:
                rank, send = self.acks.pop(0)
                self.pending[rank] -= 1
                self.act(rank, self.ranks[rank].sent(send))


def step(seed: int, ranks: int, stages: int) -> Program:
    dice = random.Random(seed)
    shape = TrainingShape(
        ranks=ranks,
        stages=stages,
        layers=2 * stages,
        micro_batches=dice.randint(1, 3),
        gradient_bytes=dice.choice((0, 999)),
        gradient_kind=dice.choice(("all_reduce", "all_reduce_tree", "all_reduce_halving", "all_reduce_hierarchical")),
        activation_bytes=77,
        expert_every=dice.randint(0, 2),
        token_bytes=4096,
        experts=5,
    )
    return training_step(shape, tuple(rank % 2 for rank in range(ranks)))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), shape=st.sampled_from([(2, 1), (4, 2), (4, 1), (4, 4), (8, 2)]))
def test_training_step__ends_right_in_any_order(seed, shape):
    network = Network(step(seed, *shape), iterations=3, seed=seed)
    network.run()
    assert network.iteration_counts == [3] * shape[0] and set(network.wrong_counts) == {0}


def test_message__that_was_damaged_shows():
    program = Program(
        "one", (RankTasks((SendMessage(peer=1, size=100),)), RankTasks((ReceiveMessage(peer=0, size=100),)))
    )
    sender, receiver = (ProgramRank(script, seed=5) for script in scripts_of(program))
    (send,) = sender.start(0)
    receiver.start(0)
    receiver.regions["inbox"][:] = 3
    receiver.on_write(0, send.step, 0)
    assert receiver.done and receiver.count_errors() == 25 and receiver.count_errors() == 0


def test_lane__computes_one_thing_at_a_time_and_lanes_together():
    tasks = (Compute(seconds=1), Compute(seconds=2), Compute(seconds=3, lane=1), Compute(seconds=4, after=(0, 1, 2)))
    program = Program("lanes", (RankTasks(tasks), RankTasks(())))
    rank = ProgramRank(scripts_of(program)[0], seed=1)
    rank.start(0)
    assert rank.timers == [(1, 0), (3, 2)] and rank.computing
    rank.timers.clear()
    rank.on_timer(0)
    assert rank.timers == [(2, 1)]
    rank.on_timer(1)
    rank.timers.clear()
    rank.on_timer(2)
    assert rank.timers == [(4, 3)] and not rank.done
    rank.on_timer(3)
    assert rank.done and not rank.computing
    assert check(program).seconds == 7.0


def test_once_begun__waits_for_the_beginning_alone():
    tasks = (Compute(seconds=5), Compute(seconds=1, lane=1, once_begun=(0,)))
    rank = ProgramRank(scripts_of(Program("x", (RankTasks(tasks), RankTasks(()))))[0], seed=1)
    rank.start(0)
    assert rank.timers == [(5, 0), (1, 1)]


def test_chain__of_many_tasks_needs_no_recursion():
    tasks = tuple(Compute(seconds=0, after=(index - 1,) if index else ()) for index in range(20_000))
    program = Program("long", (RankTasks(tasks), RankTasks(tasks)))
    assert check(program).seconds == 0
    rank = ProgramRank(scripts_of(program)[0], seed=1)
    assert rank.start(0) == [] and rank.done


def test_write__that_belongs_to_nothing_is_refused():
    rank = ProgramRank(scripts_of(step(7, 4, 2))[0], seed=1)
    rank.start(0)
    for peer, number in ((1, 60_000), (3, 0), (0, 0)):
        with pytest.raises(CollectiveError, match="belongs to nothing"):
            rank.on_write(peer, number, 0)
