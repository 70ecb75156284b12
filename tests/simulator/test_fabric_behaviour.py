"""Behaviour of whole engines on the virtual fabric, beyond that of two engines on a wire."""

import pytest

from mrc_testbed.faults import LossFault, OneWayFault
from mrc_testbed.hosts.engine.events import EvChanged, PacketLost
from mrc_testbed.simulator import Flow, VirtualFabric, rates_bps, run_all, scaled_profiles
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(4, 2, 4, 1)


def make(seed=1, plan=PLAN, **options):
    scale = scaled_profiles(plan.planes, **options)
    return scale, VirtualFabric(plan, seed=seed, links=scale.links, queues=scale.queues, config=scale.config)


def active_by_plane(flow):
    planes = [0] * flow.fabric.plan.planes
    for ev in flow.qp.ev_states():
        planes[ev["plane"]] += ev["active"]
    return planes


def test_random_loss_everywhere__no_plane_falls_out():
    scale, fabric = make()
    flow = Flow(fabric, "h0", "h1", message_bytes=1 << 20)
    for plane in range(4):
        fabric.apply(LossFault.on(f"p{plane}-t0-1 h1", rate=0.01, direction="one_way"))
        fabric.apply(LossFault.on(f"p{plane}-t0-0 h0", rate=0.01, direction="one_way"))
    rate = rates_bps(fabric, [flow], 1.0, 1.0)[0]
    assert all(active_by_plane(flow)) and min(flow.qp.counters.plane_packets) > 1500
    assert rate > 0.9 * 40e6 * scale.payload_share


@pytest.mark.parametrize("ends", [("h0", "p2-t0-0"), ("p2-t0-1", "h1")])
def test_dead_plane__falls_out_though_its_ports_are_up(ends):
    _, fabric = make()
    flow = Flow(fabric, "h0", "h1", message_bytes=1 << 18)
    fabric.schedule(0.3, OneWayFault((ends,)))
    fabric.run_until(1.5)
    assert active_by_plane(flow)[2] == 0
    flow.stop()
    assert run_all(fabric, [flow]) and flow.intact


def test_very_lossy_plane__is_not_spared():
    _, fabric = make()
    flow = Flow(fabric, "h0", "h1", message_bytes=1 << 18)
    fabric.apply(LossFault.on("p2-t0-1 h1", rate=0.4, direction="one_way"))
    fabric.run_until(1.5)
    assert active_by_plane(flow)[2] == 0
    bad_evs = [e for e in fabric.host("h0").events if isinstance(e, EvChanged) and e.new_state.name == "ASSUMED_BAD"]
    assert {e.plane for e in bad_evs} == {2}


def test_dead_path__is_found_by_a_sender_with_little_to_send():
    """Four packets every 2 ms never put a window of younger ones behind a lost one; 1.5 round trips do."""
    scale, fabric = make(seed=3)
    flow = Flow(fabric, "h0", "h1", message_bytes=4096, messages=0)

    def post():
        flow.qp.post_write(bytes(4096), flow.region.va, flow.region.rkey, now=fabric.now)
        fabric.schedule(fabric.now + 0.002, post)

    post()
    fabric.schedule(0.3, OneWayFault.on("p1-t0-0 p1-t1-2"))
    fabric.run_until(0.5)
    events = fabric.host("h0").events
    lost = [e for e in events if isinstance(e, PacketLost)]
    changes = [e for e in events if isinstance(e, EvChanged)]
    assert {e.ev for e in lost} == {e.ev for e in changes} == {0x102}
    assert changes[0].at - lost[0].sent_at < 3 * scale.rtt_s and flow.qp.counters.not_lost == 0
