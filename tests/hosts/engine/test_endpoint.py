"""The endpoint: its public face, what it refuses, and which numbers its queue pairs get."""

from __future__ import annotations

from bisect import bisect_left
from random import Random

import pytest

import mrc_testbed.hosts.engine
from mrc_testbed.hosts.engine import Endpoint, LocalError
from mrc_testbed.hosts.engine.endpoint import first_from
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.hosts.engine.wire.packets import Write
from tests.hosts.engine.engine_pair import Pair, make_evs


def endpoint(**keys: object) -> Endpoint:
    return Endpoint("a", planes=2, seed=1, **keys)


def test_face__every_name_leads_to_its_class():
    assert all(getattr(mrc_testbed.hosts.engine, name).__name__ == name for name in mrc_testbed.hosts.engine.__all__)


def test_face__another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Requestor'"):
        _ = mrc_testbed.hosts.engine.Requestor


@pytest.mark.parametrize("planes", [0, 33])
def test_endpoint__planes_are_the_bits_of_a_mask(planes):
    with pytest.raises(LocalError, match="must be 1 to 32"):
        Endpoint("a", planes=planes, seed=1)


def test_endpoint__the_first_qpn_is_one_of_its_qpns():
    with pytest.raises(LocalError, match="first_qpn = 9: not in 100 to 199"):
        endpoint(qpns=range(100, 200), first_qpn=9)


def test_create_qp__refusals_name_the_cause():
    local_endpoint = endpoint(qpns=range(100, 101))
    with pytest.raises(LocalError, match="no transport 'tcp' \\(has: mrc, rocev2\\)"):
        local_endpoint.create_qp(transport="tcp")
    with pytest.raises(LocalError, match="only rocev2 takes one"):
        local_endpoint.create_qp(settings=RcConfig())
    qp = local_endpoint.create_qp()
    with pytest.raises(LocalError, match="all 1 QPNs are in use"):
        local_endpoint.create_qp()
    with pytest.raises(LocalError, match=f"QPN {qp.qpn} is in use"):
        local_endpoint.create_qp(qpn=qp.qpn)


def test_create_qp__a_taken_number_is_passed_over():
    local_endpoint = endpoint(first_qpn=100, qpns=range(100, 103))
    local_endpoint.create_qp(qpn=101)
    assert [local_endpoint.create_qp().qpn for _ in range(2)] == [100, 102]


def sending(local_endpoint: Endpoint, name: str = "b") -> int:
    """Return a QP of the endpoint, connected, with more to send than it will.

    The peer's QPN, which its packets carry.
    """
    qp = local_endpoint.create_qp()
    peer = Endpoint(name, planes=2, seed=qp.qpn).create_qp()
    qp.connect(name, peer.attributes(), make_evs(2, 2), 0.0)
    qp.post_write(bytes(100_000), 0, 0, now=0.0)
    return peer.qpn


def served_qpns(local_endpoint: Endpoint, packets: int) -> list[int]:
    """Return the QPNs of the peers that got one packet each, in the order in which the packets left."""
    qpns: list[int] = []
    while len(qpns) < packets:
        qpns += [packet.dest_qp for _, _, packet in local_endpoint.transmit(0.0, 1) if isinstance(packet, Write)]
    return qpns


def test_create_qp__a_new_one_has_its_turn_after_all_others():
    local_endpoint = endpoint()
    first, second, third = (sending(local_endpoint) for _ in range(3))
    assert served_qpns(local_endpoint, 1) == [first]
    fourth = sending(local_endpoint)
    assert served_qpns(local_endpoint, 5) == [second, third, first, fourth, second]


def test_destroy_qp__takes_no_turn_from_those_that_were_to_come():
    local_endpoint = endpoint(first_qpn=100, qpns=range(100, 110))
    qpns = [sending(local_endpoint) for _ in range(4)]
    assert served_qpns(local_endpoint, 2) == qpns[:2]
    local_endpoint.destroy_qp(100)
    assert served_qpns(local_endpoint, 4) == [qpns[2], qpns[3], qpns[1], qpns[2]]


@pytest.mark.parametrize("plane", [-1, 2])
def test_planes__one_that_is_not_there_is_refused(plane):
    local_endpoint = endpoint()
    with pytest.raises(LocalError, match="Known: 0 to 1"):
        local_endpoint.probe_ev("b", 1, plane, now=0.0)
    with pytest.raises(LocalError, match="Known: 0 to 1"):
        local_endpoint.on_port(plane, False, 0.0)


def test_first_from__is_where_bisect_left_finds_it():
    turns = [0, 2, 3, 7, 11]
    for turn in range(13):
        assert first_from(turns, turn) == bisect_left(turns, turn)
    assert first_from([], 4) == 0


@pytest.mark.parametrize("seed", range(20))
def test_is_settled__then_a_qp_that_is_examined_all_the_same_changes_nothing(seed, monkeypatch):
    rng, settled_count = Random(seed), 0
    pair = Pair(seed=seed, config={"cwnd_bytes": rng.choice((3000, 1 << 20)), "exp_cnt": 25, "timeout_ceiling_s": 0.3})
    pair.filter = lambda _source, _packet: [] if rng.random() < 0.05 else [rng.random() * 0.01]
    receive = pair.b.endpoint.receive

    def receive_and_examine(packet, plane, peer, now):
        nonlocal settled_count
        receive(packet, plane, peer, now)
        if pair.b.endpoint.is_settled(True):
            settled_count += 1
            due = pair.b.endpoint.next_timer()
            pair.b.qp.touch()
            assert pair.b.endpoint.transmit(now) == [] and pair.b.endpoint.next_timer() == due

    monkeypatch.setattr(pair.b.endpoint, "receive", receive_and_examine)
    data = pair.bytes(30_000)
    pair.write(data)
    pair.run_until_quiet()
    assert bytes(pair.memory[: len(data)]) == data and settled_count > 3


def test_is_settled__without_room_although_a_qp_could_send():
    pair = Pair()
    pair.run(1.0)
    pair.write(pair.bytes(3000))
    sender = pair.a.endpoint
    assert not sender.is_settled(False), "posted and not examined yet"
    assert sender.transmit(pair.now, room=[0, 0]) == [] and sender.next_deadline(pair.now) > pair.now
    assert sender.is_settled(False) and not sender.is_settled(True)
