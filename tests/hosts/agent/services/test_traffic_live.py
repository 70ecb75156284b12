"""Flows and collectives of scenarios between agents, with real packets.

And requests that make no sense.
"""

from __future__ import annotations

import os
import time

import pytest

from mrc_testbed.ipc.rpc import JsonlClient, JsonlPeerError
from tests.hosts.agent.test_agent_network import wire  # noqa: F401 - fixture

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and packet sockets"),
]

SCRIPT = {
    "rank": 0, "ranks": 2, "tasks": [], "collectives": [], "incoming": [], "targets": [], "outbox": 0, "inbox": 0,
    "sent_bytes": 0,
}  # fmt: skip
SHAPE = {"message_bytes": 5000, "messages": 40, "depth": 4, "rate_bps": None, "seed": 3}


def clients(wire):  # noqa: F811
    return [JsonlClient(wire.run_dir / "agents" / f"{name}.sock", name=name) for name in ("h0", "h1")]


def qp_pair(a, b, **fields):
    """Return the QPNs of a connected pair."""
    qp_a, qp_b = (client.request("flow_qp", peer=peer, **fields) for client, peer in ((a, "h1"), (b, "h0")))
    for client, local_qp, remote_qp in ((a, qp_a, qp_b), (b, qp_b, qp_a)):
        client.request(
            "flow_connect", qpn=local_qp["qpn"], remote=remote_qp["attributes"], config={"no_receive": "deliver"}
        )
    return qp_a["qpn"], qp_b["qpn"]


def read_until(client, condition):
    """The first answer of flow_read that `condition` likes."""
    while True:
        read = client.request("flow_read")
        if condition(read):
            return read
        time.sleep(0.02)


@pytest.mark.parametrize("transport", ["mrc", "rocev2"])
def test_flow__every_message_is_checked(wire, transport):  # noqa: F811
    wire.switches()
    with wire.agent("h0"), wire.agent("h1"):
        a, b = clients(wire)
        source_qpn, sink_qpn = qp_pair(a, b, transport=transport)
        memory = b.request("flow_sink", flow="f", qpns=[sink_qpn], shape=SHAPE)
        start = time.monotonic() + 0.05
        a.request(
            "flow_source", flow="f", qpns=[source_qpn], shape=SHAPE, **memory_of(memory), start_s=start, latencies=True
        )
        read = read_until(a, lambda read: read["sources"]["f"]["over"])["sources"]["f"]
        assert (read["completed"], read["failed"]) == (40, 0)
        sink = read_until(b, lambda read: read["sinks"]["f"]["checked"] == 40)["sinks"]["f"]
        assert (sink["damaged"], sink["received_bytes"]) == (0, 200_000)
        a.close(), b.close()


def memory_of(answer):
    return {"va": answer["va"], "rkey": answer["rkey"]}


def test_flow__wrong_bytes_are_found(wire):  # noqa: F811
    wire.switches()
    with wire.agent("h0"), wire.agent("h1"):
        a, b = clients(wire)
        source_qpn, sink_qpn = qp_pair(a, b)
        memory = b.request("flow_sink", flow="f", qpns=[sink_qpn], shape={**SHAPE, "seed": 4})
        a.request(
            "flow_source", flow="f", qpns=[source_qpn], shape=SHAPE, **memory_of(memory), start_s=time.monotonic()
        )
        sink = read_until(b, lambda read: read["sinks"]["f"]["checked"] == 40)["sinks"]["f"]
        assert sink["damaged"] == 40
        a.close(), b.close()


