"""The verbs over a whole virtual fabric: same calls, links that fail, congestion."""

import random

from mrc_testbed.faults import CutFault
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.verbs import (
    IBV_EVENT_PORT_ERR,
    EpRequest,
    QpInitAttr,
    QpType,
    RecvWR,
    SendWR,
    connect_pair,
)
from mrc_testbed.simulator import VirtualFabric
from mrc_testbed.simulator.verbs import open_device
from mrc_testbed.topologies.plan import Plan


def two(qp_type=QpType.MRC, size=1 << 18, **options):
    fabric = VirtualFabric(Plan(planes=2, racks=2, spines=2, hosts_per_rack=1), seed=3, config=Config(), **options)
    ends = []
    for name in ("h0", "h1"):
        device = open_device(fabric, name)
        cq = device.create_cq(64)
        ends.append((device, cq, device.create_qp(QpInitAttr(cq, qp_type=qp_type)), device.reg_mr(bytearray(size))))
    connect_pair(ends[0][2], ends[1][2])
    return fabric, *ends


def test_verbs__a_write_around_a_cut_link():
    fabric, (_, cq, qp, source), (_, cq_b, qp_b, target) = two()
    source.view[:] = random.Random(1).randbytes(source.length)
    fabric.schedule(0.002, CutFault.on("p0-t0-0 p0-t1-1"))
    qp_b.post_recv(RecvWR(5))
    step = source.length // 8
    for i in range(8):
        offset = i * step
        qp.post_send(SendWR(i, sg_list=[source.sge(offset, step)], remote_addr=target.addr + offset, rkey=target.rkey))
    assert [(wc.wr_id, wc.ok) for wc in cq.wait(8, timeout_s=10)] == [(i, True) for i in range(8)]
    assert target.view == source.view
    qp.post_send(SendWR(9, opcode=1, imm_data=77))
    assert [wc.imm_data for wc in cq_b.wait(timeout_s=1)] == [77]


def test_verbs__the_baseline_too():
    _, (_, cq, qp, source), (*_, target) = two(QpType.RC)
    source.view[:] = random.Random(2).randbytes(source.length)
    qp.post_send(SendWR(1, sg_list=[source.sge()], remote_addr=target.addr, rkey=target.rkey))
    assert [wc.ok for wc in cq.wait(timeout_s=30)] == [True]
    assert target.view == source.view


def test_verbs__probes_and_ports():
    fabric, (device, *_), _ = two()
    fabric.set_link("p1-t0-0", "p1-t1-0", enabled=False)
    requests = [EpRequest(ev, "h1", ev, (ev >> 8) + 1) for ev in (0x000, 0x001, 0x100, 0x101)]
    answers = device.controller.ep_op(requests)
    assert {answer.req_id: answer.ok for answer in answers} == {0x000: True, 0x001: True, 0x100: False, 0x101: True}
    device.controller.modify_port(1, False)
    event = device.get_async_event(timeout_s=1)
    assert (event.event_type, event.element) == (IBV_EVENT_PORT_ERR, 1)


def test_verbs__waiting_ends_at_its_time():
    fabric, (_, cq, *_), _ = two()
    start_time = fabric.now
    assert cq.wait(timeout_s=0.5) == []
    assert fabric.now == start_time + 0.5
