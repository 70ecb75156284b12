"""All-reduces by trees, halving and groups."""

from __future__ import annotations

import random

import pytest

from mrc_testbed.hosts.traffic.collectives import (
    CollectiveError,
    CollectiveOptions,
    Send,
    make,
)
from mrc_testbed.hosts.traffic.tree_collectives import double_tree
from tests.hosts.traffic.test_collectives import run


def test_trees__have_one_root_and_two_children_at_most():
    for ranks in range(2, 40):
        for tree in double_tree(ranks):
            assert tree.count(-1) == 1 and max(tree.count(parent) for parent in range(ranks)) <= 2
            for rank in range(ranks):
                way = [rank]
                while tree[way[-1]] >= 0:
                    way.append(tree[way[-1]])
                assert len(way) <= ranks.bit_length()


def test_halving__sends_what_is_optimal():
    rank = make("all_reduce_halving", rank=5, ranks=8, size_bytes=4096)
    sends = rank.start(0)
    for step in range(1, 7):
        sends += rank._on_write(0, step)
    assert sum(send.count for send in sends) == rank.elements * rank.bus_factor


def test_hierarchical__sends_less_between_groups():
    options = CollectiveOptions(groups=(0, 0, 0, 0, 1, 1, 1, 1))
    ranks = [make("all_reduce_hierarchical", rank=r, ranks=8, size_bytes=4096, options=options) for r in range(8)]
    sent_writes: list[tuple[int, Send]] = []
    run(ranks, 1, random.Random(1), sent_writes)
    crossing_elements = sum(send.count for r, send in sent_writes if options.groups[send.peer] != options.groups[r])
    assert crossing_elements == 2 * ranks[0].elements, "each group's sum once to the other, whatever its size"


def test_hierarchical__needs_groups_of_one_size():
    for groups in ((), (0, 0, 1), (0, 1)):
        with pytest.raises(CollectiveError, match="each rank needs a group, and all groups as many"):
            make("all_reduce_hierarchical", rank=0, ranks=3, size_bytes=64, options=CollectiveOptions(groups=groups))
