"""One-way cuts, a whole cut and black holes on a real fabric.

The fault list names exactly what is broken.
"""

import time

import pytest

from mrc_testbed.capture.replay import replay_faults
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import LabOptions, Ports
from mrc_testbed.topologies.plan import Plan

pytestmark = pytest.mark.root
PLAN = Plan(4, 2, 2, 2)


@pytest.fixture(scope="module")
def fabric(tmp_path_factory):
    ports = Ports(p4runtime=19769, gnmi=19549)
    with Fabric(PLAN, LabOptions(ports=ports), tmp_path_factory.mktemp("d")) as fabric:
        wait_until(lambda: fabric.mapper.request("status")["states"] == {"ok": 48})
        wait_until(lambda: fabric.controller.request("status")["sources"]["mapper"]["paths"] == 48)
        yield fabric
        fabric.inject.heal()


def wait_until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not come true in time"
        time.sleep(0.05)


def active(fabric):
    faults = fabric.controller.request("faults", state="active")["faults"]
    return sorted((fault["kind"], fault["direction"] or fault["location"]) for fault in faults)


def test_each_plane_has_a_fault_of_its_own__named_exactly_and_nothing_else(fabric):
    """Planes share no switch: a cut up, a cut down, a whole cut and a black hole at the same time."""
    inject = fabric.inject
    inject.one_way_cut("p0-t0-0", "p0-t1-1")
    inject.one_way_cut("p1-t1-1", "p1-t0-0")
    inject.cut("p2-t0-1", "p2-t1-0")
    inject.blackhole("p3-t1-0")
    expected_lines = [
        ("blackhole", "p3-t1-0"),
        ("link", "p2-t0-1 p2-t1-0"),
        ("lossy link", "p0-t0-0 -> p0-t1-1"),
        ("lossy link", "p1-t1-1 -> p1-t0-0"),
    ]
    wait_until(lambda: active(fabric) == expected_lines)
    inject.heal()
    wait_until(lambda: not active(fabric))
    faults = fabric.controller.request("faults")["faults"]
    assert sorted(fault["location"] for fault in faults) == [
        "p0-t0-0 p0-t1-1",
        "p1-t0-0 p1-t1-1",
        "p2-t0-1 p2-t1-0",
        "p3-t1-0",
    ]
    replay = replay_faults(fabric.run_dir.path / "log" / "observations.jsonl")
    cleared_locations = [change.fault["location"] for change in replay.changes if change.change == "cleared"]
    assert sorted(cleared_locations) == sorted(fault["location"] for fault in faults)


def test_a_t0_that_forwards_nothing_and_a_t1_that_nothing_reaches(fabric):
    """Probes alone tell neither from a few dead links: loops over the T0 and counters of the T1 do."""
    inject = fabric.inject
    inject.blackhole("p0-t0-1")
    inject.one_way_cut("p1-t0-0", "p1-t1-0")
    inject.one_way_cut("p1-t0-1", "p1-t1-0")
    expected_lines = [
        ("blackhole", "p0-t0-1"),
        ("lossy link", "p1-t0-0 -> p1-t1-0"),
        ("lossy link", "p1-t0-1 -> p1-t1-0"),
    ]
    wait_until(lambda: active(fabric) == expected_lines)
    inject.heal()
    wait_until(lambda: not active(fabric))
