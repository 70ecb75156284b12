"""EV events: cut paths, masks, and queues that are full."""

from random import Random

import pytest

from mrc_testbed.hosts.verbs import (
    EvEntry,
    EvStateMask,
    VerbsError,
    connect_pair,
)
from tests.hosts.verbs.test_ev_profiles import explicit
from tests.hosts.verbs.verbs_devices import MTU, VerbsPair

EV_GOOD, EV_ASSUMED_BAD, EV_DENIED = EvStateMask.GOOD, EvStateMask.ASSUMED_BAD, EvStateMask.DENIED
GOOD_OR_BAD = EV_GOOD | EV_ASSUMED_BAD


def test_ev_events__a_cut_path_and_its_return():
    pair = VerbsPair(connect=False, planes=2, uplinks=4)
    evs = tuple((plane << 8 | uplink, plane + 1) for plane in (0, 1) for uplink in range(4))
    for side in (pair.a, pair.b):
        explicit(side.device.controller, evs=evs, ev_event_mask=GOOD_OR_BAD)
    connect_pair(pair.a.qp, pair.b.qp, ev_profile_id=7)
    cq = pair.a.device.controller.create_ev_event_cq()
    pair.wire.cut(0x101)
    for i in range(20):
        pair.a.qp.post_send(pair.write(16 * MTU, wr_id=i))
        assert pair.a.cq.wait(timeout_s=5)[0].ok
    [event] = cq.wait(timeout_s=5)
    assert (event.profile_id, event.ev, event.state, event.drop_count) == (7, EvEntry(0x101, 2), EV_ASSUMED_BAD, 0)
    pair.wire.cut(0x101, cut=False)
    [event] = cq.wait(timeout_s=10)
    assert (event.ev, event.state) == (EvEntry(0x101, 2), EV_GOOD)


def test_ev_events__the_mask_filters():
    pair = VerbsPair(connect=False, planes=2, uplinks=4)
    for side in (pair.a, pair.b):
        explicit(side.device.controller, evs=((0x000, 1), (0x001, 1), (0x100, 2)), ev_event_mask=EV_GOOD)
    connect_pair(pair.a.qp, pair.b.qp, ev_profile_id=7)
    cq = pair.a.device.controller.create_ev_event_cq()
    pair.wire.cut(0x001)
    for i in range(10):
        pair.a.qp.post_send(pair.write(16 * MTU, wr_id=i))
        assert pair.a.cq.wait(timeout_s=5)[0].ok
    assert len(cq) == 0
    pair.wire.cut(0x001, cut=False)
    assert [e.state for e in cq.wait(timeout_s=10)] == [EV_GOOD]


def test_ev_events__coalesce_and_never_overrun():
    """One entry per EV, the newest state; every event is told or counted, whatever the flood."""
    cq = VerbsPair().a.device.controller.create_ev_event_cq(cqe=8)
    rng, push_count = Random(3), 5000
    for i in range(push_count):
        cq.push(1, EvEntry(rng.randrange(40), 1), rng.choice((EV_GOOD, EV_ASSUMED_BAD)), i)
        assert len(cq) <= 8
    events = cq.poll(100)
    assert len({e.ev for e in events}) == len(events) == 8
    assert [e.at for e in events] == sorted(e.at for e in events)
    assert events[-1].at == push_count - 1
    assert sum(e.drop_count + 1 for e in events) == push_count


def test_ev_events__drop_count_is_what_was_dropped_since_the_event_before():
    cq = VerbsPair().a.device.controller.create_ev_event_cq(cqe=3)

    def push(*evs):
        for ev in evs:
            cq.push(1, EvEntry(ev, 1), EV_GOOD, 0.0)

    push(1, 2, 1)  # the first news of EV 1 was before that of EV 2, and is dropped
    assert [(e.ev.val, e.drop_count) for e in cq.poll()] == [(2, 1), (1, 0)]
    push(1, 2, 3, 4, 5)  # EVs 1 and 2 are crowded out
    assert [(e.ev.val, e.drop_count) for e in cq.poll(2)] == [(3, 2), (4, 0)]
    push(5, 5)
    assert [(e.ev.val, e.drop_count) for e in cq.poll()] == [(5, 2)]


def test_ev_events__announce_themselves_at_a_channel():
    pair = VerbsPair(connect=False, planes=2, uplinks=4)
    for side in (pair.a, pair.b):
        explicit(side.device.controller, evs=((0x000, 1), (0x001, 1), (0x100, 2)), ev_event_mask=GOOD_OR_BAD)
    connect_pair(pair.a.qp, pair.b.qp, ev_profile_id=7)
    channel = pair.a.device.create_comp_channel()
    cq = pair.a.device.controller.create_ev_event_cq(16, "mine", channel)
    cq.req_notify()
    pair.wire.cut(0x001)
    pair.a.qp.post_send(pair.write(16 * MTU, wr_id=i) for i in range(10))
    assert channel.get_event(timeout_s=5) is cq and cq.cq_context == "mine"
    assert cq.poll()[0].ev == EvEntry(0x001, 1)
    with pytest.raises(VerbsError, match="1 events of this CQ are not acknowledged"):
        cq.destroy()
    cq.ack_events()
    cq.destroy()
    channel.destroy()
    assert pair.a.device.hardware.profiles.ev.event_cqs == []
    foreign_channel = pair.b.device.create_comp_channel()
    with pytest.raises(VerbsError, match="channel is not one of this context"):
        pair.a.device.controller.create_ev_event_cq(16, None, foreign_channel)
