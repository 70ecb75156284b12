"""Options of a live fabric: what they resolve to, and which are refused."""

import math
import subprocess
import sys

import pytest

from mrc_testbed.controller.denylist import POLICIES
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.options import DENYLISTS, WIRES_OF, LabOptions
from mrc_testbed.topologies.lab.targets import TARGETS
from mrc_testbed.topologies.servers import Machine, Servers
from tests.repository import ROOT

MACHINES = Servers(machines=[Machine(name="a", address="a.example")])


def test_lists__are_those_of_targets_and_controller():
    assert (list(WIRES_OF), DENYLISTS) == (list(TARGETS), POLICIES)


@pytest.mark.parametrize(
    ("target", "wires", "kind"),
    [
        ("embedded", None, "virtual"),
        ("embedded", "virtual", "virtual"),
        ("embedded", "veth", "veth"),
        ("bmv2", None, "veth"),
        ("bmv2", "veth", "veth"),
    ],
)
def test_wire_kind__virtual_in_one_process_and_veth_pairs_for_all(target, wires, kind):
    assert LabOptions(target=target, wires=wires).wire_kind == kind


@pytest.mark.parametrize(
    ("options", "has_mapper"),
    [
        ({}, True),
        ({"agents": False}, False),
        ({"controller": False}, False),
        ({"servers": MACHINES}, False),
        ({"agents": False, "mapper": True}, True),
        ({"mapper": False}, False),
    ],
)
def test_has_mapper__with_agents_and_controller_on_one_machine(options, has_mapper):
    assert LabOptions(**options).has_mapper is has_mapper


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"target": "tofino"}, "no target 'tofino' (has: embedded, bmv2)"),
        ({"wires": "copper"}, "no wires 'copper' (has: virtual, veth)"),
        ({"wires": ""}, "no wires '' (has: virtual, veth)"),
        ({"nic": "dpdk"}, "no NIC 'dpdk' (has: fast, scapy)"),
        ({"denylist": "some"}, "no denylist 'some' (has: off, lossy, all)"),
        ({"target": "bmv2", "wires": "virtual"}, "use --wires veth, or --target embedded"),
        ({"target": "bmv2", "servers": MACHINES}, "only --target embedded runs on several"),
        ({"react_after_s": -1.0}, "react_after_s -1: give 0 or more seconds"),
        ({"react_after_s": math.nan}, "react_after_s nan: give 0 or more seconds"),
        ({"compile_program": None}, "a controller needs a program to push"),
    ],
)
def test_options__that_cannot_be(options, error):
    with pytest.raises(FabricError) as caught:
        LabOptions(**options)
    assert error in str(caught.value)


def test_import__needs_nothing_of_a_live_fabric():
    code = "import sys, mrc_testbed.topologies.lab.options; print(*{name.partition('.')[0] for name in sys.modules})"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"mininet", "grpc", "finsy", "pyroute2", "pydantic"} & set(result.stdout.split())
