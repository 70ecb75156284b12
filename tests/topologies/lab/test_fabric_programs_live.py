"""A foreign program on one switch of a live fabric, and swaps under a transfer between MRC hosts."""

import os

import pytest

from mrc_testbed.ipc.agent_client import AgentClient
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import LabOptions, Ports
from mrc_testbed.topologies.lab.p4_program import source_of
from mrc_testbed.topologies.plan import Plan
from tests.topologies.p4lab.programs import MAC_SWITCH

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets"),
]
PORTS = Ports(p4runtime=29759, gnmi=29539)


@pytest.fixture(scope="module")
def fabric(tmp_path_factory):
    """Two planes; a T1 of plane 0 has a program that drops everything, one of plane 1 a copy of ours."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "mac.p4").write_text(MAC_SWITCH)
    for path in source_of("srv6").parent.glob("*.p4"):
        (folder / path.name).write_text(path.read_text())
    own_programs = {"p0-t1-0": str(folder / "mac.p4"), "p1-t1-0": str(folder / "srv6.p4")}
    lab = LabOptions(own_programs=own_programs, ports=PORTS)
    with Fabric(Plan.scaled(2, 2, 2, 1), lab, folder / "run") as running_fabric:
        yield running_fabric


def test_controller__fills_all_switches_but_the_foreign_one(fabric):
    status = fabric.controller.request("status")
    assert status["ready"] and set(status["switches"]) == set(fabric.switches) - {"p0-t1-0"}
    assert fabric.programs.entry_lines("p0-t1-0") == []


def test_hosts__go_on_over_the_other_paths_while_programs_are_swapped(fabric, tmp_path):
    payload = os.urandom(1 << 20)
    (tmp_path / "payload").write_bytes(payload)
    with AgentClient(fabric.run_dir.agent_socket("h0")) as agent:
        transfer = agent.send_file(tmp_path / "payload", "h1", dest_path=str(fabric.path_for("h1", "payload")))
        fabric.programs.reload()
        agent.wait(transfer["transfer"], timeout_s=60.0)
    assert fabric.path_for("h1", "payload").read_bytes() == payload
    (peer,) = fabric.agent("h0").request("health", peer="h1")["peers"]
    evs = {ev["ev"]: ev["state"] for ev in peer["evs"]}
    assert evs[0x0000] == "assumed_bad" and {evs[ev] for ev in (0x0001, 0x0100, 0x0101)} == {"good"}


def test_reload__under_the_controller_writes_nothing(fabric):
    source = fabric.programs.running.sources["p1-t1-0"]
    source.write_text(source.read_text() + "\n// changed\n")
    (reload,) = fabric.programs.reload(None, ["p1-t1-0"])
    assert reload.refusals == () and reload.has_counts and reload.kept_count > 5
    reloads = fabric.programs.reload()
    assert {reload.switch for reload in reloads} == set(fabric.switches)
    assert all(reload.refusals == () for reload in reloads)
    assert fabric.controller.request("status")["writes_after_start"] == 0


def test_power__brings_a_foreign_program_back(fabric):
    fabric.power("p0-t1-0", False)
    fabric.power("p0-t1-0", True)
    assert fabric.programs.entry_lines("p0-t1-0") == []