def test_collective__between_two_agents(wire):  # noqa: F811
    wire.switches()
    with wire.agent("h0"), wire.agent("h1"):
        agents = clients(wire)
        ring = {"kind": "all_reduce", "ranks": 2, "size_bytes": 30_000}
        ranks = [
            agent.request("rank_open", flow="ring", seed=1, iterations=3, collective={**ring, "rank": r})
            for r, agent in enumerate(agents)
        ]
        for r, agent in enumerate(agents):
            peer_agent = agents[1 - r]
            agent_qp, peer_qp = (c.request("flow_qp", peer=f"h{p}") for c, p in ((agent, 1 - r), (peer_agent, r)))
            for client, local_qp, remote_qp in ((agent, agent_qp, peer_qp), (peer_agent, peer_qp, agent_qp)):
                keys = {"no_receive": "deliver"}
                client.request("flow_connect", qpn=local_qp["qpn"], remote=remote_qp["attributes"], config=keys)
            agent.request("rank_link", flow="ring", peer=1 - r, qpns=[agent_qp["qpn"]], regions=ranks[1 - r]["regions"])
            peer_agent.request("rank_link", flow="ring", sources=[[peer_qp["qpn"], r, 1]])
        for agent in agents:
            agent.request("rank_start", flow="ring", start_s=time.monotonic() + 0.05)
        for agent in agents:
            read = read_until(agent, lambda read: read["ranks"]["ring"]["done"])["ranks"]["ring"]
            assert [damaged_count for _, damaged_count, _ in read["ended"]] == [0, 0, 0]
            agent.close()


def test_requests_that_make_no_sense_are_refused(wire):  # noqa: F811
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1"):
        a, b = clients(wire)
        qpn, _ = qp_pair(a, b)
        for op, fields, text in [
            ("flow_qp", {"peer": "h0"}, "is this host"),
            ("flow_qp", {"peer": "h1", "transport": "tcp"}, "no transport 'tcp'"),
            ("flow_qp", {"peer": "h1", "transport": "rocev2", "settings": {"windw": 1}}, "no key windw"),
            ("flow_connect", {"qpn": 1, "remote": {}}, "QP 1 was not made for this client"),
            ("flow_connect", {"qpn": qpn, "remote": {}, "config": {"cwnd": 1}}, "attributes|remote|config"),
            ("flow_sink", {"flow": "f", "qpns": [qpn], "shape": {**SHAPE, "depth": 99}}, "depth = 99"),
            ("flow_sink", {"flow": "f", "qpns": [qpn], "shape": {**SHAPE, "message_bytes": 1 << 40}}, "message_bytes"),
            ("flow_sink", {"flow": "f", "qpns": ["x"], "shape": SHAPE}, "numbers of QPs"),
            ("flow_source", {"flow": "f", "qpns": [qpn], "shape": SHAPE, "va": 1}, "needs 'rkey'"),
            (
                "rank_open",
                {
                    "flow": "r",
                    "collective": {"kind": "gossip", "rank": 0, "ranks": 2, "size_bytes": 9},
                    "iterations": 1,
                },
                "no coll",
            ),
            ("rank_open", {"flow": "r", "iterations": 1}, "needs 'collective' or 'script'"),
            (
                "rank_open",
                {"flow": "r", "iterations": 1, "script": {**SCRIPT, "tasks": [["compute", [7], [], 1.0, 0]]}},
                "script: task 0 waits for task 7",
            ),
            ("rank_open", {"flow": "r", "iterations": 1, "script": {**SCRIPT, "outbox": 1 << 40}}, "script: outbox"),
            ("rank_start", {"flow": "r", "start_s": 1.0}, "no rank of 'r'"),
            ("rank_link", {"flow": "r", "peer": 1, "qpns": [qpn], "regions": {"data": 7}}, "address and R_Key"),
            ("rank_link", {"flow": "r", "peer": 1, "qpns": [qpn], "regions": {"data": [7, 7]}}, "no rank of 'r'"),
        ]:
            with pytest.raises(JsonlPeerError, match=text):
                a.request(op, **fields)
        # A refused request leaves nothing behind: no QP stays busy
        a.close(), b.close()
        assert h0.status()["qps"] == [] or all(not qp["busy"] for qp in h0.status()["qps"])
