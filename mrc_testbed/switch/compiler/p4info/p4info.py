"""P4Info as p4c writes it: same ids, names, aliases, annotations, sizes and order.

An id is a prefix byte for the kind and 24 bits of Jenkins' one-at-a-time hash of the name (P4Runtime specification
§6.3); a clash is resolved by counting up, names in alphabetical order first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from finsy.proto import p4i

from mrc_testbed.switch.compiler.errors import fail
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.p4info.annotations import fill_notes, fill_package
from mrc_testbed.switch.compiler.p4info.control_plane import Plane
from mrc_testbed.switch.compiler.p4info.typespec import data_spec, header_fields, note_new_type, translated_in
from mrc_testbed.switch.compiler.sema.elaborate import (
    ActionInstance,
    ElaboratedProgram,
    ExternInstance,
    TableInstance,
    ValueSetInstance,
    plane_name,
)
from mrc_testbed.switch.compiler.sema.types import ERROR, EnumType, NewType, Record, Tuple, Type, plain, width_of

_PREFIX = {
    "action": 0x01, "table": 0x02, "value_set": 0x03, "header": 0x04, "profile": 0x11, "counter": 0x12,
    "direct_counter": 0x13, "meter": 0x14, "direct_meter": 0x15, "register": 0x16, "digest": 0x17,
}  # fmt: skip
_UNITS = {"packets": p4i.CounterSpec.PACKETS, "bytes": p4i.CounterSpec.BYTES, "packets_and_bytes": p4i.CounterSpec.BOTH}
_MATCH = {
    "exact": p4i.MatchField.EXACT,
    "lpm": p4i.MatchField.LPM,
    "ternary": p4i.MatchField.TERNARY,
    "range": p4i.MatchField.RANGE,
    "optional": p4i.MatchField.OPTIONAL,
}
_PROFILE_NOTES = ("max_group_size", "selector_size_semantics", "max_member_weight")
"""Annotations of action profiles that have a place of their own in P4Info."""


def jenkins_hash(name: str) -> int:
    """Jenkins' one-at-a-time hash, 32 bits."""
    value = 0
    for byte in name.encode():
        value = (value + byte) & 0xFFFFFFFF
        value = (value + (value << 10)) & 0xFFFFFFFF
        value ^= value >> 6
    value = (value + (value << 3)) & 0xFFFFFFFF
    value ^= value >> 11
    return (value + (value << 15)) & 0xFFFFFFFF


class Ids:
    """Ids and aliases of everything the control plane can name."""

    def __init__(self, program: ElaboratedProgram) -> None:
        self.plane = Plane(program)
        self.by_name: dict[tuple[str, str], int] = {}
        used_ids: set[int] = set()
        groups = _names(program, self.plane)
        for kind, names in groups.items():
            for name, decl in names.items():
                explicit_id = _given_id(kind, decl)
                if explicit_id is not None:
                    if explicit_id in used_ids:
                        fail(decl.location, f"@id({explicit_id:#x}) is used twice")
                    used_ids.add(explicit_id)
                    self.by_name[kind, name] = explicit_id
        for kind, names in groups.items():
            for name in sorted(names):
                if (kind, name) not in self.by_name:
                    self.by_name[kind, name] = _free_id(kind, name, used_ids)
        self.suffixes: dict[str, int] = {}
        for name in {name for names in groups.values() for name in names}:
            for suffix in _suffixes(name):
                self.suffixes[suffix] = self.suffixes.get(suffix, 0) + 1
        for kind, name in _unreached_names(program):
            if (kind, name) not in self.by_name:
                self.by_name[kind, name] = _free_id(kind, name, used_ids)

    def id_of(self, kind: str, name: str) -> int:
        return self.by_name[kind, name]

    def alias(self, name: str) -> str:
        """The shortest suffix of a dotted name that nothing else ends with."""
        return next((suffix for suffix in _suffixes(name) if self.suffixes[suffix] == 1), name)


def _suffixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[i:]) for i in range(len(parts) - 1, -1, -1)]


def _names(program: ElaboratedProgram, plane: Plane) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {kind: {} for kind in _PREFIX}
    for action in plane.actions:
        groups["action"][action.name] = action.decl
    for table in plane.tables:
        groups["table"][table.name] = table.decl
    for extern in plane.externs:
        groups[_extern_kind(extern)][extern.name] = extern.decl
    for header in controller_headers(program):
        groups["header"][plane_name(header, "")] = header
    for value_set in program.value_sets:
        groups["value_set"][value_set.name] = value_set.decl
    for digest in plane.digests:
        groups["digest"][digest.name] = None
    return groups


