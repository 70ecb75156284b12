"""Reports: pages of results whole, unfinished and overloaded; every path of every flow; the paper beside; indices."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest

from mrc_testbed.experiments.backend.outcome import FlowOutcome, Outcome, Series
from mrc_testbed.experiments.language.model import MODES, Figure
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.metrics.metric_values import Measured
from mrc_testbed.experiments.report import canvas, ev_strips, figures, paper_reference, pictures
from mrc_testbed.experiments.report.faults import ROWS_MAX, fault_bars
from mrc_testbed.experiments.report.page import measured_runs, plans_of, report
from mrc_testbed.experiments.report.summary import summary
from mrc_testbed.experiments.results import ResultsError
from mrc_testbed.experiments.runner import carry_out, plan_runs
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner

SMALL = """\
title: one link of <two> planes
paper:
  id: E8
  figure: 9c
  saw: nothing
  series: {paper: [[0, 1], [1, 0.9]]}
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}
links: {rate: 5M}
workload:
  - {stream: h0 h1, name: flow, message: 16K, depth: 2}
duration: 1s
faults:
  - {at: 0.4s, cut: p0-t0-0 p0-t1-0}
measure: {every: 100ms, latency: true, queues: [p0-t0-1-eth1]}
expect:
  - {metric: rate.flow, from: 0.5s, to: 1s, at_least: 0.5, of: baseline, paper: 1}
  - {metric: lost, at_most: 0, why: a link is cut}
figures:
  - {kind: rate_over_time, metric: rate.flow, of: baseline}
  - {kind: bars, metric: lost}
  - {kind: latency_cdf}
"""
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


class Quiet:
    """Tells nobody."""

    def begins(self, runs):
        pass

    def progress(self, run, share, now):
        pass

    def ends(self, run, outcome):
        pass

    def stops(self, kept, folder):
        pass


def make(folder: Path, text: str = SMALL, **keys) -> Path:
    folder.mkdir(parents=True)
    (folder / "small.yaml").write_text(text)
    out = folder / "out"
    carry_out(plan_runs(read(folder / "small.yaml"), "virtual", **keys), Quiet(), out=out)
    return out


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Results of SMALL, twice with different seeds."""
    return make(tmp_path_factory.mktemp("made") / "a", repeat=2)


def changed(made: Path, to: Path, **keys) -> Path:
    """A copy of results with other words in the manifest."""
    shutil.copytree(made, to)
    manifest = json.loads((to / "manifest.json").read_text())
    manifest.update(keys)
    (to / "manifest.json").write_text(json.dumps(manifest))
    return to


# ---- pages --------------------------------------------------------------------------------------------------------


def test_a_page_has_all_and_fetches_nothing(made):
    (page,) = report(made)
    text = (made / "report.html").read_text()
    assert page.state == "FAILED"  # a packet was lost, as it must
    assert not re.search(r'(src|href)="(?!#|data:)', text) and "<script" not in text and "url(http" not in text
    assert "one link of &lt;two&gt; planes" in text and "<two>" not in text
    pictures = re.findall(r"<svg [^>]*>", text)
    assert len(pictures) >= 5 and all('role="img"' in one and "aria-label=" in one for one in pictures)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert "did not hold" in text and "expected &lt;= 0" in text and "cut p0-t0-0 p0-t1-0" in text
    assert "0 of 2" in text and "2 of 2" in text and "median" in text  # how many repeats held, and their spread
    assert "Not measured in any run" in text and "points from the paper" in text
    files = {path.name for path in (made / "figures").iterdir()}
    assert {"figure1.png", "figure1.svg", "figure2.png", "timeline-run.svg", "paths-run-flow_h0-h1.svg"} <= files
    assert len(text) < 600_000


def test_a_figure_may_show_some_of_the_runs(tmp_path):
    asked = "figures:\n  - {kind: bars, metric: time, x: depth, where: {variant: b, depth: last}}\n"
    text = SMALL[: SMALL.index("figures:")] + "variants: {a: {}, b: {}}\nsweep: {depth: [1, 2]}\n" + asked
    folder = make(tmp_path / "some", text.replace("depth: 2}", "depth: $depth}"), repeat=2)
    _, runs = measured_runs(folder)
    (only,) = (one for one in figures.asked_for(runs[0][2].plan.scenario, runs) if one.name == "figure1")
    picture = pictures.save(only, tmp_path).svg
    assert "b depth=2</text>" in picture and "a depth" not in picture and "depth=1" not in picture


