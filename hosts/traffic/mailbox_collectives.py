"""Collectives without order between peers: sent at once, or a few at a time, to alternating inboxes."""

from __future__ import annotations

from collections import deque

import numpy as np

from mrc_testbed.hosts.traffic.collective_base import ELEMENT, CollectiveError, Rank, Send
from mrc_testbed.hosts.traffic.collective_options import CollectiveOptions


class _Mailbox(Rank):
    """Collectives without order between peers, to one of two inboxes by turns."""

    by_turns = "inbox"

    def __init__(self, rank: int, ranks: int, elements: int, seed: int) -> None:
        super().__init__(rank, ranks, elements, seed)
        self.regions["data"] = np.zeros(elements, ELEMENT)
        self.regions["inbox"] = np.zeros(2 * elements, ELEMENT)
        self._missing_peers: set[int] = set()

    @property
    def _turn(self) -> int:
        """Start of the inbox of this iteration."""
        return self.iteration % 2 * self.elements

    def _on_write(self, peer: int, _step: int) -> list[Send]:
        if peer not in self._missing_peers:
            raise CollectiveError(f"{self.kind}: rank {self.rank} waits for {sorted(self._missing_peers)}, got {peer}")
        self._missing_peers.discard(peer)
        self.done = not self._missing_peers
        return []


class AllToAll(_Mailbox):
    """Rank r ends with chunk r of every rank. `at_once`: writes under way at a time; 0: all."""

    kind = "all_to_all"

    def __init__(self, rank: int, ranks: int, elements: int, seed: int, at_once: int = 0) -> None:
        super().__init__(rank, ranks, elements, seed)
        self._at_once = at_once or ranks
        self.follows_sends = self._at_once < ranks - 1
        self._later: deque[Send] = deque()

    @property
    def bus_factor(self) -> float:
        return (self.ranks - 1) / self.ranks

    def _begin(self) -> list[Send]:
        self._fill(self.regions["data"])
        self._missing_peers = set(range(self.ranks)) - {self.rank}
        own_start, chunk = self.rank * self.chunk, self.chunk
        box = self._turn + own_start
        self.regions["inbox"][box : box + chunk] = self.regions["data"][own_start : own_start + chunk]
        order = [(self.rank + ahead) % self.ranks for ahead in range(1, self.ranks)]
        sends = [Send(peer, 0, "data", peer * chunk, chunk, "inbox", self._turn + own_start) for peer in order]
        self._later = deque(sends[self._at_once :])
        return sends[: self._at_once]

    def sent(self, _send: Send) -> list[Send]:
        return [self._later.popleft()] if self._later else []

    def count_errors(self) -> int:
        box, chunk = self.regions["inbox"][self._turn : self._turn + self.elements], self.chunk
        parts = [box[rank * chunk : (rank + 1) * chunk] for rank in range(self.ranks)]
        return sum(self._wrong_inputs(part, rank, self.rank * chunk) for rank, part in enumerate(parts))


class SendRecv(_Mailbox):
    """Every rank sends all of its buffer to its right neighbour (pipeline neighbours, E14)."""

    kind = "send_recv"

    @property
    def bus_factor(self) -> float:
        return 1.0

    def _begin(self) -> list[Send]:
        self._fill(self.regions["data"])
        self._missing_peers = {(self.rank - 1) % self.ranks}
        return [Send((self.rank + 1) % self.ranks, 0, "data", 0, self.elements, "inbox", self._turn)]

    def count_errors(self) -> int:
        got = self.regions["inbox"][self._turn : self._turn + self.elements]
        return self._wrong_inputs(got, (self.rank - 1) % self.ranks)


UNITS = 1024
"""Pieces that a rank's buffer has in all_to_allv: tokens, or groups of them."""
CAPACITY = 4
"""Limit on what one rank sends to another, as a multiple of an even share (expert capacity).

The excess goes to the other ranks.
"""


def expert_shares(ranks: int, experts: int, skew: float, seed: int, iteration: int, draw: int) -> np.ndarray:
    """Return the units that each rank (row) sends to each rank (column), by Zipf's law over experts.

    Every rank draws the same table. Which experts are popular changes with every iteration.
    """
    dice = np.random.default_rng([seed, iteration, draw])
    count = experts or ranks
    weights = 1.0 / np.arange(1, count + 1) ** skew
    popularity = dice.permutation(weights / weights.sum())
    choices = dice.multinomial(UNITS, popularity, size=ranks)
    table = np.zeros((ranks, ranks), np.int64)
    for expert in range(count):
        table[:, expert % ranks] += choices[:, expert]
    limit = -(-CAPACITY * UNITS // ranks)
    for row in table:
        while (excess := int(np.maximum(row - limit, 0).sum())) > 0:
            np.minimum(row, limit, out=row)
            room = np.flatnonzero(row < limit)
            row[room] += excess // len(room)
            row[room[: excess % len(room)]] += 1
    return table


class AllToAllV(_Mailbox):
    """Each rank sends each as much as its experts there ask for, by another table in each iteration (MoE)."""

    kind = "all_to_allv"

    def __init__(self, rank: int, ranks: int, elements: int, seed: int, options: CollectiveOptions) -> None:
        Rank.__init__(self, rank, ranks, elements, seed)
        self.options = options
        self._pair_limit = -(-CAPACITY * UNITS // ranks) * elements // UNITS + 2
        """Elements that go from one rank to another at most."""
        # Back from popular experts goes more than a buffer.
        self.regions["data"] = np.zeros(ranks * self._pair_limit if options.reverse else elements + ranks, ELEMENT)
        self.regions["inbox"] = np.zeros(2 * ranks * self._pair_limit, ELEMENT)
        self._missing_peers: set[int] = set()

    @property
    def bus_factor(self) -> float:
        """Bus factor of all_to_all, as if the shares were even."""
        return (self.ranks - 1) / self.ranks

    def _bounds(self, sender: int) -> list[int]:
        """Element at which the part for each rank begins in the sender's data, and the end.

        Every part has an element or more: who got nothing of a peer could be two iterations ahead of it.
        """
        way = self.options
        table = expert_shares(self.ranks, way.experts, way.skew, way.drawn_by or self.seed, self.iteration, way.draw)
        row = table[:, sender] if way.reverse else table[sender]
        ends = np.cumsum(row) * self.elements // UNITS + np.arange(1, self.ranks + 1)
        return [0, *ends.tolist()]

    def _inbox_start(self, sender: int) -> int:
        return (self.iteration % 2 * self.ranks + sender) * self._pair_limit

    def _begin(self) -> list[Send]:
        self._fill(self.regions["data"])
        bounds = self._bounds(self.rank)
        self._missing_peers = set(range(self.ranks)) - {self.rank}
        order = [(self.rank + ahead) % self.ranks for ahead in range(1, self.ranks)]
        return [
            Send(peer, 0, "data", bounds[peer], bounds[peer + 1] - bounds[peer], "inbox", self._inbox_start(self.rank))
            for peer in order
        ]

    def count_errors(self) -> int:
        wrong_count = 0
        for sender in range(self.ranks):
            if sender != self.rank:
                bounds = self._bounds(sender)
                low, high = bounds[self.rank], bounds[self.rank + 1]
                start = self._inbox_start(sender)
                wrong_count += self._wrong_inputs(self.regions["inbox"][start : start + high - low], sender, low)
        return wrong_count
