"""State of one target, judged by its probes: ok, lossy or down (mrc-protocol §9). Pure.

    unknown -> ok      the first probe that came back
    ok      -> down    `down_after` losses in a row
    ok      -> lossy   each of the last two windows lost `lossy_share` or more, in more than one burst
    lossy   -> down    LOSSY_DOWN_AFTER losses in a row
    lossy   -> ok      `clear_windows` windows without a loss
    down    -> ok      `up_after` probes back in a row, and nothing but the outage in the windows before
    down    -> lossy   the same, with other losses there

Choices where §9 is silent: one burst of losses is an interruption, not a lossy link, so "over two windows" asks for
losses in both and for two bursts at least; a target that was down is well as soon as it answers again (its losses have
had their cause, and a restored link should not look lossy for ten seconds); a link that loses half of everything is
lossy even though three losses in a row are common there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile

LOSSY_DOWN_AFTER = 10
"""Losses in a row after which a lossy target is down: at 50 % loss once in a thousand probes."""
RTT_SHARE = 0.125
"""Weight of a new RTT in the smoothed one (as TCP's)."""


class ProbeFate(Enum):
    """Result of one probe."""

    BACK = "back"
    LOST = "lost"
    EXCUSED = "excused"  # lost in an outage that is over


class TargetState(str, Enum):
    """State of the path to a target, judged by its probes."""

    UNKNOWN = "unknown"  # no probe has come back yet, and it is too early to call that a loss
    OK = "ok"
    LOSSY = "lossy"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Rules:
    """Thresholds of §9; counts are probes."""

    window: int = 20
    down_after: int = 3
    up_after: int = 3
    lossy_share: float = 0.05
    clear_windows: int = 5


@dataclass(slots=True)
class SentProbe:
    """One probe of the last two windows."""

    sequence: int
    sent_at: float
    fate: ProbeFate


@dataclass(slots=True)
class TargetHealth:
    """One target. `now` and `sent_at` are seconds of one clock."""

    rules: Rules
    state: TargetState = TargetState.UNKNOWN
    began_at: float = 0.0
    """Start of the cause of the state, seconds.

    For down the sending of the first probe lost, for lossy of the first in the windows, for ok the return of the first
    probe of the unbroken row.
    """
    back_at: float | None = None
    """Time at which the newest returned probe was sent: every node on its way forwarded then."""
    rtt_s: float | None = None
    """Smoothed RTT, seconds."""
    rtt_min_s: float | None = None
    sent: int = 0
    lost: int = 0
    late_count: int = 0
    """Probes that came back after they had been given up: not lost."""
    _history: deque[SentProbe] = field(default_factory=deque)
    _lost_in_a_row: int = 0
    _back_in_a_row: int = 0

    def __post_init__(self) -> None:
        self._history = deque(maxlen=2 * self.rules.window)

    @property
    def loss(self) -> float:
        """Share of probes lost in the last two windows, 0 to 1."""
        return sum(map(_is_lost, self._history)) / len(self._history) if self._history else 0.0

    def record_return(self, sequence: int, sent_at: float, rtt_s: float) -> None:
        """Note that a probe came back in time."""
        self._add_rtt(rtt_s)
        self._came_back(sent_at)
        self._add_probe(sequence, sent_at, False)

    def record_loss(self, sequence: int, sent_at: float) -> None:
        """Note that a probe did not come back."""
        self._add_probe(sequence, sent_at, True)

    def came_late(self, sequence: int, rtt_s: float) -> bool:
        """Take back the loss of a probe that was given up and came back late.

        False when it was not given up (a copy).
        """
        for probe in self._history:
            if probe.sequence == sequence and probe.fate is not ProbeFate.BACK:
                probe.fate = ProbeFate.BACK
                self._came_back(probe.sent_at)
                self.lost -= 1
                self.late_count += 1
                self._add_rtt(rtt_s)
                self._lost_in_a_row = sum(1 for _ in takewhile(_is_lost, reversed(self._history)))
                if self.state is TargetState.DOWN and self._lost_in_a_row < self.rules.down_after:
                    self._excuse()  # the others of that outage are late too, most likely
                    self._become(TargetState.OK, self._history[-1].sent_at)
                return True
        return False

    def _came_back(self, sent_at: float) -> None:
        self.back_at = sent_at if self.back_at is None else max(self.back_at, sent_at)

    def _add_rtt(self, rtt_s: float) -> None:
        self.rtt_s = rtt_s if self.rtt_s is None else self.rtt_s + RTT_SHARE * (rtt_s - self.rtt_s)
        self.rtt_min_s = rtt_s if self.rtt_min_s is None else min(rtt_s, self.rtt_min_s)

    def _add_probe(self, sequence: int, sent_at: float, lost: bool) -> None:
        self.sent += 1
        self.lost += lost
        self._history.append(SentProbe(sequence, sent_at, ProbeFate.LOST if lost else ProbeFate.BACK))
        self._lost_in_a_row = self._lost_in_a_row + 1 if lost else 0
        self._back_in_a_row = 0 if lost else self._back_in_a_row + 1
        self._move(sent_at)

    def _move(self, sent_at: float) -> None:
        rules, state = self.rules, self.state
        if self._lost_in_a_row:
            if state is TargetState.DOWN:
                return
            needed_losses = LOSSY_DOWN_AFTER if state is TargetState.LOSSY else rules.down_after
            if self._lost_in_a_row >= needed_losses:
                first = min(self._lost_in_a_row, len(self._history))
                self._become(TargetState.DOWN, self._history[-first].sent_at)
            elif state is TargetState.OK and self._is_lossy():
                self._become(TargetState.LOSSY, self._first_loss())
        elif state is TargetState.UNKNOWN:
            self._become(TargetState.OK, sent_at)
        elif state is TargetState.DOWN and self._back_in_a_row >= rules.up_after:
            self._resume(self._history[-rules.up_after].sent_at)
        elif state is TargetState.LOSSY and self._back_in_a_row >= rules.clear_windows * rules.window:
            self._become(TargetState.OK, self._history[0].sent_at)
        elif state is TargetState.OK and self._is_lossy():
            self._become(TargetState.LOSSY, self._first_loss())

    def _resume(self, began_at: float) -> None:
        is_lossy = self._bursts() > 1
        if not is_lossy:
            self._excuse()
        self._become(TargetState.LOSSY if is_lossy else TargetState.OK, began_at)

    def _excuse(self) -> None:
        """Discount the losses so far: an outage was their cause."""
        for probe in self._history:
            if probe.fate is ProbeFate.LOST:
                probe.fate = ProbeFate.EXCUSED
        self._lost_in_a_row = 0

    def _is_lossy(self) -> bool:
        window = self.rules.window
        if len(self._history) < 2 * window or self._back_in_a_row >= 2 * window:
            return False
        lost = [_is_lost(probe) for probe in self._history]
        share = min(sum(lost[:window]), sum(lost[window:])) / window
        return share >= self.rules.lossy_share and self._bursts() > 1

    def _bursts(self) -> int:
        """Rows of losses in the last two windows."""
        bursts, was_lost = 0, False
        for lost in map(_is_lost, self._history):
            bursts += lost and not was_lost
            was_lost = lost
        return bursts

    def _first_loss(self) -> float:
        return next(probe.sent_at for probe in self._history if _is_lost(probe))

    def _become(self, state: TargetState, began_at: float) -> None:
        self.state, self.began_at = state, began_at


def _is_lost(probe: SentProbe) -> bool:
    return probe.fate is ProbeFate.LOST
