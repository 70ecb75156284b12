"""Denylist entries and their EVs; EV health over present and past QPs; filters of watchers."""

from __future__ import annotations

import asyncio
import re
import threading
from types import SimpleNamespace
from typing import get_args

import pytest

from mrc_testbed.hosts.agent import event_json as event_json_page
from mrc_testbed.hosts.agent.agent import Agent
from mrc_testbed.hosts.agent.connections import Connections
from mrc_testbed.hosts.agent.denylist import Denylist
from mrc_testbed.hosts.agent.event_json import event_json, event_name
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.events import EvChanged, Event
from mrc_testbed.hosts.engine.paths.ev_state import EvState
from mrc_testbed.ipc.requests import RequestError
from mrc_testbed.ipc.rpc import JsonlClient, JsonlError, RpcServer
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(planes=2, racks=2, spines=2, hosts_per_rack=2)
H0, H1, H2 = PLAN.hosts[0], PLAN.hosts[1], PLAN.hosts[2]
ALL_EVS = {0x000, 0x001, 0x100, 0x101}


def denied(entry: dict, peer=H2, plan: Plan = PLAN, host=None) -> set[int]:
    """Return the EVs from h0 to `peer` that one entry denies."""
    denylist = Denylist(plan, host or plan.hosts[0])
    denylist.set(denylist.parse([entry]))
    return set(denylist.denied(peer, plan.ev_planes(host or plan.hosts[0], peer)))


@pytest.mark.parametrize(
    ("entry", "far", "near"),
    [
        ({"scope": "link", "plane": 1, "t0": 0, "uplink": 1}, {0x101}, set()),  # our own T0
        ({"scope": "link", "plane": 1, "t0": 1, "uplink": 0}, {0x100}, set()),  # the peer's T0
        ({"scope": "link", "name": "p1-t1-0 p1-t0-0"}, {0x100}, set()),
        ({"scope": "t1", "plane": 0, "t1": 1}, {0x001}, set()),
        ({"scope": "t1", "name": "p0-t1-1"}, {0x001}, set()),
        ({"scope": "t0", "plane": 0, "t0": 0}, {0x000, 0x001}, {0x000}),
        ({"scope": "t0", "name": "p0-t0-1"}, {0x000, 0x001}, set()),
        ({"scope": "nic-plane", "plane": 1, "host": "h0"}, {0x100, 0x101}, {0x100}),
        ({"scope": "nic-plane", "name": "h2-eth1"}, {0x100, 0x101}, set()),
        ({"scope": "nic-plane", "name": "h3 p1-t0-1"}, set(), set()),
    ],
)
def test_denylist__denies_the_evs_that_cross_a_place(entry, far, near):
    assert denied(entry, H2) == far
    assert denied(entry, H1) == near


def test_denylist__inside_a_rack_no_uplink_is_taken():
    """EV 0x100 of a pair under one T0 has the number of uplink 0, but does not cross it."""
    assert denied({"scope": "link", "plane": 1, "t0": 0, "uplink": 0}, H1) == set()


