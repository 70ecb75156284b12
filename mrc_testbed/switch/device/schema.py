"""Schema of a loaded program's entries: P4Info joined with the indexes of the compiled program.

A type with `@p4runtime_translation` to another width keeps its numbers, which must fit the program's width; one that is
translated to strings is given as a number in decimal digits.

`Schema` turns entries (switch.device.entities) into the byte strings of the runtime and back, and refuses what does not
fit. Layout of keys and parameters: fields in order, each padded to whole bytes, big-endian (switch/runtime/p4rt.h).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mrc_testbed.switch.device.entities import (
    ActionCall,
    CloneSession,
    FieldMatch,
    Match,
    MulticastGroup,
    TableEntry,
    TableError,
)
from mrc_testbed.switch.device.native import ProgramDesc

if TYPE_CHECKING:
    from finsy.proto import p4i

TABLE_ONLY, DEFAULT_ONLY = 1, 2
"""P4Info ActionRef.Scope."""

# P4Info MatchField.MatchType -> ours.
MATCH_TYPES = {2: Match.EXACT, 3: Match.LPM, 4: Match.TERNARY, 5: Match.RANGE, 6: Match.OPTIONAL}

NEEDS_PRIORITY = (Match.TERNARY, Match.RANGE, Match.OPTIONAL)


class NamedObject(Protocol):
    """Object of a program, as error messages name it."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=NamedObject)


@dataclass(slots=True)
class MatchField:
    """A key field or an action parameter of `bits` bits."""

    id: int
    name: str
    bits: int
    match: Match = Match.EXACT
    text: bool = False
    """The control plane gives it as decimal digits."""
    size: int = field(init=False)
    """Bytes it takes in a key or a parameter block."""
    all_ones: int = field(init=False)

    def __post_init__(self) -> None:
        self.size, self.all_ones = (self.bits + 7) // 8, (1 << self.bits) - 1

    def number(self, value: bytes | None, subject: str, part: str = "") -> int:
        """A value as clients give it. Raises TableError INVALID_ARGUMENT, OUT_OF_RANGE."""
        if value and not self.text:
            result = int.from_bytes(value, "big")
            if result <= self.all_ones:
                return result
        value_name = f"{subject}.{self.name}" + (f" ({part})" if part else "")
        return (
            number(value or b"", self.bits, value_name)
            if not self.text
            else _decimal(value or b"", self.all_ones, value_name)
        )

    def client_bytes(self, value: int) -> bytes:
        """The value as clients get it."""
        return str(value).encode() if self.text else canonical(value)


@dataclass(frozen=True, slots=True)
class ActionSchema:
    """An action of the program, and its parameters in the order of their bytes."""

    id: int
    name: str
    index: int
    params: tuple[MatchField, ...]
    metered: bool
    """Whether it reads the direct meter of its table."""


@dataclass(slots=True)
class TableSchema:
    """A table of the program: its key, its actions, and what its entries may have."""

    id: int
    name: str
    index: int
    fields: tuple[MatchField, ...]
    key_bytes: int
    size: int
    actions: dict[int, int]
    """Action id -> scope."""
    profile_id: int
    constant: bool
    const_default: bool
    direct_counter: int
    """enum p4rt_count; 0: none."""
    idle_timeout: bool = False
    needs_priority: bool = field(init=False)
    entry_actions: frozenset[int] = field(init=False)
    """Ids of actions that entries may have."""
    default_actions: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.needs_priority = any(f.match in NEEDS_PRIORITY for f in self.fields)
        self.entry_actions = frozenset(a for a, scope in self.actions.items() if scope != DEFAULT_ONLY)
        self.default_actions = frozenset(a for a, scope in self.actions.items() if scope != TABLE_ONLY)


@dataclass(frozen=True, slots=True)
class Profile:
    """An action profile of the program, with or without a selector."""

    id: int
    name: str
    index: int
    size: int
    max_group_size: int
    selector: bool
    actions: frozenset[int]
    by_members: bool = False
    """The size of a group is the number of its members, not the sum of their weights."""
    max_member_weight: int = 0
    """Largest weight of a member with `by_members`; 0: no bound."""


