"""Frames as hosts of a plan send them, made by the engine's own encoder."""

from __future__ import annotations

from typing import Any

from mrc_testbed.hosts.engine.wire.codec import Codec
from mrc_testbed.hosts.engine.wire.packets import Opcode, PacketRecord, Write
from mrc_testbed.hosts.nic.encapsulation import Encapsulation
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(2, 2, 2, 2)
CODEC = Codec()


def made_frame(
    record: PacketRecord, source: str = "h0", target: str = "h2", plan: Plan = PLAN, plane: int = -1
) -> bytes:
    """Return the frame that carries the record; its plane is by default the one that its EV names."""
    plane = record.ev >> 8 if plane < 0 else plane
    wrap = Encapsulation(plan, plan.host(source), plan.host(target), plane)
    inner = CODEC.encode(record, wrap.addressing).join()
    return wrap.outer(record.ev, inner[:4], len(inner)) + inner


def a_write(psn: int, ev: int = 0x0101, *, dscp: int = 4, ecn: int = 2, qp: int = 0x123, **fields: Any) -> Write:
    """Return one packet of a write."""
    return Write(qp, ev, ev >> 8, dscp, ecn, Opcode.WRITE_ONLY, psn, 1, 0x1000, 9, 64, bytes(64), 0, **fields)
