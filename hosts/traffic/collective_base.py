"""What all collectives share: inputs that any rank can compute, the writes they ask for, and one rank's life.

Numbers are int32 small enough that sums are exact, so that "reduced right" means equal and not close.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

import numpy as np

ELEMENT = np.dtype(np.int32)
PIECE = 1 << 15
"""Elements worked on at a time: what they need stays in the CPU's cache, however large the buffers are."""
_COUNTING = np.arange(PIECE, dtype=np.uint32)
_MIXED = np.empty(PIECE, np.uint32)
_SHIFTED = np.empty(PIECE, np.uint32)


class CollectiveError(ValueError):
    """A collective of that kind, size or rank cannot be; the message says what can."""


@dataclass(frozen=True, slots=True)
class Send:
    """One write with immediate: `count` elements from `start` of our region to `at` of the peer's."""

    peer: int
    step: int
    region: str
    start: int
    count: int
    to_region: str
    at: int


def fill(array: np.ndarray, kind: str, seed: int, iteration: int, rank: int, start: int) -> None:
    """Fill an array with the elements from `start` on of the input of `rank`.

    Any rank can compute any part of any other's, which is how results are checked. Each element is a hash of what names
    it, 0 to 2**16 - 1: 2**15 ranks sum up without overflow.
    """
    key = input_key(kind, seed, iteration, rank)
    for at in range(0, len(array), PIECE):
        piece = array[at : at + PIECE]
        piece[:] = hashes(key, start + at, len(piece))


def input_key(kind: str, seed: int, iteration: int, rank: int) -> int:
    """What tells the input of a rank from those of all others."""
    return crc32(f"{kind}/{seed}/{iteration}/{rank}".encode())


def hashes(key: int, start: int, count: int) -> np.ndarray:
    """Up to PIECE elements of an input, in an array that the next call uses again."""
    mixed, shifted = _MIXED[:count], _SHIFTED[:count]
    np.add(_COUNTING[:count], np.uint32((key + start) & 0xFFFFFFFF), out=mixed)
    mixed *= np.uint32(0x9E3779B1)
    np.right_shift(mixed, np.uint32(15), out=shifted)
    mixed ^= shifted
    mixed *= np.uint32(0x85EBCA77)
    mixed >>= np.uint32(16)
    return mixed.view(ELEMENT)


@lru_cache(maxsize=2)  # ranks in one process, as in virtual time, all ask for the same
def total(kind: str, seed: int, iteration: int, ranks: int, elements: int) -> np.ndarray:
    """Sum of the inputs of all ranks; not to be written to."""
    found = np.zeros(elements, ELEMENT)
    keys = [input_key(kind, seed, iteration, rank) for rank in range(ranks)]
    for at in range(0, elements, PIECE):
        piece = found[at : at + PIECE]
        for key in keys:
            piece += hashes(key, at, len(piece))
    found.flags.writeable = False
    return found


class Rank(ABC):
    """One rank of a collective. Arrays are int32; positions and counts are elements."""

    kind: str
    by_turns = ""
    """Region of which one iteration has one half, the next one the other."""
    follows_sends: bool = False
    """Wants to be told by `sent` when a write of ours has completed."""

    def __init__(self, rank: int, ranks: int, elements: int, seed: int) -> None:
        self.rank, self.ranks, self.elements, self.seed = rank, ranks, elements, seed
        self.chunk = elements // ranks
        """Elements of one rank's share."""
        self.iteration = -1
        self.done = True
        self.regions: dict[str, np.ndarray] = {}
        """Memory that peers write to, by name; the same names and sizes on every rank."""
        self.timers: list[tuple[float, int]] = []
        """(seconds, task) of computations that have begun; the driver takes them and tells their end by `elapsed`."""
        self._early: list[tuple[int, int, int]] = []
        """(iteration, source, step) that came before we began that iteration."""

    @property
    def size_bytes(self) -> int:
        return self.elements * ELEMENT.itemsize

    @property
    def computing(self) -> bool:
        """Something that takes time is computed now; only programs do that."""
        return False

    def memory_bytes(self, iterations: int) -> int:
        """Bytes of its regions that so many iterations write to."""
        unused = self.regions[self.by_turns].nbytes // 2 if self.by_turns and iterations < 2 else 0
        return sum(array.nbytes for array in self.regions.values()) - unused

    @property
    @abstractmethod
    def bus_factor(self) -> float:
        """Bus bandwidth over algorithm bandwidth, as nccl-tests define it."""

    def start(self, iteration: int) -> list[Send]:
        """Fill in the inputs and begin. Raises CollectiveError while the iteration before is not done."""
        if not self.done:
            raise CollectiveError(f"{self.kind}: iteration {self.iteration} is not done at rank {self.rank}")
        self.iteration, self.done = iteration, False
        sends = self._begin()
        early = [one for one in self._early if one[0] == iteration]
        self._early = [one for one in self._early if one[0] != iteration]
        for _, peer, step in early:
            sends += self.arrived(peer, step, iteration)
        return sends

    def arrived(self, peer: int, step: int, iteration: int | None = None) -> list[Send]:
        """A peer's write is in our memory; what to send now. One of a later iteration waits until that begins."""
        if iteration is not None and (iteration != self.iteration or self.done):
            self._early.append((iteration, peer, step))
            return []
        return self._arrived(peer, step)

    def sent(self, _send: Send) -> list[Send]:
        """A write has completed; what to send now. Told to ranks with `follows_sends` alone."""
        return []

    def elapsed(self, _task: int) -> list[Send]:
        """A computation that `timers` asked for has ended; what to send now."""
        return []

    @abstractmethod
    def _begin(self) -> list[Send]: ...

    @abstractmethod
    def _arrived(self, peer: int, step: int) -> list[Send]: ...

    @abstractmethod
    def wrong(self) -> int:
        """Elements of the result that are not what they have to be; call it when done, before the next start."""

    def _fill(self, array: np.ndarray, start: int = 0) -> None:
        """Fill an array with our input from `start` on."""
        fill(array, self.kind, self.seed, self.iteration, self.rank, start)

    def _wrong_inputs(self, result: np.ndarray, rank: int, start: int = 0) -> int:
        """Elements that are not the input of a rank from `start` on."""
        key = input_key(self.kind, self.seed, self.iteration, rank)
        return sum(
            count_unequal(piece := result[at : at + PIECE], hashes(key, start + at, len(piece)))
            for at in range(0, len(result), PIECE)
        )

    def _wrong_sums(self, result: np.ndarray, start: int = 0) -> int:
        """Elements that are not the sum of all inputs from `start` on."""
        whole = total(self.kind, self.seed, self.iteration, self.ranks, self.elements)[start:]
        return sum(
            count_unequal(piece := result[at : at + PIECE], whole[at : at + len(piece)])
            for at in range(0, len(result), PIECE)
        )


def count_unequal(one: np.ndarray, other: np.ndarray) -> int:
    """Places in which two arrays of one length differ."""
    return int(np.count_nonzero(one != other))
