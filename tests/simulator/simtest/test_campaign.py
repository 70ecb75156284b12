"""The CI-sized run of simulation testing, and the machinery around it: replay, shrinking, files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mrc_testbed.hosts.engine.responder import Responder
from mrc_testbed.simulator.simtest import campaign, command
from mrc_testbed.simulator.simtest.invariants import INVARIANTS
from mrc_testbed.simulator.simtest.run import MEANINGS, ORDERS, simulate
from mrc_testbed.simulator.simtest.schedule import FAULTS, KINDS, Schedule, ScheduleError, draw
from mrc_testbed.simulator.simtest.shrink import shrink

SCHEDULES = int(os.environ.get("MRC_SCHEDULES", "250"))
"""Twice what it takes to reach everything that is asked of the statistics below; `mrc simtest` runs 2,000 and more."""
SEED = 7


def test_schedule_faults__have_a_meaning_each() -> None:
    assert set(FAULTS) == {*MEANINGS, *ORDERS, "restart", "destroy"}


def test_campaign__the_first_schedules_hold_every_invariant() -> None:
    report = campaign.campaign(0, SCHEDULES, jobs=2)
    assert report.passed, report.text()
    stats = report.stats
    assert stats["schedules"] == SCHEDULES and set(report.faults) == set(FAULTS) and set(KINDS) <= set(report.kinds)
    rare = ("sent again", "lost or dropped", "trimmed", "marked", "QPs failed", "calm")
    assert all(stats[what] > 20 for what in rare), f"the schedules do not reach everything any more: {stats}"


@pytest.mark.parametrize("seed", [3, SEED, 31])
def test_run__repeats_bit_for_bit(seed: int) -> None:
    first, second = (simulate(draw(seed), keep=True).simulation for _ in range(2))
    assert first is not None and second is not None
    assert first.fabric.state_digest() == second.fabric.state_digest() and first.stats() == second.stats()


def test_wire__the_bytes_on_the_wire_change_nothing() -> None:
    schedule = next(s for s in map(draw, range(1000)) if not s.network["wire"] and not s.faults and s.posts)
    framed = replace(schedule, network={**schedule.network, "wire": True})
    assert simulate(schedule).stats == simulate(framed).stats


def test_schedule__goes_through_json() -> None:
    for seed in range(50):
        schedule = draw(seed)
        assert Schedule.from_json(json.loads(schedule.dumps())) == schedule


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"plan": {"planes": 99}}, "planes"),
        ({"config": {"no_such_key": 1}}, "no key no_such_key"),
        ({"qps": [["h0", "h77"]]}, "no host h77"),
        ({"faults": [{"kind": "gremlins", "where": "h0", "at": 0, "until": 1}]}, "no fault 'gremlins'"),
        ({"posts": [{"at": 0, "qp": 9, "side": 0, "size": 1}]}, "does not exist"),
        ({"posts": [{"size": 1}]}, "missing"),
        ({"faults": [{"kind": "destroy", "where": "h0", "at": 0, "until": 0, "value": 9}]}, "does not exist"),
        ({"extra": 1}, "has the keys"),
    ],
)
def test_schedule__says_what_is_wrong_in_a_file(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        Schedule.from_json({**draw(SEED).to_json(), **changes})


def break_responder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transport ACKs name one PSN too many, once three messages are complete."""
    good = Responder.transport_ack

    def broken(self: Responder) -> Any:
        ack = good(self)
        if ack is not None and ack.msn >= 3:
            ack.psn = ack.psn + 1 & 0xFFFFFF
        return ack

    monkeypatch.setattr(Responder, "transport_ack", broken)


def test_shrink__leaves_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    break_responder(monkeypatch)
    seed = next(seed for seed in range(100) if simulate(draw(seed)).violation and draw(seed).faults)
    small, result, runs = shrink(draw(seed), limit=300)
    assert result.violation is not None and result.violation.invariant == "claims" and runs <= 300
    assert len(small.posts) == 3 and not small.faults and not small.config and len(small.qps) == 1
    assert Schedule.from_json(json.loads(small.dumps())) == small


def test_shrink__needs_a_failure() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(draw(SEED))


def test_command__a_failing_seed_is_told_shrunk_and_replayed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    break_responder(monkeypatch)
    seed = next(seed for seed in range(100) if simulate(draw(seed)).violation)
    assert command.simtest(1, seed, None, None, 1, False, False) == 1
    assert f"mrc simtest --seed {seed}" in capsys.readouterr().out
    assert command.simtest(1, 0, seed, None, 1, False, False) == 1
    told = capsys.readouterr().out
    assert INVARIANTS["claims"] in told and "--replay" in told and "TransportAck" in told
    [file] = tmp_path.glob("*.json")
    assert command.simtest(1, 0, None, file, 1, False, True) == 1
    assert json.loads(capsys.readouterr().out)["failure"]["invariant"] == "claims"
    monkeypatch.undo()
    assert command.simtest(1, 0, None, file, 1, False, False) == 0


def test_command__a_bad_file_is_an_error_not_a_traceback(tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text("{")
    with pytest.raises(ScheduleError, match=r"bad\.json"):
        command.simtest(1, 0, None, file, 1, False, False)


def test_campaign__stops_after_many_findings_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    break_responder(monkeypatch)
    report = campaign.campaign(0, 400, jobs=1)
    assert len(report.failures) >= campaign.STOP_AFTER and report.seeds < 400
    assert report.to_json()["passed"] is False and str(report.failures[0].seed) in report.text()
