"""Outputs of runs, results and plans fit the schemas that `mrc schema` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from tests.cli.json_outputs import fit
from tests.repository import ROOT

SCENARIO = """\
title: x
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}
workload: [{stream: h0 h1, bytes: 64K, name: flow}]
sweep: {loss: [0%, 1%]}
faults: [{at: 0s, loss: {link: p0-t0-0 p0-t1-0, rate: $loss}, for: 5ms}]
expect: [{metric: lost, at_most: 0, where: {loss: 1%}}]
repeat: 2
"""
STUDY = """\
title: a study
scenario: small.yaml
parameters: {loss: [0%, 1%]}
seeds: {min: 2, max: 2}
metrics: [{metric: rate.flow}]
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a scenario and its results of two seeds."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "small.yaml").write_text(SCENARIO)
    for seed in ("1", "9"):
        output = mrc("run", folder / "small.yaml", "--virtual", "--seed", seed, "--out", folder / seed, "--jobs", 1)
        fit("run", output)
    return folder


def mrc(*words: Any) -> Any:
    """Return the JSON of a command of `mrc`."""
    result = CliRunner().invoke(app, [*map(str, words), "--json"])
    return json.loads(result.stdout)


def test_results__outputs_fit(results: Path) -> None:
    assert fit("compare", mrc("compare", results / "1", results / "9"))["rows"]
    assert len(fit("merge", mrc("merge", results / "1", results / "9", "--out", results / "all"))) == 1
    assert fit("report", mrc("report", results / "1"))


def test_study__outputs_fit(results: Path) -> None:
    study = results / "study.yaml"
    study.write_text(STUDY)
    fit("study", mrc("study", study, "--estimate"))
    assert len(fit("study", mrc("study", study, "--out", results / "study", "--jobs", 1))["points"]) == 2


@pytest.mark.parametrize("words", [("run", "--virtual"), ("study",)])
def test_mistakes__are_a_list_in_the_place_of_results(tmp_path: Path, words: tuple[str, ...]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("title: x\nscenario: 5\nworkload: []\n")
    (file,) = fit(words[0], mrc(*words, path))["files"]
    assert file["file"] == str(path) and {"line", "column", "key", "text"} == set(file["problems"][0])


def test_scenarios__outputs_fit(tmp_path: Path) -> None:
    bad_path = tmp_path / "bad.yaml"
    bad_path.write_text(SCENARIO.replace("h0 h1", "h0 h9"))
    for word in ("validate", "check"):
        good_file, bad_file = fit(f"scenario {word}", mrc("scenario", word, ROOT / "scenarios" / "e10.yaml", bad_path))
        assert not good_file["problems"] and bad_file["problems"][0]["line"] == 3
    fit("scenario show", mrc("scenario", "show", "e10"))
    fit("scenario list", mrc("scenario", "list"))
    fit("scenario trace", mrc("scenario", "trace", ROOT / "examples" / "traces" / "kineto"))


def test_topologies_and_plans__outputs_fit(tmp_path: Path) -> None:
    bad_path = tmp_path / "bad.yaml"
    bad_path.write_text("holes: [h99]\n")
    example = ROOT / "examples" / "topologies" / "own-names.yaml"
    assert not fit("topology check", mrc("topology", "check", example))["problems"]
    assert fit("topology check", mrc("topology", "check", bad_path))["problems"]
    fit("topology show", mrc("topology", "show", example))
    fit("plan", mrc("plan", "--nics", 1024, "--radix", 64))
    fit("plan", mrc("plan", "--planes", 4, "--racks", 2, "--spines", 2, "--hosts-per-rack", 2))


def test_simtest__outputs_fit() -> None:
    fit("simtest", mrc("simtest", "--seeds", 2, "--jobs", 1))
    fit("simtest", mrc("simtest", "--seed", 3))
