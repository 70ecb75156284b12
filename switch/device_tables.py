"""Table entries and value sets of a device (switch/device.py)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator

from switch import native
from switch.device_arrays import cell_in, counter_out
from switch.device_base import check, uint32
from switch.device_profiles import Profiles
from switch.entities import ActionCall, GroupRef, MemberRef, TableEntry, TableError, ValueSet
from switch.schema import DEFAULT_ONLY, TABLE_ONLY, Table

_VIEW_HEAD = struct.Struct("=iIIIQQ")  # struct rt_entry_view


class Tables(Profiles):
    """All methods raise TableError."""

    # ---- table entries (all raise TableError) -----------------------------------------------------------------

    def insert(self, entry: TableEntry) -> None:
        """Add an entry. ALREADY_EXISTS when one with the same match and priority is there."""
        with self._lock:
            table = self._writable(entry)
            if entry.is_default:
                raise TableError("INVALID_ARGUMENT", f"{table.name}: the default entry can only be modified")
            if entry.action is None:
                raise TableError("INVALID_ARGUMENT", f"{table.name}: an entry needs an action")
            self._write(native.INSERT, table, entry)

    def modify(self, entry: TableEntry) -> None:
        """Replace the action of an entry, or of the default entry. NOT_FOUND.

        `counter`, if given, is set as well; without an action only it is. A default entry with neither goes back
        to the program's own default action.
        """
        with self._lock:
            table = self._writable(entry)
            if entry.is_default:
                self._write_default(table, entry)
            elif entry.action is None and entry.counter is None:
                raise TableError("INVALID_ARGUMENT", f"{table.name}: an entry needs an action")
            else:
                self._write(native.MODIFY, table, entry)

    def delete(self, entry: TableEntry) -> None:
        """Remove the entry with that match and priority; its action is ignored. NOT_FOUND."""
        with self._lock:
            table = self._writable(entry)
            if entry.is_default:
                raise TableError("INVALID_ARGUMENT", f"{table.name}: the default entry cannot be deleted")
            self._write(native.DELETE, table, entry)

    def read(self, table_id: int = 0, *, defaults: bool = False) -> Iterator[TableEntry]:
        """All entries of a table, of all tables when 0; with `defaults` also the default entries (first).

        A snapshot taken at the call. Order: as inserted.
        """
        with self._lock:
            schema = self.schema
            tables = [schema.find(schema.tables, table_id, "table")] if table_id else list(schema.tables.values())
            out: list[TableEntry] = []
            for table in tables:
                entries = self._read_table(table, None, None, 0)
                out.extend(entries if defaults else entries[1:])
        return iter(out)

    def read_one(self, entry: TableEntry) -> TableEntry:
        """The entry with the match and priority (or the default entry) of `entry`. NOT_FOUND."""
        with self._lock:
            table = self.schema.find(self.schema.tables, entry.table_id, "table")
            if entry.is_default:
                return self._read_table(table, None, None, 0)[0]
            key, aux = self.schema.encode_match(table, entry)
            found = self._read_table(table, key, aux, entry.priority)
            if not found:
                raise TableError("NOT_FOUND", f"{table.name}: no such entry")
            return found[0]

    def _writable(self, entry: TableEntry) -> Table:
        table = self.schema.find(self.schema.tables, entry.table_id, "table")
        counter_only = entry.action is None and entry.counter is not None
        if entry.is_default and (entry.match or entry.priority):
            raise TableError("INVALID_ARGUMENT", f"{table.name}: a default entry has no match and no priority")
        if table.constant and not entry.is_default and not counter_only:
            raise TableError("PERMISSION_DENIED", f"{table.name}: its entries are const in the program")
        if entry.counter is not None and not table.direct_counter:
            raise TableError("INVALID_ARGUMENT", f"{table.name}: has no direct counter")
        return table

    def _encode_ref(self, table: Table, entry: TableEntry) -> tuple[int, int, bytes]:
        """(kind, reference, parameter bytes) of an entry's action."""
        action, schema = entry.action, self.schema
        if action is None:
            return native.KIND_NONE, 0, b""
        if isinstance(action, ActionCall):
            if table.profile_id and not entry.is_default:
                profile = schema.profiles[table.profile_id]
                raise TableError(
                    "INVALID_ARGUMENT",
                    f"{table.name}: takes its actions from {profile.name}: give a member or group",
                )
            wrong = TABLE_ONLY if entry.is_default else DEFAULT_ONLY
            allowed = [a for a, scope in table.actions.items() if scope != wrong]
            return (native.KIND_ACTION, *schema.encode_action(action, table.name, allowed))
        if not table.profile_id:
            raise TableError("INVALID_ARGUMENT", f"{table.name}: has no action profile: give an action")
        if isinstance(action, GroupRef):
            if not schema.profiles[table.profile_id].selector:
                raise TableError("INVALID_ARGUMENT", f"{table.name}: has no action selector: give a member")
            return native.KIND_GROUP, uint32(action.group_id, f"{table.name}: group id"), b""
        return native.KIND_MEMBER, uint32(action.member_id, f"{table.name}: member id"), b""

    def _write(self, op: int, table: Table, entry: TableEntry) -> None:
        key, aux = self.schema.encode_match(table, entry)
        kind, ref, block = (native.KIND_NONE, 0, b"") if op == native.DELETE else self._encode_ref(table, entry)
        count = None if entry.counter is None else ctypes.byref(cell_in(table.direct_counter, entry.counter))
        error = self._lib.rt_entry_write(
            self.handle, op, table.index, key, aux, entry.priority, kind, ref, block, count
        )
        if error == native.INVALID:
            self._raise_missing_ref(table, entry)
        check(error, table.name, "entry", f"has room for {table.size} entries")

    def _write_default(self, table: Table, entry: TableEntry) -> None:
        kind, ref, block = self._encode_ref(table, entry)
        keep = entry.action is None and entry.counter is not None
        if table.const_default and not keep:
            raise TableError("PERMISSION_DENIED", f"{table.name}: its default action is const in the program")
        count = None if entry.counter is None else ctypes.byref(cell_in(table.direct_counter, entry.counter))
        error = self._lib.rt_default_write(self.handle, table.index, keep, kind, ref, block, count)
        if error == native.INVALID:
            self._raise_missing_ref(table, entry)
        check(error, table.name, "entry", "")

    def _raise_missing_ref(self, table: Table, entry: TableEntry) -> None:
        profile = self.schema.profiles[table.profile_id]
        if isinstance(entry.action, GroupRef):
            has = ", ".join(str(g.group_id) for g in self.read_groups(profile.id))
            what = f"group {entry.action.group_id}"
        else:
            has = ", ".join(str(m.member_id) for m in self.read_members(profile.id))
            what = f"member {getattr(entry.action, 'member_id', None)}"
        raise TableError("NOT_FOUND", f"{table.name}: no {what} in {profile.name} (has: {has or 'none'})")

    def _read_table(self, table: Table, key: bytes | None, aux: bytes | None, priority: int) -> list[TableEntry]:
        """Snapshot of a table, default entry first; or of one entry (empty when it is not there)."""
        count, block = native.take_block(self._lib.rt_table_read, self.handle, table.index, key, aux, priority)
        check(min(count, 0), table.name, "table", "")
        out, at, key_bytes = [], 0, table.key_bytes
        for position in range(count):
            prio, kind, ref, params_bytes, packets, octets = _VIEW_HEAD.unpack_from(block, at)
            at += _VIEW_HEAD.size
            is_default = key is None and position == 0
            match = ()
            if not is_default:
                match = self.schema.decode_match(
                    table, block[at : at + key_bytes], block[at + key_bytes : at + 2 * key_bytes]
                )
            at += 2 * key_bytes
            action: ActionCall | MemberRef | GroupRef | None = None
            if kind == native.KIND_ACTION:
                action = self.schema.decode_action(ref, block[at : at + params_bytes])
            elif kind != native.KIND_NONE:
                action = (MemberRef if kind == native.KIND_MEMBER else GroupRef)(ref)
            at += params_bytes
            counter = counter_out(table.direct_counter, packets, octets) if table.direct_counter else None
            out.append(TableEntry(table.id, match, action, prio, is_default, counter))
        return out

    # ---- value sets ---------------------------------------------------------------------------------------------

    def write_value_set(self, entry: ValueSet) -> None:
        """Replace all members. INVALID_ARGUMENT, RESOURCE_EXHAUSTED; the old members stay then."""
        with self._lock:
            found = self.schema.find(self.schema.value_sets, entry.value_set_id, "value set")
            if len(entry.members) > found.size:
                raise TableError("RESOURCE_EXHAUSTED", f"{found.name}: has room for {found.size} members")
            priority = 1 if found.needs_priority else 0
            wanted = [TableEntry(found.id, match, None, priority) for match in entry.members]
            keys = [self.schema.encode_match(found, one) for one in wanted]
            if len(set(keys)) != len(keys):
                raise TableError("INVALID_ARGUMENT", f"{found.name}: a member is given twice")
            for old in self._read_table(found, None, None, 0)[1:]:
                key, aux = self.schema.encode_match(found, old)
                self._lib.rt_entry_write(
                    self.handle, native.DELETE, found.index, key, aux, old.priority, native.KIND_NONE, 0, b"", None
                )
            for key, aux in keys:
                error = self._lib.rt_entry_write(
                    self.handle, native.INSERT, found.index, key, aux, priority, native.KIND_NONE, 0, b"", None
                )
                check(error, found.name, "member", f"has room for {found.size} members")

    def read_value_set(self, value_set_id: int) -> ValueSet:
        """Its members. INVALID_ARGUMENT."""
        with self._lock:
            found = self.schema.find(self.schema.value_sets, value_set_id, "value set")
            return ValueSet(found.id, tuple(one.match for one in self._read_table(found, None, None, 0)[1:]))
