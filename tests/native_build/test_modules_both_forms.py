"""The machine code does what the Python files do, event by event.

Compiles everything, once: a minute or two.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.machine_code import needs_compiler
from tests.repository import ROOT

GC_HEAD_BYTES = 16
"""Bytes in front of each object that Python's garbage collector looks at."""
LINE_BYTES = 64
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.build,
    pytest.mark.timeout(1200),
    needs_compiler,
]

PARTS = """
import json
from mrc_testbed.simulator import VirtualFabric
from mrc_testbed.simulator.events import event_queue
from mrc_testbed.topologies.plan import Plan

class Other:
    __slots__ = ("one", "same", "again")

    def __init__(self):
        self.one, self.same = object(), object()
        self.again = self.same

fabric = VirtualFabric(Plan(2, 2, 2, 2), lookahead=1)
fabric.queue = event_queue(1)
names = ["one", "same"]
print(json.dumps([fabric._note_parts(), *(fabric.queue.note_part(Other(), name) for name in names)]))
"""
TRACES = """
import json
from mrc_testbed import native_build
from mrc_testbed.faults import CutFault, LossFault
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.simulator import Flow, VirtualFabric, incast, permutation, run_all
from mrc_testbed.topologies.plan import Plan

def digests(fabric, flows):
    run_all(fabric, flows, 30.0)
    return [fabric.trace_digest(), fabric.state_digest(), fabric.tracer.count, all(flow.intact for flow in flows)]

def quiet(**options):
    fabric = VirtualFabric(Plan(4, 2, 2, 2), seed=3, trace=True, **options)
    return digests(fabric, permutation(fabric, message_bytes=1 << 16, messages=6))

def cut_and_lossy():
    fabric = VirtualFabric(Plan(4, 2, 2, 2), seed=4, trace=True)
    fabric.schedule(0.01, CutFault.on("p0-t0-0 p0-t1-1"), until_s=0.3)
    fabric.schedule(0.02, LossFault.on("h2 p0-t0-1", rate=0.02))
    return digests(fabric, permutation(fabric, message_bytes=1 << 17, messages=4))

def many_to_one():
    fabric = VirtualFabric(Plan(2, 2, 2, 4), seed=5, trace=True)
    return digests(fabric, incast(fabric, ["h1", "h2", "h4", "h5"], "h0", message_bytes=1 << 16, messages=4))

def baseline():
    fabric = VirtualFabric(Plan(1, 2, 2, 2), seed=6, trace=True, mode="flow-ecmp")
    fabric.schedule(0.0, LossFault.on("h2 p0-t0-1", rate=0.01))
    flows = [Flow(fabric, a, b, messages=6, transport="rocev2", settings=RcConfig(control="dcqcn", timeout=14))
             for a, b in (("h0", "h2"), ("h1", "h3"), ("h3", "h0"))]
    return digests(fabric, flows)

print(json.dumps({
    "active": native_build.state().active,
    "srv6": quiet(), "bytes on the wire": quiet(wire=True), "ecmp": quiet(mode="ecmp"),
    "nscc": quiet(config=Config.of(cc_algorithm="uet-1.0-nscc")),
    "a delay ahead": quiet(lookahead=1), "two delays ahead": quiet(lookahead=2),
    "cut and lossy": cut_and_lossy(), "incast": many_to_one(), "rocev2": baseline(),
}))
"""


SIZES = """
import json
from mrc_testbed.hosts.engine.paths.ev import Ev
from mrc_testbed.simulator.ports import EgressPort, NicPort
print(json.dumps({one.__name__: one.__basicsize__ for one in (Ev, EgressPort, NicPort)}))
"""


PORTS = """
import json, random
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.wire.codec import Codec
from mrc_testbed.hosts.engine.wire.packets import Opcode, Sack, TransportAck, Write
from mrc_testbed.hosts.nic import base, paced
from mrc_testbed.hosts.nic.encapsulation import Decapsulation, Encapsulation
from mrc_testbed.hosts.nic.paced import PacedPort, inner_bytes
from mrc_testbed.topologies.plan import Plan

plan, rng, now, left = Plan(2, 2, 2, 1), random.Random(7), 0.0, []
there, codec = Encapsulation(plan, *plan.hosts, 1), Codec(Config())
port = PacedPort(10e6, plan.frame_bytes())
for number in range(2000):
    kind, ev = rng.random(), rng.getrandbits(16)
    if kind < 0.6:
        data = rng.randbytes(rng.choice((0, 7, 1024)))
        packet = Write(9, ev, 1, 4, 2, Opcode.WRITE_MIDDLE, number, 1, 1 << 40, 5, 1 << 20, data, 0, timestamp=number)
    elif kind < 0.9:
        packet = Sack(9, ev, 1, 46, 0, number, -3, rng.getrandbits(64), 2, None, ev, 0, number, 77)
    else:
        packet = TransportAck(9, ev, 1, 46, 0, number, 0x1F, 3)
    taken = port.put(("h1", packet), inner_bytes(packet) + base.ENCAPSULATION_BYTES, kind > 0.6, now)
    frame = codec.encode(packet, there.addressing)
    left.append([taken, port.room, port.control_room, port.next_at, frame.join().hex()[-60:],
                 there.outer(ev, frame.header[:4], frame.size).hex()])
    now += rng.random() * 0.002
    left.append([inner_bytes(one) for _, one in port.take(now)])
mine = Decapsulation(plan, plan.hosts[1], 1, codec)
packet = TransportAck(9, 3, 1, 46, 0, 1, 0x1F, 3)
for number in range(500):
    whole = codec.encode(packet, there.addressing)
    frame = bytearray(there.outer(3, whole.header[:4], whole.size) + whole.join())
    frame[38:54] = mine.own_usid
    frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
    try:
        mine.open(bytes(frame[:rng.randrange(30, 800)]))
    except base.WireError as error:
        left.append(base.drop_reason(error))
print(json.dumps([paced.__file__.endswith(".py"), left, port.frames, port.late_frames, port.late_max_s, port.clear()]))
"""


