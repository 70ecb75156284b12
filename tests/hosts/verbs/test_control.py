"""The controller API of the verbs: EV probes, congestion control profiles, limits of the device."""

import pytest

from mrc_testbed.hosts.verbs import (
    EpRequest,
    EvFormat,
    ProfileState,
    QpAttr,
    QpState,
    VerbsError,
    connect_pair,
)
from tests.hosts.verbs.verbs_devices import MTU, VerbsPair

INIT, OFFLINE, ONLINE = ProfileState.INIT, ProfileState.OFFLINE, ProfileState.ONLINE


def test_ep_op__rtts_and_timeouts_in_the_order_asked():
    pair = VerbsPair(connect=False, planes=2, uplinks=2, delay_s=0.004)
    pair.wire.path("a", "b", 0x101).delay_s = 0.016
    pair.wire.cut(0x000)
    requests = []
    for number, ev in enumerate((0x000, 0x001, 0x100, 0x101)):
        requests.append(EpRequest(40 + number, "b", ev, (ev >> 8) + 1, timeout_ns=50_000_000))
    answers = pair.a.device.controller.ep_op(requests)
    assert [(a.req_id, a.port, a.rtt_ns and round(a.rtt_ns / 1e6)) for a in answers] == [
        (40, 1, None),
        (41, 1, 8),
        (42, 2, 8),
        (43, 2, 20),
    ]
    assert [a.ok for a in answers] == [False, True, True, True]
    assert pair.wire.now == pytest.approx(0.05)


def test_ep_op__nonsense_is_refused_whole():
    control = VerbsPair(connect=False).a.device.controller
    for request, words in [
        (EpRequest(70000, "b", 0, 1), "req_id = 70000: must be 0 to 65535"),
        (EpRequest(1, "c", 0, 1), "no host on the wire has the address 'c'"),
        (EpRequest(1, "b", 0, 3), "no port 3: ports are 1 to 2"),
        (EpRequest(1, "b", 1 << 32, 1), "ev = 4294967296: must be 0 to 4294967295"),
        (EpRequest(1, "b", 0, 1, timeout_ns=0), "must be 1 to 60000000000"),
        (EpRequest(1, "b", 0, 1, op=0), "has: EV_PROBE"),
    ]:
        with pytest.raises(ValueError, match=words):
            control.ep_op([request])
    with pytest.raises(VerbsError, match="once each in a batch"):
        control.ep_op([EpRequest(1, "b", 0, 1), EpRequest(1, "b", 1, 1)])


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
    assert attr.phy_port_mask == 0b11110
    assert attr.ev_free_count == attr.ev_max_count
    assert attr.ev_fmt_mode_mask == EvFormat.STEV | EvFormat.SRV6 | EvFormat.UDP
