"""Load of writes posted as fast as they complete, with results: the core of mrc-write-bw and -lat.

    load = WriteLoad(shape, flows, clock)
    await measure(load, interval_s, on_interval)    # posts, waits for the end; load.result() tells
    await drain(load, DRAIN_S)

A flow is one QP with the buffer to send and the address to write it to. The next write is posted by the completion
before it, inside the loop's turn, so that `depth` writes of each flow are always posted. When the `warm_up` writes of
all flows have completed, the measurement begins, with nothing in flight: what is counted was posted after its begin.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import Completion, Status
from mrc_testbed.hosts.traffic.file_transfer import growth
from mrc_testbed.hosts.traffic.statistics import PeakMeter, latency_summary
from mrc_testbed.ipc.service import wait_until

if TYPE_CHECKING:
    from mrc_testbed.hosts.agent.connections import Connection

DRAIN_S = 2.0
"""Longest wait for posted writes to complete after the end of a measurement."""
DEPTH_BYTES = 16 << 20
"""Bound of the default depth: a flow has at most this many bytes posted."""
REPORTED_COUNTERS = ("retransmitted", "lost", "timeouts", "trimmed", "trimmed_lasthop", "marked", "bytes_received")
"""Counters of the QPs that a result reports beside rates."""


@dataclass(frozen=True, slots=True)
class LoadShape:
    """Load of every flow. Exactly one of `iterations` and `duration_s` is given."""

    size: int
    """Bytes of a write."""
    depth: int
    """Writes of a flow posted and not completed."""
    iterations: int | None
    """Writes of a flow to be measured."""
    duration_s: float | None
    warm_up: int = 0
    """Writes of a flow before that."""


@dataclass(slots=True)
class LoadFlow:
    """One QP of a load. `data` is what each write sends, to `remote_va`."""

    connection: Connection
    data: memoryview
    remote_va: int
    rkey: int
    posted: int = 0
    completed: int = 0
    posted_at: deque[float] = field(default_factory=deque)
    """Times of posting of the writes that have not completed, oldest first."""


class WriteLoad:
    """One measurement. `times`: keep each measured write's time from posting to completion."""

    def __init__(
        self, shape: LoadShape, flows: list[LoadFlow], clock: Callable[[], float], *, times: bool = False
    ) -> None:
        self.shape, self.flows = shape, flows
        self._clock = clock
        self._by_qpn = {flow.connection.qp.qpn: flow for flow in flows}
        self._to_warm_up = shape.warm_up * len(flows)
        self._to_post = shape.warm_up or shape.iterations
        """Writes of a flow that may be posted in all by now; None = any number."""
        self._samples = array("d") if times else None
        self._meter: PeakMeter | None = None
        self._start_counters: dict[str, Any] = {}
        self._end_counters: dict[str, Any] = {}
        self._last_at = 0.0
        self.news = asyncio.Event()
        """Set when there is progress for a waiting task."""
        self.is_over = False
        self.stopped = False
        """Whether the load was stopped early."""
        self.hurried = False
        """Writes that have not completed are not waited for."""
        self.failure: str | None = None
        self.started_at: float | None = None
        """Start of the measurement; None during warm-up. Seconds, as all times here."""
        self.ended_at = 0.0
        self.writes = 0
        """Writes measured so far; `bytes` is their payload."""

    @property
    def bytes(self) -> int:
        return self.writes * self.shape.size

    @property
    def outstanding(self) -> int:
        """Writes posted and not completed."""
        return sum(flow.posted - flow.completed for flow in self.flows)

    def progress(self) -> tuple[int, ...]:
        """Return a tuple that changes as long as packets leave or are answered."""
        counters = self.counters()
        return self.outstanding, counters.get("sent", 0), counters.get("sacks_received", 0)

    @property
    def stop_at(self) -> float | None:
        """End of a measurement by time; None as long as it is unknown."""
        duration = self.shape.duration_s
        return None if duration is None or self.started_at is None else self.started_at + duration

    # ---- posting and completing ---------------------------------------------------------------------------

    def start(self) -> None:
        """Post the first writes."""
        for flow in self.flows:
            flow.connection.on_completion = self._on_completion
        if self._to_warm_up:
            self._fill()
        else:
            self._begin(self._clock())

    def _fill(self) -> None:
        for flow in self.flows:
            for _ in range(self.shape.depth):
                self._post(flow)

    def _begin(self, now: float) -> None:
        shape = self.shape
        self._to_post = None if shape.iterations is None else shape.warm_up + shape.iterations
        self.started_at = now
        self._meter = PeakMeter(now)
        self._start_counters = self.counters()
        self.news.set()
        self._fill()

    def _post(self, flow: LoadFlow) -> None:
        if self.is_over or (self._to_post is not None and flow.posted >= self._to_post):
            return
        now = self._clock()
        try:
            flow.connection.qp.post_write(flow.data, flow.remote_va, flow.rkey, now=now)
        except LocalError as error:
            self.fail(str(error))
            return
        flow.posted += 1
        flow.posted_at.append(now)

    def _on_completion(self, connection: Connection, event: Completion) -> None:
        flow = self._by_qpn[connection.qp.qpn]
        now = self._clock()
        flow.completed += 1
        posted_at = flow.posted_at.popleft()
        if event.status is not Status.SUCCESS:
            self.fail(f"QP {event.qpn} to {connection.peer}: {event.status.value}")
        elif self._to_warm_up:
            self._to_warm_up -= 1
            if not self._to_warm_up:
                self._begin(now)
                return
        elif not self.is_over:
            self._on_measured(now, posted_at)
        self._post(flow)
        if self.is_over and not self.outstanding:
            self.news.set()

    def _on_measured(self, now: float, posted_at: float) -> None:
        stop_at = self.stop_at
        if stop_at is not None and now > stop_at:
            self._end(stop_at)
            return
        self.writes += 1
        self._last_at = now
        self._meter.add(now, self.shape.size)  # type: ignore[union-attr]
        if self._samples is not None:
            self._samples.append(now - posted_at)
        if self.shape.iterations is not None and self.writes == self.shape.iterations * len(self.flows):
            self._end(now)

    # ---- the end ------------------------------------------------------------------------------------------

    def on_clock(self, now: float) -> None:
        """End a measurement by time whose time has come, whether or not anything completes."""
        stop_at = self.stop_at
        if not self.is_over and stop_at is not None and now >= stop_at:
            self._end(stop_at)

    def stop(self) -> None:
        """End now; the measurement so far counts, the rest is not waited for."""
        self.hurried = True
        if not self.is_over:
            self.stopped = True
            self._end(self._clock())
        self.news.set()

    def fail(self, reason: str) -> None:
        """End now, as a failure."""
        if self.failure is None:
            self.failure = reason
            self._end(self._clock())

    def _end(self, time: float) -> None:
        if not self.is_over:
            self.is_over = True
            self.ended_at = time
            self._end_counters = self.counters()
        self.news.set()

    def counters(self) -> dict[str, Any]:
        """Return the QPs' counters by name, added up."""
        total: dict[str, Any] = {}
        for flow in self.flows:
            for key, value in flow.connection.counters().items():
                if isinstance(value, list):
                    total[key] = [a + b for a, b in zip(total.get(key, [0] * len(value)), value, strict=True)]
                elif isinstance(value, (int, float)):
                    total[key] = total.get(key, 0) + value
        return total

    def result(self) -> dict[str, Any]:
        """Result: rates in bits (payload) and writes per second, counters grown, planes one by one.

        Rates are None when no time was measured. A duration of the iterations kind ends with the last completion.
        """
        start = self.started_at
        seconds = 0.0 if start is None else self.ended_at - start
        if self.writes and self.shape.iterations is not None and start is not None:
            seconds = self._last_at - start
        counters = growth(self._start_counters, self._end_counters or self.counters()) if start is not None else {}
        average = self.bytes * 8 / seconds if seconds > 0 else None
        peak = None if average is None or self._meter is None else max(self._meter.peak_bps, average)
        shape = {key: value for key, value in asdict(self.shape).items() if key != "size"}
        return {
            "bytes": self.shape.size,
            **shape,
            "flows": len(self.flows),
            "writes": self.writes,
            "duration_s": seconds,
            "bw_peak_bps": peak,
            "bw_average_bps": average,
            "msg_rate_pps": self.writes / seconds if seconds > 0 else None,
            **{key: counters.get(key, 0) for key in REPORTED_COUNTERS},
            "plane_packets": counters.get("plane_packets", []),
            "plane_bps": [n * 8 / seconds for n in counters.get("plane_bytes", [])] if seconds > 0 else [],
            "stopped": self.stopped,
        }

    def latencies(self) -> dict[str, Any]:
        """Microseconds from posting to completion (hosts/traffic/statistics.py)."""
        return latency_summary(self._samples or ())


