"""QP hints: made, asked, changed and destroyed; in use by QPs meanwhile."""

import errno

import pytest

from mrc_testbed.hosts.verbs import (
    AccessFlags,
    MrcQpAttr,
    MrcQpAttrMask,
    MrcQpHintAttrMask,
    QpAttr,
    QpHintAttr,
    QpState,
    VerbsError,
)
from tests.hosts.verbs.verbs_devices import VerbsPair

INIT = QpAttr(qp_state=QpState.INIT, pkey_index=0, qp_access_flags=AccessFlags(0))


def test_hint__gives_back_what_was_written():
    device = VerbsPair(connect=False).a.device
    hint = device.create_qp_hint(QpHintAttr(num_send_peers=7, vendor_cfg=b"ours"))
    assert hint.query() == QpHintAttr(1, 7, 1, b"ours")
    hint.modify(QpHintAttr(2, 3, 4, b"x"), MrcQpHintAttrMask.MRC_QP_HINT_NUM_SEND_PEERS)
    assert hint.query() == QpHintAttr(1, 3, 1, b"ours")
    assert hint.query(MrcQpHintAttrMask.MRC_QP_HINT_NUM_SEND_PEERS) == QpHintAttr(num_send_peers=3)
    with pytest.raises(VerbsError, match="num_send_peers = -1: must be 0 to"):
        hint.modify(QpHintAttr(num_send_peers=-1))
    with pytest.raises(VerbsError, match="vendor_cfg has 129 bytes: at most 128"):
        device.create_qp_hint(QpHintAttr(vendor_cfg=bytes(129)))
    hint.destroy()
    hint.destroy()
    with pytest.raises(VerbsError, match="the hint was destroyed"):
        hint.query()


def test_hint__cannot_be_destroyed_while_a_qp_has_it():
    pair = VerbsPair(connect=False)
    device, qp = pair.a.device, pair.a.qp
    first, second = device.create_qp_hint(QpHintAttr()), device.create_qp_hint(QpHintAttr())
    qp.modify(INIT, None, MrcQpAttr(qp_hint=first))
    assert qp.query()[1].qp_hint is first
    with pytest.raises(VerbsError, match="1 QPs have this hint") as error:
        first.destroy()
    assert error.value.errno == errno.EBUSY
    first.modify(QpHintAttr(num_send_peers=9))
    qp.modify(QpAttr(qp_state=QpState.INIT), None, MrcQpAttr(qp_hint=second))
    first.destroy()
    qp.modify(QpAttr(qp_state=QpState.RESET))
    second.destroy()
    with pytest.raises(VerbsError, match="qp_hint is none of this context of the device, or was destroyed"):
        qp.modify(INIT, None, MrcQpAttr(qp_hint=second))
    third = device.create_qp_hint(QpHintAttr())
    qp.modify(INIT, None, MrcQpAttr(qp_hint=third))
    qp.destroy()
    third.destroy()


def test_hint__none_may_be_passed_and_a_neighbours_may_not():
    pair = VerbsPair(connect=False)
    foreign = pair.a.device.open_context().create_qp_hint(QpHintAttr())
    with pytest.raises(VerbsError, match="qp_hint is none of this context"):
        pair.a.qp.modify(INIT, None, MrcQpAttr(qp_hint=foreign))
    pair.a.qp.modify(INIT, None, MrcQpAttr(), MrcQpAttrMask.MRC_QP_HINT)
    assert pair.a.qp.query()[1].qp_hint is None
