"""Programs of users in a run, without a fabric: gloo's backend over loopback needs none."""

from __future__ import annotations

import importlib.util
import time
from types import SimpleNamespace

import pytest

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.backend.outcome import PROGRAM, Outcome
from mrc_testbed.experiments.live import live_programs
from mrc_testbed.experiments.live.live_programs import LivePrograms, check_programs
from mrc_testbed.experiments.resolve.flows import ProgramPlan
from mrc_testbed.ipc.rundir import FabricError, RunFiles
from mrc_testbed.topologies.plan import Plan

STEPS = """import os
for step in range(1, 5):
    print(f"step {step}  loss 1.0  {step / 10} s", flush=True)
print("SHA-256 of the parameters " + DIGEST * 64)
"""
FOR_EVER = "import time; print('ready', flush=True); time.sleep(1000)"


class Rig:
    """Programs on two hosts of a fabric that is nothing but a plan."""

    def __init__(self, folder):
        self.folder, self.plans = folder, []
        self.run_dir = RunFiles(folder)
        self.run_dir.state = SimpleNamespace(token="of a test")
        self.run_dir.check_host_on = lambda _host: None
        self.plan = Plan(1, 2, 1, 1)
        self.hosts = {host.name: SimpleNamespace(is_powered=True) for host in self.plan.hosts}

    def add(self, text, *, work="job", steps=None, start_s=0.0, stop_s=None):
        name = f"{work}.py"
        (self.folder / name).write_text(text)
        hosts = tuple(self.hosts)
        self.plans.append(ProgramPlan(work, (name,), hosts, "loopback", str(self.folder), steps, start_s, stop_s))

    def start(self):
        self.programs = LivePrograms(self.plans)
        self.programs.start(self, time.monotonic())
        return self.programs

    def outcome(self):
        """Wait for all programs, and return the run's outcome with them."""
        programs = self.start()
        while not programs.all_over:
            time.sleep(0.01)  # without end where it hangs, until the test is timed out
        return self.report()

    def report(self):
        self.programs.end()
        outcome = Outcome("s", "run", {}, "live", 1, 0, "srv6", 0.0, duration_s=100.0)
        self.programs.report(outcome)
        return outcome

    def failures(self):
        return [(failure.kind, failure.text, failure.count) for failure in self.outcome().failures]


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    rig.programs.end()


def test_report__has_steps_exit_codes_digests_and_all_lines(rig):
    rig.add(STEPS.replace("DIGEST", "'a'"), steps=4)
    outcome = rig.outcome()
    (program,), (steps,) = outcome.programs, outcome.collectives
    assert (program.exit_codes, program.digests) == ([0, 0], ["a" * 64] * 2) and not outcome.failures
    assert program.started_s is not None and program.started_s <= program.finished_s
    assert steps.kind == PROGRAM and [i.number for i in steps.iterations] == [1, 2, 3, 4]
    assert [round(i.finished_s - i.started_s, 6) for i in steps.iterations] == [0.1, 0.2, 0.3, 0.4]
    lines = outcome.output.decode().splitlines()
    assert len(lines) == 10 and sum("job rank 1 on h1: step 2  loss" in line for line in lines) == 1
    assert rig.programs.share_done == 1.0


def test_report__a_rank_that_fails_ends_the_others(rig, monkeypatch):
    monkeypatch.setattr(live_programs, "PATIENCE_S", 0.0)
    monkeypatch.setattr(live_programs, "STOP_GRACE_S", 0.0)
    rig.add("import os, sys, time\nif os.environ['RANK'] == '1':\n    sys.exit('no data')\ntime.sleep(1000)")
    outcome = rig.outcome()
    assert [failure.text for failure in outcome.failures] == [
        "job: rank 1 on h1 exited with code 1; its last line: no data"
    ]
    assert outcome.failures[0].kind == "program" and outcome.programs[0].exit_codes == [None, 1]


def test_report__a_rank_that_is_killed(rig):
    rig.add("import os; os.kill(os.getpid(), 9)")
    outcome = rig.outcome()
    assert outcome.programs[0].exit_codes == [137, 137]
    assert outcome.failures[0].text == "job: rank 0 on h0 was killed by SIGKILL; it printed nothing"


