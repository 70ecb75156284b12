"""Pre-job check: every link probed in both classes by Clustermapper, with the bad ones in one table.

Used by the word `check` and by `mrc check`. Knows nothing of the controller: it is what one runs before trusting it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mrc_testbed.console.terminal import Cell, Style, table
from mrc_testbed.ipc.rpc import JsonlClient

CLASSES = ("control", "data")
LOOKS = {"ok": "good", "lossy": "warn", "down": "bad", "unknown": "dim"}
PROBE_S = 0.02
"""Duration of a round of probes, an estimate, seconds."""
NAMED_MAX = 6
"""Switches of a verdict, or hosts of a row, that are named one by one."""
OVERLOADED_S = 0.2
"""Lateness of the prober, seconds, from which a burst says more about the machine than about links."""


@dataclass(frozen=True)
class CheckResult:
    """Result of a burst of probes. `rows` are as `probe_all` tells them (hosts/clustermapper/burst.py)."""

    rows: list[dict[str, Any]]
    suspects: list[str]
    """Switches none of whose links works, as far as one can see."""
    count: int
    duration_s: float
    stalled_s: float
    note: str

    @property
    def bad_rows(self) -> list[dict[str, Any]]:
        """Links that lost probes or could not be probed, but for those that a note explains."""
        excused_states = ("unknown",) if self.note else ()
        return [row for row in self.rows if row["state"] not in ("ok", *excused_states)]

    @property
    def ok(self) -> bool:
        return not self.bad_rows

    @property
    def verdict(self) -> str:
        """Summary in one line."""
        total = len(self.rows)
        if self.ok:
            probed_count = sum(row["state"] == "ok" for row in self.rows)
            remark = ", the others have carrier" if probed_count < total else ""
            return f"{probed_count} of {total} links probed, all well{remark}"
        counts = {state: sum(row["state"] == state for row in self.bad_rows) for state in ("down", "lossy", "unknown")}
        unknown = counts.pop("unknown")
        parts = [f"{count} {state}" for state, count in counts.items() if count]
        parts += [f"{unknown} could not be probed"] if unknown else []
        switches = f": {_first_names(self.suspects, ', ')}" if self.suspects else ""
        return f"{', '.join(parts)} of {total} links{switches}"

    def text(self, style: Style) -> str:
        """Table of bad links, then notes and the verdict."""
        lines = []
        if self.bad_rows:
            heads = ("link", "state", "control lost", "data lost", "trimmed", "RTT", "probed by")
            numeric = ("control lost", "data lost", "trimmed", "RTT")
            lines.append(table(style, heads, [_cells(row) for row in self.bad_rows], right_columns=numeric))
        lines += [style.paint(f"suspect: {name}, none of its links works", "bad") for name in self.suspects]
        if self.stalled_s >= OVERLOADED_S:
            lines.append(f"note: the prober was held up for {self.stalled_s * 1e3:.0f} ms: is the machine overloaded?")
        if self.note:
            lines.append(f"note: {self.note}")
        burst = f"{self.count} probes of each link, host and class in {self.duration_s:.1f} s"
        return "\n".join([*lines, f"{burst}: {self.verdict}"])

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "verdict": self.verdict,
            "suspects": self.suspects,
            "links": self.rows,
            "note": self.note,
        }


def _cells(row: dict[str, Any]) -> list[Cell]:
    def lost(name: str) -> str:
        tally = row.get(name)
        return f"{tally['sent'] - tally['back']}/{tally['sent']}" if tally else "-"

    rtt = (row.get("control") or {}).get("rtt_median_s")
    return [
        row["link"],
        (row["state"], LOOKS[row["state"]]),
        lost("control"),
        lost("data"),
        str((row.get("data") or {}).get("trimmed", "-")),
        "-" if rtt is None else f"{rtt * 1e3:.2f} ms",
        _first_names(row["by"], " ") or row["why"],
    ]


def _first_names(names: list[str], separator: str) -> str:
    """Names for a line: all, or the first ones and how many more there are."""
    if len(names) <= NAMED_MAX:
        return separator.join(names)
    return f"{separator.join(names[: NAMED_MAX - 1])} and {len(names) - NAMED_MAX + 1} more"


def check_fabric(mapper: JsonlClient, count: int, link_is_up: Callable[[str], bool]) -> CheckResult:
    """Probe every link now; of those that cannot be probed at least the carrier is looked at.

    `link_is_up` takes a link's name. Raises JsonlError when there is no Clustermapper, or it refuses.
    """
    answer = mapper.request("probe_all", count=count, classes=list(CLASSES), patient=True)
    rows = answer["links"]
    for row in rows:
        if not row["by"] and not link_is_up(row["link"]):
            row["state"], row["why"] = "down", "not probed: no carrier"
    return CheckResult(
        rows, _suspects(rows), answer["count"], answer["duration_s"], answer["stalled_s"], answer["note"]
    )


def _suspects(rows: list[dict[str, Any]]) -> list[str]:
    """Switches of whose links two at least are down and all others at best could not be probed."""
    by_switch: dict[str, list[str]] = {}
    for row in rows:
        ends = row["link"].split()
        for name in ends[1:] if row["kind"] == "NIC-T0" else ends:
            by_switch.setdefault(name, []).append(row["state"])
    return [
        name
        for name, states in by_switch.items()
        if states.count("down") > 1 and all(state in ("down", "unknown") for state in states)
    ]
