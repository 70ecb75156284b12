"""A host's view of its peers' ports, over restarts, lost messages and late ones (peer_table.py)."""

from __future__ import annotations

from random import Random

import pytest

from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.events import PlaneChanged
from mrc_testbed.hosts.engine.wire.packets import EndpointOp, EndpointRequest, EndpointResponse, Packet
from tests.hosts.engine.engine_pair import MTU, Pair, Side, finish_write

REFRESH_S = 1.0
"""Config.ports.status_refresh_s."""
LEASE_S = 3.5 * REFRESH_S
ROUND_TRIP_S = 0.02


def restart_b(pair: Pair, first_id: int | None = None, down_planes: tuple[int, ...] = ()) -> None:
    """Restart b as a new process, with a new QP between it and a; a keeps its old QP.

    `first_id`: number of b's first request; `down_planes`: planes whose ports at b are down; those of all others
    come up.
    """
    endpoint = Endpoint("b", pair.b.endpoint.config, planes=pair.planes, seed=Random(pair.rng.getrandbits(32)))
    if first_id is not None:
        endpoint._peers._request_id = first_id - 1 & 0xFFFF
    for plane in range(pair.planes):
        pair.ports_up["b"][plane] = plane not in down_planes
        endpoint.on_port(plane, plane not in down_planes, pair.now)
    pair.b = Side(endpoint, endpoint.create_qp())
    pair.memory = bytearray(len(pair.memory))
    pair.region = endpoint.register(pair.memory)
    pair.a.qp = pair.a.endpoint.create_qp()
    pair.a.qp.connect("b", pair.b.qp.attributes(pair.region), pair.evs, pair.now)
    pair.b.qp.connect("a", pair.a.qp.attributes(), pair.evs, pair.now)


def updates(pair: Pair, side: str = "b") -> list[Packet]:
    return [line.packet for line in pair.sent(EndpointRequest, side) if line.packet.op == EndpointOp.PORT_STATUS_UPDATE]


def update(request_id: int, ports: int) -> EndpointRequest:
    return EndpointRequest(2, 0x101, 1, 46, 0, request_id, EndpointOp.PORT_STATUS_UPDATE, ports)


def arrives(pair: Pair, packet: EndpointRequest) -> None:
    """Deliver a packet from b at a."""
    pair.a.endpoint.receive(packet, packet.plane, "b", pair.now)
    pair.flush()


def believed_down(pair: Pair) -> set[int]:
    """Return the planes of which a thinks that b's port is down, by what it tells its application."""
    state = {e.plane: e.up for e in pair.events_of(PlaneChanged) if e.peer == "b"}
    return {plane for plane, is_up in state.items() if not is_up}


def uses_both_planes(pair: Pair) -> bool:
    first_counts = list(pair.a.qp.counters.plane_packets)
    finish_write(pair, 20 * MTU)
    return min(n - b for n, b in zip(pair.a.qp.counters.plane_packets, first_counts, strict=True)) > 5


def with_plane_0_of_b_down() -> Pair:
    pair = Pair(planes=2, uplinks=2)
    pair.run(0.1)
    pair.port("b", 0, is_up=False)
    pair.run(0.1)
    assert believed_down(pair) == {0}
    return pair


@pytest.mark.parametrize("ahead", [1, 100, -100, 0x8000])
def test_restart__of_a_peer_with_all_ports_up_is_believed_in_a_round_trip(ahead: int) -> None:
    """A QP to the old process is still there, and the new one numbers its words from anywhere."""
    pair = with_plane_0_of_b_down()
    restart_b(pair, updates(pair)[-1].request_id + ahead & 0xFFFF)
    pair.run(ROUND_TRIP_S)
    assert believed_down(pair) == set() and uses_both_planes(pair)


@pytest.mark.parametrize("ahead", [1, 100, -100, 0x8000])
def test_restart__of_a_peer_with_another_port_down(ahead: int) -> None:
    pair = with_plane_0_of_b_down()
    restart_b(pair, updates(pair)[-1].request_id + ahead & 0xFFFF, down_planes=(1,))
    pair.run(ROUND_TRIP_S)
    assert believed_down(pair) == {1}
    pair.port("b", 1, is_up=True)
    pair.run(ROUND_TRIP_S)
    assert believed_down(pair) == set() and uses_both_planes(pair)


def test_first_connect__each_end_tells_its_ports_once_and_is_heard() -> None:
    pair = Pair(planes=2)
    pair.run(30.0)
    for side in ("a", "b"):
        assert [p.port_mask for p in updates(pair, side)] == [0b11]
    restart_b(pair)
    pair.run(30.0)
    assert len(updates(pair, "a")) == 1, "nothing new at a, and the new b takes it for what it is: all up"


def test_first_word__that_comes_before_our_end_has_connected_counts() -> None:
    pair = Pair(planes=2)
    pair.a.endpoint.destroy_qp(pair.a.qp.qpn)
    pair.port("b", 0, is_up=False)
    pair.run(0.1)
    restart_b(pair, down_planes=(0,))
    assert believed_down(pair) == {0}
    pair.write(pair.bytes(20 * MTU))
    pair.run_until_quiet()
    assert pair.a.qp.counters.plane_packets[0] == 0


