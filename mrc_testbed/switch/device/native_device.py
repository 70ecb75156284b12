"""The device of the C runtime (struct rt_device): what the parts of a P4 device share."""

from __future__ import annotations

import ctypes
import threading

from mrc_testbed.switch.device import native


class NativeDevice:
    """Owner of one C device, freed with it. Raises MemoryError.

    `name` appears in messages; `seed` makes the program's random() repeatable.
    """

    __slots__ = ("_handle", "lib", "lock", "name")

    def __init__(self, device_id: int, name: str, seed: int) -> None:
        self.lib: ctypes.CDLL = native.runtime()
        self.name = name
        self.lock = threading.RLock()
        """Every operation that takes more than one call of the runtime holds this lock."""
        self._handle: int | None = self.lib.rt_device_create(device_id & 0xFFFF_FFFF, seed & (1 << 64) - 1)
        if not self._handle:
            raise MemoryError(f"{name}: out of memory")

    @property
    def handle(self) -> int:
        """struct rt_device *. Raises ValueError once it is closed."""
        if not self._handle:
            raise ValueError(f"{self.name} is closed")
        return self._handle

    def close(self) -> None:
        """Free the C device. Idempotent."""
        handle, self._handle = self._handle, None
        if handle:
            self.lib.rt_device_destroy(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.lib.rt_device_destroy(self._handle)
