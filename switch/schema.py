"""What a loaded program's entries may look like: P4Info joined with the indexes of the compiled program.

`Schema` turns entries (switch.entities) into the byte strings of the runtime and back, and refuses what does not
fit. Layout of keys and parameters: fields in order, each padded to whole bytes, big-endian (switch/runtime/p4rt.h).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from switch.entities import ActionCall, CloneSession, FieldMatch, Match, MulticastGroup, TableEntry, TableError
from switch.native import NONE, ProgramDesc

if TYPE_CHECKING:
    from finsy.proto import p4i

TABLE_ONLY, DEFAULT_ONLY = 1, 2
"""P4Info ActionRef.Scope."""

# P4Info MatchField.MatchType -> ours.
MATCH_TYPES = {2: Match.EXACT, 3: Match.LPM, 4: Match.TERNARY, 5: Match.RANGE, 6: Match.OPTIONAL}

NEEDS_PRIORITY = (Match.TERNARY, Match.RANGE, Match.OPTIONAL)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Field:
    """A key field or an action parameter of `bits` bits."""

    id: int
    name: str
    bits: int
    match: Match = Match.EXACT

    @property
    def size(self) -> int:
        """Bytes it takes in a key or a parameter block."""
        return (self.bits + 7) // 8

    @property
    def ones(self) -> int:
        return (1 << self.bits) - 1


@dataclass(frozen=True, slots=True)
class Action:
    id: int
    name: str
    index: int
    params: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Table:
    id: int
    name: str
    index: int
    fields: tuple[Field, ...]
    key_bytes: int
    size: int
    actions: dict[int, int]
    """Action id -> scope."""
    profile_id: int
    constant: bool
    const_default: bool
    default_action_id: int
    direct_counter: int
    """enum p4rt_count; 0: none."""

    @property
    def needs_priority(self) -> bool:
        return any(f.match in NEEDS_PRIORITY for f in self.fields)


@dataclass(frozen=True, slots=True)
class Profile:
    id: int
    name: str
    index: int
    size: int
    max_group_size: int
    selector: bool
    actions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Array:
    """A counter or a register: `size` cells. `kind`: enum p4rt_count of a counter, bits of a register's cell."""

    id: int
    name: str
    index: int
    size: int
    kind: int


