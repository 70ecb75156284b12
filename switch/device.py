"""One P4 device: a loaded program with its tables, and an in-memory door to push packets through it.

    device = Device(1, "p0-t0-0")
    device.load(compile_program("p4src/srv6.p4"))
    match = FieldMatch.exact(1, b"\\x23\\x01")
    device.insert(TableEntry(table_id, (match,), ActionCall(action_id, ((1, b"\\x07"),))))
    assert device.process(1, frame) == [(7, other_frame)]

All state lives in the C runtime (switch/runtime); this class checks what callers ask against the program's P4Info
and translates. Every method may be called from any thread while the event loop (switch.loop) forwards packets:
each takes the device's lock, which the loop gives up at the latest after one batch of frames. An operation is done
whole or not at all.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from switch import native
from switch.entities import (
    ActionCall,
    CloneSession,
    CounterData,
    DeviceStats,
    Digest,
    Group,
    GroupMember,
    GroupRef,
    Member,
    MemberRef,
    MeterConfig,
    MulticastGroup,
    TableEntry,
    TableError,
    ValueSet,
)
from switch.schema import DEFAULT_ONLY, TABLE_ONLY, Array, Profile, Schema, Table, check_replication
from switch.traffic import DeviceTraffic

if TYPE_CHECKING:
    from finsy.proto import p4i

    from switch.loop import EventLoop
    from switch.trace import Trace

CPU_PORT = 510
"""Port of packet-in and packet-out; the event loop can be told another."""
DROP_PORT = 511

MAX_WEIGHT = 65536
"""Largest sum of weights of a group whose selector sets no bound."""

PROCESS_ROOM = 1 << 20
"""Bytes that `process` may give back for one packet, with its copies."""

_VIEW_HEAD = struct.Struct("=iIIIQQ")  # struct rt_entry_view
_COLLECTED_HEAD = struct.Struct("=QII")  # struct rt_collected_head
_DIGEST_HEAD = struct.Struct("=IIQ")  # struct rt_digest_head
_WORDS3 = struct.Struct("=III")


class Program(Protocol):
    """What `load` needs of a compiled program; switch.p4.CompiledProgram is one."""

    name: str
    library: Path
    p4info: p4i.P4Info


class Device:
    """A device without a program drops everything; `load` gives it one, with empty tables.

    `device_id` is P4Runtime's, `name` appears in messages. `seed` makes the program's random() repeatable.
    """

    def __init__(self, device_id: int, name: str = "", *, seed: int = 0):
        self.device_id = device_id
        self.name = name or f"device {device_id}"
        self._lib = native.runtime()
        self._handle = self._lib.rt_device_create(device_id & 0xFFFF_FFFF, seed & (1 << 64) - 1)
        if not self._handle:
            raise MemoryError(f"{self.name}: out of memory")
        self._lock = threading.RLock()
        self._program: Any = None
        self._schema: Schema | None = None
        self._multicast: dict[int, MulticastGroup] = {}
        self._sessions: dict[int, CloneSession] = {}
        self._out = threading.local()
        self.ports_lock = threading.Lock()
        """Held by the event loop while it opens or closes ports of this device."""
        self.loop: EventLoop | None = None
        """The event loop it is attached to; set by that."""
        self.virtual = False
        """It has been given a virtual clock, and no event loop takes it any more."""
        self.traffic = DeviceTraffic(self)
        """Rates, queues and cables of its ports."""

    # ---- program ----------------------------------------------------------------------------------------------

    def load(self, program: Program) -> None:
        """Run `program` (anything with .name, .library and .p4info) from now on, all state as it begins.

        Raises TableError INVALID_ARGUMENT when library and P4Info disagree or the library cannot be opened; the
        previous program stays in place then.
        """
        with self._lock:
            trial = self._lib.rt_device_create(0, 0)
            try:
                self._load_into(trial, program)
                schema = Schema(program.p4info, self._lib.rt_device_program(trial).contents)
            finally:
                self._lib.rt_device_destroy(trial)
            self._load_into(self._handle, program)
            self._program, self._schema = program, schema
            self._multicast, self._sessions = {}, {}

    def _load_into(self, handle: int, program: Program) -> None:
        why = ctypes.create_string_buffer(512)
        if self._lib.rt_device_load(handle, str(program.library).encode(), why, len(why)):
            reason = why.value.decode(errors="replace")
            raise TableError("INVALID_ARGUMENT", f"{self.name}: cannot load {program.name}: {reason}")

    def unload(self) -> None:
        """Forget program and state: what a switch without power remembers."""
        with self._lock:
            self._program = self._schema = None
            self._lib.rt_device_unload(self._handle)

    def close(self) -> None:
        """Detach from the event loop and free everything; the object is dead after it. May be called twice."""
        if self.loop is not None:
            self.loop.detach(self)
        with self._lock:
            handle, self._handle = self._handle, None
            self._program = self._schema = None
            if handle:
                self._lib.rt_device_destroy(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._lib.rt_device_destroy(self._handle)

    @property
    def program(self) -> Program | None:
        """The loaded program, or None."""
        return self._program

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

    # ---- packets ----------------------------------------------------------------------------------------------

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Push one frame in at `port`; the (port, frame) pairs that come out, in order.

        At once and past the traffic manager: no queue, no cable, whatever is set (`inject` has those). Frames to the
        CPU port come out as port 510 like any other. Raises ValueError for a port beyond 0..510.
        """
        _check_port(port)
        out = getattr(self._out, "buffer", None)
        if out is None:
            out = self._out.buffer = ctypes.create_string_buffer(PROCESS_ROOM)
        written = self._lib.rt_device_process(self.handle, port, bytes(frame), len(frame), out, PROCESS_ROOM)
        if written == native.FULL:
            raise ValueError(f"{self.name}: the copies of a packet take more than {PROCESS_ROOM} bytes: use inject")
        frames, at, base = [], 0, ctypes.addressof(out)
        while at < written:
            to, length = struct.unpack_from("=II", out, at)
            frames.append((to, ctypes.string_at(base + at + 8, length)))
            at += 8 + length
        return frames

    def inject(self, port: int, frame: bytes, now_ns: int) -> None:
        """Under a virtual clock: a frame reaches `port` at `now_ns`; `advance` gives what comes out, and when.

        The first call of either begins the device's virtual time at 0; all its timestamps are of that clock then.
        Raises ValueError when the clock is past `now_ns`, or an event loop moves the device.
        """
        _check_port(port)
        self._check_clock(now_ns)
        error = self._lib.rt_device_inject(self.handle, port, bytes(frame), len(frame), now_ns)
        self._check_time(error, now_ns)

    def advance(self, now_ns: int) -> list[tuple[int, int, bytes]]:
        """Let virtual time pass until `now_ns`: (time in ns, port, frame) of all that came out since the last call."""
        self._check_clock(now_ns)
        count, block = native.take_block(self._lib.rt_device_advance, self.handle, now_ns)
        self._check_time(min(count, 0), now_ns)
        out, at = [], 0
        for _ in range(count):
            at_ns, port, length = _COLLECTED_HEAD.unpack_from(block, at)
            at += _COLLECTED_HEAD.size
            out.append((at_ns, port, block[at : at + length]))
            at += length
        return out

    @property
    def next_ns(self) -> int | None:
        """When `advance` has something to do next; None: nothing waits."""
        due = self._lib.rt_device_due(self.handle)
        return None if due == native.NEVER else due

    def _check_clock(self, now_ns: int) -> None:
        if self.loop is not None:
            raise ValueError(f"{self.name}: an event loop moves it; a virtual clock is for a device in memory")
        if not 0 <= now_ns < native.NEVER:
            raise ValueError(f"{self.name}: {now_ns} ns is no time (want 0 to 2**64 - 2)")
        self.virtual = True

    def _check_time(self, error: int, now_ns: int) -> None:
        if error == native.INVALID:
            raise ValueError(f"{self.name}: {now_ns} ns is before what has happened already")
        if error == native.NO_MEMORY:
            raise MemoryError(f"{self.name}: out of memory")

    def trace(self, port: int, frame: bytes) -> Trace:
        """As `process`, and tell each step of the packet's way; only in memory, not on an event loop's device.

        Raises TableError FAILED_PRECONDITION, ValueError as `process`.
        """
        from switch.trace import take_trace

        return take_trace(self, port, frame)

    def spin(self, port: int, frame: bytes, count: int) -> int:
        """Push a frame through the program `count` times, dropping what comes out; nanoseconds of CPU (benchmarks)."""
        return self._lib.rt_device_spin(self.handle, port, bytes(frame), len(frame), count)

    def set_port_up(self, port: int, up: bool) -> None:
        """Tell the device a port's state; selector members that watch it are left out at once while it is down.

        All ports count as up at first. The event loop calls this by itself for the ports it owns.
        """
        _check_port(port)
        self._lib.rt_device_port_state(self.handle, port, bool(up))

    def stats(self) -> DeviceStats:
        """Frame counts since load."""
        raw = native.Stats()
        self._lib.rt_device_stats(self.handle, ctypes.byref(raw))
        return DeviceStats(*(getattr(raw, name) for name, _ in native.Stats._fields_))

    # ---- digests ----------------------------------------------------------------------------------------------

    def digests(self) -> list[Digest]:
        """What programs sent by digest() since the last call, oldest first; at most 256 KiB wait, later ones are lost.

        An attached event loop's descriptor becomes readable when there are any.
        """
        with self._lock:
            if not self.digests_waiting or self._schema is None:
                return []
            count, block = native.take_block(self._lib.rt_digests_take, self.handle)
            ids = self._schema.digest_ids
        out, at = [], 0
        for _ in range(count):
            index, size, at_us = _DIGEST_HEAD.unpack_from(block, at)
            at += _DIGEST_HEAD.size
            out.append(Digest(ids[index], block[at : at + size], at_us))
            at += size
        return out

    @property
    def digests_waiting(self) -> int:
        """How many digests() would give."""
        return self._lib.rt_digests_waiting(self.handle)

    @property
    def digests_lost(self) -> int:
        """Digests that found the buffer full, since load."""
        return self._lib.rt_digests_lost(self.handle)

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
            return native.KIND_GROUP, _uint32(action.group_id, f"{table.name}: group id"), b""
        return native.KIND_MEMBER, _uint32(action.member_id, f"{table.name}: member id"), b""

    def _write(self, op: int, table: Table, entry: TableEntry) -> None:
        key, aux = self.schema.encode_match(table, entry)
        kind, ref, block = (native.KIND_NONE, 0, b"") if op == native.DELETE else self._encode_ref(table, entry)
        count = None if entry.counter is None else ctypes.byref(_cell(table.direct_counter, entry.counter))
        error = self._lib.rt_entry_write(
            self.handle, op, table.index, key, aux, entry.priority, kind, ref, block, count
        )
        if error == native.INVALID:
            self._raise_missing_ref(table, entry)
        _check(error, table.name, "entry", f"has room for {table.size} entries")

    def _write_default(self, table: Table, entry: TableEntry) -> None:
        kind, ref, block = self._encode_ref(table, entry)
        keep = entry.action is None and entry.counter is not None
        if table.const_default and not keep:
            raise TableError("PERMISSION_DENIED", f"{table.name}: its default action is const in the program")
        count = None if entry.counter is None else ctypes.byref(_cell(table.direct_counter, entry.counter))
        error = self._lib.rt_default_write(self.handle, table.index, keep, kind, ref, block, count)
        if error == native.INVALID:
            self._raise_missing_ref(table, entry)
        _check(error, table.name, "entry", "")

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
        _check(min(count, 0), table.name, "table", "")
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
            counter = _counter(table.direct_counter, packets, octets) if table.direct_counter else None
            out.append(TableEntry(table.id, match, action, prio, is_default, counter))
        return out

    # ---- action profiles --------------------------------------------------------------------------------------

    def insert_member(self, member: Member) -> None:
        """Add a member. ALREADY_EXISTS, RESOURCE_EXHAUSTED."""
        self._write_member(native.INSERT, member)

    def modify_member(self, member: Member) -> None:
        """Change a member's action; entries and groups that use it follow at once."""
        self._write_member(native.MODIFY, member)

    def delete_member(self, member: Member) -> None:
        """FAILED_PRECONDITION while an entry or a group uses it."""
        self._write_member(native.DELETE, member)

    def _write_member(self, op: int, member: Member) -> None:
        with self._lock:
            schema = self.schema
            profile = schema.find(schema.profiles, member.profile_id, "action profile")
            _uint32(member.member_id, f"{profile.name}: member id")
            index, block = 0, b""
            if op != native.DELETE:
                if member.action is None:
                    raise TableError("INVALID_ARGUMENT", f"{profile.name}: a member needs an action")
                index, block = schema.encode_action(member.action, profile.name, profile.actions)
            error = self._lib.rt_member_write(self.handle, op, profile.index, member.member_id, index, block)
            what = f"member {member.member_id}"
            _check(error, profile.name, what, f"has room for {profile.size} members")

    def read_members(self, profile_id: int = 0, member_id: int = 0) -> Iterator[Member]:
        """Members of a profile (0: of all), one of them when `member_id` is given (none if it does not exist)."""
        with self._lock:
            out = []
            for profile in self._profiles(profile_id):
                count, block = native.take_block(self._lib.rt_members_read, self.handle, profile.index)
                _check(min(count, 0), profile.name, "profile", "")
                at = 0
                for _ in range(count):
                    id_, action, size = _WORDS3.unpack_from(block, at)
                    at += _WORDS3.size
                    if member_id in (0, id_):
                        call = self.schema.decode_action(action, block[at : at + size])
                        out.append(Member(profile.id, id_, call))
                    at += size
        return iter(out)

    def insert_group(self, group: Group) -> None:
        """Add a group, with or without members. ALREADY_EXISTS, NOT_FOUND (a member), RESOURCE_EXHAUSTED."""
        self._write_group(native.INSERT, group)

    def modify_group(self, group: Group) -> None:
        """Replace the members of a group."""
        self._write_group(native.MODIFY, group)

    def delete_group(self, group: Group) -> None:
        """FAILED_PRECONDITION while an entry uses it."""
        self._write_group(native.DELETE, group)

    def _write_group(self, op: int, group: Group) -> None:
        with self._lock:
            schema = self.schema
            profile = schema.find(schema.profiles, group.profile_id, "action profile")
            if not profile.selector:
                raise TableError("INVALID_ARGUMENT", f"{profile.name}: is no action selector, so it has no groups")
            _uint32(group.group_id, f"{profile.name}: group id")
            if op != native.DELETE:
                self._check_places(profile, group)
            places = (native.Place * len(group.members))(
                *((m.member_id, m.weight, -1 if m.watch_port is None else m.watch_port) for m in group.members)
            )
            error = self._lib.rt_group_write(
                self.handle, op, profile.index, group.group_id, group.max_size, len(places), places
            )
            _check(error, profile.name, f"group {group.group_id}", "has room for no more groups")

    def _check_places(self, profile: Profile, group: Group) -> None:
        what = f"{profile.name}: group {group.group_id}"
        bound = profile.max_group_size or MAX_WEIGHT
        if not 0 <= group.max_size <= bound:
            raise TableError("INVALID_ARGUMENT", f"{what}: max_size {group.max_size} is not in 0..{bound}")
        known = {m.member_id for m in self.read_members(profile.id)}
        for place in group.members:
            if place.member_id not in known:
                has = ", ".join(map(str, sorted(known))) or "none"
                raise TableError("NOT_FOUND", f"{what}: no member {place.member_id} (has: {has})")
            if not 0 < place.weight <= MAX_WEIGHT:
                raise TableError("INVALID_ARGUMENT", f"{what}: weight {place.weight} is not in 1..{MAX_WEIGHT}")
            if place.watch_port is not None and not 0 <= place.watch_port < DROP_PORT:
                raise TableError("INVALID_ARGUMENT", f"{what}: watch port {place.watch_port} is not a port")
        if len({m.member_id for m in group.members}) != len(group.members):
            raise TableError("INVALID_ARGUMENT", f"{what}: a member is given twice")
        total = sum(m.weight for m in group.members)
        if total > (group.max_size or bound):
            raise TableError("RESOURCE_EXHAUSTED", f"{what}: weights sum to {total}, at most {group.max_size or bound}")

    def read_groups(self, profile_id: int = 0, group_id: int = 0) -> Iterator[Group]:
        """Groups of a profile (0: of all selectors), one of them when `group_id` is given."""
        with self._lock:
            out = []
            for profile in self._profiles(profile_id):
                count, block = native.take_block(self._lib.rt_groups_read, self.handle, profile.index)
                _check(min(count, 0), profile.name, "profile", "")
                at = 0
                for _ in range(count):
                    id_, max_size, n = _WORDS3.unpack_from(block, at)
                    at += _WORDS3.size
                    places = [struct.unpack_from("=IIi", block, at + 12 * i) for i in range(n)]
                    at += 12 * n
                    members = tuple(GroupMember(m, w, None if p < 0 else p) for m, w, p in places)
                    if group_id in (0, id_):
                        out.append(Group(profile.id, id_, members, max_size))
        return iter(out)

    def _profiles(self, profile_id: int) -> list[Profile]:
        schema = self.schema
        if profile_id:
            return [schema.find(schema.profiles, profile_id, "action profile")]
        return list(schema.profiles.values())

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
                _check(error, found.name, "member", f"has room for {found.size} members")

    def read_value_set(self, value_set_id: int) -> ValueSet:
        """Its members. INVALID_ARGUMENT."""
        with self._lock:
            found = self.schema.find(self.schema.value_sets, value_set_id, "value set")
            return ValueSet(found.id, tuple(one.match for one in self._read_table(found, None, None, 0)[1:]))

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
            replicas = (native.Replica * len(entry.replicas))(*((r.port, r.rid) for r in entry.replicas))
            extra = (entry.group_id, entry.class_of_service, entry.length) if session else (0, 0, 0)  # type: ignore
            keep = op != native.DELETE
            error = self._lib.rt_replication_write(self.handle, session, number, *extra, keep, len(replicas), replicas)
            if error:
                raise TableError("RESOURCE_EXHAUSTED", f"{what}: too many replicas, or no memory")
            if keep:
                known[number] = entry
            else:
                del known[number]

    # ---- counters and registers -------------------------------------------------------------------------------

    def read_counter(self, counter_id: int, index: int | None = None) -> list[tuple[int, CounterData]]:
        """(index, value) of one cell or of all. INVALID_ARGUMENT, OUT_OF_RANGE."""
        with self._lock:
            counter = self.schema.find(self.schema.counters, counter_id, "counter")
            first, count = _span(counter, index)
            cells = (native.Cell * count)()
            error = self._lib.rt_counter_cells(self.handle, counter.index, first, count, cells, 0)
        _check(error, counter.name, "cell", "")
        return [(first + i, _counter(counter.kind, cell.packets, cell.bytes)) for i, cell in enumerate(cells)]

    def write_counter(self, counter_id: int, index: int | None, value: CounterData) -> None:
        """Set one cell, or all when `index` is None."""
        with self._lock:
            counter = self.schema.find(self.schema.counters, counter_id, "counter")
            first, count = _span(counter, index)
            cells = (native.Cell * count)(*[_cell(counter.kind, value)] * count)
            error = self._lib.rt_counter_cells(self.handle, counter.index, first, count, cells, 1)
        _check(error, counter.name, "cell", "")

    def read_meter(self, meter_id: int, index: int | None = None) -> list[tuple[int, MeterConfig | None]]:
        """(index, configuration) of one cell or of all; None: not configured, always green."""
        with self._lock:
            meter = self.schema.find(self.schema.meters, meter_id, "meter")
            first, count = _span(meter, index)
            cells = (native.MeterCell * count)()
            error = self._lib.rt_meter_cells(self.handle, meter.index, first, count, cells, 0)
        _check(error, meter.name, "cell", "")
        return [(first + i, _meter_out(cell)) for i, cell in enumerate(cells)]

    def write_meter(self, meter_id: int, index: int | None, config: MeterConfig | None) -> None:
        """Configure one cell, or all when `index` is None; buckets are full then. None: always green."""
        with self._lock:
            meter = self.schema.find(self.schema.meters, meter_id, "meter")
            first, count = _span(meter, index)
            cells = (native.MeterCell * count)(*[_meter_in(config, meter.name)] * count)
            error = self._lib.rt_meter_cells(self.handle, meter.index, first, count, cells, 1)
        _check(error, meter.name, "cell", "")

    def read_direct_meter(self, entry: TableEntry) -> MeterConfig | None:
        """Configuration of the direct meter of the entry with this match and priority. NOT_FOUND, INVALID_ARGUMENT."""
        return self._direct_meter(entry, None, False)

    def write_direct_meter(self, entry: TableEntry, config: MeterConfig | None) -> None:
        """Configure it; None: always green."""
        self._direct_meter(entry, config, True)

    def _direct_meter(self, entry: TableEntry, config: MeterConfig | None, write: bool) -> MeterConfig | None:
        with self._lock:
            schema = self.schema
            table = schema.find(schema.tables, entry.table_id, "table")
            if table.id not in schema.metered:
                raise TableError("INVALID_ARGUMENT", f"{table.name}: has no direct meter")
            key, aux = (None, None) if entry.is_default else schema.encode_match(table, entry)
            cell = _meter_in(config, table.name) if write else native.MeterCell()
            error = self._lib.rt_entry_meter(
                self.handle, table.index, key, aux, entry.priority, ctypes.byref(cell), write
            )
        _check(error, table.name, "entry", "")
        return _meter_out(cell)

    def read_register(self, register_id: int, index: int | None = None) -> list[tuple[int, int]]:
        """(index, value) of one cell or of all. INVALID_ARGUMENT, OUT_OF_RANGE."""
        with self._lock:
            register = self.schema.find(self.schema.registers, register_id, "register")
            first, count = _span(register, index)
            cells = ctypes.create_string_buffer(16 * count)
            error = self._lib.rt_register_cells(self.handle, register.index, first, count, cells, 0)
        _check(error, register.name, "cell", "")
        raw = cells.raw
        return [(first + i, int.from_bytes(raw[16 * i : 16 * i + 16], "little")) for i in range(count)]

    def write_register(self, register_id: int, index: int | None, value: int) -> None:
        """Set one cell, or all when `index` is None. OUT_OF_RANGE also when the value does not fit."""
        with self._lock:
            register = self.schema.find(self.schema.registers, register_id, "register")
            if value < 0 or value >> register.kind:
                text = f"{register.name}: {value:#x} does not fit in {register.kind} bits"
                raise TableError("OUT_OF_RANGE", text)
            first, count = _span(register, index)
            cells = value.to_bytes(16, "little") * count
            error = self._lib.rt_register_cells(self.handle, register.index, first, count, cells, 1)
        _check(error, register.name, "cell", "")

    def __repr__(self) -> str:
        program = self._program.name if self._program else "no program"
        return f"<Device {self.device_id} {self.name}: {program}>"


