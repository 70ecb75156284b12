"""Waiting with the verbs: completion channels, timeouts, asynchronous events.

What the device says of itself.
"""

import select

import pytest

import mrc_testbed.hosts.verbs
from mrc_testbed.hosts.verbs import (
    IBV_EVENT_PORT_ACTIVE,
    IBV_EVENT_PORT_ERR,
    IBV_PORT_DOWN,
    IBV_SEND_SIGNALED,
    IBV_SEND_SOLICITED,
    QpInitAttr,
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
    cq.req_notify()
    pair.a.qp.post_send([pair.write_imm(1), pair.write_imm(2)])
    assert not readable()
    assert channel.get_event(timeout_s=1) is cq
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
    assert (attr.api_version, attr.max_mpr, attr.mpr_resolution, attr.phys_port_cnt) == (1, 255, 1, 4)
    assert (
        attr.cap
        == mrc_testbed.hosts.verbs.MRC_DEVICE_CAP_TRIM_NACK | mrc_testbed.hosts.verbs.MRC_DEVICE_CAP_DYNAMIC_MPR
    )
    assert QpType.RC in attr.qp_types
