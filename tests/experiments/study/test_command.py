"""`mrc study`: what it makes, says, resumes and merges."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.experiments.results import Results, ResultsError

SCENARIO = """\
title: one flow
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}
links: {rate: 5M}
workload:
  - {stream: h0 h1, name: flow, message: 16K, depth: 2}
duration: 200ms
faults:
  - {at: 0s, loss: {into: hosts, rate: $loss}}
measure: {every: 50ms, evs: false}
variants: {mrc: {}, rocev2: {transport: {kind: rocev2}}}
sweep: {loss: [1%, 5%]}
virtual: {sweep: {loss: [2%]}, links: {rate: 6M}}
"""
STUDY = """\
title: a study
scenario: flow.yaml
variants: [mrc]
set: {links.rate: 7M, transport.config.exp_cnt: 3}
parameters:
  loss: [0%, 10%]
  fabric.planes: {from: 1, to: 2, step: 1}
seeds: {first: 3, min: 2, max: 6, step: 2}
metrics:
  - {metric: rate.flow, within: 3%}
  - {metric: lost, of: median, method: bootstrap, confidence: 0.9}
"""


def write_study(folder: Path, study: str = STUDY, scenario: str = SCENARIO) -> Path:
    (folder / "flow.yaml").write_text(scenario)
    (folder / "study.yaml").write_text(study)
    return folder / "study.yaml"


def mrc(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.output


def test_study__makes_the_runs_it_needs_and_tells_them(tmp_path):
    out = tmp_path / "out"
    output = mrc("study", write_study(tmp_path), "--out", out, "--jobs", "2")
    assert (
        "mrc loss=10% fabric.planes=2: rate.flow" in output and "mean over seeds, 95 % interval (Student's t)" in output
    )
    results, outcomes = Results.open(out)
    study = results.manifest["study"]
    seeds = {point["name"]: point["seeds"] for point in study["points"]}
    assert sum(seeds.values()) == len(outcomes) == study["runs"] and study["complete"]
    assert seeds["mrc loss=0% fabric.planes=1"] == 2  # nothing is random there
    assert max(seeds.values()) > 2
    for point in study["points"]:
        rates = [o.metrics["rate.flow"] for o in outcomes if o.label == point["label"]]
        measured_rate = point["metrics"]["rate.flow"]
        assert measured_rate["estimate"] == pytest.approx(sum(rates) / len(rates)) and measured_rate["values"] == len(
            rates
        )
        assert measured_rate["narrow"] or point["seeds"] == 6
    rows = list(csv.DictReader((out / "study.csv").open()))
    assert len(rows) == 8 and {row["loss"] for row in rows} == {"0%", "10%"}
    assert {path.name for path in (out / "figures").iterdir()} == {
        f"study-{metric}-over-loss.{ending}" for metric in ("rate.flow", "lost") for ending in ("svg", "png")
    }


def test_study__json_is_what_the_folder_says(tmp_path):
    result = CliRunner().invoke(app, ["study", str(write_study(tmp_path)), "--out", str(tmp_path / "out"), "--json"])
    output = json.loads(result.stdout)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert output == {"folder": str(tmp_path / "out"), "digest": manifest["digest"], **manifest["study"]}


def test_study__resumed_when_complete_makes_nothing_and_with_damage_what_is_damaged(tmp_path):
    study, out = write_study(tmp_path), tmp_path / "out"
    mrc("study", study, "--out", out)
    manifest = json.loads((out / "manifest.json").read_text())
    assert "nothing is left to make" in mrc("study", study, "--resume", out)
    path = out / manifest["runs"][1]["file"]
    path.write_bytes(path.read_bytes()[:-1])
    output = mrc("study", study, "--resume", out)
    assert "its end is missing or damaged" in output and "1 to make" in output
    assert json.loads((out / "manifest.json").read_text())["digest"] == manifest["digest"]


@pytest.mark.thorough
def test_study__of_another_file_is_not_gone_on_with(tmp_path):
    study, out = write_study(tmp_path), tmp_path / "out"
    mrc("study", study, "--out", out)
    write_study(tmp_path, STUDY.replace("3%", "4%"))
    with pytest.raises(ResultsError, match=r"made with another study\.yaml: give the same again"):
        CliRunner().invoke(app, ["study", str(study), "--resume", str(out)], catch_exceptions=False)
    write_study(tmp_path, scenario=SCENARIO.replace("one flow", "a flow"))
    with pytest.raises(ResultsError, match=r"made with another scenario\.yaml"):
        CliRunner().invoke(app, ["study", str(study), "--resume", str(out)], catch_exceptions=False)


@pytest.mark.thorough
def test_study__parts_are_merged_and_gone_on_with(tmp_path):
    study, whole_folder = write_study(tmp_path), tmp_path / "whole"
    mrc("study", study, "--out", whole_folder)
    digest = json.loads((whole_folder / "manifest.json").read_text())["digest"]
    for name, first_index in (("a", 0), ("b", 1)):  # what two machines have of it, one run in both
        shutil.copytree(whole_folder, tmp_path / name)
        manifest = json.loads((tmp_path / name / "manifest.json").read_text()) | {"complete": False}
        (tmp_path / name / "manifest.json").write_text(json.dumps(manifest))
        for path in sorted((tmp_path / name / "runs").glob("*.json"))[first_index + 1 :: 2]:
            path.unlink()
    output = mrc("merge", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "merged")
    assert f"go on with: mrc study {study} --resume {tmp_path / 'merged'}" in output.replace("\n", "")
    mrc("study", study, "--resume", tmp_path / "merged")
    assert json.loads((tmp_path / "merged" / "manifest.json").read_text())["digest"] == digest


def test_report__of_a_study_says_where_its_picture_is(tmp_path):
    mrc("study", write_study(tmp_path), "--out", tmp_path / "out")
    with pytest.raises(ResultsError, match=r"is of a study, which has no page: its table is study\.csv"):
        CliRunner().invoke(app, ["report", str(tmp_path / "out")], catch_exceptions=False)


def test_estimate__counts_runs_and_makes_none(tmp_path):
    output = json.loads(CliRunner().invoke(app, ["study", str(write_study(tmp_path)), "--estimate", "--json"]).stdout)
    assert (output["points"], output["runs_min"], output["runs_max"]) == (4, 8, 24)
    assert 0 < output["cpu_s_min"] < output["cpu_s_max"] and not list(tmp_path.glob("results*"))
