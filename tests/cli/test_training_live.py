"""`mrc train` on a live fabric through a cut link ends with gloo's parameters; MPI runs too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import LabOptions, Ports
from mrc_testbed.topologies.plan import Plan
from tests.repository import ROOT
from tools.bench import collectives

pytestmark = [
    pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch: pip install 'mrc-testbed[torch]'"),
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and packet sockets"),
    pytest.mark.timeout(240),
]
LIMIT_S = 100
PORTS = Ports(p4runtime=29757, gnmi=29537)
STEPS = 20


def start(fabric, *options):
    return subprocess.Popen(
        [sys.executable, "-m", "mrc_testbed", "train", "--json", *options, "examples/ddp.py", "--steps", str(STEPS)],
        cwd=ROOT,
        env={**os.environ, "MRC_RUN_DIR": str(fabric.run_dir.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result_of(process):
    output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors
    return json.loads(output)


def test_train__through_a_cut_link_gives_gloos_parameters(tmp_path):
    with Fabric(Plan(2, 2, 2, 1), LabOptions(ports=PORTS), tmp_path) as fabric:
        job = start(fabric, "--hosts", "h0,h1")
        lines = []
        for line in job.stderr:
            lines.append(line)
            if line.startswith("step    5 "):
                fabric.link("p0-t0-0", "p0-t1-0", is_up=False)
                break
        over_mrc = result_of(job)
        over_gloo = result_of(start(fabric, "--backend", "loopback"))
        over_ip = result_of(start(fabric, "--backend", "gloo"))
    assert over_mrc["hosts"] == ["h0", "h1"] and len(over_mrc["steps"]) == STEPS
    assert any(step["evs_out"] for step in over_mrc["steps"]) or over_mrc["steps"][-1]["retransmitted"], lines
    assert over_mrc["sha256"] and over_mrc["sha256"] == over_gloo["sha256"] == over_ip["sha256"]


@pytest.mark.parametrize("backend", ["mrc", "MPI"])
def test_collectives__run_on_a_fabric_by_either(tmp_path, backend):
    program = str(ROOT / "examples" / "all_reduce.py")
    if backend == "MPI":
        if not (shutil.which("mpirun") and shutil.which("mpicc")):
            pytest.skip("needs Open MPI: apt-get install openmpi-bin libopenmpi-dev")
        program = collectives.build(tmp_path)
    with Fabric(Plan(2, 2, 2, 1), LabOptions(ports=PORTS), tmp_path / "run") as fabric:
        times = collectives.measure(fabric, fabric.plan, backend, [program, "16384"], 2)
    assert list(times) == [4096, 16384]
