"""Registered memory: what a peer may write to, and nothing else.

An R_Key names one region. Virtual addresses are numbers we hand out, not pointers: the offset is computed here
and checked in unbounded integers, so an address near 2**64 cannot wrap into a region.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from mrc_testbed.hosts.engine.wire.payload import Payload, buffer_of

VA_BASE: Final = 0x1000_0000_0000
VA_ALIGN: Final = 1 << 21
"""Regions start at multiples of 2 MiB with at least one such gap between them: overruns hit nothing."""


class AccessError(ValueError):
    """A peer's R_Key, address or length is not covered by a registration."""


class PayloadSink:
    """Region of `length` bytes whose payload is handed to place(); nothing is copied.

    For simulations: copies for hundreds of hosts go through all of the CPU's caches and leave nothing of the fabric
    there.
    """

    __slots__ = ("length",)

    def __init__(self, length: int) -> None:
        self.length = length

    def write(self, start: int, data: Payload) -> None:
        """Take the payload for `len(data)` bytes from an offset on; its bytes are there until the call ends."""
        raise NotImplementedError


class EngineMemoryRegion:
    """`length` bytes at virtual address `va`, reachable with `rkey`. Made by Memory.register."""

    __slots__ = ("length", "remote_write", "rkey", "sink", "va", "view")

    def __init__(
        self, view: memoryview, va: int, rkey: int, remote_write: bool, sink: PayloadSink | None = None
    ) -> None:
        self.view = view
        """Registered buffer as bytes; empty with a sink."""
        self.sink = sink
        """Takes what is placed, where there is no buffer."""
        self.va, self.length, self.rkey = va, len(view) if sink is None else sink.length, rkey
        self.remote_write = remote_write
        """False: registered, but peers may not write to it."""


class QpAccess:
    """Regions that the peer of one QP may write to: those of a protection domain, while the QP allows it."""

    __slots__ = ("remote_write", "rkeys")

    def __init__(self, rkeys: set[int], remote_write: bool = True) -> None:
        self.rkeys = rkeys
        """R_Keys of the domain's regions, which its owner keeps up to date."""
        self.remote_write = remote_write

    def check(self, rkey: int) -> None:
        """Raise AccessError unless the peer may write to the region of an R_Key."""
        if not self.remote_write:
            raise AccessError("the QP does not allow remote writes (IBV_ACCESS_REMOTE_WRITE)")
        if rkey not in self.rkeys:
            raise AccessError(f"region {rkey:#010x} belongs to another protection domain")


class Memory:
    """All registrations of one endpoint."""

    __slots__ = ("_newest_region", "_next_va", "_regions", "_rng")

    def __init__(self, rng: Random) -> None:
        self._regions: dict[int, EngineMemoryRegion] = {}
        self._newest_region: EngineMemoryRegion | None = None
        """Region of the last write that was checked; None: it is gone."""
        self._rng = rng
        self._next_va = VA_BASE

    def register(self, buffer: Any, va: int | None = None, remote_write: bool = True) -> EngineMemoryRegion:
        """Register a writable contiguous buffer or a PayloadSink, at `va` when given.

        Raises ValueError when the buffer cannot be registered.
        """
        sink = buffer if isinstance(buffer, PayloadSink) else None
        try:
            view = memoryview(b"" if sink is not None else buffer).cast("B")
        except TypeError as error:
            raise ValueError(f"only contiguous buffers can be registered: {error}") from None
        if remote_write and view.readonly and sink is None:
            raise ValueError("a read-only buffer cannot be registered for remote writes (use a bytearray or mmap)")
        length = len(view) if sink is None else sink.length
        if va is None:
            va = self._next_va
            self._next_va += -(-(length + 1) // VA_ALIGN) * VA_ALIGN + VA_ALIGN
        elif not 0 <= va <= (1 << 64) - length:
            raise ValueError(f"virtual address {va:#x} with {length} bytes does not fit 64 bits")
        rkey = self._rng.getrandbits(32)
        while rkey in self._regions:
            rkey = self._rng.getrandbits(32)
        region = self._regions[rkey] = EngineMemoryRegion(view, va, rkey, remote_write, sink)
        return region

    def deregister(self, region: EngineMemoryRegion) -> None:
        """Forget a region; its R_Key is refused from now on. Harmless when done twice."""
        if self._regions.get(region.rkey) is region:
            del self._regions[region.rkey]
            self._newest_region = None
            region.view.release()  # so that the owner can resize or close the buffer

    def check(self, rkey: int, va: int, length: int) -> EngineMemoryRegion:
        """Return the region that holds va .. va + length - 1 for remote writing.

        Raises AccessError that names the fault.
        """
        region = self._newest_region
        if region is None or region.rkey != rkey:
            region = self._newest_region = self._regions.get(rkey)
        if region is None:
            raise AccessError(f"no region with R_Key {rkey:#010x}")
        if not region.remote_write:
            raise AccessError(f"region {rkey:#010x} is not open to remote writes")
        if va < region.va or va + length > region.va + region.length:
            raise AccessError(
                f"{length} bytes at {va:#x} leave region {rkey:#010x} ({region.length} bytes at {region.va:#x})"
            )
        return region

    @staticmethod
    def write(region: EngineMemoryRegion, va: int, data: Payload) -> None:
        """Copy `data` to `va`, or hand it to the sink; the caller has checked the range."""
        start = va - region.va
        sink = region.sink
        if sink is None:
            region.view[start : start + len(data)] = buffer_of(data)
        else:
            sink.write(start, data)
