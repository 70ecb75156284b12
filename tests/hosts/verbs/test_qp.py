"""QPs of the verbs: states, attributes, posting, completions, errors."""

import doctest
import errno
import importlib
import itertools
import pkgutil
import random
from dataclasses import replace

import pytest

import mrc_testbed.hosts.verbs
from mrc_testbed.hosts.verbs import (
    IBV_EVENT_QP_FATAL,
    IBV_SEND_FENCE,
    IBV_SEND_INLINE,
    IBV_SEND_SIGNALED,
    IBV_SEND_SOLICITED,
    IBV_WC_RECV_RDMA_WITH_IMM,
    TRANSITIONS,
    AccessFlags,
    AddressVector,
    MrcQpAttr,
    QpAttr,
    QpCap,
    QpInitAttr,
    QpState,
    QpType,
    RecvWR,
    SendFlags,
    SendWR,
    VerbsError,
    bring_up,
    connect_pair,
    local_info,
)
from tests.hosts.verbs.verbs_devices import MTU, VerbsPair

RESET, INIT, RTR, RTS, ERROR = QpState.RESET, QpState.INIT, QpState.RTR, QpState.RTS, QpState.ERROR


def modules():
    names = [m.name for m in pkgutil.iter_modules(mrc_testbed.hosts.verbs.__path__)]
    return ["mrc_testbed.hosts.verbs", *(f"mrc_testbed.hosts.verbs.{name}" for name in names)]


