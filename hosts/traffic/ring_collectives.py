"""Ring collectives: each step sends a chunk to the right neighbour when the previous step arrives."""

from __future__ import annotations

import numpy as np

from mrc_testbed.hosts.traffic.collective_base import ELEMENT, CollectiveError, Rank, Send


class RingRank(Rank):
    """Reduce-scatter and all-gather around a ring: step s carries a chunk to the right neighbour."""

    def __init__(self, rank: int, ranks: int, elements: int, seed: int) -> None:
        super().__init__(rank, ranks, elements, seed)
        self.right_rank = (rank + 1) % ranks
        self.reducing = 0
        """Steps that reduce; the others gather."""
        self.steps = 0
        """Steps of an iteration."""
        self._next = 0
        self.regions["data"] = np.zeros(elements, ELEMENT)

    @property
    def _turn(self) -> int:
        """Start of the data of this iteration."""
        return 0

    def _chunk(self, number: int) -> slice:
        start = number % self.ranks * self.chunk
        return slice(start, start + self.chunk)

    def _begin(self) -> list[Send]:
        self._next = 0
        self._fill_input()
        return [self._send(0)]

    def _fill_input(self) -> None:
        """Put our input where this iteration starts from."""
        self._fill(self.regions["data"])

    def _send(self, step: int) -> Send:
        """Reducing: the chunk one behind us per step. Gathering: the one that was completed or received last."""
        start = self._turn + self._chunk(self._chunk_number(self.rank, step)).start
        if step < self.reducing:
            return Send(self.right_rank, step, "data", start, self.chunk, "scratch", step * self.chunk)
        return Send(self.right_rank, step, "data", start, self.chunk, "data", start)

    def _chunk_number(self, rank: int, step: int) -> int:
        """Number of the chunk that `rank` sends in a step."""
        return rank - step if step < self.reducing else rank + bool(self.reducing) - (step - self.reducing)

    def _on_write(self, peer: int, step: int) -> list[Send]:
        if step != self._next:
            raise CollectiveError(f"{self.kind}: rank {self.rank} waits for step {self._next}, got {step} of {peer}")
        self._next += 1
        if step < self.reducing:
            target = self.regions["data"][self._chunk(self._chunk_number(peer, step))]
            target += self.regions["scratch"][step * self.chunk : (step + 1) * self.chunk]
        self.done = self._next == self.steps
        return [] if self.done else [self._send(self._next)]


class AllReduce(RingRank):
    """Ring all-reduce: every rank ends with the sum of all inputs."""

    kind = "all_reduce"

    def __init__(self, rank: int, ranks: int, elements: int, seed: int) -> None:
        super().__init__(rank, ranks, elements, seed)
        self.reducing, self.steps = ranks - 1, 2 * (ranks - 1)
        self.regions["scratch"] = np.zeros(self.chunk * (ranks - 1), ELEMENT)

    @property
    def bus_factor(self) -> float:
        return 2 * (self.ranks - 1) / self.ranks

    def count_errors(self) -> int:
        return self._wrong_sums(self.regions["data"])


class ReduceScatter(RingRank):
    """Rank r ends with chunk r + 1 of the sum (the one the ring completes there)."""

    kind = "reduce_scatter"

    def __init__(self, rank: int, ranks: int, elements: int, seed: int) -> None:
        super().__init__(rank, ranks, elements, seed)
        self.reducing = self.steps = ranks - 1
        self.regions["scratch"] = np.zeros(self.chunk * (ranks - 1), ELEMENT)

    @property
    def bus_factor(self) -> float:
        return (self.ranks - 1) / self.ranks

    def count_errors(self) -> int:
        own_chunk = self._chunk(self.rank + 1)
        return self._wrong_sums(self.regions["data"][own_chunk], own_chunk.start)


class AllGather(RingRank):
    """Every rank ends with chunk r of rank r, for all r."""

    kind = "all_gather"
    by_turns = "data"

    def __init__(self, rank: int, ranks: int, elements: int, seed: int) -> None:
        super().__init__(rank, ranks, elements, seed)
        self.steps = ranks - 1
        self.regions["data"] = np.zeros(2 * elements, ELEMENT)

    @property
    def _turn(self) -> int:
        return self.iteration % 2 * self.elements

    @property
    def _data(self) -> np.ndarray:
        """Buffer of this iteration."""
        return self.regions["data"][self._turn : self._turn + self.elements]

    @property
    def bus_factor(self) -> float:
        return (self.ranks - 1) / self.ranks

    def _fill_input(self) -> None:
        own_chunk = self._chunk(self.rank)
        # Only our own chunk: a neighbour that is ahead may have written into others already. Those of two iterations
        # before cannot pass for new ones, because every iteration has other numbers.
        self._fill(self._data[own_chunk], own_chunk.start)

    def count_errors(self) -> int:
        chunks = [(rank, self._chunk(rank)) for rank in range(self.ranks)]
        return sum(self._wrong_inputs(self._data[part], rank, part.start) for rank, part in chunks)
