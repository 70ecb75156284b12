"""Multicast groups and clone sessions of a device (switch/device/device.py)."""

from __future__ import annotations

from typing import TypeVar

from mrc_testbed.switch.device import native
from mrc_testbed.switch.device.entities import CloneSession, MulticastGroup, TableError
from mrc_testbed.switch.device.schema import check_replication
from mrc_testbed.switch.device.state import DeviceState

Entry = TypeVar("Entry", MulticastGroup, CloneSession)


class Replication:
    """The multicast groups and clone sessions of a device. All methods raise TableError."""

    def __init__(self, state: DeviceState) -> None:
        self._state = state
        self._multicast: dict[int, MulticastGroup] = {}
        self._sessions: dict[int, CloneSession] = {}

    def forget(self) -> None:
        """Know of none: the C device has lost them with its program."""
        self._multicast, self._sessions = {}, {}

    def take_over(self, source: Replication) -> None:
        """Move the entries of `source` here: the C device has taken its program over."""
        self._multicast, self._sessions = source._multicast, source._sessions
        source.forget()

    def insert_replication(self, entry: MulticastGroup | CloneSession) -> None:
        """Add a multicast group or clone session. ALREADY_EXISTS, INVALID_ARGUMENT."""
        self._write_replication(native.INSERT, entry)

    def modify_replication(self, entry: MulticastGroup | CloneSession) -> None:
        """Replace it. NOT_FOUND, INVALID_ARGUMENT."""
        self._write_replication(native.MODIFY, entry)

    def delete_replication(self, entry: MulticastGroup | CloneSession) -> None:
        """Delete a multicast group or clone session. NOT_FOUND."""
        self._write_replication(native.DELETE, entry)

    def read_multicast(self) -> list[MulticastGroup]:
        """All groups, by id."""
        return sorted(self._multicast.values(), key=lambda group: group.group_id)

    def read_sessions(self) -> list[CloneSession]:
        """All clone sessions, by id."""
        return sorted(self._sessions.values(), key=lambda session: session.session_id)

    def _write_replication(self, op: int, entry: MulticastGroup | CloneSession) -> None:
        with self._state.lock:
            self._state.require_program()
            if isinstance(entry, CloneSession):
                self._set(op, 1, entry.session_id, entry, self._sessions)
            else:
                self._set(op, 0, entry.group_id, entry, self._multicast)

    def _set(self, op: int, session: int, number: int, entry: Entry, entries: dict[int, Entry]) -> None:
        """Write `entry` to the C device (`session` 1: a clone session) and to `entries`, those of its kind."""
        subject = f"{self._state.name}: {'clone session' if session else 'multicast group'} {number}"
        check_replication(entry, subject)
        if op == native.INSERT and number in entries:
            raise TableError("ALREADY_EXISTS", f"{subject} is there already")
        if op != native.INSERT and number not in entries:
            has = ", ".join(map(str, sorted(entries))) or "none"
            raise TableError("NOT_FOUND", f"{subject} does not exist (has: {has})")
        count = len(entry.replicas)
        replicas = (native.NativeReplica * count)(*(native.NativeReplica(r.port, r.rid) for r in entry.replicas))
        extra = (0, 0, 0)
        if isinstance(entry, CloneSession):
            extra = (entry.group_id, entry.class_of_service, entry.length)
        keep = op != native.DELETE
        lib, handle = self._state.lib, self._state.handle
        if lib.rt_replication_write(handle, session, number, *extra, keep, count, replicas):
            raise TableError("RESOURCE_EXHAUSTED", f"{subject}: too many replicas, or no memory")
        previous = entries.get(number, entry)
        if keep:
            entries[number] = entry
        else:
            del entries[number]
        self._state.on_undo(lambda: self._write_replication(native.INVERSE[op], previous))
