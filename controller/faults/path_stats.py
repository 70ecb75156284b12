"""State of watched paths: forwarding, packets sent and lost, proofs about their parts. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from mrc_testbed.controller.faults.diagnosis import PathSample
from mrc_testbed.controller.faults.path_segments import Cause, PathSegmenter, PathSegments

BEFORE_ALL_TIMES = float("-inf")
COUNTS_KEPT = 24
FATE_PACKETS = 8
"""Packets whose fate decides whether a path called dead is dead."""
DEAD_LOSS = 0.95
"""Smallest share of FATE_PACKETS that a dead path loses."""
CLEAN_PACKETS = 20
"""Packets over an arc in a few seconds, at most CLEAN_LOST lost, that show it to lose nothing."""
CLEAN_LOST = 1

Key = tuple[str, str]
"""Source, and its name for a path."""


class PathFate(Enum):
    """State of a path that was reported dead."""

    ALL_LOST = "dead"  # nothing came through since
    SURVIVES = "survives"  # something did
    OPEN = "open"  # too few packets to tell
    NO_COUNTS = "uncounted"  # nobody counts them


@dataclass(slots=True)
class WatchedPath:
    """Reports of one source about one path."""

    trace: PathSegments
    forwards: bool = True
    """Whether no source reports the path dead."""
    at_death: tuple[int, int] | None = None
    """(sent, lost) when the path was reported dead, or soon after; None while it forwards."""
    sent_through: int = 0
    """Value of `sent` in the last reading by which another packet had come through."""
    proven_at: float = BEFORE_ALL_TIMES
    """Time at which the path last forwarded, as reported."""
    counts: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=COUNTS_KEPT))
    """(time, sent, lost) since the source began, oldest first."""

    def fate(self, is_loss_near: bool) -> PathFate:
        """Return the fate of a path that was reported dead.

        `is_loss_near`: the path shares a part with a lossy cause, which may lose a few packets in a row: more packets
        decide, and all of them must be lost.
        """
        if self.at_death is None or not self.counts:
            return PathFate.NO_COUNTS
        _, now_sent, now_lost = self.counts[-1]
        sent, lost = now_sent - self.at_death[0], now_lost - self.at_death[1]
        packets_needed = FATE_PACKETS * (2 if is_loss_near else 1)
        is_late_one = is_loss_near and lost < sent and now_sent - self.sent_through < packets_needed
        if is_late_one or (sent >= FATE_PACKETS and lost < DEAD_LOSS * sent):
            return PathFate.SURVIVES
        return PathFate.ALL_LOST if sent >= packets_needed else PathFate.OPEN


class PathStats:
    """All paths of a fabric, plane by plane. Times in seconds."""

    def __init__(self, segmenter: PathSegmenter, *, trial_s: float) -> None:
        self._segmenter = segmenter
        self._trial_s = trial_s
        self._planes: dict[int, dict[Key, WatchedPath]] = {plane: {} for plane in range(segmenter.plan.planes)}

    def get(self, key: Key, plane: int) -> WatchedPath | None:
        return self._planes[plane].get(key)

    def report(self, key: Key, trace: PathSegments, forwards: bool, t: float) -> None:
        """Record that the source reports a path dead, or that a packet came through at `t`."""
        path = self._path(key, trace)
        path.forwards = forwards
        if forwards:
            path.proven_at, path.at_death = max(path.proven_at, t), None

    def on_counts(
        self,
        key: Key,
        trace: PathSegments,
        sent: int,
        lost: int,
        *,
        now: float,
        through_at: float | None,
        dead_causes: frozenset[Cause],
    ) -> None:
        """Record packets sent and lost since the source began; one sent at `through_at` came through.

        Packets that `dead_causes` lost are no evidence of another cause.
        """
        path = self._path(key, trace)
        last = path.counts[-1] if path.counts else None
        began_again = last is not None and sent < last[1]
        if last is None or began_again or sent - lost > last[1] - last[2]:
            path.sent_through = sent
        if through_at is not None:
            path.proven_at = max(path.proven_at, through_at)
        if not path.forwards and path.at_death is None:
            path.at_death = (sent, lost)
        if began_again or self.crosses(trace, dead_causes):
            path.counts.clear()
        path.counts.append((now, sent, lost))

    def drop(self, key: Key, plane: int) -> None:
        """Drop a path that its source no longer watches."""
        self._planes[plane].pop(key, None)

    def drop_source(self, source: str) -> None:
        for paths in self._planes.values():
            for key in [key for key in paths if key[0] == source]:
                del paths[key]

    def has_source(self, source: str, plane: int) -> bool:
        """Return whether the source watches a path of the plane."""
        return any(key[0] == source for key in self._planes[plane])

    def forget_counts(self, plane: int, causes: frozenset[Cause]) -> None:
        """Drop the counts of paths over `causes`: their losses so far are explained."""
        for path in self._planes[plane].values():
            if self.crosses(path.trace, causes):
                path.counts.clear()

    def is_watched(self, plane: int, causes: frozenset[Cause], *, sources: tuple[str, ...]) -> bool:
        """Return whether one of the sources watches a path over `causes`."""
        return any(key[0] in sources and self.crosses(path.trace, causes) for key, path in self._planes[plane].items())

    def is_unheard(self, plane: int, causes: frozenset[Cause], death_time: float, *, sources: tuple[str, ...]) -> bool:
        """Return whether a path over `causes` of one of the sources counts as good without proof since."""
        return any(
            path.forwards and path.proven_at <= death_time and key[0] in sources and self.crosses(path.trace, causes)
            for key, path in self._planes[plane].items()
        )

    def proofs(self, plane: int) -> dict[str, float]:
        """Return the time at which each part was last known to forward."""
        out: dict[str, float] = {}
        for path in self._planes[plane].values():
            for part in path.trace.parts:
                out[part] = max(path.proven_at, out.get(part, BEFORE_ALL_TIMES))
        return out

    def trials(self, plane: int, now: float) -> dict[Hashable, PathSample]:
        """Packets sent and lost over every path of a plane in the last `trial_s`."""
        out: dict[Hashable, PathSample] = {}
        for key, path in self._planes[plane].items():
            recent = [count for count in path.counts if count[0] >= now - self._trial_s]
            if len(recent) >= 2:
                sent, lost = recent[-1][1] - recent[0][1], recent[-1][2] - recent[0][2]
                out[key] = PathSample(path.trace, max(sent, 0), min(max(lost, 0), max(sent, 0)))
        return out

    def lose_nothing(self, plane: int, arcs: Iterable[str], avoided_cause: Cause, now: float, *, source: str) -> bool:
        """Return whether the source's recent packets over each arc came through.

        Only forwarding paths that avoid `avoided_cause` count.
        """
        sent, lost = dict.fromkeys(arcs, 0), dict.fromkeys(arcs, 0)
        trials = self.trials(plane, now)
        for key, path in self._planes[plane].items():
            trial = trials.get(key) if path.forwards and key[0] == source else None
            if trial is not None and not self._segmenter.crosses(trial.trace, avoided_cause):
                for arc in sent.keys() & set(trial.trace.arcs):
                    sent[arc] += trial.sent
                    lost[arc] += trial.lost
        return all(sent[arc] >= CLEAN_PACKETS and lost[arc] <= CLEAN_LOST for arc in sent)

    def crosses(self, trace: PathSegments, causes: Iterable[Cause]) -> bool:
        """Return whether the path crosses one of the causes."""
        return any(self._segmenter.crosses(trace, cause) for cause in causes)

    def _path(self, key: Key, trace: PathSegments) -> WatchedPath:
        return self._planes[trace.plane].setdefault(key, WatchedPath(trace))