def _check(error: int, where: str, what: str, room: str) -> None:
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


def _check_port(port: int) -> None:
    if not 0 <= port < DROP_PORT:
        raise ValueError(f"port {port} is not in 0..{DROP_PORT - 1}")


def _uint32(value: int, what: str) -> int:
    if not 0 < value < 1 << 32:
        raise TableError("INVALID_ARGUMENT", f"{what} {value} is not in 1..{(1 << 32) - 1}")
    return value


def _span(array: Array, index: int | None) -> tuple[int, int]:
    """(first, count) of the cells that `index` names."""
    if index is None:
        return 0, array.size
    if not 0 <= index < array.size:
        raise TableError("OUT_OF_RANGE", f"{array.name}: index {index} is not in 0..{array.size - 1}")
    return index, 1


def _cell(kind: int, value: CounterData) -> native.Cell:
    if not (0 <= value.packets < 1 << 63 and 0 <= value.bytes < 1 << 63):
        raise TableError("OUT_OF_RANGE", f"counter value {value} is not in 0..2**63-1")
    return native.Cell(value.packets if kind & 1 else 0, value.bytes if kind & 2 else 0)


def _meter_in(config: MeterConfig | None, where: str) -> native.MeterCell:
    if config is None:
        return native.MeterCell()
    numbers = (config.cir, config.cburst, config.pir, config.pburst)
    if not all(0 <= one < 1 << 40 for one in numbers) or config.pir < config.cir:
        text = f"{where}: {config}: rates and bursts are 0 to 2**40-1, and pir not below cir"
        raise TableError("INVALID_ARGUMENT", text)
    return native.MeterCell(1, *numbers)


def _meter_out(cell: native.MeterCell) -> MeterConfig | None:
    return MeterConfig(cell.cir, cell.cburst, cell.pir, cell.pburst) if cell.configured else None


def _counter(kind: int, packets: int, octets: int) -> CounterData:
    return CounterData(packets if kind & 1 else 0, octets if kind & 2 else 0)
