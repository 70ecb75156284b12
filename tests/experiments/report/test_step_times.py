"""Step times of several runs side by side."""

from __future__ import annotations

from mrc_testbed.experiments.console_summary import summary_lines
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.report.page import measured_runs, report
from mrc_testbed.experiments.report.step_times import step_table
from mrc_testbed.experiments.runner import plan_runs, run_scenario
from mrc_testbed.experiments.traces.command import Replay, scenario_of
from tests.experiments.report.small_results import Quiet
from tests.repository import ROOT

TRACE = ROOT / "examples" / "traces" / "ring-step.goal"
FAULT = "cut p1-t0-0 p1-t1-1 at 0.5 s"


def results_of(tmp_path, replay: Replay):
    name, text = scenario_of(TRACE, replay, live=False)
    (tmp_path / f"{name}.yaml").write_text(text)
    plan = plan_runs(read(tmp_path / f"{name}.yaml"), "virtual")
    return run_scenario(plan, Quiet(), out=tmp_path / "out")


def test_a_comparison_is_a_table_on_the_console_and_on_the_page(tmp_path):
    summary = results_of(tmp_path, Replay(faults=(FAULT,), against=("rocev2",)))
    lines = [line for _, line in summary_lines(summary, 80)]
    head = next(line for line in lines if line.startswith("  step times, ms"))
    assert head.split()[3:] == ["steps", "median", "longest", "before", "fault", "in", "fault", "not", "computing"]
    head_index = lines.index(head)
    rows = [line.split() for line in lines[head_index + 1 : head_index + 3]]
    assert [row[0] for row in rows] == ["MRC", "RoCEv2"]
    for name, count, median_ms, longest_ms, before_ms, fault_ms, share, percent in rows:
        assert int(count) > 3 and float(longest_ms) >= float(median_ms) > 0, name
        assert float(before_ms) > 0 and float(fault_ms) > 0 and 0 < int(share) < 100 and percent == "%"
    assert max(map(len, lines)) <= 80
    (page,) = report(tmp_path / "out")
    text = (page.folder / "report.html").read_text()
    assert "<h2>Step times</h2>" in text and "in fault" in text
    assert "MRC and RoCEv2: time of an iteration, under a cut of p1-t0-0 p1-t1-1" in text
    assert "step.goal, replayed over MRC and RoCEv2: cut p1-t0-0 p1-t1-1 at 0.5 s" in text


def test_without_a_fault_there_are_no_columns_of_faults_and_a_single_run_has_a_sentence(tmp_path):
    summary = results_of(tmp_path, Replay(iterations=2))
    _, runs = measured_runs(tmp_path / "out")
    assert step_table(runs) == ([], [])
    assert any(line.startswith("  job: 2 iterations of ") for _, line in summary_lines(summary, 80))
    two_runs = [(name, {}, measurement) for (_, _, measurement) in runs for name in ("a", "b")]
    heads, rows = step_table(two_runs)
    assert heads == ["step times, ms", "steps", "median", "longest", "not computing"]
    assert [row[:2] for row in rows] == [["a", "2"], ["b", "2"]]


def test_a_run_without_a_step_is_said_to_have_none(tmp_path):
    results_of(tmp_path, Replay(iterations=2))
    _, runs = measured_runs(tmp_path / "out")
    (_, _, measurement), *_ = runs
    measurement.outcome.collectives[0].iterations.clear()
    _, rows = step_table([("a", {}, measurement), ("b", {}, measurement)])
    assert rows[0][1] == "0 of 2" and "–" in rows[0]