def canonical(value: int) -> bytes:
    """Shortest big-endian form, at least one byte (P4Runtime §8.3)."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def number(value: bytes, bits: int, what: str) -> int:
    """A byte string as an unsigned number of `bits` bits. Leading zeros are allowed (P4Runtime §8.3)."""
    if not isinstance(value, bytes) or not value:
        raise TableError("INVALID_ARGUMENT", f"{what}: needs a value of {bits} bits, got an empty byte string")
    result = int.from_bytes(value, "big")
    if result >> bits:
        raise TableError("OUT_OF_RANGE", f"{what}: {result:#x} does not fit in {bits} bits")
    return result


def check_replication(entry: MulticastGroup | CloneSession, what: str) -> None:
    """Raises TableError INVALID_ARGUMENT for numbers that no packet can have."""
    session = isinstance(entry, CloneSession)
    number = entry.session_id if isinstance(entry, CloneSession) else entry.group_id
    if not (0 if session else 1) <= number < (1 << 32 if session else 1 << 16):
        raise TableError("INVALID_ARGUMENT", f"{what}: the id must be {'0 to 2**32-1' if session else '1 to 65535'}")
    if len(set(entry.replicas)) != len(entry.replicas):
        raise TableError("INVALID_ARGUMENT", f"{what}: a replica (port, instance) is given twice")
    for one in entry.replicas:
        if not 0 <= one.port < 511 or not 0 <= one.rid < 1 << 16:
            raise TableError(
                "INVALID_ARGUMENT", f"{what}: port {one.port}, instance {one.rid}: not in 0..510, 0..65535"
            )
    if isinstance(entry, CloneSession) and not (0 <= entry.class_of_service < 8 and 0 <= entry.length < 1 << 31):
        raise TableError("INVALID_ARGUMENT", f"{what}: class of service 0 to 7, length 0 to 2**31-1 are allowed")


def names(things: Iterable[Any]) -> str:
    """`a, b, c` for messages; "none" of nothing."""
    return ", ".join(sorted(t.name for t in things)) or "none"


class Schema:
    """Everything a program holds, by P4Info id. Raises TableError when P4Info and compiled program disagree."""

    def __init__(self, info: p4i.P4Info, program: ProgramDesc):
        self.actions: dict[int, Action] = {}
        self.tables: dict[int, Table] = {}
        self.profiles: dict[int, Profile] = {}
        self.counters: dict[int, Array] = {}
        self.registers: dict[int, Array] = {}
        self.meters: dict[int, Array] = {}
        """`kind`: 1 for bytes, 0 for packets."""
        self.metered: set[int] = {one.direct_table_id for one in info.direct_meters}
        """Tables with a direct meter."""
        self._read_actions(info, program)
        self._read_tables(info, program)
        self._read_profiles(info, program)
        self.value_sets: dict[int, Table] = {}
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
        """By index in the compiled program."""
        self.action_by_index = {a.index: a for a in self.actions.values()}

    def _read_actions(self, info: p4i.P4Info, program: ProgramDesc) -> None:
        indexes = {program.actions[i].id: i for i in range(program.n_actions)}
        for one in info.actions:
            index = _index(indexes, one.preamble)
            params = tuple(Field(p.id, p.name, p.bitwidth) for p in one.params)
            _same_width(one.preamble, sum(p.size for p in params), program.actions[index].params_bytes)
            self.actions[one.preamble.id] = Action(one.preamble.id, _name(one.preamble), index, params)

    def _read_tables(self, info: p4i.P4Info, program: ProgramDesc) -> None:
        indexes = {program.tables[i].id: i for i in range(program.n_tables)}
        for one in info.tables:
            index = _index(indexes, one.preamble)
            desc = program.tables[index]
            fields = tuple(Field(f.id, f.name, f.bitwidth, _match_type(f, one.preamble)) for f in one.match_fields)
            _same_width(one.preamble, sum(f.size for f in fields), desc.key_bytes)
            default = NONE if desc.default_action == NONE else program.actions[desc.default_action].id
            self.tables[one.preamble.id] = Table(
                one.preamble.id, _name(one.preamble), index, fields, desc.key_bytes, desc.size,
                {r.id: r.scope for r in one.action_refs}, one.implementation_id, one.is_const_table,
                bool(one.const_default_action_id), default, desc.direct_counter,
            )  # fmt: skip

    def _read_value_sets(self, info: p4i.P4Info, program: ProgramDesc) -> None:
        """A value_set is a table without actions."""
        indexes = {program.tables[i].id: i for i in range(program.n_tables)}
        for one in info.value_sets:
            index = _index(indexes, one.preamble)
            fields = tuple(Field(f.id, f.name, f.bitwidth, _match_type(f, one.preamble)) for f in one.match)
            self.value_sets[one.preamble.id] = Table(
                one.preamble.id, _name(one.preamble), index, fields, program.tables[index].key_bytes, one.size, {}, 0,
                False, False, NONE, 0,
            )  # fmt: skip

    def _read_profiles(self, info: p4i.P4Info, program: ProgramDesc) -> None:
        indexes = {program.profiles[i].id: i for i in range(program.n_profiles)}
        for one in info.action_profiles:
            desc = program.profiles[_index(indexes, one.preamble)]
            users = [self.tables[t] for t in one.table_ids if t in self.tables]
            allowed = {a for t in users for a, scope in t.actions.items() if scope != DEFAULT_ONLY}
            self.profiles[one.preamble.id] = Profile(
                one.preamble.id, _name(one.preamble), indexes[one.preamble.id], desc.size, desc.max_group_size,
                bool(one.with_selector), frozenset(allowed),
            )  # fmt: skip

    def find(self, things: dict[int, T], id_: int, kind: str) -> T:
        """The table, profile, ... of an id. Raises TableError listing what there is."""
        try:
            return things[id_]
        except (KeyError, TypeError):
            known = ", ".join(f"{t.name} {i:#x}" for i, t in things.items()) or "none"
            raise TableError("INVALID_ARGUMENT", f"no {kind} with id {id_!r} (has: {known})") from None

    # ---- entries -> bytes -------------------------------------------------------------------------------------

    def encode_match(self, table: Table, entry: TableEntry) -> tuple[bytes, bytes]:
        """(key, aux) of an entry, as struct p4rt_entry wants them. Raises TableError; checks the priority too."""
        if not table.fields:
            raise TableError("INVALID_ARGUMENT", f"{table.name}: has no key, so only its default entry can be set")
        given = {}
        for one in entry.match:
            if one.field_id in given:
                raise TableError("INVALID_ARGUMENT", f"{table.name}: match field {one.field_id} is given twice")
            given[one.field_id] = one
        key, aux = [], []
        for spec in table.fields:
            value, second = _encode_field(table, spec, given.pop(spec.id, None))
            key.append(value.to_bytes(spec.size, "big"))
            aux.append(second.to_bytes(spec.size, "big"))
        if given:
            has = ", ".join(f"{f.name} {f.id}" for f in table.fields)
            raise TableError("INVALID_ARGUMENT", f"{table.name}: no match field {min(given)} (has: {has})")
        if table.needs_priority and not 0 < entry.priority < 1 << 31:
            raise TableError("INVALID_ARGUMENT", f"{table.name}: needs a priority above 0, got {entry.priority}")
        if not table.needs_priority and entry.priority:
            raise TableError("INVALID_ARGUMENT", f"{table.name}: has only exact and lpm fields, so priority must be 0")
        return b"".join(key), b"".join(aux)

    def encode_action(self, call: ActionCall, where: str, allowed: Iterable[int]) -> tuple[int, bytes]:
        """(index, parameter bytes) of an action. Raises TableError; `allowed` are the ids that may stand there."""
        allowed = set(allowed)
        if call.action_id not in allowed or call.action_id not in self.actions:
            known = self.actions.get(call.action_id)
            called = f"'{known.name}'" if known else f"with id {call.action_id!r}"
            has = names(a for a in self.actions.values() if a.id in allowed)
            raise TableError("INVALID_ARGUMENT", f"{where}: no action {called} (has: {has})")
        action = self.actions[call.action_id]
        given = dict(call.params)
        wanted = ", ".join(f"{p.name} {p.id}" for p in action.params) or "none"
        if len(given) != len(call.params) or set(given) != {p.id for p in action.params}:
            got = ", ".join(str(i) for i, _ in call.params) or "none"
            raise TableError(
                "INVALID_ARGUMENT", f"{where}: action {action.name} has the parameters {wanted}; got {got}"
            )
        block = b"".join(
            number(given[p.id], p.bits, f"{where}: {action.name}.{p.name}").to_bytes(p.size, "big")
            for p in action.params
        )
        return action.index, block

    # ---- bytes -> entries -------------------------------------------------------------------------------------

    def decode_match(self, table: Table, key: bytes, aux: bytes) -> tuple[FieldMatch, ...]:
        out, at = [], 0
        for spec in table.fields:
            value = int.from_bytes(key[at : at + spec.size], "big")
            second = int.from_bytes(aux[at : at + spec.size], "big")
            at += spec.size
            if spec.match == Match.EXACT:
                out.append(FieldMatch.exact(spec.id, canonical(value)))
            elif spec.match == Match.RANGE:
                if (value, second) != (0, spec.ones):
                    out.append(FieldMatch.range(spec.id, canonical(value), canonical(second)))
            elif not second:
                continue
            elif spec.match == Match.LPM:
                out.append(FieldMatch.lpm(spec.id, canonical(value), bin(second).count("1")))
            elif spec.match == Match.TERNARY:
                out.append(FieldMatch.ternary(spec.id, canonical(value), canonical(second)))
            else:
                out.append(FieldMatch.optional(spec.id, canonical(value)))
        return tuple(out)

    def decode_action(self, index: int, block: bytes) -> ActionCall:
        action, out, at = self.action_by_index[index], [], 0
        for param in action.params:
            out.append((param.id, canonical(int.from_bytes(block[at : at + param.size], "big"))))
            at += param.size
        return ActionCall(action.id, tuple(out))


def _encode_field(table: Table, spec: Field, match: FieldMatch | None) -> tuple[int, int]:
    """(value, second) of one field: second is the mask, or the high end of a range."""
    what = f"{table.name}.{spec.name}"
    if match is None:
        if spec.match == Match.EXACT:
            raise TableError("INVALID_ARGUMENT", f"{what}: is exact, so it must be given")
        return 0, spec.ones if spec.match == Match.RANGE else 0
    if match.kind != spec.match:
        raise TableError(
            "INVALID_ARGUMENT", f"{what}: is matched {spec.match.name.lower()}, got {match.kind.name.lower()}"
        )
    value = number(match.value, spec.bits, what)
    if spec.match in (Match.EXACT, Match.OPTIONAL):
        return value, spec.ones
    if spec.match == Match.RANGE:
        high = number(match.high or b"", spec.bits, f"{what} (high)")
        if value > high:
            raise TableError("INVALID_ARGUMENT", f"{what}: range from {value:#x} to {high:#x} is empty")
        if (value, high) == (0, spec.ones):
            raise TableError("INVALID_ARGUMENT", f"{what}: range matches everything: leave the field out")
        return value, high
    if spec.match == Match.LPM:
        length = match.prefix_len
        if not isinstance(length, int) or not 0 < length <= spec.bits:
            raise TableError(
                "INVALID_ARGUMENT",
                f"{what}: prefix length {length} is not in 1..{spec.bits} (to match all leave the field out)",
            )
        mask = spec.ones ^ (spec.ones >> length)
    else:
        mask = number(match.mask or b"", spec.bits, f"{what} (mask)")
        if not mask:
            raise TableError("INVALID_ARGUMENT", f"{what}: mask 0 matches everything: leave the field out")
    if value & ~mask:
        raise TableError("INVALID_ARGUMENT", f"{what}: {value:#x} has bits outside the mask {mask:#x}")
    return value, mask


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
