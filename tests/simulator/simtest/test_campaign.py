"""The CI-sized run of simulation testing."""

from __future__ import annotations

import os
from typing import Any

import pytest

from mrc_testbed.hosts.engine.responder import Responder
from mrc_testbed.simulator.simtest import campaign
from mrc_testbed.simulator.simtest.schedule import FAULTS, KINDS

SCHEDULES = int(os.environ.get("MRC_SCHEDULES", "250"))
"""Twice what it takes to reach everything that is asked of the statistics below.

`mrc simtest` runs 2,000 and more.
"""


def test_campaign__the_first_schedules_hold_every_invariant() -> None:
    report = campaign.campaign(0, SCHEDULES, jobs=2)
    assert report.passed, report.text()
    stats = report.stats
    assert stats["schedules"] == SCHEDULES and set(report.faults) == set(FAULTS) and set(KINDS) <= set(report.kinds)
    rare = ("sent again", "lost or dropped", "trimmed", "marked", "QPs failed", "calm")
    assert all(stats[name] > 20 for name in rare), f"the schedules do not reach everything any more: {stats}"


def break_responder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break a responder: its Transport ACKs name one PSN too many, after three complete messages."""
    transport_ack = Responder.transport_ack

    def broken_ack(self: Responder) -> Any:
        ack = transport_ack(self)
        if ack is not None and ack.msn >= 3:
            ack.psn = ack.psn + 1 & 0xFFFFFF
        return ack

    monkeypatch.setattr(Responder, "transport_ack", broken_ack)


def test_campaign__stops_after_many_findings_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    break_responder(monkeypatch)
    report = campaign.campaign(0, 400, jobs=1)
    assert len(report.failures) >= campaign.STOP_AFTER and report.seeds < 400
    assert report.to_json()["passed"] is False and str(report.failures[0].seed) in report.text()
