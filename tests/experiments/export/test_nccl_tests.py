"""Collectives in nccl-tests' JSON.

Its keys and units, and the numbers that the runs' own metrics have.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mrc_testbed.experiments.export.nccl_tests import write_nccl_tests
from mrc_testbed.experiments.results import Results, ResultsError
from mrc_testbed.experiments.run_store import RunStore, file_name
from tests.experiments.report.small_results import make

SIZES = """\
title: sizes
fabric: {planes: 2, racks: 2, spines: 1, hosts_per_rack: 2}
workload: [{collective: $kind, name: ring, size: $size, iterations: 4}]
sweep: {kind: [all_reduce_tree, reduce_scatter, all_to_allv, send_recv], size: [16K, 32K]}
measure: {every: 1s, evs: false}
"""
NO_COLLECTIVE = """\
title: stream
fabric: {planes: 1, racks: 2, spines: 1, hosts_per_rack: 1}
workload: [{stream: h0 h1, name: flow, message: 16K, depth: 2}]
duration: 50ms
"""
ROW = {
    "size",
    "count",
    "type",
    "redop",
    "root",
    "out_of_place",
    "out_of_place_per_iter",
    "actual_iterations",
    "experiment_name",
}


@pytest.fixture(scope="module")
def results_dir(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("made") / "sizes", SIZES)


@pytest.fixture
def documents(results_dir, tmp_path):
    """Documents by kind."""
    files = write_nccl_tests([results_dir], tmp_path / "nccl", [])
    assert [file.name for file in files] == [
        "out-all_reduce_tree.json",
        "out-reduce_scatter.json",
        "out-all_to_allv.json",
        "out-send_recv.json",
    ]
    return {file.stem.removeprefix("out-"): json.loads(file.read_text()) for file in files}


def test_a_run_that_failed_is_an_error_and_in_no_average(tmp_path):
    fault_text = "duration: 6s\nfaults: [{at: 1s, cut: [[h3, p0-t0-1], [h3, p1-t0-1]]}]\n"
    fabric_text = "fabric: {planes: 2, racks: 2, spines: 1, hosts_per_rack: 2}\nmeasure: {every: 1s, evs: false}\n"
    work_text = "title: dead\nworkload: [{collective: all_reduce, name: ring, size: 32K, iterations: 1000}]\n"
    (file,) = write_nccl_tests([make(tmp_path / "dead", work_text + fabric_text + fault_text)], tmp_path / "nccl", [])
    document = json.loads(file.read_text())
    assert document["average_bus_bandwidth"] == {"bandwidth": None, "okay": "false"}
    assert len(document["errors"]) == 1 and "rank 3's QP to h0 died at " in document["errors"][0]


def test_document__has_the_shape(documents):
    for kind, document in documents.items():
        assert document["version"] == 3 and document["args"][:2] == ["mrc", "run"]
        assert document["config"]["devices"] == [{"rank": n, "group": 0, "hostname": f"h{n}"} for n in range(4)]
        assert (document["config"]["minimum_bytes"], document["config"]["maximum_bytes"]) == (16384, 32768)
        assert document["out_of_bounds"] == {"count": 0, "okay": "true"} and document["errors"] == []
        assert document["average_bus_bandwidth"]["okay"] == "unchecked"
        assert document["mrc_testbed"]["collective"] == kind
        assert not {"nccl_version", "env", "end_time"} & set(document)
        for row in document["results"]:
            assert set(row) == ROW  # in-place is not there
            assert set(row["out_of_place"]) == {"time", "alg_bw", "bus_bw", "nwrong"}
            assert (row["type"], row["root"], row["actual_iterations"]) == ("int32", "    -1", 4)
            assert row["out_of_place"]["nwrong"] == 0.0


@pytest.mark.parametrize(
    ("kind", "redop", "count", "factor"),
    [  # nccl-tests' own: elements of the buffer, or of a rank's share; doc/PERFORMANCE.md has the factors
        ("all_reduce_tree", "sum", 4096, 2 * 3 / 4),
        ("reduce_scatter", "sum", 1024, 3 / 4),
        ("all_to_allv", "none", 1024, 3 / 4),
        ("send_recv", "none", 4096, 1),
    ],
)
def test_rows__are_in_the_units_of_nccl_tests(results_dir, documents, kind, redop, count, factor):
    first, second = documents[kind]["results"]
    assert (first["size"], first["count"], first["redop"]) == (16384, count, redop)
    assert (second["size"], second["count"]) == (32768, 2 * count)
    metrics = {outcome.name: outcome.metrics for outcome in Results.open(results_dir)[1]}
    for row in (first, second):
        timing, run_metrics = row["out_of_place"], metrics[row["experiment_name"]]
        assert timing["alg_bw"] * 8e9 == pytest.approx(run_metrics["algbw.ring"])
        assert timing["bus_bw"] * 8e9 == pytest.approx(run_metrics["busbw.ring"])
        assert timing["bus_bw"] == pytest.approx(timing["alg_bw"] * factor)
        assert timing["alg_bw"] == pytest.approx(row["size"] / timing["time"] / 1e3)  # bytes a us are MB/s
    mean = documents[kind]["average_bus_bandwidth"]["bandwidth"]
    assert mean == pytest.approx((first["out_of_place"]["bus_bw"] + second["out_of_place"]["bus_bw"]) / 2)


def test_iterations__one_by_one(results_dir, documents):
    runs = {outcome.name: outcome for outcome in Results.open(results_dir)[1]}
    for row in documents["reduce_scatter"]["results"]:
        iteration_times = row["out_of_place_per_iter"]
        times = [
            1e6 * (iteration.finished_s - iteration.started_s)
            for iteration in runs[row["experiment_name"]].collectives[0].iterations
        ]
        assert iteration_times["times_us"] == times and len(times) == 4
        sorted_times = sorted(times)
        assert [iteration_times[key] for key in ("min_us", "p50_us", "p95_us", "p99_us", "max_us")] == [
            sorted_times[0],
            sorted_times[2],
            sorted_times[3],
            sorted_times[3],
            sorted_times[3],
        ]
        assert iteration_times["avg_us"] == pytest.approx(row["out_of_place"]["time"])
        assert iteration_times["cv_pct"] == pytest.approx(100 * iteration_times["stdev_us"] / iteration_times["avg_us"])


def test_wrong_elements__are_told(results_dir, tmp_path):
    (path,) = [path for path in (results_dir / "runs").glob("*send_recv*32K.json")]
    run = next(outcome for outcome in Results.open(results_dir)[1] if path.stem == file_name(outcome.name))
    run.collectives[0].iterations[1].wrong = 5
    folder = tmp_path / "wrong"
    (folder / "runs").mkdir(parents=True)
    manifest = json.loads((results_dir / "manifest.json").read_text())
    manifest["runs"] = [
        RunStore.for_runs(folder / "runs", manifest["planned"]).write(run, manifest["runs"][0]["load"]).entry()
    ]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (file,) = write_nccl_tests([folder], tmp_path, [])
    document = json.loads(file.read_text())
    assert document["results"][0]["out_of_place"]["nwrong"] == 5.0
    assert document["out_of_bounds"] == {"count": 1, "okay": "false"}


def test_two_folders_of_one_name__do_not_overwrite_each_other(results_dir, tmp_path):
    shutil.copytree(results_dir, tmp_path / "a" / "out")
    files = write_nccl_tests([results_dir, tmp_path / "a"], tmp_path / "nccl", [])
    assert len(set(files)) == 8 and "out-send_recv-2.json" in {file.name for file in files}


def test_results_without_a_collective__say_so(tmp_path):
    folder = make(tmp_path / "stream", NO_COLLECTIVE)
    with pytest.raises(ResultsError, match=r"no collective with measured iterations in .*give results of scenarios"):
        write_nccl_tests([folder], tmp_path / "nccl", [])
    assert not (tmp_path / "nccl").exists()
