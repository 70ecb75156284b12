"""Waiting with the verbs: completion channels, timeouts, asynchronous events.

What the device says of itself.
"""

import errno
import select

import pytest

import mrc_testbed.hosts.verbs
from mrc_testbed.hosts.verbs import (
    IBV_EVENT_PORT_ACTIVE,
    IBV_EVENT_PORT_ERR,
    IBV_EVENT_QP_FATAL,
    IBV_PORT_DOWN,
    IBV_SEND_SIGNALED,
    IBV_SEND_SOLICITED,
    MRC_PROTOCOL_VERSION_1,
    QpAttr,
    QpInitAttr,
    QpState,
    QpType,
    RecvWR,
    VerbsError,
    connect_pair,
)
from tests.hosts.verbs.verbs_devices import MTU, VerbsPair


def test_channel__announces_an_armed_cq_once_and_by_descriptor():
    pair = VerbsPair(connect=False)
    channel = pair.b.device.create_comp_channel()
    cq = pair.b.device.create_cq(16, cq_context="mine", channel=channel)
    qp = pair.b.device.create_qp(QpInitAttr(cq))
    connect_pair(pair.a.qp, qp)
    qp.post_recv([RecvWR(1), RecvWR(2), RecvWR(3)])

    readable = lambda: bool(select.select([channel], [], [], 0)[0])  # noqa: E731
    # Armed once, for any completion: two of them make one event.
    cq.req_notify()
    pair.a.qp.post_send([pair.write_imm(1), pair.write_imm(2)])
    assert not readable()
    assert channel.get_event(timeout_s=1) is cq
    cq.ack_events()
    assert not readable() and channel.get_event(timeout_s=0.1) is None
    cq.poll()
    cq.req_notify(solicited_only=True)
    flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED
    pair.receives(0)
    pair.a.qp.post_send(pair.write_imm(3, send_flags=flags))
    pair.a.device.run(0.5)
    assert readable()
    with pytest.raises(VerbsError, match="has 1 CQs"):
        channel.destroy()
    qp.destroy()
    cq.destroy()
    channel.destroy()


def test_channel__solicited_only_sleeps_through_the_rest():
    pair = VerbsPair(connect=False)
    channel = pair.b.device.create_comp_channel()
    cq = pair.b.device.create_cq(16, channel=channel)
    qp = pair.b.device.create_qp(QpInitAttr(cq))
    connect_pair(pair.a.qp, qp)
    qp.post_recv([RecvWR(1)])
    cq.req_notify(solicited_only=True)
    pair.a.qp.post_send(pair.write_imm(1))
    assert channel.get_event(timeout_s=1) is None and len(cq) == 1


def test_wait__ends_with_virtual_time_or_at_its_timeout():
    pair = VerbsPair()
    start_s = pair.wire.now
    assert pair.a.cq.wait(timeout_s=0.25) == []
    assert pair.wire.now == start_s + 0.25
    pair.a.qp.post_send(pair.write())
    assert [wc.ok for wc in pair.a.cq.wait(5, timeout_s=1)] == [True]


def test_async_events__ports_go_down_and_up():
    pair = VerbsPair()
    device = pair.a.device
    device.controller.modify_port(2, False)
    event = device.get_async_event()
    assert (event.event_type, event.element) == (IBV_EVENT_PORT_ERR, 2)
    assert device.query_port(2).state is IBV_PORT_DOWN
    pair.a.qp.post_send(pair.write(20 * MTU))
    assert pair.a.cq.wait(timeout_s=1)[0].ok
    assert pair.a.qp.counters.plane_packets[1] == 0
    device.controller.modify_port(2, True)
    assert device.get_async_event().event_type is IBV_EVENT_PORT_ACTIVE
    with pytest.raises(VerbsError, match="no port 3: ports are 1 to 2"):
        device.query_port(3)


def test_device__attributes_say_what_there_is():
    pair = VerbsPair(planes=4)
    attr = pair.a.device.query_device()
    assert (attr.supported, attr.mrc_protocol_version) == (True, MRC_PROTOCOL_VERSION_1)
    assert (attr.max_qp_hint, attr.max_mpr, attr.mpr_resolution, attr.phys_port_cnt) == (1 << 16, 255, 1, 4)
    assert (
        attr.cap
        == mrc_testbed.hosts.verbs.MRC_DEVICE_CAP_TRIM_NACK | mrc_testbed.hosts.verbs.MRC_DEVICE_CAP_DYNAMIC_MPR
    )
    assert QpType.RC in attr.qp_types


