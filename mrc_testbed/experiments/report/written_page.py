"""A written page, for templates and the index."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mrc_testbed.experiments.metrics.assertions import ExpectationVerdict
from mrc_testbed.experiments.metrics.repeats import Spread


@dataclass(slots=True)
class Page:
    """Page of one folder of results."""

    folder: Path
    title: str
    manifest: dict[str, Any]
    verdicts: list[ExpectationVerdict]
    runs: int
    repeats: list[Spread] = field(default_factory=list)
    picture: str | None = None
    """Name of the first figure's files."""

    @property
    def complete(self) -> bool:
        return bool(self.manifest["complete"])

    @property
    def passed(self) -> bool:
        """Whether all runs were made, and every rule held."""
        return self.complete and all(verdict.passed for verdict in self.verdicts)

    @property
    def rules_held(self) -> int:
        """Number of rules that held."""
        return sum(verdict.passed for verdict in self.verdicts)

    @property
    def has_repeated_rules(self) -> bool:
        return any(repeat.rule and repeat.repeats > 1 for repeat in self.repeats)

    @property
    def overloaded(self) -> bool:
        """Whether the machine was overloaded in at least one run."""
        return any(run["load"]["overloaded"] for run in self.manifest["runs"])

    @property
    def is_live(self) -> bool:
        return self.backend not in ("virtual", "fluid")

    @property
    def backend(self) -> str:
        """`virtual`, `live`, or `live TARGET` on another target than the default one."""
        target = self.manifest.get("target")
        return str(self.manifest["where"]) + (f" {target}" if target not in (None, "embedded") else "")

    @property
    def state(self) -> str:
        """State in a word: `passed`, `FAILED` or `unfinished`."""
        return "unfinished" if not self.complete else "passed" if self.passed else "FAILED"
