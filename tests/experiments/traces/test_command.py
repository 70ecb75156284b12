"""`mrc run --trace`: the scenario around a trace, with phrases of faults and baselines."""

from __future__ import annotations

import json

import pytest

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.traces.command import BASELINES, MRC, VARIANTS, Replay, scenario_of
from tests.repository import ROOT


def trace_of(tmp_path, calc_ns: int = 50_000_000):
    trace = tmp_path / "step.goal"
    trace.write_text(
        f"num_ranks 2\nrank 0 {{\na: calc {calc_ns}\nb: send 4096b to 1 tag 3\nb requires a\n}}\n"
        "rank 1 {\nc: recv 4096b from 0 tag 3\n}\n"
    )
    return trace


def test_replay__with_faults_and_baselines_is_a_scenario_that_reads(tmp_path):
    replay = Replay(faults=("cut p1-t0-0 p1-t1-1 at 1 s",), against=tuple(BASELINES))
    name, text = scenario_of(trace_of(tmp_path), replay, live=False)
    (tmp_path / f"{name}.yaml").write_text(text)
    runs = plan_runs(read(tmp_path / f"{name}.yaml"), "virtual").runs
    assert [run.label["variant"] for run in runs] == [MRC, *VARIANTS.values()]
    assert list(VARIANTS) == list(BASELINES)
    # Enough steps that the fault is among them.
    assert runs[0].iterations["job"] * 0.05 > 1.0
    title = json.loads(text)["title"]
    assert title.startswith("step.goal, replayed over MRC, RoCEv2, ") and title.endswith(": cut p1-t0-0 p1-t1-1 at 1 s")


@pytest.mark.parametrize(
    ("replay", "title"),
    [
        (Replay(), "step.goal, replayed"),
        (Replay(against=("rocev2",)), "step.goal, replayed over MRC and RoCEv2"),
        (
            Replay(faults=("cut p1-t0-0 p1-t1-1 at 1 s", "cut p1-t0-0 p1-t1-0 at 1 s")),
            "step.goal, replayed under 2 faults",
        ),
    ],
)
def test_replay__says_in_its_title_what_is_compared(tmp_path, replay, title):
    assert json.loads(scenario_of(trace_of(tmp_path), replay, live=False)[1])["title"] == title


@pytest.mark.parametrize(
    ("replay", "words"),
    [
        (Replay(faults=("cut p1-t0-0 p1-t1-1 at 1 h",)), "100 steps of "),
        (Replay(against=("rocev1",)), "--against rocev1: no such baseline (did you mean rocev2?)"),
    ],
)
def test_replay__that_cannot_be_says_why(tmp_path, replay, words):
    with pytest.raises(UsageError) as refusal:
        scenario_of(trace_of(tmp_path), replay, live=False)
    assert words in str(refusal.value)


def test_replay__of_a_workload_over_all_transports_is_a_scenario_that_reads(tmp_path):
    replay = Replay(against=("rocev2", "flow-ecmp", "switch-spray"), size_scale=0.5)
    name, text = scenario_of(ROOT / "examples" / "traces" / "simai.txt", replay, live=False)
    (tmp_path / f"{name}.yaml").write_text(text)
    runs = plan_runs(read(tmp_path / f"{name}.yaml"), "virtual").runs
    assert [run.label["variant"] for run in runs] == [MRC, "RoCEv2", "flow-ECMP", "switch spraying"]


def test_ranks__are_kept_for_the_scenario_and_refused_where_the_trace_says_them(tmp_path):
    workload = tmp_path / "micro.txt"
    workload.write_text("MICRO\n1\nar -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 4096 5\n")
    name, text = scenario_of(workload, Replay(ranks=4), live=False)
    (tmp_path / f"{name}.yaml").write_text(text)
    assert json.loads(text)["workload"][0]["ranks"] == 4
    assert len(plan_runs(read(tmp_path / f"{name}.yaml"), "virtual").runs) == 1
    with pytest.raises(UsageError, match="--ranks 4: the trace has 2 ranks"):
        scenario_of(trace_of(tmp_path), Replay(ranks=4), live=False)
