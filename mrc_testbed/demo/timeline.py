"""Timeline of each cut link, derived from events: pure, no clock, no I/O.

Feed a `TimelineRecorder` with what agents and controller report (times are CLOCK_MONOTONIC seconds, one clock for the
whole machine), then ask it for the story of each cut: first loss, EVs withdrawn, rate back, restored, EVs back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mrc_testbed.topologies.plan import Link, ev_plane

RATE_WINDOW_S = 0.2
"""A rate is the mean over this long, seconds."""
RATE_STEP_S = 0.05
BASELINE_S = 1.0
"""The rate before a cut is the mean over this long before it, seconds."""
RATE_OK = 0.9
"""The rate is back when it reaches this share of the rate before the cut."""
DIP_S = 1.0
"""A cut shows in the rate within this long, seconds; a later dip has another cause."""


@dataclass(slots=True)
class CutRecord:
    """One link taken down and up again, and the EVs whose paths cross it."""

    link: Link
    evs: tuple[int, ...]
    cut_at: float
    """Start of the command that cuts: the link was still up."""
    down_by: float | None = None
    """Latest time at which the link went down: the command had returned, or a report came; None: not yet."""
    restored_at: float | None = None
    first_loss_at: float | None = None
    lost_packets: int = 0
    withdrawn_at: dict[int, float] = field(default_factory=dict)
    """Time at which each EV left the rotation; `cut_at` for those that were out when the command began."""
    out_before: set[int] = field(default_factory=set)
    """EVs that were out when the command began: their paths carried no packet."""
    back_at: dict[int, float] = field(default_factory=dict)
    """Time at which each EV became usable after the link was restored; gone again while it is not."""
    seen_down_at: float | None = None
    seen_up_at: float | None = None

    @property
    def all_withdrawn(self) -> bool:
        return set(self.withdrawn_at) == set(self.evs)

    @property
    def all_back(self) -> bool:
        return set(self.back_at) == set(self.evs)


class TransferProgress:
    """Bytes acknowledged over time, and rates read off it."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.bytes: list[int] = []

    def add(self, t: float, done_bytes: int) -> None:
        if self.times and t <= self.times[-1]:
            return
        self.times.append(t)
        self.bytes.append(done_bytes)

    def bytes_at(self, t: float) -> float:
        """Return the bytes acknowledged at `t`, interpolated between samples."""
        if not self.times or t <= self.times[0]:
            return 0.0
        if t >= self.times[-1]:
            return float(self.bytes[-1])
        i = bisect_left(self.times, t)
        t0, t1, b0, b1 = self.times[i - 1], self.times[i], self.bytes[i - 1], self.bytes[i]
        return b0 + (b1 - b0) * (t - t0) / (t1 - t0)

    def rate(self, start: float, end: float) -> float:
        """Return the mean rate between two times, bits/s; 0 for an empty span."""
        return (self.bytes_at(end) - self.bytes_at(start)) * 8 / (end - start) if end > start else 0.0

    def longest_gap(self) -> float:
        """Return the longest time without an acknowledged byte, seconds."""
        gap, start = 0.0, self.times[0] if self.times else 0.0
        for i in range(1, len(self.times)):
            if self.bytes[i] != self.bytes[i - 1]:
                gap, start = max(gap, self.times[i] - start), self.times[i]
        return gap

    def dip(self, cut_at: float, end: float) -> tuple[float, float, float | None]:
        """Return the rate before a cut, the lowest one in the DIP_S after, and the time of recovery; bits/s.

        The time is that of the cut when the rate never fell below RATE_OK of the rate before, None when it did not come
        back before `end`.
        """
        rate_before = self.rate(max(self.times[0], cut_at - BASELINE_S), cut_at) if self.times else 0.0
        lowest, lowest_at, t = rate_before, cut_at, cut_at
        while t + RATE_WINDOW_S <= min(end, cut_at + DIP_S):
            if (rate := self.rate(t, t + RATE_WINDOW_S)) < lowest:
                lowest, lowest_at = rate, t
            t += RATE_STEP_S
        if lowest >= RATE_OK * rate_before:
            return rate_before, lowest, cut_at
        t = lowest_at
        while t + RATE_WINDOW_S <= end:
            if self.rate(t, t + RATE_WINDOW_S) >= RATE_OK * rate_before:
                return rate_before, lowest, t
            t += RATE_STEP_S
        return rate_before, lowest, None