def test_a_second_report_leaves_no_old_pictures(made, tmp_path):
    folder = changed(made, tmp_path / "r")
    (folder / "figures").mkdir(exist_ok=True)
    (folder / "figures" / "planes-run.svg").write_text("<svg/>")
    report(folder)
    assert not (folder / "figures" / "planes-run.svg").exists()


@pytest.mark.parametrize("there", [0, 1])
def test_unfinished_results_have_a_page_that_says_so(made, tmp_path, there):
    runs = json.loads((made / "manifest.json").read_text())["runs"]
    folder = changed(made, tmp_path / "r", complete=False, verdicts=[], runs=[])
    for run in runs[there:]:
        (folder / run["file"]).unlink()
    (page,) = report(folder)
    text = (folder / "report.html").read_text()
    assert page.state == "unfinished" and not page.passed
    assert f"Unfinished: {there} of 2 runs ended" in text
    assert f"Not here: {'#1, #2' if not there else '#2'}" in text
    assert ("<h2>Numbers</h2>" in text) == bool(there)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_killed_has_a_page_of_what_ended(tmp_path, how):
    text = SMALL.replace("duration: 1s", "duration: 300ms").replace("at: 0.4s", "at: 0.1s")
    (tmp_path / "two.yaml").write_text(text + "variants: {short: {}, long: {duration: 5000s}}\n")
    words = ["run", str(tmp_path / "two.yaml"), "--virtual", "--jobs", "1", "--out", str(tmp_path / "out")]
    mrc = subprocess.Popen([sys.executable, "-m", "mrc_testbed", *words], stdout=subprocess.PIPE, text=True)
    manifest = tmp_path / "out" / "manifest.json"
    while mrc.poll() is None and not (manifest.exists() and json.loads(manifest.read_text())["runs"]):
        time.sleep(0.05)
    mrc.send_signal(how)
    said = mrc.communicate()[0]
    (page,) = report(tmp_path / "out")
    assert page.state == "unfinished" and page.runs == 1
    assert "Not here: long" in (tmp_path / "out" / "report.html").read_text()
    assert ("runs that ended are in" in said) == (how == signal.SIGINT)


def test_an_overloaded_run_is_told_in_words(made, tmp_path):
    runs = json.loads((made / "manifest.json").read_text())["runs"]
    runs[0]["load"] |= {"busy": 0.5, "stolen": 0.12, "overloaded": True}
    runs[1]["load"] |= {"busy": 0.97, "overloaded": True}
    folder = changed(made, tmp_path / "r", where="live", runs=runs)
    report(folder)
    text = (folder / "report.html").read_text()
    assert "overloaded in 2 of 2 runs (CPUs busy: “#1” 50 % (12 % stolen), “#2” 97 %)" in text
    assert "Do not trust times" in text


def test_an_index_has_live_beside_virtual(made, tmp_path):
    changed(made, tmp_path / "set" / "small")
    changed(made, tmp_path / "set" / "live" / "small", where="live", target="embedded")
    pages = report(tmp_path / "set")
    text = (tmp_path / "set" / "index.html").read_text()
    assert sorted(page.where for page in pages) == ["live", "virtual"]
    assert text.index(">virtual</th>") < text.index(">live</th>")
    for link in re.findall(r'(?:src|href)="([^"#]+)"', text):
        assert (tmp_path / "set" / link).exists()
    assert text.count("<img ") == 2 and text.count(" alt=") == 2


def test_one_folder_that_cannot_be_read_does_not_stop_the_others(made, tmp_path):
    changed(made, tmp_path / "set" / "good")
    changed(made, tmp_path / "set" / "old", schema="mrc-results/0")
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


PLACES = """\
title: rules of places and scales
fabric: {planes: 2, racks: 2, spines: 1, hosts_per_rack: 1}
links: {rate: 5M}
workload: [{stream: h0 h1, name: flow, message: 16K}]
duration: 200ms
scale: {fast: {links: {rate: 8M}}}
expect:
  - {metric: qp_errors, at_most: 0, only: virtual}
  - {metric: damaged, at_most: 0, only: [live, virtual]}
  - {metric: failed, at_most: 0, only: live}
  - {metric: lost, at_most: 0, scale: fast}
  - {metric: timeouts, at_most: 0, scale: own}
figures: [{metric: rate.flow}]
"""


