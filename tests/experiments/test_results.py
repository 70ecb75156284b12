"""Folders of results: never written to twice, kept when a run ended, withdrawn when none did."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mrc_testbed.experiments import command, run_store
from mrc_testbed.experiments import results as results_module
from mrc_testbed.experiments.backend.outcome import ProgramOutcome
from mrc_testbed.experiments.command import run
from mrc_testbed.experiments.executors.options import ExecutorOptions
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.live.live_run import LiveRunner
from mrc_testbed.experiments.metrics.assertions import ExpectationVerdict
from mrc_testbed.experiments.results import LoadMeter, Results, ResultsError, rerun_command
from mrc_testbed.experiments.run_store import DamagedRun
from mrc_testbed.experiments.runner import Checkpoint, RunReport, RunSet, plan_runs, run_scenario
from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.ipc.signals import SignalExit
from mrc_testbed.topologies.lab.options import LabOptions
from mrc_testbed.topologies.servers import read as read_servers
from tests.experiments.report.small_results import Quiet
from tests.repository import ROOT

SCENARIO = """\
title: one link
fabric: {planes: 1, racks: 2, spines: 1, hosts_per_rack: 1}
links: {rate: 5M}
workload: [{stream: h0 h1, name: flow, message: 16K, depth: 2}]
duration: 100ms
measure: {every: 50ms}
"""


def planned_runs(folder: Path, text: str = SCENARIO, backend: str = "virtual") -> RunSet:
    path = folder / "short.yaml"
    path.write_text(text)
    return plan_runs(read(path), backend)


def paths_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


class ActingProgress(Quiet):
    """Progress that acts when a run has got somewhere; remembers what it was told of the end."""

    def __init__(self, run: str, action) -> None:
        self.run, self.action, self.reported_stops = run, action, []

    def on_progress(self, run, share, now):
        if run.name == self.run:
            self.run = ""
            self.action()

    def on_stop(self, kept_count, folder):
        self.reported_stops.append((kept_count, folder))


def interrupt(error: type[BaseException] = KeyboardInterrupt):
    def raise_error():
        raise error

    return raise_error


def test_a_start_that_failed_leaves_nothing(tmp_path):
    class RefusingRunner(LiveRunner):
        def run(self, *_):
            raise FabricError("the machine refuses it")

    live_runs = planned_runs(tmp_path, backend="live")
    with pytest.raises(FabricError, match="the machine refuses it"):
        run_scenario(live_runs, Quiet(), out=tmp_path / "out" / "a", live_runner=RefusingRunner())
    assert paths_below(tmp_path) == {"short.yaml"}
    assert run_scenario(planned_runs(tmp_path), Quiet(), out=tmp_path / "out" / "a").runs


@pytest.mark.parametrize("error_type", [KeyboardInterrupt, SignalExit])
def test_interrupted_before_a_run_ended_leaves_nothing(tmp_path, error_type):
    progress = ActingProgress("run", interrupt(error_type))
    with pytest.raises(error_type):
        run_scenario(planned_runs(tmp_path), progress, out=tmp_path / "out" / "a")
    assert paths_below(tmp_path) == {"short.yaml"}
    assert progress.reported_stops == [(0, tmp_path / "out" / "a")]
    assert run_scenario(planned_runs(tmp_path), Quiet(), out=tmp_path / "out" / "a").runs


def test_interrupted_while_the_first_run_is_written_leaves_nothing(tmp_path, monkeypatch):
    def write_unless_run(path, data):
        if path.parent.name == "runs":
            raise OSError(28, "No space left on device")
        write_whole(path, data)

    monkeypatch.setattr(run_store, "write_whole", write_unless_run)
    report = run_scenario(planned_runs(tmp_path), Quiet(), out=tmp_path / "out")
    assert "run 'run' cannot be written: No space left on device: make room, and go on" in report.unwritten
    assert report.verdicts and report.folder is None
    assert paths_below(tmp_path) == {"short.yaml"}


def test_what_others_wrote_stays(tmp_path):
    """`--out .` beside the scenario, in a folder with a file of the user's."""
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    run_set = plan_runs(read(tmp_path / "scenario.yaml"), "virtual")
    with pytest.raises(KeyboardInterrupt):
        run_scenario(run_set, ActingProgress("run", interrupt()), out=tmp_path)
    assert paths_below(tmp_path) == {"notes.txt", "scenario.yaml"}
    changed_run_set = planned_runs(tmp_path, SCENARIO.replace("one link", "another"))
    with pytest.raises(ResultsError, match=r"scenario\.yaml is another scenario: give another --out, or remove it"):
        run_scenario(changed_run_set, Quiet(), out=tmp_path)
    assert paths_below(tmp_path) == {"notes.txt", "scenario.yaml", "short.yaml"}
    assert (tmp_path / "scenario.yaml").read_text() == SCENARIO
    assert run_scenario(run_set, Quiet(), out=tmp_path).runs


