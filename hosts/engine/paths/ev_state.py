"""The state of one entropy value as a table: mrc-protocol §7.

A leaf: events name these states, the profile (ev.py) walks the table, and the tests hold every cell of it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from mrc_testbed.hosts.engine.config import Config


class EvState(Enum):
    """State of one EV (§7); the values are the numbers of the specification."""

    GOOD = 0
    """State of an EV in the rotation, or of a backup ready to join it."""
    DENIED = 1
    """Taken out by the controller; no packet changes that."""
    SKIP = 2
    """Congested: sits out a turn, then GOOD again. Keeps its place in the rotation."""
    ASSUMED_BAD = 3
    """State after silent loss: only answered probes (or the controller) bring the EV back."""

    __hash__ = object.__hash__  # members are singletons; Enum's own hash runs in Python and is on the hot path


class EvSignal(Enum):
    """Event of an EV. The values are the words of events and logs."""

    SACK_CLEAN = "a packet arrived"
    SACK_SKIP_ONCE = "a packet was CE-marked"
    SACK_ALWAYS_SKIP = "the responder judges the path bad"
    TRIMMED = "a packet was trimmed"
    REFUSED = "a packet was refused, not by the path"
    LOST = "a packet was lost without trace"
    TURN_PASSED = "its turn passed"
    PROBE_CLEAN = "enough probes were answered"
    PROBE_SKIP_ONCE = "enough probes were answered, the last CE-marked"
    PROBE_FAILED = "a probe failed"
    RECALLED = "no better path is left"
    DENY = "the controller denied it"
    ALLOW = "the controller allowed it"

    __hash__ = object.__hash__


_GOOD: Final = EvState.GOOD
_SKIP: Final = EvState.SKIP
_BAD: Final = EvState.ASSUMED_BAD
_DENIED: Final = EvState.DENIED

# Every move of one EV (§7). A pair that is missing is a bug in our code and raises KeyError; a pair that stays put is a
# signal we choose to ignore. Moves to ASSUMED_BAD are refused when they would break the floor (ev_min_active).
EV_MOVES: Final[dict[tuple[EvState, EvSignal], EvState]] = {
    (_GOOD, EvSignal.SACK_CLEAN): _GOOD,
    (_GOOD, EvSignal.SACK_SKIP_ONCE): _SKIP,
    (_GOOD, EvSignal.SACK_ALWAYS_SKIP): _BAD,
    (_GOOD, EvSignal.TRIMMED): _SKIP,  # a queue was full; the path works
    (_GOOD, EvSignal.REFUSED): _GOOD,  # incast or a busy responder: no other path would help
    (_GOOD, EvSignal.LOST): _BAD,  # no trim came back: suspect the path
    (_GOOD, EvSignal.TURN_PASSED): _GOOD,
    (_GOOD, EvSignal.PROBE_CLEAN): _GOOD,
    (_GOOD, EvSignal.PROBE_SKIP_ONCE): _SKIP,
    (_GOOD, EvSignal.PROBE_FAILED): _BAD,
    (_GOOD, EvSignal.DENY): _DENIED,
    (_GOOD, EvSignal.ALLOW): _GOOD,
    (_SKIP, EvSignal.SACK_CLEAN): _SKIP,  # no early release
    (_SKIP, EvSignal.SACK_SKIP_ONCE): _SKIP,  # not re-armed
    (_SKIP, EvSignal.SACK_ALWAYS_SKIP): _BAD,
    (_SKIP, EvSignal.TRIMMED): _SKIP,
    (_SKIP, EvSignal.REFUSED): _SKIP,
    (_SKIP, EvSignal.LOST): _BAD,
    (_SKIP, EvSignal.TURN_PASSED): _GOOD,
    (_SKIP, EvSignal.PROBE_CLEAN): _GOOD,
    (_SKIP, EvSignal.PROBE_SKIP_ONCE): _SKIP,
    (_SKIP, EvSignal.PROBE_FAILED): _BAD,
    (_SKIP, EvSignal.DENY): _DENIED,
    (_SKIP, EvSignal.ALLOW): _GOOD,
    (_BAD, EvSignal.SACK_CLEAN): _BAD,  # a late SACK is no probe
    (_BAD, EvSignal.SACK_SKIP_ONCE): _BAD,
    (_BAD, EvSignal.SACK_ALWAYS_SKIP): _BAD,
    (_BAD, EvSignal.TRIMMED): _BAD,
    (_BAD, EvSignal.REFUSED): _BAD,
    (_BAD, EvSignal.LOST): _BAD,
    (_BAD, EvSignal.PROBE_CLEAN): _GOOD,
    (_BAD, EvSignal.PROBE_SKIP_ONCE): _SKIP,
    (_BAD, EvSignal.PROBE_FAILED): _BAD,
    (_BAD, EvSignal.RECALLED): _GOOD,  # ports went down, or EVs were denied: a lossy path is better than none
    (_BAD, EvSignal.DENY): _DENIED,
    (_BAD, EvSignal.ALLOW): _GOOD,
    (_DENIED, EvSignal.SACK_CLEAN): _DENIED,
    (_DENIED, EvSignal.SACK_SKIP_ONCE): _DENIED,
    (_DENIED, EvSignal.SACK_ALWAYS_SKIP): _DENIED,
    (_DENIED, EvSignal.TRIMMED): _DENIED,
    (_DENIED, EvSignal.REFUSED): _DENIED,
    (_DENIED, EvSignal.LOST): _DENIED,
    (_DENIED, EvSignal.PROBE_CLEAN): _DENIED,
    (_DENIED, EvSignal.PROBE_SKIP_ONCE): _DENIED,
    (_DENIED, EvSignal.PROBE_FAILED): _DENIED,
    (_DENIED, EvSignal.DENY): _DENIED,
    (_DENIED, EvSignal.ALLOW): _GOOD,
    # TURN_PASSED is missing for ASSUMED_BAD and DENIED: they have no turn. RECALLED is for ASSUMED_BAD alone.
}


def ev_moves(config: Config) -> dict[tuple[EvState, EvSignal], EvState]:
    """Return the table of moves, open points as the configuration has them (§12 rows 20 and 21)."""
    cells: dict[tuple[EvState, EvSignal], EvState] = {}
    if not config.paths.skip_to_bad:
        cells |= {(_SKIP, EvSignal.LOST): _SKIP, (_SKIP, EvSignal.SACK_ALWAYS_SKIP): _SKIP}
    if config.paths.probe_marked == "good":
        cells |= {(state, EvSignal.PROBE_SKIP_ONCE): _GOOD for state in (_GOOD, _SKIP, _BAD)}
    return EV_MOVES | cells if cells else EV_MOVES
