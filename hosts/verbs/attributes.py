"""Attributes of QPs: the table of mrc-protocol §10.1, attributes by transition, as data.

A field of `QpAttr` and `MrcQpAttr` that is not None counts as given; an explicit mask says it instead, as in C.

>>> check_modify(QpState.INIT, QpState.RTS, QpAttrMask(1), MrcQpAttrMask(0))
Traceback (most recent call last):
mrc_testbed.hosts.verbs.errors.VerbsError: modify_qp INIT->RTS: not a transition (from INIT: INIT, RTR, ERROR, RESET)
>>> check_modify(QpState.RESET, QpState.INIT, QpAttrMask.IBV_QP_STATE | QpAttrMask.IBV_QP_QKEY, MrcQpAttrMask(0))
Traceback (most recent call last):
mrc_testbed.hosts.verbs.errors.VerbsError: modify_qp RESET->INIT: IBV_QP_QKEY is not supported by MRC: there are no \
datagrams
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, fields, replace
from typing import Any

from mrc_testbed.hosts.engine.config import PATH_MTUS
from mrc_testbed.hosts.verbs.checks import flags, number, record, short_repr
from mrc_testbed.hosts.verbs.cq import CompletionQueue
from mrc_testbed.hosts.verbs.enums import (
    AccessFlags,
    MrcProtocolVersion,
    MrcQpAttrMask,
    MrcQpCap,
    QpAttrMask,
    QpState,
    QpType,
    SendOpsFlags,
    names,
)
from mrc_testbed.hosts.verbs.errors import VerbsError
from mrc_testbed.hosts.verbs.hints import QpHint, check_vendor_cfg
from mrc_testbed.hosts.verbs.memory import ProtectionDomain, check_access

_I, _M = QpAttrMask, MrcQpAttrMask
_I_NONE, _M_NONE = QpAttrMask(0), MrcQpAttrMask(0)
_RESET, _INIT, _RTR, _RTS, _ERROR = QpState.RESET, QpState.INIT, QpState.RTR, QpState.RTS, QpState.ERROR


@dataclass
class QpCap:
    """Sizes of a QP's queues; requests, elements and bytes. As asked for; what is granted is never less."""

    max_send_wr: int = 128
    max_recv_wr: int = 128
    max_send_sge: int = 1
    max_recv_sge: int = 1
    max_inline_data: int = 4096


@dataclass
class QpInitAttr:
    """Initial attributes of a QP.

    `recv_cq` None: `send_cq` takes the receives too.
    """

    send_cq: CompletionQueue
    recv_cq: CompletionQueue | None = None
    cap: QpCap = field(default_factory=QpCap)
    sq_sig_all: bool = False
    """Whether every send request gives a completion, signaled or not."""
    qp_type: QpType = QpType.MRC
    pd: ProtectionDomain | None = None
    """None: the context's default one."""
    qp_context: Any = None
    send_ops_flags: int = 0
    """Send operations it is for, of SendOpsFlags: the two writes, which it has whether named or not."""
    protocol_version: MrcProtocolVersion = MrcProtocolVersion.MRC_PROTOCOL_VERSION_0
    """Version of the wire protocol; 0: the device's choice."""


@dataclass(frozen=True)
class AddressVector:
    """Address of the peer.

    `dgid`: address of any of its ports; all of them are used, one per plane.
    """

    dgid: str
    sgid_index: int = 0


@dataclass
class QpAttr:
    """Generic attributes; None = not given. Units: PSNs 24 bits, `path_mtu` bytes."""

    qp_state: QpState | None = None
    cur_qp_state: QpState | None = None
    """Expected state of the QP; the call is refused when the QP is in another."""
    pkey_index: int | None = None
    """0 is the only one (§12 row 41)."""
    qp_access_flags: AccessFlags | None = None
    """IBV_ACCESS_REMOTE_WRITE, or 0 for a QP that only sends."""
    ah_attr: AddressVector | None = None
    path_mtu: int | None = None
    dest_qp_num: int | None = None
    rq_psn: int | None = None
    """First PSN the peer will send: its sq_psn."""
    sq_psn: int | None = None
    """First PSN we send."""
    port_num: int | None = None
    """Port number, which must exist; it is ignored, as a QP uses all ports, and so are the next six."""
    timeout: int | None = None
    retry_cnt: int | None = None
    rnr_retry: int | None = None
    min_rnr_timer: int | None = None
    max_rd_atomic: int | None = None
    max_dest_rd_atomic: int | None = None
    alt_ah_attr: AddressVector | None = None
    """Alternate path: not in MRC, nor are the two below; a value is refused by the attribute's name."""
    path_mig_state: int | None = None
    qkey: int | None = None
    cap: QpCap | None = None
    """Queue sizes; set only in what `query` returns."""


