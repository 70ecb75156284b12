"""QPCC: one window per destination, between real endpoints on a virtual fabric.

Profiles, probes, send rules.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from mrc_testbed.faults import LossFault
from mrc_testbed.hosts.engine.cc.ccprofile import FIXED_WINDOW, NSCC, CcProfile, ProfileState
from mrc_testbed.hosts.engine.cc.incast import IncastSignal
from mrc_testbed.hosts.engine.cc.nscc import Reaction
from mrc_testbed.hosts.engine.cc.qpcc import Qpcc, RateMeter, Share
from mrc_testbed.hosts.engine.cc.window import FixedWindow
from mrc_testbed.hosts.engine.config import Config, ConfigError
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.wire.packets import EndpointOp, EndpointRequest, Write
from mrc_testbed.hosts.tools.stat import _congestion
from mrc_testbed.simulator import Flow, QueueProfile, VirtualFabric, jain, scaled_profiles
from mrc_testbed.topologies.plan import Plan
from tests.hosts.engine.engine_pair import Pair

RATE, RTT = 100e6, 0.005


def fabric(
    *,
    hosts: int = 1,
    planes: int = 1,
    queues: QueueProfile | None = None,
    trace: Any = False,
    seed: int = 1,
    **config: Any,
) -> VirtualFabric:
    """Return a fabric of two racks with one path per plane.

    NSCC has rate and base RTT given, unless `config` says otherwise.
    """
    keys = {"cc_algorithm": NSCC, "link_rate_bps": RATE, "base_rtt_s": RTT, **config}
    scale = scaled_profiles(planes, rate_bps=RATE / planes, rtt_s=RTT, config=keys)
    plan = Plan(planes, 2, 1, hosts)
    return VirtualFabric(
        plan, seed=seed, links=scale.links, queues=queues or scale.queues, config=scale.config, trace=trace
    )


def qpcc_of(flow: Flow) -> Qpcc:
    window = flow.qp.connected.window
    assert isinstance(window, Share)
    return window.qpcc


def stub(**config: Any) -> tuple[Qpcc, list[float]]:
    """Return a QPCC without an endpoint, and the times of its base RTT probes."""
    probes: list[float] = []

    def probe(_: Qpcc, now: float) -> bool:
        probes.append(now)
        return True

    keys = {"cc_algorithm": NSCC, "link_rate_bps": RATE, "base_rtt_s": RTT, **config}
    return Qpcc("b", CcProfile(), Config.of(**keys), 1, 1112, True, probe, 0.0, Random(1)), probes


def in_flight(qpcc: Qpcc) -> int:
    """Return the bytes in flight of all QPs.

    What the peer's counter ran ahead for one of them is no room for the others.
    """
    return sum(max(0, share.inflight) for share in qpcc.shares if not share.parked)


# ---- sharing ------------------------------------------------------------------------------------------------


def test_share__qps_of_one_destination_have_one_window_and_equal_turns():
    net = fabric()
    flows = [Flow(net, "h0", "h1", message_bytes=1 << 18) for _ in range(3)]
    assert len({id(qpcc_of(flow)) for flow in flows}) == 1
    cc = qpcc_of(flows[0]).cc
    peak = 0.0
    for _ in range(200):
        net.run_for(RTT / 2)
        peak = max(peak, cc.inflight - cc.cwnd)
        assert cc.inflight == in_flight(qpcc_of(flows[0]))
    assert peak <= cc.p.mtu
    assert jain([flow.received_bytes for flow in flows]) > 0.99


def test_share__destinations_have_windows_of_their_own():
    net = fabric(hosts=2)
    flows = [Flow(net, "h0", target, messages=1) for target in ("h1", "h2")]
    assert qpcc_of(flows[0]) is not qpcc_of(flows[1])


def test_share__or_one_window_for_each_qp():
    net = fabric(cc_scope="qp")
    flows = [Flow(net, "h0", "h1", messages=1) for _ in range(2)]
    assert qpcc_of(flows[0]) is not qpcc_of(flows[1])


def test_share__a_qp_that_ends_takes_its_flight_along():
    net = fabric()
    ended_flow, remaining_flow = (Flow(net, "h0", "h1", message_bytes=1 << 18) for _ in range(2))
    net.run_for(0.05)
    qpcc = qpcc_of(ended_flow)
    assert ended_flow.qp.connected.window is not None
    assert ended_flow.qp.connected.window.inflight > 0
    ended_flow.qp.abort("had enough", net.now)
    assert qpcc.cc.inflight == in_flight(qpcc)
    assert len(qpcc.shares) == 1
    net.host("h0").endpoint.destroy_qp(ended_flow.qp.qpn)
    first_bytes = remaining_flow.received_bytes
    net.run_for(0.1)
    assert (remaining_flow.received_bytes - first_bytes) * 8 / 0.1 > 0.8 * RATE


def test_quiet__nothing_is_in_flight_any_more():
    """Any mix of SACKs, trims and losses of data and answers ends with nothing in flight."""
    queues = QueueProfile(data_bytes=25_000, trim_bytes=20_000, ecn_min_bytes=10_000)
    net = fabric(hosts=3, queues=queues, planes=2)
    for source in ("h3", "h4", "h5"):
        net.apply(LossFault.on(f"{source} p1-t0-{net.plan.host(source).rack}", rate=0.02))
    flows = [Flow(net, source, "h0", message_bytes=100_000, messages=5) for source in ("h3", "h4", "h5", "h5")]
    assert net.run_until(lambda: all(flow.done for flow in flows), limit_s=30)
    assert all(flow.completed == 5 and flow.intact for flow in flows)
    assert sum(flow.qp.counters.trimmed for flow in flows) > 0
    assert sum(flow.qp.counters.lost for flow in flows) > 0
    for qpcc in map(qpcc_of, flows):
        assert all(-256 < share.inflight <= 0 for share in qpcc.shares)
        assert qpcc.cc.inflight == in_flight(qpcc)


# ---- what a QP gets -----------------------------------------------------------------------------------------


def test_default__a_fixed_window_for_each_qp():
    net = VirtualFabric(Plan(1, 2, 1, 1))
    flows = [Flow(net, "h0", "h1", messages=1) for _ in range(2)]
    assert [flow.qp.cc_state()["algorithm"] for flow in flows] == [FIXED_WINDOW, FIXED_WINDOW]
    assert flows[0].qp.connected.window is not flows[1].qp.connected.window


def test_none__only_mpr_bounds_what_is_in_flight():
    net = fabric(cc_algorithm="none", mpr_packets=128)
    flow = Flow(net, "h0", "h1", message_bytes=1 << 19, messages=1)
    net.run_for(0.5 * RTT)
    assert flow.qp.cc_state()["cwnd_bytes"] > 128 * 1024
    assert net.run_until(lambda: flow.done, limit_s=10)
    assert flow.completed == 1


def test_profile__chosen_before_connecting_and_counted():
    net = fabric(cc_algorithm=FIXED_WINDOW)
    endpoint = net.host("h0").endpoint
    number = endpoint.cc_profiles.create(CcProfile(base_rtt=4_000_000, max_cwnd=50_000), "lab")
    qp = endpoint.create_qp()
    with pytest.raises(LocalError, match="bring it online"):
        qp.set_cc_profile(number)
    endpoint.cc_profiles.move(number, ProfileState.OFFLINE)
    endpoint.cc_profiles.move(number, ProfileState.ONLINE)
    qp.set_cc_profile(number)
    assert qp.cc_state() == {}
    peer = net.host("h1").endpoint.create_qp()
    qp.connect("h1", peer.attributes(), [(0, 0)], 0.0)
    state = qp.cc_state()
    assert (state["profile"], state["algorithm"], state["cwnd_bytes"]) == (number, NSCC, 50_000)
    assert state["base_rtt_s"] == pytest.approx(0.004)
    with pytest.raises(LocalError, match="before it connects"):
        qp.set_cc_profile(0)
    endpoint.destroy_qp(qp.qpn)
    endpoint.cc_profiles.move(number, ProfileState.OFFLINE)


@pytest.mark.parametrize("key", [{"cc_algorithm": "cubic"}, {"cc_send_rule": "both"}, {"base_rtt_s": -1}])
def test_config__refuses_what_does_not_exist(key):
    with pytest.raises(ConfigError, match=next(iter(key))):
        Config.of(**key)


def test_start__at_the_ceiling_or_at_a_share_of_it():
    assert stub()[0].join(0.0).cwnd == 1.5 * RATE / 8 * RTT
    assert stub(cc_start=0.25)[0].join(0.0).cwnd == 1.5 * RATE / 8 * RTT / 4
    assert stub(cc_start=0.001)[0].join(0.0).cwnd == 1112


def test_stat__a_line_about_congestion():
    net = fabric()
    flow = Flow(net, "h0", "h1", message_bytes=1 << 18)
    net.run_for(0.1)
    line = _congestion(flow.qp.cc_state())
    assert line.startswith("uet-1.0-nscc, 1 QPs: window 94 of 94 kB, ")
    assert "base RTT 5.00 ms, queueing 0." in line
    assert line.endswith("target 3.75 ms")


# ---- when to send, when to ask ------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "may"), [("mrc", True), ("uet", False)])
def test_may_send__row_h4(rule, may):
    """nscc.md §3.1: window 8192, 5000 in flight, MTU 4096."""
    config = Config.of(cc_send_rule=rule, link_rate_bps=RATE)
    qpcc = Qpcc("b", CcProfile(), config, 1, 4096, True, lambda *_: True, 0.0, Random(1))
    share = qpcc.join(0.0)
    qpcc.cc.cwnd = 8192
    share.on_send(5000)
    assert share.may_send() is may


@pytest.mark.parametrize("rule", ["mrc", "uet"])
def test_window_of_one_packet__asks_every_time_and_does_not_stall(rule):
    """Below the coalescing threshold, waiting for the idle flush would cost 4 ms a packet."""
    lines: list[Write] = []

    def trace(kind: str, now: float, port: str, frame: Any) -> None:
        if kind == "send" and type(frame.packet) is Write:
            lines.append(frame.packet)

    net = fabric(cc_send_rule=rule, sack_flush_s=1.0, trace=trace)
    flow = Flow(net, "h0", "h1", message_bytes=40 * 1024, messages=1)
    cc = qpcc_of(flow).cc
    cc.cwnd = cc.wmax = cc.p.mtu
    assert net.run_until(lambda: flow.done, limit_s=10)
    assert flow.duration_s < 60 * RTT


# ---- base RTT and rate --------------------------------------------------------------------------------------


def test_base_probe__one_per_destination_on_the_control_class():
    probes: list[tuple[float, int]] = []

    def trace(kind: str, now: float, port: str, frame: Any) -> None:
        packet = frame.packet
        if port.startswith("h0") and kind == "send" and type(packet) is EndpointRequest and packet.op:
            probes.append((now, packet.dscp))

    net = fabric(trace=trace, base_rtt_s=0.02)
    first = Flow(net, "h0", "h1", message_bytes=1 << 18)
    net.run_for(0.1)
    net.host("h0").endpoint.destroy_qp(first.qp.qpn)
    second = Flow(net, "h0", "h1", message_bytes=1 << 18)
    assert qpcc_of(second).cc.base < 0.0055  # known from the first QP, before anything was sent
    net.run_for(0.1)
    assert [dscp for _, dscp in probes] == [net.config_of("h0").dscp.control]
    assert not [event for event in net.host("h0").events if type(event).__name__ == "EvProbeResult"]


def test_base_probe__adds_what_a_full_packet_takes():
    qpcc, probes = stub(base_rtt_s=0.02)
    share = qpcc.join(0.0)
    share.on_ack(1.0, 1112, False, 0.02)
    assert probes == [1.0]
    qpcc.on_probe(0.004)
    assert qpcc.cc.base == pytest.approx(0.004 + 4 * (1112 - 64) * 8 / RATE)


def test_base__is_never_below_its_floor():
    """Links that keep to a rate and let a lone packet pass at once.

    A fast probe says nothing of a full pipe.
    """
    qpcc, _ = stub(base_rtt_s=0.02, base_rtt_min_s=0.015)
    share, ceiling = qpcc.join(0.0), qpcc.cc.wmax
    share.on_ack(1.0, 1112, False, 0.018)
    assert qpcc.cc.base == 0.018 and qpcc.cc.wmax < ceiling
    share.on_ack(1.1, 1112, False, 0.002)
    qpcc.on_probe(0.001)
    assert qpcc.cc.base == 0.015 and qpcc.cc.wmax == pytest.approx(ceiling * 0.75)
    assert qpcc.cc.avg >= 0, "a round trip below the floor is no queue, and no negative one"
    assert stub(base_rtt_s=0.02)[0].cc.p.base_min == 0, "none unless it is given"


def test_base_probe__repeated_when_lost_but_not_for_ever():
    qpcc, probes = stub()
    share = qpcc.join(0.0)
    for i in range(10):
        share.on_trim(i * RTT, 0, False, 0.0, 1)
        qpcc.on_probe(None)
    assert len(probes) == 3


def test_measured__rate_and_base_of_an_idle_fabric():
    net = fabric(link_rate_bps=0, base_rtt_s=0)
    flow = Flow(net, "h0", "h1", message_bytes=1 << 19)
    net.run_for(0.3)
    state = flow.qp.cc_state()
    assert state["rate_measured"]
    assert state["base_rtt_measured"]
    assert state["base_rtt_s"] == pytest.approx(RTT, rel=0.1)
    assert 0.85 < state["rate_bps"] / RATE < 1.1
    first_bytes = flow.received_bytes
    net.run_for(0.2)
    assert (flow.received_bytes - first_bytes) * 8 / 0.2 > 0.85 * RATE


def test_rate_meter__knows_the_best_and_ignores_pauses():
    meter = RateMeter()
    assert not meter.on_ack(0.0, 5000, 0.005)
    grew = [meter.on_ack(0.001 * i, 1000, 0.005) for i in range(1, 31)]
    assert meter.rate == pytest.approx(1e6)
    assert grew.count(True) == 1
    meter.pause()
    meter.on_ack(9.0, 1000, 0.005)
    meter.on_ack(10.0, 1000, 0.005)
    assert meter.rate == pytest.approx(1e6)


# ---- the receiver -------------------------------------------------------------------------------------------


def test_penalty__throttles_end_to_end():
    net = fabric()
    flow = Flow(net, "h0", "h1", message_bytes=1 << 18)
    net.run_for(0.1)
    cc = qpcc_of(flow).cc
    first_cwnd = cc.cwnd
    flow.peer_qp.set_penalty(127)
    net.run_for(4 * RTT)
    assert cc.cwnd < first_cwnd / 8
    assert cc.counts[Reaction.HELD] > 0
    flow.peer_qp.set_penalty(0)
    net.run_for(100 * RTT)
    assert cc.cwnd > first_cwnd / 2


def test_penalty__ends_with_the_last_qp_that_is_throttled():
    qpcc, _ = stub()
    a, b = qpcc.join(0.0), qpcc.join(0.0)
    was = qpcc.cc.cwnd
    for share in (a, b):
        share.on_send(20_000)
        share.on_ack(0.0, 1112, True, RTT, 64, True)
    a.on_ack(0.0, 1112, True, RTT, 0, True)
    assert qpcc.cc.cwnd < was
    b.on_ack(0.0, 1112, True, RTT, 0, True)
    assert qpcc.cc.cwnd == was


def test_incast_signal__holds_for_a_while_after_each_trim():
    signal = IncastSignal(16, 0.002)
    assert signal.penalty(0.0) == 0
    signal.on_trim(1.0)
    signal.on_trim(1.001)
    assert [signal.penalty(time_s) for time_s in (1.001, 1.0029, 1.0031)] == [16, 16, 0]


def test_rounding__of_many_qps_opens_no_window():
    """Byte counters round up to 256: 64 QPs of a host together had 8 kB more in flight than their window."""
    qpcc, _ = stub()
    shares = [qpcc.join(0.0) for _ in range(64)]
    for share in shares:
        share.on_send(1112)
        share.on_ack(RTT, 1280, False, RTT)
    assert qpcc.cc.inflight == 0 and all(share.inflight == -168 for share in shares)
    for number, share in enumerate(shares):
        share.on_send(1112)
        assert qpcc.cc.inflight == (number + 1) * 944
    for share in shares:
        share.on_unlost(100)
        share.on_loss(RTT, 1112, 0.0)
        assert share.inflight == -68
    assert qpcc.cc.inflight == 0
    shares[0].on_unlost(100)
    assert qpcc.cc.inflight == 32
    for share in shares:
        share.leave()
    assert qpcc.cc.inflight == 0


# ---- peers that lie -----------------------------------------------------------------------------------------


def test_byte_counter_that_lies__opens_the_window_to_its_ceiling_and_no_further():
    qpcc, _ = stub()
    share = qpcc.join(0.0)
    for i in range(100):
        share.on_send(1112)
        share.on_ack(i * RTT, (1 << 23) * 256, False, RTT * (1 + i % 3))
        share.cap(1112)
        assert qpcc.cc.cwnd <= qpcc.cc.wmax
        assert -256 <= share.inflight <= 1112
        assert qpcc.cc.inflight == in_flight(qpcc)


def test_silence__takes_the_flight_of_a_qp_out_of_the_window_until_it_is_heard():
    qpcc, _ = stub()
    quiet_share, heard_share = qpcc.join(0.0), qpcc.join(0.0)
    quiet_share.on_send(1000)
    heard_share.on_send(500)
    for _ in range(2):
        quiet_share.on_silence()
        assert qpcc.cc.inflight == 500 and not quiet_share.may_send()
    quiet_share.on_send(200)
    quiet_share.cap(700)
    assert (quiet_share.inflight, qpcc.cc.inflight) == (700, 500)
    window = qpcc.cc.cwnd
    quiet_share.on_loss(0.0, 500, 0.0)
    assert qpcc.cc.cwnd == window, "the other one is heard: the network is not to blame"
    heard_share.on_silence()
    heard_share.on_loss(0.0, 300, 0.0)
    assert qpcc.cc.cwnd == window - 300, "nobody is heard"
    for _ in range(2):
        quiet_share.on_life()
        assert qpcc.cc.inflight == quiet_share.inflight == 200
    heard_share.leave()
    assert qpcc.cc.inflight == 200, "what it had in flight was out already"


def test_connect__takes_a_window_of_the_caller():
    a, b = Endpoint("a", planes=1, seed=1), Endpoint("b", planes=1, seed=2)
    qp, window = a.create_qp(), FixedWindow(5000, 320)
    qp.connect("b", b.create_qp().attributes(), [(1, 0)], 0.0, window=window)
    assert qp.cc_state()["cwnd_bytes"] == 5000 and qp.connected.window is window


def test_base_probe__waits_for_an_ev_that_works():
    pair = Pair(config={"cc_algorithm": NSCC, "link_rate_bps": RATE, "base_rtt_s": RTT})
    pair.write(pair.bytes(600))
    pair.flush()
    for ev, _ in pair.evs:
        pair.a.qp.deny(ev, now=pair.now)
    pair.run_until_quiet()
    assert not [line for line in pair.sent(EndpointRequest) if line.packet.op == EndpointOp.EV_PROBE]
    for ev, _ in pair.evs:
        pair.a.qp.allow(ev, now=pair.now)
    pair.write(pair.bytes(600))
    pair.run_until_quiet()
    assert len([line for line in pair.sent(EndpointRequest) if line.packet.op == EndpointOp.EV_PROBE]) == 1
