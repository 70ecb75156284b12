"""A transfer for tests: random bytes, compared when they have arrived, with assertions on its way."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from mrc_testbed.demo.transfer_monitor import FollowedTransfer

SIZE = 24 << 20
RATE_BPS = 40e6
"""Paced, so that there is traffic before, during and after each fault; 24 MiB last about 5 s."""
LIMIT_S = 60.0
"""Longest standstill, seconds (ipc/patience.py); never asserted on."""


class CheckedTransfer(FollowedTransfer):
    """A followed transfer of random bytes, with what tests ask of it."""

    def begin(self, folder: Path, size: int = SIZE, rate_bps: float | None = RATE_BPS) -> None:
        """Start to send `size` random bytes, at `rate_bps` bits a second or as fast as it goes (None)."""
        self.sent, self.received = folder / "sent", folder / "received"
        self.sent.write_bytes(os.urandom(size))
        self.start(self.sent, self.received, rate_bps)

    def reach(self, share: float) -> None:
        """Wait until that share of the file is acknowledged; fails when the transfer ends before."""
        assert self.wait_until(lambda: self.is_over or self.share >= share, LIMIT_S), f"stuck at {self.share:.0%}"
        assert not self.is_over, f"over before {share:.0%} was seen: {self.outcome}"

    def finish(self) -> None:
        """Wait for the end and compare the files' bytes, not the agents' reports."""
        assert self.wait_until(lambda: self.is_over, LIMIT_S), f"stuck at {self.share:.0%}"
        assert self.outcome is not None and self.outcome["state"] == "done", self.outcome
        assert digest(self.received) == digest(self.sent), "the bytes that arrived are others than those sent"

    def withdrawn(self, *cuts: Any) -> None:
        """Every EV through the cut links leaves the rotation."""
        assert self.wait_until(lambda: all(cut.all_withdrawn for cut in cuts), LIMIT_S), [c.withdrawn_at for c in cuts]

    def healed(self) -> None:
        """Every EV is usable again."""
        assert self.wait_until(lambda: self.recorder.all_usable, LIMIT_S), self.bad_evs()

    def bad_evs(self) -> set[int]:
        return {ev for ev in self.recorder.evs if not self.recorder.usable(ev)}

    def ev_table(self) -> dict[int, dict[str, Any]]:
        """The agent's own EV table of the QP of this transfer, by EV."""
        qpn = self.outcome["qpn"] if self.outcome else None
        tables = [qp["evs"] for qp in self.agent.status()["qps"] if qpn in (None, qp["qpn"])]
        return {ev["ev"]: ev for ev in tables[-1]}

    def clean_up(self) -> None:
        """Links that were cut are restored, QPs closed."""
        for cut in self.recorder.cuts:
            self.fabric.link(cut.link.lower.node, cut.link.upper.node, is_up=True)
        for qp in self.agent.status()["qps"]:
            self.agent.call("close_qp", qpn=qp["qpn"])
        self.close()


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
