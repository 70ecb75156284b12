"""Constants of the verbs under the names of `verbs.h` and `mrc.h`: C code reads across (§10.1).

Members have their C names and are module constants too: `MrcQpAttrMask.MRC_QP_MPR is MRC_QP_MPR`.

>>> MRC_QP_MAX_MPR_DEST is MRC_QP_MPR_DEST      # the name in the specification, the name in the header (§12 row 38)
True
>>> names(MRC_QP_MPR | MRC_QP_TIMEOUT)
'MRC_QP_MPR, MRC_QP_TIMEOUT'
"""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag

UNIT_MPR = 128
"""MPR attributes count in units of this many packets (§2.15)."""


class QpState(IntEnum):
    """State of a QP. MRC has no SQD and no SQE."""

    RESET = 0
    INIT = 1
    RTR = 2
    """Ready to receive: the responder works, nothing can be posted to send."""
    RTS = 3
    """Ready to send."""
    ERROR = 6
    """Work requests were flushed; a modify to RESET begins anew."""


class QpType(Enum):
    """Transport behind the QP. The verbs are the same."""

    MRC = "mrc"
    RC = "rocev2"
    """The baseline: RoCEv2 RC, one path, Go-Back-N; its peer must be of the same type."""


class QpAttrMask(IntFlag):
    """Generic attributes (ibverbs values).

    Those MRC does not have are here to be ignored, or refused by name.
    """

    IBV_QP_STATE = 1 << 0
    IBV_QP_CUR_STATE = 1 << 1
    IBV_QP_ACCESS_FLAGS = 1 << 3
    IBV_QP_PKEY_INDEX = 1 << 4
    IBV_QP_PORT = 1 << 5
    IBV_QP_QKEY = 1 << 6
    IBV_QP_AV = 1 << 7
    IBV_QP_PATH_MTU = 1 << 8
    IBV_QP_TIMEOUT = 1 << 9
    IBV_QP_RETRY_CNT = 1 << 10
    IBV_QP_RNR_RETRY = 1 << 11
    IBV_QP_RQ_PSN = 1 << 12
    IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13
    IBV_QP_ALT_PATH = 1 << 14
    IBV_QP_MIN_RNR_TIMER = 1 << 15
    IBV_QP_SQ_PSN = 1 << 16
    IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17
    IBV_QP_PATH_MIG_STATE = 1 << 18
    IBV_QP_CAP = 1 << 19
    IBV_QP_DEST_QPN = 1 << 20


class MrcQpAttrMask(IntFlag):
    """Attributes of MRC. `_DEST`: this QP in the responder role; without: in the requestor role."""

    MRC_QP_MAX_WIMM = 1 << 0
    MRC_QP_MAX_WIMM_DEST = 1 << 1
    MRC_QP_MPR = 1 << 2
    MRC_QP_MPR_DEST = 1 << 3
    MRC_QP_TIMEOUT = 1 << 4
    MRC_QP_EV_PROFILE_ID = 1 << 5
    MRC_QP_CC_PROFILE_ID = 1 << 6
    MRC_QP_HINT = 1 << 7
    MRC_QP_RETRY_CNT = 1 << 8
    MRC_QP_CAP = 1 << 9
    MRC_QP_VENDOR_CFG = 1 << 31
    MRC_QP_MAX_MPR_DEST = 1 << 3


class MrcQpCap(IntFlag):
    """MRC_QP_CAP: what the peer announced, and whether the receive window moves."""

    MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED = 1 << 0
    """Flag: the remote responder sends no trim NACKs; our data must not be trimmed (§6.6)."""
    MRC_QP_CAP_DYNAMIC_MPR = 1 << 1
    """Window that follows the MPR of SACKs (§5.3); both ends have to ask for it."""
    MRC_QP_CAP_SVC_TIME_DEST_UNSUPPORTED = 1 << 2
    """Flag: the remote responder reports no service time; ours never does (§12 row 34)."""


class MrcQpHintAttrMask(IntFlag):
    """Attributes of a QP hint."""

    MRC_QP_HINT_NUM_QPS_PER_PEER = 1 << 0
    MRC_QP_HINT_NUM_SEND_PEERS = 1 << 1
    MRC_QP_HINT_NUM_REMOTE_RECV_PEERS = 1 << 2
    MRC_QP_HINT_VENDOR_CFG = 1 << 31


class MrcProtocolVersion(IntFlag):
    """Versions of the wire protocol. 0 in a request: the device's choice."""

    MRC_PROTOCOL_VERSION_0 = 0
    MRC_PROTOCOL_VERSION_1 = 1 << 0


class SendOpsFlags(IntFlag):
    """Send operations that a QP is made for (ibverbs values). MRC has the first two."""

    IBV_QP_EX_WITH_RDMA_WRITE = 1 << 0
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 1 << 1
    IBV_QP_EX_WITH_SEND = 1 << 2
    IBV_QP_EX_WITH_SEND_WITH_IMM = 1 << 3
    IBV_QP_EX_WITH_RDMA_READ = 1 << 4
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 1 << 5
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 1 << 6
    IBV_QP_EX_WITH_LOCAL_INV = 1 << 7
    IBV_QP_EX_WITH_BIND_MW = 1 << 8
    IBV_QP_EX_WITH_SEND_WITH_INV = 1 << 9
    IBV_QP_EX_WITH_TSO = 1 << 10
    IBV_QP_EX_WITH_FLUSH = 1 << 11
    IBV_QP_EX_WITH_ATOMIC_WRITE = 1 << 12


