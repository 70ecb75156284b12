"""Rounds of probes: schedule and outcome. Pure: `now` (seconds) is a parameter of every call.

A round is one probe to each target. A probe is lost when it did not come back within the patience and nothing suggests
that the machine, not the network, was slow. On an overloaded machine:

1. the patience grows with the RTTs that are seen: `patience_s` + PATIENCE_RTTS x the upper quartile of a recent round's
   RTTs (one slow link does not change that; a slow switch process does), and for each target with its own RTT;
2. a round during which this process itself woke up late by `stall_s` or more is void: what is missing of it is neither
   lost nor back;
3. a round that lost nearly everything on all planes at once is void, COMMON_ROUNDS times in a row at most: planes share
   no switch, so the cause is what they do share, the machine. (After that it is believed: the switch process is dead.)
4. a probe that comes back after it was given up was not lost; it is taken back, and so is "down" built on it.

Loops (targets.py) are sent while the target that they are about fails or loses, both of one way round; when neither
comes back, those of the next. All having been tried, the last ones stay. Loops over a T0 are sent while no host of its
rack reaches it.

A target hears of its probes in the order they were sent, or the first answers after an outage would overtake the last
losses and make it look lossy.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Any

from mrc_testbed.hosts.clustermapper.health import Rules, TargetHealth, TargetState
from mrc_testbed.hosts.clustermapper.targets import ProbeTarget, TargetKind

PATIENCE_RTTS = 4.0
PATIENCE_MAX_S = 2.0
RECENT_ROUNDS = 20
COMMON_SHARE = 0.8
"""Share of a plane's targets that a round has to lose, in every plane, to suspect the machine."""
COMMON_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class ProberSettings:
    """Settings of the prober. Times in seconds."""

    interval_s: float = 0.1
    patience_s: float = 0.2
    stall_s: float = 0.05
    start_grace_s: float = 10.0
    """Time for which a target that never answered is `unknown`.

    Switches get their routes after this process starts."""
    data_every: int = 0
    """Period of rounds in the data class, in rounds; 0: none.

    They find what loses data alone, as long as trimming is on (without it congestion looks like loss)."""
    rules: Rules = field(default_factory=Rules)

    def slowed(self, slowdown: int) -> ProberSettings:
        """Return the settings for a machine that is so many times slower: rarer probes, more patience."""
        return replace(
            self,
            interval_s=self.interval_s * slowdown,
            patience_s=min(self.patience_s * slowdown, PATIENCE_MAX_S),
            start_grace_s=self.start_grace_s * slowdown,
        )


@dataclass(slots=True)
class TargetChange:
    """A target has another state."""

    target: ProbeTarget
    old_state: TargetState
    health: TargetHealth


@dataclass(slots=True)
class _Round:
    sequence: int
    sent_at: float
    waiting: set[int]
    """Numbers of the targets whose probe their health has not counted yet."""
    rtts: dict[int, float] = field(default_factory=dict)
    """RTTs of the returned probes, by target number."""
    void: bool = False
    is_ended: bool = False


