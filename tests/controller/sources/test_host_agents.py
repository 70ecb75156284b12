"""Agents as a source: dead paths by EV states, against servers that speak as agents do."""

import asyncio

import pytest

from mrc_testbed.controller.faults.correlator import FaultCorrelator
from mrc_testbed.controller.sources.host_agents import HostAgentSource
from mrc_testbed.topologies.plan import Plan
from tests.controller.sources.peers import Peer, running, wait_until

PLAN = Plan(planes=1, racks=3, spines=2, hosts_per_rack=2)


def ev_row(ev, state, acked=10, lost=0):
    return {"ev": ev, "plane": 0, "state": state, "sent": acked + lost, "acked": acked, "lost": lost}


def agents_of(tmp_path, faults):
    events = []
    return HostAgentSource(tmp_path, PLAN, faults, events.append, lambda: None), events


def test_agents__a_bad_ev_is_a_dead_path_until_its_last_accuser_is_content(tmp_path):
    async def story():
        faults = FaultCorrelator(PLAN)
        source, events = agents_of(tmp_path, faults)
        health = {"peers": [{"peer": "h2", "evs": [ev_row(0, "assumed_bad"), ev_row(1, "good")]}]}
        async with Peer(tmp_path / "agents" / "h0.sock", {"health": lambda _: health}) as peer, running(source):
            await wait_until(lambda: source._subscriptions["h0"].connected)
            event = {"peer": "h2", "ev": 0, "plane": 0, "cause": "a packet was lost without trace"}
            for qpn in (1, 2):
                peer.server.publish("ev", qpn=qpn, old="good", new="assumed_bad", **event)
            await wait_until(lambda: faults.has_path_symptoms)
            # One of two QPs is content: the path stays dead until the other one is, too.
            peer.server.publish("ev", qpn=1, old="assumed_bad", new="good", **event)
            await wait_until(lambda: len(events) == 3)
            assert faults.has_path_symptoms and source.to_json()["bad"] == 1
            health["peers"][0]["evs"][0] = ev_row(0, "good", acked=12)
            peer.server.publish("ev", qpn=2, old="assumed_bad", new="good", **event)
            await wait_until(lambda: not faults.has_path_symptoms)
            assert events[0] == {
                "host": "h0",
                "peer": "h2",
                "ev": 0,
                "old": "good",
                "new": "assumed_bad",
                "plane": 0,
                "cause": event["cause"],
                "t": events[0]["t"],
            }

    asyncio.run(story())


def test_agents__what_was_bad_before_we_came_is_asked_for(tmp_path):
    async def story():
        faults = FaultCorrelator(PLAN)
        source, _ = agents_of(tmp_path, faults)
        health = {"peers": [{"peer": "h4", "evs": [ev_row(1, "assumed_bad")]}]}
        async with Peer(tmp_path / "agents" / "h3.sock", {"health": lambda _: health}), running(source):
            await wait_until(lambda: faults.has_path_symptoms)
            health["peers"][0]["evs"][0] = ev_row(1, "unknown")  # its QP was closed: nobody knows
            await wait_until(lambda: not faults.has_path_symptoms)

    asyncio.run(story())


@pytest.mark.parametrize("rows", [7, [7], [{"peer": "h9", "evs": []}], [{"peer": "h2", "evs": [{"ev": "x"}]}], None])
def test_agents__nonsense_in_health_is_passed_over(tmp_path, rows):
    async def story():
        source, _ = agents_of(tmp_path, FaultCorrelator(PLAN))
        async with Peer(tmp_path / "agents" / "h0.sock", {"health": {"peers": rows}}) as peer, running(source):
            await wait_until(lambda: len(peer.requests) > 0)
            await asyncio.sleep(0.05)
            assert source._subscriptions["h0"].connected

    asyncio.run(story())