class Interval:
    """Rates between two looks at a load."""

    def __init__(self, load: WriteLoad, now: float) -> None:
        self._load = load
        self._take_snapshot(now)

    def _take_snapshot(self, now: float) -> None:
        self._snapshot_time, self._writes, self._counters = now, self._load.writes, self._load.counters()

    def next(self, now: float) -> dict[str, Any]:
        """Report of the time since the previous call."""
        load, previous_time, writes, previous_counters = self._load, self._snapshot_time, self._writes, self._counters
        self._take_snapshot(now)
        seconds = max(now - previous_time, 1e-9)
        grown = growth(previous_counters, self._counters)
        start = previous_time if load.started_at is None else load.started_at
        return {
            "from_s": previous_time - start,
            "to_s": now - start,
            "writes": load.writes - writes,
            "bw_bps": (load.writes - writes) * load.shape.size * 8 / seconds,
            "received_bps": grown.get("bytes_received", 0) * 8 / seconds,
            "retransmitted": grown.get("retransmitted", 0),
            "lost": grown.get("lost", 0),
            "plane_bps": [n * 8 / seconds for n in grown.get("plane_bytes", [])],
        }


async def measure(load: WriteLoad, interval_s: float | None, on_interval: Callable[[dict[str, Any]], None]) -> None:
    """Run a load to its end, telling every `interval_s` how it goes. Its outcome is in the load."""
    clock = asyncio.get_running_loop().time
    load.start()
    interval: Interval | None = None
    next_look = None
    while not load.is_over:
        if interval_s is not None and interval is None and load.started_at is not None:
            interval, next_look = Interval(load, load.started_at), load.started_at + interval_s
        times = [t for t in (load.stop_at, next_look) if t is not None]
        await wait_until(load.news, min(times, default=None))
        now = clock()
        load.on_clock(now)
        if interval is not None and next_look is not None and interval_s is not None and now >= next_look:
            on_interval(interval.next(now))
            while next_look <= now:
                next_look += interval_s


async def drain(load: WriteLoad, limit_s: float) -> bool:
    """Wait for what is posted to complete; False when nothing moves for `limit_s`, or `stop` cut it short."""
    clock = asyncio.get_running_loop().time
    deadline, progress = clock() + limit_s, load.progress()
    while load.outstanding and load.failure is None and not load.hurried:
        await wait_until(load.news, deadline)
        if clock() >= deadline:
            previous_progress, progress = progress, load.progress()
            if progress == previous_progress:
                break
            deadline = clock() + limit_s  # links with a rate take their time
    return not load.outstanding
