"""A controller that is killed, and comes back: tables equal the plan, the fault list is whole."""

import json
import shutil
import time

import pytest

from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.topologies.plan import Plan
from tests.controller.controller_fixture import PATIENCE_S, Rig, wait_for
from tests.controller.test_app import with_cables

PLAN = Plan(planes=1, racks=2, spines=2, hosts_per_rack=1)
LARGE_PLAN = Plan(planes=2, racks=4, spines=4, hosts_per_rack=1)


def wait_until(condition, message):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.01)


def some_but_not_all(rig, count_min):
    """`count_min` switches are verified, others are not yet."""

    def are_enough_verified():
        try:
            switches = rig.controller.request("status")["switches"].values()
        except JsonlError:
            return False
        return sum(s["verified"] for s in switches) >= count_min

    return are_enough_verified


@pytest.mark.parametrize("count_min", [pytest.param(1, marks=pytest.mark.thorough), 6])
def test_killed_while_provisioning__the_next_one_writes_only_the_rest(tmp_path, count_min):
    with Rig(tmp_path, LARGE_PLAN) as rig:
        rig.start_daemon()
        rig.begin_controller()
        wait_until(some_but_not_all(rig, count_min), "no switch was provisioned")
        rig.kill_controller()
        rig.start_controller()
        status = rig.controller.request("status")
        assert status["ready"] and rig.controller.request("verify")["differences"] == []
        write_counts = [s["entries_written"] for s in status["switches"].values()]
        loads = [s["pipeline_loads"] for s in status["switches"].values()]
        assert write_counts.count(0) >= count_min and loads.count(0) >= count_min
        rig.stop_controller()
        rig.start_controller()
        later_rows = rig.controller.request("status")["switches"].values()
        assert {(s["entries_written"], s["pipeline_loads"]) for s in later_rows} == {(0, 0)}


def test_killed_in_a_fault__it_is_still_the_same_fault(tmp_path):
    with Rig(tmp_path, PLAN) as rig:
        rig.start_daemon()
        rig.start_controller()
        with rig.controller.watch() as watch:
            rig.daemon.request("power", name="p0-t1-0", on=False)
            raised_fault = wait_for(watch, "fault", change="raised", location="p0-t1-0")["fault"]
        rig.kill_controller()
        rig.start_controller()  # ready without the switch that is known to be lost
        with rig.controller.watch() as watch:
            fault = wait_for(watch, "fault", location="p0-t1-0", state="active")["fault"]
            assert (fault["number"], fault["first_seen"]) == (raised_fault["number"], raised_fault["first_seen"])
            rig.daemon.request("power", name="p0-t1-0", on=True)
            wait_for(watch, "fault", change="cleared", number=1)
        assert [f["number"] for f in rig.controller.request("faults")["faults"]] == [1]
        assert rig.controller.request("verify")["differences"] == []


def test_killed__a_switch_that_went_meanwhile_is_found_lost(tmp_path):
    with Rig(tmp_path, PLAN) as rig:
        rig.start_daemon()
        rig.start_controller()
        rig.kill_controller()
        rig.daemon.request("power", name="p0-t0-1", on=False)
        rig.start_controller()
        with rig.controller.watch() as watch:
            wait_for(watch, "fault", location="p0-t0-1", state="active")


def test_killed__a_torn_last_line_costs_nothing(tmp_path):
    with Rig(tmp_path, PLAN) as rig:
        rig.start_daemon()
        rig.start_controller()
        with rig.controller.watch() as watch:
            rig.daemon.request("power", name="p0-t1-0", on=False)
            wait_for(watch, "fault", change="raised", location="p0-t1-0")
        rig.kill_controller()
        with (tmp_path / "faults.jsonl").open("a") as journal:
            journal.write('{"kind":"fault","t":12.5,"change":"clea')
        rig.start_controller()
        assert [f["location"] for f in rig.controller.request("faults", state="active")["faults"]] == ["p0-t1-0"]
        lines = (tmp_path / "faults.jsonl").read_text().splitlines()
        assert all(json.loads(line)["kind"] for line in lines)


@pytest.mark.root
def test_killed_in_a_fault__what_changed_meanwhile_is_reconciled(tmp_path):
    with Rig(tmp_path, PLAN, namespace=True) as rig:
        with_cables(rig, PLAN)
        rig.start_daemon(ports=True)
        rig.start_controller()
        with rig.controller.watch() as watch:
            rig.run("ip", "link", "set", "p0-t0-0-eth2", "down")
            rig.run("ip", "link", "set", "p0-t0-1-eth3", "down")
            wait_for(watch, "fault", change="raised", location="p0-t0-0 p0-t1-0")
            wait_for(watch, "fault", change="raised", location="p0-t0-1 p0-t1-1")
        rig.kill_controller()
        rig.run("ip", "link", "set", "p0-t0-0-eth2", "up")
        rig.run("ip", "link", "set", "h1-eth0", "down")
        rig.start_controller()
        with rig.controller.watch() as watch:
            wait_for(watch, "fault", change="cleared", location="p0-t0-0 p0-t1-0")
        faults = rig.controller.request("faults")["faults"]
        assert [(f["number"], f["location"], f["state"]) for f in faults] == [
            (1, "p0-t0-0 p0-t1-0", "cleared"),
            (2, "p0-t0-1 p0-t1-1", "active"),
            (3, "h1 p0-t0-1", "active"),
        ]
        assert rig.controller.request("verify")["differences"] == []


def test_two_controllers__the_second_waits_for_the_first_and_finds_nothing_to_write(tmp_path):
    """Two controllers share one fabric, each with a run folder of its own: nobody pushes the other away."""
    with Rig(tmp_path / "a", PLAN) as rig:
        rig.start_daemon()
        rig.start_controller()
        (tmp_path / "b").mkdir()
        for name in ("plan.json", "switches.json"):
            shutil.copy(tmp_path / "a" / name, tmp_path / "b" / name)
        shutil.copytree(tmp_path / "a" / "program", tmp_path / "b" / "program")
        # The second run folder has no daemon of its own: its switches.json names those of the first.
        second_rig = Rig(tmp_path / "b", PLAN)
        try:
            out = second_rig.begin_controller()

            def is_waiting():
                try:
                    switches = second_rig.controller.request("status")["switches"].values()
                except JsonlError:
                    return False
                return all("another controller uses election id 10" in s["reason"] for s in switches)

            wait_until(is_waiting, "the second controller does not see the first")
            assert rig.controller.request("status")["ready"] is True
            rig.stop_controller()
            assert out.readline() == "ready\n", second_rig.log("controller")
            write_counts = [s["entries_written"] for s in second_rig.controller.request("status")["switches"].values()]
            assert write_counts == [0] * len(PLAN.switches)
        finally:
            second_rig.__exit__()
