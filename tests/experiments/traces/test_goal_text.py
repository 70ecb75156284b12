"""Programs as GOAL text: the same program when it is read again, with the messages of its collectives."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from mrc_testbed.experiments.traces.goal_text import goal_of
from mrc_testbed.experiments.traces.read import read_trace
from mrc_testbed.hosts.traffic.collectives import bus_factor_of
from mrc_testbed.hosts.traffic.program import Compute, JoinCollective, Program, RankTasks
from mrc_testbed.hosts.traffic.program_check import check
from tests.experiments.traces.test_goal import STEP, goal


def read_again(folder, program: Program) -> Program:
    return read_trace(goal(folder, goal_of(program), "again.goal"))


def test_schedule__is_the_same_when_it_is_read_again(tmp_path):
    program = read_trace(goal(tmp_path, STEP))
    second = read_again(tmp_path, program)

    def bare(rank: RankTasks) -> list:
        return [replace(task, name="", **({} if isinstance(task, Compute) else {"tag": 0})) for task in rank.tasks]

    assert list(map(bare, second.ranks)) == list(map(bare, program.ranks))


KINDS = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "all_reduce_tree", "all_reduce_halving"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_collective__becomes_messages_of_its_bus_bytes(tmp_path, kind, ranks):
    size = 64 * ranks * 100
    tasks = (
        Compute(seconds=1e-3),
        JoinCollective(kind=kind, size=size, group=tuple(range(ranks)), after=(0,)),
        Compute(seconds=2e-3, after=(1,)),
    )
    ideal = check(read_again(tmp_path, Program("p", (RankTasks(tasks),) * ranks)))
    # The collective is between the two computations: nobody computes on before all have begun.
    assert ideal.seconds == pytest.approx(3e-3)
    # A tree, and halving with ranks beyond a power of two, send a byte more often than a ring does.
    bus_bytes = bus_factor_of(kind, ranks) * size * ranks
    assert 0.99 * bus_bytes <= ideal.sent_bytes <= (2.2 if kind == "all_reduce_halving" else 1.1) * bus_bytes


def test_collectives__of_overlapping_groups_do_not_mix(tmp_path):
    pair = JoinCollective(kind="all_reduce", size=4000, group=(0, 1))
    three = JoinCollective(kind="all_reduce_tree", size=4000, group=(0, 1, 2))
    ranks = (RankTasks((pair, three, pair)), RankTasks((three, pair, pair)), RankTasks((three,)))
    assert check(read_again(tmp_path, Program("p", ranks))).messages > 4


def test_lanes__are_as_many_as_loggopsim_counts_in_a_byte(tmp_path):
    step = (Compute(seconds=1e-3, lane=1), JoinCollective(kind="all_reduce", size=4000, group=(0, 1)))
    lanes = map(int, re.findall(r"cpu (\d+)", goal_of(Program("p", (RankTasks(step),) * 2))))
    assert 1 < max(lanes) + 1 < 256


def test_messages__of_one_tag_have_a_tag_each_in_their_order(tmp_path):
    text = "num_ranks 2\nrank 0 {\na: send 5b to 1 tag 3\nb: send 7b to 1 tag 3\n}\n"
    program = read_trace(goal(tmp_path, text + "rank 1 {\na: recv 5b from 0 tag 3\nb: recv 7b from 0 tag 3\n}\n"))
    lines = re.findall(r"(\d+)b \w+ \d tag (\d+)", goal_of(program))
    assert lines[:2] == lines[2:] and len(set(lines)) == 2 and len({tag for _, tag in lines}) == 2