@pytest.mark.parametrize(
    ("scale", "rules"),
    [(None, {"qp_errors", "damaged", "timeouts"}), ("fast", {"qp_errors", "damaged", "lost"})],
    ids=["own", "fast"],
)
def test_a_page_has_the_rules_of_its_place_and_scale(tmp_path, scale, rules):
    """Once those with `only:` were left out: the place's name was taken for a set of letters."""
    folder = make(tmp_path / "p", PLACES, scale=scale)
    judged = json.loads((folder / "manifest.json").read_text())["verdicts"]
    (page,) = report(folder)
    assert [verdict.rule for verdict in page.verdicts] == [verdict["rule"] for verdict in judged]
    assert rules == {verdict.rule.split()[0] for verdict in page.verdicts} - {"nothing"}
    assert measured_runs(folder)[1][0][2].plan.rate_bps == (8e6 if scale else 5e6)


def test_plans_of__live_results_have_the_values_of_their_switches(tmp_path):
    """Once those of BMv2 were read as if they were of the embedded switches."""
    (tmp_path / "scenario.yaml").write_text(PLACES + "live: {links: {rate: 7M}}\nbmv2: {links: {rate: 6M}}\n")
    rates = {
        target: plans_of(tmp_path, {"where": "live", "target": target})[0].rate_bps for target in ("embedded", "bmv2")
    }
    assert rates == {"embedded": 7e6, "bmv2": 6e6}


# ---- paths --------------------------------------------------------------------------------------------------------


def test_every_path_of_a_flow_has_its_states(made):
    _, runs = measured_runs(made)
    found = ev_strips.lanes(runs[0][2])
    assert [(lane.plane, lane.via) for lane in found] == [(p, f"p{p}-t1-{k}") for p in (0, 1) for k in (0, 1)]
    assert [[state for _, _, state in lane.spans] for lane in found] == [["good", "assumed_bad"], *[["good"]] * 3]
    begin, _, _ = found[0].spans[1]
    assert 0.4 < begin < 0.7 and found[0].spans[-1][1] == 1.0
    rows = ev_strips.by_path(found)
    assert next(iter(rows)) == "plane 0 by p0-t1-0"
    assert ev_strips.shares(rows["plane 0 by p0-t1-0"]) == ([0.0, begin, 1.0], {"assumed_bad": [0.0, 1.0, 0.0]})
    svg = ev_strips.flow_svg("flow:h0-h1", found, runs[0][2])
    assert (
        svg.count("<rect") == 5
        and svg.count("<title>ASSUMED_BAD") == 1
        and svg.count("<polyline") == 4
        and "ASSUMED_BAD from" in svg
    )


def lane_of(made: Path, events: list[dict], state: str = "good") -> list[tuple[float, float, str]]:
    """The one lane of an outcome with these events, 10 s long."""
    _, runs = measured_runs(made)
    outcome = Outcome("s", "run", {}, "virtual", 1, 0, "srv6", 1e6, duration_s=10.0, series=Series(0.1), events=events)
    outcome.flows = [FlowOutcome("flow", "h0", "h1", 1, 1024)]
    outcome.note_evs("flow:h0-h1", 3, [[0x100, 1, state]])
    (lane,) = ev_strips.lanes(Measured(outcome, runs[0][2].plan))
    return lane.spans


def moved(t: float, old: str, new: str) -> dict:
    who = {"host": "h0", "qpn": 3, "peer": "h1", "ev": 0x100, "plane": 1}
    return {"t": t, "what": "ev", "old": old, "new": new, "cause": "c", **who}


def port(t: float, up: bool, peer: str | None = None, host: str = "h0") -> dict:
    return {"t": t, "what": "plane", "host": host, "peer": peer, "plane": 1, "up": up}