def test_ack__a_cq_is_destroyed_after_all_its_events_are_acknowledged():
    pair = VerbsPair(connect=False)
    channel = pair.b.device.create_comp_channel()
    cq = pair.b.device.create_cq(16, channel=channel)
    qp = pair.b.device.create_qp(QpInitAttr(cq))
    connect_pair(pair.a.qp, qp)
    for imm in (1, 2):
        qp.post_recv(RecvWR(imm))
        cq.req_notify()
        pair.a.qp.post_send(pair.write_imm(imm))
        assert channel.get_event(timeout_s=1) is cq
    qp.destroy()
    for acknowledged_count in (0, 1):
        cq.ack_events(acknowledged_count)
        with pytest.raises(VerbsError, match="events of this CQ are not acknowledged") as error:
            cq.destroy()
        assert error.value.errno == errno.EBUSY
    with pytest.raises(VerbsError, match="ack_events: count = 2: must be 0 to 1"):
        cq.ack_events(2)
    cq.ack_events(1)
    cq.destroy()
    channel.destroy()


def test_ack__an_event_of_a_destroyed_cq_never_comes():
    pair = VerbsPair(connect=False)
    channel = pair.b.device.create_comp_channel()
    cq = pair.b.device.create_cq(1, channel=channel)
    qp = pair.b.device.create_qp(QpInitAttr(cq))
    connect_pair(pair.a.qp, qp)
    qp.post_recv([RecvWR(1), RecvWR(2)])
    cq.req_notify()
    pair.a.qp.post_send([pair.write_imm(1), pair.write_imm(2)])  # the second overruns the CQ
    pair.a.device.run(0.5)
    assert select.select([channel], [], [], 0)[0]
    qp.destroy()
    cq.destroy()
    assert not select.select([channel], [], [], 0)[0]
    assert channel.get_event(timeout_s=0) is None
    assert pair.b.device.get_async_event() is None


def test_ack__a_qp_is_destroyed_after_its_asynchronous_event_is_acknowledged():
    pair = VerbsPair()
    pair.a.qp.post_send(pair.write(rkey=0))
    pair.a.cq.wait(timeout_s=1)
    event = pair.a.device.get_async_event()
    assert event.element is pair.a.qp
    with pytest.raises(VerbsError, match="1 events are not acknowledged") as error:
        pair.a.qp.destroy()
    assert error.value.errno == errno.EBUSY and not pair.a.qp.destroyed
    pair.a.device.ack_async_event(event)
    with pytest.raises(VerbsError, match="was acknowledged before"):
        pair.a.device.ack_async_event(event)
    pair.a.qp.destroy()


def test_ack__a_context_ends_whatever_is_not_acknowledged():
    pair = VerbsPair()
    pair.a.qp.post_send(pair.write(rkey=0))
    pair.a.cq.wait(timeout_s=1)
    assert pair.a.device.get_async_event().element is pair.a.qp
    pair.a.device.close()
    assert pair.a.qp.destroyed


def test_async_events__that_nobody_takes_do_not_pile_up():
    pair = VerbsPair()
    controller = pair.a.device.controller
    for is_enabled in (False, True) * 50 + (False,):
        controller.modify_port(2, is_enabled)
    for _ in range(50):
        pair.a.qp.modify(QpAttr(qp_state=QpState.RESET))
        pair.b.qp.modify(QpAttr(qp_state=QpState.RESET))
        connect_pair(pair.a.qp, pair.b.qp)
        pair.a.qp.post_send(pair.write(rkey=0))
        assert not pair.a.cq.wait(timeout_s=1)[0].ok
    events = [(event.event_type, event.element) for event in iter(pair.a.device.get_async_event, None)]
    assert events == [(IBV_EVENT_PORT_ACTIVE, 2), (IBV_EVENT_PORT_ERR, 2), (IBV_EVENT_QP_FATAL, pair.a.qp)]
