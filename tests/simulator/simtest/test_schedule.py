"""Schedules as files, and faults that have a meaning each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mrc_testbed.simulator.simtest.run import MEANINGS, ORDERS
from mrc_testbed.simulator.simtest.schedule import FAULTS, Schedule, ScheduleError, draw

SEED = 7


def test_schedule_faults__have_a_meaning_each() -> None:
    assert set(FAULTS) == {*MEANINGS, *ORDERS, "restart", "destroy"}


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
        ({"extra": 1}, "Known keys: buggify"),
    ],
)
def test_schedule__says_what_is_wrong_in_a_file(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        Schedule.from_json({**draw(SEED).to_json(), **changes})
