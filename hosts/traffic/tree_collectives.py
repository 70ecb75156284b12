"""All-reduces without a ring: double binary tree, recursive halving and doubling, hierarchical.

Each has few steps where a ring has two a rank, so that small sizes take less time. When buffers may be written again:
docs/design/collectives.md.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mrc_testbed.hosts.traffic.collective_base import ELEMENT, CollectiveError, Rank, Send
from mrc_testbed.hosts.traffic.collective_options import CollectiveOptions

TREE_CHUNKS = 4
"""Parts of a tree's half of the data: while one goes up, the one before comes down."""


class _AllReduce(Rank):
    """Base of the three all-reduces."""

    @property
    def bus_factor(self) -> float:
        return 2 * (self.ranks - 1) / self.ranks

    def count_errors(self) -> int:
        return self._wrong_sums(self.regions["data"])

    def _add(self, start: int, count: int, scratch_start: int) -> None:
        """Add the scratch's data to ours."""
        target = self.regions["data"][start : start + count]
        target += self.regions["scratch"][scratch_start : scratch_start + count]


@lru_cache(maxsize=64)
def binary_tree(ranks: int) -> tuple[int, ...]:
    """Parent of each rank in a balanced tree in order of the ranks; -1 of the root."""
    parents = [-1] * ranks
    spans = [(0, ranks, -1)]
    while spans:
        low, high, parent = spans.pop()
        if low < high:
            middle = (low + high) // 2
            parents[middle] = parent
            spans += [(low, middle, middle), (middle + 1, high, middle)]
    return tuple(parents)


