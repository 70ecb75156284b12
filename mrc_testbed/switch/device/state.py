"""Context shared by the parts of a device: the C device, its lock, its schema, and errors.

The device itself: switch/device/device.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mrc_testbed.switch.device import native
from mrc_testbed.switch.device.entities import TableError
from mrc_testbed.switch.device.native_device import NativeDevice
from mrc_testbed.switch.device.schema import Schema


class DeviceState:
    """The C device, its lock, the schema of its program, and the transaction that is open on it."""

    def __init__(self, device: NativeDevice) -> None:
        self.name = device.name
        self._native = device
        self.lib: ctypes.CDLL = device.lib
        self.lock = device.lock
        """Every operation that takes more than one call of the runtime holds this lock."""
        self.program_schema: Schema | None = None
        """Schema of the program; None: there is no program."""
        self._undo: list[Callable[[], object]] | None = None
        """Steps that undo the open transaction, oldest first; None outside of one."""

    @property
    def schema(self) -> Schema:
        """Tables, actions, profiles of the loaded program by id. Raises TableError FAILED_PRECONDITION."""
        if self.program_schema is None:
            raise TableError("FAILED_PRECONDITION", f"{self.name}: no program is loaded")
        return self.program_schema

    def require_program(self) -> None:
        """Raises TableError FAILED_PRECONDITION when no program is loaded."""
        _ = self.schema

    @property
    def handle(self) -> int:
        """struct rt_device *, for the event loop."""
        return self._native.handle

    @contextmanager
    def packets_paused(self) -> Iterator[None]:
        """Packets wait until the end of the block: what is changed in it, they see all of it or nothing."""
        with self.lock:
            self.lib.rt_device_hold(self.handle)
            try:
                yield
            finally:
                self.lib.rt_device_release(self.handle)

    @contextmanager
    def transaction(self) -> Iterator[list[Callable[[], object]]]:
        """Undo the operations of the block when it raises; yield the list of undo steps.

        The caller may append steps. Restored entries may stand at the end of their table.

        Not to be nested. Packets see every step; in `packets_paused` they see the first and the last state only.
        """
        with self.lock:
            undo: list[Callable[[], object]] = []
            self._undo = undo
            try:
                yield undo
            except BaseException:
                self._undo = None
                for step in reversed(undo):
                    step()
                raise
            finally:
                self._undo = None

    @property
    def in_transaction(self) -> bool:
        """Whether operations are recorded for a rollback."""
        return self._undo is not None

    def on_undo(self, step: Callable[[], object]) -> None:
        """Record `step`, which undoes an operation just done; ignored outside of a transaction."""
        if self._undo is not None:
            self._undo.append(step)


def check(error: int, subject: str, object_name: str, room: str) -> None:
    """Raise the TableError of a runtime error."""
    if not error:
        return
    code, text = {
        native.NOT_FOUND: ("NOT_FOUND", f"no such {object_name}"),
        native.EXISTS: ("ALREADY_EXISTS", f"{object_name} is there already"),
        native.NO_ROOM: ("RESOURCE_EXHAUSTED", room),
        native.IN_USE: ("FAILED_PRECONDITION", f"{object_name} is in use"),
        native.NO_MEMORY: ("RESOURCE_EXHAUSTED", "out of memory"),
        native.CONST: ("PERMISSION_DENIED", f"{object_name} is const in the program"),
        native.MIXED_KINDS: (
            "INVALID_ARGUMENT",
            f"{object_name}: one-shot action sets, and members or groups, cannot be mixed: delete the others first",
        ),
    }.get(error, ("INVALID_ARGUMENT", f"{object_name} refused"))
    raise TableError(code, f"{subject}: {text}")


def uint32(value: int, subject: str) -> int:
    """`value`, if it is an id. Raises TableError INVALID_ARGUMENT when it is not in 1..2**32-1."""
    if not 0 < value < 1 << 32:
        raise TableError("INVALID_ARGUMENT", f"{subject} {value} is not in 1..{(1 << 32) - 1}")
    return value
