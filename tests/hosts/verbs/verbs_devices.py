"""Two devices on a virtual wire with a connected QP each: what the tests of the verbs begin from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.verbs import (
    CompletionQueue,
    Device,
    MemoryRegion,
    QpCap,
    QpInitAttr,
    QpType,
    QueuePair,
    RecvWR,
    SendWR,
    VirtualWire,
    WrOpcode,
    connect_pair,
)

MTU = 256
"""Path MTU of the tests, bytes: many packets in little memory."""


@dataclass
class Side:
    device: Device
    cq: CompletionQueue
    qp: QueuePair
    mr: MemoryRegion


class VerbsPair:
    """`a` and `b`, a QP each (connected unless told otherwise), a region of `size` bytes each."""

    def __init__(
        self,
        *,
        connect: bool = True,
        size: int = 1 << 14,
        cqe: int = 256,
        cap: QpCap | None = None,
        qp_type: QpType = QpType.MRC,
        config: dict[str, Any] | None = None,
        sq_sig_all: bool = False,
        profiles: dict[str, Any] | None = None,
        **wire: Any,
    ) -> None:
        self.wire = VirtualWire(**wire)
        self.config = Config.of(**{"pmtu_bytes": MTU, "timeout": 15, **(config or {})})
        self.sizes = (size, cqe, cap or QpCap(), qp_type, sq_sig_all)
        self.a, self.b = self._side("a"), self._side("b")
        if connect:
            connect_pair(self.a.qp, self.b.qp, self.a.mr, self.b.mr, **(profiles or {}))

    def _side(self, name: str) -> Side:
        size, cqe, cap, qp_type, sq_sig_all = self.sizes
        device = self.wire.open(name, self.config)
        cq = device.create_cq(cqe)
        qp = device.create_qp(QpInitAttr(cq, cap=cap, qp_type=qp_type, sq_sig_all=sq_sig_all))
        return Side(device, cq, qp, device.reg_mr(bytearray(size)))

    def write(self, length: int = 1000, wr_id: int = 1, offset: int = 0, **changes: Any) -> SendWR:
        """Return a work request from a's region into b's; `changes` of its fields."""
        fields = {
            "wr_id": wr_id,
            "sg_list": [self.a.mr.sge(offset, length)] if length else [],
            "remote_addr": self.b.mr.addr + offset,
            "rkey": self.b.mr.rkey,
            **changes,
        }
        return SendWR(**fields)

    def write_imm(self, imm: int, length: int = 100, **changes: Any) -> SendWR:
        return self.write(length, opcode=WrOpcode.IBV_WR_RDMA_WRITE_WITH_IMM, imm_data=imm, **changes)

    def receives(self, count: int, first: int = 100) -> None:
        """Post receives at b, wr_ids from `first`."""
        self.b.qp.post_recv(RecvWR(first + i) for i in range(count))


class Program:
    """A context of a device with a CQ, a QP connected to a peer's new first, and a region."""

    def __init__(self, pair: VerbsPair, **profiles: int) -> None:
        self.context = pair.a.device.open_context()
        self.channel = self.context.create_comp_channel()
        self.cq = self.context.create_cq(4, channel=self.channel)
        self.qp = self.context.create_qp(QpInitAttr(self.cq))
        self.mr = self.context.reg_mr(bytearray(1000))
        self.peer_qp = pair.b.device.create_qp(QpInitAttr(pair.b.cq))
        connect_pair(self.qp, self.peer_qp, **profiles)

    def write(self, pair: VerbsPair, **changes: Any) -> SendWR:
        """Return a work request from its region into that of the pair's b."""
        return SendWR(**{"sg_list": [self.mr.sge()], "remote_addr": pair.b.mr.addr, "rkey": pair.b.mr.rkey, **changes})
