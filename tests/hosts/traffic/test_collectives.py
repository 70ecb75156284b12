"""Collectives without a network: any order of arrival that a network can make gives exact results."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mrc_testbed.hosts.traffic.collectives import (
    KINDS,
    CollectiveError,
    CollectiveOptions,
    Rank,
    Send,
    bus_factor_of,
    make,
    peers_of,
    steps_of,
)


def options_of(count: int, seed: int = 1) -> CollectiveOptions:
    """Groups of equal size, and experts that are not alike."""
    size = random.Random(seed).choice([divisor for divisor in range(1, count + 1) if count % divisor == 0])
    groups = tuple(r // size for r in range(count))
    return CollectiveOptions(groups, 2 * count, 1.2, bool(seed % 2), at_once=seed % 3)


def run(
    ranks: list[Rank], iterations: int, dice: random.Random, sent_writes: list[tuple[int, Send]] | None = None
) -> list[int]:
    """Deliver sends in random order; return the wrong elements.

    Between two ranks they arrive in order, as a QP completes them. `sent_writes` gets the sender and each of its
    writes.
    """
    wrong_counts: list[int] = []
    wires: dict[tuple[int, int], list[tuple[int, Send, np.ndarray]]] = {}

    def post(rank: Rank, sends: list[Send]) -> None:
        for send in sends:
            data = rank.regions[send.region][send.start : send.start + send.count].copy()
            if sent_writes is not None:
                sent_writes.append((rank.rank, send))
            wires.setdefault((rank.rank, send.peer), []).append((rank.iteration, send, data))

    def under_way(rank: Rank) -> bool:
        return any(queue for (source, _), queue in wires.items() if source == rank.rank)

    def settle(rank: Rank) -> None:
        while rank.done and rank.iteration >= 0 and not (rank.follows_sends and under_way(rank)):
            wrong_counts.append(rank.count_errors())
            if rank.iteration + 1 == iterations:
                return
            post(rank, rank.start(rank.iteration + 1))

    order = list(ranks)
    dice.shuffle(order)
    for rank in order:  # some begin when others have sent already
        post(rank, rank.start(0))
        settle(rank)
    while open_wires := [key for key, queue in wires.items() if queue]:
        key = dice.choice(open_wires)
        iteration, send, data = wires[key].pop(0)
        target = ranks[key[1]]
        target.regions[send.to_region][send.to_start : send.to_start + send.count] = data
        if not target.done or iteration != target.iteration:
            post(target, target.on_write(key[0], send.step, iteration))
        if ranks[key[0]].follows_sends:
            post(ranks[key[0]], ranks[key[0]].sent(send))
            settle(ranks[key[0]])
        settle(target)
    return wrong_counts


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@example(count=5, size=1, seed=0, iterations=3)  # shares of nothing: a rank was two iterations ahead
@given(count=st.integers(2, 9), size=st.integers(1, 3000), seed=st.integers(0, 2**32), iterations=st.integers(1, 3))
def test_any_order_gives_exact_results(kind, count, size, seed, iterations):
    options = options_of(count, seed)
    ranks = [make(kind, rank=r, ranks=count, size_bytes=size, seed=seed, options=options) for r in range(count)]
    wrong_counts = run(ranks, iterations, random.Random(seed))
    assert len(wrong_counts) == count * iterations
    assert sum(wrong_counts) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_chunk_shows(kind):
    ranks = [make(kind, rank=r, ranks=4, size_bytes=4096, seed=1, options=options_of(4)) for r in range(4)]
    run(ranks, 1, random.Random(1))
    for array in ranks[2].regions.values():
        array[:] = 0
    assert ranks[2].count_errors() > 0


@pytest.mark.parametrize(("kind", "factor"), [("all_reduce", 1.75), ("all_gather", 0.875), ("send_recv", 1.0)])
def test_bus_factor_is_that_of_nccl_tests(kind, factor):
    assert make(kind, rank=0, ranks=8, size_bytes=64).bus_factor == factor


def test_ring_sends_each_chunk_once_around():
    rank = make("all_reduce", rank=1, ranks=4, size_bytes=64)
    sends = rank.start(0)
    for step in range(6):
        sends += rank.on_write(0, step)
    assert [(s.step, s.start // rank.chunk, s.to_region) for s in sends] == [
        (0, 1, "scratch"),
        (1, 0, "scratch"),
        (2, 3, "scratch"),
        (3, 2, "data"),
        (4, 1, "data"),
        (5, 0, "data"),
    ]
    assert rank.done


def test_all_to_all__some_peers_at_a_time():
    rank = make("all_to_all", rank=1, ranks=6, size_bytes=240, options=CollectiveOptions(at_once=2))
    first = rank.start(0)
    assert [send.peer for send in first] == [2, 3]
    assert [[send.peer for send in rank.sent(first[0])] for _ in range(4)] == [[4], [5], [0], []]


def test_peers_are_those_it_sends_to():
    for kind in KINDS:
        for count in (2, 5, 8):
            ranks = [make(kind, rank=r, ranks=count, size_bytes=640, options=options_of(count)) for r in range(count)]
            sent_writes: list[tuple[int, Send]] = []
            run(ranks, 1, random.Random(3), sent_writes)
            assert all(send.peer in peers_of(kind, r, count, options_of(count)) for r, send in sent_writes), kind
            assert max(send.step for _, send in sent_writes) < steps_of(kind, count)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kind": "allreduce", "rank": 0, "ranks": 2, "size_bytes": 1}, "no collective 'allreduce'"),
        ({"kind": "all_reduce", "rank": 2, "ranks": 2, "size_bytes": 1}, "rank 2 of 2"),
        ({"kind": "all_reduce", "rank": 0, "ranks": 2, "size_bytes": 0}, "size 0"),
    ],
)
def test_what_cannot_be_is_refused(options, text):
    with pytest.raises(CollectiveError, match=text):
        make(options.pop("kind"), **options)


def test_an_unexpected_step_is_refused():
    rank = make("all_reduce", rank=0, ranks=3, size_bytes=96)
    rank.start(0)
    with pytest.raises(CollectiveError, match="waits for step 0"):
        rank.on_write(2, 1)


@pytest.mark.parametrize(
    ("kind", "one_iteration", "two_iterations"), [("all_reduce", 1.75, 1.75), ("all_gather", 1, 2), ("send_recv", 2, 3)]
)
def test_memory__is_what_the_iterations_write_to(kind: str, one_iteration: float, two_iterations: float) -> None:
    rank = make(kind, rank=0, ranks=4, size_bytes=1 << 12)
    assert (rank.memory_bytes(1), rank.memory_bytes(2), rank.memory_bytes(9)) == (
        one_iteration * (1 << 12),
        two_iterations * (1 << 12),
        two_iterations * (1 << 12),
    )


def test_bus_factor_of__is_that_of_its_ranks():
    assert [bus_factor_of(kind, 8) for kind in ("all_reduce_tree", "all_to_allv")] == [1.75, 0.875]