@pytest.mark.parametrize("name", modules())
def test_docstrings__examples_do_what_they_say(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


# ---- states --------------------------------------------------------------------------------------


def test_states__all_pairs_are_in_the_table_or_refused_with_what_there_is():
    """Every pair of states: moved to with exactly the attributes of the table, or refused by name."""
    for old_state, new_state in itertools.product(QpState, QpState):
        pair = VerbsPair(connect=False)
        bring_to(pair, old_state)
        if (old_state, new_state) in TRANSITIONS:
            move(pair, new_state)
            assert pair.a.qp.state is new_state
        else:
            next_states = [s for s in (INIT, RTR, RTS, ERROR, RESET) if (old_state, s) in TRANSITIONS]
            with pytest.raises(VerbsError) as error:
                pair.a.qp.modify(QpAttr(qp_state=new_state))
            names = ", ".join(s.name for s in next_states)
            assert (
                str(error.value)
                == f"modify_qp {old_state.name}->{new_state.name}: not a transition (from {old_state.name}: {names})"
            )
            assert pair.a.qp.state is old_state


def attributes(pair, old_state, new_state):
    """Return the attributes that a transition of a's QP needs."""
    info_b, info_a = local_info(pair.b.qp), local_info(pair.a.qp)
    if (old_state, new_state) == (RESET, INIT):
        return QpAttr(
            qp_state=new_state, pkey_index=0, qp_access_flags=AccessFlags.IBV_ACCESS_REMOTE_WRITE
        ), MrcQpAttr()
    if (old_state, new_state) == (INIT, RTR):
        address = AddressVector(info_b.gid)
        return (
            QpAttr(qp_state=new_state, ah_attr=address, path_mtu=MTU, dest_qp_num=info_b.qpn, rq_psn=info_b.psn),
            MrcQpAttr(max_wimm_dest=8, mpr_dest=8),
        )
    if (old_state, new_state) == (RTR, RTS):
        return (
            QpAttr(qp_state=new_state, sq_psn=info_a.psn),
            MrcQpAttr(max_wimm=8, mpr=8, timeout=15, linear_cnt=3, exp_cnt=5),
        )
    return QpAttr(qp_state=new_state), MrcQpAttr()


def move(pair, new_state):
    attr, mrc = attributes(pair, pair.a.qp.state, new_state)
    pair.a.qp.modify(attr, None, mrc)


def bring_to(pair, state):
    path = {RESET: [], INIT: [INIT], RTR: [INIT, RTR], RTS: [INIT, RTR, RTS], ERROR: [ERROR]}
    for step in path[state]:
        move(pair, step)


def test_rtr__receives_before_it_can_send():
    pair = VerbsPair(connect=False)
    info_a, info_b = local_info(pair.a.qp), local_info(pair.b.qp, pair.b.mr)
    bring_up(pair.b.qp, info_b, info_a, final_state=RTR)
    bring_up(pair.a.qp, info_a, info_b)
    pair.a.mr.view[:1000] = random.Random(1).randbytes(1000)
    pair.a.qp.post_send(pair.write(1000))
    assert [wc.ok for wc in pair.a.cq.wait(timeout_s=1)] == [True]
    assert pair.b.mr.view[:1000] == pair.a.mr.view[:1000]
    with pytest.raises(VerbsError, match=rf"post_send: QP {pair.b.qp.qp_num:#x} is in RTR, needs RTS"):
        pair.b.qp.post_send(SendWR(1))
    pair.b.qp.modify(
        QpAttr(qp_state=RTS, sq_psn=info_b.psn),
        None,
        MrcQpAttr(max_wimm=8, mpr=8, timeout=15, linear_cnt=3, exp_cnt=5),
    )
    pair.b.qp.post_send(SendWR(2, sg_list=[pair.b.mr.sge(0, 10)], remote_addr=pair.a.mr.addr, rkey=pair.a.mr.rkey))
    assert [wc.wr_id for wc in pair.b.cq.wait(timeout_s=1)] == [2]


def test_sq_psn__is_the_callers():
    """The first PSN on the wire is the sq_psn of RTR -> RTS; 24 bits wrap."""
    pair = VerbsPair(connect=False, framed=True)
    packets = []
    pair.wire.filter = lambda source, _, __, packet: packets.append((source, getattr(packet, "psn", None)))

    info_a, info_b = replace(local_info(pair.a.qp), psn=(1 << 24) - 2), local_info(pair.b.qp)
    bring_up(pair.b.qp, info_b, info_a)
    bring_up(pair.a.qp, info_a, info_b)
    pair.a.qp.post_send(pair.write(5 * MTU))
    assert pair.a.cq.wait(timeout_s=1)[0].ok
    assert [psn for source, psn in packets if source == "a"][:4] == [0xFFFFFE, 0xFFFFFF, 0, 1]


def test_reset__begins_anew_under_the_same_number():
    pair = VerbsPair()
    pair.a.qp.post_send(pair.write(1000))
    number = pair.a.qp.qp_num
    for side in (pair.a, pair.b):
        side.qp.modify(QpAttr(qp_state=RESET))
    assert pair.a.qp.qp_num == number and pair.a.qp.outstanding == 0
    connect_pair(pair.a.qp, pair.b.qp)
    pair.a.qp.post_send(pair.write(1000, wr_id=9))
    assert [(wc.wr_id, wc.ok) for wc in pair.a.cq.wait(timeout_s=1)] == [(9, True)]


# ---- posting -------------------------------------------------------------------------------------


def test_post_send__bytes_arrive_and_complete_in_order():
    pair = VerbsPair(framed=True, planes=4, uplinks=2, size=1 << 16)
    pair.a.mr.view[:] = random.Random(2).randbytes(1 << 16)
    pair.a.qp.post_send(pair.write(1 << 12, wr_id=i, offset=i << 12) for i in range(16))
    completions = pair.a.cq.wait(16, timeout_s=5)
    assert [(wc.wr_id, wc.byte_len, wc.qp_num) for wc in completions] == [
        (i, 1 << 12, pair.a.qp.qp_num) for i in range(16)
    ]
    assert pair.b.mr.view == pair.a.mr.view


def test_post_send__unsignaled_gives_no_completion_unless_it_fails():
    pair = VerbsPair()
    pair.a.qp.post_send([pair.write(wr_id=1, send_flags=SendFlags(0)), pair.write(wr_id=2)])
    assert [wc.wr_id for wc in pair.a.cq.wait(2, timeout_s=1)] == [2]
    pair.a.qp.post_send(pair.write(wr_id=3, rkey=pair.b.mr.rkey ^ 1, send_flags=SendFlags(0)))
    [wc] = pair.a.cq.wait(timeout_s=1)
    assert (wc.wr_id, wc.status.name) == (3, "IBV_WC_REM_ACCESS_ERR") and wc.detail


def test_post_send__sq_sig_all_signals_everything():
    pair = VerbsPair(sq_sig_all=True)
    pair.a.qp.post_send([pair.write(wr_id=i, send_flags=SendFlags(0)) for i in (1, 2)])
    assert [wc.wr_id for wc in pair.a.cq.wait(2, timeout_s=1)] == [1, 2]


def test_post_send__inline_is_copied_when_posted():
    pair = VerbsPair()
    data = bytearray(b"0123456789")
    flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED
    pair.a.qp.post_send(pair.write(0, send_flags=flags, inline=data))
    data[:] = b"xxxxxxxxxx"
    assert pair.a.cq.wait(timeout_s=1)[0].byte_len == 10
    assert bytes(pair.b.mr.view[:10]) == b"0123456789"


def test_post_send__several_elements_are_gathered():
    pair = VerbsPair(cap=QpCap(max_send_sge=3))
    pair.a.mr.view[:6] = b"abcdef"
    sges = [pair.a.mr.sge(4, 2), pair.a.mr.sge(0, 2), pair.a.mr.sge(2, 2)]
    pair.a.qp.post_send(pair.write(0, sg_list=sges))
    assert pair.a.cq.wait(timeout_s=1)[0].ok
    assert bytes(pair.b.mr.view[:6]) == b"efabcd"


def test_post_send__zero_bytes_complete():
    pair = VerbsPair()
    pair.a.qp.post_send(pair.write(0))
    assert pair.a.cq.wait(timeout_s=1)[0].byte_len == 0


@pytest.mark.parametrize(
    "change, words",
    [
        ({"opcode": 2}, "MRC has IBV_WR_RDMA_WRITE and IBV_WR_RDMA_WRITE_WITH_IMM"),
        ({"imm_data": 5}, "imm_data goes with IBV_WR_RDMA_WRITE_WITH_IMM, and only with it"),
        ({"opcode": 1}, "imm_data goes with IBV_WR_RDMA_WRITE_WITH_IMM, and only with it"),
        ({"opcode": 1, "imm_data": 1 << 32}, "imm_data = 4294967296: must be 0 to 4294967295"),
        ({"send_flags": IBV_SEND_FENCE}, "MRC does not have"),
        ({"send_flags": IBV_SEND_SOLICITED}, "only with IBV_WR_RDMA_WRITE_WITH_IMM"),
        ({"inline": b"x"}, "needs IBV_SEND_INLINE"),
        ({"send_flags": IBV_SEND_INLINE, "inline": bytes(5000)}, "max_inline_data = 4096"),
        ({"remote_addr": 1 << 64}, "must be 0 to 18446744073709551615"),
        ({"sg_list": [mrc_testbed.hosts.verbs.Sge(0, 4, 12345)]}, "lkey 0x00003039 is no region"),
    ],
)
def test_post_send__bad_requests_are_refused_and_nothing_is_posted(change, words):
    pair = VerbsPair()
    with pytest.raises(VerbsError, match=words) as error:
        pair.a.qp.post_send([pair.write(wr_id=1), pair.write(wr_id=2, **change), pair.write(wr_id=3)])
    assert error.value.done_count == 1
    assert [wc.wr_id for wc in pair.a.cq.wait(3, timeout_s=1)] == [1]


def test_post_send__an_element_outside_its_region():
    pair = VerbsPair()
    sge = mrc_testbed.hosts.verbs.Sge(pair.a.mr.addr + 10, pair.a.mr.length, pair.a.mr.lkey)
    with pytest.raises(VerbsError, match="leave region"):
        pair.a.qp.post_send(pair.write(0, sg_list=[sge]))


def test_post_send__a_region_of_another_domain():
    pair = VerbsPair()
    foreign_region = pair.a.device.alloc_pd().reg_mr(bytearray(10))
    with pytest.raises(VerbsError, match="no region of this QP's protection domain"):
        pair.a.qp.post_send(pair.write(0, sg_list=[foreign_region.sge()]))


def test_post_send__a_full_queue_says_so_and_empties():
    pair = VerbsPair(cap=QpCap(max_send_wr=4))
    with pytest.raises(VerbsError, match="max_send_wr = 4 requests") as error:
        pair.a.qp.post_send(pair.write(wr_id=i) for i in range(6))
    assert (error.value.errno, error.value.done_count) == (errno.ENOMEM, 4)
    pair.a.cq.wait(4, timeout_s=1)
    pair.a.qp.post_send(pair.write(wr_id=9))


# ---- WriteIMM ------------------------------------------------------------------------------------


def test_write_imm__uses_up_receives_in_order():
    pair = VerbsPair()
    pair.receives(3)
    pair.a.qp.post_send([pair.write_imm(0xDEAD, wr_id=1), pair.write_imm(0xBEEF, length=0, wr_id=2)])
    got = pair.b.cq.wait(2, timeout_s=1)
    assert [(wc.wr_id, wc.opcode, wc.imm_data, wc.byte_len) for wc in got] == [
        (100, IBV_WC_RECV_RDMA_WITH_IMM, 0xDEAD, 100),
        (101, IBV_WC_RECV_RDMA_WITH_IMM, 0xBEEF, 0),
    ]
    assert [wc.imm_data for wc in pair.a.cq.wait(2, timeout_s=1)] == [None, None]


def test_write_imm__without_a_receive_both_ends_learn():
    pair = VerbsPair()
    pair.a.qp.post_send(pair.write_imm(1))
    [wc] = pair.a.cq.wait(timeout_s=1)
    assert wc.status.name == "IBV_WC_REM_OP_ERR"
    assert pair.a.qp.state is ERROR and pair.b.qp.state is ERROR
    event = pair.b.device.get_async_event()
    assert event.event_type is IBV_EVENT_QP_FATAL and event.element is pair.b.qp and "receive" in event.detail


def test_write_imm__more_than_max_wimm_are_refused_before_they_hurt():
    pair = VerbsPair(config={"max_wimm": 2})
    pair.receives(5)
    with pytest.raises(VerbsError, match="max_wimm = 2 WriteIMM are in flight: wait for a completion") as error:
        pair.a.qp.post_send(pair.write_imm(i) for i in range(5))
    assert error.value.done_count == 2
    pair.a.cq.wait(2, timeout_s=1)
    pair.a.qp.post_send(pair.write_imm(7))
    assert [wc.imm_data for wc in pair.b.cq.wait(3, timeout_s=1)] == [0, 1, 7]


def test_post_recv__states_and_sizes():
    pair = VerbsPair(connect=False, cap=QpCap(max_recv_wr=2))
    with pytest.raises(VerbsError, match="is in RESET, needs INIT, RTR or RTS"):
        pair.b.qp.post_recv(RecvWR(1))
    connect_pair(pair.a.qp, pair.b.qp)
    with pytest.raises(VerbsError, match="max_recv_wr = 2") as error:
        pair.receives(3)
    assert error.value.done_count == 2


# ---- the end of a QP -----------------------------------------------------------------------------


def test_error__by_the_application_flushes_both_queues():
    pair = VerbsPair()
    pair.a.qp.post_recv(RecvWR(5))
    pair.a.qp.post_send(pair.write(wr_id=i) for i in (1, 2))
    pair.a.qp.modify(QpAttr(qp_state=ERROR))
    assert [(wc.wr_id, wc.status.name) for wc in pair.a.cq.poll()] == [
        (1, "IBV_WC_WR_FLUSH_ERR"),
        (2, "IBV_WC_WR_FLUSH_ERR"),
        (5, "IBV_WC_WR_FLUSH_ERR"),
    ]
    assert pair.a.device.get_async_event() is None
    with pytest.raises(VerbsError, match="is in ERROR, needs RTS: modify_qp to ERROR"):
        pair.a.qp.post_send(pair.write())


def test_error__when_nothing_gets_through_the_retry_budget_ends_it():
    pair = VerbsPair(config={"linear_cnt": 1, "exp_cnt": 1})
    pair.wire.filter = lambda *_: []
    pair.a.qp.post_send(pair.write(wr_id=i) for i in (1, 2))
    completions = pair.a.cq.wait(2, timeout_s=60)
    assert [wc.status.name for wc in completions] == ["IBV_WC_RETRY_EXC_ERR", "IBV_WC_WR_FLUSH_ERR"]
    event = pair.a.device.get_async_event()
    assert event.event_type is IBV_EVENT_QP_FATAL and event.element is pair.a.qp


def test_destroy__in_the_wrong_order_is_refused():
    pair = VerbsPair()
    with pytest.raises(VerbsError, match="QPs still complete into this CQ") as error:
        pair.a.cq.destroy()
    assert error.value.errno == errno.EBUSY
    with pytest.raises(VerbsError, match="belong to this domain"):
        pair.a.device.default_pd.dealloc()
    pair.a.qp.destroy()
    pair.a.qp.destroy()
    with pytest.raises(VerbsError, match="was destroyed"):
        pair.a.qp.post_send(pair.write())
    pair.a.cq.destroy()
    pair.a.mr.dereg()
    pair.a.mr.dereg()
    pair.a.device.default_pd.dealloc()
    with pytest.raises(VerbsError, match="the CQ is not one of this context"):
        pair.a.device.create_qp(QpInitAttr(pair.a.cq))


# ---- memory --------------------------------------------------------------------------------------


def test_memory__only_what_is_registered_for_it_can_be_written():
    pair = VerbsPair()
    local = pair.b.device.reg_mr(b"read-only bytes", AccessFlags(0))
    with pytest.raises(ValueError, match="read-only buffer"):
        pair.b.device.reg_mr(b"read-only bytes")
    pair.a.qp.post_send(pair.write(4, remote_addr=local.addr, rkey=local.rkey))
    assert pair.a.cq.wait(timeout_s=1)[0].status.name == "IBV_WC_REM_ACCESS_ERR"


def test_memory__deregistered_while_the_peer_writes():
    pair = VerbsPair()
    pair.b.mr.dereg()
    pair.a.qp.post_send(pair.write(4))
    assert pair.a.cq.wait(timeout_s=1)[0].status.name == "IBV_WC_REM_ACCESS_ERR"


# ---- the baseline --------------------------------------------------------------------------------


def test_rocev2__the_same_verbs_move_the_same_bytes():
    pair = VerbsPair(qp_type=QpType.RC, size=1 << 15)
    pair.a.mr.view[:] = random.Random(4).randbytes(1 << 15)
    pair.receives(1)
    pair.a.qp.post_send([pair.write(1 << 15, wr_id=1), pair.write_imm(5, wr_id=2)])
    assert [(wc.wr_id, wc.ok) for wc in pair.a.cq.wait(2, timeout_s=30)] == [(1, True), (2, True)]
    assert pair.b.mr.view == pair.a.mr.view
    assert [wc.imm_data for wc in pair.b.cq.wait(timeout_s=1)] == [5]
    assert len({row["ev"] for row in pair.a.qp.ev_states()}) == 1


# ---- access, windows -----------------------------------------------------------------------------------


def test_access__a_qp_without_remote_write_and_a_foreign_domain():
    for flags, words in (
        (AccessFlags(0), "does not allow remote writes"),
        (None, "belongs to another protection domain"),
    ):
        pair = VerbsPair()
        target = pair.b.mr
        if flags is None:
            target = pair.b.device.alloc_pd().reg_mr(bytearray(100))
        else:
            pair.b.qp.modify(QpAttr(qp_access_flags=flags))
        pair.a.qp.post_send(pair.write(10, remote_addr=target.addr, rkey=target.rkey))
        assert pair.a.cq.wait(timeout_s=1)[0].status.name == "IBV_WC_REM_ACCESS_ERR"
        assert words in pair.b.device.get_async_event().detail
        assert bytes(target.view[:10]) == bytes(10)


def test_dynamic_mpr__the_window_moves_while_it_works():
    pair = VerbsPair(config={"dynamic_mpr": True})
    pair.b.qp.modify(None, None, MrcQpAttr(mpr_dest=2))
    pair.a.qp.post_send(pair.write(1 << 13))
    assert pair.a.cq.wait(timeout_s=1)[0].ok
    assert pair.b.qp.query()[1].mpr_dest == 2
    fixed_pair = VerbsPair()
    with pytest.raises(ValueError, match="fixed unless both ends connect with dynamic_mpr"):
        fixed_pair.b.qp.modify(None, None, MrcQpAttr(mpr_dest=2))
    assert fixed_pair.b.qp.query()[1].mpr_dest == 8
