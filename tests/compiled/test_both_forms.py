"""The machine code does what the Python files do, event by event. Compiles everything, once: a minute or two."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compiled.build import missing

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.build,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(missing()), reason=f"cannot compile here: {'; '.join(missing())}"),
]

TRACES = """
import json, compiled
from faults import CutFault, LossFault
from hosts.engine.config import Config
from hosts.engine.rocev2.rc_config import RcConfig
from simulator import Flow, VirtualFabric, incast, permutation, run_all
from topologies.plan import Plan

def digests(fabric, flows):
    run_all(fabric, flows, 30.0)
    return [fabric.trace_digest(), fabric.state_digest(), fabric.tracer.count, all(flow.intact for flow in flows)]

def quiet(**options):
    fabric = VirtualFabric(Plan(4, 2, 2, 2), seed=3, trace=True, **options)
    return digests(fabric, permutation(fabric, message_bytes=1 << 16, messages=6))

def cut_and_lossy():
    fabric = VirtualFabric(Plan(4, 2, 2, 2), seed=4, trace=True)
    fabric.at(0.01, CutFault.on("p0-t0-0 p0-t1-1"), until=0.3)
    fabric.at(0.02, LossFault.on("h2 p0-t0-1", rate=0.02))
    return digests(fabric, permutation(fabric, message_bytes=1 << 17, messages=4))

def many_to_one():
    fabric = VirtualFabric(Plan(2, 2, 2, 4), seed=5, trace=True)
    return digests(fabric, incast(fabric, ["h1", "h2", "h4", "h5"], "h0", message_bytes=1 << 16, messages=4))

def baseline():
    fabric = VirtualFabric(Plan(1, 2, 2, 2), seed=6, trace=True, mode="flow-ecmp")
    fabric.at(0.0, LossFault.on("h2 p0-t0-1", rate=0.01))
    flows = [Flow(fabric, a, b, messages=6, transport="rocev2", settings=RcConfig(control="dcqcn", timeout=14))
             for a, b in (("h0", "h2"), ("h1", "h3"), ("h3", "h0"))]
    return digests(fabric, flows)

print(json.dumps({
    "active": compiled.state().active,
    "srv6": quiet(), "bytes on the wire": quiet(wire=True), "ecmp": quiet(mode="ecmp"),
    "nscc": quiet(config=Config(cc_algorithm="uet-1.0-nscc")),
    "cut and lossy": cut_and_lossy(), "incast": many_to_one(), "rocev2": baseline(),
}))
"""


def run(command, **environment):
    env = {name: value for name, value in os.environ.items() if name != "MRC_COMPILED"}
    env |= {"PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def built():
    run(["-m", "mrc", "compile"])


def test_traces__are_the_same_event_by_event():
    compiled, python = json.loads(run(["-c", TRACES])), json.loads(run(["-c", TRACES], MRC_COMPILED="0"))
    assert (compiled.pop("active"), python.pop("active")) == (True, False)
    for name, digests in python.items():
        assert digests[2] > 500, f"{name}: hardly anything happened"
        assert compiled[name] == digests, name


def test_simtest__finds_the_same_in_both_forms():
    """Every kind of schedule, with all faults: statistics down to the number of events."""
    found = []
    for form in ("", "0"):
        report = json.loads(run(["-m", "mrc", "simtest", "--seeds", "600", "--json"], MRC_COMPILED=form))
        found.append({key: value for key, value in report.items() if key not in ("wall_s", "cpu_s")})
    assert found[0] == found[1]
    assert found[0]["passed"]


def test_scenario__has_the_same_results_to_the_digit(tmp_path):
    for form in ("", "0"):
        folder = tmp_path / f"form{form}"
        run(["-m", "mrc", "run", "e5", "--virtual", "--out", str(folder)], MRC_COMPILED=form)
    python, compiled = tmp_path / "form0", tmp_path / "form"
    files = [path.relative_to(python) for path in python.rglob("*.json") if path.name != "manifest.json"]
    assert files
    for file in files:
        assert (python / file).read_bytes() == (compiled / file).read_bytes(), file


def test_version_and_doctor__say_which_form_runs():
    assert "engine compiled" in run(["-m", "mrc", "--version"])
    assert "engine in Python" in run(["-m", "mrc", "--version"], MRC_COMPILED="0")
