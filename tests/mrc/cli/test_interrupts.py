"""Ctrl-C at moments that are counted and not timed: one line, what is kept, exit code 130, no traceback.

A `sitecustomize` in front of the command's path sends SIGINT to the process group at the n-th event of Python's audit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ipc.errors import INTERRUPTED, INTERRUPTION

ROOT = Path(__file__).resolve().parents[3]
INTERRUPTER = """\
import os, signal, sys
event, part, number = os.environ["INTERRUPT_AT"].split(",")
left, command = int(number), os.getpid()

def interrupt(name, arguments):
    global left
    if name == event and os.getpid() == command and part in " ".join(map(str, arguments)):
        left -= 1
        if left == 0:
            os.killpg(os.getpgrp(), signal.SIGINT)

sys.addaudithook(interrupt)
"""
SCENARIO = """\
title: a transfer
fabric: {planes: 2, racks: 1, spines: 1, hosts_per_rack: 2}
workload: [{stream: h0 h1, name: flow, bytes: 64K}]
"""
STUDY = """\
title: round trips
scenario: a.yaml
parameters: {links.rtt: [5ms, 10ms]}
seeds: {min: 2, max: 2, step: 1}
metrics: [{metric: rate.flow, within: 50%}]
"""
RUN = "run a.yaml --virtual --repeat 3 --out out --jobs"
MOMENTS = [
    ("--version", "import,typer,1", ""),
    ("--version", "import,mrc.cli.show,1", ""),
    (f"{RUN} 1", "import,experiments.runner,1", ""),
    (f"{RUN} 1", "os.mkdir,out,1", "nothing of it is kept"),
    (f"{RUN} 2", "os.mkdir,out,1", "nothing of it is kept"),
    (f"{RUN} 1", "os.rename,manifest,1", "nothing of it is kept"),
    (f"{RUN} 1", "os.rename,runs/1.json,1", "nothing of it is kept"),
    (f"{RUN} 2", "os.rename,manifest,3", "runs that ended are in out (2 of 3)"),
    ("study study.yaml --out out", "os.mkdir,out,1", ""),
    ("study study.yaml --out out", "os.rename,.json,2", ""),
    ("report made", "import,matplotlib,1", ""),
    ("report made", "os.rename,report.html,1", ""),
    ("compile", "open,compiled.lock,1", ""),
    ("compile", "subprocess.Popen,,1", ""),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A scenario, its results, and what interrupts."""
    folder = tmp_path_factory.mktemp("interrupts")
    (folder / "a.yaml").write_text(SCENARIO)
    (folder / "study.yaml").write_text(STUDY)
    words = ["run", "a.yaml", "--virtual", "--out", "made", "--jobs", "1"]
    subprocess.run(
        [sys.executable, "-m", "mrc", *words], cwd=folder, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    (folder / "first").mkdir()
    (folder / "first" / "sitecustomize.py").write_text(INTERRUPTER)
    return folder


@pytest.mark.parametrize(("words", "moment", "kept"), MOMENTS)
def test_an_interrupted_command_ends_once_in_a_line(folder, tmp_path, words, moment, kept):
    env = os.environ | {
        "PYTHONPATH": f"{folder / 'first'}:{ROOT}", "INTERRUPT_AT": moment, "MRC_CACHE_DIR": str(tmp_path / "cache"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "mrc", *words.split()],
        cwd=folder, env=env, start_new_session=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == INTERRUPTED and "Traceback" not in done.stdout, done.stdout
    assert done.stdout.count(INTERRUPTION) == 1 and kept in done.stdout
    assert not list(folder.rglob("*.part")) and not list(tmp_path.rglob(".compiled-*"))
    subprocess.run(["rm", "-r", "-f", folder / "out"], check=True)
