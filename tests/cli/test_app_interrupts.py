"""Ctrl-C at moments that are counted and not timed.

One line, what is kept, exit code 130, no traceback.

A `sitecustomize` in front of the command's path sends SIGINT to the process group at the n-th event of Python's audit.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys

import pytest

from mrc_testbed.errors import EXIT_INTERRUPTED, INTERRUPTION
from tests.repository import ROOT

INTERRUPTER = """\
import os, signal, sys
moments = [moment.split(",") for moment in os.environ["INTERRUPT_AT"].split(";")]
left, command = int(moments[0][2]), os.getpid()

def interrupt(name, arguments):
    global left
    if not moments or name != moments[0][0] or os.getpid() != command:
        return
    if moments[0][1] in " ".join(map(str, arguments)):
        left -= 1
        if left == 0:
            del moments[0]
            left = int(moments[0][2]) if moments else 0
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
    ("--version", "import,mrc_testbed.cli.show,1", ""),
    (f"{RUN} 1", "import,mrc_testbed.experiments.runner,1", ""),
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
    ("merge made --out out", "os.rename,runs/,2", ""),
    ("compare made made", "open,manifest.json,1", ""),
    ("dash made", "os.rename,.html,1", ""),
    # Twice: the second one while the first is answered.
    (f"{RUN} 1", "os.rename,manifest,1;os.remove,,1", ""),
    (f"{RUN} 2", "os.rename,manifest,1;os.remove,,1", ""),
    (f"{RUN} 2", "os.rename,manifest,2;os.rename,manifest,1", ""),
    ("study study.yaml --out out", "os.rename,.json,3;os.rename,manifest,1", ""),
    ("report made", "os.rename,report.html,1;os.remove,,1", ""),
]
SHARE, FIRST = 7, 3
"""`make test` has one moment in seven, from the fourth on; `make thorough` the others."""
TOOLS = ("ping", "stat", "write_bw", "write_lat")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A scenario, its results, and what interrupts."""
    folder = tmp_path_factory.mktemp("interrupts")
    (folder / "a.yaml").write_text(SCENARIO)
    (folder / "study.yaml").write_text(STUDY)
    words = ["run", "a.yaml", "--virtual", "--out", "made", "--jobs", "1"]
    subprocess.run(
        [sys.executable, "-m", "mrc_testbed", *words],
        cwd=folder,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    (folder / "first").mkdir()
    (folder / "first" / "sitecustomize.py").write_text(INTERRUPTER)
    return folder


@pytest.mark.parametrize(
    ("words", "moment", "results_text"),
    [
        pytest.param(*moment, marks=[pytest.mark.thorough] if i % SHARE != FIRST else [])
        for i, moment in enumerate(MOMENTS)
    ],
)
def test_an_interrupted_command_ends_once_in_a_line(folder, tmp_path, words, moment, results_text):
    env = os.environ | {
        "PYTHONPATH": f"{folder / 'first'}:{ROOT}",
        "INTERRUPT_AT": moment,
        "MRC_CACHE_DIR": str(tmp_path / "cache"),
    }
    result = subprocess.run(
        [sys.executable, "-m", "mrc_testbed", *words.split()],
        cwd=folder,
        env=env,
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert result.returncode == EXIT_INTERRUPTED and "Traceback" not in result.stdout, result.stdout
    assert result.stdout.count(INTERRUPTION) == 1 and results_text in result.stdout
    part_files = list(folder.rglob("*.part"))
    assert not list(tmp_path.rglob(".compiled-*")) and (not part_files or ";" in moment), part_files
    assert not words.startswith("merge") or not (folder / "out").exists()
    subprocess.run(["rm", "-r", "-f", folder / "out", *part_files], check=True)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_that_is_interrupted_while_it_is_imported_ends_in_a_line(folder, tool):
    env = os.environ | {"PYTHONPATH": f"{folder / 'first'}:{ROOT}", "INTERRUPT_AT": "import,typer,1"}
    result = subprocess.run(
        [sys.executable, "-c", f"from mrc_testbed.hosts.tools.scripts import {tool}; {tool}()", "h0"],
        env=env,
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert (result.returncode, result.stdout) == (EXIT_INTERRUPTED, f"mrc-{tool.replace('_', '-')}: interrupted\n")


def test_every_console_script__begins_where_ctrl_c_is_caught():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    scripts = re.search(r"^\[project.scripts\]\n(.*?)\n\n", text, re.DOTALL | re.MULTILINE)[1]
    modules = {line.split('"')[1].split(":")[0] for line in scripts.splitlines()}
    assert modules == {"mrc_testbed.__main__", "mrc_testbed.hosts.tools.scripts"}
    for module in modules:  # nothing is imported before `begin` but errors and signals
        tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
        imports = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert imports <= {"__future__", "mrc_testbed.console.command_line", "mrc_testbed.errors"}