@pytest.mark.parametrize(
    ("events", "state", "spans"),
    [
        ([], "denied", [(0.0, 10.0, "denied")]),
        ([moved(2, "skip", "assumed_bad")], "skip", [(0.0, 2, "good"), (2, 10.0, "assumed_bad")]),
        ([moved(-0.1, "good", "assumed_bad")], "assumed_bad", [(0.0, 10.0, "assumed_bad")]),
        ([moved(2, "good", "assumed_bad"), moved(3, "assumed_bad", "skip")], "good",
         [(0.0, 2, "good"), (2, 3, "assumed_bad"), (3, 10.0, "good")]),
        ([port(4, False), port(5, True)], "good", [(0.0, 4, "good"), (4, 5, "port_down"), (5, 10.0, "good")]),
        ([port(4, False, "h1"), port(5, True, "h3")], "good", [(0.0, 4, "good"), (4, 10.0, "port_down")]),
        ([port(4, False, None, "h1")], "good", [(0.0, 10.0, "good")]),
        ([{"t": 7, "what": "qp_error", "host": "h0", "qpn": 3, "peer": "h1", "text": "x"}], "good",
         [(0.0, 7, "good"), (7, 10.0, "failed")]),
    ],
)  # fmt: skip
def test_a_lane_is_what_its_ev_and_ports_were(made, events, state, spans):
    assert lane_of(made, events, state) == spans


@pytest.mark.parametrize("mode", MODES)
def test_lanes__in_every_mode(tmp_path, mode):
    """Once the page of a run in stev mode ended with `EV 0x0001 names no path`."""
    path = tmp_path / "mine.yaml"
    path.write_text(PLACES.replace("spines: 1", "spines: 2") + f"mode: {mode}\n")
    plan = plan_runs(read(path), "virtual").runs[0]
    lanes = ev_strips.lanes(Measured(VirtualRunner().run(plan), plan))
    named = {lane.via for lane in lanes}
    every_t1 = {f"p{plane}-t1-{spine}" for plane in (0, 1) for spine in (0, 1)}
    if mode == "stev":  # virtual switches have a field layout of their own
        assert named <= {"", *every_t1}
    else:
        assert named == (every_t1 if mode == "srv6" else {"p0-t1-*", "p1-t1-*"})


def test_an_hour_of_changes_makes_no_huge_picture(made):
    _, runs = measured_runs(made)
    outcome = Outcome("s", "run", {}, "virtual", 1, 0, "srv6", 1e6, duration_s=3600.0, series=Series(5.0))
    turns = [("good", "assumed_bad"), ("assumed_bad", "good")]
    outcome.events = [moved(n / 4, *turns[n % 2]) for n in range(14_000)]
    outcome.note_evs("flow:h0-h1", 3, [[0x100, 1, "good"]])
    measured = Measured(outcome, runs[0][2].plan)
    found = ev_strips.lanes(measured)
    edges, bad = ev_strips.shares(found)
    assert len(edges) == ev_strips.EDGES_MAX + 1
    assert bad["assumed_bad"][100] == pytest.approx(0.5, abs=0.05) and bad["assumed_bad"][-5] == 0
    assert len(ev_strips.flow_svg("flow:h0-h1", found, measured)) < 20_000


def fault(t: float, number: int, action: str, rest: str, undo: int | None = None) -> dict:
    text = f"{'end of ' if undo is not None else ''}{action.replace('_', ' ')} {rest}"
    return {"t": t, "what": "fault", "number": number, "action": action, "undo": undo, "text": text}


def test_faults_last_until_what_ends_them():
    outcome = Outcome("s", "run", {}, "virtual", 1, 0, "srv6", 1e6, duration_s=20.0, series=Series(0.1))
    outcome.events = [
        fault(-0.05, 0, "silent", "a b"), fault(1, 1, "cut", "c d"), fault(2, 2, "power_off", "p0-t1-0"),
        fault(3, 3, "cut", "c d", 1), fault(4, 4, "power_on", "p0-t1-0"), fault(5, 5, "cut", "e f"),
        fault(6, 6, "restore", "e f"), fault(7, 7, "flap", "g h down=0.5 up=0.5 times=3"), fault(8, 8, "reboot", "x"),
        fault(9, 9, "controller", "kill"), fault(11, 10, "controller", "start"), fault(12, 11, "loss", "a b rate=0.1"),
        fault(13, 12, "heal", "True"), fault(15, 13, "cut", "c d"),
    ]  # fmt: skip
    assert fault_bars(Measured(outcome, None)) == {
        "silent a b": [(0.0, 13)], "cut c d": [(1, 3), (15, 20.0)], "power off p0-t1-0": [(2, 4)], "cut e f": [(5, 6)],
        "flap g h down=0.5 up=0.5 times=3": [(7, 10.0)], "reboot x": [(8, 8.0)], "controller kill": [(9, 11)],
        "loss a b rate=0.1": [(12, 13)],
    }  # fmt: skip
    outcome.events = [fault(n, n, "one_way", f"l{n} m") for n in range(ROWS_MAX + 1)]
    assert list(fault_bars(Measured(outcome, None))) == ["one way"]


