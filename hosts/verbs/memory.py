"""Protection domains, memory regions, and the elements work requests are made of."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hosts.engine.memory import AccessError, Memory
from hosts.engine.memory import EngineMemoryRegion as EngineRegion
from hosts.verbs.enums import AccessFlags
from hosts.verbs.errors import VerbsError

if TYPE_CHECKING:
    from hosts.verbs.device import Device
    from hosts.verbs.qp import QueuePair


class ProtectionDomain:
    """Groups QPs and regions of one device; a QP may only use local regions of its own domain."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.users = 0

    def reg_mr(self, buffer: Any, access: int = AccessFlags.IBV_ACCESS_REMOTE_WRITE, **kwargs: Any) -> MemoryRegion:
        """Device.reg_mr in this domain."""
        return self.device.reg_mr(buffer, access, pd=self, **kwargs)

    def dealloc(self) -> None:
        """Raises VerbsError (EBUSY) while QPs or regions belong to it."""
        if self.users:
            raise VerbsError(f"{self.users} QPs and regions belong to this domain: destroy these first", errno.EBUSY)


@dataclass(frozen=True, slots=True)
class Sge:
    """`length` bytes at virtual address `addr` of the local region `lkey`."""

    addr: int
    length: int
    lkey: int


class MemoryRegion:
    """Registered memory. `addr` is a virtual address of ours, not a pointer; `lkey` and `rkey` are the same number."""

    def __init__(self, pd: ProtectionDomain, region: EngineRegion, access: AccessFlags) -> None:
        self.pd = pd
        self.region = region
        self.access = access
        self.addr: int = region.va
        self.length: int = region.length
        self.lkey: int = region.rkey
        self.rkey: int = region.rkey
        self.registered = True

    @property
    def view(self) -> memoryview:
        """The registered buffer as bytes."""
        return self.region.view

    def sge(self, offset: int = 0, length: int | None = None) -> Sge:
        """An element for a work request: `length` bytes from `offset`, the rest of the region when None."""
        if length is None:
            length = self.length - offset
        if offset < 0 or length < 0 or offset + length > self.length:
            raise VerbsError(f"{length} bytes at offset {offset} leave the region of {self.length} bytes")
        return Sge(self.addr + offset, length, self.lkey)

    def dereg(self) -> None:
        """Peers and work requests are refused from now on. Idempotent."""
        self.pd.device.dereg_mr(self)


class QpAccess:
    """What the peer of one QP may write to: regions of the QP's protection domain, if the QP allows remote writes."""

    __slots__ = ("_check", "_qp", "_regions", "place")

    def __init__(self, qp: QueuePair, memory: Memory, regions: dict[int, MemoryRegion]) -> None:
        self._qp, self._regions = qp, regions
        self._check = memory.check
        self.place = memory.place

    def check(self, rkey: int, va: int, length: int) -> EngineRegion:
        """As Memory.check. Raises AccessError."""
        found = self._check(rkey, va, length)
        if not self._qp.remote_write:
            raise AccessError("the QP does not allow remote writes (IBV_ACCESS_REMOTE_WRITE)")
        mr = self._regions.get(rkey)
        if mr is None or mr.pd is not self._qp.pd:
            raise AccessError(f"region {rkey:#010x} belongs to another protection domain")
        return found