@dataclass(frozen=True, slots=True)
class Array:
    """A counter or a register of `size` cells.

    `kind`: enum p4rt_count of a counter, bits of a register's cell.
    """

    id: int
    name: str
    index: int
    size: int
    kind: int


def canonical(value: int) -> bytes:
    """Shortest big-endian form, at least one byte (P4Runtime §8.3)."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def number(value: bytes, bits: int, subject: str) -> int:
    """A byte string as an unsigned number of `bits` bits. Leading zeros are allowed (P4Runtime §8.3)."""
    if not isinstance(value, bytes) or not value:
        raise TableError("INVALID_ARGUMENT", f"{subject}: needs a value of {bits} bits, got an empty byte string")
    result = int.from_bytes(value, "big")
    if result >> bits:
        raise TableError("OUT_OF_RANGE", f"{subject}: {result:#x} does not fit in {bits} bits")
    return result


def _decimal(value: bytes, largest: int, subject: str) -> int:
    """A value of a type that is translated to strings."""
    text = value.decode("ascii", "replace")
    if not text.isascii() or not text.isdigit() or (text[0] == "0" and text != "0") or len(text) > 40:
        raise TableError(
            "INVALID_ARGUMENT", f"{subject}: {text[:40]!r}: its strings are numbers in decimal digits here"
        )
    if int(text) > largest:
        raise TableError("OUT_OF_RANGE", f"{subject}: {text} is not in 0..{largest}")
    return int(text)


def check_replication(entry: MulticastGroup | CloneSession, subject: str) -> None:
    """Raises TableError INVALID_ARGUMENT for numbers that no packet can have."""
    session = isinstance(entry, CloneSession)
    number = entry.session_id if isinstance(entry, CloneSession) else entry.group_id
    if not 0 <= number < (1 << 32 if session else 1 << 16) or not (number or session):
        raise TableError("INVALID_ARGUMENT", f"{subject}: the id must be {'0 to 2**32-1' if session else '1 to 65535'}")
    if len(set(entry.replicas)) != len(entry.replicas):
        raise TableError("INVALID_ARGUMENT", f"{subject}: a replica (port, instance) is given twice")
    for replica in entry.replicas:
        if not 0 <= replica.port < 511 or not 0 <= replica.rid < 1 << 16:
            raise TableError(
                "INVALID_ARGUMENT", f"{subject}: port {replica.port}, instance {replica.rid}: not in 0..510, 0..65535"
            )
    if isinstance(entry, CloneSession) and not (0 <= entry.class_of_service < 8 and 0 <= entry.length < 1 << 31):
        raise TableError("INVALID_ARGUMENT", f"{subject}: class of service 0 to 7, length 0 to 2**31-1 are allowed")


def names(objects: Iterable[Any]) -> str:
    """`a, b, c` for messages; "none" of nothing."""
    return ", ".join(sorted(t.name for t in objects)) or "none"


class Schema:
    """Objects of a program by P4Info id. Raises TableError when P4Info and program disagree."""

    def __init__(self, info: p4i.P4Info, program: ProgramDesc) -> None:
        self.actions: dict[int, ActionSchema] = {}
        self.tables: dict[int, TableSchema] = {}
        self.profiles: dict[int, Profile] = {}
        self.counters: dict[int, Array] = {}
        self.registers: dict[int, Array] = {}
        self.meters: dict[int, Array] = {}
        """`kind`: 1 for bytes, 0 for packets."""
        self.tables_with_meter: set[int] = {direct_meter.direct_table_id for direct_meter in info.direct_meters}
        """Tables with a direct meter."""
        self._read_actions(info, program)
        self._read_tables(info, program)
        self._read_profiles(info, program)
        # The program keeps value sets as tables, but their ids are no table ids: hence a dictionary of their own.
        self.value_sets: dict[int, TableSchema] = {}
        self._read_value_sets(info, program)
        for index in range(program.n_counters):
            desc = program.counters[index]
            self.counters[desc.id] = Array(desc.id, desc.name.decode(), index, desc.size, desc.kind)
        for index in range(program.n_registers):
            desc = program.registers[index]
            self.registers[desc.id] = Array(desc.id, desc.name.decode(), index, desc.size, desc.bits)
        for index in range(program.n_meters):
            meter = program.meters[index]
            self.meters[meter.id] = Array(meter.id, meter.name.decode(), index, meter.size, meter.bytes)
        self.digest_ids = [program.digests[index].id for index in range(program.n_digests)]
        """Digest ids by index in the compiled program."""
        self.type_bits = {program.types[i].name.decode(): program.types[i].bits for i in range(program.n_types)}
        """Program's width of the types that headers of packet-ins and packet-outs have translated."""
        self.action_by_index = {a.index: a for a in self.actions.values()}

    def _read_actions(self, info: p4i.P4Info, program: ProgramDesc) -> None:
        """The actions of tables; P4Info has those, too, that the program itself calls."""
        indexes = {program.actions[i].id: i for i in range(program.n_actions)}
        of_tables = {ref.id for table in info.tables for ref in table.action_refs}
        for action in info.actions:
            if action.preamble.id not in of_tables:
                continue
            index = _index(indexes, action.preamble)
            desc = program.actions[index]
            params = tuple(_fields(info, action.params, desc.params, desc.n_params))
            _same_width(action.preamble, sum(p.size for p in params), desc.params_bytes)
            self.actions[action.preamble.id] = ActionSchema(
                action.preamble.id, _name(action.preamble), index, params, bool(desc.metered)
            )

    def _read_tables(self, info: p4i.P4Info, program: ProgramDesc) -> None:
        indexes = {program.tables[i].id: i for i in range(program.n_tables)}
        for table in info.tables:
            index = _index(indexes, table.preamble)
            desc = program.tables[index]
            fields = tuple(_fields(info, table.match_fields, desc.fields, desc.n_fields, table.preamble))
            _same_width(table.preamble, sum(f.size for f in fields), desc.key_bytes)
            self.tables[table.preamble.id] = TableSchema(
                table.preamble.id,
                _name(table.preamble),
                index,
                fields,
                desc.key_bytes,
                desc.size,
                {r.id: r.scope for r in table.action_refs},
                table.implementation_id,
                table.is_const_table,
                bool(table.const_default_action_id),
                desc.direct_counter,
                bool(desc.idle_timeout),
            )

    def _read_value_sets(self, info: p4i.P4Info, program: ProgramDesc) -> None:
        """A value_set is a table without actions."""
        indexes = {program.tables[i].id: i for i in range(program.n_tables)}
        for value_set in info.value_sets:
            index = _index(indexes, value_set.preamble)
            desc = program.tables[index]
            fields = tuple(_fields(info, value_set.match, desc.fields, desc.n_fields, value_set.preamble))
            self.value_sets[value_set.preamble.id] = TableSchema(
                value_set.preamble.id,
                _name(value_set.preamble),
                index,
                fields,
                desc.key_bytes,
                value_set.size,
                {},
                0,
                False,
                False,
                0,
            )

    def _read_profiles(self, info: p4i.P4Info, program: ProgramDesc) -> None:
        indexes = {program.profiles[i].id: i for i in range(program.n_profiles)}
        for action_profile in info.action_profiles:
            desc = program.profiles[_index(indexes, action_profile.preamble)]
            users = [self.tables[t] for t in action_profile.table_ids if t in self.tables]
            action_ids = {a for t in users for a in t.entry_actions}
            self.profiles[action_profile.preamble.id] = Profile(
                action_profile.preamble.id,
                _name(action_profile.preamble),
                indexes[action_profile.preamble.id],
                desc.size,
                desc.max_group_size,
                bool(action_profile.with_selector),
                frozenset(action_ids),
                action_profile.HasField("sum_of_members"),
                action_profile.sum_of_members.max_member_weight,
            )

    def find(self, objects: dict[int, T], id_: int, kind: str) -> T:
        """The table, profile, ... of an id. Raises TableError listing what there is."""
        try:
            return objects[id_]
        except (KeyError, TypeError):
            known = ", ".join(f"{t.name} {i:#x}" for i, t in objects.items()) or "none"
            raise TableError("INVALID_ARGUMENT", f"no {kind} with id {id_!r} (has: {known})") from None

    # ---- entries -> bytes -------------------------------------------------------------------------------------

    def encode_match(self, table: TableSchema, entry: TableEntry) -> tuple[bytes, bytes]:
        """Return (key, aux) of an entry as in struct p4rt_entry; check the priority too. Raises TableError."""
        if not table.fields:
            raise TableError("INVALID_ARGUMENT", f"{table.name}: has no key, so only its default entry can be set")
        matches = {field_match.field_id: field_match for field_match in entry.match}
        if len(matches) != len(entry.match):
            duplicate_id = next(i for i in matches if sum(field_match.field_id == i for field_match in entry.match) > 1)
            raise TableError("INVALID_ARGUMENT", f"{table.name}: match field {duplicate_id} is given twice")
        key = aux = b""
        for spec in table.fields:
            value, second = _encode_field(table, spec, matches.pop(spec.id, None))
            key += value.to_bytes(spec.size, "big")
            aux += second.to_bytes(spec.size, "big")
        if matches:
            has = ", ".join(f"{f.name} {f.id}" for f in table.fields)
            raise TableError("INVALID_ARGUMENT", f"{table.name}: no match field {min(matches)} (has: {has})")
        if table.needs_priority:
            if not 0 < entry.priority < 1 << 31:
                raise TableError("INVALID_ARGUMENT", f"{table.name}: needs a priority above 0, got {entry.priority}")
        elif entry.priority:
            raise TableError("INVALID_ARGUMENT", f"{table.name}: has only exact and lpm fields, so priority must be 0")
        return key, aux

    def encode_action(self, call: ActionCall, subject: str, action_ids: Collection[int]) -> tuple[int, bytes]:
        """Return (index, parameter bytes) of an action, one of `action_ids`. Raises TableError."""
        action = self.actions.get(call.action_id)
        if action is None or call.action_id not in action_ids:
            action_text = f"'{action.name}'" if action else f"with id {call.action_id!r}"
            has = names(a for a in self.actions.values() if a.id in action_ids)
            raise TableError("INVALID_ARGUMENT", f"{subject}: no action {action_text} (has: {has})")
        params = dict(call.params)
        block, action_text = b"", f"{subject}: {action.name}"
        try:
            for param in action.params:
                block += param.number(params.pop(param.id), action_text).to_bytes(param.size, "big")
        except KeyError:
            params[0] = b""
        if params or len(call.params) != len(action.params):
            wanted = ", ".join(f"{p.name} {p.id}" for p in action.params) or "none"
            got = ", ".join(str(i) for i, _ in call.params) or "none"
            text = f"{subject}: action {action.name} has the parameters {wanted}; got {got}"
            raise TableError("INVALID_ARGUMENT", text)
        return action.index, block

    def check_scope(self, table: TableSchema, call: ActionCall, default: bool) -> None:
        """Raise TableError PERMISSION_DENIED for an action of the table outside its scope."""
        if call.action_id in table.actions and call.action_id not in (
            table.default_actions if default else table.entry_actions
        ):
            action, scope = self.actions[call.action_id], "entries" if default else "the default entry"
            raise TableError("PERMISSION_DENIED", f"{table.name}: action {action.name} is for {scope} only")

    # ---- bytes -> entries -------------------------------------------------------------------------------------

    def decode_match(self, table: TableSchema, key: bytes, aux: bytes) -> tuple[FieldMatch, ...]:
        out, offset = [], 0
        for spec in table.fields:
            value = int.from_bytes(key[offset : offset + spec.size], "big")
            second = int.from_bytes(aux[offset : offset + spec.size], "big")
            offset += spec.size
            if spec.match == Match.EXACT:
                out.append(FieldMatch.exact(spec.id, spec.client_bytes(value)))
            elif spec.match == Match.RANGE:
                if (value, second) != (0, spec.all_ones):
                    out.append(FieldMatch.range(spec.id, spec.client_bytes(value), spec.client_bytes(second)))
            elif not second:
                continue
            elif spec.match == Match.LPM:
                out.append(FieldMatch.lpm(spec.id, spec.client_bytes(value), second.bit_count()))
            elif spec.match == Match.TERNARY:
                out.append(FieldMatch.ternary(spec.id, spec.client_bytes(value), canonical(second)))
            else:
                out.append(FieldMatch.optional(spec.id, spec.client_bytes(value)))
        return tuple(out)

    def decode_action(self, index: int, block: bytes) -> ActionCall:
        action, out, offset = self.action_by_index[index], [], 0
        for param in action.params:
            out.append((param.id, param.client_bytes(int.from_bytes(block[offset : offset + param.size], "big"))))
            offset += param.size
        return ActionCall(action.id, tuple(out))


