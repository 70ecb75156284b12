"""Session of p4runtime-shell on a live P4 lab: entries that packets take, counters."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mrc_testbed.ipc.fabrics import Fabrics
from mrc_testbed.topologies.p4lab.lab import LabPrograms, P4Lab
from mrc_testbed.topologies.p4lab.topology import pair_topology
from tests.repository import ROOT
from tests.topologies.p4lab.programs import COUNTED_MAC_SWITCH

INTERPRETERS = [folder / ".venv-p4runtime-shell" / "bin" / "python" for folder in (ROOT, Path(sys.prefix).parent)]
PYTHON = next((path for path in INTERPRETERS if path.exists()), None)
FIRST_PORT = 50351
SESSION_S = 120.0
"""Bound of a session of the shell, whose start compiles nothing, seconds."""
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets"),
    pytest.mark.skipif(PYTHON is None, reason="no .venv-p4runtime-shell: scripts/setup makes it"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    program = tmp_path_factory.mktemp("program") / "counted.p4"
    program.write_text(COUNTED_MAC_SWITCH)
    programs = LabPrograms(program, {}, FIRST_PORT, open_to_all=True)
    with P4Lab(pair_topology(), programs, tmp_path_factory.mktemp("run")) as lab:
        yield lab


def shell(address, step):
    """Run a session of the shell; return what it has read."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(PYTHON), str(Path(__file__).with_name("shell_session.py")), address, step]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SESSION_S)
    assert process.returncode == 0, process.stdout + process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def test_record__says_that_the_lab_is_up(lab):
    assert Fabrics(lab.run_dir.path).records()[0].condition == "up"


def test_shell__writes_entries_and_counts_what_passes(lab):
    first_counts = shell(f"127.0.0.1:{FIRST_PORT}", "write")
    assert first_counts == {"ports": [1, 2], "hits": [0, 0], "cells": [0, 0, 0, 0]}
    assert "3 received" in lab.mininet["h1"].cmd("ping -c 3 -i 0.2 -W 2 10.0.0.2")
    counts = shell(f"unix:{lab.run_dir.p4runtime_socket}", "read")
    assert counts["ports"] == [1, 2]
    assert min(counts["hits"]) >= 3 and min(counts["cells"][1:3]) >= 3, counts


def test_reload__keeps_what_the_shell_wrote(lab):
    (source,) = set(lab.running.sources.values())
    source.write_text(COUNTED_MAC_SWITCH + "// changed\n")
    (reload,) = lab.running.reload()
    assert (reload.kept_count, reload.refusals, reload.has_counts) == (2, (), True)
    counts = shell(f"127.0.0.1:{FIRST_PORT}", "read")
    assert counts["ports"] == [1, 2] and min(counts["hits"]) >= 3
