"""Bars of faults: each lasts until what ends it."""

from __future__ import annotations

import pytest

from mrc_testbed.experiments.backend.outcome import Outcome, Series
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.report.faults import ROWS_MAX, fault_bars, faults_in_words


def fault(t: float, number: int, action: str, arguments: str, undo: int | None = None) -> dict:
    text = f"{'end of ' if undo is not None else ''}{action.replace('_', ' ')} {arguments}"
    return {"t": t, "what": "fault", "number": number, "action": action, "undo": undo, "text": text}


def test_faults_last_until_what_ends_them():
    outcome = Outcome("s", "run", {}, "virtual", 1, 0, "srv6", 1e6, duration_s=20.0, series=Series(0.1))
    outcome.events = [
        fault(-0.05, 0, "silent", "a b"),
        fault(1, 1, "cut", "c d"),
        fault(2, 2, "power_off", "p0-t1-0"),
        fault(3, 3, "cut", "c d", 1),
        fault(4, 4, "power_on", "p0-t1-0"),
        fault(5, 5, "cut", "e f"),
        fault(6, 6, "restore", "e f"),
        fault(7, 7, "flap", "g h down=0.5 up=0.5 times=3"),
        fault(8, 8, "reboot", "x"),
        fault(9, 9, "controller", "kill"),
        fault(11, 10, "controller", "start"),
        fault(12, 11, "loss", "a b rate=0.1"),
        fault(13, 12, "heal", "True"),
        fault(15, 13, "cut", "c d"),
    ]
    # An undo ends one fault; power_on, restore, start and heal end those of their target; a flap ends itself
    assert fault_bars(Measurement(outcome, None)) == {
        "silent a b": [(0.0, 13)],
        "cut c d": [(1, 3), (15, 20.0)],
        "power off p0-t1-0": [(2, 4)],
        "cut e f": [(5, 6)],
        "flap g h down=0.5 up=0.5 times=3": [(7, 10.0)],
        "reboot x": [(8, 8.0)],
        "controller kill": [(9, 11)],
        "loss a b rate=0.1": [(12, 13)],
    }
    outcome.events = [fault(n, n, "one_way", f"l{n} m") for n in range(ROWS_MAX + 1)]
    assert list(fault_bars(Measurement(outcome, None))) == ["one way"]


@pytest.mark.parametrize(
    ("events_by_run", "words"),
    [
        ([[]], ""),
        ([[("cut", "a b")]], "under a cut of a b"),
        ([[("cut", "a b, c d, e f")]], "under a cut of 3 links"),
        ([[("power_off", "p0-t1-0")]], "under power off p0-t1-0"),
        ([[("blackhole", "x, y")]], "under blackhole x and 1 more"),
        ([[("cut", "a b"), ("cut", "c d")]] * 2, "under 2 faults"),
        ([[("cut", "a b")], []], "each under its own faults"),
    ],
)
def test_faults_in_words__are_those_that_all_runs_have(events_by_run, words):
    measurements = []
    for events in events_by_run:
        outcome = Outcome("s", "run", {}, "virtual", 1, 0, "srv6", 1e6, duration_s=20.0, series=Series(0.1))
        outcome.events = [fault(float(n), n, *event) for n, event in enumerate(events)]
        measurements.append(Measurement(outcome, None))
    assert faults_in_words(measurements) == words
