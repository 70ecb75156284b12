"""Protection domains, memory regions, and the elements work requests are made of."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mrc_testbed.hosts.engine.memory import EngineMemoryRegion as EngineRegion
from mrc_testbed.hosts.verbs.checks import flags
from mrc_testbed.hosts.verbs.context import DeviceContext
from mrc_testbed.hosts.verbs.enums import AccessFlags
from mrc_testbed.hosts.verbs.errors import VerbsError

REFUSED_ACCESS: dict[AccessFlags, str] = {
    AccessFlags.IBV_ACCESS_MW_BIND: "there are no memory windows",
    AccessFlags.IBV_ACCESS_ZERO_BASED: "register at address 0 instead",
    AccessFlags.IBV_ACCESS_ON_DEMAND: "memory is registered before it is used",
    AccessFlags.IBV_ACCESS_HUGETLB: "it goes with on-demand paging, which there is not",
    AccessFlags.IBV_ACCESS_FLUSH_GLOBAL: "there is no FLUSH",
    AccessFlags.IBV_ACCESS_FLUSH_PERSISTENT: "there is no FLUSH",
}
OPTIONAL_ACCESS = 0x3FF0_0000
"""Flags that any provider may ignore (IBV_ACCESS_OPTIONAL_RANGE); relaxed ordering is the first."""


def check_access(subject: str, access: Any) -> AccessFlags:
    """Return the access flags that programs pass, without the optional ones this device knows nothing of.

    Raises VerbsError that names what MRC has not. Reads and atomics are let pass, as published programs ask for them
    with every region; no peer can ever do them.
    """
    if isinstance(access, int) and not isinstance(access, bool):
        access = int(access) & (~OPTIONAL_ACCESS | AccessFlags.IBV_ACCESS_RELAXED_ORDERING.value)
    access_flags = flags(subject, access, AccessFlags)
    for flag, reason in REFUSED_ACCESS.items():
        if access_flags & flag:
            raise VerbsError(f"{subject}: {flag.name} is not in MRC: {reason}", errno.EOPNOTSUPP)
    return access_flags


class RegionTable:
    """The registered regions of one device, by key."""

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._by_key: dict[int, MemoryRegion] = {}

    def __iter__(self) -> Iterator[MemoryRegion]:
        """Iterate over a copy: regions may be deregistered meanwhile."""
        return iter(list(self._by_key.values()))

    def find(self, key: int) -> MemoryRegion | None:
        """Return the region of that lkey or rkey, which are the same."""
        return self._by_key.get(key)

    def register(self, pd: ProtectionDomain, buffer: Any, access: int, addr: int | None) -> MemoryRegion:
        """See Device.reg_mr."""
        access = check_access("reg_mr: access", access)
        with self._context.lock:
            self._context.require_open()
            if pd.regions is not self:
                raise VerbsError("reg_mr: the protection domain is not one of this context of the device")
            remote = bool(access & AccessFlags.IBV_ACCESS_REMOTE_WRITE)
            region = self._context.driver.endpoint.register(buffer, va=addr, remote_write=remote)
            mr = self._by_key[region.rkey] = MemoryRegion(pd, region, access)
            pd.users += 1
            pd.rkeys.add(region.rkey)
            return mr

    def deregister(self, mr: MemoryRegion) -> None:
        """See MemoryRegion.dereg."""
        with self._context.lock:
            if mr.registered:
                mr.registered = False
                mr.pd.users -= 1
                mr.pd.rkeys.discard(mr.rkey)
                del self._by_key[mr.lkey]
                self._context.driver.endpoint.deregister(mr.region)


class ProtectionDomain:
    """Groups QPs and regions of one device; a QP may only use local regions of its own domain."""

    def __init__(self, regions: RegionTable) -> None:
        self.regions = regions
        self.users = 0
        self.rkeys: set[int] = set()
        """R_Keys of the domain's regions: the engine lets peers of its QPs write to these."""

    def reg_mr(
        self, buffer: Any, access: int = AccessFlags.IBV_ACCESS_REMOTE_WRITE, *, addr: int | None = None
    ) -> MemoryRegion:
        """Device.reg_mr in this domain."""
        return self.regions.register(self, buffer, access, addr)

    def dealloc(self) -> None:
        """Free the domain; raises VerbsError (EBUSY) while QPs or regions belong to it."""
        if self.users:
            raise VerbsError(f"{self.users} QPs and regions belong to this domain: destroy these first", errno.EBUSY)


@dataclass(frozen=True, slots=True)
class Sge:
    """`length` bytes at virtual address `addr` of the local region `lkey`."""

    addr: int
    length: int
    lkey: int


class MemoryRegion:
    """Registered memory.

    `addr` is a virtual address of ours, not a pointer; `lkey` and `rkey` are the same number.
    """

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
        """Registered buffer as bytes."""
        return self.region.view

    def sge(self, offset: int = 0, length: int | None = None) -> Sge:
        """Return an element for a work request: `length` bytes from `offset`; None: to the region's end."""
        if length is None:
            length = self.length - offset
        if offset < 0 or length < 0 or offset + length > self.length:
            raise VerbsError(f"{length} bytes at offset {offset} leave the region of {self.length} bytes")
        return Sge(self.addr + offset, length, self.lkey)

    def dereg(self) -> None:
        """Peers and work requests are refused from now on. Idempotent."""
        self.pd.regions.deregister(self)
