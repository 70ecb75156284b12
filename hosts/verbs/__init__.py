"""MRC verbs for Python, named after `mrc.h` and `mrc_ctl.h` (§10), for those who know ibverbs.

Guide: docs/verbs.md.

Two devices on a virtual wire, a write from one into the other's memory:

>>> wire = VirtualWire(planes=2, uplinks=2)
>>> a, b = wire.open("a"), wire.open("b")
>>> source, target = a.reg_mr(bytearray(b"hello, fabric")), b.reg_mr(bytearray(13))
>>> cq_a, cq_b = a.create_cq(16), b.create_cq(16)
>>> qp_a, qp_b = a.create_qp(QpInitAttr(cq_a)), b.create_qp(QpInitAttr(cq_b))
>>> _ = connect_pair(qp_a, qp_b)
>>> qp_a.post_send(SendWR(wr_id=7, sg_list=[source.sge()], remote_addr=target.addr, rkey=target.rkey))
>>> [wc] = cq_a.wait(timeout_s=1.0)
>>> wc.wr_id, wc.status.name, bytes(target.view)
(7, 'IBV_WC_SUCCESS', b'hello, fabric')
"""

from mrc_testbed.hosts.engine.cc.ccprofile import CcProfile, ProfileState
from mrc_testbed.hosts.engine.errors import LocalError, PeerError
from mrc_testbed.hosts.verbs import enums
from mrc_testbed.hosts.verbs.attributes import (
    IGNORED_ATTRIBUTES,
    TRANSITIONS,
    UNSUPPORTED_ATTRIBUTES,
    AddressVector,
    MrcQpAttr,
    QpAttr,
    QpCap,
    QpInitAttr,
    QpTransition,
)
from mrc_testbed.hosts.verbs.control import Controller, EpBatch
from mrc_testbed.hosts.verbs.control_types import (
    EV_UNPOPULATED,
    CtlDeviceAttr,
    EpOp,
    EpRequest,
    EpResponse,
    EvEntry,
    EvFmtProfile,
    EvMode,
    EvOp,
    EvOpEntry,
    EvProfileAttr,
    EvStateMask,
    OptCap,
)
from mrc_testbed.hosts.verbs.cq import CompletionChannel, CompletionQueue, WorkCompletion
from mrc_testbed.hosts.verbs.device import AsyncEvent, Device, DeviceAttr, PortAttr
from mrc_testbed.hosts.verbs.driver import Driver
from mrc_testbed.hosts.verbs.enums import *  # noqa: F403 - the constants under their C names
from mrc_testbed.hosts.verbs.enums import (
    AccessFlags,
    DeviceCap,
    EventType,
    MrcProtocolVersion,
    MrcQpAttrMask,
    MrcQpCap,
    MrcQpHintAttrMask,
    PortState,
    QpAttrMask,
    QpState,
    QpType,
    SendFlags,
    SendOpsFlags,
    WcFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from mrc_testbed.hosts.verbs.errors import VerbsError
from mrc_testbed.hosts.verbs.ev_events import EvEvent, EvEventCq
from mrc_testbed.hosts.verbs.exchange import (
    QpInfo,
    bring_up,
    connect_over,
    connect_pair,
    establish,
    local_info,
    meet,
    receive_info,
    send_info,
    swap,
)
from mrc_testbed.hosts.verbs.fields import EvField, EvFormat, collapse, expand
from mrc_testbed.hosts.verbs.hints import QpHint, QpHintAttr
from mrc_testbed.hosts.verbs.memory import MemoryRegion, ProtectionDomain, Sge
from mrc_testbed.hosts.verbs.qp import QueuePair, RecvWR, SendWR
from mrc_testbed.hosts.verbs.versions import ApiVersions, api_version, ctl_query_version, query_version
from mrc_testbed.hosts.verbs.virtual import VirtualDriver, VirtualWire

__all__ = [
    "EV_UNPOPULATED",
    "IGNORED_ATTRIBUTES",
    "TRANSITIONS",
    "UNSUPPORTED_ATTRIBUTES",
    "AccessFlags",
    "AddressVector",
    "ApiVersions",
    "AsyncEvent",
    "CcProfile",
    "CompletionChannel",
    "CompletionQueue",
    "Controller",
    "CtlDeviceAttr",
    "Device",
    "DeviceAttr",
    "DeviceCap",
    "Driver",
    "EpBatch",
    "EpOp",
    "EpRequest",
    "EpResponse",
    "EvEntry",
    "EvEvent",
    "EvEventCq",
    "EvField",
    "EvFmtProfile",
    "EvFormat",
    "EvMode",
    "EvOp",
    "EvOpEntry",
    "EvProfileAttr",
    "EvStateMask",
    "EventType",
    "LocalError",
    "MemoryRegion",
    "MrcProtocolVersion",
    "MrcQpAttr",
    "MrcQpAttrMask",
    "MrcQpCap",
    "MrcQpHintAttrMask",
    "OptCap",
    "PeerError",
    "PortAttr",
    "PortState",
    "ProfileState",
    "ProtectionDomain",
    "QpAttr",
    "QpAttrMask",
    "QpCap",
    "QpHint",
    "QpHintAttr",
    "QpInfo",
    "QpInitAttr",
    "QpState",
    "QpType",
    "QueuePair",
    "RecvWR",
    "SendFlags",
    "SendOpsFlags",
    "SendWR",
    "Sge",
    "QpTransition",
    "VerbsError",
    "VirtualDriver",
    "VirtualWire",
    "WcFlags",
    "WcOpcode",
    "WcStatus",
    "WorkCompletion",
    "WrOpcode",
    "api_version",
    "bring_up",
    "collapse",
    "connect_over",
    "connect_pair",
    "ctl_query_version",
    "establish",
    "expand",
    "local_info",
    "meet",
    "query_version",
    "receive_info",
    "send_info",
    "swap",
    *enums.CONSTANTS,
]
