"""Multicast groups and clone sessions of a device (switch/device/device.py)."""

from __future__ import annotations

from typing import Any

from switch.device import native
from switch.device.base import DeviceBase
from switch.device.entities import CloneSession, MulticastGroup, TableError
from switch.device.schema import check_replication


class Replication(DeviceBase):
    """All methods raise TableError."""

    _multicast: dict[int, MulticastGroup]
    _sessions: dict[int, CloneSession]

    # ---- multicast groups and clone sessions --------------------------------------------------------------------

    def insert_replication(self, entry: MulticastGroup | CloneSession) -> None:
        """Add a multicast group or clone session. ALREADY_EXISTS, INVALID_ARGUMENT."""
        self._write_replication(native.INSERT, entry)

    def modify_replication(self, entry: MulticastGroup | CloneSession) -> None:
        """Replace it. NOT_FOUND, INVALID_ARGUMENT."""
        self._write_replication(native.MODIFY, entry)

    def delete_replication(self, entry: MulticastGroup | CloneSession) -> None:
        """NOT_FOUND."""
        self._write_replication(native.DELETE, entry)

    def read_multicast(self) -> list[MulticastGroup]:
        """All groups, by id."""
        return sorted(self._multicast.values(), key=lambda one: one.group_id)

    def read_sessions(self) -> list[CloneSession]:
        """All clone sessions, by id."""
        return sorted(self._sessions.values(), key=lambda one: one.session_id)

    def _write_replication(self, op: int, entry: MulticastGroup | CloneSession) -> None:
        with self._lock:
            self.schema  # noqa: B018 - raises without a program
            session = isinstance(entry, CloneSession)
            known: dict[int, Any] = self._sessions if session else self._multicast
            number = entry.session_id if isinstance(entry, CloneSession) else entry.group_id
            what = f"{self.name}: {'clone session' if session else 'multicast group'} {number}"
            check_replication(entry, what)
            if op == native.INSERT and number in known:
                raise TableError("ALREADY_EXISTS", f"{what} is there already")
            if op != native.INSERT and number not in known:
                has = ", ".join(map(str, sorted(known))) or "none"
                raise TableError("NOT_FOUND", f"{what}: there is none (has: {has})")
            replicas = (native.NativeReplica * len(entry.replicas))(*((r.port, r.rid) for r in entry.replicas))
            extra = (entry.group_id, entry.class_of_service, entry.length) if session else (0, 0, 0)  # type: ignore
            keep = op != native.DELETE
            error = self._lib.rt_replication_write(self.handle, session, number, *extra, keep, len(replicas), replicas)
            if error:
                raise TableError("RESOURCE_EXHAUSTED", f"{what}: too many replicas, or no memory")
            before = known.get(number, entry)
            if keep:
                known[number] = entry
            else:
                del known[number]
            self.on_undo(lambda: self._write_replication(native.INVERSE[op], before))
