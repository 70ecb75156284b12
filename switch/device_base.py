"""What the parts of a device (switch/device.py) share: the C device, its lock, its program's schema, and errors."""

from __future__ import annotations

import ctypes
import threading

from switch import native
from switch.entities import TableError
from switch.schema import Schema

DROP_PORT = 511


class DeviceBase:
    """The C device and what is loaded."""

    name: str
    _lib: ctypes.CDLL
    _lock: threading.RLock
    _handle: int | None
    _schema: Schema | None

    @property
    def schema(self) -> Schema:
        """Tables, actions, profiles of the loaded program by id. Raises TableError FAILED_PRECONDITION."""
        if self._schema is None:
            raise TableError("FAILED_PRECONDITION", f"{self.name}: no program is loaded")
        return self._schema

    @property
    def handle(self) -> int:
        """struct rt_device *, for the event loop."""
        if not self._handle:
            raise ValueError(f"{self.name} is closed")
        return self._handle


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
    }.get(error, ("INVALID_ARGUMENT", f"{what} refused"))
    raise TableError(code, f"{where}: {text}")


def uint32(value: int, what: str) -> int:
    if not 0 < value < 1 << 32:
        raise TableError("INVALID_ARGUMENT", f"{what} {value} is not in 1..{(1 << 32) - 1}")
    return value
