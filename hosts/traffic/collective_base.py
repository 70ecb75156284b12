"""Base of all collectives: inputs that any rank can compute, requested writes, one rank's states.

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
"""Elements processed at a time, few enough for the CPU's cache however large the buffers are."""
_COUNTING = np.arange(PIECE, dtype=np.uint32)
_HASH_BUFFER = np.empty(PIECE, np.uint32)
_SHIFT_BUFFER = np.empty(PIECE, np.uint32)


class CollectiveError(ValueError):
    """Invalid kind, size or rank of a collective; the message gives the valid ones."""


@dataclass(frozen=True, slots=True)
class Send:
    """Write with immediate: `count` elements from `start` of a local region to `to_start` of the peer's."""

    peer: int
    step: int
    region: str
    start: int
    count: int
    to_region: str
    to_start: int


def fill(array: np.ndarray, kind: str, seed: int, iteration: int, rank: int, start: int) -> None:
    """Fill an array with the elements from `start` on of the input of `rank`.

    Any rank can compute any part of any other's, which is how results are checked. Each element is a hash of what names
    it, 0 to 2**16 - 1: 2**15 ranks sum up without overflow.
    """
    key = input_key(kind, seed, iteration, rank)
    for offset in range(0, len(array), PIECE):
        piece = array[offset : offset + PIECE]
        piece[:] = hashes(key, start + offset, len(piece))


def input_key(kind: str, seed: int, iteration: int, rank: int) -> int:
    """Return the hash key that makes the input of a rank differ from all others."""
    return crc32(f"{kind}/{seed}/{iteration}/{rank}".encode())


def hashes(key: int, start: int, count: int) -> np.ndarray:
    """Up to PIECE elements of an input, in an array that the next call uses again."""
    values, shifts = _HASH_BUFFER[:count], _SHIFT_BUFFER[:count]
    np.add(_COUNTING[:count], np.uint32((key + start) & 0xFFFFFFFF), out=values)
    values *= np.uint32(0x9E3779B1)
    np.right_shift(values, np.uint32(15), out=shifts)
    values ^= shifts
    values *= np.uint32(0x85EBCA77)
    values >>= np.uint32(16)
    return values.view(ELEMENT)


@lru_cache(maxsize=2)  # ranks in one process, as in virtual time, all ask for the same
def total(kind: str, seed: int, iteration: int, ranks: int, elements: int) -> np.ndarray:
    """Sum of the inputs of all ranks; not to be written to."""
    sums = np.zeros(elements, ELEMENT)
    keys = [input_key(kind, seed, iteration, rank) for rank in range(ranks)]
    for offset in range(0, elements, PIECE):
        piece = sums[offset : offset + PIECE]
        for key in keys:
            piece += hashes(key, offset, len(piece))
    sums.flags.writeable = False
    return sums


class Rank(ABC):
    """One rank of a collective. Arrays are int32; positions and counts are elements."""

    kind: str
    by_turns = ""
    """Region of which one iteration has one half, the next one the other."""
    follows_sends: bool = False
    """Whether the driver calls `sent` for each completed write of this rank."""

    def __init__(self, rank: int, ranks: int, elements: int, seed: int) -> None:
        self.rank, self.ranks, self.elements, self.seed = rank, ranks, elements, seed
        self.chunk = elements // ranks
        """Elements of one rank's share."""
        self.iteration = -1
        self.done = True
        self.regions: dict[str, np.ndarray] = {}
        """Memory that peers write to, by name; the same names and sizes on every rank."""
        self.timers: list[tuple[float, int]] = []
        """(seconds, task) of started computations; the driver takes them and reports their end by `elapsed`."""
        self._early_writes: list[tuple[int, int, int]] = []
        """(iteration, source, step) of writes that arrived before their iteration began."""

    @property
    def size_bytes(self) -> int:
        return self.elements * ELEMENT.itemsize

    @property
    def computing(self) -> bool:
        """Whether a computation that takes time runs now; only programs have them."""
        return False

    def memory_bytes(self, iterations: int) -> int:
        """Return the bytes of its regions that so many iterations write to."""
        unused_bytes = self.regions[self.by_turns].nbytes // 2 if self.by_turns and iterations < 2 else 0
        return sum(array.nbytes for array in self.regions.values()) - unused_bytes

    @property
    @abstractmethod
    def bus_factor(self) -> float:
        """Bus bandwidth over algorithm bandwidth, as nccl-tests define it."""

    def start(self, iteration: int) -> list[Send]:
        """Fill in the inputs and begin. Raises CollectiveError while the iteration before is not done."""
        if not self.done:
            raise CollectiveError(f"{self.kind}: iteration {self.iteration} is not done at rank {self.rank}")
        self.iteration = iteration
        self.done = False
        sends = self._begin()
        early_writes = [write for write in self._early_writes if write[0] == iteration]
        self._early_writes = [write for write in self._early_writes if write[0] != iteration]
        for _, peer, step in early_writes:
            sends += self.on_write(peer, step, iteration)
        return sends

    def on_write(self, peer: int, step: int, iteration: int | None = None) -> list[Send]:
        """Take a peer's arrived write; return what to send now. A write of a later iteration waits for that."""
        if iteration is not None and (iteration != self.iteration or self.done):
            self._early_writes.append((iteration, peer, step))
            return []
        return self._on_write(peer, step)

    def sent(self, _send: Send) -> list[Send]:
        """Take a completed write; return what to send now. Called for ranks with `follows_sends` alone."""
        return []

    def on_timer(self, _task: int) -> list[Send]:
        """Take the end of a computation of `timers`; return what to send now."""
        return []

    @abstractmethod
    def _begin(self) -> list[Send]: ...

    @abstractmethod
    def _on_write(self, peer: int, step: int) -> list[Send]: ...

    @abstractmethod
    def count_errors(self) -> int:
        """Return how many elements of the result are wrong; call when done, before the next start."""

    def _fill(self, array: np.ndarray, start: int = 0) -> None:
        """Fill an array with our input from `start` on."""
        fill(array, self.kind, self.seed, self.iteration, self.rank, start)

    def _wrong_inputs(self, result: np.ndarray, rank: int, start: int = 0) -> int:
        """Elements that are not the input of a rank from `start` on."""
        key = input_key(self.kind, self.seed, self.iteration, rank)
        return sum(
            count_unequal(piece := result[offset : offset + PIECE], hashes(key, start + offset, len(piece)))
            for offset in range(0, len(result), PIECE)
        )

    def _wrong_sums(self, result: np.ndarray, start: int = 0) -> int:
        """Elements that are not the sum of all inputs from `start` on."""
        sums = total(self.kind, self.seed, self.iteration, self.ranks, self.elements)[start:]
        return sum(
            count_unequal(piece := result[offset : offset + PIECE], sums[offset : offset + len(piece)])
            for offset in range(0, len(result), PIECE)
        )


def count_unequal(a: np.ndarray, b: np.ndarray) -> int:
    """Places in which two arrays of one length differ."""
    return int(np.count_nonzero(a != b))
