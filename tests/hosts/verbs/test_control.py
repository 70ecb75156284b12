"""The controller API of the verbs: EV probes, congestion control profiles, limits of the device."""

import errno

import pytest

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.wire.packets import EndpointOp, EndpointRequest
from mrc_testbed.hosts.verbs import (
    EpOp,
    EpRequest,
    EvFormat,
    PortState,
    ProfileState,
    QpAttr,
    QpState,
    VerbsError,
    connect_pair,
)
from tests.hosts.verbs.verbs_devices import MTU, VerbsPair

INIT, OFFLINE, ONLINE = ProfileState.INIT, ProfileState.OFFLINE, ProfileState.ONLINE


def probes(*evs):
    return [EpRequest(40 + number, "b", ev, (ev >> 8) + 1) for number, ev in enumerate(evs)]


def test_ep_op__answers_in_the_order_they_arrive_and_etimedout_for_the_rest():
    pair = VerbsPair(connect=False, planes=2, uplinks=2, delay_s=0.004)
    pair.wire.path("a", "b", 0x001).delay_s = 0.016
    pair.wire.cut(0x000)
    answers = pair.a.device.controller.ep_op(probes(0x000, 0x001, 0x100, 0x101), timeout_ns=50_000_000)
    assert [(a.req_id, a.port, a.rtt_ns and round(a.rtt_ns / 1e6), a.errno) for a in answers] == [
        (42, 2, 8, 0),
        (43, 2, 8, 0),
        (41, 1, 20, 0),
        (40, 1, None, errno.ETIMEDOUT),
    ]
    assert [a.ok for a in answers] == [True, True, True, False]
    assert not any(a.adj_svc_time for a in answers)
    assert pair.wire.now == pytest.approx(0.05)


def test_ep_op__what_only_another_way_back_answered_stands_before_what_nothing_answered():
    pair = VerbsPair(planes=2, uplinks=2, delay_s=0.004)
    pair.wire.cut(0x000)
    pair.wire.path("b", "a", 0x001).cut = True
    answers = pair.a.device.controller.ep_op(probes(0x000, 0x001), timeout_ns=50_000_000)
    assert [(a.req_id, a.ok) for a in answers] == [(41, True), (40, False)]


def test_ep_op__the_operation_numbers_are_those_of_the_api_and_the_wire_has_its_own():
    assert (EpOp.EV_PROBE, EpOp.PORT_STATUS_UPDATE) == (0, 1)
    assert (EndpointOp.EV_PROBE, EndpointOp.PORT_STATUS_UPDATE) == (1, 0)
    pair = VerbsPair(connect=False)
    sent_requests = []

    def watch(source, _target, _plane, packet):
        if isinstance(packet, EndpointRequest):
            sent_requests.append((source, packet.op, packet.dscp))

    pair.wire.filter = watch
    controller = pair.a.device.controller
    assert controller.ep_op(probes(0x000), op=EpOp.EV_PROBE, dscp=7)[0].ok
    assert controller.ep_op(probes(0x000))[0].ok
    assert sent_requests == [
        ("a", EndpointOp.EV_PROBE, 7),
        ("a", EndpointOp.EV_PROBE, pair.a.device.config.dscp.trimmable),
    ]
    with pytest.raises(VerbsError, match="PORT_STATUS_UPDATE: the device sends these by itself") as error:
        controller.ep_op(probes(0x000), op=EpOp.PORT_STATUS_UPDATE)
    assert error.value.errno == errno.ENOTSUP


def test_ep_op__source_and_format_of_each_request():
    pair = VerbsPair(connect=False, planes=4, uplinks=8)
    controller = pair.a.device.controller
    address = 0xFCBBBB00_2301_1305_2302_330B_0000_0000  # §8.3: plane 3, uplink 5
    requests = [
        EpRequest(1, "b", 0x305, 4, sgid=pair.a.device.query_gid(4), ev_fmt_mode=EvFormat.STEV),
        EpRequest(2, "b", address, 4, ev_fmt_mode=EvFormat.SRV6),
    ]
    pair.wire.path("a", "b", 0x305).delay_s = 0.1
    assert [round(a.rtt_ns / 1e6) for a in controller.ep_op(requests, timeout_ns=10**9)] == [105, 105]