def _unreached_names(program: ElaboratedProgram) -> list[tuple[str, str]]:
    """(kind, name) of all in the C program: what the control plane does not see of it has an id, too."""
    return [
        *(("action", action.name) for action in program.actions),
        *(("table", table.name) for table in program.tables),
        *((_extern_kind(extern), extern.name) for extern in program.externs),
        *(("digest", digest.name) for digest in program.digests),
    ]


def _extern_kind(extern: ExternInstance) -> str:
    return "profile" if extern.kind in ("action_profile", "action_selector") else extern.kind


def controller_headers(program: ElaboratedProgram) -> list[tree.Aggregate]:
    """Headers of packet-in and packet-out: those with @controller_header."""
    return [
        node
        for node in program.nodes
        if isinstance(node, tree.Aggregate) and node.kind == "header" and node.annotation("controller_header")
    ]


def translated_types(program: ElaboratedProgram) -> dict[str, int]:
    """Bits of the types with @p4runtime_translation in packet-ins and packet-outs, digests and registers."""
    types = [header.record for header in controller_headers(program)]
    types += [digest.type for digest in program.digests] + [register.cell for register in program.of_kind("register")]
    return {name: bits for used_type in types for name, bits in translated_in(used_type).items()}


def _given_id(kind: str, decl: Any) -> int | None:
    note = decl.annotation("id") if decl is not None else None
    if note is None:
        return None
    value: int | None = note.number()
    prefix = _PREFIX[kind] << 24
    if value is None:
        fail(note.location, "@id needs an integer")
    if value >> 24 and value >> 24 != _PREFIX[kind]:
        fail(note.location, f"@id({value:#x}): the first byte of the id of a {kind} must be {_PREFIX[kind]:#04x}")
    return prefix | value & 0xFFFFFF


def _free_id(kind: str, name: str, used_ids: set[int]) -> int:
    value = jenkins_hash(name)
    while True:
        candidate = _PREFIX[kind] << 24 | value & 0xFFFFFF
        if candidate not in used_ids:
            used_ids.add(candidate)
            return candidate
        value += 1


def field_ids(notes: Iterable[list[tree.Annotation]]) -> list[int]:
    """Return ids of match fields, parameters or metadata: @id, or counted from 1 around these."""
    explicit_ids = [next((note.number() for note in field_id if note.name == "id"), None) for field_id in notes]
    used_ids = {field_id for field_id in explicit_ids if field_id is not None}
    out, number = [], 1
    for field_id in explicit_ids:
        if field_id is None:
            while number in used_ids:
                number += 1
            field_id = number
            used_ids.add(field_id)
        else:
            number += 1
        out.append(field_id)
    return out


def key_ids(table: tree.Table) -> list[tuple[tree.KeyElement, int]]:
    """The key's fields with their ids, without those that only feed a selector."""
    ids = field_ids(key_element.annotations for key_element in table.key)
    return [
        (key_element, number)
        for key_element, number in zip(table.key, ids, strict=True)
        if key_element.match != "selector"
    ]


def param_ids(action: tree.Action) -> list[tuple[tree.Param, int]]:
    """The parameters that the control plane gives, with their ids."""
    params = [param for param in action.params if not param.direction]
    return list(zip(params, field_ids(param.annotations for param in params), strict=True))


def value_set_keys(value_set: ValueSetInstance) -> list[tuple[int, str, int, str]]:
    """(id, name, bits, match kind) of each field of a value_set's members; a single value has no name."""
    leaves = _member_fields(value_set.decl.element)
    out = []
    for number, (name, p4_type, decl) in zip(field_ids(_notes_of(decl) for _, _, decl in leaves), leaves, strict=True):
        note = decl.annotation("match") if decl else None
        kind = note.body[0].text if note and note.body else "exact"
        if kind not in _MATCH:
            fail(decl.location, f"@match({kind}): a value_set matches by {', '.join(sorted(_MATCH))}")
        out.append((number, name, width_of(p4_type) or 32, kind))
    return out


def _notes_of(decl: tree.Field | None) -> list[tree.Annotation]:
    return decl.annotations if decl else []


