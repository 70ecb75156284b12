"""The time line of a run: its rows, its axis, and its width."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.metrics.assertions import describe
from mrc_testbed.experiments.resolve.run_timeline import FAULTS_MAX, Timeline, timeline_of
from mrc_testbed.experiments.runner import plan_runs, plan_to_show
from tests.repository import ROOT

TEXT = """\
title: time
fabric: {planes: 2}
links: {rate: 10M}
workload:
  - {stream: h0 h2, name: flow, start: 1s}
  - {stream: h1 h3, name: short, bytes: 1M}
  - {collective: all_reduce, size: 1M, ranks: [h0, h2], name: job, iterations: 3, warm_up: 1}
duration: 10s
faults:
  - {at: 2s, cut: p0-t0-0 p0-t1-0, for: 3s}
  - {at: 50%, loss: {link: p1-t0-0 p1-t1-0, rate: 1%}, for: 1s}
  - {at: 6s, power_off: p1-t1-1}
  - {at: 7s, restore: p0-t0-0 p0-t1-0}
expect:
  - {metric: rate.flow, at_least: 0.9, of: baseline, from: 2s, to: 5s}
  - {metric: lost, at_most: 9}
"""


def timeline(folder: Path, text: str = TEXT) -> Timeline:
    path = folder / "time.yaml"
    path.write_text(text)
    return timeline_of(plan_runs(read(path), "virtual").runs[0], describe)


def test_rows__have_begin_and_end_of_each_part(tmp_path: Path) -> None:
    rows = timeline(tmp_path).rows
    spans = [(row.kind, row.text.partition(",")[0], row.begin_s, row.end_s) for row in rows]
    assert [span for span in spans if span[0] != "work"] == [
        ("fabric", "fabric: 2 planes x (2 T0 + 2 T1)", 0.0, 10.0),
        ("fault", "cut p0-t0-0 p0-t1-0", 2.0, 5.0),
        ("fault", "power off p1-t1-1", 6.0, 10.0),
        ("fault", "restore p0-t0-0 p0-t1-0", 7.0, None),
        ("fault", "loss p1-t0-0 p1-t1-0 rate=0.01 direction=both", 5.0, 6.0),
        ("rule", "rule: rate.flow at least 0.9 of baseline from 2s to 5s", 2.0, 5.0),
    ]
    flow, limited_flow, job = (row for row in rows if row.kind == "work")
    assert (flow.text, flow.begin_s, flow.end_s, flow.is_estimated) == ("flow: h0 to h2, 1 s to 10 s", 1.0, 10.0, False)
    assert limited_flow.is_estimated and limited_flow.end_s == pytest.approx(0.42, rel=0.2)
    assert job.is_estimated and "all_reduce of 1 MiB, 2 ranks, 4 iterations, 0 s to at least" in job.text


def test_run__without_duration_ends_with_its_work_or_faults(tmp_path: Path) -> None:
    text = "title: t\nfabric: {planes: 2}\nworkload: [{stream: h0 h2, bytes: 1M}]\nfaults: [{at: 2s, drain: 1}]\n"
    line = timeline(tmp_path, text)
    assert (line.end_s, line.is_estimated) == (pytest.approx(2.2), True)


@pytest.mark.parametrize("width", [40, 72, 100, 200])
def test_lines__fit_and_have_an_axis_with_units(tmp_path: Path, width: int) -> None:
    labels, axis, *bars = timeline(tmp_path).lines(width)
    assert max(map(len, [labels, axis, *bars])) <= width
    assert labels.startswith("0 s ") and labels.split()[-1] == "s" and axis.startswith("+-")
    # Each label begins at its mark, and bars lie at their part of the axis.
    assert all(axis[column] == "+" for column in (0, labels.rindex(" ", 0, len(labels) - 2) + 1))
    columns = len(axis)
    cut = next(line for line in bars if line[columns:].strip().startswith("cut"))[:columns]
    assert (cut.index("#") / (columns - 1), cut.rindex("#") / (columns - 1)) == pytest.approx((0.2, 0.5), abs=0.05)
    restore = next(line for line in bars if line[columns:].strip().startswith("restore"))
    assert restore[:columns].strip() == "|"


def test_lines__of_many_faults_say_how_many_more(tmp_path: Path) -> None:
    faults = "".join(f"  - {{at: {n / 10}s, cut: p0-t0-0 p0-t1-0, for: 50ms}}\n" for n in range(FAULTS_MAX + 3))
    text = TEXT[: TEXT.index("faults:")] + "faults:\n" + faults
    lines = timeline(tmp_path, text).lines(100)
    assert lines[-1].strip() == "3 more faults (--json)"
    assert sum("#" in line for line in lines) == FAULTS_MAX


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").glob("[hmx]*.yaml")), ids=lambda path: path.stem)
def test_scenario__of_the_testbed_has_a_time_line(path: Path) -> None:
    line = timeline_of(plan_to_show(read(path)).runs[0], describe)
    assert all(0 <= row.begin_s <= (row.end_s or line.end_s) <= line.end_s for row in line.rows)


def test_show__json_has_the_time_line(tmp_path: Path) -> None:
    timeline(tmp_path)
    result = CliRunner().invoke(app, ["scenario", "show", str(tmp_path / "time.yaml"), "--json"])
    data = json.loads(result.output)["timeline"]
    assert data["end_s"] == 10.0 and {row["kind"] for row in data["rows"]} == {"fabric", "work", "fault", "rule"}
