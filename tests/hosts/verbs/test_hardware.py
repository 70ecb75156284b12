"""Contexts of one device: what is each one's own, what is common, and what ends with which."""

import errno
import os

import pytest

from mrc_testbed.hosts.verbs import (
    IBV_EVENT_CQ_ERR,
    IBV_EVENT_PORT_ERR,
    IBV_EVENT_QP_FATAL,
    AccessFlags,
    QpInitAttr,
    SendWR,
    VerbsError,
)
from tests.hosts.verbs.verbs_devices import Program, VerbsPair


def test_contexts__each_has_qps_cqs_and_regions_of_its_own():
    pair = VerbsPair(connect=False)
    first, second = Program(pair), Program(pair)
    for program, wr_id in ((first, 11), (second, 22)):
        program.qp.post_send(program.write(pair, wr_id=wr_id))
    assert [wc.wr_id for wc in second.cq.wait(timeout_s=1)] == [22]
    assert [wc.wr_id for wc in first.cq.wait(timeout_s=1)] == [11]
    assert first.context.qps == [first.qp] and pair.a.device.qps == [pair.a.qp]
    with pytest.raises(VerbsError, match=f"no QP {second.qp.qp_num:#x}"):
        first.context.qp(second.qp.qp_num)
    with pytest.raises(VerbsError, match="the CQ is not one of this context"):
        first.context.create_qp(QpInitAttr(second.cq))
    with pytest.raises(VerbsError, match="protection domain is not one of this context"):
        first.context.create_qp(QpInitAttr(first.cq, pd=second.context.default_pd))
    with pytest.raises(VerbsError, match="protection domain is not one of this context"):
        first.context.reg_mr(bytearray(4), pd=second.context.default_pd)
    with pytest.raises(VerbsError, match="no region of this QP's protection domain"):
        first.qp.post_send(first.write(pair, sg_list=[second.mr.sge()]))


def test_contexts__a_peer_cannot_write_into_a_neighbours_region_through_a_qp():
    pair = VerbsPair(connect=False)
    first, second = Program(pair), Program(pair)
    first.peer_qp.post_send(SendWR(sg_list=[pair.b.mr.sge(0, 10)], remote_addr=second.mr.addr, rkey=second.mr.rkey))
    assert pair.b.cq.wait(timeout_s=1)[0].status.name == "IBV_WC_REM_ACCESS_ERR"
    assert bytes(second.mr.view) == bytes(1000)


def test_contexts__events_of_a_qp_and_a_cq_go_to_its_own_those_of_ports_to_all():
    pair = VerbsPair(connect=False)
    first, second = Program(pair), Program(pair)
    first.qp.post_send(first.write(pair, rkey=0))
    first.cq.wait(timeout_s=1)
    second.qp.post_send(second.write(pair, wr_id=i) for i in range(5))
    second.context.run(0.5)
    pair.a.device.controller.modify_port(2, False)

    def events(context):
        return [(event.event_type, event.element) for event in iter(context.get_async_event, None)]

    assert events(first.context) == [(IBV_EVENT_QP_FATAL, first.qp), (IBV_EVENT_PORT_ERR, 2)]
    assert events(second.context) == [(IBV_EVENT_CQ_ERR, second.cq), (IBV_EVENT_PORT_ERR, 2)]
    assert events(pair.a.device) == [(IBV_EVENT_PORT_ERR, 2)]


def test_close__takes_what_the_context_made_and_leaves_the_rest():
    pair = VerbsPair()
    first, second = Program(pair), Program(pair)
    memory = first.mr.view.obj
    descriptor = first.channel.fileno()
    first.context.close()
    first.context.close()
    memory.extend(b"free again")  # a registered bytearray cannot grow
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    for call in (
        lambda: first.context.create_cq(1),
        lambda: first.context.create_comp_channel(),
        lambda: first.context.reg_mr(bytearray(4), AccessFlags(0)),
        lambda: first.context.controller,
    ):
        with pytest.raises(VerbsError, match="this context of the device was closed") as error:
            call()
        assert error.value.errno == errno.EBADF
    assert sorted(pair.a.device.hardware.qps) == sorted([pair.a.qp.qp_num, second.qp.qp_num])
    for side, request in ((second, second.write(pair, wr_id=5)), (pair.a, pair.write(wr_id=6))):
        side.qp.post_send(request)
        assert side.cq.wait(timeout_s=1)[0].ok


def test_close__of_the_first_context_closes_all_and_the_driver():
    pair = VerbsPair()
    program = Program(pair)
    pair.a.device.close()
    assert program.qp.destroyed and not pair.a.device.hardware.qps
    assert "a" not in pair.wire.drivers


def test_controller__a_device_has_one():
    pair = VerbsPair(connect=False)
    first, second = pair.a.device.open_context(), pair.a.device.open_context()
    controller = first.controller
    assert first.controller is controller
    with pytest.raises(VerbsError, match="the device has a controller in another context") as error:
        second.controller.query_device()
    assert error.value.errno == errno.EBUSY
    controller.close()
    controller.close()
    assert second.controller.query_port(1)
    with pytest.raises(VerbsError, match="the device has a controller in another context"):
        first.controller.query_device()
    second.close()
    assert first.controller.query_port(1)
    plain = pair.a.device.open_context(privileged=False)
    with pytest.raises(VerbsError, match="needs a privileged context") as error:
        plain.controller.query_device()
    assert error.value.errno == errno.EPERM


def test_controller__its_event_queues_end_with_it():
    pair = VerbsPair(connect=False)
    context = pair.a.device.open_context()
    context.controller.create_ev_event_cq()
    assert len(pair.a.device.hardware.profiles.ev.event_cqs) == 1
    context.close()
    assert pair.a.device.hardware.profiles.ev.event_cqs == []