class Prober:
    """Prober of every target of the fabric.

    Each tick: give `returned` what has come, then call `judge`, then `begin_round`.
    """

    def __init__(self, targets: tuple[ProbeTarget, ...], settings: ProberSettings, now: float) -> None:
        self.targets = targets
        self.settings = settings
        self.health = [TargetHealth(settings.rules) for _ in targets]
        self.started_at = now
        self.next_round_at = now
        self.rounds = 0
        self.void: Counter[str] = Counter()
        """Rounds that do not count, by why."""
        self.worst_late_s = 0.0
        self.duplicates = 0
        self.active = {target.number for target in targets if target.kind is not TargetKind.LOOP}
        """Numbers of the targets that are probed now."""
        self._loops: dict[int, list[list[ProbeTarget]]] = {}
        """Loops of a T1's target, by choice."""
        # Choices are numbered from 0 and come in any order: fill up with empty ones.
        for loop in [target for target in targets if target.t1_target is not None]:
            choices = self._loops.setdefault(loop.t1_target or 0, [])
            choices += [[]] * (loop.choice + 1 - len(choices))
            choices[loop.choice] = [*choices[loop.choice], loop]
        self._choice: dict[int, int] = {}
        """Choice of loops tried now, by the number of a T1's target that fails or loses."""
        self._loops_over: dict[str, list[ProbeTarget]] = {}
        """Loops over each T0."""
        self._own_targets: dict[str, list[int]] = {}
        """Targets of each T0's own hosts."""
        for target in targets:
            if target.kind is TargetKind.T0:
                self._own_targets.setdefault(target.switch, []).append(target.number)
            # Loops about no T1's target are probed when their T0 is cut off from its hosts.
            elif target.kind is TargetKind.LOOP and target.t1_target is None:
                self._loops_over.setdefault(target.switch, []).append(target)
        self._first = {(t.host, t.plane): t.number for t in targets if t.kind is TargetKind.T0}
        self._open: deque[_Round] = deque()
        self._quartiles: deque[float] = deque(maxlen=RECENT_ROUNDS)
        self._common_losses = 0
        """Void rounds in a row because all planes lost everything at once."""

    @property
    def patience_s(self) -> float:
        """Time-out of a probe at present, seconds."""
        worst_quartile = max(self._quartiles, default=0.0)
        return min(self.settings.patience_s + PATIENCE_RTTS * worst_quartile, PATIENCE_MAX_S)

    def next_timer(self) -> float:
        """Time of the next tick, seconds: to begin a round, or to give one up."""
        waiting = next(
            (probe_round.sent_at + self.patience_s for probe_round in self._open if not probe_round.is_ended),
            self.next_round_at,
        )
        return min(waiting, self.next_round_at)

    def begin_round(self, now: float) -> int:
        """Start a round and return its sequence number; the caller sends to all `active` at once."""
        self.rounds += 1
        self._open.append(_Round(self.rounds & 0xFFFFFFFF, now, set(self.active)))
        self.next_round_at = max(self.next_round_at + self.settings.interval_s, now)
        return self._open[-1].sequence

    def on_stall(self, late_s: float) -> None:
        """Note that this process woke up `late_s` seconds late; void open rounds when that is a stall."""
        self.worst_late_s = max(self.worst_late_s, late_s)
        if late_s >= self.settings.stall_s:
            for probe_round in self._open:
                probe_round.void = True

    def not_sent(self, number: int, sequence: int) -> None:
        """Void a probe for which the kernel had no buffer: its loss means nothing for the network."""
        for probe_round in self._open:
            if probe_round.sequence == sequence:
                probe_round.waiting.discard(number)

    def on_return(self, number: int, sequence: int, rtt_s: float) -> TargetChange | None:
        """Note a probe that has come back; return a change of state when that takes a loss back."""
        if not 0 <= number < len(self.targets):
            return None
        health = self.health[number]
        old_state = health.state
        probe_round = next((probe_round for probe_round in self._open if probe_round.sequence == sequence), None)
        if probe_round is not None and number in probe_round.waiting and number not in probe_round.rtts:
            probe_round.rtts[number] = rtt_s
        elif not health.came_late(sequence, rtt_s):
            self.duplicates += 1
        return self._change(number, old_state)

    def judge(self, now: float) -> list[TargetChange]:
        """Give each target the known outcomes of its probes; return the resulting changes of state."""
        changes: list[TargetChange] = []
        patience = self.patience_s
        held_targets: set[int] = set()
        """Targets with an earlier probe that may still come."""
        for probe_round in self._open:
            is_over = now - probe_round.sent_at >= patience
            if is_over and not probe_round.is_ended:
                probe_round.is_ended = True
                self._end(probe_round)
            for number in sorted(probe_round.waiting - held_targets):
                old_state = self.health[number].state
                if number in probe_round.rtts:
                    rtt_s = probe_round.rtts[number]
                    self.health[number].record_return(probe_round.sequence, probe_round.sent_at, rtt_s)
                elif not is_over or now - probe_round.sent_at < self._own_patience(number):
                    held_targets.add(number)
                    continue
                elif not probe_round.void and not self._is_too_early(number, now):
                    self.health[number].record_loss(probe_round.sequence, probe_round.sent_at)
                probe_round.waiting.discard(number)
                if change := self._change(number, old_state):
                    changes.append(change)
        while self._open and self._open[0].is_ended and not self._open[0].waiting:
            self._open.popleft()
        return changes + self._turn_loops()

    def _turn_loops(self) -> list[TargetChange]:
        """Start, continue and end the loops; those that end become unknown."""
        changes: list[TargetChange] = []
        for number, choices in self._loops.items():
            is_suspect = self.health[number].state in (TargetState.DOWN, TargetState.LOSSY) and self._is_reached(number)
            choice = self._choice.get(number)
            if is_suspect and choice is None:
                self._choice[number] = 0
                self._begin_loops(choices[0])
            elif not is_suspect and choice is not None:
                del self._choice[number]
                changes += self._end_loops(choices[choice])
            elif choice is not None and choice + 1 < len(choices) and self._are_all_down(choices[choice]):
                changes += self._end_loops(choices[choice])
                self._choice[number] = choice + 1
                self._begin_loops(choices[choice + 1])
        for name, loops in self._loops_over.items():
            is_cut_off = all(self.health[number].state is TargetState.DOWN for number in self._own_targets[name])
            if is_cut_off and loops[0].number not in self.active:
                self._begin_loops(loops)
            elif not is_cut_off and loops[0].number in self.active:
                changes += self._end_loops(loops)
        return changes

    def _is_reached(self, number: int) -> bool:
        """Whether the host's own T0 answers: failures behind it can be located then."""
        target = self.targets[number]
        return self.health[self._first[target.host, target.plane]].state is not TargetState.DOWN

    def _are_all_down(self, loops: list[ProbeTarget]) -> bool:
        return all(self.health[loop.number].state is TargetState.DOWN for loop in loops)

    def _begin_loops(self, loops: list[ProbeTarget]) -> None:
        self.active.update(loop.number for loop in loops)

    def _end_loops(self, loops: list[ProbeTarget]) -> list[TargetChange]:
        out = []
        for loop in loops:
            self.active.discard(loop.number)
            for probe_round in self._open:
                probe_round.waiting.discard(loop.number)
            old_state, self.health[loop.number] = self.health[loop.number].state, TargetHealth(self.settings.rules)
            if change := self._change(loop.number, old_state):
                out.append(change)
        return out

    def _own_patience(self, number: int) -> float:
        return min(PATIENCE_RTTS * (self.health[number].rtt_s or 0.0), PATIENCE_MAX_S)

    def _is_too_early(self, number: int, now: float) -> bool:
        """Loops are sent when the switches are known to have their routes."""
        unknown = self.health[number].state is TargetState.UNKNOWN and self.targets[number].kind is not TargetKind.LOOP
        return unknown and now - self.started_at < self.settings.start_grace_s

    def _end(self, probe_round: _Round) -> None:
        """Verdict of a whole round about the machine."""
        if probe_round.rtts:
            self._quartiles.append(sorted(probe_round.rtts.values())[3 * len(probe_round.rtts) // 4])
        if probe_round.void:
            self.void["stalled"] += 1
            return
        if self._lost_everywhere(probe_round) and self._common_losses < COMMON_ROUNDS:
            self._common_losses += 1
            probe_round.void = True
            self.void["lost on all planes at once"] += 1
        elif probe_round.rtts:
            self._common_losses = 0

    def _lost_everywhere(self, probe_round: _Round) -> bool:
        """Rule 3. Targets that are down already say nothing."""
        probe_counts: Counter[int] = Counter()
        loss_counts: Counter[int] = Counter()
        for target, health in zip(self.targets, self.health, strict=True):
            if target.kind is not TargetKind.LOOP and health.state in (TargetState.OK, TargetState.LOSSY):
                probe_counts[target.plane] += 1
                loss_counts[target.plane] += target.number not in probe_round.rtts
        return len(probe_counts) > 1 and all(
            loss_counts[plane] >= COMMON_SHARE * count for plane, count in probe_counts.items()
        )

    def _change(self, number: int, old_state: TargetState) -> TargetChange | None:
        health = self.health[number]
        return TargetChange(self.targets[number], old_state, health) if health.state is not old_state else None


def target_json(target: ProbeTarget, health: TargetHealth) -> dict[str, Any]:
    """Return a target in the form of `mapper.sock` (docs/telemetry.md)."""
    return {
        "host": target.host,
        "plane": target.plane,
        "target": target.switch,
        "kind": target.kind.value,
        "link": target.link.name,
        "walk": list(target.walk),
        "direction": target.direction,
        "state": health.state.value,
        "loss": round(health.loss, 4),
        "rtt_s": health.rtt_s,
        "rtt_min_s": health.rtt_min_s,
        "since": health.began_at,
        "back_at": health.back_at,
        "sent": health.sent,
        "lost": health.lost,
        "late": health.late_count,
    }
