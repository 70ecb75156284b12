"""Time until a dead path is out of use when packets are few.

Lone packets, and the probe at half the timer.
"""

from __future__ import annotations

from mrc_testbed.faults import OneWayFault
from mrc_testbed.hosts.engine.events import EvChanged, PacketLost
from mrc_testbed.hosts.engine.wire.packets import ReliabilityProbe, Write
from mrc_testbed.simulator import Flow, VirtualFabric, scaled_profiles
from mrc_testbed.topologies.plan import Plan
from tests.hosts.engine.engine_pair import MTU, Pair, finish_write, lose_first


def test_lone_packets__a_dead_path_is_out_within_one_timeout_of_the_first_lost() -> None:
    scale = scaled_profiles(4)
    plan = Plan(planes=4, racks=2, spines=4, hosts_per_rack=1)
    judged_count = 0
    for seed in range(6):
        fabric = VirtualFabric(plan, seed=seed, links=scale.links, queues=scale.queues, config=scale.config)
        Flow(fabric, "h0", "h1", message_bytes=100, messages=150, depth=1)
        fabric.schedule(0.3, OneWayFault.on("p1-t0-0 p1-t1-2"))
        fabric.run_until(3.0)
        events = fabric.host("h0").events
        lost = [e for e in events if isinstance(e, PacketLost)]
        changes = [e for e in events if isinstance(e, EvChanged)]
        for first in lost[:1]:
            judged_count += 1
            assert changes[0].ev == first.ev
            assert changes[0].at - first.sent_at <= scale.config.loss.base_timeout_s * (1 + 1e-9)
    assert judged_count > 2


def test_half_timer__probes_ask_over_other_evs_of_the_plane_and_beyond() -> None:
    pair = Pair(psn=0, planes=2, uplinks=2, config={"timeout": 17})
    finish_write(pair, MTU)
    lost = lose_first(pair, lambda s, p: isinstance(p, Write))
    pair.write(pair.bytes(MTU))
    pair.flush()
    began, timeout, ev = pair.now, pair.config.loss.base_timeout_s, lost[0].ev
    pair.run(0.6 * timeout)
    near, far = pair.sent(ReliabilityProbe)
    assert near.packet.ev == ev ^ 1 and far.packet.plane != ev >> 8
    assert all(abs(probe.time - began - timeout / 2) < 1e-9 for probe in (near, far))
    pair.run(0.4 * timeout + 1e-9)
    assert pair.state(ev) == "assumed_bad"
    pair.run_until_quiet()
    assert len(pair.events_of(PacketLost)) == 1


def test_half_timer__no_answer_proves_nothing() -> None:
    """The peer is stalled: nothing comes back, so the EV is not blamed."""
    pair = Pair(planes=2, uplinks=2)
    finish_write(pair, MTU)
    pair.filter = lambda s, p: [0.09] if s == "b" else None
    pair.write(pair.bytes(MTU))
    pair.run(0.06)
    pair.filter = None
    pair.run_until_quiet()
    pair.run(1.0)
    assert pair.events_of(EvChanged) == []


def test_half_timer__an_answer_that_does_not_show_the_packet_proves_nothing() -> None:
    pair = Pair(psn=0, planes=2, uplinks=2, config={"timeout": 17})
    finish_write(pair, MTU)
    lose_first(pair, lambda s, p: isinstance(p, Write))
    pair.write(pair.bytes(MTU))
    timeout, requestor = pair.config.loss.base_timeout_s, pair.a.qp.requestor
    pair.run(0.7 * timeout)
    (sent,) = requestor.flight.outstanding_sent()
    assert requestor._proven(sent, False)
    for bitmap_psn in (sent.psn + 1, sent.psn - 64):
        requestor._bitmap_psn = bitmap_psn
        assert not requestor._proven(sent, False)
    requestor._bitmap_psn = sent.psn - 63
    assert requestor._proven(sent, False)
    assert not requestor._proven(sent, True), "it may have been trimmed, and the NACK lost"
