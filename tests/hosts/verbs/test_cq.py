"""Completion queues: which completions go where, what an entry says, overruns."""

import pytest

from mrc_testbed.hosts.verbs import (
    IBV_EVENT_CQ_ERR,
    QpInitAttr,
    RecvWR,
    VerbsError,
    connect_pair,
)
from tests.hosts.verbs.verbs_devices import VerbsPair


def test_cq__overrun_is_told_once_and_at_the_poll_after_the_last_entry():
    pair = VerbsPair(cqe=2)
    pair.a.qp.post_send(pair.write(wr_id=i) for i in range(4))
    pair.a.device.run(1.0)
    assert pair.a.device.get_async_event().event_type is IBV_EVENT_CQ_ERR
    assert [wc.wr_id for wc in pair.a.cq.poll()] == [0, 1]
    with pytest.raises(VerbsError, match="more completions than the 2 that the CQ holds"):
        pair.a.cq.poll()


def test_cq__receives_complete_into_the_receive_cq_which_is_empty_when_the_qp_is_made():
    pair = VerbsPair(connect=False)
    send_cq, recv_cq = pair.b.device.create_cq(16), pair.b.device.create_cq(16)
    qp = pair.b.device.create_qp(QpInitAttr(send_cq, recv_cq))
    assert (qp.send_cq, qp.recv_cq) == (send_cq, recv_cq)
    connect_pair(pair.a.qp, qp)
    qp.post_recv(RecvWR(7))
    pair.a.qp.post_send(pair.write_imm(0xBEEF))
    assert [(wc.wr_id, wc.imm_data) for wc in recv_cq.wait(timeout_s=1)] == [(7, 0xBEEF)]
    assert len(send_cq) == 0
    with pytest.raises(VerbsError, match="QPs still complete into this CQ"):
        recv_cq.destroy()
    foreign_cq = pair.a.cq
    with pytest.raises(VerbsError, match="the CQ is not one of this context"):
        pair.b.device.create_qp(QpInitAttr(send_cq, foreign_cq))


def test_cq__an_entry_names_the_sender_and_the_cause():
    pair = VerbsPair()
    pair.receives(1)
    pair.a.qp.post_send(pair.write_imm(1))
    [received], [sent] = pair.b.cq.wait(timeout_s=1), pair.a.cq.wait(timeout_s=1)
    assert (received.src_qp, received.vendor_err) == (pair.a.qp.qp_num, 0)
    assert (sent.src_qp, sent.vendor_err) == (0, 0)
    pair.a.qp.post_recv(RecvWR(9))
    pair.a.qp.post_send([pair.write(rkey=0, wr_id=i) for i in (1, 2)])
    failures = {wc.wr_id: (wc.status.name, wc.vendor_err) for wc in pair.a.cq.wait(3, timeout_s=1)}
    assert failures == {
        1: ("IBV_WC_REM_ACCESS_ERR", 0x62),
        2: ("IBV_WC_WR_FLUSH_ERR", 0x101),
        9: ("IBV_WC_WR_FLUSH_ERR", 0x101),
    }