def _member_fields(p4_type: Type, prefix: str = "") -> list[tuple[str, Type, Any]]:
    """Return (name, type, declaration) of a value_set member's values; nested ones as `outer.inner`."""
    if isinstance(p4_type, Record):
        parts = [(field.name, p4_type.fields[field.name], field) for field in p4_type.decl.fields]
    elif isinstance(p4_type, Tuple):
        parts = [(f"f{index}", item_type, None) for index, item_type in enumerate(p4_type.items)]
    else:
        return [(prefix, p4_type, None)]
    out: list[tuple[str, Type, Any]] = []
    for name, item_type, decl in parts:
        full_name = f"{prefix}.{name}" if prefix else name
        out += (
            _member_fields(item_type, full_name)
            if isinstance(item_type, (Record, Tuple))
            else [(full_name, item_type, decl)]
        )
    return out


def key_name(key_element: tree.KeyElement) -> str:
    """Return a match field's name: its @name, or the expression as p4c writes it. Raises P4Error."""
    for note in key_element.annotations:
        if note.name == "name":
            name = note.string()
            if name is None:
                fail(note.location, "@name needs one string")
            return name
    text = _expression_text(key_element.value)
    if text is None:
        fail(key_element.location, 'this key needs a name: write expression : kind @name("...");')
    return text


def _expression_text(e: tree.Expr) -> str | None:
    if isinstance(e, tree.PathExpression):
        return _number(e) or ("." if e.top else "") + e.name
    if isinstance(e, tree.Integer):
        return _number(e)
    if isinstance(e, tree.Member) and not isinstance(e.base, tree.Call):
        name = _field_name(e)
        if name.startswith("."):
            return name[1:]
        base = _expression_text(e.base)
        return base and f"{base}.{name}"
    if isinstance(e, tree.Index):
        base, index = _expression_text(e.base), _number(e.index) or _expression_text(e.index)
        return base and index and f"{base}[{index}]"
    if isinstance(e, tree.Slice):
        base = _expression_text(e.base)
        return base and f"{base}[{_number(e.high)}:{_number(e.low)}]"
    if isinstance(e, tree.Binary) and e.op == "&":
        lhs, rhs = _expression_text(e.lhs), _expression_text(e.rhs)
        return lhs and rhs and f"{lhs} & {rhs}"
    if isinstance(e, tree.Call) and e.callee.kind == "header" and e.callee.name == "isValid":
        base = _expression_text(e.callee.base)
        return base and f"{base}.$valid$"
    return None


def _field_name(e: tree.Member) -> str:
    """Return the member's name or the field's @name; with a leading dot, that of the whole expression."""
    base_type = plain(e.base.type)
    field = (
        next((decl_field for decl_field in base_type.decl.fields if decl_field.name == e.name), None)
        if isinstance(base_type, Record)
        else None
    )
    note = field.annotation("name") if field is not None else None
    return (note.string() if note else None) or e.name


def _number(e: tree.Expr) -> str | None:
    """A constant as p4c writes it, in the base in which the source has it; None when it is not known."""
    if e.const is None or isinstance(e.const, (bool, str)):
        return None
    return format(e.const, {2: "#b", 8: "#o", 16: "#x"}.get(_base(e), "d"))


def _base(e: tree.Expr) -> int:
    """The base of a constant expression's first literal."""
    if isinstance(e, tree.Integer):
        return e.base
    if isinstance(e, tree.PathExpression) and isinstance(e.decl, tree.Const):
        return _base(e.decl.value)
    for name in ("left", "operand"):
        if hasattr(e, name):
            return _base(getattr(e, name))
    return 10


def source_text(e: tree.Expr) -> str:
    """Return an expression as text for people; "..." for one that is not simple."""
    return _expression_text(e) or "..."


def make_p4info(program: ElaboratedProgram, ids: Ids) -> p4i.P4Info:
    """The P4Info of a program."""
    info = p4i.P4Info()
    info.pkg_info.arch = "v1model"
    fill_package(program.main, info)
    for table in ids.plane.tables:
        if not table.decl.annotation("hidden"):
            _table(info, table, ids)
    for action in ids.plane.actions:
        if not action.decl.annotation("hidden"):
            _action(info, action, ids)
    for extern in ids.plane.externs:
        _extern(info, extern, ids)
    for table in ids.plane.tables:
        if not table.decl.annotation("hidden"):
            _direct(info, table, ids)
    for header in controller_headers(program):
        _controller_header(info, header, ids)
    for value_set in program.value_sets:
        value_set_message = info.value_sets.add(size=value_set.size)
        _preamble(value_set_message, "value_set", value_set.name, ids, value_set.decl)
        leaves = _member_fields(value_set.decl.element)
        for (number, name, bits, match), (_, _, decl) in zip(value_set_keys(value_set), leaves, strict=True):
            out = value_set_message.match.add(id=number, name=name, bitwidth=bits, match_type=_MATCH[match])
            fill_notes(out, _notes_of(decl), ("match",))
    for digest in ids.plane.digests:
        # A digest has no declaration, so no annotations.
        sent = info.digests.add()
        sent.preamble.id = ids.id_of("digest", digest.name)
        sent.preamble.name = digest.name
        sent.preamble.alias = ids.alias(digest.name)
        sent.type_spec.CopyFrom(data_spec(digest.type, info, program.errors, digest.location))
    if info.tables or info.controller_packet_metadata or ids.plane.externs or ids.plane.calls_externs:
        info.type_info.SetInParent()
    return info