def _encode_field(table: TableSchema, spec: MatchField, match: FieldMatch | None) -> tuple[int, int]:
    """(value, second) of one field: second is the mask, or the high end of a range."""
    kind = spec.match
    if match is None:
        if kind == Match.EXACT:
            raise TableError("INVALID_ARGUMENT", f"{table.name}.{spec.name}: is exact, so it must be given")
        return 0, spec.all_ones if kind == Match.RANGE else 0
    if match.kind != kind:
        text = f"is matched {kind.name.lower()}, got {match.kind.name.lower()}"
        raise TableError("INVALID_ARGUMENT", f"{table.name}.{spec.name}: {text}")
    value = spec.number(match.value, table.name)
    if kind == Match.EXACT or kind == Match.OPTIONAL:
        return value, spec.all_ones
    second = _second(table, spec, match, value)
    if kind != Match.RANGE and value & ~second:
        text = f"{value:#x} has bits outside the mask {second:#x}"
        raise TableError("INVALID_ARGUMENT", f"{table.name}.{spec.name}: {text}")
    return value, second


def _second(table: TableSchema, spec: MatchField, match: FieldMatch, value: int) -> int:
    subject = f"{table.name}.{spec.name}"
    if spec.match == Match.LPM:
        length = match.prefix_len
        if not isinstance(length, int) or not 0 < length <= spec.bits:
            raise TableError(
                "INVALID_ARGUMENT",
                f"{subject}: prefix length {length} is not in 1..{spec.bits} (to match all leave the field out)",
            )
        return spec.all_ones ^ (spec.all_ones >> length)
    if spec.match == Match.RANGE:
        high = spec.number(match.high, table.name, "high")
        if value > high:
            raise TableError("INVALID_ARGUMENT", f"{subject}: range from {value:#x} to {high:#x} is empty")
        if (value, high) == (0, spec.all_ones):
            raise TableError("INVALID_ARGUMENT", f"{subject}: range matches everything: leave the field out")
        return high
    mask = number(match.mask or b"", spec.bits, f"{subject} (mask)")
    if not mask:
        raise TableError("INVALID_ARGUMENT", f"{subject}: mask 0 matches everything: leave the field out")
    return mask


