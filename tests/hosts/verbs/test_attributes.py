"""Attributes of QPs: what is missing, misplaced, out of range or unknown is named."""

import errno
from dataclasses import replace

import pytest

from mrc_testbed.hosts.verbs import (
    IBV_QP_ACCESS_FLAGS,
    IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER,
    IBV_QP_PKEY_INDEX,
    IBV_QP_PORT,
    IBV_QP_RETRY_CNT,
    IBV_QP_RNR_RETRY,
    IBV_QP_STATE,
    IBV_QP_TIMEOUT,
    IGNORED_ATTRIBUTES,
    MRC_PROTOCOL_VERSION_1,
    MRC_QP_TIMEOUT,
    UNSUPPORTED_ATTRIBUTES,
    AccessFlags,
    AddressVector,
    MrcQpAttr,
    MrcQpAttrMask,
    MrcQpCap,
    QpAttr,
    QpAttrMask,
    QpInitAttr,
    SendOpsFlags,
    VerbsError,
    local_info,
)
from mrc_testbed.hosts.verbs.attributes import FIELDS, mask_of
from tests.hosts.verbs.test_qp import INIT, RESET, RTR, RTS, attributes, bring_to, move
from tests.hosts.verbs.verbs_devices import MTU, VerbsPair


@pytest.mark.parametrize("old_state, new_state", [(RESET, INIT), (INIT, RTR), (RTR, RTS)])
def test_modify__each_missing_attribute_of_ibverbs_is_named(old_state, new_state):
    pair = VerbsPair(connect=False)
    bring_to(pair, old_state)
    attr, mrc = attributes(pair, old_state, new_state)
    for name, value in vars(attr).items():
        if value is None or name == "qp_state":
            continue
        setattr(attr, name, None)
        with pytest.raises(VerbsError, match=rf"modify_qp {old_state.name}->{new_state.name}: needs IBV_QP_\w+ too"):
            pair.a.qp.modify(attr, None, mrc)
        setattr(attr, name, value)
    pair.a.qp.modify(attr, None, mrc)


def test_modify__attributes_of_mrc_that_are_not_given_are_those_of_the_device():
    """OCP's mrc_example gives no attribute of MRC, Microsoft's plugin the timeout alone."""
    pair = VerbsPair(connect=False, config={"max_wimm": 5, "mpr_packets": 512, "linear_cnt": 2, "exp_cnt": 4})
    for side, peer in ((pair.a, pair.b), (pair.b, pair.a)):
        end, peer_end = local_info(side.qp), local_info(peer.qp)
        flags = AccessFlags.IBV_ACCESS_LOCAL_WRITE | AccessFlags.IBV_ACCESS_REMOTE_WRITE
        side.qp.modify(QpAttr(qp_state=INIT, pkey_index=0, port_num=1, qp_access_flags=flags))
        address = AddressVector(peer_end.gid)
        side.qp.modify(
            QpAttr(qp_state=RTR, ah_attr=address, path_mtu=MTU, dest_qp_num=peer_end.qpn, rq_psn=peer_end.psn)
        )
        side.qp.modify(
            QpAttr(qp_state=RTS, sq_psn=end.psn, timeout=14, retry_cnt=7, rnr_retry=7), None, MrcQpAttr(timeout=16)
        )
        attr, mrc, _ = side.qp.query()
        assert (mrc.mpr_dest, mrc.max_wimm_dest, mrc.mpr, mrc.max_wimm) == (4, 5, 4, 5)
        assert (mrc.timeout, mrc.linear_cnt, mrc.exp_cnt) == (16, 2, 4)
        assert (attr.port_num, attr.timeout, attr.retry_cnt, attr.rnr_retry) == (None,) * 4
    pair.receives(6)
    with pytest.raises(VerbsError, match="max_wimm = 5 WriteIMM are in flight"):
        pair.a.qp.post_send(pair.write_imm(i) for i in range(6))
    pair.a.qp.post_send(pair.write(1 << 13))
    assert [wc.ok for wc in pair.a.cq.wait(6, timeout_s=1)] == [True] * 6


def test_modify__window_and_write_imm_may_be_set_at_rtr_already():
    pair = VerbsPair(connect=False)
    bring_to(pair, INIT)
    attr, mrc = attributes(pair, INIT, RTR)
    pair.a.qp.modify(attr, None, replace(mrc, mpr=3, max_wimm=2))
    pair.a.qp.modify(QpAttr(qp_state=RTS, sq_psn=7))
    assert (pair.a.qp.query()[1].mpr, pair.a.qp.query()[1].max_wimm) == (3, 2)


