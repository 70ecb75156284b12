"""Collectives as pure state machines over writes with immediate: what each rank sends, and whether the sums are right.

    rank = make("all_reduce", rank=2, ranks=8, size_bytes=1 << 20, seed=7)
    for name, array in rank.regions.items(): ...register...     # "data", and "scratch" or "inbox" where needed
    sends = rank.start(iteration)                               # post them
    sends = rank.arrived(source, step)                          # a peer's write of that step is in our memory
    rank.done, rank.wrong()                                     # over; elements that are not what they have to be

No clock, no socket, no queue pair: hosts and the virtual fabric drive the same objects. A driver posts every Send as
one write with immediate (or splits it over several QPs and counts the parts), and calls `arrived` when all is there.
It calls `start` again only when every write of ours has completed: until then a retransmission may read the buffer.

Numbers are int32 small enough that sums are exact, so that "reduced right" means equal and not close. `size_bytes` and
the bandwidths are those of nccl-tests: what a rank's larger buffer holds; bus bandwidth = size / time x `bus_factor`.

Why rings wait for arrivals, and where two buffers take turns: docs/design/collectives.md.
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

    def __init__(self, rank: int, ranks: int, elements: int, seed: int) -> None:
        self.rank, self.ranks, self.elements, self.seed = rank, ranks, elements, seed
        self.chunk = elements // ranks
        """Elements of one rank's share."""
        self.iteration = -1
        self.done = True
        self.regions: dict[str, np.ndarray] = {}
        """Memory that peers write to, by name; the same names and sizes on every rank."""
        self._early: list[tuple[int, int, int]] = []
        """(iteration, source, step) that came before we began that iteration."""

    @property
    def size_bytes(self) -> int:
        return self.elements * ELEMENT.itemsize

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


class _Ring(Rank):
    """Reduce-scatter and all-gather around a ring: step s carries a chunk to the right neighbour."""

    def __init__(self, rank: int, ranks: int, elements: int, seed: int) -> None:
        super().__init__(rank, ranks, elements, seed)
        self.right = (rank + 1) % ranks
        self.reducing = 0
        """Steps that reduce; the others gather."""
        self.steps = 0
        self._next = 0
        self.regions["data"] = np.zeros(elements, ELEMENT)

    @property
    def _turn(self) -> int:
        """Start of the data of this iteration."""
        return 0

    def _chunk(self, number: int) -> slice:
        at = number % self.ranks * self.chunk
        return slice(at, at + self.chunk)

    def _begin(self) -> list[Send]:
        self._next = 0
        self._fill_input()
        return [self._send(0)]

    def _fill_input(self) -> None:
        """Put our input where this iteration starts from."""
        self._fill(self.regions["data"])

    def _send(self, step: int) -> Send:
        """Reducing: the chunk one behind us per step. Gathering: the one that was completed or received last."""
        start = self._turn + self._chunk(self._carried(self.rank, step)).start
        if step < self.reducing:
            return Send(self.right, step, "data", start, self.chunk, "scratch", step * self.chunk)
        return Send(self.right, step, "data", start, self.chunk, "data", start)

    def _carried(self, rank: int, step: int) -> int:
        """Number of the chunk that `rank` sends in a step."""
        return rank - step if step < self.reducing else rank + bool(self.reducing) - (step - self.reducing)

    def _arrived(self, peer: int, step: int) -> list[Send]:
        if step != self._next:
            raise CollectiveError(f"{self.kind}: rank {self.rank} waits for step {self._next}, got {step} of {peer}")
        self._next += 1
        if step < self.reducing:
            mine = self.regions["data"][self._chunk(self._carried(peer, step))]
            mine += self.regions["scratch"][step * self.chunk : (step + 1) * self.chunk]
        self.done = self._next == self.steps
        return [] if self.done else [self._send(self._next)]


class AllReduce(_Ring):
    """Ring all-reduce: every rank ends with the sum of all inputs."""

    kind = "all_reduce"

    def __init__(self, rank: int, ranks: int, elements: int, seed: int) -> None:
        super().__init__(rank, ranks, elements, seed)
        self.reducing, self.steps = ranks - 1, 2 * (ranks - 1)
        self.regions["scratch"] = np.zeros(self.chunk * (ranks - 1), ELEMENT)

    @property
    def bus_factor(self) -> float:
        return 2 * (self.ranks - 1) / self.ranks

    def wrong(self) -> int:
        return self._wrong_sums(self.regions["data"])


