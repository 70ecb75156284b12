"""Folders of results as one: each run once, whatever it is called there; conflicts named.

Nothing lost or twice.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.experiments.results import Results, ResultsError
from mrc_testbed.experiments.run_store import RunStore

SCENARIO = """\
title: one link
fabric: {planes: 1, racks: 2, spines: 1, hosts_per_rack: 1}
links: {rate: 5M}
workload: [{stream: h0 h1, name: flow, message: 16K, depth: 2}]
duration: 100ms
measure: {every: 50ms, evs: false}
faults: [{at: 0s, loss: {into: hosts, rate: $loss}}]
sweep: {loss: [1%, 5%]}
expect: [{metric: qp_errors, at_most: 0}]
"""


def file(tmp_path: Path, text: str = SCENARIO, name: str = "short") -> Path:
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    return path


def mrc(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output.replace("\n", " ")


def make_results(path: Path, out: Path, seed: int, repeat: int) -> Path:
    mrc("run", path, "--virtual", "--seed", seed, "--repeat", repeat, "--jobs", "1", "--out", out)
    return out


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def test_seeds_of_two_machines__are_what_one_command_makes(tmp_path):
    path = file(tmp_path)
    whole_folder = make_results(path, tmp_path / "whole", 4, 4)
    a, b = make_results(path, tmp_path / "a", 4, 1), make_results(path, tmp_path / "b", 5, 3)
    output = mrc("merge", a, b, "--out", tmp_path / "merged")
    assert "8 runs of 2 folders, in" in output and "passed  short" in output
    merged_manifest, whole_manifest = manifest(tmp_path / "merged"), manifest(whole_folder)
    assert (
        merged_manifest["digest"] == whole_manifest["digest"]
        and merged_manifest["complete"]
        and merged_manifest["planned"] == whole_manifest["planned"]
    )
    assert (
        merged_manifest["command"] == whole_manifest["command"]
        and merged_manifest["scenario"] == "short"
        and merged_manifest["repeats"] == whole_manifest["repeats"]
    )
    assert [run["name"] for run in merged_manifest["runs"]] == [run["name"] for run in whole_manifest["runs"]]


def test_the_same_runs__count_once(tmp_path):
    path = file(tmp_path)
    a, b = make_results(path, tmp_path / "a", 1, 3), make_results(path, tmp_path / "b", 2, 2)
    output = mrc("merge", a, b, a, "--out", tmp_path / "merged")
    assert "6 runs of 2 folders, 4 of them in several" in output
    assert manifest(tmp_path / "merged")["digest"] == manifest(a)["digest"]


def test_what_is_missing__is_told_with_the_command_that_makes_it(tmp_path):
    path = file(tmp_path)
    a, b = make_results(path, tmp_path / "a", 1, 1), make_results(path, tmp_path / "b", 3, 1)
    output = mrc("merge", a, b, "--out", tmp_path / "merged")
    command = f"mrc run {path} --virtual --seed 1 --repeat 3 --resume {tmp_path / 'merged'}"
    assert f"2 are missing (loss=1% #2, loss=5% #2); go on with: {command}" in output
    assert not manifest(tmp_path / "merged")["complete"]
    mrc(*command.split()[1:])
    assert manifest(tmp_path / "merged")["digest"] == manifest(make_results(path, tmp_path / "whole", 1, 3))["digest"]


def test_damaged_runs__are_left_out_by_name(tmp_path):
    path = file(tmp_path)
    a = make_results(path, tmp_path / "a", 1, 2)
    damaged_file = a / manifest(a)["runs"][2]["file"]
    damaged_file.write_bytes(damaged_file.read_bytes()[:100])
    output = mrc("merge", a, "--out", tmp_path / "merged")
    assert f"left out: {a}/runs/{damaged_file.name}: its end is missing or damaged (100 bytes)" in output
    assert "1 are missing (loss=1% #2)" in output


def test_another_content_of_the_same_run__is_a_conflict_and_nothing_is_written(tmp_path):
    path = file(tmp_path)
    a, b = make_results(path, tmp_path / "a", 1, 2), make_results(path, tmp_path / "b", 2, 2)
    results, outcomes = Results.open(b)
    outcomes[0].flows[0].completed += 1
    RunStore.for_runs(b / "runs", results.manifest["planned"]).write(outcomes[0], {})
    says = rf"1 run\(s\) have another content .*'loss=1% #1' \(seed 2\) of {a} and {b}"
    with pytest.raises(ResultsError, match=says):
        mrc("merge", a, b, "--out", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_sets__are_merged_scenario_by_scenario(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    short_file, second_file = file(tmp_path), file(tmp_path, SCENARIO.replace("one link", "two"), "two")
    make_results(short_file, tmp_path / "a" / "short", 1, 1)
    make_results(second_file, tmp_path / "a" / "two", 1, 1)
    make_results(short_file, tmp_path / "b" / "short", 2, 1)
    mrc("merge", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "set")
    assert {path.name: len(manifest(path)["runs"]) for path in (tmp_path / "set").iterdir()} == {"short": 4, "two": 2}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"where": "live"}, "only runs in virtual time are merged: a live run is another one each time"),
        ({"scale": "paper"}, "are of another scale"),
        ({"machine": {"commit": "0123"}}, "are of another commit"),
        ({"schema": "mrc-results/0"}, "is not of schema mrc-results/1"),
    ],
)
def test_what_does_not_belong_together__is_refused(tmp_path, change, says):
    path = file(tmp_path)
    a, b = make_results(path, tmp_path / "a", 1, 1), make_results(path, tmp_path / "b", 2, 1)
    (b / "manifest.json").write_text(json.dumps(manifest(b) | change))
    with pytest.raises(ResultsError, match=says):
        mrc("merge", a, b, "--out", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_another_file_of_the_same_name__is_refused(tmp_path):
    a = make_results(file(tmp_path), tmp_path / "a", 1, 1)
    b = make_results(file(tmp_path, SCENARIO.replace("one link", "another")), tmp_path / "b", 2, 1)
    with pytest.raises(ResultsError, match=r"are of another scenario\.yaml: their runs are not those of one set"):
        mrc("merge", a, b, "--out", tmp_path / "merged")


def test_a_folder_that_has_results__is_not_written_to(tmp_path):
    a = make_results(file(tmp_path), tmp_path / "a", 1, 1)
    with pytest.raises(ResultsError, match="a holds results already"):
        mrc("merge", a, "--out", a)
    with pytest.raises(ResultsError, match="no such folder"):
        mrc("merge", tmp_path / "none", "--out", tmp_path / "merged")
