"""NCCL's choice of ring or tree: where its model changes over, and what a program says of it."""

from __future__ import annotations

import pytest

from mrc_testbed.experiments.traces.nccl_choice import NcclChoice, choose, choose_for
from mrc_testbed.hosts.traffic.program import JoinCollective, Program, RankTasks


@pytest.mark.parametrize(
    ("size", "ranks", "choice"),
    [
        # Latency: hops of the base, and the bytes; worked out by hand from the model's table.
        (64, 2, NcclChoice("ring", "LL", 6.6 + 2 * 5.0 + 64 / 24_000)),
        (64, 64, NcclChoice("tree", "LL", 6.8 + 2 * 6 * 5.0 + 64 / (48_000 * 0.92 / 3.8 / 2))),
        (1 << 30, 2, NcclChoice("ring", "Simple", 8.4 * 1.4 + 2 * 14 * 1.4 + (1 << 30) / 48_000)),
    ],
)
def test_choice__has_the_least_time_of_the_model(size, ranks, choice):
    result = choose(size, ranks)
    assert (result.algorithm, result.protocol) == (choice.algorithm, choice.protocol)
    assert result.time_us == pytest.approx(choice.time_us)


def test_choice__is_trees_for_small_buffers_of_many_ranks():
    by_ranks = {
        ranks: next(power for power in range(6, 40) if choose(1 << power, ranks).algorithm == "ring")
        for ranks in (8, 16, 64, 256)
    }
    # More ranks, more hops of a ring: the change comes at larger buffers.
    assert list(by_ranks.values()) == sorted(by_ranks.values()) and by_ranks[256] > by_ranks[8]
    assert choose(1 << 40, 256).algorithm == "ring"


def test_program__has_the_choice_and_says_so():
    joins = tuple(JoinCollective(kind="all_reduce", size=size, group=tuple(range(64))) for size in (64, 1 << 34))
    gather = JoinCollective(kind="all_gather", size=64, group=tuple(range(64)))
    program = choose_for(Program("p", (RankTasks((*joins, gather)),) * 64, ("first",)))
    assert [task.kind for task in program.ranks[0].tasks] == ["all_reduce_tree", "all_reduce", "all_gather"]
    assert program.notes[0] == "first" and program.notes[1].startswith("all-reduces: 1 as rings, 1 as trees, by NCCL")
