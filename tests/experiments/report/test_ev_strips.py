"""Strips of the paths of every flow: lanes of EVs in every mode, and hours of changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrc_testbed.experiments.backend.outcome import FlowOutcome, Outcome, Series
from mrc_testbed.experiments.language.model import MODES
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.report import ev_strips
from mrc_testbed.experiments.report.page import measured_runs
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner
from tests.experiments.report.small_results import RULES_SCENARIO


def test_every_path_of_a_flow_has_its_states(results_dir):
    _, runs = measured_runs(results_dir)
    lanes = ev_strips.lanes(runs[0][2])
    assert [(lane.plane, lane.t1) for lane in lanes] == [(p, f"p{p}-t1-{k}") for p in (0, 1) for k in (0, 1)]
    assert [[state for _, _, state in lane.spans] for lane in lanes] == [["good", "assumed_bad"], *[["good"]] * 3]
    begin, _, _ = lanes[0].spans[1]
    assert 0.4 < begin < 0.7 and lanes[0].spans[-1][1] == 1.0
    rows = ev_strips.by_path(lanes)
    assert next(iter(rows)) == "plane 0 by p0-t1-0"
    assert ev_strips.shares(rows["plane 0 by p0-t1-0"]) == ([0.0, begin, 1.0], {"assumed_bad": [0.0, 1.0, 0.0]})
    svg = ev_strips.flow_svg("flow:h0-h1", lanes, runs[0][2])
    assert (
        svg.count("<rect") == 5
        and svg.count("<title>ASSUMED_BAD") == 1
        and svg.count("<polyline") == 4
        and "ASSUMED_BAD from" in svg
    )


def lane_of(folder: Path, events: list[dict], state: str = "good") -> list[tuple[float, float, str]]:
    """Return the one lane of an outcome with these events, 10 s long."""
    _, runs = measured_runs(folder)
    outcome = Outcome("s", "run", {}, "virtual", 1, 0, "srv6", 1e6, duration_s=10.0, series=Series(0.1), events=events)
    outcome.flows = [FlowOutcome("flow", "h0", "h1", 1, 1024)]
    outcome.note_evs("flow:h0-h1", 3, [[0x100, 1, state]])
    (lane,) = ev_strips.lanes(Measurement(outcome, runs[0][2].plan))
    return lane.spans


def state_change(t: float, old_state: str, new_state: str) -> dict:
    ev = {"host": "h0", "qpn": 3, "peer": "h1", "ev": 0x100, "plane": 1}
    return {"t": t, "what": "ev", "old": old_state, "new": new_state, "cause": "c", **ev}


def port(t: float, is_up: bool, peer: str | None = None, host: str = "h0") -> dict:
    return {"t": t, "what": "plane", "host": host, "peer": peer, "plane": 1, "up": is_up}


@pytest.mark.parametrize(
    ("events", "state", "spans"),
    [
        ([], "denied", [(0.0, 10.0, "denied")]),
        ([state_change(2, "skip", "assumed_bad")], "skip", [(0.0, 2, "good"), (2, 10.0, "assumed_bad")]),
        ([state_change(-0.1, "good", "assumed_bad")], "assumed_bad", [(0.0, 10.0, "assumed_bad")]),
        (
            [state_change(2, "good", "assumed_bad"), state_change(3, "assumed_bad", "skip")],
            "good",
            [(0.0, 2, "good"), (2, 3, "assumed_bad"), (3, 10.0, "good")],
        ),
        ([port(4, False), port(5, True)], "good", [(0.0, 4, "good"), (4, 5, "port_down"), (5, 10.0, "good")]),
        ([port(4, False, "h1"), port(5, True, "h3")], "good", [(0.0, 4, "good"), (4, 10.0, "port_down")]),
        ([port(4, False, None, "h1")], "good", [(0.0, 10.0, "good")]),
        (
            [{"t": 7, "what": "qp_error", "host": "h0", "qpn": 3, "peer": "h1", "text": "x"}],
            "good",
            [(0.0, 7, "good"), (7, 10.0, "failed")],
        ),
    ],
)
def test_a_lane_is_what_its_ev_and_ports_were(results_dir, events, state, spans):
    assert lane_of(results_dir, events, state) == spans


@pytest.mark.parametrize("mode", MODES)
def test_lanes__in_every_mode(tmp_path, mode):
    """Once the page of a run in stev mode ended with `EV 0x0001 names no path`."""
    path = tmp_path / "mine.yaml"
    path.write_text(RULES_SCENARIO.replace("spines: 1", "spines: 2") + f"mode: {mode}\n")
    plan = plan_runs(read(path), "virtual").runs[0]
    lanes = ev_strips.lanes(Measurement(VirtualRunner().run(plan), plan))
    switches = {lane.t1 for lane in lanes}
    every_t1 = {f"p{plane}-t1-{spine}" for plane in (0, 1) for spine in (0, 1)}
    if mode == "stev":  # virtual switches have a field layout of their own
        assert switches <= {"", *every_t1}
    else:
        assert switches == (every_t1 if mode == "srv6" else {"p0-t1-*", "p1-t1-*"})


def test_an_hour_of_changes_makes_no_huge_picture(results_dir):
    _, runs = measured_runs(results_dir)
    outcome = Outcome("s", "run", {}, "virtual", 1, 0, "srv6", 1e6, duration_s=3600.0, series=Series(5.0))
    turns = [("good", "assumed_bad"), ("assumed_bad", "good")]
    outcome.events = [state_change(n / 4, *turns[n % 2]) for n in range(14_000)]
    outcome.note_evs("flow:h0-h1", 3, [[0x100, 1, "good"]])
    measurement = Measurement(outcome, runs[0][2].plan)
    lanes = ev_strips.lanes(measurement)
    edges, bad_shares = ev_strips.shares(lanes)
    assert len(edges) == ev_strips.EDGES_MAX + 1
    assert bad_shares["assumed_bad"][100] == pytest.approx(0.5, abs=0.05) and bad_shares["assumed_bad"][-5] == 0
    assert len(ev_strips.flow_svg("flow:h0-h1", lanes, measurement)) < 20_000
