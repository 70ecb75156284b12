"""`mrc train` without a fabric: which hosts, which errors, what is read from a rank's lines."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.cli.training import TrainingJob, check_program, choose_hosts
from mrc_testbed.errors import UsageError
from mrc_testbed.topologies.plan import Plan


def names(hosts):
    return [host.name for host in hosts]


def test_choose_hosts__takes_racks_in_turn_or_the_named_ones():
    plan = Plan(2, 2, 1, 3)
    assert names(choose_hosts(plan, [], 3)) == ["h0", "h3", "h1"]
    assert names(choose_hosts(plan, ["h5", "h1"], 2)) == ["h5", "h1"]
    with pytest.raises(UsageError, match="the fabric has 6 hosts"):
        choose_hosts(plan, [], 7)
    with pytest.raises(UsageError, match="--hosts h1,h1: one rank a host"):
        choose_hosts(plan, ["h1", "h1"], 2)


def test_check_program__names_an_example():
    with pytest.raises(UsageError, match=r"nothing.py: no such file. Cure: .*examples/ddp.py"):
        check_program(["nothing.py"])


def test_check_program__without_pytorch_names_the_cure(tmp_path, monkeypatch):
    program = tmp_path / "program.py"
    program.write_text("")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match=r"has no PyTorch. Cure: pip install 'mrc-testbed\[torch\]'"):
        check_program([str(program)])


def job(tmp_path, words):
    """Run a Python text as both ranks of a job that needs no fabric; return job, status and lines."""
    plan = Plan(1, 2, 1, 1)
    program = tmp_path / "program.py"
    program.write_text(words)
    lines = []
    training = TrainingJob(tmp_path, plan, list(plan.hosts), "loopback", lines.append)
    return training, training.run([str(program)]), lines


def test_run__shows_steps_and_compares_parameters(tmp_path):
    words = """import os
print("step 1  loss 2.0  0.500 s")
print("step 2  loss 1.0  0.250 s")
print("SHA-256 of the parameters " + "ab" * 32)
assert (os.environ["WORLD_SIZE"], os.environ["MRC_TRAIN_BACKEND"]) == ("2", "gloo")
"""
    training, status, lines = job(tmp_path, words)
    assert status == 0
    assert lines[:3] == [
        "step 1  loss 2.0  0.500 s",
        "step 2  loss 1.0  0.250 s",
        "2 steps: median 0.375 s, slowest 0.500 s; 0 packets sent again",
    ]
    assert lines[3].startswith("CPU of a step: ranks ") and lines[4].endswith("equal on 2 ranks: " + "ab" * 32)
    result = training.to_json(status)
    assert result["sha256"] == "ab" * 32 and [step["seconds"] for step in result["steps"]] == [0.5, 0.25]


def test_run__says_which_rank_ended_with_other_parameters(tmp_path):
    words = "import os; print('SHA-256 of the parameters ' + os.environ['RANK'] * 64)"
    _, status, lines = job(tmp_path, words)
    assert status == 1 and lines[0] == "the ranks ended with different parameters:"


def test_run__shows_the_last_lines_of_the_rank_that_failed(tmp_path):
    words = "import os, sys; print('rank', os.environ['RANK']); sys.exit(7 if os.environ['RANK'] == '1' else 0)"
    _, status, lines = job(tmp_path, words)
    assert status == 7 and "rank 1 on h1 ended with 7; its last lines:" in lines and "    rank 1" in lines


@pytest.mark.parametrize("words", [["train", __file__], ["exec", "h0", "--", "true"]])
def test_commands__without_a_fabric_say_so(tmp_path, monkeypatch, words):
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, UsageError) and "no fabric is running" in str(result.exception)


def test_ranks__do_not_outlive_a_job_that_was_killed(tmp_path):
    (tmp_path / "program.py").write_text("import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(1000)\n")
    script = (
        "import sys; from pathlib import Path; from mrc_testbed.cli.training import TrainingJob\n"
        "from mrc_testbed.topologies.plan import Plan\n"
        "plan, folder = Plan(1, 2, 1, 1), Path(sys.argv[1])\n"
        "job = TrainingJob(folder, plan, list(plan.hosts), 'loopback', lambda line: print(line, flush=True))\n"
        "job.run([str(folder / 'program.py')])\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        rank_pid = int(process.stdout.readline().split()[1])
        process.kill()
    while Path(f"/proc/{rank_pid}").exists():  # without end where it outlives the job, until the test is timed out
        time.sleep(0.01)