class DeviceCap(IntFlag):
    """Optional features of a device."""

    MRC_DEVICE_CAP_TRIM_NACK = 1 << 0
    MRC_DEVICE_CAP_DYNAMIC_MPR = 1 << 1
    MRC_DEVICE_CAP_SVC_TIME = 1 << 2


class AccessFlags(IntFlag):
    """Access that a registration or a QP allows (ibverbs values).

    MRC has remote writes: REMOTE_READ, REMOTE_ATOMIC and RELAXED_ORDERING are taken and mean nothing, the rest is
    refused by name.
    """

    IBV_ACCESS_LOCAL_WRITE = 1 << 0
    IBV_ACCESS_REMOTE_WRITE = 1 << 1
    IBV_ACCESS_REMOTE_READ = 1 << 2
    IBV_ACCESS_REMOTE_ATOMIC = 1 << 3
    IBV_ACCESS_MW_BIND = 1 << 4
    IBV_ACCESS_ZERO_BASED = 1 << 5
    IBV_ACCESS_ON_DEMAND = 1 << 6
    IBV_ACCESS_HUGETLB = 1 << 7
    IBV_ACCESS_FLUSH_GLOBAL = 1 << 8
    IBV_ACCESS_FLUSH_PERSISTENT = 1 << 9
    IBV_ACCESS_RELAXED_ORDERING = 1 << 20


class SendFlags(IntFlag):
    """Flags of one send work request."""

    IBV_SEND_FENCE = 1 << 0
    IBV_SEND_SIGNALED = 1 << 1
    """Flag: a successful request gives a completion; failed ones always do."""
    IBV_SEND_SOLICITED = 1 << 2
    """Flag: wake the peer's CQ that is armed for solicited events only. WriteIMM only."""
    IBV_SEND_INLINE = 1 << 3
    """Flag: bytes are copied when posted; the buffer is free at once, and needs no lkey."""


class WrOpcode(IntEnum):
    """Send operations. MRC has these two."""

    IBV_WR_RDMA_WRITE = 0
    IBV_WR_RDMA_WRITE_WITH_IMM = 1


class WcOpcode(IntEnum):
    """Operation that a completion reports."""

    IBV_WC_RDMA_WRITE = 1
    IBV_WC_RECV_RDMA_WITH_IMM = 129


class WcFlags(IntFlag):
    """Valid optional fields of a completion."""

    IBV_WC_WITH_IMM = 1 << 1


class WcStatus(IntEnum):
    """Result of a work request (ibverbs values; those that can occur)."""

    IBV_WC_SUCCESS = 0
    IBV_WC_LOC_LEN_ERR = 1
    IBV_WC_LOC_QP_OP_ERR = 2
    IBV_WC_LOC_PROT_ERR = 4
    IBV_WC_WR_FLUSH_ERR = 5
    """Status of a request that was pending when the QP went to ERROR for another reason."""
    IBV_WC_REM_INV_REQ_ERR = 9
    IBV_WC_REM_ACCESS_ERR = 10
    """R_Key or range is not one the peer lets us write to."""
    IBV_WC_REM_OP_ERR = 11
    IBV_WC_RETRY_EXC_ERR = 12
    """Failure after a whole retry budget (linear + exponential) without any delivery."""
    IBV_WC_GENERAL_ERR = 21


class EventType(IntEnum):
    """Asynchronous events (ibverbs values)."""

    IBV_EVENT_CQ_ERR = 0
    IBV_EVENT_QP_FATAL = 1
    IBV_EVENT_PORT_ACTIVE = 9
    IBV_EVENT_PORT_ERR = 10


class PortState(IntEnum):
    """State of a port (ibverbs values; those that can occur)."""

    IBV_PORT_DOWN = 1
    IBV_PORT_ACTIVE = 4


IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR = (
    QpState.RESET,
    QpState.INIT,
    QpState.RTR,
    QpState.RTS,
    QpState.ERROR,
)

_PUBLISHED_ENUMS = (
    QpAttrMask,
    MrcQpAttrMask,
    MrcQpCap,
    MrcQpHintAttrMask,
    MrcProtocolVersion,
    SendOpsFlags,
    DeviceCap,
    AccessFlags,
    SendFlags,
    WrOpcode,
    WcOpcode,
    WcFlags,
    WcStatus,
    EventType,
    PortState,
)
for _enum in _PUBLISHED_ENUMS:
    globals().update(_enum.__members__)  # C names as module constants; the aliases too

CONSTANTS = [
    *sorted({name for enum in _PUBLISHED_ENUMS for name in enum.__members__}),
    *("IBV_QPS_ERR", "IBV_QPS_INIT", "IBV_QPS_RESET", "IBV_QPS_RTR", "IBV_QPS_RTS"),
]


def names(mask: IntFlag) -> str:
    """Return the members of a mask by their C names, in the order of their bits."""
    return ", ".join(name for name, member in type(mask).__members__.items() if member.name == name and member & mask)
