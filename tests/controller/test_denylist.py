"""The denylist: what each policy denies of which faults, and how agents are told."""

import asyncio

from mrc_testbed.controller.denylist import DenylistPolicy, entries_for
from mrc_testbed.controller.faults.correlator import FaultCorrelator
from mrc_testbed.controller.sources.host_agents import HostAgentSource
from mrc_testbed.topologies.plan import Plan
from tests.controller.sources.peers import Peer, running

PLAN = Plan(planes=1, racks=3, spines=2, hosts_per_rack=2)


def active(*interfaces, silent_probes=()):
    faults = FaultCorrelator(PLAN)
    for interface in interfaces:
        faults.port(interface, "DOWN", source="gnmi x", now=1.0)
    for host, t1 in silent_probes:
        trace = faults.segmenter.t1_probe(host, 0, t1)
        faults.path(f"{host} {t1}", trace, "down", source="mapper", now=1.0)
        for t0_host in ("h0", "h1", "h2", "h4"):
            faults.path(t0_host, faults.segmenter.t0_probe(t0_host, 0), "ok", source="mapper", now=1.5)
        faults.path("other", faults.segmenter.t1_probe("h2", 0, t1), "ok", source="mapper", now=1.5)
    while (due := faults.next_timer()) is not None and due < 10:
        faults.on_timer(due)
    return faults.active()


def test_policy__what_is_denied_by_which():
    faults = active("p0-t0-1-eth3", silent_probes=[("h0", "p0-t1-1")])
    plan = Plan(planes=2, racks=3, spines=2, hosts_per_rack=2)
    assert entries_for(plan, "off", faults) == []
    assert [(e["scope"], e["name"]) for e in entries_for(plan, "lossy", faults)] == [("link", "p0-t0-0 p0-t1-1")]
    assert {(e["scope"], e["name"]) for e in entries_for(plan, "all", faults)} == {
        ("link", "p0-t0-0 p0-t1-1"),
        ("link", "p0-t0-1 p0-t1-0"),
    }
    nic = entries_for(plan, "all", active("p0-t0-1-eth2"))
    assert [(e["scope"], e["name"], e["cause"]) for e in nic] == [
        ("nic-plane", "h3 p0-t0-1", "fault 1: NIC-T0 link h3 p0-t0-1 down")
    ]


def test_policy__never_takes_a_hosts_last_plane():
    faults = active("p0-t0-1-eth2")
    assert entries_for(Plan(planes=1, racks=3, spines=2, hosts_per_rack=2), "all", faults) == []


def test_denylist__told_to_all_agents_and_lifted(tmp_path):
    async def story():
        plan = Plan(planes=2, racks=1, spines=1, hosts_per_rack=2)
        faults = FaultCorrelator(plan)
        source = HostAgentSource(tmp_path, plan, faults, lambda _: None, lambda: None)
        changes = []
        denylist = DenylistPolicy(plan, source, lambda: changes.append(list(denylist.entries)))
        denylist.policy = "all"
        async with Peer(tmp_path / "agents" / "h0.sock", {"denylist": {}}) as peer, running(denylist):
            faults.port("p0-t0-0-eth2", "DOWN", source="gnmi x", now=1.0)
            faults.on_timer(2.0)
            denylist.follow(faults.active())
            await denylist.wait_settled()
            assert denylist.to_json()["agents"]["h0"] == "ok"
            assert "No such file" in denylist.to_json()["agents"]["h1"]
            assert peer.requests[-1]["entries"][0]["name"] == "h1 p0-t0-0"
            faults.port("p0-t0-0-eth2", "UP", source="gnmi x", now=3.0)
            denylist.follow(faults.active())
            await denylist.wait_settled()
            assert peer.requests[-1]["entries"] == [] and len(changes) == 2

    asyncio.run(story())
