"""Two fabrics side by side in the background: each is used, one is killed, the other one goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.ipc import procfs
from mrc_testbed.topologies.plan import Plan
from tests.cli.json_outputs import fit
from tests.cli.prompt.terminal import PROMPT, Terminal
from tests.repository import ROOT

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="a live fabric needs root")]
SHAPE = "--planes 2 --racks 2 --spines 1 --hosts-per-rack 1"
NAMES = ("a", "b")
WORDS = (
    "link p0-t0-0 p0-t1-0 down",
    "injected",
    "links",
    "faults all",
    "heal",
    "denylist",
    "routes",
    "send h0 h1 64K",
    "wait",
    "evs h0 h1",
    "queues 2p0-t0-0-eth1",
    "counters",
    "counters p0-t0-0",
    "trace h0 h1 0x0000",
    "check 5",
)
"""Lines whose JSON is read by its schema."""


@pytest.fixture
def mrc(tmp_path):
    """`mrc` with a run folder of its own; every fabric is down at the end."""
    environment = {**os.environ, "MRC_RUN_DIR": str(tmp_path / "r"), "PYTHONPATH": str(ROOT)}

    def run(words, code=0, prompt_text=""):
        argv = [sys.executable, "-m", "mrc_testbed", *words.split()]
        process = subprocess.run(argv, env=environment, input=prompt_text, capture_output=True, text=True)
        assert process.returncode == code, process.stdout + process.stderr
        return process.stdout + process.stderr

    yield run
    run("down --all")


def interfaces():
    """Return the interfaces of the machine that are none of its own."""
    return {name for name in os.listdir("/sys/class/net") if "eth" in name and name.lstrip("2").startswith("p")}


def test_two_fabrics__side_by_side(mrc, tmp_path, monkeypatch):
    for name in NAMES:
        assert f"{name} is up: `mrc attach {name}`" in mrc(f"up -d --name {name} {SHAPE}")
    rows = {row["name"]: row for row in fit("ls", json.loads(mrc("ls --json")))}
    assert [rows[name]["state"] for name in NAMES] == ["up", "up"]
    assert not {*rows["a"]["ports"].values()} & {*rows["b"]["ports"].values()}
    assert "several fabrics are up: a, b" in mrc("links", code=1)

    # A cut is of one fabric alone, a transfer runs in both, and a program finds the hosts of its own.
    assert mrc("link p0-t0-0 p0-t1-0 down --fabric a") == "p0-t0-0 p0-t1-0 is down\n"
    assert [mrc(f"injected --fabric {name}").count("cut") for name in NAMES] == [1, 0]
    for name in NAMES:
        assert "begun" in mrc(f"send h0 h1 256K --fabric {name}")
        assert json.loads(mrc(f"wait --fabric {name} --json"))["transfers"][-1]["state"] == "done"
        assert mrc(f"exec h0 --fabric {name} -- printenv MRC_HOST") == "h0\n"
        assert mrc(f"ssh --fabric {name} h1 echo -n $MRC_HOST ;  echo .") == "h1.\n"
    assert "p0-t0-0 p0-t1-0  up" in mrc("attach b", prompt_text="links p0-t0-0\ndetach\n")
    assert "1 undone" in mrc("heal --fabric a")
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path / "r"))
    for line in WORDS:
        result = CliRunner().invoke(app, [*line.split(), "--fabric", "b", "--json"])
        assert result.exit_code == 0, result.output
        fit(line.split()[0], json.loads(result.stdout))

    # What a killed one left goes, and the other one stays.
    pid = rows["a"]["pid"]
    os.kill(pid, signal.SIGKILL)
    while procfs.start_time(pid) is not None and not procfs.is_zombie(pid):
        pass
    assert {row["name"]: row["state"] for row in json.loads(mrc("ls --json"))} == {"a": "dead", "b": "up"}
    out = mrc("clean")
    assert "clean: removed" in out and "clean: b is up and stays" in out
    plan = Plan(2, 2, 1, 1, interface_prefix="2")
    assert interfaces() == {link.upper.interface for link in plan.links if link.lower.node.startswith("h")}
    assert fit("down", json.loads(mrc("down --json")))[0]["name"] == "b"
    assert interfaces() == set() and json.loads(mrc("ls --json")) == []


@pytest.fixture
def prompt(tmp_path, mrc):
    """The prompt of `mrc up` at a terminal, up to its first line."""
    environment = {**os.environ, "MRC_RUN_DIR": str(tmp_path / "r"), "TERM": "dumb"}
    terminal = Terminal([sys.executable, "-m", "mrc_testbed", "up", *SHAPE.split()], environment)
    terminal.expect(PROMPT, 300)
    yield terminal
    terminal.close()


def test_detach__gives_the_terminal_back_and_leaves_the_fabric_up(mrc, prompt):
    front = json.loads(mrc("ls --json"))[0]["pid"]
    assert front != prompt.process.pid
    prompt.type("\x03")
    prompt.expect(PROMPT)
    prompt.enter("link p0-t0-0 p0-t1-0 down")
    prompt.type("send h0 h1 1M\ndetach\n")
    prompt.expect("mrc goes on: `mrc attach mrc` comes back, `mrc down mrc` ends it")
    assert prompt.process.wait() == 0

    # Transfers and faults go on, as without any terminal.
    os.close(prompt.master)
    prompt.master = os.open(os.devnull, os.O_RDWR)
    assert json.loads(mrc("wait --json"))["transfers"][-1]["state"] == "done"
    assert "1 undone" in mrc("heal")
    assert "h1" in mrc("attach", prompt_text="nodes\ndetach\n")
    assert [(row["state"], row["pid"]) for row in json.loads(mrc("ls --json"))] == [("up", front)]
    mrc("down")
    assert interfaces() == set() and json.loads(mrc("ls --json")) == []


@pytest.mark.parametrize("number", [pytest.param(signal.SIGKILL, marks=pytest.mark.thorough), signal.SIGHUP])
def test_prompt__whose_command_is_killed_or_terminal_closed_removes_the_fabric(mrc, prompt, number):
    front = json.loads(mrc("ls --json"))[0]["pid"]
    if number == signal.SIGHUP:
        os.close(prompt.master)
        prompt.master = os.open(os.devnull, os.O_RDWR)
    else:
        prompt.process.kill()
    assert prompt.process.wait() == (128 + number if number == signal.SIGHUP else -number)
    while procfs.start_time(front) is not None and not procfs.is_zombie(front):
        pass
    assert interfaces() == set() and json.loads(mrc("ls --json")) == []


def test_up__in_the_background_shows_why_it_failed(mrc, tmp_path):
    assert "planes = 17: must be 1 to 16" in mrc("up -d --planes 17", code=1)
    (tmp_path / "r").write_text("no folder")
    assert "is no folder: remove it" in mrc("up -d", code=1)
    (tmp_path / "r").unlink()
