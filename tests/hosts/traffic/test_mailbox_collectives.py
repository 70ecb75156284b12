"""All-to-all of experts: shares, dispatch and combine."""

from __future__ import annotations

from mrc_testbed.hosts.traffic.collectives import (
    CollectiveOptions,
    make,
)
from mrc_testbed.hosts.traffic.mailbox_collectives import CAPACITY, UNITS, expert_shares


def test_expert_shares__follow_zipf_up_to_the_capacity():
    even = expert_shares(8, 64, 0.0, seed=1, iteration=0, draw=0)
    skewed = expert_shares(8, 8, 1.2, seed=1, iteration=0, draw=0)
    assert (even.sum(axis=1) == UNITS).all() and (skewed.sum(axis=1) == UNITS).all()
    assert skewed.sum(axis=0).max() > 1.5 * even.sum(axis=0).max() and skewed.max() <= CAPACITY * UNITS // 8
    other = expert_shares(8, 8, 1.2, seed=1, iteration=1, draw=0)
    assert (other != skewed).any(), "another iteration, other experts"


def test_combine__goes_back_the_way_of_dispatch():
    there, back = (
        [
            make("all_to_allv", rank=r, ranks=4, size_bytes=65536, options=CollectiveOptions(skew=1.0, reverse=way))
            for r in range(4)
        ]
        for way in (False, True)
    )
    sent = {(r.rank, s.peer): s.count for r in there for s in r.start(0)}
    returned = {(s.peer, r.rank): s.count for r in back for s in r.start(0)}
    assert sent.keys() == returned.keys()
    assert all(abs(sent[pair] - returned[pair]) <= 1 for pair in sent), "but for rounding"
