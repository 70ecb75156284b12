"""Results in Python, and the options of `mrc report` that write them for other tools."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from mrc_testbed import ApiError, ResultsError, ResultSet
from mrc_testbed.cli import app
from tests.experiments.export.ring_scenario import RINGS
from tests.experiments.report.small_results import make
from tests.repository import ROOT

pandas = pytest.importorskip("pandas", reason="`make test` installs the extra `data`")
pytest.importorskip("pyarrow", reason="`make test` installs the extra `data`")

PAGE = ROOT / "docs/data.md"


@pytest.fixture(scope="module")
def results_folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made") / "rings", RINGS)


@pytest.fixture
def report(monkeypatch):
    """`mrc report` in this process: from the words of the command line to the exit code."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["mrc", "report", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            app.main()
        return caught.value.code or 0

    return run


def test_frames__metrics_and_series(results_folder):
    results = ResultSet(results_folder)
    numbers = results.frame()
    assert "time_s" not in numbers and numbers.groupby("run").ngroups == 4
    table = numbers[numbers.metric == "busbw.ring"].pivot_table(index="sweep_kind", columns="variant", values="value")
    assert table.shape == (2, 2) and (table > 0).all().all()
    series = results.series_frame()
    assert {"iteration_s ring", "rate_bps ring:h0-h1", "lost", "plane0_bps"} <= set(series.metric)
    assert series.time_s.notna().all()
    assert results.skipped == []


def test_frames__errors_say_what_would_do(results_folder, tmp_path):
    with pytest.raises(ApiError, match="give a folder of results"):
        ResultSet()
    with pytest.raises(ResultsError, match="no such folder"):
        ResultSet(tmp_path / "nowhere").frame()
    with pytest.raises(ApiError, match="No such file or directory: give a file in a folder that exists"):
        ResultSet(results_folder).write_parquet(tmp_path / "no" / "x.parquet")


def test_report__writes_parquet_and_nccl_tests(results_folder, report, tmp_path, capsys):
    file = tmp_path / "results.parquet"
    assert report(results_folder, "--parquet", file) == 0
    rows = ResultSet(results_folder).write_parquet(tmp_path / "again.parquet")
    assert capsys.readouterr().out == f"{rows:,} rows  {file}\n"
    assert pandas.read_parquet(file).equals(pandas.read_parquet(tmp_path / "again.parquet"))
    assert report(results_folder, "--nccl-tests", tmp_path / "nccl") == 0
    paths = capsys.readouterr().out.split()
    assert [path.rpartition("/")[2] for path in paths] == ["out-all_reduce.json", "out-all_gather.json"]
    assert [row["experiment_name"] for row in json.loads(Path(paths[1]).read_text())["results"]] == [
        "mrc kind=all_gather",
        "roce-1 kind=all_gather",
    ]
    assert not (results_folder / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--parquet", "x", "--json"], "exclude each other: give one of them"),
        (["--parquet", "/nonexistent/x"], "/nonexistent/x: No such file or directory: give a place"),
        (["--nccl-tests", "/proc/nonexistent"], "/proc/nonexistent: No such file or directory: give a place"),
    ],
)
def test_report__mistakes_are_one_line(results_folder, report, capsys, words, message):
    assert report(results_folder, *words) != 0
    error_output = capsys.readouterr().err
    assert message in error_output and error_output.count("\n") == 1


def test_page__its_examples_run(tmp_path, monkeypatch, capsys):
    """The Python and the SQL of docs/data.md, in a folder with such results."""
    duckdb = pytest.importorskip("duckdb", reason="`make test` installs the extra `data-tests`")
    python, sql = re.search(r"```python\n(.*?)```\s*```sql\n(.*?)```", PAGE.read_text(), re.DOTALL).groups()
    make(
        tmp_path / "results",
        RINGS.replace("$kind, name: ring, size: 16K", "all_reduce, name: ring, size: $size").replace(
            "kind: [all_reduce, all_gather]", "size: [16K, 32K]"
        ),
    )
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(python, str(PAGE), "exec"), names)
    output = capsys.readouterr().out
    assert set(names["numbers"].sweep_size) == {"16K", "32K"}
    assert re.search(r"^16K +[0-9.]+ +[0-9.]+$", output, re.MULTILINE) and "roce-1 size=32K" in output
    sql_rows = duckdb.sql(sql).fetchall()
    assert [row[:2] for row in sql_rows] == [("mrc", "16K"), ("mrc", "32K"), ("roce-1", "16K"), ("roce-1", "32K")]
    assert all(0.1 < mbps < 100 for *_, mbps in sql_rows)
