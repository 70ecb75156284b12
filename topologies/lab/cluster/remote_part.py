"""Process of the fabric on another machine, as that machine reports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrc_testbed.ipc.patience import PartWork
from mrc_testbed.ipc.processes import TAIL_LINES, FabricProcess

WorkOfAll = Callable[[], Mapping[str, Mapping[str, Any]]]
"""Function that returns {name: {cpu_s, is_ready, ...}} of a machine's processes, as PartsWork answers.

Raises FabricError.
"""


@dataclass(frozen=True, slots=True)
class RemoteWork:
    """Work of a process on another machine. All methods raise FabricError when its machine is lost."""

    name: str
    of_all: WorkOfAll

    def cpu_seconds(self) -> float:
        return float(self._now().get("cpu_s", 0.0))

    def is_ready_to_run(self) -> bool:
        return bool(self._now().get("is_ready", False))

    def is_stopped(self) -> bool:
        return bool(self._now().get("is_stopped", False))

    def log_bytes(self) -> int:
        return int(self._now().get("log_bytes", 0))

    def last_line(self) -> str | None:
        return str(self._now().get("last_line", ""))

    def _now(self) -> Mapping[str, Any]:
        return self.of_all().get(self.name, {})


@dataclass
class RemotePart(FabricProcess):
    """Process on another machine; `record_end` is called when its machine reports the end."""

    name: str
    machine_note: str
    number: int
    """Process id on the remote machine."""
    log: Path
    work_there: RemoteWork
    ready: bool = False
    ending: bool = False
    end_text: str | None = None
    """Description of how the process ended; None: not ended."""
    words: tuple[str, ...] = ()
    """Last lines of its log, when it has ended, indented."""

    @property
    def pid(self) -> int:
        return self.number

    @property
    def alive(self) -> bool:
        return self.end_text is None

    @property
    def work(self) -> PartWork:
        return self.work_there

    def how_it_ended(self) -> str:
        return self.end_text or "is running"

    def tail(self, lines: int = TAIL_LINES) -> str:
        if self.end_text is None:
            return f"  (on its machine; its last line: {self.work_there.last_line()})"
        return "\n".join(self.words[-lines:])

    def record_end(self, end_text: str, tail: str) -> None:
        """Note its end."""
        self.words = tuple(tail.splitlines())
        self.end_text = end_text
