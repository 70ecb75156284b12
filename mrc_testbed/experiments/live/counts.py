"""Switch counters per interval, in the terms of virtual runs (simulator/ports.py). Pure.

A switch that loses its power loses its counts since the last reading: that interval is unknown, None; while
it is off it counts nothing, and afterwards from 0.
"""

from __future__ import annotations

from mrc_testbed.controller.p4runtime.counters import CELL_BITS, FULL_QUEUE
from mrc_testbed.topologies.lab.switch_counters import Counts, SwitchCounts

DEAD_NEXT_HOP = 10
"""drop_reason_t of p4src/headers.p4: the port is down, or its neighbour is dead."""
CELLS = {
    "marked": [0],
    "trimmed": [0, 1 << CELL_BITS],
    "drops": [reason << CELL_BITS for reason in (*FULL_QUEUE, DEAD_NEXT_HOP)],
}
"""Counters read from switches (topologies/lab/switch_counters.py)."""
KEYS = ("marked", "trimmed", "trimmed_last_hop", "dropped_queue", "dropped_control", "dropped", "link_lost")

Numbers = dict[str, int | None]


def numbers_of(one: SwitchCounts) -> Numbers:
    """Numbers by key; None where this switch does not count them."""
    marked, trimmed, drops = (one.cells.get(name) for name in CELLS)
    out: Numbers = dict.fromkeys(KEYS)
    out["link_lost"] = one.lost
    out["marked"] = None if marked is None else marked[0]
    if trimmed is not None:
        out["trimmed"], out["trimmed_last_hop"] = sum(trimmed), trimmed[1]
    if drops is not None:
        full = one.queue_drops or [0]  # BMv2: what its program decided to drop; the rest is told at the end
        in_queues, control = sum(drops[: len(FULL_QUEUE)]) + full[0], sum(full[1:])
        out["dropped_queue"], out["dropped_control"] = in_queues, control
        out["dropped"] = in_queues + control + drops[-1]
    return out


class SwitchTotals:
    """Sums over switches and looks. `totals`: since the first look, as far as could be read; None: never counted."""

    def __init__(self) -> None:
        self.totals: Numbers = dict.fromkeys(KEYS)
        self._before: dict[str, Numbers | None] = {}
        """By switch; None: it was off."""
        self._missed = False

    def missed(self) -> None:
        """A reading failed: the next one covers more than one interval."""
        self._missed = True

    def look(self, counts: Counts) -> Numbers:
        """Counts since the last reading; None where unknown. The first reading begins at 0."""
        first, missed, self._missed = not self._before, self._missed, False
        news: Numbers = dict.fromkeys(KEYS, 0)
        for name, switch in counts.switches.items():
            now, before = (numbers_of(switch) if switch.on else None), self._before.get(name)
            self._before[name] = now
            for key in KEYS:
                news[key] = _plus(news[key], _since(key, now, before, first))
                if not first and now is not None and now[key] is not None:
                    self.totals[key] = (self.totals[key] or 0) + (_since(key, now, before, first) or 0)
        return dict.fromkeys(KEYS) if missed else news


def _since(key: str, now: Numbers | None, before: Numbers | None, first: bool) -> int | None:
    if now is None:
        return 0 if before is None else None
    value, was = now[key], 0 if before is None else before[key]
    if value is None or was is None:
        return None
    if first:
        return 0
    return value - was if value >= was else value  # it has begun anew


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