def double_tree(ranks: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the parents in two trees, the second shifted by a rank: few ranks are leaves of both."""
    first = binary_tree(ranks)
    second = [-1] * ranks
    for rank, parent in enumerate(first):
        second[(rank + 1) % ranks] = -1 if parent < 0 else (parent + 1) % ranks
    return first, tuple(second)


class AllReduceTree(_AllReduce):
    """All-reduce by two binary trees, half of the data each: sums go up in parts, results come down."""

    kind = "all_reduce_tree"

    def __init__(self, rank: int, ranks: int, elements: int, seed: int) -> None:
        super().__init__(rank, ranks, elements, seed)
        self.regions["data"] = np.zeros(elements, ELEMENT)
        trees = double_tree(ranks)
        self._parents = [tree[rank] for tree in trees]
        self._children = [[r for r, parent in enumerate(tree) if parent == rank] for tree in trees]
        self._nth_child = [[r for r, p in enumerate(tree) if p == tree[rank]].index(rank) for tree in trees]
        parts = 2 * TREE_CHUNKS
        self._bounds = [elements * part // parts for part in range(parts + 1)]
        self.regions["scratch"] = np.zeros(2 * elements, ELEMENT)  # two children at most
        self._missing_sums: list[int] = []
        self._parts_left = 0

    def _begin(self) -> list[Send]:
        self._fill(self.regions["data"])
        self._parts_left = 2 * TREE_CHUNKS
        self._missing_sums = [len(self._children[part // TREE_CHUNKS]) for part in range(2 * TREE_CHUNKS)]
        return [
            send
            for part, missing_count in enumerate(self._missing_sums)
            if not missing_count
            for send in self._send_up(part)
        ]

    def _send_up(self, part: int) -> list[Send]:
        """Send up a part that is summed up below us."""
        parent = self._parents[part // TREE_CHUNKS]
        if parent < 0:
            return self._send_down(part)
        start, count = self._bounds[part], self._bounds[part + 1] - self._bounds[part]
        scratch_start = self._nth_child[part // TREE_CHUNKS] * self.elements + start
        return [Send(parent, part, "data", start, count, "scratch", scratch_start)]

    def _send_down(self, part: int) -> list[Send]:
        """Send down a part that is whole."""
        self._parts_left -= 1
        self.done = not self._parts_left
        start, count = self._bounds[part], self._bounds[part + 1] - self._bounds[part]
        step = 2 * TREE_CHUNKS + part
        return [Send(child, step, "data", start, count, "data", start) for child in self._children[part // TREE_CHUNKS]]

    def _on_write(self, peer: int, step: int) -> list[Send]:
        part = step % (2 * TREE_CHUNKS)
        tree = part // TREE_CHUNKS
        if step >= 2 * TREE_CHUNKS:
            if peer != self._parents[tree]:
                raise CollectiveError(f"{self.kind}: rank {self.rank} got a result of {peer}, not of its parent")
            return self._send_down(part)
        if peer not in self._children[tree]:
            raise CollectiveError(f"{self.kind}: rank {self.rank} got a sum of {peer}, no child of its")
        start, count = self._bounds[part], self._bounds[part + 1] - self._bounds[part]
        self._add(start, count, self._children[tree].index(peer) * self.elements + start)
        self._missing_sums[part] -= 1
        return [] if self._missing_sums[part] else self._send_up(part)

    @staticmethod
    def peers(rank: int, ranks: int, _options: CollectiveOptions) -> set[int]:
        """Parents and children in both trees."""
        trees = double_tree(ranks)
        return {tree[rank] for tree in trees if tree[rank] >= 0} | {
            child for tree in trees for child, parent in enumerate(tree) if parent == rank
        }

    @staticmethod
    def steps(_ranks: int) -> int:
        """Up and down, for each part."""
        return 4 * TREE_CHUNKS


class AllReduceHalving(_AllReduce):
    """All-reduce by recursive halving and doubling: log2(ranks) steps of half of what is left, and back.

    Ranks beyond the greatest power of two give their data to one below, and get the result of it.
    """

    kind = "all_reduce_halving"

    def __init__(self, rank: int, ranks: int, elements: int, seed: int) -> None:
        super().__init__(rank, ranks, elements, seed)
        self._levels = ranks.bit_length() - 1
        self._power = 1 << self._levels
        self._folded = rank >= self._power
        self._has_extra = rank + self._power < ranks
        self._scratch_starts = [elements]
        """Start in scratch of what each halving brings, behind what is folded in; each is half, rounded up."""
        for level in range(self._levels):
            self._scratch_starts.append(self._scratch_starts[-1] - (-elements >> (level + 1)))
        self.regions["data"] = np.zeros(elements, ELEMENT)
        self.regions["scratch"] = np.zeros(self._scratch_starts.pop(), ELEMENT)
        self._arrived_steps: set[int] = set()
        self._next = 0

    def _segment(self, level: int, rank: int) -> tuple[int, int]:
        """Return (start, end) of the segment that a rank keeps after so many halvings."""
        low, high = 0, self.elements
        for halving in range(level):
            middle = (low + high) // 2
            low, high = (middle, high) if rank & (self._power >> (halving + 1)) else (low, middle)
        return low, high

    def _begin(self) -> list[Send]:
        self._fill(self.regions["data"])
        self._arrived_steps.clear()
        if self._folded:
            self._next = 2 * self._levels + 1
            return [Send(self.rank - self._power, 0, "data", 0, self.elements, "scratch", 0)]
        self._next = 0 if self._has_extra else 1
        return [] if self._has_extra else self._send(1)

    def _send(self, step: int) -> list[Send]:
        """Return our write of a step: 1 to levels halve, as many more double, one more unfolds."""
        if step > 2 * self._levels:
            self.done = True
            unfold = Send(self.rank + self._power, step, "data", 0, self.elements, "data", 0)
            return [unfold] if self._has_extra else []
        if step <= self._levels:
            partner = self.rank ^ (self._power >> step)
            low, high = self._segment(step, partner)
            return [Send(partner, step, "data", low, high - low, "scratch", self._scratch_starts[step - 1])]
        level = 2 * self._levels - step
        partner = self.rank ^ (self._power >> (level + 1))
        low, high = self._segment(level + 1, self.rank)
        return [Send(partner, step, "data", low, high - low, "data", low)]

    def _on_write(self, peer: int, step: int) -> list[Send]:
        if step < self._next or step > 2 * self._levels + 1:
            raise CollectiveError(f"{self.kind}: rank {self.rank} waits for step {self._next}, got {step} of {peer}")
        self._arrived_steps.add(step)  # another partner may be ahead
        sends: list[Send] = []
        while self._next in self._arrived_steps:
            now = self._next
            self._next += 1
            if now == 0:
                self._add(0, self.elements, 0)
            elif now <= self._levels:
                low, high = self._segment(now, self.rank)
                self._add(low, high - low, self._scratch_starts[now - 1])
            if self._folded:
                self.done = True
                return []
            sends += self._send(now + 1)
        return sends

    @staticmethod
    def peers(rank: int, ranks: int, _options: CollectiveOptions) -> set[int]:
        """Return the partners of all levels, and those it folds to or unfolds for."""
        levels = ranks.bit_length() - 1
        power = 1 << levels
        if rank >= power:
            return {rank - power}
        extra = {rank + power} if rank + power < ranks else set()
        return {rank ^ (power >> (level + 1)) for level in range(levels)} | extra

    @staticmethod
    def steps(ranks: int) -> int:
        """Folding, halving, doubling, unfolding."""
        return 2 * (ranks.bit_length() - 1) + 2


class AllReduceHierarchical(_AllReduce):
    """All-reduce in three parts: sum in each group, rings over equal positions, share in each group.

    What goes from group to group is a group's size less than in one ring: what crosses T1s when groups are racks.
    """

    kind = "all_reduce_hierarchical"

    def __init__(self, rank: int, ranks: int, elements: int, seed: int, groups: tuple[int, ...]) -> None:
        super().__init__(rank, ranks, elements, seed)
        members = members_of(groups, ranks)
        self._group = groups[rank]
        self._members = members[self._group]
        self._position = self._members.index(rank)
        names = list(members)
        self._ring = [members[name][self._position] for name in names]
        self._nth = names.index(self._group)
        self._share = elements // len(self._members)
        self._part = self._share // len(self._ring)
        self._start = self._position * self._share
        """First element of this rank's share."""
        self.regions["data"] = np.zeros(elements, ELEMENT)
        # Shares of the others of our group, then one slot for each reducing step of the ring.
        self.regions["scratch"] = np.zeros(elements + self._share, ELEMENT)
        self._missing_shares: set[int] = set()
        self._missing_results: set[int] = set()
        self._next = 0
        self._early_steps: set[int] = set()

    def _begin(self) -> list[Send]:
        self._fill(self.regions["data"])
        peers = set(self._members) - {self.rank}
        self._missing_shares, self._missing_results = set(peers), set(peers)
        self._next = 1
        self._early_steps.clear()
        sends = [
            Send(
                peer,
                0,
                "data",
                position * self._share,
                self._share,
                "scratch",
                self._position * self._share,
            )
            for position, peer in enumerate(self._members)
            if peer != self.rank
        ]
        return sends + (self._send_around() if not peers else [])

    @property
    def _last(self) -> int:
        """Last step of the ring; the one after it shares out."""
        return 2 * (len(self._ring) - 1)

    def _sub(self, step: int, nth: int) -> int:
        """Return the part of the share that the `nth` of the ring sends in a step (from 1)."""
        reducing = len(self._ring) - 1
        return (nth - (step - 1) if step <= reducing else nth + 1 - (step - 1 - reducing)) % len(self._ring)

    def _send_around(self) -> list[Send]:
        """Return our write of the ring's next step, or, after the last, our share for the group."""
        if self._next > self._last:
            return self._share_out()
        step, neighbour = self._next, self._ring[(self._nth + 1) % len(self._ring)]
        start = self._start + self._sub(step, self._nth) * self._part
        if step < len(self._ring):
            return [
                Send(neighbour, step, "data", start, self._part, "scratch", self.elements + (step - 1) * self._part)
            ]
        return [Send(neighbour, step, "data", start, self._part, "data", start)]

    def _share_out(self) -> list[Send]:
        self._next = self._last + 1
        self.done = not self._missing_results
        peers = [peer for peer in self._members if peer != self.rank]
        return [Send(peer, self._last + 1, "data", self._start, self._share, "data", self._start) for peer in peers]

    def _on_write(self, peer: int, step: int) -> list[Send]:
        if step == 0 and peer in self._missing_shares:
            self._missing_shares.discard(peer)
            self._add(self._start, self._share, self._members.index(peer) * self._share)
            return [] if self._missing_shares else self._send_around() + self._catch_up()
        if step == self._last + 1 and peer in self._missing_results:
            self._missing_results.discard(peer)
            self.done = not self._missing_results and self._next > self._last
            return []
        if not 0 < step <= self._last or peer != self._ring[self._nth - 1]:
            raise CollectiveError(f"{self.kind}: rank {self.rank} did not wait for step {step} of {peer}")
        self._early_steps.add(step)
        return [] if self._missing_shares else self._catch_up()

    def _catch_up(self) -> list[Send]:
        """Steps of the ring that are here."""
        sends: list[Send] = []
        while self._next in self._early_steps:
            step = self._next
            if step < len(self._ring):
                start = self._start + self._sub(step, self._nth - 1) * self._part
                self._add(start, self._part, self.elements + (step - 1) * self._part)
            self._next += 1
            sends += self._send_around()
        return sends

    @staticmethod
    def peers(rank: int, ranks: int, options: CollectiveOptions) -> set[int]:
        """Return the others of its group, and its right neighbour of the ring of equal places."""
        members = members_of(options.groups, ranks)
        group_members = members[options.groups[rank]]
        ring = [member[group_members.index(rank)] for member in members.values()]
        return (set(group_members) | {ring[(ring.index(rank) + 1) % len(ring)]}) - {rank}

    @staticmethod
    def steps(ranks: int) -> int:
        """Shares, the ring's at most, results."""
        return 2 * ranks


def members_of(groups: tuple[int, ...], ranks: int) -> dict[int, list[int]]:
    """Ranks of each group, equally many. Raises CollectiveError."""
    members: dict[int, list[int]] = {}
    for rank, group in enumerate(groups):
        members.setdefault(group, []).append(rank)
    if len(groups) != ranks or len({len(member) for member in members.values()}) != 1:
        sizes = ", ".join(str(len(member)) for member in members.values()) or "none"
        raise CollectiveError(
            f"all_reduce_hierarchical: groups of {sizes} ranks, {ranks} in all: each rank needs a group, and all "
            "groups as many"
        )
    return members
