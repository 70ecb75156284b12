"""What the parts of a device (switch/device/device.py) share: the C device, its lock, its program's schema, and
errors.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from switch.device import native
from switch.device.entities import TableError
from switch.device.native_device import NativeDevice
from switch.device.schema import Schema


class DeviceBase:
    """The C device and what is loaded."""

    def __init__(self, device: NativeDevice) -> None:
        self.name = device.name
        self._native = device
        self._lib: ctypes.CDLL = device.lib
        self._lock: threading.RLock = device.lock
        self._schema: Schema | None = None
        self._undo: list[Callable[[], object]] | None = None
        """In a transaction: what takes back what was done, oldest first."""

    @property
    def schema(self) -> Schema:
        """Tables, actions, profiles of the loaded program by id. Raises TableError FAILED_PRECONDITION."""
        if self._schema is None:
            raise TableError("FAILED_PRECONDITION", f"{self.name}: no program is loaded")
        return self._schema

    @property
    def handle(self) -> int:
        """struct rt_device *, for the event loop."""
        return self._native.handle

    @contextmanager
    def held(self) -> Iterator[None]:
        """Packets wait until the end of the block: what is changed in it, they see all of it or nothing."""
        with self._lock:
            self._lib.rt_device_hold(self.handle)
            try:
                yield
            finally:
                self._lib.rt_device_release(self.handle)

    @contextmanager
    def transaction(self) -> Iterator[list[Callable[[], object]]]:
        """Take back all that was done in the block when it raises; entries taken back may stand at the end of their
        table then. Yields the list of what would take it back, to which the caller may add.

        Not to be nested. Packets see every step; in `held` they see the first and the last state only.
        """
        with self._lock:
            self._undo = undo = []
            try:
                yield undo
            except BaseException:
                self._undo = None
                for step in reversed(undo):
                    step()
                raise
            finally:
                self._undo = None

    def on_undo(self, step: Callable[[], object]) -> None:
        """Something was done that `step` takes back."""
        if self._undo is not None:
            self._undo.append(step)


def check(error: int, where: str, what: str, room: str) -> None:
    """Raise the TableError of a runtime error."""
    if not error:
        return
    code, text = {
        native.NOT_FOUND: ("NOT_FOUND", f"no such {what}"),
        native.EXISTS: ("ALREADY_EXISTS", f"{what} is there already"),
        native.FULL: ("RESOURCE_EXHAUSTED", room),
        native.IN_USE: ("FAILED_PRECONDITION", f"{what} is in use"),
        native.NO_MEMORY: ("RESOURCE_EXHAUSTED", "out of memory"),
        native.CONST: ("PERMISSION_DENIED", f"{what} is const in the program"),
        native.MIXED: (
            "INVALID_ARGUMENT",
            f"{what}: one-shot action sets, and members or groups, cannot be mixed: delete the others first",
        ),
    }.get(error, ("INVALID_ARGUMENT", f"{what} refused"))
    raise TableError(code, f"{where}: {text}")


def uint32(value: int, what: str) -> int:
    if not 0 < value < 1 << 32:
        raise TableError("INVALID_ARGUMENT", f"{what} {value} is not in 1..{(1 << 32) - 1}")
    return value
