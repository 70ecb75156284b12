"""Collectives as pure state machines over writes with immediate, with checks of their results.

    rank = make("all_reduce", rank=2, ranks=8, size_bytes=1 << 20, seed=7)
    for name, array in rank.regions.items(): ...register...     # "data", and "scratch" or "inbox" where needed
    sends = rank.start(iteration)                               # post them
    sends = rank.on_write(source, step)                         # a peer's write of that step is in our memory
    rank.done, rank.count_errors()                              # over; elements that are not what they have to be

No clock, no socket, no queue pair: hosts and the virtual fabric drive the same objects. A driver posts every Send as
one write with immediate (or splits it over several QPs and counts the parts), and calls `arrived` when all is there.
It calls `start` again only when every write of ours has completed: until then a retransmission may read the buffer.

`size_bytes` and
the bandwidths are those of nccl-tests: what a rank's larger buffer holds; bus bandwidth = size / time x `bus_factor`.

Why rings wait for arrivals, and where two buffers take turns: docs/design/collectives.md.
"""

from __future__ import annotations

from functools import lru_cache

from mrc_testbed.hosts.traffic.collective_base import (
    ELEMENT,
    PIECE,
    CollectiveError,
    Rank,
    Send,
    count_unequal,
    fill,
    hashes,
    input_key,
    total,
)
from mrc_testbed.hosts.traffic.collective_options import NO_OPTIONS, CollectiveOptions
from mrc_testbed.hosts.traffic.mailbox_collectives import AllToAll, AllToAllV, SendRecv
from mrc_testbed.hosts.traffic.ring_collectives import AllGather, AllReduce, ReduceScatter
from mrc_testbed.hosts.traffic.tree_collectives import AllReduceHalving, AllReduceHierarchical, AllReduceTree

RINGS = (AllReduce, ReduceScatter, AllGather)
MAILBOXES = (AllToAll, AllToAllV, SendRecv)
TREES = (AllReduceTree, AllReduceHalving, AllReduceHierarchical)
KINDS: dict[str, type[Rank]] = {cls.kind: cls for cls in (*RINGS, *MAILBOXES, *TREES)}


def make(
    kind: str, *, rank: int, ranks: int, size_bytes: int, seed: int = 1, options: CollectiveOptions = NO_OPTIONS
) -> Rank:
    """Return a rank of a collective, its size rounded up to whole elements. Raises CollectiveError."""
    _check_kind(kind)
    if ranks < 2 or not 0 <= rank < ranks:
        raise CollectiveError(f"rank {rank} of {ranks}: a collective has 2 ranks or more, numbered from 0")
    if size_bytes < 1:
        raise CollectiveError(f"size {size_bytes}: must be 1 byte or more")
    elements = -(-size_bytes // (ELEMENT.itemsize * ranks)) * ranks
    if kind == AllReduceHierarchical.kind:
        return AllReduceHierarchical(rank, ranks, elements, seed, options.groups)
    if kind == AllToAllV.kind:
        return AllToAllV(rank, ranks, elements, seed, options)
    if kind == AllToAll.kind:
        return AllToAll(rank, ranks, elements, seed, options.at_once)
    return KINDS[kind](rank, ranks, elements, seed)


def peers_of(kind: str, rank: int, ranks: int, options: CollectiveOptions = NO_OPTIONS) -> list[int]:
    """Return the ranks that `rank` sends to: a driver connects it with them. Raises CollectiveError."""
    _check_kind(kind)
    for tree in TREES:
        if tree.kind == kind:
            return sorted(tree.peers(rank, ranks, options))
    if kind in (AllToAll.kind, AllToAllV.kind):
        return [peer for peer in range(ranks) if peer != rank]
    return [(rank + 1) % ranks]


def steps_of(kind: str, ranks: int) -> int:
    """Return a number above that of every step; raises CollectiveError."""
    _check_kind(kind)
    for tree in TREES:
        if tree.kind == kind:
            return tree.steps(ranks)
    return 1 if kind in {mailbox.kind for mailbox in MAILBOXES} else 2 * ranks


@lru_cache(maxsize=256)
def bus_factor_of(kind: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth (Rank.bus_factor). Raises CollectiveError."""
    _check_kind(kind)
    groups = CollectiveOptions(groups=(0,) * ranks)
    return make(kind, rank=0, ranks=ranks, size_bytes=1, options=groups).bus_factor


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise CollectiveError(f"no collective {kind!r} (has: {', '.join(KINDS)})")


__all__ = [
    "ELEMENT",
    "KINDS",
    "NO_OPTIONS",
    "PIECE",
    "CollectiveError",
    "CollectiveOptions",
    "Rank",
    "Send",
    "bus_factor_of",
    "count_unequal",
    "fill",
    "hashes",
    "input_key",
    "make",
    "peers_of",
    "steps_of",
    "total",
]
