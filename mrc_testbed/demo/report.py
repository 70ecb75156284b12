"""Report of `mrc demo` as data; demo/view.py prints it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mrc_testbed.demo.plan import DemoPlan


@dataclass
class DemoReport:
    """Result of the demonstration. `checks` are (condition, whether it held, measured value)."""

    plan: DemoPlan
    seconds: float = 0.0
    sha256_sent: str = ""
    sha256_received: str = ""
    cuts: list[dict[str, Any]] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    longest_gap_s: float = 0.0
    machine: dict[str, Any] = field(default_factory=dict)
    """CPU demand and supply of the run, see CpuWatch.report."""
    checks: list[tuple[str, bool, str]] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return bool(self.checks) and all(ok for _, ok, _ in self.checks)

    @property
    def goodput_bps(self) -> float:
        return self.plan.size * 8 / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """Schema `mrc-demo/1`: times in seconds, rates in bits/s, sizes in bytes."""
        return {
            "schema": "mrc-demo/1",
            "passed": self.passed,
            "fabric": self.plan.fabric.to_json(),
            "source": self.plan.source,
            "destination": self.plan.destination,
            "bytes": self.plan.size,
            "seconds": round(self.seconds, 3),
            "goodput_bps": round(self.goodput_bps),
            "longest_gap_s": round(self.longest_gap_s, 4),
            "sha256": {"sent": self.sha256_sent, "received": self.sha256_received},
            "packets": self.counters,
            "cuts": self.cuts,
            "machine": self.machine,
            "checks": [{"what": condition, "ok": ok, "seen": value} for condition, ok, value in self.checks],
        }