def test_observations_of_a_run_are_put_beside_it(tmp_path):
    run_set, out = planned_runs(tmp_path), tmp_path / "out"
    run_scenario(run_set, Quiet(), out=out)
    results, (outcome,) = Results.open(out)
    outcome.observations = b'{"kind":"observations"}\n'
    results.add(outcome, {})
    observation_files = {path for path in paths_below(out) if "observations" in path}
    assert observation_files == {"runs/run.observations.jsonl"}
    assert (out / observation_files.pop()).read_bytes() == b'{"kind":"observations"}\n'
    assert "observations" not in json.loads((out / "runs/run.json").read_text())


def test_output_of_programs_is_put_beside_their_run(tmp_path):
    run_set, out = planned_runs(tmp_path), tmp_path / "out"
    run_scenario(run_set, Quiet(), out=out)
    results, (outcome,) = Results.open(out)
    outcome.programs, outcome.output = [ProgramOutcome("job", "true", ["h0"], None, exit_codes=[0])], b"step 1\n"
    stored_run = results.store.write(outcome, {})
    assert (out / "runs/run.output.txt").read_bytes() == b"step 1\n" and outcome.output == b""
    assert "output.txt" in stored_run.sha256 and results.store.read("run").outcome.programs == outcome.programs
    (out / "runs/run.output.txt").write_bytes(b"step 2\n")
    with pytest.raises(DamagedRun, match=r"run\.output\.txt: its bytes are not those that were written"):
        results.store.read("run")


def test_interrupted_after_one_run_keeps_it(tmp_path):
    run_set, out = planned_runs(tmp_path, SCENARIO + "repeat: 2\n"), tmp_path / "out"
    progress = ActingProgress("#2", interrupt())
    with pytest.raises(KeyboardInterrupt):
        run_scenario(run_set, progress, out=out)
    assert progress.reported_stops == [(1, out)]
    assert paths_below(out) == {"manifest.json", "scenario.yaml", "runs", "runs/1.json", "runs/1.csv"}
    results, outcomes = Results.open(out)
    assert [outcome.name for outcome in outcomes] == ["#1"] and not results.manifest["complete"]
    with pytest.raises(ResultsError, match=r"holds results already \(1 of 2 runs ended"):
        run_scenario(run_set, Quiet(), out=out)


@pytest.mark.parametrize("during", ["#1", "#2"])
def test_a_folder_in_progress_is_refused(tmp_path, during):
    """The refusal holds before the first run has ended, too: once a second command took it over then."""
    run_set, out = planned_runs(tmp_path, SCENARIO + "repeat: 2\n"), tmp_path / "out"

    def start_second():
        content_before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        with pytest.raises(
            ResultsError, match=r"runs ended: the others still run, or were killed\): give another --out"
        ):
            run_scenario(run_set, Quiet(), out=out)
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == content_before

    progress = ActingProgress(during, start_second)
    assert len(run_scenario(run_set, progress, out=out).runs) == 2
    assert progress.run == "" and progress.reported_stops == []
    assert Results.open(out)[0].manifest["complete"]


def test_finished_results_are_never_written_to_again(tmp_path):
    out = tmp_path / "out"
    run_scenario(planned_runs(tmp_path), Quiet(), out=out)
    with pytest.raises(ResultsError, match="out holds results already: give another --out, or remove it"):
        run_scenario(planned_runs(tmp_path), Quiet(), out=out)
    (out / "manifest.json").unlink()
    with pytest.raises(ResultsError, match="holds results already"):  # runs without a manifest are runs, too
        run_scenario(planned_runs(tmp_path), Quiet(), out=out)