@dataclass
class MrcQpAttr:
    """Attributes of MRC; None = not given, which leaves what the device's configuration says."""

    max_wimm: int | None = None
    """WriteIMM messages we may have in flight; not above the peer's max_wimm_dest."""
    max_wimm_dest: int | None = None
    """WriteIMM messages the peer may have in flight towards us."""
    mpr: int | None = None
    """Window as requestor, in units of 128 packets; not above the peer's mpr_dest."""
    mpr_dest: int | None = None
    """Window as responder, in units of 128 packets."""
    timeout: int | None = None
    """Retry timer 1.024 us x 2**timeout, 1..24."""
    linear_cnt: int | None = None
    """Expiries with constant timer, 0..7."""
    exp_cnt: int | None = None
    """Expiries with doubling timer, 0..25; 25 = for ever."""
    ev_profile_id: int | None = None
    cc_profile_id: int | None = None
    qp_hint: QpHint | None = None
    cap: MrcQpCap | None = None
    vendor_cfg: bytes | None = None
    """Vendor data, at most 128 bytes: kept and given back, without meaning for this device."""


FIELDS: dict[str, QpAttrMask] = {
    "qp_state": _I.IBV_QP_STATE,
    "cur_qp_state": _I.IBV_QP_CUR_STATE,
    "pkey_index": _I.IBV_QP_PKEY_INDEX,
    "qp_access_flags": _I.IBV_QP_ACCESS_FLAGS,
    "ah_attr": _I.IBV_QP_AV,
    "path_mtu": _I.IBV_QP_PATH_MTU,
    "dest_qp_num": _I.IBV_QP_DEST_QPN,
    "rq_psn": _I.IBV_QP_RQ_PSN,
    "sq_psn": _I.IBV_QP_SQ_PSN,
    "port_num": _I.IBV_QP_PORT,
    "timeout": _I.IBV_QP_TIMEOUT,
    "retry_cnt": _I.IBV_QP_RETRY_CNT,
    "rnr_retry": _I.IBV_QP_RNR_RETRY,
    "min_rnr_timer": _I.IBV_QP_MIN_RNR_TIMER,
    "max_rd_atomic": _I.IBV_QP_MAX_QP_RD_ATOMIC,
    "max_dest_rd_atomic": _I.IBV_QP_MAX_DEST_RD_ATOMIC,
    "alt_ah_attr": _I.IBV_QP_ALT_PATH,
    "path_mig_state": _I.IBV_QP_PATH_MIG_STATE,
    "qkey": _I.IBV_QP_QKEY,
    "cap": _I.IBV_QP_CAP,
}
"""Field of QpAttr -> bit of the mask that says it is given."""

MRC_FIELDS: dict[str, MrcQpAttrMask] = {
    "max_wimm": _M.MRC_QP_MAX_WIMM,
    "max_wimm_dest": _M.MRC_QP_MAX_WIMM_DEST,
    "mpr": _M.MRC_QP_MPR,
    "mpr_dest": _M.MRC_QP_MPR_DEST,
    "timeout": _M.MRC_QP_TIMEOUT,
    "linear_cnt": _M.MRC_QP_RETRY_CNT,
    "exp_cnt": _M.MRC_QP_RETRY_CNT,
    "ev_profile_id": _M.MRC_QP_EV_PROFILE_ID,
    "cc_profile_id": _M.MRC_QP_CC_PROFILE_ID,
    "qp_hint": _M.MRC_QP_HINT,
    "cap": _M.MRC_QP_CAP,
    "vendor_cfg": _M.MRC_QP_VENDOR_CFG,
}

IGNORED_ATTRIBUTES: dict[QpAttrMask, str] = {
    _I.IBV_QP_PORT: "a QP uses all ports of the device",
    _I.IBV_QP_TIMEOUT: "MRC_QP_TIMEOUT is in force",
    _I.IBV_QP_RETRY_CNT: "MRC_QP_RETRY_CNT is in force (linear_cnt, exp_cnt)",
    _I.IBV_QP_RNR_RETRY: "there is no RNR NAK",
    _I.IBV_QP_MIN_RNR_TIMER: "there is no RNR NAK",
    _I.IBV_QP_MAX_QP_RD_ATOMIC: "there are no reads and atomics",
    _I.IBV_QP_MAX_DEST_RD_ATOMIC: "there are no reads and atomics",
}
"""Attributes of ibverbs that programs pass though MRC has none, and why each changes nothing."""

