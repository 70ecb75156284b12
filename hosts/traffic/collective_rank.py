"""One rank of a collective on its host: posts the messages of hosts/traffic/collectives.py. No clock, no socket.

    driver = RankDriver(rank, iterations, clock)
    driver.connect(peer, qps, regions);  driver.receives_from(qpn, peer, parts);  driver.start()
    driver.completed(completion);  driver.arrived(qpn, imm)

Live agents and the virtual fabric drive the same object. Apart from message_stream.py because numpy comes with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hosts.engine.errors import LocalError
from hosts.engine.events import Completion, Status
from hosts.traffic.collectives import ELEMENT, CollectiveError, Rank, Send

PARTS_MAX = 256
STEPS_MAX = 1 << 12
"""An immediate is iteration (12 bits), step (12 bits), part (8 bits)."""


@dataclass(slots=True)
class Ended:
    """One iteration at one rank: when it ended (clock), and how many elements were wrong."""

    at: float
    wrong: int


@dataclass(slots=True)
class RankLink:
    """From one rank to another: the QPs, and the peer's regions by name as (va, rkey)."""

    qps: list[Any]
    remote: dict[str, tuple[int, int]]
    queues: list[deque[tuple[Any, int, int, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if len(self.qps) > PARTS_MAX:
            raise CollectiveError(f"{len(self.qps)} QPs: a write is split into at most {PARTS_MAX} parts")
        self.queues = [deque() for _ in self.qps]


class RankDriver:
    """One rank on its host: a write with immediate, in as many parts as there are QPs, for every Send.

    The next iteration begins when this one is over here and every write of ours has completed: until then a
    retransmission may read the buffer.
    """

    def __init__(self, rank: Rank, iterations: int, clock: Callable[[], float]) -> None:
        self.rank, self.iterations, self._clock = rank, iterations, clock
        self._links: dict[int, RankLink] = {}
        self._source: dict[int, tuple[int, int]] = {}
        """QPN of a receiving QP of ours -> (rank that sends to it, parts of each of its writes)."""
        self._parts: dict[tuple[int, int], int] = {}
        self._pending = 0
        self._queued_on: dict[int, tuple[RankLink, int]] = {}
        self.failed = 0
        self.started_at: float | None = None
        self.ended: list[Ended] = []

    def connect(self, peer: int, qps: list[Any], remote: dict[str, tuple[int, int]]) -> None:
        """The QPs that carry our writes to `peer`. Raises CollectiveError."""
        link = self._links[peer] = RankLink(qps, remote)
        for part, qp in enumerate(qps):
            self._queued_on[qp.qpn] = (link, part)

    def receives_from(self, qpn: int, peer: int, parts: int) -> None:
        """A QP of ours on which `peer` writes to us."""
        self._source[qpn] = (peer, parts)

    def start(self) -> None:
        """Begin the first iteration."""
        self.started_at = self._clock()
        self._begin()

    @property
    def done(self) -> bool:
        """All iterations are over here, or a QP failed."""
        over = self.rank.done and self.rank.iteration == self.iterations - 1
        return bool(self.failed) or (over and not self._pending)

    def _begin(self) -> None:
        self._post(self.rank.start(self.rank.iteration + 1))
        self._maybe_next()

    def _maybe_next(self) -> None:
        rank = self.rank
        if not rank.done or rank.iteration < 0:
            return
        if len(self.ended) <= rank.iteration:
            self.ended.append(Ended(self._clock(), rank.wrong()))
        if not self._pending and rank.iteration + 1 < self.iterations:
            self._begin()

    def _post(self, sends: list[Send]) -> None:
        for send in sends:
            link = self._links[send.peer]
            whole = self.rank.regions[send.region].data.cast("B")
            va, rkey = link.remote[send.to_region]
            size, item = send.count * ELEMENT.itemsize, ELEMENT.itemsize
            each = -(-size // len(link.qps) // item) * item
            for part in range(len(link.qps)):
                low, high = min(part * each, size), min((part + 1) * each, size)
                imm = (self.rank.iteration % STEPS_MAX) << 20 | send.step << 8 | part
                data = whole[send.start * item + low : send.start * item + high]
                self._pending += 1
                link.queues[part].append((data, va + send.at * item + low, rkey, imm))
                self._flush(link, part)

    def _flush(self, link: RankLink, part: int) -> None:
        queue, qp = link.queues[part], link.qps[part]
        while queue:
            data, va, rkey, imm = queue[0]
            try:
                qp.post_write(data, va, rkey, now=self._clock(), imm=imm)
            except LocalError:  # the peer takes no more WriteIMM now, or the QP failed: a completion shows which
                return
            queue.popleft()

    def completed(self, completion: Completion) -> None:
        """A write of ours ended."""
        self._pending -= 1
        if completion.status is not Status.SUCCESS:
            self.failed += 1
            return
        self._flush(*self._queued_on[completion.qpn])
        self._maybe_next()

    def arrived(self, qpn: int, imm: int) -> None:
        """A write with immediate is here, on one of our receiving QPs; others are ignored."""
        found = self._source.get(qpn)
        if found is None:
            return
        source, parts = found
        low, now = imm >> 20, self.rank.iteration
        iteration = low + (now - low + STEPS_MAX // 2) // STEPS_MAX * STEPS_MAX
        key = (source, imm >> 8)
        here = self._parts[key] = self._parts.get(key, 0) + 1
        if here < parts:
            return
        del self._parts[key]
        self._post(self.rank.arrived(source, imm >> 8 & 0xFFF, iteration))
        self._maybe_next()