def test_a_folder_that_the_last_scenario_cannot_have_is_told_before_the_first_runs(tmp_path):
    """Once `mrc run a b --out DIR` ran all of `a` first."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        planned_runs(tmp_path / folder)
    (tmp_path / "other.yaml").write_text(SCENARIO)
    short_file, namesake_file, other_file = (
        str(tmp_path / name) for name in ("a/short.yaml", "b/short.yaml", "other.yaml")
    )

    def refusal(out: Path, *files: str) -> str:
        with pytest.raises(ResultsError) as error:
            run(list(files), backend="virtual", seed=None, repeat=None, out=out, jobs=1, as_json=False)
        return str(error.value)

    (tmp_path / "out" / "other" / "runs").mkdir(parents=True)
    assert "out/other holds results already: give another --out" in refusal(tmp_path / "out", short_file, other_file)
    assert "two scenarios would both write to" in refusal(tmp_path / "new", short_file, namesake_file)
    assert paths_below(tmp_path / "out") == {"other", "other/runs"} and not (tmp_path / "new").exists()


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), SignalExit(143)])
@pytest.mark.parametrize("step", ["_estimate_costs", "Display", "print_report"])
def test_the_command_says_what_is_kept_however_early_it_ends(tmp_path, monkeypatch, capsys, ending, step):
    """SIGTERM between the folder and the first run once ended it without a word."""

    def end(*_words, **_options):
        raise ending

    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(SCENARIO)
    monkeypatch.setattr(f"mrc_testbed.experiments.command.{step}", end)
    if step == "_estimate_costs":
        monkeypatch.setattr(ExecutorOptions, "elsewhere", True)
    files = [str(tmp_path / f"{name}.yaml") for name in ("one", "two")]
    with pytest.raises(type(ending)):
        run(files, backend="virtual", seed=None, repeat=None, out=tmp_path / "out", jobs=1, as_json=False)
    late = step == "print_report"
    text = f"no run of {'two' if late else 'one'} had ended: nothing of it is kept"
    assert capsys.readouterr().out.count(text) == 1
    assert (tmp_path / "out" / "one" / "manifest.json").exists() == late
    assert not (tmp_path / "out" / "two").exists()


@pytest.mark.parametrize(
    ("signal_number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_the_command_ends_at_once_with_all_its_processes(tmp_path, signal_number, code):
    """Once Ctrl-C waited for the runs in progress, and SIGTERM left processes that went on with them."""
    text = SCENARIO.replace("100ms", "50000s").replace("every: 50ms", "every: 10s")
    (tmp_path / "long.yaml").write_text(text + "repeat: 3\n")
    words = ["run", str(tmp_path / "long.yaml"), "--virtual", "--jobs", "2", "--out", str(tmp_path / "out")]
    mrc = subprocess.Popen(
        [sys.executable, "-m", "mrc_testbed", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    manifest = tmp_path / "out" / "manifest.json"
    while mrc.poll() is None and not manifest.exists():
        time.sleep(0.05)
    if signal_number == signal.SIGINT:
        os.killpg(mrc.pid, signal_number)  # as a terminal does
    else:
        mrc.send_signal(signal_number)
    output = mrc.communicate()[0]  # all that have its stdout are gone
    assert mrc.returncode == code and "Traceback" not in output, output
    if signal_number == signal.SIGKILL:
        assert json.loads(manifest.read_text())["runs"] == []
        with pytest.raises(ResultsError, match=r"0 of 3 runs ended: .* or were killed\): .* or remove it"):
            run_scenario(plan_runs(read(tmp_path / "long.yaml"), "virtual"), Quiet(), out=tmp_path / "out")
    else:
        assert "no run of long had ended: nothing of it is kept" in output and "runs that ended" not in output
        assert paths_below(tmp_path) == {"long.yaml"}


@pytest.mark.parametrize(
    ("busy_share", "stolen_share", "says"),
    [
        (60, 0, "good to a few ms"),
        (95, 0, "poor: the CPUs were busy 95 % of the time; packets and timers had to wait"),
        (60, 15, "poor: the CPUs were busy 60 % of the time, 15 % of it for other guests of the host; packets and"),
    ],
)
def test_load__is_judged_by_what_was_busy_and_what_was_stolen(monkeypatch, busy_share, stolen_share, says):
    looks = iter([(0, 0, 0), (1000, 100, 5000), (1000 + busy_share, 100 + stolen_share, 5100)])
    monkeypatch.setattr(LoadMeter, "_read", staticmethod(lambda: next(looks)))
    meter = LoadMeter()
    meter.sample()
    meter.sample()
    load = meter.read("live")
    assert (load["busy"], load["stolen"]) == (busy_share / 100, stolen_share / 100)
    assert load["overloaded"] == says.startswith("poor") and load["times"].startswith(says)


def test_report__is_inconclusive_when_only_an_overloaded_machine_may_have_failed_it():
    def report(overloaded: bool, *verdicts: tuple[bool, bool]) -> RunReport:
        expectation_verdicts = [
            ExpectationVerdict("rule", "run", is_passed, "", "", timed=is_timed) for is_passed, is_timed in verdicts
        ]
        return RunReport("s", "", [], expectation_verdicts, [], None, 0.0, overloaded)

    assert report(True, (False, True), (True, False)).inconclusive
    assert not report(False, (False, True)).inconclusive  # the machine had time
    assert not report(True, (False, True), (False, False)).inconclusive  # bytes are bytes on any machine
    assert not report(True, (True, True)).inconclusive


def test_judge__tells_what_an_overloaded_machine_may_decide(tmp_path):
    expect = "expect: [{metric: rate.total, at_least: 1}, {metric: qp_errors, at_most: 0}]\n"
    (tmp_path / "two.yaml").write_text(SCENARIO + expect)
    verdicts = run_scenario(plan_runs(read(tmp_path / "two.yaml"), "virtual"), Quiet()).verdicts
    assert [verdict.timed for verdict in verdicts] == [False, True, False]  # bytes in place; a rate; failed QPs


# ---- going on with what was killed --------------------------------------------------------------------------------

THREE = SCENARIO + "repeat: 3\n"


class StartRecorder(Quiet):
    def on_start(self, runs):
        self.runs = runs


def killed_results(tmp_path: Path, during: str = "#2", text: str = THREE) -> tuple[RunSet, Path]:
    """Return a folder as `kill -9` leaves it while a run goes on."""
    run_set, out = planned_runs(tmp_path, text), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_scenario(run_set, ActingProgress(during, interrupt()), out=out)
    return run_set, out


def content(folder: Path) -> dict[str, str]:
    """Return the content of results without times of day and durations."""
    out = {str(path.name): path.read_text().partition(', "load": ')[0] for path in (folder / "runs").iterdir()}
    manifest = json.loads((folder / "manifest.json").read_text())
    out["verdicts"] = json.dumps([manifest[key] for key in ("planned", "complete", "passed", "verdicts", "repeats")])
    return out


def test_resume__makes_only_what_is_missing_and_ends_the_same(tmp_path):
    run_set, out = killed_results(tmp_path)
    ended_runs = []

    class EndRecorder(Quiet):
        def on_end(self, run, _outcome):
            ended_runs.append(run.name)

    report = run_scenario(run_set, EndRecorder(), checkpoint=Checkpoint.resume(run_set, out))
    assert ended_runs == ["#2", "#3"] and [run.name for run, _ in report.runs] == ["#1", "#2", "#3"]
    run_scenario(run_set, Quiet(), out=tmp_path / "whole")
    assert content(out) == content(tmp_path / "whole")


def test_digest__is_of_file_and_seed_whatever_happened_on_the_way(tmp_path):
    run_set, out = killed_results(tmp_path)
    resumed_digest = run_scenario(run_set, Quiet(), checkpoint=Checkpoint.resume(run_set, out)).digest
    digest = run_scenario(run_set, Quiet(), out=tmp_path / "whole").digest
    file = str(run_set.document.path)
    options = {"backend": "virtual", "repeat": None, "as_json": False}
    assert run([file], seed=None, out=tmp_path / "beside", jobs=3, **options) == 0
    assert run([file], seed=8, out=tmp_path / "other", jobs=1, **options) == 0
    parallel_results, other_results = (Results.open(tmp_path / name)[0] for name in ("beside", "other"))
    assert (
        resumed_digest
        == digest
        == parallel_results.manifest["digest"]
        == parallel_results.digest()
        != other_results.manifest["digest"]
    )
    assert digest is not None and len(digest) == 64


def test_resume__stopped_again_keeps_all_that_ended(tmp_path):
    run_set, out = killed_results(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_scenario(run_set, ActingProgress("#3", interrupt()), checkpoint=Checkpoint.resume(run_set, out))
    assert [run["name"] for run in Results.open(out)[0].manifest["runs"]] == ["#1", "#2"]
    assert len(run_scenario(run_set, Quiet(), checkpoint=Checkpoint.resume(run_set, out)).runs) == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 7}, "another seed"),
        ({"repeat": 2}, "another planned"),
        ({"text": THREE.replace("one link", "another")}, r"another scenario\.yaml"),
        ({"commit": "0123456789ab"}, "another commit"),
    ],
)
def test_resume__of_something_else_is_refused(tmp_path, monkeypatch, change, says):
    _, out = killed_results(tmp_path)
    path = tmp_path / "short.yaml"
    path.write_text(change.get("text", THREE))
    if "commit" in change:
        monkeypatch.setattr(results_module, "_commit", lambda: change["commit"])
    run_set = plan_runs(read(path), "virtual", seed=change.get("seed"), repeat=change.get("repeat"))
    with pytest.raises(ResultsError, match=f"out was made with {says}: give the same again, or another --out"):
        Checkpoint.resume(run_set, out)


def test_resume__of_complete_results_makes_nothing_and_says_the_same(tmp_path):
    run_set, out = planned_runs(tmp_path), tmp_path / "out"
    first_report = run_scenario(run_set, Quiet(), out=out)
    content_before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    progress = StartRecorder()
    second_report = run_scenario(run_set, progress, checkpoint=Checkpoint.resume(run_set, out))
    assert progress.runs == [] and second_report.digest == first_report.digest
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == content_before


def cut_short(path: Path):
    path.write_bytes(path.read_bytes()[:-200])


def one_bit(path: Path):
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


DAMAGES = [
    ("2.json", cut_short, "its end is missing or damaged"),
    ("2.json", one_bit, "its bytes are not those that were written"),
    ("2.json", lambda path: path.write_bytes(b""), r"its end is missing or damaged \(0 bytes\)"),
    ("2.csv", cut_short, "its bytes are not those that were written"),
    ("2.csv", Path.unlink, "is missing"),
    ("2.json", lambda path: path.write_bytes(path.with_name("1.json").read_bytes()), "is of run '#1', not of '#2'"),
]


@pytest.mark.parametrize(("file", "damage", "says"), DAMAGES)
def test_resume__makes_again_what_is_damaged(tmp_path, file, damage, says):
    run_set, out = planned_runs(tmp_path, THREE), tmp_path / "out"
    digest = run_scenario(run_set, Quiet(), out=out).digest
    damage(out / "runs" / file)
    if "of run" in says:
        (out / "runs/2.csv").write_bytes((out / "runs/1.csv").read_bytes())
    with pytest.raises(ResultsError, match=rf"runs/{file}:? {says}.*--resume DIR` makes it again"):
        Results.open(out)  # nobody draws a page of it, either
    checkpoint = Checkpoint.resume(run_set, out)
    assert len(checkpoint.damages) == 1 and re.search(f"runs/{file}:? {says}", checkpoint.damages[0])
    progress = StartRecorder()
    assert run_scenario(run_set, progress, checkpoint=checkpoint).digest == digest
    assert [run.name for run in progress.runs] == ["#2"] and len(Results.open(out)[1]) == 3


def test_open__does_not_take_a_whole_run_of_other_results(tmp_path):
    run_scenario(planned_runs(tmp_path, THREE), Quiet(), out=tmp_path / "a")
    run_scenario(planned_runs(tmp_path, THREE.replace("5M", "6M")), Quiet(), out=tmp_path / "b")
    for ending in ("json", "csv"):
        (tmp_path / f"a/runs/2.{ending}").write_bytes((tmp_path / f"b/runs/2.{ending}").read_bytes())
    with pytest.raises(ResultsError, match=r"runs/2\.json: not the run that the manifest has"):
        Results.open(tmp_path / "a")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts a file system of 64 KiB")
def test_a_full_disk_keeps_what_is_whole_and_is_gone_on_with(tmp_path):
    """A full file system leaves no half-written file, and --resume finishes the study.

    With room again, --resume ends as if nothing had happened.
    """
    run_set, mount_point = planned_runs(tmp_path, THREE.replace("repeat: 3", "repeat: 12")), tmp_path / "small"
    digest = run_scenario(run_set, Quiet(), out=tmp_path / "whole").digest
    mount_point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "mrc-test", str(mount_point)], check=True)
    try:
        report = run_scenario(run_set, Quiet(), out=mount_point / "out")
        assert "cannot be written: No space left on device: make room, and go on with" in report.unwritten
        assert len(report.runs) == 12 and report.verdicts
        outcomes = Results.open(mount_point / "out")[1]
        assert 0 < len(outcomes) < 12 and not list((mount_point / "out").rglob("*.part"))
        subprocess.run(["mount", "-o", "remount,size=64m", str(mount_point)], check=True)
        assert (
            run_scenario(run_set, Quiet(), checkpoint=Checkpoint.resume(run_set, mount_point / "out")).digest == digest
        )
    finally:
        subprocess.run(["umount", str(mount_point)], check=True)


def test_resume__while_somebody_still_runs_there_is_refused(tmp_path):
    run_set, out = planned_runs(tmp_path, SCENARIO + "repeat: 2\n"), tmp_path / "out"

    def start_second():
        with pytest.raises(ResultsError, match="out: another command still runs there: wait for it"):
            Checkpoint.resume(run_set, out)

    progress = ActingProgress("#2", start_second)
    assert len(run_scenario(run_set, progress, out=out).runs) == 2 and progress.run == ""


def test_resume__by_the_command(tmp_path):
    _, out = killed_results(tmp_path)
    options = {"backend": "virtual", "seed": None, "repeat": None, "jobs": 2, "as_json": False}
    file = str(tmp_path / "short.yaml")
    with pytest.raises(ResultsError, match="two scenarios would both write to"):
        run([file, file], out=None, resume=out, **options)
    with pytest.raises(ResultsError, match=r"no folder .*nowhere: give one that `mrc run --out` made"):
        run([file], out=None, resume=tmp_path / "nowhere", **options)
    assert run([file], out=None, resume=out, **options) == 0
    assert Results.open(out)[0].manifest["complete"]


def test_resume__of_a_set_makes_what_is_missing_of_each(tmp_path, capsys):
    """`a` is complete, of `b` a run is missing, `c` was not begun: as `kill -9` leaves them."""
    for name in "abc":
        (tmp_path / f"{name}.yaml").write_text(THREE.replace("one link", name))
    files = [str(tmp_path / f"{name}.yaml") for name in "abc"]
    options = {"backend": "virtual", "seed": None, "repeat": None, "jobs": 1, "as_json": False}
    assert run(files, out=tmp_path / "whole", **options) == 0
    assert run(files, out=tmp_path / "set", **options) == 0
    digests = {name: Results.open(tmp_path / "whole" / name)[0].manifest["digest"] for name in "abc"}
    for path in (tmp_path / "set/b/runs").glob("2.*"):
        path.unlink()
    shutil.rmtree(tmp_path / "set/c")
    capsys.readouterr()
    assert run(files, out=None, resume=tmp_path / "set", **options) == 0
    output = capsys.readouterr().out
    assert (
        "a: 3 of 3 runs are there; nothing is left to make" in output
        and "b: 2 of 3 runs are there; 1 to make" in output
    )
    assert {name: Results.open(tmp_path / "set" / name)[0].manifest["digest"] for name in "abc"} == digests


def test_stopped__leaves_no_folder_of_scenarios_that_had_no_turn(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(SCENARIO)

    def stop(*_args, **_keys):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_scenario", stop)
    options = {"backend": "virtual", "seed": None, "repeat": None, "jobs": 1, "as_json": False}
    with pytest.raises(KeyboardInterrupt):
        run([str(tmp_path / f"{name}.yaml") for name in "ab"], out=tmp_path / "out", **options)
    assert paths_below(tmp_path) == {"a.yaml", "b.yaml"}


def test_again__says_the_wires_that_were_asked_for():
    path = ROOT / "scenarios" / "e7.yaml"
    assert rerun_command(path, "live", None, None, LabOptions(wires="veth")) == "mrc run scenarios/e7.yaml --wires veth"
    assert (
        rerun_command(path, "live", None, None, LabOptions(target="bmv2")) == "mrc run scenarios/e7.yaml --target bmv2"
    )


def test_again__says_the_file_of_the_machines(tmp_path):
    file = tmp_path / "servers.yaml"
    file.write_text("machines: [{name: a, address: 192.0.2.11}]\n")
    command = rerun_command(ROOT / "scenarios" / "e7.yaml", "live", 1, None, LabOptions(servers=read_servers(file)))
    assert command == f"mrc run scenarios/e7.yaml --servers {file} --seed 1"
