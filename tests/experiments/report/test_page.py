"""Pages of results whole, unfinished and overloaded, and indices of them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from mrc_testbed.experiments.report.page import measured_runs, plans_of, report
from mrc_testbed.experiments.report.summary import summary
from mrc_testbed.experiments.results import ResultsError
from tests.experiments.report.small_results import RULES_SCENARIO, SMALL_SCENARIO, changed_copy, make

CURVES = """\
title: curves
paper: {id: E15, figure: "16", saw: much, scaled: all, size_divisor: 4096}
fabric: {planes: 2, racks: 2, spines: 1, hosts_per_rack: 1}
workload: [{collective: all_reduce, name: ring, size: $size}]
faults: [{at: 0s, loss: {into: hosts, rate: $loss}}]
variants: {mrc: {}, roce-1: {transport: {kind: rocev2}}}
sweep: {loss: [0%, 1%], size: [64K, 128K]}
measure: {every: 500ms, evs: false}
figures: [{kind: size_curve, metric: busbw.ring, x: size, title: Ring}]
"""


def test_a_page_has_all_and_fetches_nothing(results_dir):
    (page,) = report(results_dir)
    text = (results_dir / "report.html").read_text()
    assert page.state == "FAILED"  # a packet was lost, as it must
    assert not re.search(r'(src|href)="(?!#|data:)', text) and "<script" not in text and "url(http" not in text
    assert "one link of &lt;two&gt; planes" in text and "<two>" not in text
    pictures = re.findall(r"<svg [^>]*>", text)
    assert len(pictures) >= 5 and all('role="img"' in picture and "aria-label=" in picture for picture in pictures)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert "did not hold" in text and "expected &lt;= 0" in text and "cut p0-t0-0 p0-t1-0" in text
    assert "0 of 2" in text and "2 of 2" in text and "median" in text  # how many repeats held, and their spread
    assert "Not measured in any run" in text and "points from the paper" in text
    files = {path.name for path in (results_dir / "figures").iterdir()}
    assert {"figure1.png", "figure1.svg", "figure2.png", "timeline-run.svg", "paths-run-flow_h0-h1.svg"} <= files
    assert len(text) < 600_000


def test_a_second_report_leaves_no_old_pictures(results_dir, tmp_path):
    folder = changed_copy(results_dir, tmp_path / "r")
    (folder / "figures").mkdir(exist_ok=True)
    (folder / "figures" / "planes-run.svg").write_text("<svg/>")
    report(folder)
    assert not (folder / "figures" / "planes-run.svg").exists()


@pytest.mark.parametrize("ended_count", [0, 1])
def test_unfinished_results_have_a_page_that_says_so(results_dir, tmp_path, ended_count):
    runs = json.loads((results_dir / "manifest.json").read_text())["runs"]
    folder = changed_copy(results_dir, tmp_path / "r", complete=False, verdicts=[], runs=[])
    for run in runs[ended_count:]:
        (folder / run["file"]).unlink()
    (page,) = report(folder)
    text = (folder / "report.html").read_text()
    assert page.state == "unfinished" and not page.passed
    assert f"Unfinished: {ended_count} of 2 runs ended" in text
    assert f"Not here: {'#1, #2' if not ended_count else '#2'}" in text
    assert ("<h2>Numbers</h2>" in text) == bool(ended_count)


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_killed_has_a_page_of_what_ended(tmp_path, signal_number):
    text = SMALL_SCENARIO.replace("duration: 1s", "duration: 300ms").replace("at: 0.4s", "at: 0.1s")
    (tmp_path / "two.yaml").write_text(text + "variants: {short: {}, long: {duration: 5000s}}\n")
    words = ["run", str(tmp_path / "two.yaml"), "--virtual", "--jobs", "1", "--out", str(tmp_path / "out")]
    mrc = subprocess.Popen([sys.executable, "-m", "mrc_testbed", *words], stdout=subprocess.PIPE, text=True)
    manifest = tmp_path / "out" / "manifest.json"
    while mrc.poll() is None and not (manifest.exists() and json.loads(manifest.read_text())["runs"]):
        time.sleep(0.05)
    mrc.send_signal(signal_number)
    output = mrc.communicate()[0]
    (page,) = report(tmp_path / "out")
    assert page.state == "unfinished" and page.runs == 1
    assert "Not here: long" in (tmp_path / "out" / "report.html").read_text()
    assert ("runs that ended are in" in output) == (signal_number == signal.SIGINT)


def test_an_overloaded_run_is_told_in_words(results_dir, tmp_path):
    runs = json.loads((results_dir / "manifest.json").read_text())["runs"]
    runs[0]["load"] |= {"busy": 0.5, "stolen": 0.12, "overloaded": True}
    runs[1]["load"] |= {"busy": 0.97, "overloaded": True}
    folder = changed_copy(results_dir, tmp_path / "r", where="live", runs=runs)
    report(folder)
    text = (folder / "report.html").read_text()
    assert "overloaded in 2 of 2 runs (CPUs busy: “#1” 50 % (12 % stolen), “#2” 97 %)" in text
    assert "Do not trust times" in text


def test_an_index_has_live_beside_virtual(results_dir, tmp_path):
    changed_copy(results_dir, tmp_path / "set" / "small")
    changed_copy(results_dir, tmp_path / "set" / "live" / "small", where="live", target="embedded")
    pages = report(tmp_path / "set")
    text = (tmp_path / "set" / "index.html").read_text()
    assert sorted(page.backend for page in pages) == ["live", "virtual"]
    assert text.index(">virtual</th>") < text.index(">live</th>")
    for link in re.findall(r'(?:src|href)="([^"#]+)"', text):
        assert (tmp_path / "set" / link).exists()
    assert text.count("<img ") == 2 and text.count(" alt=") == 2


def test_one_folder_that_cannot_be_read_does_not_stop_the_others(results_dir, tmp_path):
    changed_copy(results_dir, tmp_path / "set" / "good")
    changed_copy(results_dir, tmp_path / "set" / "old", schema="mrc-results/0")
    skipped: list[str] = []
    (page,) = report(tmp_path / "set", skipped)
    assert page.folder.name == "good" and len(skipped) == 1 and "old/manifest.json is not of schema" in skipped[0]
    assert "Left out: " in (tmp_path / "set" / "index.html").read_text()
    (tmp_path / "set" / "good" / "manifest.json").unlink()
    with pytest.raises(ResultsError, match="is not of schema"):
        report(tmp_path / "set")


@pytest.mark.parametrize("name", ["empty", "missing"])
def test_what_is_no_folder_of_results_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultsError, match=r"no results in .*mrc run --out"):
        report(tmp_path / name)
    with pytest.raises(ResultsError, match=r"no results in .*mrc run --out"):
        summary([tmp_path / name])


def test_curves_lie_beside_the_papers(tmp_path):
    folder = make(tmp_path / "c", CURVES)
    report(folder)
    text = (folder / "report.html").read_text()
    assert "roce-1, paper" in text and "share of MRC's best without loss" in text
    assert "order at 128K, loss 0%" in text and re.search("points (below|above) the paper", text)
    assert "No run lasted for more than a few intervals" in text


@pytest.mark.parametrize(
    ("scale", "rules"),
    [(None, {"qp_errors", "damaged", "timeouts"}), ("fast", {"qp_errors", "damaged", "lost"})],
    ids=["own", "fast"],
)
def test_a_page_has_the_rules_of_its_place_and_scale(tmp_path, scale, rules):
    """Once those with `only:` were left out: the place's name was taken for a set of letters."""
    folder = make(tmp_path / "p", RULES_SCENARIO, scale=scale)
    verdicts = json.loads((folder / "manifest.json").read_text())["verdicts"]
    (page,) = report(folder)
    assert [verdict.rule for verdict in page.verdicts] == [verdict["rule"] for verdict in verdicts]
    assert rules == {verdict.rule.split()[0] for verdict in page.verdicts} - {"nothing"}
    assert measured_runs(folder)[1][0][2].plan.rate_bps == (8e6 if scale else 5e6)


def test_plans_of__live_results_have_the_values_of_their_switches(tmp_path):
    """Once those of BMv2 were read as if they were of the embedded switches."""
    (tmp_path / "scenario.yaml").write_text(RULES_SCENARIO + "live: {links: {rate: 7M}}\nbmv2: {links: {rate: 6M}}\n")
    rates = {
        target: plans_of(tmp_path, {"where": "live", "target": target})[0].rate_bps for target in ("embedded", "bmv2")
    }
    assert rates == {"embedded": 7e6, "bmv2": 6e6}
