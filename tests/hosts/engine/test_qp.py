"""The queue pair from outside.

States, refusals, and what it shows of itself before and after connect().
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mrc_testbed.hosts.engine import Endpoint, LocalError, PeerError, QpAttributes
from mrc_testbed.hosts.engine.connection import TxCredit
from mrc_testbed.hosts.engine.events import Status
from mrc_testbed.hosts.engine.memory import QpAccess
from mrc_testbed.hosts.engine.wire.packets import TransportAck
from tests.hosts.engine.engine_pair import Pair, make_evs
from tests.hosts.engine.rocev2.rocev2_pair import RcPair

EVS = make_evs(2, 2)


def unconnected_qp(transport: str = "mrc"):
    """Return a QP that nobody connected, and attributes of a peer."""
    qp = Endpoint("a", planes=2, seed=1).create_qp(transport=transport)
    remote = Endpoint("b", planes=2, seed=2).create_qp(transport=transport).attributes()
    return qp, remote


@pytest.mark.parametrize("transport", ["mrc", "rocev2"])
def test_before_connect__it_shows_nothing_and_refuses_to_send(transport):
    qp, _ = unconnected_qp(transport)
    assert (qp.outstanding(), qp.held_packets(), qp.scheduler_state(), qp.ev_states(), qp.cc_state()) == (
        0,
        0,
        "idle",
        [],
        {},
    )
    with pytest.raises(LocalError, match="is in init, needs rts"):
        qp.post_write(b"x", 0, 0, now=0.0)
    for part in ("requestor", "responder", "paths"):
        if transport == "mrc":
            with pytest.raises(LocalError, match="without a peer"):
                getattr(qp, part)


@pytest.mark.parametrize("transport", ["mrc", "rocev2"])
def test_before_connect__packets_and_turns_do_nothing(transport):
    qp, _ = unconnected_qp(transport)
    sent: list = []
    qp.receive(TransportAck(qp.qpn, 0, 0, 46, 0, 0, 0, 0), 0.0)
    qp.transmit(0.0, sent, 64, TxCredit(2, [64, 64]))
    qp.on_timer(1.0)
    assert qp.transport_ack() is None
    assert not qp.can_send() and not qp.owes_ack() and not sent


def test_transport_ack__of_a_qp_that_failed_after_it_was_owed_is_not_sent():
    pair = Pair()
    pair.a.qp.post_write(bytes(100), pair.region.va, pair.region.rkey, now=0.0)
    receiver = pair.b.endpoint
    for plane, _, packet in pair.a.endpoint.transmit(0.0):
        receiver.receive(packet, plane, "a", 0.0)
    assert receiver.can_send() and pair.b.qp.owes_ack()
    pair.b.qp.abort("it was to end here", 0.0)
    assert not [packet for _, _, packet in receiver.transmit(0.0) if isinstance(packet, TransportAck)]


def test_transport_ack__is_owed_once():
    pair = Pair()
    pair.a.qp.post_write(bytes(100), pair.region.va, pair.region.rkey, now=0.0)
    for plane, _, packet in pair.a.endpoint.transmit(0.0):
        pair.b.endpoint.receive(packet, plane, "a", 0.0)
    responder = pair.b.qp.responder
    assert isinstance(responder.transport_ack(), TransportAck) and responder.transport_ack() is None


@pytest.mark.parametrize("transport", ["mrc", "rocev2"])
def test_connect__refusals_name_the_cause(transport):
    qp, remote = unconnected_qp(transport)
    with pytest.raises(LocalError, match="EVs on planes \\[7\\], but there are 2 planes"):
        qp.connect("b", remote, [(1, 7)], 0.0)
    with pytest.raises(LocalError, match="EV"):
        qp.connect("b", remote, [], 0.0)
    qp.connect("b", remote, EVS, 0.0)
    with pytest.raises(LocalError, match="only a new one can be connected"):
        qp.connect("b", remote, EVS, 0.0)
    with pytest.raises(LocalError, match="access is limited before it connects"):
        qp.limit_access(QpAccess(set()))


def test_connect__a_baseline_takes_windows_of_its_own_kind():
    qp, remote = unconnected_qp("rocev2")
    with pytest.raises(LocalError, match="window = int: a rocev2 QP needs"):
        qp.connect("b", remote, EVS, 0.0, window=5)


def test_set_up__only_before_the_first_post():
    pair = Pair()
    pair.write(b"x" * 300)
    with pytest.raises(LocalError, match="before the first post"):
        pair.a.qp.begin_sending(5, 128, pair.config)


@pytest.mark.parametrize("pair_type", [Pair, RcPair])
def test_set_up__in_two_steps_sends_from_the_second_ones_psn(pair_type):
    pair = pair_type()
    first_psn = (pair.a.qp.first_psn + 7) & 0xFFFFFF
    pair.a.qp.begin_sending(first_psn, 128, pair.config)
    pair.write(b"x" * 300)
    pair.flush()
    assert [line.packet.psn for line in pair.log if line.source == "a"] == [first_psn, (first_psn + 1) & 0xFFFFFF]


@pytest.mark.parametrize("transport", ["mrc", "rocev2"])
@pytest.mark.parametrize("fault", ["another domain", "no remote write"])
def test_limit_access__writes_reach_the_regions_of_the_domain_alone(transport, fault):
    """Other registrations of the endpoint are not reached, whatever R_Key a packet names."""
    pair = (Pair if transport == "mrc" else RcPair)()
    receiver = pair.b.endpoint.create_qp(transport=transport)
    buffer = bytearray(300)
    region = pair.b.endpoint.register(buffer)
    access = QpAccess({region.rkey})
    receiver.limit_access(access)
    sender = pair.a.endpoint.create_qp(transport=transport)
    sender.connect("b", receiver.attributes(region), EVS[:1], 0.0)
    receiver.connect("a", sender.attributes(), EVS[:1], 0.0)
    sender.post_write(b"x" * 300, region.va, region.rkey, now=0.0)
    pair.run(1.0)
    assert bytes(buffer) == b"x" * 300
    access.remote_write = fault != "no remote write"
    target = region if fault == "no remote write" else pair.region
    sender.post_write(b"y", target.va, target.rkey, now=pair.now)
    pair.run(1.0)
    assert sender.error and not any(pair.memory) and bytes(buffer) == b"x" * 300


def test_destroy__of_a_qp_that_nobody_connected():
    local_endpoint = Endpoint("a", planes=2, seed=1)
    qp = local_endpoint.create_qp()
    local_endpoint.destroy_qp(qp.qpn)
    with pytest.raises(LocalError, match=r"no QP .* \(has: none\)"):
        local_endpoint.qp(qp.qpn)


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"remote_va": -1}, "remote_va"),
        ({"rkey": 1 << 32}, "rkey"),
        ({"imm": 1 << 32}, "imm"),
        ({"remote_va": (1 << 64) - 1}, "at most 4 GiB - 1, inside 64 bits"),
    ],
)
def test_post_write__a_value_that_does_not_fit_is_refused(change, reason):
    pair = Pair()
    with pytest.raises(LocalError, match=reason):
        pair.a.qp.post_write(b"xy", **{"remote_va": 0, "rkey": 0, "now": 0.0, **change})


@pytest.mark.parametrize("change", [{"qpn": -1}, {"pmtu_bytes": 7}, {"trim_nack": 1}, {"transport": "tcp"}])
def test_attributes__a_value_out_of_range_is_the_peers_error(change):
    _, remote = unconnected_qp()
    keys = remote.to_json()
    assert QpAttributes.from_json(keys) == remote
    with pytest.raises(PeerError, match=f"{next(iter(change))} = "):
        QpAttributes.from_json({**keys, **change})
    with pytest.raises(PeerError, match="QP attributes have the keys"):
        QpAttributes.from_json({**keys, "color": 1})


def test_fail__once_only_and_the_first_reason_stays():
    pair = Pair()
    pair.a.qp.abort("first", 0.0)
    pair.a.qp.abort("second", 0.0)
    assert pair.a.qp.error == "first"
    assert pair.a.qp.scheduler_state() == "idle"


def test_fail__before_connect_there_is_nothing_to_flush():
    qp, _ = unconnected_qp()
    qp.abort("not needed", 0.0)
    assert qp.error == "not needed"


def test_rocev2__a_release_gives_back_its_profile_and_nothing_else():
    pair = RcPair()
    assert pair.a.qp.held_packets() == 0
    pair.a.endpoint.destroy_qp(pair.a.qp.qpn)
    assert Status.SUCCESS not in [status for _, status in pair.completions()]


def test_rocev2__congestion_state_has_a_rate_where_dcqcn_gives_one():
    assert "alpha" in RcPair(rc={"control": "dcqcn"}).a.qp.cc_state()
    assert "alpha" not in RcPair(rc={"control": "window"}).a.qp.cc_state()


def test_rocev2__scheduler_states_follow_window_and_flight():
    pair = RcPair(rc={"window_packets": 1})
    qp = pair.a.qp
    states = [qp.scheduler_state()]
    pair.write(bytes(300))
    states.append(qp.scheduler_state())
    pair.flush()
    states.append(qp.scheduler_state())  # one packet of two is on its way, and the window is shut
    pair.run_until_quiet()
    assert [*states, qp.scheduler_state()] == ["idle", "ready", "active", "idle"]


def test_memory__numbers_that_do_not_fit_are_refused():
    pair = Pair()
    with pytest.raises(ValueError, match="does not fit 64 bits"):
        pair.b.endpoint.register(bytearray(2), va=(1 << 64) - 1)
    attributes = replace(pair.b.qp.attributes(pair.region), length=0)
    assert attributes.rkey == pair.region.rkey
