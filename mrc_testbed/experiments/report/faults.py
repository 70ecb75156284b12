"""Faults of a run as lines and bars: times of start and end, from the run's events."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from mrc_testbed.experiments.metrics.metric_values import Measurement

ENDING = ("restore", "heal", "power_on")
"""Actions that end faults rather than start one."""
ROWS_MAX = 12
"""Most bars with a row of their own; with more, a row is a kind of fault."""
MARKS_MAX = 40
"""Most lines of starts and ends; more would hide the curves."""
Bar = tuple[float, float]


def fault_times(measurement: Measurement) -> list[tuple[float, str, bool]]:
    """Return (seconds, text, is start) of every fault event of a run, from the run's start on."""
    return [
        (event["t"], event["text"], _is_start(event))
        for event in measurement.outcome.events
        if event["what"] == "fault" and event["t"] >= 0
    ]


def faults_in_words(measurements: Iterable[Measurement]) -> str:
    """Return the faults of some runs for a title: `under a cut of p1-t0-0 p1-t1-1`; empty without faults."""
    texts_by_run = [
        tuple(dict.fromkeys(text for _, text, is_start in fault_times(measurement) if is_start))
        for measurement in measurements
    ]
    if len(set(texts_by_run)) > 1:
        return "each under its own faults"
    texts = texts_by_run[0] if texts_by_run else ()
    if len(texts) > 1:
        return f"under {len(texts)} faults"
    if not texts:
        return ""
    kind, _, location = texts[0].partition(" ")
    count = location.count(",") + 1
    if kind == "cut":
        return f"under a cut of {location if count == 1 else f'{count} links'}"
    return f"under {texts[0]}" if count == 1 else f"under {texts[0].split(',')[0]} and {count - 1} more"


def _is_start(event: dict[str, Any]) -> bool:
    return event["undo"] is None and event["action"] not in ENDING and bool(event["text"] != "controller start")


def spans_of(measurement: Measurement) -> list[tuple[dict[str, Any], float, float]]:
    """Return (begin event, from, until) of every fault, seconds within the run, in order of begin."""
    end = measurement.outcome.duration_s
    bars: list[tuple[dict[str, Any], float]] = []
    running: list[dict[str, Any]] = []
    for event in measurement.outcome.events:
        if event["what"] != "fault":
            continue
        if not _is_start(event):
            for ended_fault in [active_fault for active_fault in running if _ends(event, active_fault)]:
                running.remove(ended_fault)
                bars.append((ended_fault, event["t"]))
        elif (lasts := _lasts(event)) is not None:
            bars.append((event, event["t"] + lasts))
        else:
            running.append(event)
    bars += [(event, end) for event in running]
    bars.sort(key=lambda bar: bar[0]["t"])
    return [(event, max(0.0, event["t"]), min(max(stop, 0.0), end)) for event, stop in bars]


def fault_bars(measurement: Measurement) -> dict[str, list[Bar]]:
    """Return fault in words -> (start, stop) of its spans; by kind of fault (`cut`) when there are many."""
    spans = spans_of(measurement)
    is_long = len({event["text"] for event, _, _ in spans}) > ROWS_MAX
    out: dict[str, list[Bar]] = {}
    for event, start, stop in spans:
        label = event["action"].replace("_", " ") if is_long else event["text"]
        out.setdefault(label, []).append((start, stop))
    return out


def _lasts(event: dict[str, Any]) -> float | None:
    """Return the seconds of a fault that ends by itself; None for a permanent one."""
    if event["action"] == "reboot":
        return 0.0
    values = {key: float(value) for key, value in re.findall(r"\b(down|up|times)=([0-9.e-]+)", event["text"])}
    if event["action"] == "flap" and {"down", "up", "times"} <= set(values):
        return values["times"] * (values["down"] + values["up"])
    return None


def _ends(event: dict[str, Any], fault: dict[str, Any]) -> bool:
    """Return whether `event` ends `fault`: an undo, restored links, a switch powered on, or a heal."""
    if event["undo"] is not None:
        return bool(event["undo"] == fault["number"])
    action, text, fault_text = str(event["action"]), str(event["text"]), str(fault["text"])
    match action:
        case "heal":
            return True
        case "restore":
            return text.removeprefix("restore ") in fault_text
        case "power_on":
            return fault["action"] == "power_off" and fault_text.endswith(text.removeprefix("power on"))
        case "controller":
            return bool(fault["action"] == "controller")
    return False
