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
    """The command began: the link was still up."""
    down_by: float | None = None
    """The link was down by then: the command had returned, or somebody had seen it down; None = not yet."""
    restored_at: float | None = None
    first_loss_at: float | None = None
    lost_packets: int = 0
    withdrawn_at: dict[int, float] = field(default_factory=dict)
    """Time at which each EV left the rotation; `cut_at` for those that were out when the command began."""
    out_before: set[int] = field(default_factory=set)
    """Those: no packet was on their paths, so that the cut had nothing to take out."""
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

    def add(self, t: float, done: int) -> None:
        if self.times and t <= self.times[-1]:
            return
        self.times.append(t)
        self.bytes.append(done)

    def at(self, t: float) -> float:
        """Bytes done at `t`, between samples by straight lines."""
        if not self.times or t <= self.times[0]:
            return 0.0
        if t >= self.times[-1]:
            return float(self.bytes[-1])
        i = bisect_left(self.times, t)
        t0, t1, b0, b1 = self.times[i - 1], self.times[i], self.bytes[i - 1], self.bytes[i]
        return b0 + (b1 - b0) * (t - t0) / (t1 - t0)

    def rate(self, start: float, end: float) -> float:
        """Mean rate between two times, bits/s; 0 for an empty span."""
        return (self.at(end) - self.at(start)) * 8 / (end - start) if end > start else 0.0

    def longest_gap(self) -> float:
        """Longest time in which not one more byte was acknowledged, seconds."""
        gap, since = 0.0, self.times[0] if self.times else 0.0
        for i in range(1, len(self.times)):
            if self.bytes[i] != self.bytes[i - 1]:
                gap, since = max(gap, self.times[i] - since), self.times[i]
        return gap

    def dip(self, cut_at: float, until: float) -> tuple[float, float, float | None]:
        """(rate before, lowest rate in the DIP_S after, time the rate was back) around a cut; rates in bits/s.

        The time is that of the cut when the rate never fell below RATE_OK of what it was, None when it did not come
        back before `until`.
        """
        before = self.rate(max(self.times[0], cut_at - BASELINE_S), cut_at) if self.times else 0.0
        lowest, lowest_at, t = before, cut_at, cut_at
        while t + RATE_WINDOW_S <= min(until, cut_at + DIP_S):
            if (rate := self.rate(t, t + RATE_WINDOW_S)) < lowest:
                lowest, lowest_at = rate, t
            t += RATE_STEP_S
        if lowest >= RATE_OK * before:
            return before, lowest, cut_at
        t = lowest_at
        while t + RATE_WINDOW_S <= until:
            if self.rate(t, t + RATE_WINDOW_S) >= RATE_OK * before:
                return before, lowest, t
            t += RATE_STEP_S
        return before, lowest, None