class ReduceScatter(_Ring):
    """Rank r ends with chunk r + 1 of the sum (the one the ring completes there)."""

    kind = "reduce_scatter"

    def __init__(self, rank: int, ranks: int, elements: int, seed: int) -> None:
        super().__init__(rank, ranks, elements, seed)
        self.reducing = self.steps = ranks - 1
        self.regions["scratch"] = np.zeros(self.chunk * (ranks - 1), ELEMENT)

    @property
    def bus_factor(self) -> float:
        return (self.ranks - 1) / self.ranks

    def wrong(self) -> int:
        mine = self._chunk(self.rank + 1)
        return self._wrong_sums(self.regions["data"][mine], mine.start)


class AllGather(_Ring):
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
        """The buffer of this iteration."""
        return self.regions["data"][self._turn : self._turn + self.elements]

    @property
    def bus_factor(self) -> float:
        return (self.ranks - 1) / self.ranks

    def _fill_input(self) -> None:
        mine = self._chunk(self.rank)
        # Only our own chunk: a neighbour that is ahead may have written into others already. Those of two iterations
        # before cannot pass for new ones, because every iteration has other numbers.
        self._fill(self._data[mine], mine.start)

    def wrong(self) -> int:
        chunks = [(rank, self._chunk(rank)) for rank in range(self.ranks)]
        return sum(self._wrong_inputs(self._data[part], rank, part.start) for rank, part in chunks)


class _Mailbox(Rank):
    """Collectives without order between peers: everything is sent at once, to one of two inboxes by turns."""

    by_turns = "inbox"

    def __init__(self, rank: int, ranks: int, elements: int, seed: int) -> None:
        super().__init__(rank, ranks, elements, seed)
        self.regions["data"] = np.zeros(elements, ELEMENT)
        self.regions["inbox"] = np.zeros(2 * elements, ELEMENT)
        self._missing: set[int] = set()

    @property
    def _turn(self) -> int:
        """Start of the inbox of this iteration."""
        return self.iteration % 2 * self.elements

    def _arrived(self, peer: int, _step: int) -> list[Send]:
        if peer not in self._missing:
            raise CollectiveError(f"{self.kind}: rank {self.rank} waits for {sorted(self._missing)}, got {peer}")
        self._missing.discard(peer)
        self.done = not self._missing
        return []


class AllToAll(_Mailbox):
    """Rank r ends with chunk r of every rank."""

    kind = "all_to_all"

    @property
    def bus_factor(self) -> float:
        return (self.ranks - 1) / self.ranks

    def _begin(self) -> list[Send]:
        self._fill(self.regions["data"])
        self._missing = set(range(self.ranks)) - {self.rank}
        own, chunk = self.rank * self.chunk, self.chunk
        box = self._turn + own
        self.regions["inbox"][box : box + chunk] = self.regions["data"][own : own + chunk]
        order = [(self.rank + ahead) % self.ranks for ahead in range(1, self.ranks)]
        return [Send(peer, 0, "data", peer * chunk, chunk, "inbox", self._turn + own) for peer in order]

    def wrong(self) -> int:
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
        self._missing = {(self.rank - 1) % self.ranks}
        return [Send((self.rank + 1) % self.ranks, 0, "data", 0, self.elements, "inbox", self._turn)]

    def wrong(self) -> int:
        got = self.regions["inbox"][self._turn : self._turn + self.elements]
        return self._wrong_inputs(got, (self.rank - 1) % self.ranks)


KINDS: dict[str, type[Rank]] = {cls.kind: cls for cls in (AllReduce, ReduceScatter, AllGather, AllToAll, SendRecv)}


def make(kind: str, *, rank: int, ranks: int, size_bytes: int, seed: int = 1) -> Rank:
    """A rank of a collective; the size is rounded up to whole elements of every rank. Raises CollectiveError."""
    if kind not in KINDS:
        raise CollectiveError(f"no collective {kind!r} (has: {', '.join(KINDS)})")
    if ranks < 2 or not 0 <= rank < ranks:
        raise CollectiveError(f"rank {rank} of {ranks}: a collective has 2 ranks or more, numbered from 0")
    if size_bytes < 1:
        raise CollectiveError(f"size {size_bytes}: must be 1 byte or more")
    chunk = -(-size_bytes // (ELEMENT.itemsize * ranks))
    return KINDS[kind](rank, ranks, chunk * ranks, seed)


def peers_of(kind: str, rank: int, ranks: int) -> list[int]:
    """The ranks that `rank` sends to: with whom a driver connects it."""
    if kind == "all_to_all":
        return [other for other in range(ranks) if other != rank]
    return [(rank + 1) % ranks]
