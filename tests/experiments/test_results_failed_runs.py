"""Failed runs are shown as failed by all readers of results, and are in no median, mean or interval."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.experiments.compare import differences
from mrc_testbed.experiments.console_summary import summary_lines
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.report.page import report
from mrc_testbed.experiments.report.summary import summary
from mrc_testbed.experiments.results import Results
from mrc_testbed.experiments.runner import RunReport, plan_runs, run_scenario
from mrc_testbed.experiments.study.tables import as_csv
from tests.experiments.report.small_results import Quiet

LUCK = """\
title: One link of ten is cut, and four of them are this flow's only way
fabric: {planes: 1, racks: 2, spines: 1, hosts_per_rack: 4}
workload: [{stream: h0 h4, name: flow, message: 4K}]
transport: {config: {linear_cnt: 1, exp_cnt: 1}}
duration: 3s
faults: [{at: 1s, cut: {random: links, count: 1}}]
measure: {every: 250ms}
repeat: 8
expect: [{metric: rate.flow, at_least: 1}]
figures: [{kind: bars, metric: rate.flow}, {kind: rate_over_time, metric: rate.flow}]
"""


@pytest.fixture(scope="module")
def run_report(tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    folder = tmp_path_factory.mktemp("luck")
    (folder / "luck.yaml").write_text(LUCK)
    report = run_scenario(plan_runs(read(folder / "luck.yaml"), "virtual"), Quiet(), out=folder / "out")
    assert 0 < len(report.causes) < 8, "the seeds are to break some of the runs, and not all"
    return report


def whole_rates(run_report: RunReport) -> list[float]:
    return [
        outcome.metrics["rate.flow"] or 0.0 for run, outcome in run_report.runs if run.name not in run_report.causes
    ]


def test_no_repeat_that_failed_is_in_a_median(run_report):
    values = whole_rates(run_report)
    assert not run_report.passed
    for spread in run_report.repeats:
        if spread.subject == "rate.flow" or "rate.flow" in spread.subject:
            assert sorted(spread.values) == sorted(values) and spread.failed == 8 - len(values)
            assert f"{8 - len(values)} failed" in spread.text()


def test_the_console_begins_with_the_first_causes(run_report):
    lines = [line.strip() for _, line in summary_lines(run_report, 100)]
    assert lines[0].startswith("FAILED") and lines[1].startswith("first cause  flow: h0's QP to h4 died at ")


def test_compare_tells_failed_runs_and_counts_the_others(run_report):
    assert run_report.folder is not None
    data = differences(run_report.folder, run_report.folder)
    assert data["failed"] == {"a": run_report.causes, "b": run_report.causes}
    (row,) = (row for row in data["rows"] if row["metric"] == "rate.flow")
    assert row["a"] == row["b"] == median(whole_rates(run_report))


def test_the_page_and_the_summary_tell_them_apart(run_report):
    assert run_report.folder is not None
    (page,) = report(run_report.folder)
    text = (run_report.folder / "report.html").read_text()
    assert not page.passed
    for run, cause in run_report.causes.items():
        assert f"{run} failed" in text and cause.replace("'", "&#39;") in text
    bars = next((run_report.folder / "figures").glob("figure1*.svg")).read_text()
    assert f"{median(whole_rates(run_report)) / 1e6:.3g}" in bars or f"{median(whole_rates(run_report)):.3g}" in bars
    assert f"{len(run_report.causes)} runs failed" in summary([run_report.folder])


def test_a_run_says_on_disk_why_it_failed(run_report):
    assert run_report.folder is not None
    _, outcomes = Results.open(run_report.folder)
    assert {outcome.name: outcome.cause for outcome in outcomes if outcome.cause} == run_report.causes
    assert json.loads((run_report.folder / "manifest.json").read_text())["passed"] is False


def test_a_study_counts_failed_seeds_and_has_none_of_them_in_its_intervals(tmp_path: Path, run_report):
    (tmp_path / "luck.yaml").write_text(LUCK.replace("repeat: 8\n", ""))
    study = "title: luck\nscenario: luck.yaml\nseeds: {first: 1, min: 8, max: 8}\nmetrics: [{metric: rate.flow}]\n"
    (tmp_path / "study.yaml").write_text(study)
    result = CliRunner().invoke(app, ["study", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "out"), "--json"])
    assert result.exit_code == 1
    summary = json.loads((tmp_path / "out" / "manifest.json").read_text())["study"]
    (point,) = summary["points"]
    values = whole_rates(run_report)
    assert point["failed"] == list(run_report.causes.values())
    assert point["metrics"]["rate.flow"]["values"] == len(values)
    assert point["metrics"]["rate.flow"]["estimate"] == pytest.approx(sum(values) / len(values))
    assert as_csv(summary).splitlines()[1].split(",")[-3] == str(8 - len(values))