def test_ep_op__nonsense_is_refused_whole():
    control = VerbsPair(connect=False).a.device.controller
    for request, words in [
        (EpRequest(70000, "b", 0, 1), "req_id = 70000: must be 0 to 65535"),
        (EpRequest(1, "c", 0, 1), "no host on the wire has the address 'c'"),
        (EpRequest(1, "b", 0, 3), "no port 3: ports are 1 to 2"),
        (EpRequest(1, "b", 1 << 32, 1), "ev = 4294967296: must be 0 to 4294967295"),
        (EpRequest(1, "b", 1 << 16, 1, ev_fmt_mode=EvFormat.UDP), "ev = 65536: must be 0 to 65535"),
        (EpRequest(1, "b", 0, 1, sgid="fd00::9"), "sgid 'fd00::9' is none of ours"),
    ]:
        with pytest.raises(ValueError, match=words):
            control.ep_op([request])
    for options, words in [
        ({"timeout_ns": 0}, "must be 1 to 60000000000"),
        ({"op": 2}, "must be one of EV_PROBE, PORT_STATUS_UPDATE"),
        ({"dscp": 64}, "dscp = 64: must be 0 to 63"),
        ({"dscp": Config().dscp.trimmed}, "marks packets that a switch has trimmed"),
    ]:
        with pytest.raises(VerbsError, match=words):
            control.ep_op([EpRequest(1, "b", 0, 1)], **options)
    with pytest.raises(VerbsError, match="once each in a batch"):
        control.ep_op([EpRequest(1, "b", 0, 1), EpRequest(1, "b", 1, 1)])


def test_ep_op__a_closed_controller_ends_its_batches():
    pair = VerbsPair(connect=False)
    control = pair.a.device.controller
    batch = control.post_ep_op(probes(0x000))
    control.close()
    assert batch.done and batch.responses[40].errno == errno.EBADF
    pair.a.device.run(1.0)
    with pytest.raises(VerbsError, match="this controller was closed"):
        control.post_ep_op(probes(0x000))


def test_cc_profile__life_and_use():
    pair = VerbsPair(connect=False)
    control = pair.a.device.controller
    assert "uet-1.0-nscc" in control.query_device().cc_algorithms
    with pytest.raises(VerbsError, match="CC profile 5: no algorithm 'cubic'"):
        control.modify_cc_profile(5, state=OFFLINE, algorithm="cubic")
    with pytest.raises(VerbsError, match="CC profile 5: gamma = 2"):
        control.modify_cc_profile(5, state=OFFLINE, algorithm="uet-1.0-nscc", gamma=2)
    with pytest.raises(VerbsError, match="has no key gama"):
        control.modify_cc_profile(5, state=OFFLINE, gama=0.5)
    for side in (pair.a, pair.b):
        control = side.device.controller
        control.modify_cc_profile(5, state=OFFLINE, algorithm="uet-1.0-nscc", max_cwnd=8 * MTU, base_rtt=10_000_000)
        with pytest.raises(VerbsError, match="CC profile 5 is OFFLINE, needs ONLINE \\(online: none\\)"):
            connect_pair(pair.a.qp, pair.b.qp, cc_profile_id=5)
        control.modify_cc_profile(5, state=ONLINE)
        if side is pair.a:
            # Profiles belong to one device: b knows nothing of a's
            pair.a.qp.modify(QpAttr(qp_state=QpState.RESET))
            peer_control = pair.b.device.controller
            assert peer_control.query_cc_profile(5)[0] is INIT
    with pytest.raises(VerbsError, match="is ONLINE: take it OFFLINE to change gamma"):
        control.modify_cc_profile(5, gamma=0.5)
    pair.a.qp.modify(QpAttr(qp_state=QpState.RESET))
    connect_pair(pair.a.qp, pair.b.qp, cc_profile_id=5)
    with pytest.raises(VerbsError, match="CC profile 5 is used by 1 QPs"):
        pair.a.device.controller.modify_cc_profile(5, state=OFFLINE)
    pair.a.qp.post_send(pair.write(16 * MTU))
    assert pair.a.cq.wait(timeout_s=5)[0].ok
    pair.a.qp.destroy()
    pair.a.device.controller.modify_cc_profile(5, state=OFFLINE)
    state, profile = pair.a.device.controller.query_cc_profile(5)
    assert (state, profile.max_cwnd) == (OFFLINE, 8 * MTU)


def test_device__limits_are_told():
    attr = VerbsPair(planes=4).a.device.controller.query_device()
    assert (attr.mrc_ctl_protocol_version, attr.phy_port_mask) == (1, 0b11110)
    assert attr.ev_free_count == attr.ev_max_count
    assert attr.ev_fmt_mode_mask == EvFormat.STEV | EvFormat.SRV6 | EvFormat.UDP


def test_query_port__a_port_without_a_link_is_enabled_still(monkeypatch):
    device = VerbsPair(connect=False).a.device
    monkeypatch.setattr(device.driver, "port_enabled", lambda _plane: True)
    monkeypatch.setattr(device.driver, "port_up", lambda _plane: False)
    assert device.controller.query_port(1) and device.query_port(1).state is PortState.IBV_PORT_DOWN