def run(command, **environment):
    env = {name: value for name, value in os.environ.items() if name != "MRC_COMPILED"}
    env |= {"PYTHONPATH": str(ROOT), **environment}
    result = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


@pytest.fixture(scope="module", autouse=True)
def built():
    run(["-m", "mrc_testbed", "compile"])


def test_traces__are_the_same_event_by_event():
    native, python = json.loads(run(["-c", TRACES])), json.loads(run(["-c", TRACES], MRC_COMPILED="0"))
    assert (native.pop("active"), python.pop("active")) == (True, False)
    for name, digests in python.items():
        assert digests[2] > 500, f"{name}: hardly anything happened"
        assert native[name] == digests, name


def test_objects__of_which_there_are_thousands_begin_where_a_line_of_the_cache_does():
    """Each packet needs the first two lines of some of them.

    One of another size may begin in the middle of a line.

    Make up for a new attribute with another that is narrow (i32, i16), or fill up to the next size.
    """
    for name, size in json.loads(run(["-c", SIZES])).items():
        assert (size + GC_HEAD_BYTES) % LINE_BYTES == 0, f"{name}: {size} bytes"


def test_parts_of_frames__are_found_where_machine_code_keeps_them():
    """The CPU fetches packets and payloads before they are looked at (VirtualFabric._note_parts)."""
    for form, is_found in (("1", True), ("0", False)):
        assert json.loads(run(["-c", PARTS], MRC_COMPILED=form)) == [is_found, is_found, False]


def test_ports__frames_leave_at_the_same_times_with_the_same_bytes():
    native, python = json.loads(run(["-c", PORTS])), json.loads(run(["-c", PORTS], MRC_COMPILED="0"))
    assert (native.pop(0), python.pop(0)) == (False, True)
    assert native == python
    assert len({str(entry) for entry in python[0][-500:]}) > 5, "hardly any reason to drop a frame came up"


def test_jain__is_the_same_in_both_forms():
    """The sum of squares, then a generator, ended in a TypeError when compiled."""
    program = "from mrc_testbed.simulator.workloads import jain; print(jain([1.0, 2.5, 3.0]), jain([1, 2]), jain([]))"
    assert run(["-c", program]) == run(["-c", program], MRC_COMPILED="0") != ""


@pytest.mark.parametrize(
    "module", ["hosts/nic/test_native.py", "hosts/agent/test_turn_selector.py", "simulator/test_halves.py"]
)
def test_tests_of_what_needs_no_stand_ins__pass_compiled_too(module):
    """All pass but those for values of a wrong type, which machine code refuses by itself."""
    run(
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not does_not_know", f"tests/{module}"],
        MRC_COMPILED="1",
    )


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a fabric of network namespaces")
def test_agents__carry_files_at_full_speed_and_at_a_rate():
    result = json.loads(run(["-m", "mrc_testbed", "bench", "mrc", "--size", "1M", "--rate", "10M", "--json"]))
    assert result["bytes_equal"] and result["paced"]["bytes_equal"] and result["with_sha256"]["sha256_equal"]
    assert result["packets"]["sent"] >= 1024 and result["engine_compiled"]
    assert [costs["compiled"] for costs in result["endpoint"].values()] == [True, True]


def test_simtest__finds_the_same_in_both_forms():
    """Every kind of schedule, with all faults: statistics down to the number of events."""
    reports = []
    for form in ("", "0"):
        report = json.loads(run(["-m", "mrc_testbed", "simtest", "--seeds", "600", "--json"], MRC_COMPILED=form))
        reports.append({key: value for key, value in report.items() if key not in ("wall_s", "cpu_s")})
    assert reports[0] == reports[1]
    assert reports[0]["passed"]


@pytest.mark.parametrize("target", ["wire", "frame"])
def test_codecs__take_packets_of_the_baseline_in_every_dialect(target):
    """A compiled dialect (found by `mrc fuzz wire`) refused to write RoCEv2's packets."""
    assert "nothing found" in run(["-m", "mrc_testbed", "fuzz", target, "--runs", "2000"])


def test_scenario__has_the_same_results_to_the_digit(tmp_path):
    for form in ("", "0"):
        folder = tmp_path / f"form{form}"
        run(["-m", "mrc_testbed", "run", "e5", "--virtual", "--out", str(folder)], MRC_COMPILED=form)
    python, native = tmp_path / "form0", tmp_path / "form"
    files = [path.relative_to(python) for path in python.rglob("*.json") if path.name != "manifest.json"]
    assert files
    for file in files:
        assert without_load(python / file) == without_load(native / file), file


def without_load(path):
    """A run's file and the digests in its seal, but how busy the machine was."""
    content = json.loads(path.read_bytes())
    if "seal" in content:
        assert content["seal"].pop("load")
        assert set(content["seal"]["sha256"]) >= {"json", "csv"}
    return content


def test_version_and_doctor__say_which_form_runs():
    assert "engine compiled" in run(["-m", "mrc_testbed", "--version"])
    assert "engine in Python" in run(["-m", "mrc_testbed", "--version"], MRC_COMPILED="0")
