"""`mrc faults --replay FILE`: the controller's diagnosis of a recorded run (docs/controller.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrc_testbed.controller.errors import InputError
from mrc_testbed.controller.faults.correlator import Fault
from mrc_testbed.controller.faults.observations import replay_file
from mrc_testbed.errors import UsageError


@dataclass(frozen=True, slots=True)
class FaultChange:
    """One change of the fault list. `t`: seconds of the run's clock."""

    t: float
    change: str
    fault: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FaultReplay:
    """All changes in their order, and the faults left at the end of the recording."""

    changes: tuple[FaultChange, ...]
    active: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "changes": [{"t": change.t, "change": change.change, "fault": change.fault} for change in self.changes],
            "active": list(self.active),
        }

    def text(self) -> str:
        """A line for each change, with its time since the first; then how many are active."""
        lines = []
        for change in self.changes:
            merge_note = f" into {', '.join(map(str, change.fault['into']))}" if change.fault["into"] else ""
            elapsed_s = f"{change.t - self.changes[0].t:9.3f} s"
            number, text = change.fault["number"], change.fault["text"]
            lines.append(f"{elapsed_s}  {change.change:<8} {number:>3}{merge_note}: {text}")
        return "\n".join([*lines, f"{len(self.active)} active in the end, {len(self.changes)} changes"])


def replay_faults(path: Path) -> FaultReplay:
    """Replay a file.

    Raises UsageError with cause and cure for one that is cut short, foreign or missing.
    """
    changes: list[FaultChange] = []

    def on_change(now: float, change: str, fault: Fault) -> None:
        changes.append(FaultChange(now, change, fault.to_json()))

    try:
        faults = replay_file(path, on_change)
    except InputError as error:
        raise UsageError(str(error)) from error
    return FaultReplay(tuple(changes), tuple(fault.to_json() for fault in faults.active()))
