"""Programs without a network: any order of arrivals, completions and timers that a network can make ends right."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_testbed.hosts.traffic.collectives import CollectiveError, CollectiveOptions, Send
from mrc_testbed.hosts.traffic.program import (
    Compute,
    JoinCollective,
    Program,
    RankTasks,
    ReceiveMessage,
    SendMessage,
    TrainingProgramError,
)
from mrc_testbed.hosts.traffic.program_check import check
from mrc_testbed.hosts.traffic.program_rank import ProgramRank
from mrc_testbed.hosts.traffic.program_script import RankScript, scripts_of
from mrc_testbed.hosts.traffic.training_step import TrainingShape, training_step


class Network:
    """Ranks, wires that keep the order between two ranks, timers, and a dice that chooses what happens next."""

    def __init__(self, program: Program, iterations: int, seed: int) -> None:
        self.ranks = [ProgramRank(script, seed=5) for script in scripts_of(program)]
        self.iterations, self.dice = iterations, random.Random(seed)
        self.wires: dict[tuple[int, int], list[tuple[int, Send, np.ndarray]]] = {}
        self.acks: list[tuple[int, Send]] = []
        self.timers: list[tuple[int, int]] = []
        self.pending = [0] * len(self.ranks)
        self.wrong: list[int] = []
        self.ended = [0] * len(self.ranks)

    def act(self, rank: int, sends: list[Send]) -> None:
        mine = self.ranks[rank]
        for send in sends:
            data = mine.regions[send.region][send.start : send.start + send.count].copy()
            self.wires.setdefault((rank, send.peer), []).append((mine.iteration, send, data))
            self.pending[rank] += 1
        self.timers += [(rank, task) for _, task in mine.timers]
        mine.timers.clear()
        if mine.done and self.ended[rank] == mine.iteration:
            self.ended[rank] += 1
            self.wrong.append(mine.wrong())
        if mine.done and not self.pending[rank] and mine.iteration + 1 < self.iterations:
            self.act(rank, mine.start(mine.iteration + 1))

    def run(self) -> None:
        order = list(range(len(self.ranks)))
        self.dice.shuffle(order)
        for rank in order:
            self.act(rank, self.ranks[rank].start(0))
        while choices := [*(way for way, queue in self.wires.items() if queue), *self.acks[:1], *self.timers]:
            chosen = self.dice.choice(choices)
            if chosen in self.timers:
                self.timers.remove(chosen)
                self.act(chosen[0], self.ranks[chosen[0]].elapsed(chosen[1]))
            elif chosen in self.wires:
                iteration, send, data = self.wires[chosen].pop(0)
                target = self.ranks[chosen[1]]
                target.regions[send.to_region][send.at : send.at + send.count] = data
                self.act(chosen[1], target.arrived(chosen[0], send.step, iteration))
                self.acks.append((chosen[0], send))
            else:
                rank, send = self.acks.pop(0)
                self.pending[rank] -= 1
                self.act(rank, self.ranks[rank].sent(send))


def step(seed: int, ranks: int, stages: int) -> Program:
    dice = random.Random(seed)
    shape = TrainingShape(
        ranks=ranks, stages=stages, layers=2 * stages, micro_batches=dice.randint(1, 3),
        gradient_bytes=dice.choice((0, 999)),
        gradient_kind=dice.choice(("all_reduce", "all_reduce_tree", "all_reduce_halving", "all_reduce_hierarchical")),
        activation_bytes=77, expert_every=dice.randint(0, 2), token_bytes=4096, experts=5,
    )  # fmt: skip
    return training_step(shape, tuple(rank % 2 for rank in range(ranks)))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), shape=st.sampled_from([(2, 1), (4, 2), (4, 1), (4, 4), (8, 2)]))
def test_training_step__ends_right_in_any_order(seed, shape):
    network = Network(step(seed, *shape), iterations=3, seed=seed)
    network.run()
    assert network.ended == [3] * shape[0] and set(network.wrong) == {0}


def test_message__that_was_damaged_shows():
    program = Program(
        "one", (RankTasks((SendMessage(peer=1, size=100),)), RankTasks((ReceiveMessage(peer=0, size=100),)))
    )
    sender, receiver = (ProgramRank(script, seed=5) for script in scripts_of(program))
    (send,) = sender.start(0)
    receiver.start(0)
    receiver.regions["inbox"][:] = 3
    receiver.arrived(0, send.step, 0)
    assert receiver.done and receiver.wrong() == 25 and receiver.wrong() == 0


def test_lane__computes_one_thing_at_a_time_and_lanes_together():
    tasks = (Compute(seconds=1), Compute(seconds=2), Compute(seconds=3, lane=1), Compute(seconds=4, after=(0, 1, 2)))
    program = Program("lanes", (RankTasks(tasks), RankTasks(())))
    rank = ProgramRank(scripts_of(program)[0], seed=1)
    rank.start(0)
    assert rank.timers == [(1, 0), (3, 2)] and rank.computing
    rank.timers.clear()
    rank.elapsed(0)
    assert rank.timers == [(2, 1)]
    rank.elapsed(1)
    rank.timers.clear()
    rank.elapsed(2)
    assert rank.timers == [(4, 3)] and not rank.done
    rank.elapsed(3)
    assert rank.done and not rank.computing
    assert check(program).seconds == 7.0


def test_once_begun__waits_for_the_beginning_alone():
    tasks = (Compute(seconds=5), Compute(seconds=1, lane=1, once_begun=(0,)))
    rank = ProgramRank(scripts_of(Program("x", (RankTasks(tasks), RankTasks(()))))[0], seed=1)
    rank.start(0)
    assert rank.timers == [(5, 0), (1, 1)]


def test_chain__of_many_tasks_needs_no_recursion():
    tasks = tuple(Compute(seconds=0, after=(at - 1,) if at else ()) for at in range(20_000))
    program = Program("long", (RankTasks(tasks), RankTasks(tasks)))
    assert check(program).seconds == 0
    rank = ProgramRank(scripts_of(program)[0], seed=1)
    assert rank.start(0) == [] and rank.done


def test_script__survives_json():
    for script in scripts_of(step(7, 4, 2)):
        assert msgspec.json.decode(msgspec.json.encode(script), type=RankScript) == script


def test_write__that_belongs_to_nothing_is_refused():
    rank = ProgramRank(scripts_of(step(7, 4, 2))[0], seed=1)
    rank.start(0)
    for peer, number in ((1, 60_000), (3, 0), (0, 0)):
        with pytest.raises(CollectiveError, match="belongs to nothing"):
            rank.arrived(peer, number, 0)


def pair(*tasks, other=()) -> Program:
    return Program("bad", (RankTasks(tuple(tasks)), RankTasks(tuple(other))))


BAD = {
    "nobody receives its message to rank 1, tag 3": pair(SendMessage(peer=1, size=4, tag=3)),
    "waits for message 1 of rank 1 with tag 0, which sends 0": pair(ReceiveMessage(peer=1, size=4)),
    "waits for 8 bytes of rank 1, whose task 0 sends 4": pair(
        ReceiveMessage(peer=1, size=8), other=[SendMessage(peer=0, size=4)]
    ),
    "a message to rank 2: there are ranks 0 to 1": pair(SendMessage(peer=2, size=4)),
    "a message of rank -1: there are ranks 0 to 1": pair(ReceiveMessage(peer=-1, size=4)),
    "and a rank does not talk to itself": pair(SendMessage(peer=0, size=4)),
    "rank 1 never joins it": pair(JoinCollective(kind="all_reduce", size=64, group=(0, 1))),
    "is all_gather of 64 bytes at rank 1 and all_reduce of 64 at rank 0": pair(
        JoinCollective(kind="all_reduce", size=64, group=(0, 1)),
        other=[JoinCollective(kind="all_gather", size=64, group=(0, 1))],
    ),
    "two or more different ones": pair(JoinCollective(kind="all_reduce", size=64, group=(0,))),
    "no collective 'allreduce'": pair(
        JoinCollective(kind="allreduce", size=64, group=(0, 1)),
        other=[JoinCollective(kind="allreduce", size=64, group=(0, 1))],
    ),
    "waits for task 9, which is not there": pair(Compute(seconds=1, after=(9,))),
    "computes for -1 seconds": pair(Compute(seconds=-1)),
    "a message of -4 bytes": pair(SendMessage(peer=1, size=-4)),
    "2048 MiB in messages a step: at most 1024": pair(
        SendMessage(peer=1, size=1 << 31), other=[ReceiveMessage(peer=0, size=1 << 31)]
    ),
    r"a circle of 2 tasks that wait for each other: rank 0 task 0 \(a\) for rank 0 task 1 for rank 0 task 0": pair(
        Compute(seconds=1, after=(1,), name="a"), Compute(seconds=1, after=(0,))
    ),
    "a circle of 4 tasks that wait for each other": pair(
        ReceiveMessage(peer=1, size=4), SendMessage(peer=1, size=4, after=(0,)),
        other=[ReceiveMessage(peer=0, size=4), SendMessage(peer=0, size=4, after=(0,))],
    ),
    "a circle of 1 tasks": pair(Compute(seconds=1, once_begun=(0,))),
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_program__that_cannot_run_is_refused_in_one_line(text):
    with pytest.raises(TrainingProgramError, match=text) as found:
        check(BAD[text])
    assert "\n" not in str(found.value)


def test_collective__that_one_waits_for_behind_another_is_a_circle():
    first = JoinCollective(kind="all_reduce", size=64, group=(0, 1))
    second = JoinCollective(kind="all_reduce", size=64, group=(0, 1), options=CollectiveOptions(), after=(0,))
    receive, send = ReceiveMessage(peer=1, size=4), SendMessage(peer=0, size=4, after=(0,))
    program = pair(first, second, other=[first, second])
    assert check(program).collectives == 2
    stuck = Program("s", (RankTasks((receive, JoinCollective(kind="all_reduce", size=64, group=(0, 1), after=(0,)))),
                          RankTasks((JoinCollective(kind="all_reduce", size=64, group=(0, 1)), send))))  # fmt: skip
    with pytest.raises(TrainingProgramError, match="a circle of 4 tasks"):
        check(stuck)


def test_training_step__overlaps_gradients_with_backward():
    program = training_step(TrainingShape(ranks=2, layers=3, forward_s=1, backward_s=2, optimizer_s=0.5), (0, 1))
    tasks = program.ranks[0].tasks
    joins = [at for at, task in enumerate(tasks) if isinstance(task, JoinCollective)]
    assert [tasks[at].name for at in joins] == ["gradients 2", "gradients 1", "gradients 0"]
    assert [tasks[task.after[0]].name for task in (tasks[at] for at in joins)] == [
        "backward 2.0", "backward 1.0", "backward 0.0",
    ]  # fmt: skip
    assert set(joins) < set(tasks[-1].after) and tasks[-1].name == "optimizer"
    assert check(program).seconds == 3 * 1 + 3 * 2 + 0.5


def test_training_step__pipeline_takes_its_bubble():
    shape = TrainingShape(ranks=4, stages=4, layers=4, micro_batches=4, forward_s=1, backward_s=1, gradient_bytes=0)
    assert check(training_step(shape, (0,) * 4)).seconds == 2 * (4 + 3)


def test_training_step__needs_even_stages():
    with pytest.raises(TrainingProgramError, match="both must be multiples"):
        training_step(TrainingShape(ranks=4, stages=3, layers=3), (0,) * 4)
