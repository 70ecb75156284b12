"""Machine code and C corrupt no memory.

Watched by Python's debug allocator and by AddressSanitizer of gcc.

MRC_SCENARIOS=all also runs every scenario under both. The C of the P4 switch: tests/switch/system.
"""

import os
import subprocess
import sys

import pytest

from tests.machine_code import needs_compiler
from tests.repository import ROOT
from tests.switch.system.test_gcc_sanitized import sanitizer

LONG = os.environ.get("MRC_SCENARIOS") == "all"
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml")) if LONG else [ROOT / "scenarios" / "e19.yaml"]
GUARDS = {
    "debug": {"PYTHONMALLOC": "debug"},
    "asan": {
        "MRC_SANITIZE": "1",
        "LD_PRELOAD": str(sanitizer()),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
    },
}
"""Environments by the name of the guard.

AddressSanitizer sees no borders inside Python's pools: malloc gives all.
"""
NATIVE_TESTS = "tests/hosts/nic/test_native.py"
pytestmark = [
    pytest.mark.build,
    pytest.mark.thorough,
    pytest.mark.timeout(2400 if LONG else 1200),
    needs_compiler,
]

ACTIVE = """
from mrc_testbed import native_build
assert native_build.state().active, native_build.state().reason
"""

MANY_FABRICS = """
import gc
from dataclasses import replace
from mrc_testbed.simulator import Flow, VirtualFabric, scaled_profiles
from mrc_testbed.topologies.plan import Plan
for seed in range(8):
    scale = scaled_profiles(2, trim=False, ecn=False, cc="fixed", config={"cwnd_bytes": 1 << 20})
    fabric = VirtualFabric(Plan(2, 2, 2, 2), seed=seed, links=scale.links, queues=scale.queues, config=scale.config)
    flows = [Flow(fabric, host, "h3", message_bytes=1 << 16, depth=16) for host in ("h0", "h1", "h2")]
    fabric.run_until(0.3)
    del flows, fabric
    gc.collect()
    blocks = [str(number) * 3 for number in range(20000)]
print("lived")
"""

LONG_CHAIN = """
from mrc_testbed.hosts.engine.wire.packets import TransportAck
from mrc_testbed.simulator.frames import Frame, FrameQueue
queue = FrameQueue()
for number in range(300_000):
    queue.put(Frame(TransportAck(9, 3, 1, 46, 0, 1, 0x1F, 3), 100, "h0", "h1", 0, 0, 0, True, False))
nested = None
for number in range(40):
    nested = [nested, queue if number == 0 else None]
del queue
nested = None
for number in range(200):
    nested = [nested, Frame(TransportAck(9, 3, 1, 46, 0, 1, 0x1F, 3), 100, "h0", "h1", 0, 0, 0, True, False)]
nested = None
print("lived")
"""
"""Frames that are freed at the end of a long chain, and at every depth of nested objects."""

DEEP_QUEUE = """
title: A run that ends with a deep queue
fabric: {planes: 1, racks: 2, spines: 1, hosts_per_rack: 1}
links: {rate: 10M, rtt: 10ms, fabric: {rate: 1M}}
queues: {trim: false, ecn: false, limit: 200}
transport: {config: {cc_algorithm: fixed, cwnd_bytes: 1048576}}
workload:
  - {stream: h0 h1, name: flow, message: 64K, depth: 32}
duration: 1s
expect: []
"""


def run(arguments, environment):
    variables = {name: value for name, value in os.environ.items() if name != "MRC_COMPILED"}
    env = {**variables, "PYTHONPATH": str(ROOT), **environment}
    result = subprocess.run(
        [sys.executable, *arguments], env=env, capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert result.returncode == 0, result.stdout[-1000:] + result.stderr[-4000:]
    return result.stdout


@pytest.fixture(scope="module", params=GUARDS)
def guard(request):
    """Return the environment in which the compiled build is watched, with that build made."""
    if request.param == "asan":
        if sanitizer() is None:
            pytest.skip("gcc has no libasan here")
        run(["-m", "mrc_testbed", "compile"], {"MRC_SANITIZE": "1"})
    else:
        run(["-m", "mrc_testbed", "compile"], {})
    environment = GUARDS[request.param]
    run(["-c", ACTIVE], environment)
    return environment


@pytest.mark.parametrize("program", [MANY_FABRICS, LONG_CHAIN], ids=["many_fabrics", "long_chain"])
def test_objects_that_the_collector_does_not_know__are_freed_at_any_depth(guard, program):
    assert run(["-c", program], guard) == "lived\n"


def test_a_run_that_ends_with_a_deep_queue(guard, tmp_path):
    (tmp_path / "deep.yaml").write_text(DEEP_QUEUE, encoding="utf-8")
    run(
        ["-m", "mrc_testbed", "run", str(tmp_path / "deep.yaml"), "--virtual", "--out", str(tmp_path / "results")],
        guard,
    )


def test_random_schedules(guard):
    assert "passed" in run(["-m", "mrc_testbed", "simtest", "--seeds", "60", "--jobs", "1", "--json"], guard)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_scenarios(guard, scenario, tmp_path):
    run(["-m", "mrc_testbed", "run", str(scenario), "--virtual", "--out", str(tmp_path)], guard)


def test_native_c__reads_and_makes_records_of_machine_code(guard):
    command = ["-m", "pytest", "-q", "-x", "-k", "not does_not_know", "-p", "no:cacheprovider", NATIVE_TESTS]
    assert " passed" in run(command, {**guard, "MRC_COMPILED": "1"})


def test_halves__pack_and_make_packets_of_machine_code(guard):
    command = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/simulator/test_halves.py"]
    assert " passed" in run(command, {**guard, "MRC_COMPILED": "1"})


@pytest.mark.skipif(sanitizer() is None, reason="gcc has no libasan here")
def test_native_c__passes_its_tests_under_address_sanitizer():
    command = ["-m", "pytest", "-q", "-x", "-m", "not root and not build", "-p", "no:cacheprovider", "tests/hosts/nic"]
    assert " passed" in run(command, {**GUARDS["asan"], "MRC_COMPILED": "0"})
