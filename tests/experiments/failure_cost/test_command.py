"""`mrc study` of failure rates, small: a cut NIC-T0 link kills a job of one plane and no job of two."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.experiments.failure_cost.command import RESULT_FILE
from mrc_testbed.experiments.failure_cost.model import LEVELS
from mrc_testbed.experiments.failure_cost.report import PAGE_FILE, PICTURE
from mrc_testbed.experiments.study.command import STUDIES
from tests.cli.json_outputs import fit

SAMPLES = """\
title: samples
only: virtual
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}
workload: [{collective: all_reduce, name: job, size: 64K, iterations: 24, ranks: [h0, h1]}]
limit: 60s
faults: [$failure]
sweep:
  failure:
    NIC-T0 link: {at: 500ms, cut: h0 p0-t0-0}
variants:
  MRC: {}
  one plane: {mode: flow-ecmp, fabric: {planes: 1}, transport: {kind: rocev2, config: {timeout: 12}}}
expect:
  - {failed: job, at_least: 0}
"""
PACES = """\
title: paces
only: virtual
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 2}
workload:
  - {collective: all_reduce, name: job, size: 64K, ranks: 2, jobs: 2, placement: spread, iterations: 100, warm_up: 1}
duration: 4s
faults: [$failure]
sweep:
  failure:
    NIC-T0 link: {at: 2s, cut: h0 p0-t0-0}
expect:
  - {unfinished: job}
"""


def level(value: float) -> str:
    return "{" + ", ".join(f"{name}: {{value: {value}, source: own, reason: a test}}" for name in LEVELS) + "}"


STUDY = f"""\
schema: mrc-failures/1
title: a month
days: 30
months: 20
samples: {{scenario: samples.yaml, seeds: 1}}
paces: {{scenario: paces.yaml, seeds: 1, transport: MRC}}
sizes: {{4 GPUs: {{nics: 4}}}}
transports: {{MRC: {{planes: 2, radix: [4]}}, one plane: {{planes: 1, radix: [4]}}}}
sources: {{own: a test}}
rates:
  - failure: NIC-T0 link
    parts: nic_links
    sample: NIC-T0 link
    lasts: link_repair_s
    low: {{value: 1.0, source: own, reason: a test}}
    mid: {{value: 2.0, source: own, reason: a test}}
    high: {{value: 4.0, source: own, reason: a test}}
times:
  link_repair_s: {level(7200)}
  switch_repair_s: {level(60)}
  flap_s: {level(1)}
  restart_s: {level(600)}
  checkpoint_s: {level(3600)}
  step_s: {level(5)}
exposed_share: {level(0.5)}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    for name, text in (("samples", SAMPLES), ("paces", PACES), ("mine", STUDY)):
        (folder / f"{name}.yaml").write_text(text)
    return folder


def mrc(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output + str(result.exception or "")


@pytest.fixture(scope="module")
def result(folder: Path) -> dict:
    code, output = mrc("study", folder / "mine.yaml", "--out", folder / "out", "--jobs", 1)
    assert code == 0 and "page:" in output, output
    return json.loads((folder / "out" / RESULT_FILE).read_text())


def test_result__has_a_row_for_each_transport_and_level(result):
    fit("study", result)
    assert [(row["transport"], row["level"]) for row in result["rows"]] == [
        (name, level) for name in ("MRC", "one plane") for level in ("low", "mid", "high")
    ]
    dies = {row["transport"]: row["dies"] for row in result["samples"]}
    assert dies == {"MRC": 0.0, "one plane": 1.0}
    for row in result["rows"]:
        links, rate = row["parts"]["nic_links"], {"low": 1, "mid": 2, "high": 4}[row["level"]]
        assert row["failures"]["mean"] == pytest.approx(links * rate, rel=0.35)
        assert (row["restarts"]["mean"] > 0) == (row["transport"] == "one plane")
        assert row["goodput"]["mean"] == pytest.approx(1 - row["lost_hours"]["mean"] / 720)
    # A dead port of two: rings of a job take up to twice as long.
    assert 1.1 < result["paces"][0]["pace"]["mean"] < 2.2


def test_page_and_picture__are_there(folder, result):
    page = (folder / "out" / PAGE_FILE).read_text()
    assert "a month" in page and "one plane" in page and "<svg" in page
    assert (folder / "out" / "figures" / f"{PICTURE}.png").read_bytes().startswith(b"\x89PNG")


def test_resume__makes_no_run_again_and_gives_the_same(folder, result):
    code, output = mrc("study", folder / "mine.yaml", "--resume", folder / "out", "--json")
    assert code == 0
    resumed_result = json.loads(output[output.index("{") :])
    assert resumed_result["rows"] == result["rows"] and resumed_result["digests"] == result["digests"]


def test_mistakes__name_the_cure(folder, tmp_path):
    code, output = mrc("study", folder / "mine.yaml", "--out", folder / "out")
    assert code != 0 and "results" in output
    for name in ("samples", "paces"):
        (tmp_path / f"{name}.yaml").write_text((folder / f"{name}.yaml").read_text())
    (tmp_path / "mine.yaml").write_text(STUDY.replace("sample: NIC-T0 link", "sample: NIC-T0 cable"))
    code, output = mrc("study", tmp_path / "mine.yaml", "--out", tmp_path / "out")
    assert code != 0 and "no sample of 'NIC-T0 cable'" in output and "change `sample`" in output
    code, output = mrc("study", STUDIES / "failures.yaml", "--estimate")
    assert code != 0 and "--estimate" in output