class TimelineRecorder:
    """Recorder of the EVs of one transfer.

    An EV is usable unless it is bad or its plane is down at either end.
    """

    def __init__(self, evs: Iterable[int]) -> None:
        self.evs = tuple(evs)
        self.cuts: list[CutRecord] = []
        self.progress = TransferProgress()
        self._bad_evs: set[int] = set()
        self._down_ports: set[tuple[str, int]] = set()

    def usable(self, ev: int) -> bool:
        return ev not in self._bad_evs and not any(plane == ev_plane(ev) for _, plane in self._down_ports)

    @property
    def all_usable(self) -> bool:
        return self.count_usable == len(self.evs)

    @property
    def count_usable(self) -> int:
        return sum(self.usable(ev) for ev in self.evs)

    def cut(self, link: Link, evs: tuple[int, ...], time_s: float) -> CutRecord:
        """Record the start of the command that takes a link down; call `is_down` when it has returned."""
        cut = CutRecord(link, evs, time_s)
        for ev in evs:
            if not self.usable(ev):
                self._was_out(cut, ev)
        self.cuts.append(cut)
        return cut

    @staticmethod
    def _was_out(cut: CutRecord, ev: int) -> None:
        cut.withdrawn_at[ev] = cut.cut_at
        cut.out_before.add(ev)

    @staticmethod
    def is_down(cut: CutRecord, time_s: float) -> None:
        """Record that the link is down since `time_s` or earlier; each report narrows the interval."""
        cut.down_by = time_s if cut.down_by is None else max(cut.cut_at, min(cut.down_by, time_s))

    def restore(self, cut: CutRecord, time_s: float) -> None:
        cut.restored_at = time_s

    def loss(self, ev: int, time_s: float) -> None:
        """Count a lost packet of `ev` for the newest cut on its path, if any."""
        for cut in reversed(self.cuts):
            if ev in cut.evs and time_s >= cut.cut_at:
                cut.lost_packets += 1
                if cut.first_loss_at is None:
                    cut.first_loss_at = time_s
                return

    def ev_state(self, ev: int, good: bool, time_s: float) -> None:
        """Record that the requestor withdrew an EV (good False) or brought it back."""
        was_usable = self.usable(ev)
        (self._bad_evs.discard if good else self._bad_evs.add)(ev)
        self._note([ev], {ev: was_usable}, time_s)

    def plane_state(self, end: str, plane: int, is_up: bool, time_s: float) -> None:
        """Record the state of the NIC port of `plane` at one end ("local" or a peer's name)."""
        plane_evs = [ev for ev in self.evs if ev_plane(ev) == plane]
        was_usable = {ev: self.usable(ev) for ev in plane_evs}
        (self._down_ports.discard if is_up else self._down_ports.add)((end, plane))
        self._note(plane_evs, was_usable, time_s)

    def _note(self, evs: list[int], was_usable: dict[int, bool], time_s: float) -> None:
        for ev in evs:
            now = self.usable(ev)
            if now == was_usable[ev]:
                continue
            for cut in self.cuts:
                if ev not in cut.evs:
                    continue
                if not now:
                    if time_s < cut.cut_at:  # reported after the command started, about a time before it
                        self._was_out(cut, ev)
                    cut.withdrawn_at.setdefault(ev, time_s)
                    cut.back_at.pop(ev, None)
                elif ev in cut.out_before and cut.restored_at is None:
                    cut.out_before.discard(ev)  # in use again: now the cut has to take it out
                    del cut.withdrawn_at[ev]
                elif ev in cut.withdrawn_at and cut.restored_at is not None:
                    cut.back_at[ev] = time_s

    def link_seen(self, link_name: str, is_up: bool, time_s: float) -> None:
        """Record the link state that the controller reports."""
        for cut in self.cuts:
            if cut.link.name != link_name or time_s < cut.cut_at:
                continue
            if is_up and cut.restored_at is not None and cut.seen_up_at is None:
                cut.seen_up_at = time_s
            elif not is_up and cut.seen_down_at is None:
                cut.seen_down_at = time_s
                self.is_down(cut, time_s)

    def story(self, cut: CutRecord) -> dict[str, Any]:
        """Return the timeline of one cut. Times are seconds after the cut or the restoration; None: never."""
        index = self.cuts.index(cut)
        # The rate is judged up to the next cut, which has a dip of its own.
        last_byte_at = self.progress.times[-1] if self.progress.times else cut.cut_at
        end = self.cuts[index + 1].cut_at if index + 1 < len(self.cuts) else last_byte_at
        rate_before, lowest, rate_back = self.progress.dip(cut.cut_at, end)

        def delay_s(t: float | None, start: float | None) -> float | None:
            return None if t is None or start is None else round(t - start, 4)

        last_out = max(cut.withdrawn_at.values()) if cut.all_withdrawn and cut.evs else None
        last_back = max(cut.back_at.values()) if cut.all_back and cut.evs else None
        return {
            "link": cut.link.name,
            "plane": cut.link.plane,
            "evs": [f"{ev:#06x}" for ev in cut.evs],
            "cut_at_s": cut.cut_at,
            "down_within_s": delay_s(cut.down_by, cut.cut_at),
            "restored_at_s": cut.restored_at,
            "first_loss_after_s": delay_s(cut.first_loss_at, cut.cut_at),
            "lost_packets": cut.lost_packets,
            "evs_withdrawn_after_s": delay_s(last_out, cut.cut_at),
            "evs_out_before": [f"{ev:#06x}" for ev in cut.evs if ev in cut.out_before],
            "controller_saw_down_after_s": delay_s(cut.seen_down_at, cut.cut_at),
            "rate_before_bps": round(rate_before),
            "rate_lowest_bps": round(lowest),
            "rate_back_after_s": delay_s(rate_back, cut.cut_at),
            "controller_saw_up_after_s": delay_s(cut.seen_up_at, cut.restored_at),
            "evs_back_after_s": delay_s(last_back, cut.restored_at),
        }