class TimelineRecorder:
    """Follows the EVs of one transfer: an EV is usable when it is not bad itself and its plane is up at both ends."""

    def __init__(self, evs: Iterable[int]) -> None:
        self.evs = tuple(evs)
        self.cuts: list[CutRecord] = []
        self.progress = TransferProgress()
        self._bad: set[int] = set()
        self._down: set[tuple[str, int]] = set()

    def usable(self, ev: int) -> bool:
        return ev not in self._bad and not any(plane == ev_plane(ev) for _, plane in self._down)

    @property
    def all_usable(self) -> bool:
        return self.count_usable == len(self.evs)

    @property
    def count_usable(self) -> int:
        return sum(self.usable(ev) for ev in self.evs)

    def cut(self, link: Link, evs: tuple[int, ...], at: float) -> CutRecord:
        """The command that takes a link down begins now; call `is_down` when it has returned."""
        cut = CutRecord(link, evs, at)
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
    def is_down(cut: CutRecord, at: float) -> None:
        """The link is down, as of `at` or earlier: each witness narrows the interval in which it went."""
        cut.down_by = at if cut.down_by is None else max(cut.cut_at, min(cut.down_by, at))

    def restore(self, cut: CutRecord, at: float) -> None:
        cut.restored_at = at

    def loss(self, ev: int, at: float) -> None:
        """A packet of `ev` was found lost. It belongs to the newest cut that its path crosses, if any."""
        for cut in reversed(self.cuts):
            if ev in cut.evs and at >= cut.cut_at:
                cut.lost_packets += 1
                if cut.first_loss_at is None:
                    cut.first_loss_at = at
                return

    def ev_state(self, ev: int, good: bool, at: float) -> None:
        """An EV was withdrawn by the requestor (good False) or brought back."""
        before = self.usable(ev)
        (self._bad.discard if good else self._bad.add)(ev)
        self._note([ev], {ev: before}, at)

    def plane_state(self, end: str, plane: int, up: bool, at: float) -> None:
        """The NIC port of `plane` at one end ("local" or a peer's name) went up or down."""
        mine = [ev for ev in self.evs if ev_plane(ev) == plane]
        before = {ev: self.usable(ev) for ev in mine}
        (self._down.discard if up else self._down.add)((end, plane))
        self._note(mine, before, at)

    def _note(self, evs: list[int], before: dict[int, bool], at: float) -> None:
        for ev in evs:
            now = self.usable(ev)
            if now == before[ev]:
                continue
            for cut in self.cuts:
                if ev not in cut.evs:
                    continue
                if not now:
                    if at < cut.cut_at:  # told after the command began, of a time before it
                        self._was_out(cut, ev)
                    cut.withdrawn_at.setdefault(ev, at)
                    cut.back_at.pop(ev, None)
                elif ev in cut.out_before and cut.restored_at is None:
                    cut.out_before.discard(ev)  # in use again: now the cut has to take it out
                    del cut.withdrawn_at[ev]
                elif ev in cut.withdrawn_at and cut.restored_at is not None:
                    cut.back_at[ev] = at

    def link_seen(self, link_name: str, up: bool, at: float) -> None:
        """The controller heard of the link's state."""
        for cut in self.cuts:
            if cut.link.name != link_name or at < cut.cut_at:
                continue
            if up and cut.restored_at is not None and cut.seen_up_at is None:
                cut.seen_up_at = at
            elif not up and cut.seen_down_at is None:
                cut.seen_down_at = at
                self.is_down(cut, at)

    def story(self, cut: CutRecord) -> dict[str, Any]:
        """The timeline of one cut as data. Times are seconds after the cut or after the restoration; None = never."""
        index = self.cuts.index(cut)
        last_byte_at = self.progress.times[-1] if self.progress.times else cut.cut_at
        until = self.cuts[index + 1].cut_at if index + 1 < len(self.cuts) else last_byte_at
        before, lowest, rate_back = self.progress.dip(cut.cut_at, until)

        def after(t: float | None, start: float | None) -> float | None:
            return None if t is None or start is None else round(t - start, 4)

        last_out = max(cut.withdrawn_at.values()) if cut.all_withdrawn and cut.evs else None
        last_back = max(cut.back_at.values()) if cut.all_back and cut.evs else None
        return {
            "link": cut.link.name,
            "plane": cut.link.plane,
            "evs": [f"{ev:#06x}" for ev in cut.evs],
            "cut_at_s": cut.cut_at,
            "down_within_s": after(cut.down_by, cut.cut_at),
            "restored_at_s": cut.restored_at,
            "first_loss_after_s": after(cut.first_loss_at, cut.cut_at),
            "lost_packets": cut.lost_packets,
            "evs_withdrawn_after_s": after(last_out, cut.cut_at),
            "evs_out_before": [f"{ev:#06x}" for ev in cut.evs if ev in cut.out_before],
            "controller_saw_down_after_s": after(cut.seen_down_at, cut.cut_at),
            "rate_before_bps": round(before),
            "rate_lowest_bps": round(lowest),
            "rate_back_after_s": after(rate_back, cut.cut_at),
            "controller_saw_up_after_s": after(cut.seen_up_at, cut.restored_at),
            "evs_back_after_s": after(last_back, cut.restored_at),
        }