def test_connect__tells_again_what_nobody_acknowledged() -> None:
    pair = Pair(planes=2)
    pair.filter = lambda source, packet: [] if isinstance(packet, EndpointResponse) else None
    pair.run(0.05)
    pair.filter = None
    sent = len(updates(pair, "a"))
    restart_b(pair)
    pair.run(ROUND_TRIP_S)
    assert len(updates(pair, "a")) == sent + 1


@pytest.mark.parametrize("is_down", [False, True])
def test_update__not_taken_in_is_not_acknowledged_and_said_again(is_down: bool) -> None:
    """A late update of another process (id ahead) hides b's updates for one or two refreshes."""
    pair = Pair(planes=2)
    pair.run(0.1)
    arrives(pair, update(updates(pair)[-1].request_id + 100 & 0xFFFF, 0b11 if is_down else 0b10))
    response_count = len(pair.sent(EndpointResponse))
    pair.port("b", 0, is_up=False)
    if not is_down:
        pair.port("b", 0, is_up=True)
    pair.run(0.05)
    assert believed_down(pair) == (set() if is_down else {0}), "the newer word, as far as a can tell"
    assert len(pair.sent(EndpointResponse)) == response_count
    pair.run(2 * REFRESH_S)
    assert believed_down(pair) == ({0} if is_down else set())
    assert len(pair.sent(EndpointResponse)) > response_count
    update_count = len(updates(pair))
    pair.run(5 * REFRESH_S)
    assert len(updates(pair)) - update_count == (5 if is_down else 0), (
        "a refresh a second, and none for ports that are up"
    )


def test_update__overtaken_by_a_newer_one_that_says_the_same_is_acknowledged() -> None:
    pair = Pair(planes=2)
    pair.run(0.1)
    newest_id = updates(pair)[-1].request_id
    arrives(pair, update(newest_id + 2, 0b10))
    arrives(pair, update(newest_id + 1, 0b10))
    arrives(pair, update(newest_id, 0b11))
    assert [line.packet.request_id for line in pair.sent(EndpointResponse)][-2:] == [newest_id + 2, newest_id + 1]
    assert believed_down(pair) == {0}


@pytest.mark.parametrize("ahead", [1, -1])
@pytest.mark.parametrize("after_s", [0.0, 0.005, 2.0])
def test_late_word_of_the_old_process__about_a_port_that_is_up_ends(ahead: int, after_s: float) -> None:
    """The late word comes after the connect, before or after the new process's own."""
    pair = with_plane_0_of_b_down()
    old_update = updates(pair)[-1]
    restart_b(pair, old_update.request_id - ahead & 0xFFFF)
    pair.run(after_s)
    arrives(pair, update(old_update.request_id, 0b10))
    pair.run(LEASE_S + ROUND_TRIP_S)
    assert believed_down(pair) == set() and uses_both_planes(pair)


def test_late_word_of_the_old_process__about_a_port_that_is_down_now() -> None:
    pair = Pair(planes=2)
    pair.run(0.1)
    old_update = updates(pair)[-1]
    restart_b(pair, old_update.request_id - 1000 & 0xFFFF, down_planes=(0,))
    pair.run(0.5)
    assert believed_down(pair) == {0}
    arrives(pair, update(old_update.request_id, 0b11))
    assert believed_down(pair) == set(), "it cannot know better"
    pair.run(2 * REFRESH_S + ROUND_TRIP_S)
    assert believed_down(pair) == {0}


def test_late_word_of_the_same_process__is_passed_over_however_late_it_is() -> None:
    pair = with_plane_0_of_b_down()
    old_update = updates(pair)[-1]
    pair.port("b", 0, is_up=True)
    pair.run(20.0)
    arrives(pair, update(old_update.request_id, 0b10))
    assert believed_down(pair) == set()


def test_lease__ends_when_the_peer_vanished_without_a_word() -> None:
    pair = with_plane_0_of_b_down()
    pair.filter = lambda source, packet: [] if source == "b" else None
    pair.run(LEASE_S - 0.2)
    assert believed_down(pair) == {0}
    pair.run(0.2)
    assert believed_down(pair) == set()


def test_lease__holds_while_the_port_is_down_though_words_get_lost() -> None:
    pair = with_plane_0_of_b_down()
    rng = Random(3)
    count = iter(range(10**6))

    def two_of_three_lost(source: str, packet: Packet) -> list[float] | None:
        is_update = source == "b" and type(packet) is EndpointRequest
        return [] if is_update and next(count) % 3 else None

    pair.filter = two_of_three_lost
    event_count = len(pair.events_of(PlaneChanged))
    for _ in range(120):
        pair.run(rng.random())
    assert believed_down(pair) == {0} and len(pair.events_of(PlaneChanged)) == event_count


def test_tell__a_peer_without_a_qp_is_told_nothing() -> None:
    endpoint = Endpoint("a", planes=2, seed=1)
    endpoint.probe_ev("b", 0x001, 0, now=0.0)
    endpoint.on_port(1, False, 0.0)
    sent = [packet.op for _, _, packet in endpoint.transmit(0.0) if isinstance(packet, EndpointRequest)]
    assert sent == [EndpointOp.EV_PROBE]
