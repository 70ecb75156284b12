"""Tab after `mrc` in real shells.

What is offered, fast and without a traceback, with and without a running fabric.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mrc_testbed.cli import completion
from mrc_testbed.topologies.plan import Plan
from tests.cli.prompt.terminal import Terminal
from tests.repository import ROOT
from tests.topologies.renamed_plan import renamed_plan

BIN = Path(sys.executable).parent


@pytest.fixture
def run_dir(tmp_path, monkeypatch):
    """A run folder with the plan of 64 switches, as a running fabric has it."""
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path))
    (tmp_path / "plan.json").write_text(json.dumps(Plan.scaled(8, 4, 4, 2).to_json()))
    return tmp_path


def script(shell):
    """Return the output of `mrc --show-completion` for a shell."""
    env = {**os.environ, "_MRC_COMPLETE": f"source_{shell}", "PATH": f"{BIN}:{os.environ['PATH']}"}
    return subprocess.run(["mrc"], env=env, capture_output=True, text=True, check=True).stdout


SHELLS = {
    "bash": (["--norc", "--noprofile", "-i"], "source {script}"),
    "zsh": (["-f", "-i"], "autoload -Uz compinit; compinit -u -D; source {script}"),
    "fish": (["--no-config", "-i"], "source {script}"),
}


@pytest.fixture(params=sorted(SHELLS))
def shell(request, run_dir):
    """A shell at a pty that has read our script; somebody types."""
    command = shutil.which(request.param)
    if command is None:
        pytest.skip(f"needs {request.param} (apt-get install {request.param})")
    path = run_dir / "completion"
    path.write_text(script(request.param))
    options, begin = SHELLS[request.param]
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(run_dir), "TERM": "xterm", "PS1": "$ "}
    terminal = Terminal([command, *options], env)
    terminal.type(begin.format(script=path) + "; echo re''ady\n")
    terminal.expect("ready")
    yield terminal
    terminal.type("\x15exit\n")  # it does not heed SIGTERM
    terminal.process.wait(20)
    terminal.close()


def test_tab__in_a_shell(shell, run_dir):
    """Words, names of files that come with the testbed, nodes of the running fabric.

    Nothing when none runs.
    """
    for line, completion_text in [("mrc run headline-jo", "bs"), ("mrc pcap p7-t1-3-e", "th")]:
        shell.type(f"{line}\t")
        shell.expect(re.escape(line) + "\x07?" + completion_text, 20)
        shell.type("\x15")  # Ctrl-U
    (run_dir / "plan.json").unlink()
    shell.type("mrc links p7-t\t; echo do''ne\n")
    assert not re.search("p7-t1|Traceback", shell.expect("done", 20).partition("p7-t")[2])


def offers_for(line, monkeypatch, capfd):
    """Return the completions that `mrc` offers bash, in this process."""
    from mrc_testbed.cli import app

    words = line.split() + [""] * line.endswith(" ")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    monkeypatch.setenv("_MRC_COMPLETE", "complete_bash")
    monkeypatch.setattr(sys, "argv", ["mrc"])
    with pytest.raises(SystemExit):
        app.main()
    out, err = capfd.readouterr()
    assert err == ""
    return out.split("\n")[:-1]


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("mrc scenario show e2", ["e2", "e20", "e21"]),
        ("mrc evs h0 h1", ["h1"]),
        ("mrc trace h0 h7 3/", ["3/0", "3/1", "3/2", "3/3"]),
        ("mrc trace h0 h99 3/", []),
        ("mrc pcap p7-t0-3-eth", [f"p7-t0-3-eth{n}" for n in range(1, 7)]),
        ("mrc queues p7-t1-3-eth", [f"p7-t1-3-eth{n}" for n in range(1, 5)]),
        ("mrc shell h", []),
        ("mrc faults a", ["active", "all"]),
        ("mrc up --planes ", ["1", "2", "4", "8", "16"]),
        ("mrc bench faults --kinds blackhole,l", ["blackhole,link\\ cut", "blackhole,lossy\\ link"]),
        ("mrc p4 check s", ["spray", "srv6"]),
        ("mrc fuzz e", ["endpoints"]),
    ],
)
def test_words__of_each_kind(line, offers, run_dir, monkeypatch, capfd):
    assert [offer for offer in offers_for(line, monkeypatch, capfd) if offer] == offers


def test_words__of_a_fabric_with_names_of_its_own(run_dir, monkeypatch, capfd):
    (run_dir / "plan.json").write_text(json.dumps(renamed_plan(Plan(1, 2, 1, 1)).to_json()))
    assert offers_for("mrc queues hub3", monkeypatch, capfd) == ["hub3", "hub3-eth1", "hub3-eth2"]
    assert not any(offers_for("mrc queues p", monkeypatch, capfd))  # a host has no queues
    assert offers_for("mrc evs p-gpu0 p", monkeypatch, capfd) == ["p-gpu0", "p-gpu1"]


@pytest.mark.parametrize("plan", [None, "[", "{}", '{"planes": "x"}'])
@pytest.mark.parametrize("line", ["mrc links p", "mrc trace h0 h1 0/", "mrc pcap h"])
def test_plan__missing_or_broken_offers_nothing(line, plan, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path))
    if plan is not None:
        (tmp_path / "plan.json").write_text(plan)
    offers = offers_for(line, monkeypatch, capfd)
    assert plan == "{}" or offers in ([], [""])


def test_lists__are_those_of_the_code():
    from mrc_testbed.controller.denylist import POLICIES
    from mrc_testbed.controller.reconvergence import REACT_NEVER, REACT_NOW
    from mrc_testbed.experiments.executors.options import EXECUTORS
    from mrc_testbed.simulator.simtest import fuzz
    from mrc_testbed.topologies.lab.options import NICS, WIRES, WIRES_OF
    from mrc_testbed.topologies.plan import Mode
    from tools.bench import incast
    from tools.campaigns import faults

    assert list(completion.FAULT_KINDS) == list(faults.KINDS)
    assert list(completion.INCAST_VARIANTS) == list(incast.VARIANTS)
    assert sorted(completion.FUZZ_TARGETS) == sorted([*fuzz.TARGETS, "p4"])
    assert (completion.NICS, completion.WIRES, completion.POLICIES) == (NICS, WIRES, POLICIES)
    assert (tuple(WIRES_OF), (REACT_NOW, REACT_NEVER)) == (completion.TARGETS, completion.REACTIONS)
    assert completion.EXECUTORS == EXECUTORS
    assert sorted(completion.MODES) == sorted(mode.value for mode in Mode)


def test_completion__imports_the_plan_at_most():
    """Imports are checked instead of the clock, for they make a Tab slow."""
    code = (
        "import sys; from types import SimpleNamespace; from mrc_testbed.cli.app import app;"
        "from mrc_testbed.cli import completion as c;"
        "c.scenarios('e'); c.nodes(SimpleNamespace(params={}), 'p');"
        "print(*{name.removeprefix('mrc_testbed.') for name in sys.modules})"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = set(result.stdout.split())
    assert not {"aiohttp", "grpc", "mininet", "scapy", "hosts", "experiments", "controller", "numpy"} & modules
    assert "topologies.plan" in modules and "topologies.lab" not in modules
