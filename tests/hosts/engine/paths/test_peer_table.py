"""Control packets that wait for a port hold up those for this port alone (peer_table.py)."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.paths import peer_table
from mrc_testbed.hosts.engine.wire.packets import EndpointOp, EndpointRequest, EndpointResponse
from tests.hosts.engine.engine_pair import Pair

PROBE_COUNT = 300
"""More than are looked at for one turn of the ports (the default limit of transmit is 64)."""


def host() -> Endpoint:
    return Endpoint("a", planes=2, seed=1)


def probes(endpoint: Endpoint, plane: int, count: int, peer: str = "b") -> list[int]:
    """Send EV probes of the application, which leave by their plane or not at all; return their ids."""
    return [endpoint.probe_ev(peer, plane << 8, plane, now=0.0) for _ in range(count)]


def says(endpoint: Endpoint, peer: str, request_id: int, ports: int, plane: int) -> None:
    """Deliver a peer's port status update, to be answered by any port that is up at both ends."""
    update = EndpointRequest(2, plane << 8, plane, 46, 0, request_id, EndpointOp.PORT_STATUS_UPDATE, ports)
    endpoint.receive(update, plane, peer, 0.0)


def sent(endpoint: Endpoint, room: list[int], limit: int = 64) -> list[tuple[int, str, int]]:
    """Return (plane, peer, request id) of what leaves."""
    return [(plane, peer, packet.request_id) for plane, peer, packet in endpoint.transmit(0.0, limit, room)]


def test_busy_port__holds_up_its_own_packets_alone() -> None:
    """64 packets for a busy port do not hide those for other ports (a fault found by review)."""
    a = host()
    probes(a, 0, PROBE_COUNT)
    probe_ids = probes(a, 1, 1)
    assert sent(a, [0, 9]) == [(1, "b", probe_ids[0])]


def test_busy_port__of_answers_to_a_peer_that_has_no_other() -> None:
    a = host()
    for request_id in range(PROBE_COUNT):
        says(a, "b", request_id, 0b01, 0)
    says(a, "c", 7, 0b11, 1)
    assert sent(a, [0, 9]) == [(1, "c", 7)]
    assert [peer for _, peer, _ in sent(a, [9, 9])] == ["b"] * 9


def test_room__is_given_in_the_order_in_which_packets_came() -> None:
    a = host()
    ids = probes(a, 0, PROBE_COUNT)
    assert sent(a, [0, 1]) == []
    later_ids = probes(a, 0, 1)
    sent_ids = [request_id for _ in range(PROBE_COUNT) for _, _, request_id in sent(a, [3, 0])]
    assert sent_ids == ids + later_ids


def test_room__is_used_up_to_the_limit_and_the_rest_stays() -> None:
    a = host()
    ids = probes(a, 0, 10)
    assert sent(a, [0, 1]) == []
    assert [request_id for _, _, request_id in sent(a, [99, 99], limit=4)] == ids[:4]
    assert [request_id for _, _, request_id in sent(a, [99, 99])] == ids[4:]
    assert not a.can_send()


def test_room__goes_to_all_that_wait_for_it_in_turn() -> None:
    """A packet that waits for one port alone does not starve what waits for that one or another."""
    a = host()
    says(a, "c", 0, 0b11, 1)
    probes(a, 0, PROBE_COUNT)
    for request_id in range(1, 6):
        says(a, "c", request_id, 0b11, 0)
    peers = [peer for _ in range(14) for _, peer, _ in sent(a, [1, 0])]
    assert peers.count("c") == 6, peers


def test_cost__of_a_packet_does_not_grow_with_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    a = host()
    probes(a, 0, 5_000)
    assert sent(a, [0, 1]) == []
    tries = []
    original = peer_table.PeerTable._send
    monkeypatch.setattr(peer_table.PeerTable, "_send", lambda *arguments: tries.append(1) or original(*arguments))
    for _ in range(100):
        (probe,) = probes(a, 1, 1)
        assert sent(a, [0, 1]) == [(1, "b", probe)]
    assert len(tries) == 100


def test_own_port_down__what_waits_for_it_leaves_by_another_and_its_probes_are_dropped() -> None:
    a = host()
    says(a, "b", 5, 0b11, 1)
    assert len(sent(a, [9, 9])) == 1
    probes(a, 0, PROBE_COUNT)
    says(a, "b", 6, 0b01, 0)
    assert sent(a, [0, 9]) == []
    a.on_port(0, False, 0.0)
    assert sent(a, [0, 9]) == [(1, "b", 6)]
    assert not a.can_send()


def test_port_of_the_peer_up__what_waits_for_another_leaves_by_it() -> None:
    a = host()
    says(a, "b", 5, 0b01, 1)
    assert sent(a, [0, 9]) == []
    says(a, "b", 6, 0b11, 1)
    assert sent(a, [0, 9]) == [(1, "b", 5), (1, "b", 6)]


def test_peer_ports__are_all_until_the_peer_reports_one_down() -> None:
    a = host()
    assert a.peer_ports("b") == peer_table.ALL_PORTS
    says(a, "b", 5, 0b01, 1)
    assert a.peer_ports("b") & 0b11 == 0b01


def test_no_way_known__waits_for_one_and_holds_up_nobody() -> None:
    """The only port that b says is up is one on which it was never heard, and no QP names an EV."""
    a = host()
    for request_id in range(PROBE_COUNT):
        says(a, "b", request_id, 0b10, 0)
    says(a, "c", 7, 0b11, 0)
    assert sent(a, [9, 9]) == [(0, "c", 7)]
    a.receive(EndpointResponse(2, 0x100, 1, 46, 0, 0, EndpointOp.EV_PROBE), 1, "b", 0.0)
    assert [plane for _ in range(PROBE_COUNT) for plane, _, _ in sent(a, [9, 9])] == [1] * PROBE_COUNT


def test_full_queue__a_port_status_update_lost_in_it_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update that is queued keeps others from being: one that was lost there kept them away for good."""
    monkeypatch.setattr(peer_table, "CONTROL_MOST", 20)
    pair = Pair()
    pair.run(0.1)
    a = pair.a.endpoint
    a.on_port(0, False, pair.now)
    a.on_timer(pair.now)
    ids = [a.probe_ev("b", 0x100, 1, now=pair.now, timeout_s=9.0) for _ in range(21)]
    packets = [packet for _, _, packet in a.transmit(pair.now, room=[0, 99])]
    assert [packet.request_id for packet in packets] == ids[1:], "the oldest were lost: the update and a probe"
    pair.ports_up["a"][0] = False
    pair.run(0.5)
    believed_ports = pair.b.endpoint._peers.get("a").ports & 0b11
    assert believed_ports == 0b10
