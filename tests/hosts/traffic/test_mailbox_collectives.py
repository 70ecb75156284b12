"""All-to-all of experts: shares, dispatch and combine."""

from __future__ import annotations

from mrc_testbed.hosts.traffic.collectives import (
    CollectiveOptions,
    make,
)
from mrc_testbed.hosts.traffic.mailbox_collectives import CAPACITY, UNITS, expert_shares


def test_expert_shares__follow_zipf_up_to_the_capacity():
    even_shares = expert_shares(8, 64, 0.0, seed=1, iteration=0, draw=0)
    skewed_shares = expert_shares(8, 8, 1.2, seed=1, iteration=0, draw=0)
    assert (even_shares.sum(axis=1) == UNITS).all() and (skewed_shares.sum(axis=1) == UNITS).all()
    assert (
        skewed_shares.sum(axis=0).max() > 1.5 * even_shares.sum(axis=0).max()
        and skewed_shares.max() <= CAPACITY * UNITS // 8
    )
    next_shares = expert_shares(8, 8, 1.2, seed=1, iteration=1, draw=0)
    assert (next_shares != skewed_shares).any(), "another iteration, other experts"


def test_combine__goes_back_the_way_of_dispatch():
    dispatch, combine = (
        [
            make("all_to_allv", rank=r, ranks=4, size_bytes=65536, options=CollectiveOptions(skew=1.0, reverse=way))
            for r in range(4)
        ]
        for way in (False, True)
    )
    sent_counts = {(r.rank, s.peer): s.count for r in dispatch for s in r.start(0)}
    returned_counts = {(s.peer, r.rank): s.count for r in combine for s in r.start(0)}
    assert sent_counts.keys() == returned_counts.keys()
    assert all(abs(sent_counts[pair] - returned_counts[pair]) <= 1 for pair in sent_counts), "but for rounding"