@pytest.mark.parametrize("mode", ["ecmp", "switch-spray", "flow-ecmp"])
def test_denylist__where_evs_name_no_path_only_planes_can_be_denied(mode):
    plan = Plan(2, 2, 2, 2, mode=mode)
    pairs = dict(plan.ev_planes(plan.hosts[0], plan.hosts[2]))
    on_plane = {ev for ev, plane in pairs.items() if plane == 1}
    assert denied({"scope": "t0", "plane": 1, "t0": 1}, plan.hosts[2], plan) == on_plane
    assert denied({"scope": "nic-plane", "plane": 1, "host": "h0"}, plan.hosts[2], plan) == on_plane
    assert denied({"scope": "link", "plane": 1, "t0": 0, "uplink": 1}, plan.hosts[2], plan) == set()
    assert denied({"scope": "t1", "plane": 1, "t1": 1}, plan.hosts[2], plan) == set()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (7, "object with a scope"),
        ({}, "needs 'scope'"),
        ({"scope": "spine"}, "has: link, t1, t0, nic-plane"),
        ({"scope": "link", "plane": 1, "t0": 0}, "needs 'uplink'"),
        ({"scope": "link", "plane": 2, "t0": 0, "uplink": 0}, "plane = 2: must be 0 to 1"),
        ({"scope": "link", "plane": True, "t0": 0, "uplink": 0}, "must be of type int"),
        ({"scope": "link", "name": "p0-t0-0 p0-t0-1"}, "no link between"),
        ({"scope": "link", "name": "h0 p0-t0-0"}, "nic-plane"),
        ({"scope": "link", "name": "a b c"}, "two nodes"),
        ({"scope": "t1", "name": "p0-t0-0"}, "scope is t0"),
        ({"scope": "t0", "name": "p9-t0-0"}, "no switch"),
        ({"scope": "nic-plane", "plane": 0, "host": "h9"}, "no host"),
        ({"scope": "nic-plane", "name": "p0-t0-0 p0-t1-0"}, "no host"),
        ({"scope": ["link"]}, "must be of type str"),
    ],
)
def test_denylist__a_wrong_entry_is_refused_by_name(entry, message):
    with pytest.raises(RequestError, match=message):
        Denylist(PLAN, H0).parse([entry])


def test_denylist__whole_list_is_idempotent_and_gives_itself_back():
    denylist = Denylist(PLAN, H0)
    entries = [{"scope": "t1", "plane": 0, "t1": 1, "cause": "blackhole"}, {"scope": "t1", "name": "p0-t1-1"}]
    for _ in (1, 2):
        denylist.set(denylist.parse(entries))
        assert [entry.to_json() for entry in denylist] == [{"scope": "t1", "name": "p0-t1-1", "cause": ""}]
    denylist.remove(denylist.parse(entries))
    assert list(denylist) == []


# ---- over QPs -----------------------------------------------------------------------------------------------


class Rig:
    """The connections of h0, with an engine but no network."""

    def __init__(self, tmp_path, plan: Plan = PLAN) -> None:
        self.now = 1.0
        self.plan = plan
        self.endpoint = Endpoint("h0", planes=plan.planes, seed=1)
        self.peer_endpoint = Endpoint("h2", planes=plan.planes, seed=2)
        self.connections = Connections(plan, plan.hosts[0], self.endpoint, tmp_path.joinpath, lambda: self.now)

    def connect(self, transport: str = "mrc"):
        connection = self.connections.create("h2", transport)
        self.connections.connect(connection, self.peer_endpoint.create_qp(transport=transport).attributes())
        return connection

    def set(self, *entries: dict) -> int:
        self.connections.denylist.set(self.connections.denylist.parse(entries))
        return self.connections.apply_denylist()

    def states(self, connection) -> dict[int, str]:
        return {ev_state["ev"]: ev_state["state"] for ev_state in connection.qp.ev_states()}


LINK = {"scope": "link", "plane": 1, "t0": 0, "uplink": 1}
T1 = {"scope": "t1", "plane": 1, "t1": 1}


def test_denylist__holds_for_qps_before_and_after_and_is_lifted(tmp_path):
    rig = Rig(tmp_path)
    first_qp = rig.connect()
    assert rig.set(LINK) == 1 and rig.set(LINK) == 0
    second_qp = rig.connect()
    assert rig.states(first_qp)[0x101] == rig.states(second_qp)[0x101] == "denied"
    assert rig.connections.denied_evs() == {"h2": [0x101]}
    assert rig.set(LINK, T1) == 0  # the same EV once more
    assert rig.set(T1) == 0 and rig.states(second_qp)[0x101] == "denied"
    assert rig.set() == 2
    assert set(rig.states(first_qp).values()) == set(rig.states(second_qp).values()) == {"good"}
    changes = [(e.ev, e.new_state) for e in rig.endpoint.events() if isinstance(e, EvChanged)]
    assert changes == [(0x101, EvState.DENIED), (0x101, EvState.GOOD), (0x101, EvState.GOOD)]


