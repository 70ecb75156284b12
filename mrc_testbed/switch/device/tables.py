"""Table entries and value sets of a device (switch/device/device.py)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from mrc_testbed.switch.device import native
from mrc_testbed.switch.device.action_profiles import ActionProfiles, check_weights
from mrc_testbed.switch.device.arrays import Arrays, cell_in, counter_out
from mrc_testbed.switch.device.entities import (
    ActionCall,
    ActionSet,
    GroupRef,
    MemberRef,
    SetMember,
    TableEntry,
    TableError,
    ValueSetMembers,
)
from mrc_testbed.switch.device.schema import TableSchema
from mrc_testbed.switch.device.state import DeviceState, check, uint32

_VIEW_HEAD = struct.Struct("=iIIIQQQQQII")  # struct rt_entry_view
_SET_HEAD = struct.Struct("=IIiI")  # struct rt_set_head
_Notes = tuple[bytes, int]
"""TableEntry.metadata and .cookie."""
TIMEOUT_MAX_NS = 1 << 62


class DeviceTables:
    """The table entries and value sets of a device. All methods raise TableError.

    Entries refer to members and groups of `profiles`; direct meters are cells of `arrays`.
    """

    def __init__(self, state: DeviceState, profiles: ActionProfiles, arrays: Arrays) -> None:
        self._state = state
        self._profiles = profiles
        self._arrays = arrays
        self._notes: dict[tuple[int, bytes, bytes, int], _Notes] = {}
        """Notes by table index, key, aux and priority; the default entry has an empty key, and -1."""

    def forget(self) -> None:
        """Know nothing of entries: the C device has lost them with its program."""
        self._notes = {}

    def take_over(self, source: DeviceTables) -> None:
        """Move the notes of `source` here: the C device has taken its program over."""
        self._notes = source._notes
        source.forget()

    # ---- table entries ----------------------------------------------------------------------------------------

    def insert(self, entry: TableEntry) -> None:
        """Add an entry. ALREADY_EXISTS when one with the same match and priority is there."""
        self.prepare(native.INSERT, entry)()

    def modify(self, entry: TableEntry) -> None:
        """Give an entry, or the default entry, what `entry` says: see TableEntry. NOT_FOUND."""
        self.prepare(native.MODIFY, entry)()

    def delete(self, entry: TableEntry) -> None:
        """Remove the entry with that match and priority; nothing else of `entry` is looked at. NOT_FOUND."""
        self.prepare(native.DELETE, entry)()

    def prepare(self, op: int, entry: TableEntry) -> Callable[[], None]:
        """Check an operation; return the callable that does it, quick enough for a batch in `packets_paused`."""
        with self._state.lock:
            table = self._writable(op, entry)
            if entry.is_default:
                return partial(self._write_default, table, entry, *self._encode_ref(table, entry))
            key, aux = self._state.schema.encode_match(table, entry)
            if op == native.DELETE:
                return partial(self._delete, table, entry, key, aux)
            if op == native.INSERT and entry.action is None:
                raise TableError("INVALID_ARGUMENT", f"{table.name}: an entry needs an action")
            return partial(self._write, op, table, entry, key, aux, *self._encode_ref(table, entry))

    def read(self, table_id: int = 0, *, defaults: bool = False) -> Iterator[TableEntry]:
        """All entries of a table, of all tables when 0; with `defaults` also the default entries (first).

        A snapshot taken at the call. Order: as inserted.
        """
        with self._state.lock:
            schema = self._state.schema
            tables = [schema.find(schema.tables, table_id, "table")] if table_id else list(schema.tables.values())
            out: list[TableEntry] = []
            for table in tables:
                entries = self._read_table(table, None, None, 0)
                out.extend(entries if defaults else entries[1:])
        return iter(out)

    def read_one(self, entry: TableEntry) -> TableEntry:
        """The entry with the match and priority (or the default entry) of `entry`. NOT_FOUND."""
        with self._state.lock:
            table = self._state.schema.find(self._state.schema.tables, entry.table_id, "table")
            if entry.is_default:
                return self._read_table(table, None, None, 0)[0]
            key, aux = self._state.schema.encode_match(table, entry)
            entries = self._read_table(table, key, aux, entry.priority)
            if not entries:
                raise TableError("NOT_FOUND", f"{table.name}: no such entry")
            return entries[0]

    def _writable(self, op: int, entry: TableEntry) -> TableSchema:
        schema = self._state.schema
        table = schema.tables.get(entry.table_id) or schema.find(schema.tables, entry.table_id, "table")
        if entry.is_default:
            if op != native.MODIFY:
                raise TableError("INVALID_ARGUMENT", f"{table.name}: the default entry can only be modified")
            if entry.match or entry.priority:
                raise TableError("INVALID_ARGUMENT", f"{table.name}: a default entry has no match and no priority")
        elif table.constant and (op != native.MODIFY or entry.action is not None):
            raise TableError("PERMISSION_DENIED", f"{table.name}: its entries are const in the program")
        if op == native.DELETE:
            return table
        if entry.counter is not None and not table.direct_counter:
            raise TableError("INVALID_ARGUMENT", f"{table.name}: has no direct counter")
        if entry.idle_timeout_ns and (entry.is_default or not table.idle_timeout):
            reason = "a default entry has" if entry.is_default else "without support_timeout in the program it has"
            raise TableError("INVALID_ARGUMENT", f"{table.name}: {reason} no idle timeout")
        if not 0 <= entry.idle_timeout_ns < TIMEOUT_MAX_NS:
            text = f"idle timeout {entry.idle_timeout_ns} ns is not in 0..2**62-1"
            raise TableError("INVALID_ARGUMENT", f"{table.name}: {text}")
        return table

    def _encode_ref(self, table: TableSchema, entry: TableEntry) -> tuple[int, int, bytes]:
        """(kind, reference, parameter bytes) of an entry's action."""
        action, schema = entry.action, self._state.schema
        if action is None:
            return native.KIND_NONE, 0, b""
        if isinstance(action, ActionCall):
            if table.profile_id and not entry.is_default:
                profile = schema.profiles[table.profile_id]
                text = f"takes its actions from {profile.name}: give a member or group"
                raise TableError("INVALID_ARGUMENT", f"{table.name}: {text}")
            action_ids = table.default_actions if entry.is_default else table.entry_actions
            if action.action_id not in action_ids:
                schema.check_scope(table, action, entry.is_default)
            return (native.KIND_ACTION, *schema.encode_action(action, table.name, action_ids))
        if not table.profile_id:
            raise TableError("INVALID_ARGUMENT", f"{table.name}: has no action profile: give an action")
        if entry.is_default:
            raise TableError("INVALID_ARGUMENT", f"{table.name}: its default entry takes an action only")
        if isinstance(action, MemberRef):
            return native.KIND_MEMBER, uint32(action.member_id, f"{table.name}: member id"), b""
        if not schema.profiles[table.profile_id].selector:
            raise TableError("INVALID_ARGUMENT", f"{table.name}: has no action selector: give a member")
        if isinstance(action, ActionSet):
            return native.KIND_SET, len(action.members), self._encode_set(table, action)
        return native.KIND_GROUP, uint32(action.group_id, f"{table.name}: group id"), b""

    def _encode_set(self, table: TableSchema, actions: ActionSet) -> bytes:
        profile = self._state.schema.profiles[table.profile_id]
        slots = [(member.weight, member.watch_port) for member in actions.members]
        check_weights(profile, f"{table.name}: one-shot action set", slots, 0, "INVALID_ARGUMENT")
        out = b""
        for member in actions.members:
            self._state.schema.check_scope(table, member.action, False)
            index, block = self._state.schema.encode_action(member.action, table.name, table.entry_actions)
            port = -1 if member.watch_port is None else member.watch_port
            out += _SET_HEAD.pack(index, member.weight, port, len(block)) + block
        return out

    def _decode_set(self, count: int, block: bytes) -> ActionSet:
        out, offset = [], 0
        for _ in range(count):
            index, weight, port, size = _SET_HEAD.unpack_from(block, offset)
            offset += _SET_HEAD.size
            call = self._state.schema.decode_action(index, block[offset : offset + size])
            out.append(SetMember(call, weight, None if port < 0 else port))
            offset += size
        return ActionSet(tuple(out))

    def _write(
        self, op: int, table: TableSchema, entry: TableEntry, key: bytes, aux: bytes, kind: int, ref: int, block: bytes
    ) -> None:
        with self._state.lock:
            entry_key = (table.index, key, aux, entry.priority)
            if self._state.in_transaction and op != native.INSERT:
                self._note_entry(op, entry_key)
            extras = None
            if entry.counter is not None or table.idle_timeout:
                extras = native.WriteExtras(native.GIVEN_TIMEOUT, native.Cell(), entry.idle_timeout_ns)
                if entry.counter is not None:
                    extras.flags |= native.GIVEN_COUNT
                    extras.count = cell_in(table.direct_counter, entry.counter)
            error = self._state.lib.rt_entry_write(self._state.handle, op, *entry_key, kind, ref, block, extras)
            if error:
                self._refuse(error, table, entry)
            self._keep_notes(entry_key, entry)
            if self._state.in_transaction and op == native.INSERT:
                self._state.on_undo(
                    partial(self._raw_write, native.DELETE, entry_key, (native.KIND_NONE, 0, b""), None, None)
                )

    def _delete(self, table: TableSchema, entry: TableEntry, key: bytes, aux: bytes) -> None:
        with self._state.lock:
            entry_key = (table.index, key, aux, entry.priority)
            if self._state.in_transaction:
                self._note_entry(native.DELETE, entry_key)
            error = self._state.lib.rt_entry_write(
                self._state.handle, native.DELETE, *entry_key, native.KIND_NONE, 0, b"", None
            )
            check(error, table.name, "entry", "")
            self._notes.pop(entry_key, None)

    def _write_default(self, table: TableSchema, entry: TableEntry, kind: int, ref: int, block: bytes) -> None:
        with self._state.lock:
            keep = entry.action is None and entry.counter is not None
            if table.const_default and not keep:
                raise TableError("PERMISSION_DENIED", f"{table.name}: its default action is const in the program")
            reset = entry.action is None and not keep
            if self._state.in_transaction:
                self._note_default(table)
            extras = None
            if entry.counter is not None or reset:
                count = cell_in(table.direct_counter, entry.counter) if entry.counter is not None else native.Cell()
                extras = native.WriteExtras(native.GIVEN_COUNT, count)
            error = self._state.lib.rt_default_write(self._state.handle, table.index, keep, kind, ref, block, extras)
            if error:
                self._refuse(error, table, entry)
            if reset and table.id in self._state.schema.tables_with_meter:
                self._arrays.write_direct_meter(entry, None)
            if not keep:
                self._keep_notes((table.index, b"", b"", -1), entry)

    def _keep_notes(self, entry_key: tuple[int, bytes, bytes, int], entry: TableEntry) -> None:
        if entry.metadata or entry.cookie:
            self._notes[entry_key] = (entry.metadata, entry.cookie)
        elif self._notes:
            self._notes.pop(entry_key, None)

    def _refuse(self, error: int, table: TableSchema, entry: TableEntry) -> None:
        if error == native.INVALID and table.profile_id and isinstance(entry.action, (MemberRef, GroupRef)):
            profile = self._state.schema.profiles[table.profile_id]
            if isinstance(entry.action, GroupRef):
                has = ", ".join(str(g.group_id) for g in self._profiles.read_groups(profile.id))
                missing_name = f"group {entry.action.group_id}"
            else:
                has = ", ".join(str(m.member_id) for m in self._profiles.read_members(profile.id))
                missing_name = f"member {entry.action.member_id}"
            raise TableError("NOT_FOUND", f"{table.name}: no {missing_name} in {profile.name} (has: {has or 'none'})")
        room = f"has room for {table.size} entries"
        if isinstance(entry.action, ActionSet) and error == native.NO_ROOM:
            room = f"no room in the table, or for {len(entry.action.members)} more members in its action selector"
        check(error, table.name, "entry", room)

    # ---- what takes a write back (DeviceState.transaction) -------------------------------------------------------

    def _note_entry(self, op: int, entry_key: tuple[int, bytes, bytes, int]) -> None:
        """Record an entry before it is modified or deleted, so that a rollback writes it again."""
        count, block = native.take_block(self._state.lib.rt_table_read, self._state.handle, *entry_key)
        if count == native.NO_MEMORY:  # what cannot be taken back is not done
            check(count, self._state.name, "entry", "")
        if count < 1:
            return
        _, kind, ref, size, packets, octets, timeout_ns, hit_us, _, constant, _ = _VIEW_HEAD.unpack_from(block)
        act = (native.KIND_NONE, 0, b"") if constant else (kind, ref, block[len(block) - size :])
        extras = native.WriteExtras(7, native.Cell(packets, octets), timeout_ns, hit_us)
        meter = self._arrays.raw_meter(entry_key, None)
        inverse_op, notes = native.INVERSE[op], self._notes.get(entry_key)
        self._state.on_undo(lambda: self._raw_write(inverse_op, entry_key, act, (extras, notes), meter))

    def _note_default(self, table: TableSchema) -> None:
        entry_key = (table.index, b"", b"", -1)
        count, block = native.take_block(self._state.lib.rt_table_read, self._state.handle, table.index, None, None, 0)
        check(min(count, 0), table.name, "default action", "")
        _, kind, ref, size, packets, octets, *_ = _VIEW_HEAD.unpack_from(block)
        head = _VIEW_HEAD.size + 2 * table.key_bytes
        params, extras = block[head : head + size], native.WriteExtras(native.GIVEN_COUNT, native.Cell(packets, octets))
        meter, notes = self._arrays.raw_meter(entry_key, None), self._notes.get(entry_key)

        def restore() -> None:
            self._state.lib.rt_default_write(self._state.handle, table.index, False, kind, ref, params, extras)
            self._arrays.raw_meter(entry_key, meter)
            self._raw_notes(entry_key, notes)

        self._state.on_undo(restore)

    def _raw_write(
        self,
        op: int,
        entry_key: tuple[int, bytes, bytes, int],
        act: tuple[int, int, bytes],
        previous: tuple[native.WriteExtras, _Notes | None] | None,
        meter: native.MeterCell | None,
    ) -> None:
        extras, notes = previous or (None, None)
        self._state.lib.rt_entry_write(self._state.handle, op, *entry_key, *act, extras)
        if meter is not None:
            self._arrays.raw_meter(entry_key, meter)
        self._raw_notes(entry_key, notes)

    def _raw_notes(self, entry_key: tuple[int, bytes, bytes, int], notes: _Notes | None) -> None:
        self._notes.pop(entry_key, None)
        if notes is not None:
            self._notes[entry_key] = notes

    # ---- reading ------------------------------------------------------------------------------------------------

    def _read_table(self, table: TableSchema, key: bytes | None, aux: bytes | None, priority: int) -> list[TableEntry]:
        """Snapshot of a table, default entry first; or of one entry (empty when it is not there)."""
        count, block = native.take_block(
            self._state.lib.rt_table_read, self._state.handle, table.index, key, aux, priority
        )
        check(min(count, 0), table.name, "table", "")
        return self._decode_views(count, block, {table.index: table}, key is None)

    def _decode_views(
        self, count: int, block: bytes, tables: dict[int, TableSchema], default_first: bool
    ) -> list[TableEntry]:
        out, offset = [], 0
        decode_match, decode_action, notes = (
            self._state.schema.decode_match,
            self._state.schema.decode_action,
            self._notes,
        )
        for position in range(count):
            head = _VIEW_HEAD.unpack_from(block, offset)
            priority, kind, ref, params_bytes, packets, octets, timeout_ns, _, idle_us, constant, index = head
            offset += _VIEW_HEAD.size
            table = tables[index]
            is_default = default_first and position == 0
            middle, end = offset + table.key_bytes, offset + 2 * table.key_bytes
            # The default entry has no match; the bytes of its key are without meaning.
            key, aux = (b"", b"") if is_default else (block[offset:middle], block[middle:end])
            offset = end + params_bytes
            action: ActionCall | MemberRef | GroupRef | ActionSet | None = None
            if kind == native.KIND_ACTION:
                action = decode_action(ref, block[end:offset])
            elif kind == native.KIND_SET:
                action = self._decode_set(ref, block[end:offset])
            elif kind != native.KIND_NONE:
                action = (MemberRef if kind == native.KIND_MEMBER else GroupRef)(ref)
            counter = counter_out(table.direct_counter, packets, octets) if table.direct_counter else None
            match = () if is_default else decode_match(table, key, aux)
            idle_ns = idle_us * 1000 if table.idle_timeout and not is_default else None
            entry = TableEntry(
                table.id, match, action, priority, is_default, counter, timeout_ns, b"", 0, idle_ns, bool(constant)
            )
            # Metadata and cookie are not in the runtime; most devices have none, and then replace() would only cost.
            if notes:
                metadata, cookie = notes.get((index, key, aux, -1 if is_default else priority), (b"", 0))
                entry = replace(entry, metadata=metadata, cookie=cookie)
            out.append(entry)
        return out

    def take_idle(self) -> tuple[list[TableEntry], float | None]:
        """Return the entries that timed out idle, each once per timeout, and the seconds to the next.

        Seconds None: no entry can time out.
        """
        with self._state.lock:
            wait_us = ctypes.c_uint64()
            tables = {table.index: table for table in self._state.schema.tables.values()}
            count, block = native.take_block(self._state.lib.rt_idle_take, self._state.handle, ctypes.byref(wait_us))
            check(min(count, 0), self._state.name, "idle entries", "")
            entries = self._decode_views(count, block, tables, False)
        return entries, None if wait_us.value == native.NEVER_DUE else wait_us.value / 1e6

    # ---- value sets ---------------------------------------------------------------------------------------------

    def write_value_set(self, entry: ValueSetMembers) -> None:
        """Replace all members of a value set, or none when it raises.

        INVALID_ARGUMENT, RESOURCE_EXHAUSTED, ALREADY_EXISTS.
        """
        with self._state.packets_paused():
            value_set = self._state.schema.find(self._state.schema.value_sets, entry.value_set_id, "value set")
            if len(entry.members) > value_set.size:
                raise TableError("RESOURCE_EXHAUSTED", f"{value_set.name}: has room for {value_set.size} members")
            priority = 1 if value_set.needs_priority else 0
            new_entries = [TableEntry(value_set.id, match, None, priority) for match in entry.members]
            keys = [self._state.schema.encode_match(value_set, new_entry) for new_entry in new_entries]
            if len(set(keys)) != len(keys):
                raise TableError("ALREADY_EXISTS", f"{value_set.name}: a member is given twice")
            # The first entry read is the default entry, which is no member.
            previous = self._read_table(value_set, None, None, 0)[1:]
            previous_keys = [self._state.schema.encode_match(value_set, old_entry) for old_entry in previous]
            # Deletion precedes insertion because a full set has no room for both lists.
            for key in previous_keys:
                self._write_member(native.DELETE, value_set, key)
            inserted_keys = []
            try:
                for key in keys:
                    self._write_member(native.INSERT, value_set, key)
                    inserted_keys.append(key)
            except TableError:
                # The previous members fitted before, so they fit again once the new ones are deleted.
                for key in inserted_keys:
                    self._write_member(native.DELETE, value_set, key)
                for key in previous_keys:
                    self._write_member(native.INSERT, value_set, key)
                raise
            self._state.on_undo(
                partial(
                    self.write_value_set,
                    ValueSetMembers(value_set.id, tuple(old_entry.match for old_entry in previous)),
                )
            )

    def _write_member(self, op: int, value_set: TableSchema, key: tuple[bytes, bytes]) -> None:
        """Insert or delete one member of a value set. RESOURCE_EXHAUSTED."""
        priority = 1 if value_set.needs_priority else 0
        error = self._state.lib.rt_entry_write(
            self._state.handle, op, value_set.index, *key, priority, native.KIND_NONE, 0, b"", None
        )
        check(error, value_set.name, "member", f"has room for {value_set.size} members")

    def read_value_set(self, value_set_id: int) -> ValueSetMembers:
        """Return the members of a value set. INVALID_ARGUMENT."""
        with self._state.lock:
            value_set = self._state.schema.find(self._state.schema.value_sets, value_set_id, "value set")
            return ValueSetMembers(
                value_set.id, tuple(entry.match for entry in self._read_table(value_set, None, None, 0)[1:])
            )
