"""Health of the paths of a host: sums over QPs, worst states, ports that are down."""

from mrc_testbed.hosts.agent.connections import Connections
from mrc_testbed.hosts.agent.path_health import PathHealth
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.wire.packets import EndpointOp, EndpointRequest
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(2, 2, 2, 2)
H0, H2 = PLAN.host("h0"), PLAN.host("h2")


def row(**changes) -> dict:
    counts = dict.fromkeys(("sent", "acked", "lost", "marked", "trimmed", "probes_answered"), 0)
    return {"ev": 0x101, "plane": 1, "state": "good", "active": True, "srtt_s": None, **counts, **changes}


def test_health__sums_qps_takes_the_worst_state_and_remembers_those_gone():
    health = PathHealth(PLAN, H0)
    health.keep_counts("h2", [row(sent=5, lost=1, srtt_s=0.02)])

    def reported_row(*qps):
        (ev_row,) = [
            r for r in health.report(H2, [[q] for q in qps], lambda peer, evs: {}, {})["evs"] if r["ev"] == 0x101
        ]
        return ev_row["state"], ev_row["sent"], ev_row["lost"], ev_row["rtt_s"]

    assert reported_row() == ("unknown", 5, 1, 0.02)
    assert reported_row(row(sent=1)) == ("good", 6, 1, 0.02)
    assert reported_row(row(sent=1, srtt_s=0.01), row(sent=2, state="skip", srtt_s=0.03)) == ("skip", 8, 1, 0.02)
    assert reported_row(row(state="denied"), row(state="assumed_bad"))[0] == "denied"


def test_health__a_port_that_is_down_at_either_end_makes_its_evs_dead(tmp_path):
    """An idle QP holds them for good as long as it sends nothing."""
    endpoint, peer_endpoint = Endpoint("h0", planes=2, seed=1), Endpoint("h2", planes=2, seed=2)
    connections = Connections(PLAN, H0, endpoint, tmp_path.joinpath, lambda: 1.0)

    def states():
        rows = connections.health("h2")[0]["evs"]
        assert [row["active"] for row in rows] == [row["state"] == "good" for row in rows]
        return [(row["state"], row["ports_down"]) for row in rows]

    endpoint.on_port(0, False, 1.0)
    assert states() == [("port_down", ["h0-eth0"])] * 2 + [("unknown", [])] * 2
    connection = connections.create("h2")
    connections.connect(connection, peer_endpoint.create_qp().attributes())
    assert states() == [("port_down", ["h0-eth0"])] * 2 + [("good", [])] * 2
    (qp,) = connections.to_json()
    assert [ev["state"] for ev in qp["evs"]] == ["port_down"] * 2 + ["good"] * 2
    update = EndpointRequest(2, 0x100, 1, 46, 0, 1, EndpointOp.PORT_STATUS_UPDATE, 0b01)
    endpoint.receive(update, 1, "h2", 2.0)
    connections.denylist.set(connections.denylist.parse([{"scope": "t1", "plane": 1, "t1": 1}]))
    connections.apply_denylist()
    all_states = [("port_down", ["h0-eth0"])] * 2 + [("port_down", ["h2-eth1"]), ("denied", ["h2-eth1"])]
    assert [(state, ports) for state, ports in states()] == all_states
    endpoint.on_port(0, True, 3.0)
    assert [state for state, _ in states()] == ["good", "good", "port_down", "denied"]