UNSUPPORTED_ATTRIBUTES: dict[QpAttrMask, str] = {
    _I.IBV_QP_ALT_PATH: "a QP uses all paths; see EV profiles",
    _I.IBV_QP_PATH_MIG_STATE: "a QP uses all paths; see EV profiles",
    _I.IBV_QP_QKEY: "there are no datagrams",
    _I.IBV_QP_CAP: "queue sizes are fixed by create_qp",
}
"""Attributes of ibverbs that MRC refuses, and what to do instead."""


_IGNORED_BITS = sum(IGNORED_ATTRIBUTES, _I_NONE)


@dataclass(frozen=True)
class QpTransition:
    """Attributes of one move besides IBV_QP_STATE.

    IBV_QP_CUR_STATE and IGNORED_ATTRIBUTES may always be given.
    """

    need: QpAttrMask = _I_NONE
    may: QpAttrMask = _I_NONE
    may_mrc: MrcQpAttrMask = _M_NONE


_PROFILES = _M.MRC_QP_HINT | _M.MRC_QP_EV_PROFILE_ID | _M.MRC_QP_CC_PROFILE_ID | _M.MRC_QP_VENDOR_CFG

TRANSITIONS: dict[tuple[QpState, QpState], QpTransition] = {
    (_RESET, _INIT): QpTransition(_I.IBV_QP_PKEY_INDEX | _I.IBV_QP_ACCESS_FLAGS, may_mrc=_PROFILES),
    (_INIT, _INIT): QpTransition(may=_I.IBV_QP_PKEY_INDEX | _I.IBV_QP_ACCESS_FLAGS, may_mrc=_PROFILES),
    (_INIT, _RTR): QpTransition(
        _I.IBV_QP_AV | _I.IBV_QP_PATH_MTU | _I.IBV_QP_DEST_QPN | _I.IBV_QP_RQ_PSN,
        _I.IBV_QP_ACCESS_FLAGS | _I.IBV_QP_PKEY_INDEX,
        _M.MRC_QP_MAX_WIMM_DEST | _M.MRC_QP_MPR_DEST | _M.MRC_QP_MAX_WIMM | _M.MRC_QP_MPR | _M.MRC_QP_CAP,
    ),
    (_RTR, _RTS): QpTransition(
        _I.IBV_QP_SQ_PSN,
        _I.IBV_QP_ACCESS_FLAGS,
        _M.MRC_QP_MAX_WIMM | _M.MRC_QP_MPR | _M.MRC_QP_TIMEOUT | _M.MRC_QP_RETRY_CNT,
    ),
    (_RTS, _RTS): QpTransition(may=_I.IBV_QP_ACCESS_FLAGS, may_mrc=_M.MRC_QP_MPR_DEST),  # MPR: when it is dynamic
    **{(state, _ERROR): QpTransition() for state in QpState},
    **{(state, _RESET): QpTransition() for state in QpState},
}
"""Valid transitions; another pair of states is refused with the list of these."""


def check_init(init: QpInitAttr, versions: MrcProtocolVersion) -> None:
    """Check what a QP is made for against what MRC and the device have. Raises VerbsError."""
    operations = flags("create_qp: send_ops_flags", init.send_ops_flags, SendOpsFlags)
    refused_names = names(operations & ~_SEND_OPS)
    if refused_names:
        raise VerbsError(f"create_qp: {refused_names}: MRC has writes only ({names(_SEND_OPS)})", errno.EOPNOTSUPP)
    version = flags("create_qp: protocol_version", init.protocol_version, MrcProtocolVersion)
    if version & ~versions or version.bit_count() > 1:
        raise VerbsError(
            f"create_qp: protocol_version = {short_repr(version)}: must be 0 or one of {names(versions)}",
            errno.EOPNOTSUPP,
        )


_SEND_OPS = SendOpsFlags.IBV_QP_EX_WITH_RDMA_WRITE | SendOpsFlags.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM


def mask_of(attr: QpAttr) -> QpAttrMask:
    """Mask of the fields that are not None."""
    return sum((FIELDS[f.name] for f in fields(attr) if getattr(attr, f.name) is not None), QpAttrMask(0))


def mrc_mask_of(attr: MrcQpAttr) -> MrcQpAttrMask:
    """Mask of the fields that are not None."""
    mask = MrcQpAttrMask(0)
    for attribute in fields(attr):
        if getattr(attr, attribute.name) is not None:
            mask |= MRC_FIELDS[attribute.name]
    return mask


