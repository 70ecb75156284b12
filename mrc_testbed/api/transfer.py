"""One transfer of the Python API: its progress, its result, and what happened meanwhile as columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mrc_testbed.api.backend import FabricBackend, TransferOrder
from mrc_testbed.api.records import ApiError, EvMove, NotInTimeError, TransferFailedError, TransferResult
from mrc_testbed.topologies.plan import Plan, ev_plane

PORT_DOWN = "port_down"
"""State in `ev_timeline` of an EV that is out since a NIC port of its plane is down, at either end."""


@dataclass(frozen=True, slots=True)
class ProgressSample:
    """Totals of a transfer's QP at one time."""

    at_s: float
    acked_bytes: int
    lost: int
    retransmitted: int
    plane_bytes: tuple[int, ...]

    @property
    def totals(self) -> tuple[float, ...]:
        """All but `acked_bytes`."""
        return (self.lost, self.retransmitted, *self.plane_bytes)


class TransferFabric(Protocol):
    """Requests of a transfer to its fabric; AnyFabric documents each of them."""

    plan: Plan

    @property
    def now(self) -> float: ...

    @property
    def backend(self) -> FabricBackend: ...

    def run_until(self, condition: Callable[[], bool], timeout: float | None = None) -> bool: ...


class FabricTransfer:
    """A transfer that `transfer` of a fabric started, on a QP of its own.

    It goes on while no call waits for it.

    Its QP stays when it is over, so that probes can bring EVs back and `evs` tells their states, until the next
    transfer of these two hosts begins or the fabric is closed.
    """

    def __init__(self, fabric: TransferFabric, order: TransferOrder, number: int, denied: Iterable[int]) -> None:
        self._fabric, self._order = fabric, order
        self.number = number
        """Number by which the source knows the transfer."""
        self.source, self.destination, self.size_bytes = order.source, order.destination, order.size_bytes
        self.begun_s = fabric.now
        self._denied = frozenset(denied)
        """EVs that the denylist took out from the start."""
        self.samples: list[ProgressSample] = []
        """Samples of progress, oldest first, 20 ms or more apart."""
        self.ev_moves: list[EvMove] = []
        """EVs withdrawn and brought back, also after its end while its QP is there."""
        self.ended_s: float | None = None
        self.closed = False
        """Whether its QP is closed and its bytes are gone."""
        self.qpn: int | None = None
        """QP number at the source; None before the QP is connected."""
        self._outcome: dict[str, Any] | None = None
        self._planes: list[tuple[float, str | None, int, bool]] = []
        """(time, whose port: None ours, plane, up)."""

    def __repr__(self) -> str:
        state = "running" if self._outcome is None else self._outcome["state"]
        return f"<transfer {self.source} to {self.destination}, {self.size_bytes:,} bytes, {state}, {self.share:.0%}>"

    # ---- progress ---------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether it has ended, well or not."""
        return self._outcome is not None

    @property
    def acked_bytes(self) -> int:
        return self.samples[-1].acked_bytes if self.samples else 0

    @property
    def share(self) -> float:
        """Part of its bytes that is acknowledged, 0 to 1."""
        return self.acked_bytes / self.size_bytes

    def reach(self, share: float, timeout: float | None = None) -> None:
        """Let time pass until that share is acknowledged.

        Raises NotInTimeError after `timeout` seconds, TransferFailedError.
        """
        if not 0 <= share <= 1:
            raise ApiError(f"share = {share!r}: give 0 to 1")
        if not self._fabric.run_until(lambda: self.ended or self.share >= share, timeout):
            raise NotInTimeError(f"{self}: {share:.0%} is not there {_timeout_text(timeout)}")
        if self.ended and self.share < share:
            self._checked()

    def wait(self, timeout: float | None = None) -> TransferResult:
        """Let time pass until the transfer is over and its bytes were compared.

        Raises TransferFailedError, NotInTimeError.
        """
        if not self._fabric.run_until(lambda: self.ended, timeout):
            raise NotInTimeError(f"{self}: not over {_timeout_text(timeout)}")
        return self.result

    @property
    def result(self) -> TransferResult:
        """The outcome. Raises TransferFailedError; ApiError before the end."""
        outcome = self._checked()
        counters = outcome["counters"]
        return TransferResult(
            self.source,
            self.destination,
            self.size_bytes,
            outcome["duration_s"],
            outcome["goodput_bps"],
            outcome["sha256"],
            counters["sent"],
            counters["retransmitted"],
            counters["lost"],
            counters["marked"],
            counters["trimmed"],
            tuple(counters["plane_bytes"]),
            tuple(self.ev_moves),
            self._order.transport,
        )

    def read(self) -> bytes:
        """The bytes at the receiver. Raises as `result` does, and ApiError when they were dropped."""
        self._checked()
        if self.closed:
            raise ApiError(f"{self}: its bytes went when the next transfer of these hosts began: read() before that")
        return self._fabric.backend.read(self.source, self.number)

    def _checked(self) -> dict[str, Any]:
        if self._outcome is None:
            raise ApiError(f"{self}: not over yet. Cure: call wait() first")
        if self._outcome["state"] != "done":
            raise TransferFailedError(f"{self}: {self._outcome['error']}")
        return self._outcome

    # ---- what happened, as columns ----------------------------------------------------------------------

    def series(self, every: float = 0.1) -> dict[str, list[float]]:
        """Columns of equal length, a row an interval of `every` seconds (the last one may be shorter).

            at_s              begin of the interval
            goodput_bps           payload of completed writes, bits/s
            lost, retransmitted   packets in the interval
            plane0_bps ...        payload sent over each plane, bits/s, retransmissions included

        Between two samples, and two completions, all grow in proportion to time. pandas and matplotlib take
        the columns as they are.
        """
        if not every > 0:
            raise ApiError(f"every = {every!r}: give seconds above 0, such as 0.1")
        planes = self._fabric.plan.planes
        names = ["goodput_bps", "lost", "retransmitted", *(f"plane{plane}_bps" for plane in range(planes))]
        out: dict[str, list[float]] = {"at_s": [], **{name: [] for name in names}}
        samples = [ProgressSample(self.begun_s, 0, 0, 0, (0,) * planes), *list(self.samples)]
        totals = [(sample.at_s, sample.totals) for sample in samples]
        acked = [(self.begun_s, (0.0,))]
        for sample in samples:
            if sample.acked_bytes > acked[-1][1][0]:
                acked.append((sample.at_s, (float(sample.acked_bytes),)))
        begin_s, end = self.begun_s, samples[-1].at_s
        old_totals = (*acked[0][1], *totals[0][1])
        number = 0
        while begin_s < end - 1e-9:
            number += 1
            end_s = min(self.begun_s + number * every, end)
            new_totals = (*_interpolate(acked, end_s), *_interpolate(totals, end_s))
            out["at_s"].append(begin_s)
            for name, a, b in zip(names, old_totals, new_totals, strict=True):
                out[name].append((b - a) * 8 / (end_s - begin_s) if name.endswith("_bps") else b - a)
            begin_s, old_totals = end_s, new_totals
        return out

    def ev_timeline(self) -> dict[str, list[Any]]:
        """Return for each EV the spans of its states, up to the transfer's end or now.

        Columns `ev`, `plane`, `state`, `from_s`, `to_s`.

        Each EV of the pair begins `good`, or `denied`. States are those of PathState, but never `skip`, and
        `port_down`. In modes of random EVs only those that moved are there.
        """
        plan = self._fabric.plan
        planes = {move.ev: move.plane for move in self.ev_moves}
        if plan.mode.ev_is_path:
            all_evs = plan.evs(plan.host(self.source), plan.host(self.destination))
            planes = {ev: ev_plane(ev) for ev in all_evs} | planes
        last = max(
            [self._fabric.now if self.ended_s is None else self.ended_s, *(ev_move.at_s for ev_move in self.ev_moves)]
        )
        out: dict[str, list[Any]] = {"ev": [], "plane": [], "state": [], "from_s": [], "to_s": []}
        for ev, plane in sorted(planes.items(), key=lambda pair: (pair[1], pair[0])):
            spans = self._spans(ev, plane)
            for (begin, state), (end, _) in zip(spans, [*spans[1:], (last, "")], strict=True):
                if end > begin:
                    for key, value in zip(out, (ev, plane, state, begin, end), strict=True):
                        out[key].append(value)
        return out

    def _spans(self, ev: int, plane: int) -> list[tuple[float, str]]:
        """(begin, state) of one EV, neighbours different."""
        news: list[tuple[float, Any]] = [(move.at_s, move) for move in self.ev_moves if move.ev == ev]
        news += [(at_s, (end, is_up)) for at_s, end, port_plane, is_up in self._planes if port_plane == plane]
        state, ports_down = "denied" if ev in self._denied else "good", set[str | None]()
        spans = [(self.begun_s, state)]
        for at_s, change in sorted(news, key=lambda pair: pair[0]):
            if isinstance(change, EvMove):
                state = change.new_state
            else:
                end, is_up = change
                (ports_down.discard if is_up else ports_down.add)(end)
            visible_state = PORT_DOWN if ports_down and state == "good" else state
            if visible_state != spans[-1][1]:
                spans.append((max(at_s, self.begun_s), visible_state))
        return spans

    # ---- told by the fabric -----------------------------------------------------------------------------

    def on_transfer(self, event: dict[str, Any], at_s: float) -> None:
        """Handle a report of the source: `sending`, `done` or `failed`."""
        self.qpn = event["qpn"]
        if event["state"] in ("done", "failed"):
            self.ended_s = at_s
            self._outcome = event
            if event["counters"]:
                self._sample(at_s, event["bytes_done"], event["counters"])

    def on_progress(self, event: dict[str, Any], at_s: float) -> None:
        """Handle a progress report of the source."""
        self.qpn = event["qpn"]
        if not self.ended:
            self._sample(at_s, event["bytes_done"], event["counters"])

    def _sample(self, at_s: float, acked: int, counters: dict[str, Any]) -> None:
        if self.samples and at_s <= self.samples[-1].at_s:
            self.samples.pop()  # more at the same instant
        planes = tuple(counters["plane_bytes"])
        self.samples.append(ProgressSample(at_s, acked, counters["lost"], counters["retransmitted"], planes))

    def has_qp(self, qpn: int) -> bool:
        """Whether that QP of its source is its own."""
        return not self.closed and self.qpn == qpn

    def on_plane(self, end: str | None, plane: int, is_up: bool, at_s: float) -> None:
        """A NIC port of its source (None) or of a peer went up or down."""
        if not self.closed and end in (None, self.destination):
            self._planes.append((at_s, end, plane, is_up))


def _timeout_text(timeout: float | None) -> str:
    return f"{'in an hour' if timeout is None else f'after {timeout:g} s'}: wait longer, or see events()"


def _interpolate(points: Sequence[tuple[float, tuple[float, ...]]], time: float) -> tuple[float, ...]:
    """Totals at a time, by straight lines between points (time, totals)."""
    i = bisect_right(points, time, key=lambda point: point[0])
    if i >= len(points):
        return points[-1][1]
    (begin, begin_totals), (end, end_totals) = points[i - 1], points[i]
    part = (time - begin) / (end - begin)
    return tuple(a + (b - a) * part for a, b in zip(begin_totals, end_totals, strict=True))
