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


def numbers_of(switch: SwitchCounts) -> Numbers:
    """Return the counts of a switch by key; None where the switch does not count them."""
    marked, trimmed, drops = (switch.cells.get(name) for name in CELLS)
    out: Numbers = dict.fromkeys(KEYS)
    out["link_lost"] = switch.lost
    out["marked"] = None if marked is None else marked[0]
    if trimmed is not None:
        out["trimmed"], out["trimmed_last_hop"] = sum(trimmed), trimmed[1]
    if drops is not None:
        full = switch.queue_drops or [
            0
        ]  # BMv2: drops by its program; losses outside the program are read once, at the end
        in_queues, control = sum(drops[: len(FULL_QUEUE)]) + full[0], sum(full[1:])
        out["dropped_queue"], out["dropped_control"] = in_queues, control
        out["dropped"] = in_queues + control + drops[-1]
    return out


class SwitchTotals:
    """Sums over switches and readings.

    `totals`: counts since the first reading, as far as readings succeeded; None: never counted.
    """

    def __init__(self) -> None:
        self.totals: Numbers = dict.fromkeys(KEYS)
        self._previous: dict[str, Numbers | None] = {}
        """Last counts by switch; None: the switch was off."""
        self._has_gap = False

    def note_gap(self) -> None:
        """Note a failed reading: the next one covers more than one interval."""
        self._has_gap = True

    def update(self, counts: Counts) -> Numbers:
        """Return the counts since the last reading; None where unknown. The first reading begins at 0."""
        is_first, has_gap, self._has_gap = not self._previous, self._has_gap, False
        news: Numbers = dict.fromkeys(KEYS, 0)
        for name, switch in counts.switches.items():
            now, previous = (numbers_of(switch) if switch.on else None), self._previous.get(name)
            self._previous[name] = now
            for key in KEYS:
                news[key] = _plus(news[key], _increase(key, now, previous, is_first))
                if not is_first and now is not None and now[key] is not None:
                    self.totals[key] = (self.totals[key] or 0) + (_increase(key, now, previous, is_first) or 0)
        return dict.fromkeys(KEYS) if has_gap else news


def _increase(key: str, now: Numbers | None, previous: Numbers | None, is_first: bool) -> int | None:
    if now is None:
        return 0 if previous is None else None
    value, was = now[key], 0 if previous is None else previous[key]
    if value is None or was is None:
        return None
    if is_first:
        return 0
    return value - was if value >= was else value  # the switch restarted, and counts from 0


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
