"""The output of `mrc run` and `mrc compare`.

Failures in 80 columns, repeats as median and spread, differences.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.console_summary import summary_lines
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.metrics.assertions import EVENTS_AROUND, events_around, matches, merge_events
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.metrics.repeats import base_name, spread_text
from mrc_testbed.experiments.results import rerun_command
from mrc_testbed.experiments.runner import plan_runs, run_scenario
from mrc_testbed.topologies.lab.options import LabOptions
from tests.experiments.report.small_results import SMALL_SCENARIO, Quiet

invoke = CliRunner().invoke


def write(tmp_path: Path, text: str = SMALL_SCENARIO, name: str = "small.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def lines_of(tmp_path, text: str, **keys) -> list[str]:
    report = run_scenario(plan_runs(read(write(tmp_path, text)), "virtual", **keys), Quiet())
    return [line for _, line in summary_lines(report, 80)]


def test_a_failure_tells_expected_seen_and_events_in_80_columns(tmp_path):
    lines = lines_of(tmp_path, SMALL_SCENARIO)
    assert max(map(len, lines)) <= 80
    start = lines.index("  NOT   lost at most 0")
    assert lines[start + 1 : start + 5] == [
        "        expected  <= 0",
        f"        seen      {lines[start + 2].split()[1]} packets",
        "        why       a link is cut",
        "        events from 0 to 1 s:",
    ]
    assert any(line.strip().startswith("0.400 s  cut p0-t0-0 p0-t1-0") for line in lines)
    assert lines[0].startswith("FAILED  small: one link of")


def test_a_rule_that_no_run_is_for_tells_which_there_are(tmp_path):
    text = SMALL_SCENARIO.replace("{metric: lost, at_most: 0", "{metric: lost, at_most: 9, where: {link: 9M}").replace(
        "figures:", "sweep: {link: [5M, 6M]}\nfigures:"
    )
    lines = "\n".join(lines_of(tmp_path, text.replace("rate: 5M", "rate: $link")))
    assert "NOT   lost at most 9 [link=9M] (no run)" in lines
    assert "none (runs have link: 5M, 6M)" in lines


def test_repeats_tell_median_spread_and_how_many_held(tmp_path):
    path = write(tmp_path)
    result = invoke(
        app, ["run", str(path), "--virtual", "--repeat", "2", "--out", str(tmp_path / "r"), "--json", "--jobs", "1"]
    )
    assert result.exit_code == 1
    (data,) = json.loads(result.stdout)
    rules = {spread["what"]: spread for spread in data["repeats"] if "held" in spread}
    lost = rules["lost at most 0"]
    assert (lost["held"], lost["of"], lost["seeds"]) == (0, 2, [1, 2])
    assert lost["min"] <= lost["median"] <= lost["max"] and len(lost["values"]) == 2
    metrics = {spread["what"]: spread for spread in data["repeats"] if "held" not in spread}
    assert set(metrics) == {"rate.flow", "lost"} and metrics["rate.flow"]["unit"] == "bit/s"
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert manifest["repeats"] == data["repeats"] and manifest["command"].endswith("--virtual --repeat 2")
    report = run_scenario(plan_runs(read(path), "virtual", repeat=2), Quiet())
    lines = [line for _, line in summary_lines(report, 80)]
    assert max(map(len, lines)) <= 80
    index = next(n for n, line in enumerate(lines) if line.startswith("  ok    rate.flow at least 0.5 of baseline"))
    assert lines[index + 1].startswith("        held in 2 of 2: median ")
    assert "        held in 0 of 2: median" in "\n".join(lines) and "        in #2:" in lines


def test_spreads_in_words():
    assert spread_text([]) == "nothing measured"
    assert spread_text([2e6], "bit/s") == "2 Mb/s"
    assert spread_text([25.1e-6, 24.7e-6], "s") == "median 24.9 us, 24.7 to 25.1"
    assert spread_text([400e9], "bit/s") == "400 Gb/s"
    assert spread_text([3, 1, 2], "packets") == "median 2 packets, 1 to 3"
    assert spread_text([1, 2, 3, 4, 5], "share") == "median 3, 1 to 5 (half of them 2 to 4)"
    assert [base_name(name) for name in ("mrc loss=1% #12", "#1", "run", "a #b")] == [
        "mrc loss=1%",
        "run",
        "run",
        "a #b",
    ]


@pytest.mark.parametrize(
    ("label", "rule_value", "is_equal"),
    [
        ("1M", 1048576, True),
        ("1%", 0.01, True),
        ("2s", "2000ms", True),
        ("1M", "2M", False),
        ("mrc", "mrc", True),
        ("mrc", "roce", False),
        ("a", ["b", "a"], True),
        (None, "a", False),
    ],
)
def test_a_value_of_a_sweep_may_be_written_otherwise(label, rule_value, is_equal):
    assert matches({"x": label}, {"x": rule_value}) is is_equal


def ev(t: float, ev: int, new_state: str = "assumed_bad") -> dict:
    connection = {"host": "h0", "qpn": 3, "peer": "h1", "ev": ev, "plane": ev >> 8}
    return {"t": t, "what": "ev", "old": "good", "new": new_state, "cause": "lost", **connection}


def test_moves_of_many_evs_are_one_line():
    lines = merge_events([ev(1.0, 0x0), ev(1.1, 0x100), ev(1.2, 0x101), ev(3.0, 0x1)], 10.0)
    assert [text for _, _, text in lines] == [
        "    1.000 s  h0: 3 EVs to h1 (plane 0, 1) good -> assumed_bad: lost, until 1.200 s",
        "    3.000 s  h0: EV 0x0001 to h1 good -> assumed_bad: lost",
    ]


def test_too_many_events_leave_the_first_and_last_faults():
    faults = [{"t": float(n), "what": "fault", "action": "cut", "undo": None, "text": f"cut {n}"} for n in range(40)]
    outcome = Outcome("s", "r", {}, "virtual", 1, 0, "srv6", 1.0, duration_s=40.0)
    outcome.events = sorted([*faults, *(ev(n + 0.5, n) for n in range(39))], key=lambda event: event["t"])
    lines = events_around(Measurement(outcome, None), 0.0, 40.0)
    assert len(lines) == EVENTS_AROUND + 1
    assert lines[0].endswith("cut 0") and lines[-1].endswith("cut 39") and "67 more lines" in lines[EVENTS_AROUND // 2]


# ---- compare ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sides(tmp_path_factory) -> Path:
    """a: as it is; b: another seed and rate, a rule that holds, one metric more."""
    base = tmp_path_factory.mktemp("sides")
    run_scenario(plan_runs(read(write(base)), "virtual"), Quiet(), out=base / "a")
    text = SMALL_SCENARIO.replace("rate: 5M", "rate: 6M").replace("lost, at_most: 0", "lost, at_most: 1000")
    run_scenario(plan_runs(read(write(base, text)), "virtual", seed=5), Quiet(), out=base / "b")
    return base


def test_compare_tells_what_differs(sides):
    result = invoke(app, ["compare", str(sides / "a"), str(sides / "b"), "--json"])
    data = json.loads(result.stdout)
    assert result.exit_code == 0
    assert {"key": "seed", "a": 1, "b": 5} in data["manifest"]
    assert {"key": "links.rate", "a": "5M", "b": "6M"} in data["scenario"]
    rows = {row["metric"]: row for row in data["rows"]}
    assert rows["rate.flow"]["ratio"] > 1.05 and 0.9 < rows["rate.flow / capacity"]["ratio"] < 1.1
    rules = {verdict["rule"]: (verdict["a"], verdict["b"]) for verdict in data["verdicts"]}
    assert rules == {"lost at most 0": ("did not hold", "not judged"), "lost at most 1000": ("not judged", "held")}
    output = invoke(app, ["compare", str(sides / "a"), str(sides / "b")]).stdout
    assert max(map(len, output.splitlines()[2:])) <= 100  # the first two are paths, which stay whole
    assert "scenario: links.rate" in output and "metrics that differ" in output and "did not hold" in output


def test_compare_of_the_same_has_nothing_to_tell(sides):
    output = invoke(app, ["compare", str(sides / "a"), str(sides / "a")]).stdout
    assert "no verdict differs" in output and "metrics that differ" not in output


@pytest.mark.parametrize(
    ("folder_name", "words"),
    [
        ("nowhere", "no folder"),
        (".", "holds several results: give one of them (a, b)"),
        ("empty", "manifest.json is missing"),
        ("half", "runs/run.json is missing"),
        ("old", "is not of schema mrc-results/1"),
        ("broken", "Expecting"),
    ],
)
def test_compare_refuses_what_are_no_results(sides, folder_name, words):
    if folder_name not in (".", "nowhere"):
        (sides / "bad" / folder_name).mkdir(parents=True)
        manifest = json.loads((sides / "a" / "manifest.json").read_text())
        text = {"half": json.dumps(manifest), "old": json.dumps({"schema": "x"}), "broken": "{"}.get(folder_name)
        if text:
            (sides / "bad" / folder_name / "manifest.json").write_text(text)
    from mrc_testbed.experiments.compare import differences
    from mrc_testbed.experiments.results import ResultsError

    folder = sides / folder_name if folder_name in (".", "nowhere") else sides / "bad" / folder_name
    with pytest.raises(ResultsError) as error:
        differences(sides / "a", folder)
    assert words in str(error.value)


def test_the_command_of_a_result_makes_it_again():
    from mrc_testbed.experiments.command import SCENARIOS

    assert (
        rerun_command(SCENARIOS / "e6.yaml", "virtual", 3, None, None) == "mrc run scenarios/e6.yaml --virtual --seed 3"
    )
    live_options = LabOptions(target="bmv2")
    assert (
        rerun_command(Path("/x/y.yaml"), "live", None, 2, live_options) == "mrc run /x/y.yaml --target bmv2 --repeat 2"
    )


def test_notes__stand_once_with_the_runs_they_are_about(tmp_path):
    report = run_scenario(plan_runs(read(write(tmp_path)), "virtual", repeat=3), Quiet())
    for run, outcome in report.runs:
        outcome.notes[:] = ["of every run"] + (["of one"] if run is report.runs[1][0] else [])
    notes = [line for style, line in summary_lines(report, 80) if style == "note"]
    assert notes == ["  note  all 3 runs: of every run", f"  note  {report.runs[1][0].name}: of one"]