def _preamble(message: Any, kind: str, name: str, ids: Ids, decl: Any) -> None:
    message.preamble.id = ids.id_of(kind, name)
    message.preamble.name = name
    message.preamble.alias = ids.alias(name)
    fill_notes(message.preamble, decl.annotations, _PROFILE_NOTES if kind == "profile" else ())


def _width(p4_type: Type, info: p4i.P4Info, errors: list[str]) -> tuple[int, str | None]:
    """Return (bits, name of a `type` or of an enum without values), and note the type in type_info."""
    if isinstance(p4_type, NewType):
        return note_new_type(p4_type, info), p4_type.name
    if isinstance(p4_type, EnumType):
        data_spec(p4_type, info, [], None)
        return (p4_type.underlying_type.width, None) if p4_type.underlying_type else (0, p4_type.name)
    if p4_type == ERROR:
        data_spec(p4_type, info, errors, None)
    return width_of(p4_type) or 0, None


def _table(info: p4i.P4Info, table: TableInstance, ids: Ids) -> None:
    out, decl = info.tables.add(), table.decl
    _preamble(out, "table", table.name, ids, decl)
    for key_element, number in key_ids(decl):
        field = out.match_fields.add(id=number, name=key_name(key_element))
        fill_notes(field, key_element.annotations)
        field.bitwidth, type_name = _width(key_element.value.type, info, ids.plane.program.errors)
        if type_name:
            field.type_name.name = type_name
        if key_element.match in _MATCH:
            field.match_type = _MATCH[key_element.match]
        else:
            field.other_match_type = key_element.match
    for ref, action in zip(decl.actions, table.actions, strict=False):
        entry = out.action_refs.add(id=ids.id_of("action", action.name))
        names = {note.name for note in ref.annotations}
        fill_notes(entry, ref.annotations)
        # P4Runtime's scope of an action reference: without one it is TABLE_AND_DEFAULT.
        if "tableonly" in names:
            entry.scope = p4i.ActionRef.TABLE_ONLY
        elif "defaultonly" in names:
            entry.scope = p4i.ActionRef.DEFAULT_ONLY
    _default(out, table, ids)
    if table.profile:
        out.implementation_id = ids.id_of("profile", table.profile.name)
    if table.direct_counter:
        out.direct_resource_ids.append(ids.id_of("direct_counter", table.direct_counter.name))
    if table.direct_meter:
        out.direct_resource_ids.append(ids.id_of("direct_meter", table.direct_meter.name))
    out.size = table.size
    if idle_timeouts(table):
        out.idle_timeout_behavior = p4i.Table.NOTIFY_CONTROL
    if decl.entries is not None:
        out.is_const_table = decl.const_entries
        out.has_initial_entries = bool(decl.entries)


def idle_timeouts(table: TableInstance) -> bool:
    """Whether the table has `support_timeout = true`."""
    timeout_property = table.decl.properties.get("support_timeout")
    return timeout_property is not None and bool(timeout_property.expr.const)