def test_denylist__the_baseline_keeps_its_path(tmp_path):
    rig = Rig(tmp_path)
    rig.set(*({"scope": "t0", "plane": plane, "t0": 0} for plane in (0, 1)))
    assert rig.states(rig.connect("rocev2")).popitem()[1] == "good"
    assert set(rig.states(rig.connect()).values()) == {"denied"}


def test_health__lists_every_path_with_or_without_a_qp(tmp_path):
    rig = Rig(tmp_path)
    assert rig.connections.health(None) == []
    (peer_health,) = rig.connections.health("h2")
    assert {row["ev"] for row in peer_health["evs"]} == ALL_EVS and peer_health["qps"] == 0
    row = peer_health["evs"][3]
    assert (row["plane"], row["uplink"], row["address"]) == (1, 1, "fcbb:bb00:2100:1101:2101:3100::")
    assert row["path"] == ["h0", "p1-t0-0", "p1-t1-1", "p1-t0-1", "h2"]
    assert (row["state"], row["rtt_s"], row["sent"]) == ("unknown", None, 0)
    rig.set(LINK)
    assert rig.connections.health("h2")[0]["evs"][3]["state"] == "denied"
    rig.connect()
    (peer_health,) = rig.connections.health(None)
    assert [row["state"] for row in peer_health["evs"]] == ["good", "good", "good", "denied"]
    assert peer_health["evs"][3]["denied_by"] == ["p1-t0-0 p1-t1-1"]


def test_health__random_evs_belong_to_their_qp(tmp_path):
    rig = Rig(tmp_path, Plan(2, 2, 2, 2, mode="ecmp"))
    first_qp, second_qp = rig.connect(), rig.connect()
    assert not set(rig.states(first_qp)) & set(rig.states(second_qp))
    (peer_health,) = rig.connections.health("h2")
    assert {r["ev"] for r in peer_health["evs"]} == set(rig.states(first_qp)) | set(rig.states(second_qp))
    assert {r["uplink"] for r in peer_health["evs"]} == {r["address"] for r in peer_health["evs"]} == {None}


def test_event__uplink_only_where_the_ev_names_one():
    event = EvChanged(3, "h2", 0x12345678, 1, EvState.GOOD, EvState.ASSUMED_BAD, "lost", 1.0)
    assert event_json(event, ev_is_path=False)["uplink"] is None
    assert event_json(event)["uplink"] == 0x78


@pytest.mark.parametrize("kind", get_args(Event))
def test_event__has_a_name_that_the_page_lists(kind):
    assert re.search(rf"\b{event_name(kind.__new__(kind))} +\w", event_json_page.__doc__)


def test_publish__fields_are_not_made_when_nobody_watches():
    sent, agent = [], Agent.__new__(Agent)
    agent._server = SimpleNamespace(
        watched=lambda event: event == "ev", publish=lambda event, **fields: sent.append((event, fields))
    )
    agent.publish("progress", lambda: 1 // 0)
    agent.publish("ev", lambda: {"ev": 3})
    assert sent == [("ev", {"ev": 3})]


# ---- watchers -----------------------------------------------------------------------------------------------


def test_watch__a_client_gets_the_events_it_asked_for(tmp_path):
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run_in_loop(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(10)

    server = run_in_loop(RpcServer.start(tmp_path / "s.sock", lambda request, call: {}))
    try:
        client = JsonlClient(tmp_path / "s.sock")
        assert not server.watched("ev")
        with pytest.raises(JsonlError, match="list of event names"):
            client.watch(events="ev")
        # Both are published: the filtered watcher never gets "lost"
        with client.watch(events=["ev"]) as ev_events, client.watch() as all_events:
            loop.call_soon_threadsafe(lambda: server.publish("lost", psn=1))
            loop.call_soon_threadsafe(lambda: server.publish("ev", ev=2))
            assert ev_events.get(5)["event"] == "ev"
            assert all_events.get(5)["event"] == "lost"
            assert server.watched("ev") and server.watched("lost")
        with client.watch(events=["port"]):
            assert server.watched("port")
        client.close()
    finally:
        run_in_loop(server.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
