"""Scripted resilience tests.

The controller dies and comes back under traffic, names what probes find, denies EVs.
"""

import os
import signal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mrc_testbed.topologies.lab.targets import answers
from tests.controller.controller_fixture import scrape

LINK = ("p1-t0-0", "p1-t1-0")


def restart(fabric, running_transfer):
    """Kill the controller and start another, which the transfer's events come from now."""
    os.kill(fabric.processes["controller"].pid, signal.SIGKILL)
    fabric.processes.stop("controller")
    fabric.processes.spawn_module("controller", "controller", "--run-dir", str(fabric.run_dir.path))
    fabric.processes.wait_ready({"controller": answers(fabric.controller, "status", ready_field="ready")})
    running_transfer._watches.pop().close()
    running_transfer._watches.append(fabric.controller.watch())


@pytest.fixture
def healing(fabric):
    yield
    fabric.inject.heal()


def fault_rows(fabric):
    return [(f["number"], f["kind"], f["location"], f["state"]) for f in fabric.controller.request("faults")["faults"]]


def test_killed_in_a_fault__the_list_is_whole_and_no_table_changed(transfer, fabric, faults, healing):
    running_transfer = transfer()
    running_transfer.reach(0.1)
    fabric.inject.cut(*LINK)
    assert running_transfer.wait_until(lambda: faults() == [" ".join(LINK)], 30.0), faults()
    faults_before = fault_rows(fabric)
    restart(fabric, running_transfer)
    assert fault_rows(fabric) == faults_before
    running_transfer.finish()  # the hosts never needed it
    fabric.inject.heal()
    assert running_transfer.wait_until(lambda: not faults(), 30.0), faults()
    answer = fabric.controller.request("verify", timeout_s=60.0)
    assert answer["differences"] == []
    switches = fabric.controller.request("switches")["switches"].values()
    assert sum(s["entries_written"] + s["pipeline_loads"] for s in switches) == 0


def test_killed_while_a_switch_is_off__it_is_lost_and_comes_back(transfer, fabric, faults, healing):
    running_transfer = transfer()
    running_transfer.reach(0.1)
    fabric.inject.power("p2-t1-1")
    assert running_transfer.wait_until(lambda: faults() == ["p2-t1-1"], 30.0), faults()
    restart(fabric, running_transfer)
    assert faults() == ["p2-t1-1"]
    fabric.inject.heal()
    running_transfer.finish()
    assert running_transfer.wait_until(lambda: not faults(), 30.0), faults()
    assert fabric.controller.request("verify", timeout_s=60.0)["differences"] == []


def test_blackhole__is_named_and_its_evs_are_denied_by_policy(transfer, fabric, faults, healing):
    running_transfer = transfer(size=48 << 20)
    running_transfer.reach(0.1)
    fabric.controller.request("set_denylist", policy="lossy")
    fabric.inject.blackhole("p0-t1-1")
    assert running_transfer.wait_until(
        lambda: fault_rows(fabric)[-1][1:] == ("blackhole", "p0-t1-1", "active"), 30.0
    ), fault_rows(fabric)

    def states():
        return {ev["ev"]: ev["state"] for ev in fabric.controller.request("evs", **{"from": "h0", "to": "h2"})["evs"]}

    assert running_transfer.wait_until(lambda: states()[0x0001] == "denied", 30.0), states()
    (row,) = [ev for ev in fabric.controller.request("evs", **{"from": "h0", "to": "h2"})["evs"] if ev["ev"] == 1]
    assert row["faults"] == [fault_rows(fabric)[-1][0]]
    fabric.inject.heal()
    assert running_transfer.wait_until(lambda: "denied" not in states().values(), 30.0), states()
    fabric.controller.request("set_denylist", policy="off")
    running_transfer.finish()
    assert running_transfer.wait_until(lambda: not faults(), 30.0), faults()


def test_check__names_a_link_that_loses_packets(fabric, faults, healing):
    assert fabric.controller.request("check", timeout_s=60.0)["ok"] is True
    fabric.inject.loss(*LINK, 0.2)
    answer = fabric.controller.request("check", timeout_s=60.0)
    assert (answer["ok"], answer["bad"]) == (False, [f"{' '.join(LINK)}: lossy"])


def scrape_sums(fabric):
    """Return the sums of the samples of each metric, by its name, and the EVs that are not good by T1."""
    families = list(text_string_to_metric_families(scrape(fabric.controller)[1]))
    sums = {family.name: sum(sample.value for sample in family.samples) for family in families}
    (evs,) = (family.samples for family in families if family.name == "mrc_evs")
    bad_spines = {ev.labels["t1"] for ev in evs if ev.labels["state"] == "assumed_bad" and ev.value}
    return sums, bad_spines


def test_metrics__tell_of_traffic_and_of_a_cut(transfer, fabric):
    running_transfer = transfer(size=16 << 20)
    running_transfer.reach(0.2)
    sums_before, bad_before = scrape_sums(fabric)
    cut = running_transfer.cut(fabric.plan.link("p1-t0-0", "p1-t1-1"))
    running_transfer.withdrawn(cut)
    sums_after, bad_after = scrape_sums(fabric)
    assert (
        sums_before["mrc_link_up"] == len(fabric.plan.links)
        and sums_after["mrc_link_up"] == sums_before["mrc_link_up"] - 1
    )
    assert (bad_before, bad_after) == (set(), {"p1-t1-1"})
    assert sums_after["mrc_path_sent_packets"] > sums_before["mrc_path_sent_packets"] > 1000
    assert sums_after["mrc_path_lost_packets"] > sums_before["mrc_path_lost_packets"]
    assert sums_after["mrc_scrape_silent"] == sums_before["mrc_scrape_silent"] == 0
    if fabric.target.name == "embedded":  # BMv2 has no gNMI
        assert sums_after["mrc_port_transmit_bytes"] > sums_before["mrc_port_transmit_bytes"] > 1 << 20
        assert "mrc_queue_depth_bytes" in sums_after
    running_transfer.restore(cut)
    running_transfer.healed()
    running_transfer.finish()
