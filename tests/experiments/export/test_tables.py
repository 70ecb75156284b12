"""Results as Parquet and frames.

Read by pandas and DuckDB, they are what the JSON and CSV files of the runs say.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path

import pytest

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.export.tables import Rows, frame, write_parquet
from mrc_testbed.experiments.results import ResultsError
from tests.experiments.export.ring_scenario import RINGS
from tests.experiments.report.small_results import make

pandas = pytest.importorskip("pandas", reason="`make test` installs the extra `data`")
pytest.importorskip("pyarrow", reason="`make test` installs the extra `data`")

STREAM = """\
title: a stream over a cut
fabric: {planes: 2, racks: 2, spines: 1, hosts_per_rack: 1}
links: {rate: 5M}
workload: [{stream: h0 h1, name: flow, message: 16K, depth: $depth}]
sweep: {depth: [1, 2]}
duration: 300ms
faults: [{at: 100ms, cut: p0-t0-0 p0-t1-0}]
measure: {every: 50ms, latency: true, queues: [p0-t0-1-eth1]}
"""


@pytest.fixture(scope="module")
def results_dir(tmp_path_factory) -> Path:
    """A folder of two folders of results; that of the stream has two seeds."""
    base = tmp_path_factory.mktemp("made")
    make(base / "rings", RINGS)
    make(base / "stream", STREAM, repeat=2)
    return base


def read_runs(base: Path):
    """(folder, outcome as JSON, rows of its CSV file) of every run."""
    for manifest in sorted(base.glob("*/out/manifest.json")):
        for run in json.loads(manifest.read_text())["runs"]:
            path = manifest.parent / run["file"]
            with path.with_suffix(".csv").open() as file:
                yield str(manifest.parent), json.loads(path.read_text()), list(csv.DictReader(file))


def agrees(value: float | None, text: float | str | None) -> bool:
    missing = value is None or math.isnan(value)
    return missing if text in (None, "") else not missing and value == float(text)


def test_parquet__is_what_json_and_csv_say(results_dir, tmp_path):
    count = write_parquet([results_dir], tmp_path / "all.parquet")
    table = pandas.read_parquet(tmp_path / "all.parquet")
    assert len(table) == count
    checked = 0
    for folder, run, rows in read_runs(results_dir):
        run_table = table[(table.folder == folder) & (table.run == run["name"])]
        assert set(run_table.seed) == {run["seed"]} and set(run_table.repeat) == {run["repeat"]}
        assert (
            set(run_table["where"]) == {"virtual"}
            and not run_table.target.notna().any()
            and not run_table.overloaded.any()
        )
        metric_table = run_table[run_table.time_s.isna()]
        values = dict(zip(metric_table.metric, metric_table.value, strict=True))
        assert list(values) == list(run["metrics"])
        assert all(agrees(values[name], value) for name, value in run["metrics"].items())
        assert (metric_table.unit != "").all()
        series = run_table[run_table.time_s.notna()]
        for name in rows[0]:
            if name != "time_s":
                column = series[series.metric == name]
                assert [agrees(a, row["time_s"]) for a, row in zip(column.time_s, rows, strict=True)] == [True] * len(
                    rows
                )
                assert all(agrees(value, row[name]) for value, row in zip(column.value, rows, strict=True)), name
        iteration_rows = [
            (i["finished_s"], i["finished_s"] - i["started_s"]) for c in run["collectives"] for i in c["iterations"]
        ]
        # Iterations have no column in the CSV file: the JSON file alone holds them
        iterations = series[series.metric.str.startswith("iteration_s")]
        assert list(zip(iterations.time_s, iterations.value, strict=True)) == iteration_rows
        checked += len(metric_table) + len(rows) * (len(rows[0]) - 1) + len(iteration_rows)
    assert checked == count > 500


def test_parquet__labels_of_runs_are_columns_of_their_type(results_dir, tmp_path):
    write_parquet([results_dir], tmp_path / "all.parquet")
    table = pandas.read_parquet(tmp_path / "all.parquet")
    runs = table.drop_duplicates(["folder", "run"])
    rings, stream = runs[runs.folder.str.contains("rings")], runs[runs.folder.str.contains("stream")]
    assert sorted(zip(rings.variant, rings.sweep_kind, strict=True)) == [
        ("mrc", "all_gather"),
        ("mrc", "all_reduce"),
        ("roce-1", "all_gather"),
        ("roce-1", "all_reduce"),
    ]
    assert rings.sweep_depth.isna().all() and stream.variant.isna().all()
    assert sorted(zip(stream.sweep_depth, stream.repeat, strict=True)) == [(1.0, 0), (1.0, 1), (2.0, 0), (2.0, 1)]
    assert table.sweep_depth.dtype == "float64"


def test_parquet__duckdb_reads_the_same(results_dir, tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="`make test` installs the extra `data-tests`")
    file = tmp_path / "all.parquet"
    count = write_parquet([results_dir], file)
    assert duckdb.sql(f"select count(*) from '{file}'").fetchall() == [(count,)]
    query_rows = duckdb.sql(
        f"select folder, run, value from '{file}' where metric = 'busbw.ring' and time_s is null and value is not null"
    ).fetchall()
    file_rows = [(folder, run["name"], run["metrics"].get("busbw.ring")) for folder, run, _ in read_runs(results_dir)]
    assert sorted(query_rows) == sorted(row for row in file_rows if row[2] is not None) and len(query_rows) == 4


def test_frame__one_kind_of_rows_or_the_other(results_dir, tmp_path):
    numbers, series = frame([results_dir], Rows.METRICS), frame([results_dir], Rows.SERIES)
    assert numbers.time_s.isna().all() and series.time_s.notna().all()
    assert len(numbers) + len(series) == write_parquet([results_dir], tmp_path / "all.parquet")
    assert len(frame([results_dir / "rings", results_dir], Rows.METRICS)) == len(numbers)  # each folder once


def test_frame__of_results_without_a_run_that_ended_has_the_columns(results_dir, tmp_path):
    (tmp_path / "begun").mkdir()
    manifest = json.loads((results_dir / "stream" / "out" / "manifest.json").read_text())
    (tmp_path / "begun" / "manifest.json").write_text(json.dumps({**manifest, "runs": [], "complete": False}))
    table = frame([tmp_path], Rows.METRICS_AND_SERIES)
    assert len(table) == 0 and list(table.columns[:2]) == ["folder", "scenario"]


def test_folders_that_cannot_be_read__are_left_out_and_named(results_dir, tmp_path):
    (tmp_path / "set" / "old").mkdir(parents=True)
    (tmp_path / "set" / "old" / "manifest.json").write_text('{"schema": "mrc-results/0", "runs": [{}]}')
    with pytest.raises(ResultsError, match="is not of schema"):
        frame([tmp_path / "set"], Rows.METRICS_AND_SERIES)
    (tmp_path / "set" / "new").symlink_to(results_dir / "stream" / "out")
    skipped: list[str] = []
    assert len(frame([tmp_path / "set"], Rows.METRICS, skipped)) > 0
    assert len(skipped) == 1 and "old" in skipped[0] and "mrc-results" in skipped[0]
    with pytest.raises(ResultsError, match="no such folder"):
        write_parquet([tmp_path / "nowhere"], tmp_path / "x.parquet")
    assert not list(tmp_path.glob("x.parquet*"))


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_without_a_package__the_error_names_the_extra(results_dir, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)  # what Python has where a module is not to be found
    with pytest.raises(UsageError, match=rf"tables need {package}.*pip install -e '\.\[data\]'"):
        frame([results_dir], Rows.METRICS_AND_SERIES)