# ---- the paper ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "theirs", "words"),
    [
        (0.874, 0.873, "as in the paper, within 2 %"), (0.75, 1.0, "25 % less than in the paper"),
        (0.6, 0.4, "50 % more than in the paper"), (0.39, 0.05, "7.8 times what the paper has"),
        (None, 1.0, "not measured here"), (1.0, None, ""), (0.0, 0.0, "as in the paper"),
        (2.0, 0.0, "the paper has 0, here it is 2"),
    ],
)  # fmt: skip
def test_distances_in_words(value, theirs, words):
    assert paper_reference.ratio_distance(value, theirs) == words


def test_lines_of_the_paper_find_their_runs(made):
    _, runs = measured_runs(made)
    scenario = runs[0][2].plan.scenario.model_copy(deep=True)
    scenario.paper.series = {
        "paper, MRC": [(0, 1)],
        "paper, DCQCN 1 QP": [(0, 1)],
        "paper": [(0, 1)],
        "paper (b)": [(0, 1)],
    }
    found = {label: mine for label, _, mine in paper_reference.lines_of(scenario, ["mrc", "dcqcn-1", "dcqcn-8", "a"])}
    assert found == {
        "paper, MRC": ["mrc"], "paper, DCQCN 1 QP": ["dcqcn-1"], "paper": ["mrc", "dcqcn-1", "dcqcn-8", "a"],
        "paper (b)": [],
    }  # fmt: skip


def test_figures__every_kind_is_drawn():
    assert set(figures.FIGURES) == set(get_args(Figure.model_fields["kind"].annotation))


def test_lines_that_coincide_are_told():
    lines = {"a": [(0, 1.0), (1, 0.5)], "b": [(0, 1.0), (1, 0.505)], "c": [(0, 1.0), (1, 0.6)]}
    assert figures._same_lines(lines) == [("b", "the same line as a")]
    looks = canvas.styles(["x", "MRC", "y"])
    assert looks["MRC"]["color"] == canvas.COLOURS[0] and len({one["color"] for one in looks.values()}) == 3
    assert looks["x"]["ls"] != looks["y"]["ls"]


def test_the_papers_curves_are_shares_of_its_best():
    for curves in paper_reference.CURVES.values():
        assert max(y for points in curves.values() for _, y in points) == 1.0
        assert all(
            points == sorted(points) and points[-1][0] == 16 * 2**30 for points in curves.values() if len(points) > 4
        )
    large = {key: points[-1][1] for key, points in paper_reference.CURVES["E15"].items()}
    assert large["mrc", "0.1%"] == pytest.approx(0.89, abs=0.01) and large["mrc", "1%"] == pytest.approx(0.4, abs=0.01)
    assert paper_reference.value_at([(0, 0.0), (2, 1.0)], 1.5) == 0.75
    assert paper_reference.order_text({"a": 2, "b": 1}, {"a": 3, "b": 4}) == "here a > b, in the paper b > a"


# ---- summaries ----------------------------------------------------------------------------------------------------


def test_a_summary_merges_seeds_and_sets_live_beside_virtual(made, tmp_path):
    changed(made, tmp_path / "v1" / "small")
    other = make(tmp_path / "work", seed=7)
    (tmp_path / "v2").mkdir()
    shutil.move(other, tmp_path / "v2" / "small")
    changed(made, tmp_path / "live" / "small", where="live", target="embedded")
    text = summary([tmp_path / "v1", tmp_path / "v2", tmp_path / "live"])
    assert "| scenario | virtual | live | what did not hold |" in text
    assert "**virtual**: 2 results, 3 runs; seeds 1, 2, 7" in text and "--virtual --repeat 2`" in text
    assert "0 of 2 passed (6/9)" in text and "virtual: lost at most 0 in 3 of 3" in text
    row = next(line for line in text.splitlines() if "rate.flow at least" in line)
    assert re.search(r"\| 1 \| [01]\.\d+ \([01]\.\d+ to [01]\.\d+, 3\) \| [01]\.\d+ \(.*, 2\) \| .* paper", row)
