"""Driver of one rank of a collective or program on its host: posts its writes. No clock, no socket.

    driver = RankDriver(rank, iterations, clock, call_at)
    driver.connect(peer, qps, regions);  driver.receives_from(qpn, peer, parts);  driver.start()
    driver.completed(completion);  driver.on_immediate(qpn, imm)

Live agents and the virtual fabric drive the same object. Apart from message_stream.py because numpy comes with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import Completion, Status
from mrc_testbed.hosts.traffic.collectives import ELEMENT, CollectiveError, Rank, Send

PARTS_MAX = 256
STEP_BITS = 16
TURNS = 1 << 8
"""Iterations told apart by an immediate: iteration 8 bits (at most 127 ahead), step 16, part 8."""


@dataclass(slots=True)
class IterationResult:
    """One iteration at one rank: when it ended (clock), and how many elements were wrong."""

    time: float
    wrong_elements: int
    computing_s: float = 0.0
    """Time of it in which something was computed."""


@dataclass(slots=True)
class RankLink:
    """Link from one rank to another: QPs, and the peer's regions by name as (va, rkey)."""

    qps: list[Any]
    remote: dict[str, tuple[int, int]]
    queues: list[deque[tuple[Any, int, int, int]]] = field(default_factory=list)
    under_way: list[deque[_Posted]] = field(default_factory=list)
    """Writes not completed yet, by QP; of ranks that follow their sends."""

    def __post_init__(self) -> None:
        if len(self.qps) > PARTS_MAX:
            raise CollectiveError(f"{len(self.qps)} QPs: a write is split into at most {PARTS_MAX} parts")
        self.queues = [deque() for _ in self.qps]
        self.under_way = [deque() for _ in self.qps]


@dataclass(slots=True)
class _Posted:
    """A Send, and how many of its parts have not completed."""

    send: Send
    parts: int


class RankDriver:
    """One rank on its host: a write with immediate, in as many parts as there are QPs, for every Send.

    The next iteration begins when this one is over here and every write of ours has completed: until then a
    retransmission may read the buffer.
    """

    def __init__(
        self,
        rank: Rank,
        iterations: int,
        clock: Callable[[], float],
        call_at: Callable[[float, Callable[[], None]], Any],
    ) -> None:
        """`call_at`: calls a function at a time of the clock, seconds."""
        self.rank, self.iterations, self._clock, self._call_at = rank, iterations, clock, call_at
        self._links: dict[int, RankLink] = {}
        self._source: dict[int, tuple[int, int]] = {}
        """QPN of a receiving QP of ours -> (rank that sends to it, parts of each of its writes)."""
        self._parts: dict[tuple[int, int], int] = {}
        self._pending = 0
        self._queued_on: dict[int, tuple[RankLink, int]] = {}
        self.failed = 0
        self.started_at: float | None = None
        self.results: list[IterationResult] = []
        self._computing_since: float | None = None
        self._computed_s = 0.0

    def connect(self, peer: int, qps: list[Any], remote: dict[str, tuple[int, int]]) -> None:
        """Add the QPs that carry our writes to `peer`; raises CollectiveError."""
        link = self._links[peer] = RankLink(qps, remote)
        for part, qp in enumerate(qps):
            self._queued_on[qp.qpn] = (link, part)

    def receives_from(self, qpn: int, peer: int, parts: int) -> None:
        """Add a QP of ours on which `peer` writes to us."""
        self._source[qpn] = (peer, parts)

    def start(self) -> None:
        """Start the first iteration."""
        self.started_at = self._clock()
        self._begin()

    @property
    def done(self) -> bool:
        """Whether all iterations are over here, and every write of ours has completed well."""
        last = self.rank.done and self.rank.iteration == self.iterations - 1
        return last and not self._pending and not self.failed

    @property
    def is_over(self) -> bool:
        """Whether the rank is done, or one of its QPs died: nothing more will happen."""
        return self.done or bool(self.failed)

    def abandon(self) -> None:
        """End the rank where it is, with its writes failed: the process of the host has died."""
        if not self.is_over:
            self.failed, self._pending = max(self._pending, 1), 0

    def _begin(self) -> None:
        self._carry_out(self.rank.start(self.rank.iteration + 1))

    def _carry_out(self, sends: list[Send]) -> None:
        """Post what the rank asks for, start its timers, and begin the next iteration when this one is over."""
        self._post(sends)
        self._start_timers()
        self._maybe_next()

    def _start_timers(self) -> None:
        rank, now = self.rank, self._clock()
        for seconds, task in rank.timers:
            self._call_at(now + seconds, partial(self._on_timer, task))
        rank.timers.clear()
        if rank.computing and self._computing_since is None:
            self._computing_since = now
        elif self._computing_since is not None and not rank.computing:
            self._computed_s += now - self._computing_since
            self._computing_since = None

    def _on_timer(self, task: int) -> None:
        if not self.failed:
            self._carry_out(self.rank.on_timer(task))

    def _maybe_next(self) -> None:
        rank = self.rank
        if not rank.done or rank.iteration < 0:
            return
        if len(self.results) <= rank.iteration:
            self.results.append(IterationResult(self._clock(), rank.count_errors(), self._computed_s))
            self._computed_s = 0.0
        if not self._pending and rank.iteration + 1 < self.iterations:
            self._begin()

    def _post(self, sends: list[Send]) -> None:
        for send in sends:
            link = self._links[send.peer]
            region_bytes = self.rank.regions[send.region].data.cast("B")
            va, rkey = link.remote[send.to_region]
            size, element_bytes = send.count * ELEMENT.itemsize, ELEMENT.itemsize
            part_bytes = -(-size // len(link.qps) // element_bytes) * element_bytes
            posted = _Posted(send, len(link.qps)) if self.rank.follows_sends else None
            for part in range(len(link.qps)):
                low, high = min(part * part_bytes, size), min((part + 1) * part_bytes, size)
                imm = (self.rank.iteration % TURNS) << 24 | send.step << 8 | part
                data = region_bytes[send.start * element_bytes + low : send.start * element_bytes + high]
                self._pending += 1
                link.queues[part].append((data, va + send.to_start * element_bytes + low, rkey, imm))
                if posted is not None:
                    link.under_way[part].append(posted)
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
        """Take the completion of a local write."""
        self._pending -= 1
        if completion.status is not Status.SUCCESS:
            self.failed += 1
            return
        link, part = self._queued_on[completion.qpn]
        self._flush(link, part)
        if link.under_way[part]:  # a QP completes its writes in the order they were posted
            posted = link.under_way[part].popleft()
            posted.parts -= 1
            if not posted.parts:
                self._carry_out(self.rank.sent(posted.send))
        self._maybe_next()

    def on_immediate(self, qpn: int, imm: int) -> None:
        """Take a write with immediate of a receiving QP; those of other QPs are ignored."""
        entry = self._source.get(qpn)
        if entry is None:
            return
        source, parts = entry
        low, now = imm >> 24, self.rank.iteration
        iteration = low + (now - low + TURNS // 2) // TURNS * TURNS
        key = (source, imm >> 8)
        arrived_parts = self._parts[key] = self._parts.get(key, 0) + 1
        if arrived_parts < parts:
            return
        del self._parts[key]
        self._carry_out(self.rank.on_write(source, imm >> 8 & (1 << STEP_BITS) - 1, iteration))