@pytest.mark.parametrize("old_state, new_state", [(RESET, INIT), (INIT, RTR), (RTR, RTS), (RTS, RTS)])
def test_modify__attributes_that_programs_pass_and_mrc_has_not_are_ignored(old_state, new_state):
    names = {mask: name for name, mask in FIELDS.items()}
    pair = VerbsPair(connect=False)
    bring_to(pair, old_state)
    attr, mrc = attributes(pair, old_state, new_state)
    mask = mask_of(attr)
    for bit in IGNORED_ATTRIBUTES:
        setattr(attr, names[bit], 1)
        mask |= bit
    pair.a.qp.modify(attr, mask, mrc)
    assert pair.a.qp.state is new_state
    assert not mask_of(pair.a.qp.query()[0]) & sum(IGNORED_ATTRIBUTES, QpAttrMask(0))
    assert set(IGNORED_ATTRIBUTES) == {
        IBV_QP_PORT,
        IBV_QP_TIMEOUT,
        IBV_QP_RETRY_CNT,
        IBV_QP_RNR_RETRY,
        IBV_QP_MAX_QP_RD_ATOMIC,
        IBV_QP_MIN_RNR_TIMER,
        IBV_QP_MAX_DEST_RD_ATOMIC,
    }


@pytest.mark.parametrize("port_num", [0, 3, -1, "1"])
def test_modify__a_port_that_does_not_exist_is_refused_though_ports_are_ignored(port_num):
    pair = VerbsPair(connect=False)
    with pytest.raises(VerbsError, match=f"modify_qp RESET->INIT: port_num: no port {port_num!r}: ports are 1 to 2"):
        pair.a.qp.modify(QpAttr(qp_state=INIT, pkey_index=0, qp_access_flags=AccessFlags(0), port_num=port_num))
    assert pair.a.qp.state is RESET


def test_modify__attributes_mrc_does_not_have_are_refused_by_name_and_say_what_instead():
    names = {mask: name for name, mask in FIELDS.items()}
    for bit, instead in UNSUPPORTED_ATTRIBUTES.items():
        pair = VerbsPair(connect=False)
        attr = QpAttr(qp_state=INIT, pkey_index=0, qp_access_flags=AccessFlags(0), **{names[bit]: 1})
        with pytest.raises(VerbsError) as error:
            pair.a.qp.modify(attr)
        assert str(error.value) == f"modify_qp RESET->INIT: {bit.name} is not supported by MRC: {instead}"


def test_masks__bits_are_those_of_the_header():
    order = [
        "MAX_WIMM",
        "MAX_WIMM_DEST",
        "MPR",
        "MPR_DEST",
        "TIMEOUT",
        "EV_PROFILE_ID",
        "CC_PROFILE_ID",
        "HINT",
        "RETRY_CNT",
        "CAP",
    ]
    bits = {f"MRC_QP_{name}": 1 << number for number, name in enumerate(order)}
    bits |= {"MRC_QP_VENDOR_CFG": 1 << 31, "MRC_QP_MAX_MPR_DEST": 1 << 3}
    assert {name: int(bit) for name, bit in MrcQpAttrMask.__members__.items()} == bits
    caps = ("TRIM_NACK_DEST_UNSUPPORTED", "DYNAMIC_MPR", "SVC_TIME_DEST_UNSUPPORTED")
    assert {name: int(bit) for name, bit in MrcQpCap.__members__.items()} == {
        f"MRC_QP_CAP_{name}": 1 << number for number, name in enumerate(caps)
    }


def test_init__operations_and_wire_versions_that_there_are_not_are_refused_by_name():
    pair = VerbsPair(connect=False)
    device, cq = pair.a.device, pair.a.cq
    writes = SendOpsFlags.IBV_QP_EX_WITH_RDMA_WRITE | SendOpsFlags.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    qp = device.create_qp(QpInitAttr(cq, send_ops_flags=writes, protocol_version=MRC_PROTOCOL_VERSION_1))
    assert qp.query()[2].send_ops_flags == writes
    for flag in SendOpsFlags:
        if not flag & writes:
            with pytest.raises(VerbsError, match=f"create_qp: {flag.name}: MRC has writes only") as error:
                device.create_qp(QpInitAttr(cq, send_ops_flags=writes | flag))
            assert error.value.errno == errno.EOPNOTSUPP
    with pytest.raises(VerbsError, match="protocol_version = 2: must be made of"):
        device.create_qp(QpInitAttr(cq, protocol_version=2))


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