def check_modify(
    old_state: QpState, new_state: QpState, mask: QpAttrMask, mrc_mask: MrcQpAttrMask, mpr_name: str = "MPR_DEST"
) -> None:
    """Check that this transition exists and has its attributes.

    Raises VerbsError that names those that are missing or too many.

    `mpr_name`: what the message calls the responder's window (Config.qp.mpr_name).
    """
    subject = f"modify_qp {old_state.name}->{new_state.name}"
    move = TRANSITIONS.get((old_state, new_state))
    if move is None:
        order = (_INIT, _RTR, _RTS, _ERROR, _RESET)
        targets = ", ".join(state.name for state in order if (old_state, state) in TRANSITIONS)
        raise VerbsError(f"{subject}: not a transition (from {old_state.name}: {targets})")
    for bit, instead in UNSUPPORTED_ATTRIBUTES.items():
        if mask & bit:
            raise VerbsError(f"{subject}: {names(bit)} is not supported by MRC: {instead}")
    valid_mask, valid_mrc_mask = (
        move.need | move.may | _I.IBV_QP_STATE | _I.IBV_QP_CUR_STATE | _IGNORED_BITS,
        move.may_mrc,
    )
    too_many = _names(mask & ~valid_mask, mrc_mask & ~valid_mrc_mask, mpr_name)
    if too_many:
        valid_names = _names(move.need | move.may, move.may_mrc, mpr_name) or "IBV_QP_STATE alone"
        raise VerbsError(f"{subject}: {too_many} cannot be set here (can: {valid_names})")
    missing_names = names(move.need & ~mask)
    if missing_names:
        raise VerbsError(f"{subject}: needs {missing_names} too")


def _names(mask: QpAttrMask, mrc_mask: MrcQpAttrMask, mpr_name: str) -> str:
    text = ", ".join(text for text in (names(mask), names(mrc_mask)) if text)
    return text.replace("MRC_QP_MPR_DEST", f"MRC_QP_{mpr_name}")


RANGES: dict[str, tuple[int, int]] = {
    "pkey_index": (0, 0),
    "dest_qp_num": (3, (1 << 24) - 1),
    "rq_psn": (0, (1 << 24) - 1),
    "sq_psn": (0, (1 << 24) - 1),
}
MRC_RANGES: dict[str, tuple[int, int]] = {
    "max_wimm": (0, 32767),
    "max_wimm_dest": (1, 32767),
    "mpr": (1, 255),
    "mpr_dest": (1, 255),
    "timeout": (1, 24),
    "linear_cnt": (0, 7),
    "exp_cnt": (0, 25),
    "ev_profile_id": (0, (1 << 64) - 1),
    "cc_profile_id": (0, (1 << 64) - 1),
}


def without_ignored(attr: QpAttr) -> QpAttr:
    """Return the attributes without those that change nothing."""
    return replace(attr, **{name: None for name, bit in FIELDS.items() if bit in IGNORED_ATTRIBUTES})


def check_values(attr: QpAttr, mrc_attr: MrcQpAttr, subject: str) -> None:
    """Kinds and ranges of everything given. Raises VerbsError."""
    for record_, ranges in ((attr, RANGES), (mrc_attr, MRC_RANGES)):
        for key, (low, high) in ranges.items():
            value = getattr(record_, key)
            if value is not None:
                number(f"{subject}: {key}", value, low, high)
    if attr.path_mtu is not None and (isinstance(attr.path_mtu, bool) or attr.path_mtu not in PATH_MTUS):
        sizes = ", ".join(map(str, PATH_MTUS))
        raise VerbsError(f"{subject}: path_mtu = {short_repr(attr.path_mtu)}: must be one of {sizes} bytes")
    if attr.ah_attr is not None:
        record(f"{subject}: dgid", record(f"{subject}: ah_attr", attr.ah_attr, AddressVector).dgid, str)
    if attr.qp_access_flags is not None:
        check_access(f"{subject}: qp_access_flags", attr.qp_access_flags)
    if mrc_attr.qp_hint is not None:
        record(f"{subject}: qp_hint", mrc_attr.qp_hint, QpHint)
    if mrc_attr.cap is not None:
        flags(f"{subject}: cap", mrc_attr.cap, MrcQpCap)
    if mrc_attr.vendor_cfg is not None:
        check_vendor_cfg(subject, mrc_attr.vendor_cfg)