def test_report__what_the_end_of_the_run_cuts_off_is_unfinished(rig):
    rig.add(FOR_EVER, steps=3)
    rig.start()
    outcome = rig.report()
    assert outcome.programs[0].exit_codes in ([None, None], [])  # before its start, or after
    assert {failure.kind for failure in outcome.failures} <= {"unfinished", "left_out"} and outcome.failures


def test_report__what_ends_at_its_stop_is_no_failure(rig):
    rig.add(FOR_EVER, stop_s=0.5)
    outcome = rig.outcome()
    assert outcome.programs[0].exit_codes == [None, None] and not outcome.failures


def test_report__a_program_whose_time_never_came(rig):
    rig.add(FOR_EVER, start_s=1000.0)
    rig.start()
    outcome = rig.report()
    (failure,) = outcome.failures
    assert failure.kind == "left_out" and failure.text == "job: was to start at 1000 s: the run was over before"


def test_report__a_host_without_power(rig):
    def refuse(host):
        raise FabricError(f"{host} has no power")

    rig.run_dir.check_host_on = refuse
    rig.add(FOR_EVER)
    assert rig.failures() == [("program", "job: could not be started: h0 has no power", 1)]


def test_check_ranks__ends_the_rank_of_a_host_that_loses_its_power(rig, monkeypatch):
    monkeypatch.setattr(live_programs, "PATIENCE_S", 0.0)
    rig.add(FOR_EVER)
    rig.start()
    while b"h1: ready" not in rig.programs._output.data():
        time.sleep(0.01)
    rig.hosts["h1"].is_powered = False
    while not rig.programs.all_over:
        time.sleep(0.01)
    outcome = rig.report()
    assert outcome.programs[0].exit_codes == [None, 137]
    assert [failure.text for failure in outcome.failures] == [
        "job: rank 1 on h1 was killed by SIGKILL; its last line: ready"
    ]


def test_report__missing_steps_and_different_parameters(rig):
    rig.add(STEPS.replace("DIGEST", "os.environ['RANK']"), steps=9)
    assert sorted(rig.failures()) == [
        ("damage", "job: the ranks ended with different parameters", 1),
        ("unfinished", "job: 4 of 9 steps were printed", 5),
    ]


def test_output__has_an_end(rig, monkeypatch):
    monkeypatch.setattr(live_programs, "OUTPUT_BYTES", 300)
    rig.add("for number in range(100): print('line', number)")
    lines = rig.outcome().output.decode().splitlines()
    assert sum(map(len, lines[:-1])) < 300 and lines[-1] == f"... and {200 - len(lines) + 1} lines more"


def plan_of(words, **changes):
    values = {"backend": None, "folder": None, "steps": None, "start_s": 0.0, "stop_s": None} | changes
    return ProgramPlan("job", tuple(words), ("h0",), **values)


@pytest.mark.parametrize(
    "words, changes, says",
    [
        (["no-such-program"], {}, "workload job: no program 'no-such-program' in PATH. Cure: install it, or give"),
        (["./missing"], {"folder": "/usr"}, "no program './missing' in PATH. Cure: .* its path, from /usr"),
        (["true"], {"folder": "/nowhere"}, "no folder /nowhere. Cure: another `folder`"),
        (["missing.py"], {"backend": "mrc"}, "missing.py: no such file. Cure: a Python program"),
    ],
)
def test_check_programs__names_cause_and_cure(words, changes, says):
    with pytest.raises(UsageError, match=says):
        check_programs([plan_of(words, **changes)], several_machines=False)


def test_check_programs__on_this_machine_only(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("")
    check_programs([plan_of(["true"])], several_machines=False)
    with pytest.raises(UsageError, match=r"on one machine only\. Cure: without --servers"):
        check_programs([plan_of(["true"])], several_machines=True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match=r"has no PyTorch. Cure: pip install"):
        check_programs([plan_of(["train.py"], backend="mrc", folder=str(tmp_path))], several_machines=False)