def _fields(
    info: p4i.P4Info, specs: Iterable[Any], descs: Any, count: int, preamble: p4i.Preamble | None = None
) -> Iterator[MatchField]:
    """Yield match fields (`preamble`: the table's) or parameters; translated types in the program's width."""
    widths = {descs[index].id: descs[index].bits for index in range(count)}
    for field_spec in specs:
        type_name = field_spec.type_name.name if field_spec.type_name.name in info.type_info.new_types else ""
        spec = info.type_info.new_types[type_name].translated_type if type_name else None
        translated = spec is not None and spec.WhichOneof("sdn_type") is not None
        bits = widths.get(field_spec.id, 0) if translated or not field_spec.bitwidth else field_spec.bitwidth
        match = Match.EXACT if preamble is None else _match_type(field_spec, preamble)
        yield MatchField(field_spec.id, field_spec.name, bits, match, bool(spec and spec.HasField("sdn_string")))


def _name(preamble: p4i.Preamble) -> str:
    return preamble.alias or preamble.name


def _index(indexes: dict[int, int], preamble: p4i.Preamble) -> int:
    if preamble.id not in indexes:
        raise TableError("INVALID_ARGUMENT", f"{preamble.name}: in P4Info but not in the compiled program")
    return indexes[preamble.id]


def _same_width(preamble: p4i.Preamble, info_bytes: int, program_bytes: int) -> None:
    if info_bytes != program_bytes:
        raise TableError(
            "INVALID_ARGUMENT",
            f"{preamble.name}: {info_bytes} bytes in P4Info but {program_bytes} in the compiled program",
        )


def _match_type(match_field: p4i.MatchField, preamble: p4i.Preamble) -> Match:
    kind = MATCH_TYPES.get(match_field.match_type)
    if kind is None:
        raise TableError("INVALID_ARGUMENT", f"{preamble.name}.{match_field.name}: match kind is not supported")
    return kind
