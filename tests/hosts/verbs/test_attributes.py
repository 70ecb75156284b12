"""Attributes of QPs: what is missing, misplaced, out of range or unknown is named."""

import pytest

from mrc_testbed.hosts.verbs import (
    IBV_QP_ACCESS_FLAGS,
    IBV_QP_PKEY_INDEX,
    IBV_QP_STATE,
    MRC_QP_TIMEOUT,
    UNSUPPORTED_ATTRIBUTES,
    AccessFlags,
    AddressVector,
    MrcQpAttr,
    QpAttr,
    QpAttrMask,
    VerbsError,
)
from mrc_testbed.hosts.verbs.attributes import FIELDS, mask_of
from tests.hosts.verbs.test_qp import INIT, RESET, RTR, RTS, attributes, bring_to, move
from tests.hosts.verbs.verbs_devices import MTU, VerbsPair


@pytest.mark.parametrize("old_state, new_state", [(RESET, INIT), (INIT, RTR), (RTR, RTS)])
def test_modify__each_missing_attribute_is_named(old_state, new_state):
    pair = VerbsPair(connect=False)
    bring_to(pair, old_state)
    attr, mrc = attributes(pair, old_state, new_state)
    for record in (attr, mrc):
        for name, value in vars(record).items():
            if value is None or name == "qp_state":
                continue
            setattr(record, name, None)
            if name not in ("linear_cnt", "exp_cnt"):  # one bit for both
                with pytest.raises(
                    VerbsError, match=rf"modify_qp {old_state.name}->{new_state.name}: needs (IBV|MRC)_QP_\w+ too"
                ):
                    pair.a.qp.modify(attr, None, mrc)
            setattr(record, name, value)
    pair.a.qp.modify(attr, None, mrc)


def test_modify__attributes_mrc_does_not_have_are_refused_by_name_and_say_what_instead():
    names = {mask: name for name, mask in FIELDS.items()}
    for bit, instead in UNSUPPORTED_ATTRIBUTES.items():
        pair = VerbsPair(connect=False)
        attr = QpAttr(qp_state=INIT, pkey_index=0, qp_access_flags=AccessFlags(0), **{names[bit]: 1})
        with pytest.raises(VerbsError) as error:
            pair.a.qp.modify(attr)
        assert str(error.value) == f"modify_qp RESET->INIT: {bit.name} is not supported by MRC: {instead}"


def test_modify__an_attribute_in_the_wrong_place():
    pair = VerbsPair(connect=False)
    with pytest.raises(VerbsError) as error:
        pair.a.qp.modify(
            QpAttr(qp_state=INIT, pkey_index=0, qp_access_flags=AccessFlags(0)), None, MrcQpAttr(timeout=9)
        )
    assert "MRC_QP_TIMEOUT cannot be set here (can: IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX, MRC_QP_EV" in str(
        error.value
    )


@pytest.mark.parametrize(
    "change, words",
    [
        ({"path_mtu": 1000}, "must be one of 256, 512"),
        ({"path_mtu": 4096}, "this device has at most 256"),
        ({"dest_qp_num": 2}, "must be 3 to 16777215"),
        ({"rq_psn": 1 << 24}, "must be 0 to 16777215"),
        ({"ah_attr": AddressVector("fd00:9::9")}, "no host on the wire has the address"),
        ({"mpr_dest": 256}, "must be 1 to 255"),
        ({"max_wimm_dest": 0}, "must be 1 to 32767"),
        ({"cur_qp_state": RTS}, "cur_qp_state is RTS, but the QP is in INIT"),
    ],
)
def test_modify__values_out_of_range_change_nothing(change, words):
    pair = VerbsPair(connect=False)
    bring_to(pair, INIT)
    attr, mrc = attributes(pair, INIT, RTR)
    for name, value in change.items():
        setattr(mrc if hasattr(mrc, name) else attr, name, value)
    with pytest.raises(ValueError, match=words):
        pair.a.qp.modify(attr, None, mrc)
    assert pair.a.qp.state is INIT
    move(pair, RTR)


def test_modify__masks_choose_fields_as_in_c():
    pair = VerbsPair(connect=False)
    attr = QpAttr(qp_state=INIT, pkey_index=0, qp_access_flags=AccessFlags(2), sq_psn=5)
    pair.a.qp.modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS)
    assert pair.a.qp.state is INIT and pair.a.qp.query()[0].sq_psn is None
    with pytest.raises(VerbsError, match="MRC_QP_TIMEOUT is in the mask, but timeout is not set"):
        pair.a.qp.modify(QpAttr(qp_state=RTR), IBV_QP_STATE, MrcQpAttr(), MRC_QP_TIMEOUT)


def test_query__gives_back_what_is_in_force():
    pair = VerbsPair()
    attr, mrc, init = pair.a.qp.query()
    assert (attr.qp_state, attr.dest_qp_num, attr.path_mtu) == (RTS, pair.b.qp.qp_num, MTU)
    assert (mrc.mpr, mrc.mpr_dest, mrc.max_wimm, mrc.timeout) == (8, 8, 32, 15)
    assert init.send_cq is pair.a.cq
    assert mask_of(attr) & QpAttrMask.IBV_QP_SQ_PSN