def _default(out: p4i.Table, table: TableInstance, ids: Ids) -> None:
    """Fill in the default action; a const one in both fields, as recent p4c does."""
    default_property = table.decl.properties.get("default_action")
    names = [action_ref.name for action_ref in table.decl.actions]
    if default_property is None:
        if "NoAction" in names:
            out.initial_default_action.action_id = ids.id_of("action", table.actions[names.index("NoAction")].name)
        return
    ref: Any = default_property.value
    action = table.actions[names.index(ref.name)]
    out.initial_default_action.action_id = ids.id_of("action", action.name)
    if default_property.const:
        out.const_default_action_id = out.initial_default_action.action_id
    for (param, number), arg in zip(param_ids(action.decl), ref.args or [], strict=True):
        bits = width_of(param.type) or 32
        value = arg.value.const
        if isinstance(value, str) and isinstance(param.type, EnumType):
            value = param.type.number(value)
        data = (int(value) & (1 << bits) - 1).to_bytes((bits + 7) // 8, "big")  # all bytes of the width, as p4c has it
        out.initial_default_action.arguments.add(param_id=number, value=data)


def _action(info: p4i.P4Info, action: ActionInstance, ids: Ids) -> None:
    out = info.actions.add()
    _preamble(out, "action", action.name, ids, action.decl)
    for param_decl, number in param_ids(action.decl) if ids.plane.gets_data(action) else ():
        param = out.params.add(id=number, name=plane_name(param_decl, ""))
        fill_notes(param, param_decl.annotations)
        param.bitwidth, type_name = _width(param_decl.type, info, ids.plane.program.errors)
        if type_name:
            param.type_name.name = type_name


def _extern(info: p4i.P4Info, extern: ExternInstance, ids: Ids) -> None:
    if extern.kind in ("action_profile", "action_selector"):
        out: Any = info.action_profiles.add()
        _preamble(out, "profile", extern.name, ids, extern.decl)
        users = sorted(table.name for table in extern.tables if table in ids.plane.tables)
        out.table_ids.extend(ids.id_of("table", user) for user in users)
        out.size = extern.args["size"]
        if extern.kind == "action_selector":
            out.with_selector = True
            note = extern.decl.annotation("max_group_size")
            out.max_group_size = (note.number() if note else 0) or 0
            _size_semantics(out, extern)
    elif extern.kind == "counter":
        out = info.counters.add(size=extern.args["size"])
        _preamble(out, "counter", extern.name, ids, extern.decl)
        out.spec.unit = _UNITS[extern.args["type"]]
    elif extern.kind == "meter":
        out = info.meters.add(size=extern.args["size"])
        _preamble(out, "meter", extern.name, ids, extern.decl)
        out.spec.unit = _meter_unit(extern)
    elif extern.kind == "register":
        out = info.registers.add(size=extern.args["size"])
        _preamble(out, "register", extern.name, ids, extern.decl)
        out.type_spec.CopyFrom(data_spec(extern.cell, info, [], extern.decl.location))


def _direct(info: p4i.P4Info, table: TableInstance, ids: Ids) -> None:
    """The direct counter and the direct meter of a table."""
    out: Any
    if (counter := table.direct_counter) is not None:
        out = info.direct_counters.add(direct_table_id=ids.id_of("table", table.name))
        _preamble(out, "direct_counter", counter.name, ids, counter.decl)
        out.spec.unit = _UNITS[counter.args["type"]]
    if (meter := table.direct_meter) is not None:
        out = info.direct_meters.add(direct_table_id=ids.id_of("table", table.name))
        _preamble(out, "direct_meter", meter.name, ids, meter.decl)
        out.spec.unit = _meter_unit(meter)


def _meter_unit(meter: ExternInstance) -> Any:
    return p4i.MeterSpec.BYTES if meter.args["type"] == "bytes" else p4i.MeterSpec.PACKETS


def _size_semantics(out: p4i.ActionProfile, extern: ExternInstance) -> None:
    """`@selector_size_semantics`, `@max_member_weight` of an action selector."""
    note = extern.decl.annotation("selector_size_semantics")
    if note is None:
        return
    kind = (note.string() or "").lower()
    if kind == "sum_of_weights":
        out.sum_of_weights.SetInParent()
    elif kind == "sum_of_members":
        weight = extern.decl.annotation("max_member_weight")
        out.sum_of_members.max_member_weight = (weight.number() if weight else 0) or 0
        out.sum_of_members.SetInParent()
    else:
        fail(note.location, '@selector_size_semantics: want "sum_of_weights" or "sum_of_members"')


def _controller_header(info: p4i.P4Info, header: tree.Aggregate, ids: Ids) -> None:
    """The id comes from the type's name, the name from the annotation, as in p4c."""
    out = info.controller_packet_metadata.add()
    note = header.annotation("controller_header")
    name = note.string() if note else None
    if name is None:
        fail(header.location, f'{header.name}: @controller_header needs a name: @controller_header("packet_in")')
    out.preamble.id = ids.id_of("header", plane_name(header, ""))
    out.preamble.name = out.preamble.alias = name
    fill_notes(out.preamble, header.annotations)
    fields = header_fields(header.record)
    for header_field, number in zip(
        fields, field_ids(header_field.annotations for header_field in fields), strict=True
    ):
        if any(note.name == "hidden" for note in header_field.annotations):
            continue
        field = out.metadata.add(id=number, name=header_field.name)
        fill_notes(field, header_field.annotations)
        field.bitwidth, type_name = _width(header_field.type, info, ids.plane.program.errors)
        if type_name:
            field.type_name.name = type_name
